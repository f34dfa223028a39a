//! The hashing threads and their queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Gauge, Histogram};
use parking_lot::{Condvar, Mutex};
use strum::IntoStaticStr;

use crate::accounts::KnownDevice;
use crate::clock::{Clock, Micros, RecentTimes};
use crate::fair_queue::{FairQueue, JobId, QueueOwner, QueueSource, TakenJob};
use crate::login::RequestOrigin;
use crate::telemetry::QUEUE_SECONDS;

type HashWork = Box<dyn FnOnce(HashTurn) + Send>;

/// Dedicated threads that take the next job without sleeping in between: when each hash had to wake its
/// thread first, a seventh of two cores was idle. They end when this is dropped.
pub struct HashWorkers(Arc<WorkersShared>);

struct WorkersShared {
    queue: Mutex<JobQueue>,
    woken: Condvar,
    lanes: [LaneMetrics; 3],
    clock: Clock,
}

struct JobQueue {
    /// Each with when it was queued.
    jobs: HashScheduler<(HashWork, Micros)>,
    /// How many turns strangers have, and how many they may have at once.
    strangers: usize,
    most_strangers: usize,
    ended: bool,
}

/// A turn at hashing, from the start of the job until this is dropped. A stranger's may outlast the job, so that the
/// time that the next stranger waits does not tell what was computed.
pub struct HashTurn {
    pub started: Instant,
    /// If it is a stranger's.
    shared: Option<Arc<WorkersShared>>,
}

impl Drop for HashTurn {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.queue.lock().strangers -= 1;
            shared.woken.notify_one();
        }
    }
}

struct LaneMetrics {
    depth: Gauge,
    wait: Histogram,
    recent: RecentTimes,
}

/// A job's position in the queue; dropping this before the job has started removes it.
pub struct WaitingJob<'a> {
    workers: &'a HashWorkers,
    position: JobPosition,
}

impl HashWorkers {
    pub fn start(workers: usize, queue: usize, clock: Clock) -> Self {
        let shared = Arc::new(WorkersShared {
            queue: Mutex::new(JobQueue {
                jobs: HashScheduler::new(queue, workers),
                strangers: 0,
                most_strangers: usize::MAX,
                ended: false,
            }),
            woken: Condvar::new(),
            lanes: HashLane::ALL.map(LaneMetrics::of),
            clock,
        });
        for _ in 0..workers {
            let shared = Arc::clone(&shared);
            let run = move || shared.work();
            std::thread::Builder::new().name("password-hash".into()).spawn(run).expect("a thread");
        }
        Self(shared)
    }

    /// Lets so many strangers' turns run at once; known devices use the workers that are left.
    pub fn set_most_strangers(&self, most: usize) {
        self.0.queue.lock().most_strangers = most;
        self.0.woken.notify_all();
    }

    pub fn has_room(&self, caller: &HashCaller) -> bool {
        self.0.queue.lock().jobs.has_room(caller)
    }

    /// Queues work; None if there is no room. Work that is displaced later is dropped without running.
    pub fn push(&self, caller: &HashCaller, work: HashWork) -> Option<WaitingJob<'_>> {
        let now = self.0.clock.now();
        let mut queue = self.0.queue.lock();
        let (position, displaced) = queue.jobs.push(caller, (work, now)).ok()?;
        self.0.note_depth(&queue, position.lane);
        drop(queue);
        self.0.woken.notify_one();
        drop(displaced);
        Some(WaitingJob { workers: self, position })
    }

    /// How long 95 of 100 jobs waited lately, in the lane where that was longest.
    pub fn waited(&self) -> Option<Duration> {
        let now = self.0.clock.now();
        self.0.lanes.iter().filter_map(|lane| lane.recent.p95(now)).max()
    }

    pub fn waiting(&self, lane: HashLane) -> usize {
        self.0.queue.lock().jobs.len(lane)
    }
}

impl Drop for HashWorkers {
    fn drop(&mut self) {
        self.0.queue.lock().ended = true;
        self.0.woken.notify_all();
    }
}

impl WorkersShared {
    fn work(self: &Arc<Self>) {
        let mut queue = self.queue.lock();
        loop {
            let strangers_may = queue.strangers < queue.most_strangers;
            let Some(((work, queued), ticket)) = queue.jobs.take(strangers_may) else {
                if queue.ended {
                    return;
                }
                self.woken.wait(&mut queue);
                continue;
            };
            let stranger = ticket.lane != HashLane::KnownDevice;
            queue.strangers += usize::from(stranger);
            let turn = HashTurn { started: now(), shared: stranger.then(|| Arc::clone(self)) };
            self.note_depth(&queue, ticket.lane);
            drop(queue);
            let (lane, now) = (&self.lanes[ticket.lane as usize], self.clock.now());
            lane.wait.record(now.since(queued));
            lane.recent.record(now, now.since(queued));
            // A job that panics answers nobody, and its worker survives.
            let _ = catch_unwind(AssertUnwindSafe(|| work(turn)));
            queue = self.queue.lock();
            queue.jobs.finished(ticket);
        }
    }

    fn note_depth(&self, queue: &JobQueue, lane: HashLane) {
        self.lanes[lane as usize].depth.set(queue.jobs.len(lane) as f64);
    }
}

impl WaitingJob<'_> {
    /// Stops waiting. False if the job has started or was displaced: its end will be reported.
    pub fn withdraw(&self) -> bool {
        let Self { workers: HashWorkers(shared), position } = self;
        let mut queue = shared.queue.lock();
        let job = queue.jobs.remove(*position);
        shared.note_depth(&queue, position.lane);
        drop(queue);
        job.is_some()
    }
}

impl Drop for WaitingJob<'_> {
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl LaneMetrics {
    fn of(lane: HashLane) -> Self {
        Self {
            depth: metrics::gauge!("gatehouse_password_queue_depth", "lane" => lane.into_str()),
            wait: metrics::histogram!(QUEUE_SECONDS, "lane" => lane.into_str()),
            recent: RecentTimes::default(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "measures a turn, by which answers are paced")]
fn now() -> Instant {
    Instant::now()
}

// Which password is hashed next, and who may wait. Pure: no clock, no threads.
//
// Known devices and strangers have separate lanes, which are served in turn while both have waiting jobs.
// Known devices share their lane by account, with one hash in flight per device; strangers share theirs by
// network. Strangers with a solved challenge go before those without, and each of the two has positions that
// the other cannot fill.

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

/// Of a job that has a worker; return it when the job is done.
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

    /// The same in the lanes of strangers, where a known device is preferred like a solved challenge.
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
