//! The waiting lines: attempts that found every free slot held by attempts still in flight, in the order
//! they came. Those with a solved challenge have lines of their own: for them more slots are free. Where too many
//! wait, the longest line loses its youngest to a shorter one, so that a crowd at one log fills only its own.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::store::SubjectKey;

/// The most attempts that may wait in this process: each is a parked request.
const MOST_WAITING: usize = 1024;
/// A hold of another instance resolves unseen by this one, so the first in line also looks this often.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// Places to count arrivals in, a power of two. Logs that share one only find themselves less alone.
const ARRIVAL_SLOTS: usize = 16_384;

/// A log, and whether those who wait for it solved a challenge.
pub type QueueKey = (SubjectKey, bool);

#[derive(Debug)]
pub struct WaitQueue {
    /// How many attempts have asked for a slot in the logs that fall into a place. Made at the first one:
    /// where nothing is held it would be 128 KiB for nothing.
    arrivals: LazyLock<Box<[AtomicU64]>>,
    queues: Mutex<QueueTable>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct QueueTable {
    queues: HashMap<QueueKey, VecDeque<Arc<QueueWaiter>>>,
    /// The longest is last.
    lengths: BTreeSet<(usize, QueueKey)>,
}

#[derive(Debug, Default)]
struct QueueWaiter {
    notify: Notify,
    displaced: AtomicBool,
}

/// A place in a log's queue. Leaving it (by dropping it) lets the next one look.
#[derive(Debug)]
pub struct QueuePosition<'a> {
    queue: &'a WaitQueue,
    key: QueueKey,
    waiter: Arc<QueueWaiter>,
}

/// Another attempt has taken the place.
#[derive(Debug)]
pub struct DisplacedWaiter;

impl Default for WaitQueue {
    fn default() -> Self {
        let zeros = || (0..ARRIVAL_SLOTS).map(|_| AtomicU64::new(0)).collect();
        Self { arrivals: LazyLock::new(zeros), queues: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}

impl WaitQueue {
    /// Counts an attempt at this log in; its number.
    pub fn arrive(&self, key: SubjectKey) -> u64 {
        self.arrivals[arrival_slot(key)].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether nobody has come to this log since the attempt with that number.
    pub fn is_last(&self, key: SubjectKey, number: u64) -> bool {
        self.arrivals[arrival_slot(key)].load(Ordering::SeqCst) == number
    }

    /// Whether anybody waits for this log: who comes later must not pass them by.
    pub fn has_waiters(&self, key: QueueKey) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.queues().queues.contains_key(&key)
    }

    /// Takes the last place in a log's line, if need be from a longer one; none where there is none longer.
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
            // Something may have ended between the answer that sent it here and now.
            waiter.notify.notify_one();
        }
        Some(QueuePosition { queue: self, key, waiter })
    }

    /// Something changed in this log: whoever is first in line may look.
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

    /// The last of the longest line goes, unless the newcomer's would be as long then.
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

/// Keys are keyed hashes already: any of their bits will do.
fn arrival_slot(key: SubjectKey) -> usize {
    usize::from(u16::from_le_bytes([key.0[10], key.0[11]])) % ARRIVAL_SLOTS
}

impl QueuePosition<'_> {
    pub const fn key(&self) -> QueueKey {
        self.key
    }

    /// Waits until it is worth looking.
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
        // Whoever displaced it has taken it over.
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
