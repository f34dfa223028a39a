//! Remembers refusals for a moment, so that a flood of the same attempt does not ask the store each time.
//!
//! A remembered refusal can only refuse. Its wait is shortened by the time that has passed, and it never
//! outlives the wait. Any write by this process to one of its logs removes it. If another instance clears a
//! log, this one notices [`KEPT`] later, which errs towards refusing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::clock::Micros;
use crate::hold::LogCounts;
use crate::limit::{Limit, RuleAction};
use crate::store::{Bucket, Refusal, ReserveRequest, SubjectKey};

/// How long a refusal is remembered: too short for a person to notice, and a flood of any size asks the store
/// only twenty times a second.
pub const KEPT: Duration = Duration::from_millis(50);
/// A power of two. Two attempts that share a place evict each other, which costs only time.
const PLACES: usize = 4096;

pub struct RememberedRefusals {
    refusals: Box<[Mutex<Option<RememberedRefusal>>]>,
    /// This process's writes to each log.
    writes: LogCounts,
}

struct RememberedRefusal {
    question: SubjectKey,
    /// The limit that refused. Another set of limits may decide differently.
    limit: Limit,
    refusal: Refusal,
    /// When it was noted, by our clock.
    noted: Micros,
    writes: u64,
}

impl Default for RememberedRefusals {
    fn default() -> Self {
        Self { refusals: (0..PLACES).map(|_| Mutex::default()).collect(), writes: LogCounts::default() }
    }
}

impl RememberedRefusals {
    /// How often this process has written to these logs: taken before the store is asked.
    pub fn writes(&self, buckets: &[Bucket<'_>]) -> u64 {
        buckets.iter().map(|bucket| self.writes.latest(bucket.key)).sum()
    }

    /// This process has written, or is about to write, to these logs.
    pub fn wrote(&self, buckets: &[Bucket<'_>]) {
        for bucket in buckets {
            self.writes.add(bucket.key);
        }
    }

    pub fn note(&self, ask: &ReserveRequest<'_>, refusal: Refusal, now: Micros, writes: u64) {
        let question = question(ask.buckets);
        let limit = ask.buckets[refusal.bucket].limit.clone();
        let entry = RememberedRefusal { question, limit, refusal, noted: now, writes };
        *self.refusals[place(question)].lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }

    /// The refusal that the same attempt got a moment ago, if it is still valid.
    pub fn recall(&self, ask: &ReserveRequest<'_>, now: Micros) -> Option<Refusal> {
        let question = question(ask.buckets);
        let place = self.refusals[place(question)].lock().unwrap_or_else(PoisonError::into_inner);
        let entry = place.as_ref().filter(|entry| entry.question == question)?;
        let gone = now.since(entry.noted);
        let refusal = entry.refusal;
        let stands = now >= entry.noted
            && gone < KEPT
            && gone < refusal.retry_after
            && (refusal.then == RuleAction::Block || !ask.solved)
            && ask.buckets[refusal.bucket].limit.is(&entry.limit)
            && entry.writes == self.writes(ask.buckets);
        let retry_after = refusal.retry_after.saturating_sub(gone);
        stands.then_some(Refusal { retry_after, ..refusal })
    }
}

/// An attempt is identified by its logs, in their order.
fn question(buckets: &[Bucket<'_>]) -> SubjectKey {
    let mix = |sum: u128, bucket: &Bucket<'_>| sum.rotate_left(1) ^ u128::from_le_bytes(bucket.key.0);
    SubjectKey(buckets.iter().fold(0, mix).to_le_bytes())
}

/// Keys are keyed hashes already, so any of their bits will do.
fn place(key: SubjectKey) -> usize {
    usize::from(u16::from_le_bytes([key.0[8], key.0[9]])) % PLACES
}
