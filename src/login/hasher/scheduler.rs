//! Which password is hashed next, and who may wait. Pure: no clock, no threads.
//!
//! Known devices and strangers have lanes of their own, served in turn while both wait. Known devices share
//! theirs by account, with one hash in flight a device; strangers by network. Strangers who solved a challenge
//! go before those who did not, and each of the two has positions that the other cannot fill.

use super::fair::{FairQueue, JobId, Owner, Source, Taken};
use crate::login::{KnownDevice, Origin};

/// Who wants a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    /// Where the account was signed in to before.
    pub(super) device: Option<(Owner, Source)>,
    pub(super) network: Owner,
    pub(super) solved: bool,
}

/// Where a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    KnownDevice,
    /// A stranger who solved a challenge.
    Solved,
    Unsolved,
}

/// Where in the queue a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    pub lane: Lane,
    owner: Owner,
    id: JobId,
}

/// A job that has its worker.
pub struct Started<J> {
    pub job: J,
    pub ticket: Running,
}

/// To be handed back when the job is done.
#[derive(Debug, Clone, Copy)]
pub struct Running {
    pub lane: Lane,
    owner: Owner,
    source: Option<Source>,
}

pub struct Scheduler<J> {
    known: FairQueue<J>,
    solved: FairQueue<J>,
    unsolved: FairQueue<J>,
    /// The last one was a stranger's.
    known_is_next: bool,
    last_id: JobId,
}

impl Caller {
    /// Somebody at the machine itself: among strangers who solved a challenge, of no network.
    pub const OPERATOR: Self = Self { device: None, network: Owner::NOBODY, solved: true };

    /// `network` is at most 16 bytes long.
    pub fn stranger(network: &[u8], solved: bool) -> Self {
        Self { device: None, network: Owner::of(network), solved }
    }

    pub fn of(origin: &Origin, solved: bool, device: Option<&KnownDevice>) -> Self {
        let device = device.map(|device| {
            (Owner::of(device.account.as_bytes()), Source::from_be_bytes(*device.id.as_bytes()))
        });
        Self { device, ..Self::stranger(&origin.network, solved) }
    }

    pub const fn is_known(&self) -> bool {
        self.device.is_some()
    }

    /// Whether a challenge was solved: who finds no room without is asked for one.
    pub const fn solved(&self) -> bool {
        self.solved
    }

    /// The lanes to wait in, the best first: a known device is as good as any stranger.
    fn lanes(&self) -> impl Iterator<Item = (Lane, Owner, Option<Source>)> + use<> {
        let known = self.device.map(|(account, device)| (Lane::KnownDevice, account, Some(device)));
        let stranger = if self.solved { Lane::Solved } else { Lane::Unsolved };
        known.into_iter().chain([(stranger, self.network, None)])
    }
}

impl Lane {
    pub const ALL: [Self; 3] = [Self::KnownDevice, Self::Solved, Self::Unsolved];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KnownDevice => "known-device",
            Self::Solved => "solved",
            Self::Unsolved => "unsolved",
        }
    }
}

impl<J> Scheduler<J> {
    /// Half of the queue is for strangers who solved nothing, a quarter for those who solved a challenge, a
    /// quarter for known devices; and each has room for as many as can start at once.
    pub fn new(queue: usize, workers: usize) -> Self {
        let share = |part: usize| FairQueue::new(queue.div_ceil(part).max(workers));
        Self { known: share(4), solved: share(4), unsolved: share(2), known_is_next: true, last_id: 0 }
    }

    /// How many wait in a lane.
    pub const fn len(&self, lane: Lane) -> usize {
        self.queue(lane).len()
    }

    pub fn has_room(&mut self, caller: &Caller) -> bool {
        caller.lanes().any(|(lane, owner, _)| self.queue_mut(lane).has_room(owner))
    }

    /// Where the job waits, and the job that gave way to it; or the job, for which there is no room.
    pub fn push(&mut self, caller: &Caller, mut job: J) -> Result<(QueuePosition, Option<J>), J> {
        self.last_id += 1;
        let id = self.last_id;
        for (lane, owner, source) in caller.lanes() {
            match self.queue_mut(lane).push(owner, id, source, job) {
                Ok(displaced) => return Ok((QueuePosition { lane, owner, id }, displaced)),
                Err(refused) => job = refused,
            }
        }
        Err(job)
    }

    /// Takes a job out that is not to be done; none if it has started or was displaced.
    pub fn remove(&mut self, position: QueuePosition) -> Option<J> {
        self.queue_mut(position.lane).remove(position.owner, position.id)
    }

    /// The next job to do. While both lanes wait, every second one is a known device's.
    pub fn take(&mut self) -> Option<Started<J>> {
        let order = match self.known_is_next {
            true => [Lane::KnownDevice, Lane::Solved, Lane::Unsolved],
            false => [Lane::Solved, Lane::Unsolved, Lane::KnownDevice],
        };
        order.into_iter().find_map(|lane| {
            let Taken { job, owner, source } = self.queue_mut(lane).take()?;
            self.known_is_next = lane != Lane::KnownDevice;
            Some(Started { job, ticket: Running { lane, owner, source } })
        })
    }

    /// A job is done; its device may have the next.
    pub fn finished(&mut self, ticket: Running) {
        self.queue_mut(ticket.lane).finished(ticket.owner, ticket.source);
    }

    const fn queue(&self, lane: Lane) -> &FairQueue<J> {
        match lane {
            Lane::KnownDevice => &self.known,
            Lane::Solved => &self.solved,
            Lane::Unsolved => &self.unsolved,
        }
    }

    const fn queue_mut(&mut self, lane: Lane) -> &mut FairQueue<J> {
        match lane {
            Lane::KnownDevice => &mut self.known,
            Lane::Solved => &mut self.solved,
            Lane::Unsolved => &mut self.unsolved,
        }
    }
}

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
