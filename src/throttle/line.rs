//! The waiting lines: attempts that found every free slot held by attempts still in flight, in the order
//! they came. Those with a solved challenge have lines of their own: for them more slots are free. Where too many
//! wait, the longest line loses its youngest to a shorter one, so that a crowd at one log fills only its own.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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

/// A log, and whether those who wait for it solved a challenge.
pub type LineKey = (Key, bool);

#[derive(Debug)]
pub struct Line {
    /// How many attempts have asked for a slot in the logs that fall into a place. Made at the first one:
    /// where nothing is held it would be 128 KiB for nothing.
    arrivals: LazyLock<Box<[AtomicU64]>>,
    queues: Mutex<Queues>,
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queues {
    lines: HashMap<LineKey, VecDeque<Arc<Turn>>>,
    /// The longest is last.
    lengths: BTreeSet<(usize, LineKey)>,
}

#[derive(Debug, Default)]
struct Turn {
    notify: Notify,
    displaced: AtomicBool,
}

/// A place in a log's line. Leaving it (by dropping it) lets the next one look.
#[derive(Debug)]
pub struct Place<'a> {
    line: &'a Line,
    key: LineKey,
    turn: Arc<Turn>,
}

/// Another attempt has taken the place.
#[derive(Debug)]
pub struct Displaced;

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
    pub fn stands_at(&self, key: LineKey) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && self.queues().lines.contains_key(&key)
    }

    /// Takes the last place in a log's line, if need be from a longer one; none where there is none longer.
    pub fn join(&self, key: LineKey) -> Option<Place<'_>> {
        let mut queues = self.queues();
        if self.waiting.load(Ordering::SeqCst) < MOST_WAITING {
            self.waiting.fetch_add(1, Ordering::SeqCst);
        } else if !queues.displace_for(key) {
            return None;
        }
        let turn = Arc::new(Turn::default());
        queues.change(key, |line| line.push_back(Arc::clone(&turn)));
        if queues.length(key) == 1 {
            // Something may have ended between the answer that sent it here and now.
            turn.notify.notify_one();
        }
        Some(Place { line: self, key, turn })
    }

    /// Something changed in this log: whoever is first in line may look.
    pub fn call(&self, key: Key) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let queues = self.queues();
            for solved in [false, true] {
                queues.wake_first((key, solved));
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    fn length(&self, key: LineKey) -> usize {
        self.lines.get(&key).map_or(0, VecDeque::len)
    }

    fn change(&mut self, key: LineKey, how: impl FnOnce(&mut VecDeque<Arc<Turn>>)) {
        let line = self.lines.entry(key).or_default();
        self.lengths.remove(&(line.len(), key));
        how(line);
        match line.len() {
            0 => drop(self.lines.remove(&key)),
            length => drop(self.lengths.insert((length, key))),
        }
    }

    /// The last of the longest line goes, unless the newcomer's would be as long then.
    fn displace_for(&mut self, newcomer: LineKey) -> bool {
        let Some(&(longest, key)) = self.lengths.last() else { return false };
        if self.length(newcomer) + 1 >= longest {
            return false;
        }
        self.change(key, |line| {
            let last = line.pop_back().expect("the longest line is not empty");
            last.displaced.store(true, Ordering::SeqCst);
            last.notify.notify_one();
        });
        true
    }

    fn wake_first(&self, key: LineKey) {
        if let Some(first) = self.lines.get(&key).and_then(VecDeque::front) {
            first.notify.notify_one();
        }
    }
}

/// Keys are keyed hashes already: any of their bits will do.
fn place(key: Key) -> usize {
    usize::from(u16::from_le_bytes([key.0[10], key.0[11]])) % PLACES
}

impl Place<'_> {
    pub const fn key(&self) -> LineKey {
        self.key
    }

    /// Waits until it is worth looking.
    pub async fn turn(&self) -> Result<(), Displaced> {
        if self.is_first() {
            let _ = tokio::time::timeout(LOOK_EVERY, self.turn.notify.notified()).await;
        } else {
            self.turn.notify.notified().await;
        }
        if self.turn.displaced.load(Ordering::SeqCst) { Err(Displaced) } else { Ok(()) }
    }

    fn is_first(&self) -> bool {
        let queues = self.line.queues();
        let first = queues.lines.get(&self.key).and_then(VecDeque::front);
        first.is_some_and(|first| Arc::ptr_eq(first, &self.turn))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut queues = self.line.queues();
        // Whoever displaced it has taken it over.
        if self.turn.displaced.load(Ordering::SeqCst) {
            return;
        }
        self.line.waiting.fetch_sub(1, Ordering::SeqCst);
        queues.change(self.key, |line| line.retain(|turn| !Arc::ptr_eq(turn, &self.turn)));
        queues.wake_first(self.key);
    }
}

#[cfg(test)]
#[path = "line_tests.rs"]
mod tests;
