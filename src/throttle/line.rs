//! The waiting line: attempts that found every free slot held by attempts still in flight, in the order
//! they came, one line a log.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::store::Key;

/// The most attempts that may wait in this process: each is a parked request.
const MOST_WAITING: usize = 1024;
/// A hold of another instance resolves unseen by this one, so the first in line also looks this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Places to count arrivals in, a power of two. Logs that share one only find themselves less alone.
const PLACES: usize = 16_384;

#[derive(Debug)]
pub struct Line {
    /// How many attempts have asked for a slot in the logs that fall into a place. Made at the first one:
    /// where nothing is held it would be 128 KiB for nothing.
    arrivals: LazyLock<Box<[AtomicU64]>>,
    queues: Mutex<HashMap<Key, VecDeque<Arc<Notify>>>>,
    waiting: AtomicUsize,
}

/// A place in a log's line. Leaving it (by dropping it) lets the next one look.
#[derive(Debug)]
pub struct Place<'a> {
    line: &'a Line,
    key: Key,
    turn: Arc<Notify>,
}

impl Default for Line {
    fn default() -> Self {
        let zeros = || (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { arrivals: LazyLock::new(zeros), queues: Mutex::default(), waiting: AtomicUsize::new(0) }
    }
}

impl Line {
    /// Counts an attempt at this log in; its number.
    pub fn arrive(&self, key: Key) -> u64 {
        self.arrivals[place(key)].fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether nobody has come to this log since the attempt with that number.
    pub fn is_last(&self, key: Key, number: u64) -> bool {
        self.arrivals[place(key)].load(Ordering::SeqCst) == number
    }

    /// Whether anybody waits for this log: who comes later must not pass them by.
    pub fn stands_at(&self, key: Key) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.queues().contains_key(&key)
    }

    /// Takes the last place in a log's line; none where too many wait already.
    pub fn join(&self, key: Key) -> Option<Place<'_>> {
        let mut queues = self.queues();
        if self.waiting.load(Ordering::SeqCst) >= MOST_WAITING {
            return None;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let turn = Arc::new(Notify::new());
        let queue = queues.entry(key).or_default();
        queue.push_back(Arc::clone(&turn));
        if queue.len() == 1 {
            // Something may have ended between the answer that sent it here and now.
            turn.notify_one();
        }
        Some(Place { line: self, key, turn })
    }

    /// Something changed in this log: whoever is first in line may look.
    pub fn call(&self, key: Key) {
        if self.waiting.load(Ordering::SeqCst) > 0
            && let Some(first) = self.queues().get(&key).and_then(VecDeque::front)
        {
            first.notify_one();
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Key, VecDeque<Arc<Notify>>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys are keyed hashes already: any of their bits will do.
fn place(key: Key) -> usize {
    usize::from(u16::from_le_bytes([key.0[10], key.0[11]])) % PLACES
}

impl Place<'_> {
    pub fn key(&self) -> Key {
        self.key
    }

    /// Waits until it is worth looking.
    pub async fn turn(&self) {
        if self.is_first() {
            let _ = tokio::time::timeout(LOOK_EVERY, self.turn.notified()).await;
        } else {
            self.turn.notified().await;
        }
    }

    fn is_first(&self) -> bool {
        let queues = self.line.queues();
        queues.get(&self.key).and_then(VecDeque::front).is_some_and(|first| Arc::ptr_eq(first, &self.turn))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.line.queues();
        self.line.waiting.fetch_sub(1, Ordering::SeqCst);
        let Some(queue) = queues.get_mut(&self.key) else { return };
        queue.retain(|turn| !Arc::ptr_eq(turn, &self.turn));
        match queue.front() {
            Some(next) => next.notify_one(),
            None => drop(queues.remove(&self.key)),
        }
    }
}
