//! The hashing threads and their queue.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use metrics::{Gauge, Histogram};
use parking_lot::{Condvar, Mutex};

use super::scheduler::{HashCaller, HashLane, HashScheduler, JobPosition};
use crate::clock::{Clock, Micros, RecentTimes};
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
