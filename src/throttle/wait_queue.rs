//! Wait queues: attempts that found every free slot held by attempts in flight, in the order of arrival.
//! Attempts with a solved challenge have queues of their own, because more slots are free to them. If too
//! many wait, the longest queue loses its last attempt to a shorter one, so that a crowd at one log fills
//! only its own queue.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::store::SubjectKey;

/// The most attempts that may wait in this process: each is a parked request.
const MOST_WAITING: usize = 1024;
/// This instance does not see when a hold of another instance ends, so the first in the queue also asks this
/// often.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Counters of arrivals, a power of two. Logs that share one only see more company than they have.
const ARRIVAL_SLOTS: usize = 16_384;

/// A log, and whether those who wait for it have solved a challenge.
pub type QueueKey = (SubjectKey, bool);

#[derive(Debug)]
pub struct WaitQueue {
    /// How many attempts have asked for a slot in the logs of each counter. Allocated at the first attempt: a
    /// limiter that never holds does not need the 128 KiB.
    arrivals: LazyLock<Box<[AtomicU64]>>,
    queues: Mutex<QueueTable>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct QueueTable {
    queues: HashMap<QueueKey, VecDeque<Arc<QueueWaiter>>>,
    /// The longest queue is last.
    lengths: BTreeSet<(usize, QueueKey)>,
}

#[derive(Debug, Default)]
struct QueueWaiter {
    notify: Notify,
    displaced: AtomicBool,
}

/// A position in a log's queue. Dropping it lets the next attempt ask.
#[derive(Debug)]
pub struct QueuePosition<'a> {
    queue: &'a WaitQueue,
    key: QueueKey,
    waiter: Arc<QueueWaiter>,
}

/// Another attempt has taken the position.
#[derive(Debug)]
pub struct DisplacedWaiter;

impl Default for WaitQueue {
    fn default() -> Self {
        let zeros = || (0..ARRIVAL_SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { arrivals: LazyLock::new(zeros), queues: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}

impl WaitQueue {
    /// Counts an attempt at this log; returns its number.
    pub fn arrive(&self, key: SubjectKey) -> u64 {
        self.arrivals[arrival_slot(key)].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether no attempt has come to this log since the one with that number.
    pub fn is_last(&self, key: SubjectKey, number: u64) -> bool {
        self.arrivals[arrival_slot(key)].load(Ordering::SeqCst) == number
    }

    /// Whether anybody waits for this log. A later attempt must not overtake them.
    pub fn has_waiters(&self, key: QueueKey) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.queues().queues.contains_key(&key)
    }

    /// Takes the last position in a log's queue, if necessary from a longer queue; none if no queue is
    /// longer.
    pub fn join(&self, key: QueueKey) -> Option<QueuePosition<'_>> {
        let mut queues = self.queues();
        if self.waiting.load(Ordering::SeqCst) < MOST_WAITING {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        } else if !queues.displace_for(key) {
            return None;
        }
        let waiter = Arc::new(QueueWaiter::default());
        queues.change(key, |queue| queue.push_back(Arc::clone(&waiter)));
        if queues.length(key) == 1 {
            // A hold may have ended since the answer that led here.
            waiter.notify.notify_one();
        }
        Some(QueuePosition { queue: self, key, waiter })
    }

    /// Something changed in this log: the first in its queue may ask.
    pub fn wake(&self, key: SubjectKey) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let queues = self.queues();
            for solved in [false, true] {
                queues.wake_first((key, solved));
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, QueueTable> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QueueTable {
    fn length(&self, key: QueueKey) -> usize {
        self.queues.get(&key).map_or(0, VecDeque::len)
    }

    fn change(&mut self, key: QueueKey, how: impl FnOnce(&mut VecDeque<Arc<QueueWaiter>>)) {
        let queue = self.queues.entry(key).or_default();
        self.lengths.remove(&(queue.len(), key));
        how(queue);
        match queue.len() {
            0 => drop(self.queues.remove(&key)),
            length => drop(self.lengths.insert((length, key))),
        }
    }

    /// Removes the last attempt of the longest queue, unless the newcomer's queue would then be as long.
    fn displace_for(&mut self, newcomer: QueueKey) -> bool {
        let Some(&(longest, key)) = self.lengths.last() else { return false };
        if self.length(newcomer) + 1 >= longest {
            return false;
        }
        self.change(key, |queue| {
            let last = queue.pop_back().expect("the longest line is not empty");
            last.displaced.store(true, Ordering::SeqCst);
            last.notify.notify_one();
        });
        true
    }

    fn wake_first(&self, key: QueueKey) {
        if let Some(first) = self.queues.get(&key).and_then(VecDeque::front) {
            first.notify.notify_one();
        }
    }
}

/// Keys are keyed hashes already, so any of their bits will do.
fn arrival_slot(key: SubjectKey) -> usize {
    usize::from(u16::from_le_bytes([key.0[10], key.0[11]])) % ARRIVAL_SLOTS
}

impl QueuePosition<'_> {
    pub const fn key(&self) -> QueueKey {
        self.key
    }

    /// Waits until it is worth asking.
    pub async fn wait(&self) -> Result<(), DisplacedWaiter> {
        if self.is_first() {
            let _ = tokio::time::timeout(CHECK_EVERY, self.waiter.notify.notified()).await;
        } else {
            self.waiter.notify.notified().await;
        }
        if self.waiter.displaced.load(Ordering::SeqCst) { Err(DisplacedWaiter) } else { Ok(()) }
    }

    fn is_first(&self) -> bool {
        let queues = self.queue.queues();
        let first = queues.queues.get(&self.key).and_then(VecDeque::front);
        first.is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
    }
}

impl Drop for QueuePosition<'_> {
    fn drop(&mut self) {
        let mut queues = self.queue.queues();
        // The attempt that displaced it has the position now.
        if self.waiter.displaced.load(Ordering::SeqCst) {
            return;
        }
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        queues.change(self.key, |queue| queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter)));
        queues.wake_first(self.key);
    }
}

#[cfg(test)]
#[path = "wait_queue_tests.rs"]
mod tests;
