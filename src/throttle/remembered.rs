//! Refusals remembered for a moment: a flood of one and the same attempt need not ask the store each time.
//!
//! What is remembered only ever refuses, says the same wait less the time gone by, and never outlives the
//! wait itself. Whatever this process writes to one of its logs makes it forget. What it cannot see is
//! another instance clearing a log: that is noticed [`KEPT`] later, and errs towards refusing.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::limit::{Limit, RuleAction};
use super::store::{Bucket, Refusal, ReserveRequest, StoreVerdict, SubjectKey};
use crate::clock::Micros;

/// How long a refusal is good for: nothing that a person notices, and a flood of any size asks the store
/// only twenty times a second.
pub const KEPT: Duration = Duration::from_millis(50);
/// A power of two. Two attempts that meet in one place take turns; they are right all the same.
const PLACES: usize = 4096;

pub struct RememberedRefusals {
    refusals: Box<[Mutex<Option<RememberedRefusal>>]>,
    /// How often this process has written to the logs that fall into a place.
    writes: Box<[AtomicU32]>,
}

/// The writes to an ask's logs so far, taken before the store is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WriteCount(u32);

struct RememberedRefusal {
    question: SubjectKey,
    /// The limit that refused, to know it again: another set of limits may judge otherwise.
    limit: Limit,
    refusal: Refusal,
    /// The store's time, and ours.
    at: Micros,
    noted: Micros,
    writes: WriteCount,
}

impl Default for RememberedRefusals {
    fn default() -> Self {
        Self {
            refusals: (0..PLACES).map(|_| Mutex::default()).collect(),
            writes: (0..PLACES).map(|_| AtomicU32::new(0)).collect(),
        }
    }
}

impl RememberedRefusals {
    pub fn writes(&self, buckets: &[Bucket<'_>]) -> WriteCount {
        let count = |bucket: &Bucket<'_>| self.writes[place(bucket.key)].load(Ordering::SeqCst);
        WriteCount(buckets.iter().map(count).fold(0, u32::wrapping_add))
    }

    /// This process wrote, or is about to write, to these logs.
    pub fn wrote(&self, buckets: &[Bucket<'_>]) {
        for bucket in buckets {
            self.writes[place(bucket.key)].fetch_add(1, Ordering::SeqCst);
        }
    }

    pub fn note(
        &self,
        ask: &ReserveRequest<'_>,
        at: Micros,
        refusal: Refusal,
        now: Micros,
        writes: WriteCount,
    ) {
        let question = question(ask.buckets);
        let limit = ask.buckets[refusal.bucket].limit.clone();
        let entry = RememberedRefusal { question, limit, refusal, at, noted: now, writes };
        *self.refusals[place(question)].lock().unwrap_or_else(PoisonError::into_inner) = Some(entry);
    }

    /// The refusal that the same attempt met a moment ago, where it still stands.
    pub fn recall(&self, ask: &ReserveRequest<'_>, now: Micros) -> Option<StoreVerdict> {
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
        let refused = Refusal { retry_after, ..refusal };
        stands.then(|| StoreVerdict::Refused { at: entry.at.plus(gone), refusal: refused })
    }
}

/// An attempt is known by its logs, in their order.
fn question(buckets: &[Bucket<'_>]) -> SubjectKey {
    let mix = |sum: u128, bucket: &Bucket<'_>| sum.rotate_left(1) ^ u128::from_le_bytes(bucket.key.0);
    SubjectKey(buckets.iter().fold(0, mix).to_le_bytes())
}

/// Keys are keyed hashes already: any of their bits will do.
fn place(key: SubjectKey) -> usize {
    usize::from(u16::from_le_bytes([key.0[8], key.0[9]])) % PLACES
}
