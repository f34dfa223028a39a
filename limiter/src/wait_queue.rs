//! Wait queues by key, each in the order of arrival: of those who wait for the same thing, the first may try, and
//! leaving lets the next one try. If too many wait, the longest queue loses its last to a shorter one, so that a
//! crowd at one key fills only its own queue.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Queues by key, with a bound on all and on each.
#[derive(Debug)]
pub struct WaitQueue<K> {
    queues: Mutex<HashMap<K, VecDeque<Arc<QueueWaiter>>>>,
    waiting: AtomicUsize,
    /// The most that may wait in all: each is a parked request.
    most: usize,
    /// The longest that a queue may be.
    longest: usize,
}

#[derive(Debug, Default)]
struct QueueWaiter {
    notify: Notify,
    displaced: AtomicBool,
    /// It is first, and no longer counts among those who wait.
    has_turn: AtomicBool,
}

/// A position in the queue of a key. Dropping it lets the next one try.
#[derive(Debug)]
pub struct QueuePosition<K: Clone + Eq + Hash> {
    queue: Arc<WaitQueue<K>>,
    key: K,
    waiter: Arc<QueueWaiter>,
}

/// Another one has taken the position.
#[derive(Debug)]
pub struct DisplacedWaiter;

impl<K: Clone + Eq + Hash> WaitQueue<K> {
    /// For at most `most` who wait, and `longest` at one key.
    pub fn new(most: usize, longest: usize) -> Arc<Self> {
        Arc::new(Self { queues: Mutex::default(), waiting: AtomicUsize::new(0), most, longest })
    }

    /// Whether anybody waits for this key. Whoever comes later must not overtake them.
    pub fn has_waiters(&self, key: &K) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.queues().contains_key(key)
    }

    /// Takes the last position in the queue of a key, if necessary from a longer queue; none if it is too long, or
    /// if too many wait and no queue is longer.
    pub fn join(self: &Arc<Self>, key: K) -> Option<QueuePosition<K>> {
        let mut queues = self.queues();
        let length = queues.get(&key).map_or(0, VecDeque::len);
        if length >= self.longest {
            return None;
        }
        if self.waiting.load(Ordering::SeqCst) < self.most {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        } else {
            // Not if the newcomer's queue would then be as long.
            let queue =
                queues.values_mut().max_by_key(|queue| queue.len()).filter(|queue| length + 1 < queue.len());
            let last = queue?.pop_back().expect("a longer queue is not empty");
            last.displaced.store(true, Ordering::SeqCst);
            last.notify.notify_one();
        }
        let waiter = Arc::<QueueWaiter>::default();
        if length == 0 {
            // Something may have changed since the answer that led here.
            waiter.notify.notify_one();
        }
        queues.entry(key.clone()).or_default().push_back(Arc::clone(&waiter));
        Some(QueuePosition { queue: Arc::clone(self), key, waiter })
    }

    /// Something changed at this key: the first in its queue may try.
    pub fn wake(&self, key: &K) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            wake_first(self.queues().get(key));
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<K, VecDeque<Arc<QueueWaiter>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake_first(queue: Option<&VecDeque<Arc<QueueWaiter>>>) {
    if let Some(first) = queue.and_then(VecDeque::front) {
        first.notify.notify_one();
    }
}

impl<K: Clone + Eq + Hash> QueuePosition<K> {
    /// The key that it waits for.
    pub const fn key(&self) -> &K {
        &self.key
    }

    /// Waits until it is worth trying.
    pub async fn wait(&self) -> Result<(), DisplacedWaiter> {
        self.waiter.notify.notified().await;
        if self.waiter.displaced.load(Ordering::SeqCst) { Err(DisplacedWaiter) } else { Ok(()) }
    }

    /// Waits until it is first. From then on it has its turn until it is dropped, and is not counted as waiting.
    pub async fn turn(self) -> Result<Self, DisplacedWaiter> {
        while !self.is_first() {
            self.wait().await?;
        }
        self.waiter.has_turn.store(true, Ordering::SeqCst);
        self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(self)
    }

    /// Whether it is its turn.
    pub fn is_first(&self) -> bool {
        let queues = self.queue.queues();
        let first = queues.get(&self.key).and_then(VecDeque::front);
        first.is_some_and(|first| Arc::ptr_eq(first, &self.waiter))
    }
}

impl<K: Clone + Eq + Hash> Drop for QueuePosition<K> {
    fn drop(&mut self) {
        let mut queues = self.queue.queues();
        // The one that displaced it has the position now.
        if self.waiter.displaced.load(Ordering::SeqCst) {
            return;
        }
        if !self.waiter.has_turn.load(Ordering::SeqCst) {
            self.queue.waiting.fetch_sub(1, Ordering::SeqCst);
        }
        let Some(queue) = queues.get_mut(&self.key) else { return };
        queue.retain(|waiter| !Arc::ptr_eq(waiter, &self.waiter));
        if queue.is_empty() {
            queues.remove(&self.key);
        } else {
            wake_first(queues.get(&self.key));
        }
    }
}

#[cfg(test)]
mod tests;
