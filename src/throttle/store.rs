//! What a store of window logs must do, and the words that decisions are given in.

use std::future::Future;
use std::time::Duration;

use super::limit::{Limit, RuleAction};
use crate::clock::Micros;

/// The most logs one decision may span: what one script may reasonably touch.
pub const MOST_BUCKETS: usize = 8;

/// The most hits of one log that are read at once; a log may hold a million.
pub const MOST_READ: usize = 1000;

/// A subject of a limit as a store sees it: a keyed hash, which says nothing of whom it stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectKey(pub [u8; 16]);

/// One subject's log under one limit.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    pub limit: &'a Limit,
    pub key: SubjectKey,
}

/// A bucket that outlives the snapshot of the limits that it was made from.
#[derive(Debug, Clone)]
pub struct OwnedBucket {
    pub limit: Limit,
    pub key: SubjectKey,
}

impl Bucket<'_> {
    pub fn to_owned(self) -> OwnedBucket {
        OwnedBucket { limit: self.limit.clone(), key: self.key }
    }
}

impl OwnedBucket {
    pub fn borrow(&self) -> Bucket<'_> {
        Bucket { limit: &self.limit, key: self.key }
    }
}

/// Names one hit in every log it stands in. Unique, not secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HitId(pub [u8; 6]);

/// What a reservation leaves in the logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveKind {
    /// Counts from now on.
    Hit,
    /// Takes a place until its outcome is known; see [`HoldOutcome`].
    Hold,
}

/// One decision to be made.
#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest<'a> {
    /// At most [`MOST_BUCKETS`], no two with the same key.
    pub buckets: &'a [Bucket<'a>],
    pub id: HitId,
    pub kind: ReserveKind,
    /// A challenge was solved with this attempt: `captcha` rules let it pass, `block` rules do not.
    pub solved: bool,
}

/// The answer to an [`ReserveRequest`]; `at` is the store's time, which is the only one that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerdict {
    /// A hit stands in every log now.
    Admitted { at: Micros, room: Option<LimitRoom>, noted: Option<Refusal> },
    /// Nothing was written: holds in flight fill this bucket, and whether there is room depends on
    /// how they end. Ask again when one has.
    Held { at: Micros, bucket: usize },
    /// Nothing was written.
    Refused { at: Micros, refusal: Refusal },
}

/// Why an attempt may not pass: the strictest rule that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the buckets asked for, and which rule of its limit; both from 0.
    pub bucket: usize,
    pub rule: usize,
    pub then: RuleAction,
    /// Until the next slot frees, where nobody else takes it; to the microsecond.
    pub retry_after: Duration,
    /// The same as a time of the store's: one and the same for as long as one and the same hit stands in
    /// the way.
    pub frees_at: Micros,
}

impl Refusal {
    /// When it was decided, by the store's clock.
    pub const fn at(&self) -> Micros {
        self.frees_at.minus(self.retry_after)
    }
}

/// What is left after a hit, by the tightest enforced rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitRoom {
    pub bucket: usize,
    pub rule: usize,
    pub remaining: u32,
    /// Until the whole quota is free again, where nothing else happens.
    pub reset_after: Duration,
}

/// What became of a hold (or, for a refund, of a hit).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It counts, from the time of its outcome. Where the log has lost the hold, it is written anew.
    Keep,
    /// It never was. Harmless when repeated.
    Refund,
    /// It never was, and the kept hits up to that time are forgiven, unless another hold is in flight: rules
    /// that ask for a challenge pass over them from then on. Rules that block count them still, or whoever
    /// guesses would have as many guesses again after each time that the owner comes. What was kept later,
    /// beside the attempt that succeeded, stays whole: a burst cannot use one success to wipe its own
    /// failures. At most a thousand at once, the oldest first. Under a limit that only blocks, a refund.
    Forgive { up_to: Micros },
}

/// A kept hit as it is known elsewhere, to be written back to a store that may have lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptHit {
    pub at: Micros,
    pub id: HitId,
}

/// What a log holds, rule by rule, without touching it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPeek {
    pub at: Micros,
    /// Holds in flight.
    pub holds: u32,
    pub rules: Vec<RulePeek>,
}

/// The times that a log holds, for people to look at: also those that no rule counts any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReading {
    pub at: Micros,
    /// Holds in flight.
    pub holds: u32,
    /// Of the kept hits, newest first; at most [`MOST_READ`].
    pub hits: Vec<Micros>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulePeek {
    /// Kept hits that this rule counts now, never more than its `max`. One that asks for a challenge counts none
    /// that a success has forgiven.
    pub count: u32,
    /// Until a slot frees; zero where there is room.
    pub retry_after: Duration,
}

/// The store could not answer. What that means for a request is its caller's policy.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the window store cannot be reached")]
    Down,
    #[error("the window store did not answer in time")]
    TimedOut,
    #[error("the window store sent an unexpected answer: {0}")]
    Broken(String),
}

/// A store of window logs. Every method decides by one clock, waits at most the store's configured
/// time-out for each round trip (one, rarely two), and answers `Err` only where the store itself is at fault.
pub trait WindowStore: Send + Sync {
    /// One atomic step over every bucket: a hit in each, or in none. A refusal writes nothing.
    /// Two stores' worth of callers asking at once never admit more than a rule allows.
    fn reserve(
        &self,
        ask: &ReserveRequest<'_>,
    ) -> impl Future<Output = Result<StoreVerdict, StoreError>> + Send;

    /// Says how a reservation ended, bucket by bucket (`outcomes` is as long as `buckets`), in one
    /// atomic step. Answers the store's time: where a bucket kept it, that from which it counts.
    fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
    ) -> impl Future<Output = Result<Micros, StoreError>> + Send;

    /// Reads a log. Writes nothing, but that holds whose owner died become kept hits.
    fn peek(&self, bucket: Bucket<'_>) -> impl Future<Output = Result<LogPeek, StoreError>> + Send;

    /// Reads the times of a log's newest hits. Writes as little as [`peek`](Self::peek).
    fn read(&self, bucket: Bucket<'_>) -> impl Future<Output = Result<LogReading, StoreError>> + Send;

    /// Forgets a log whole. A hold in flight is written anew when it is kept.
    fn clear(&self, bucket: Bucket<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes kept hits back, each with its own time and id, in any order and however often: one that
    /// stands in its log stays as it stands, one that no rule can see any more is left out, and a log
    /// keeps its newest: twice as many as its largest `max`, until the next hit that it admits. Atomic for each hit, not for all of them; some may stand where it fails.
    fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The rebuild by which what `name` stands for became whole in this store; none where it never
    /// was, where the store has lost its data since, or where it was last made whole in another shape: what
    /// a log keeps follows from its limit, so that it may not hold what an earlier shape had.
    fn rebuild_generation(
        &self,
        name: &str,
        shape: &str,
    ) -> impl Future<Output = Result<Option<HitId>, StoreError>> + Send;

    /// Starts to rebuild what `name` stands for. `by` is new each time.
    fn begin_rebuild(&self, name: &str, by: HitId) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// What `name` stands for is whole in this shape, and in no other. False, and it is not, where the store has lost its data since
    /// [`begin_rebuild`](Self::begin_rebuild).
    fn finish_rebuild(
        &self,
        name: &str,
        shape: &str,
        by: HitId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}
