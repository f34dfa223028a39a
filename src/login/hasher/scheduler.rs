//! Which password is hashed next, and who may wait. Pure: no clock, no threads.
//!
//! Known devices and strangers have separate lanes, which are served in turn while both have waiting jobs.
//! Known devices share their lane by account, with one hash in flight per device; strangers share theirs by
//! network. Strangers with a solved challenge go before those without, and each of the two has positions that
//! the other cannot fill.

use strum::IntoStaticStr;

use crate::accounts::KnownDevice;
use crate::fair_queue::{FairQueue, JobId, QueueOwner, QueueSource, TakenJob};
use crate::login::RequestOrigin;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashCaller {
    /// The known device and its account.
    pub(super) device: Option<(QueueOwner, QueueSource)>,
    pub(super) network: QueueOwner,
    pub(super) solved: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum HashLane {
    KnownDevice,
    /// A stranger with a solved challenge.
    Solved,
    Unsolved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobPosition {
    pub lane: HashLane,
    owner: QueueOwner,
    id: JobId,
}

/// A job that has a worker; return it when the job is done.
#[derive(Debug, Clone, Copy)]
pub struct RunningJob {
    pub lane: HashLane,
    owner: QueueOwner,
    source: Option<QueueSource>,
}

pub struct HashScheduler<J> {
    queues: [FairQueue<J>; 3],
    /// The last one was a stranger's.
    known_is_next: bool,
    last_id: JobId,
}

impl HashCaller {
    /// Somebody at the machine itself: treated as a stranger with a solved challenge and no network.
    pub const OPERATOR: Self = Self { device: None, network: QueueOwner::NOBODY, solved: true };

    /// `network` is at most 16 bytes long.
    pub fn stranger(network: &[u8], solved: bool) -> Self {
        Self { device: None, network: QueueOwner::of(network), solved }
    }

    pub fn of(origin: &RequestOrigin, solved: bool, device: Option<&KnownDevice>) -> Self {
        let device = device.map(|device| {
            (QueueOwner::of(device.account.as_bytes()), QueueSource::from_be_bytes(*device.id.as_bytes()))
        });
        Self { device, ..Self::stranger(&origin.network, solved) }
    }

    /// Its place in the lanes of strangers, where a known device is preferred like a solved challenge.
    pub const fn as_stranger(self) -> Self {
        Self { device: None, solved: self.solved || self.device.is_some(), ..self }
    }

    pub const fn is_known(&self) -> bool {
        self.device.is_some()
    }

    /// Whether a challenge was solved. Without one, a caller that finds no room is asked for one.
    pub const fn solved(&self) -> bool {
        self.solved
    }

    /// The lanes to wait in, best first: a known device may use the lane of any stranger.
    fn lanes(&self) -> impl Iterator<Item = (HashLane, QueueOwner, Option<QueueSource>)> + use<> {
        let known = self.device.map(|(account, device)| (HashLane::KnownDevice, account, Some(device)));
        let stranger = if self.solved { HashLane::Solved } else { HashLane::Unsolved };
        known.into_iter().chain([(stranger, self.network, None)])
    }
}

impl HashLane {
    pub const ALL: [Self; 3] = [Self::KnownDevice, Self::Solved, Self::Unsolved];
}

impl<J> HashScheduler<J> {
    /// Half of the queue is for strangers without a solved challenge, a quarter for those with one, and a
    /// quarter for known devices; each has room for at least as many as can start at once.
    pub fn new(queue: usize, workers: usize) -> Self {
        let share = |part: usize| FairQueue::new(queue.div_ceil(part).max(workers));
        Self { queues: [share(4), share(4), share(2)], known_is_next: true, last_id: 0 }
    }

    pub const fn len(&self, lane: HashLane) -> usize {
        self.queues[lane as usize].len()
    }

    pub fn has_room(&mut self, caller: &HashCaller) -> bool {
        caller.lanes().any(|(lane, owner, _)| self.queues[lane as usize].has_room(owner))
    }

    /// The job's position, and the job that it displaced; or the job itself, if there is no room.
    pub fn push(&mut self, caller: &HashCaller, mut job: J) -> Result<(JobPosition, Option<J>), J> {
        self.last_id += 1;
        let id = self.last_id;
        for (lane, owner, source) in caller.lanes() {
            match self.queues[lane as usize].push(owner, id, source, job) {
                Ok(displaced) => return Ok((JobPosition { lane, owner, id }, displaced)),
                Err(refused) => job = refused,
            }
        }
        Err(job)
    }

    /// Removes a job that should not run; None if it has started or was displaced.
    pub fn remove(&mut self, position: JobPosition) -> Option<J> {
        self.queues[position.lane as usize].remove(position.owner, position.id)
    }

    /// The next job. While both lanes have jobs, every second one is a known device's; all are, unless strangers may
    /// have a turn.
    pub fn take(&mut self, strangers_may: bool) -> Option<(J, RunningJob)> {
        let order = match self.known_is_next {
            true => [HashLane::KnownDevice, HashLane::Solved, HashLane::Unsolved],
            false => [HashLane::Solved, HashLane::Unsolved, HashLane::KnownDevice],
        };
        order.into_iter().filter(|lane| strangers_may || *lane == HashLane::KnownDevice).find_map(|lane| {
            let TakenJob { job, owner, source } = self.queues[lane as usize].take()?;
            self.known_is_next = lane != HashLane::KnownDevice;
            Some((job, RunningJob { lane, owner, source }))
        })
    }

    /// A job is done; its device may have the next.
    pub fn finished(&mut self, ticket: RunningJob) {
        self.queues[ticket.lane as usize].finished(ticket.owner, ticket.source);
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod scheduler_tests;
