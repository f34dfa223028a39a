//! What a store of window logs must do, and the types of its answers.

use std::future::Future;
use std::time::Duration;

use crate::clock::Micros;
use crate::limit::{Limit, RuleAction};

/// The most logs in one decision: a reasonable number for one script.
pub const MOST_BUCKETS: usize = 8;

/// The most hits of one log that are read at once; a log may hold a million.
pub const MOST_READ: usize = 1000;

/// A subject of a limit as a store sees it: a keyed hash that does not reveal the subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubjectKey(pub [u8; 16]);

/// One subject's log under one limit.
///
/// It belongs to the limiters that have the key of the one that made it: another hashes the same subject to another
/// `key`. Used with a limiter of another key, it is another subject's log, which nobody else counts in, and nothing
/// tells. Give every limiter on one store the same key.
#[derive(Debug, Clone, Copy)]
pub struct Bucket<'a> {
    /// The limit that its rules are of.
    pub limit: &'a Limit,
    /// The subject that it counts.
    pub key: SubjectKey,
}

/// A bucket that outlives the snapshot of the limits that it came from.
#[derive(Debug, Clone)]
pub struct OwnedBucket {
    /// The limit that its rules are of.
    pub limit: Limit,
    /// The subject that it counts.
    pub key: SubjectKey,
}

impl Bucket<'_> {
    /// A copy with its limit.
    pub fn to_owned(self) -> OwnedBucket {
        OwnedBucket { limit: self.limit.clone(), key: self.key }
    }
}

impl OwnedBucket {
    /// The bucket itself.
    pub fn borrow(&self) -> Bucket<'_> {
        Bucket { limit: &self.limit, key: self.key }
    }
}

/// Identifies one hit in all of its logs. Unique, not secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HitId(pub [u8; 6]);

/// What a reservation writes to the logs. The numbers are those that `lua/reserve.lua` knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveKind {
    /// Counts from now on.
    Hit = 0,
    /// Takes a slot until its outcome is known; see [`HoldOutcome`].
    Hold = 1,
}

/// One decision to be made.
#[derive(Debug, Clone, Copy)]
pub struct ReserveRequest<'a> {
    /// At most [`MOST_BUCKETS`], no two with the same key: [`check_buckets`] has passed them.
    pub buckets: &'a [Bucket<'a>],
    /// The id of the hit that is written.
    pub id: HitId,
    /// What is written.
    pub kind: ReserveKind,
    /// A challenge was solved with this attempt: `captcha` rules let it pass, `block` rules do not.
    pub solved: bool,
    /// Unless these windows are complete, it fails with [`StoreError::Incomplete`] and leaves nothing behind: in a
    /// cluster what was written is taken back.
    pub complete: Option<CompleteWindows<'a>>,
}

/// Windows, and the rebuild that completed them, as [`WindowStore::rebuild_generation`] names it.
#[derive(Debug, Clone, Copy)]
pub struct CompleteWindows<'a> {
    /// The name that the store knows them by.
    pub name: &'a str,
    /// The shape in which they are complete.
    pub shape: &'a str,
    /// The rebuild that completed them.
    pub generation: HitId,
}

/// The answer to a [`ReserveRequest`]. Times are the store's, which are the only ones that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreVerdict {
    /// A hit is in every log now.
    Admitted {
        /// From when it counts.
        at: Micros,
        /// What is left, by the tightest enforced rule.
        room: Option<LimitRoom>,
        /// What a monitored limit would have refused.
        noted: Option<Refusal>,
    },
    /// Nothing was written: holds in flight fill this bucket, and how they end decides whether there is room.
    /// Ask again when one has ended.
    Held {
        /// When it was judged.
        at: Micros,
        /// Which bucket, from 0.
        bucket: usize,
    },
    /// Nothing was written.
    Refused {
        /// The rule that refuses it, and for how long.
        refusal: Refusal,
    },
}

/// Why an attempt may not pass: the strictest rule that is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// Which of the buckets asked for, and which rule of its limit; both from 0.
    pub bucket: usize,
    /// The rule that is full, from 0.
    pub rule: usize,
    /// What that rule asks for.
    pub then: RuleAction,
    /// Until the next slot frees, if nobody else takes it; to the microsecond.
    pub retry_after: Duration,
    /// When it is free again, as a time of the store. It stays the same as long as the same hit is in the way.
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
    /// The bucket of the tightest rule, from 0.
    pub bucket: usize,
    /// The number of that rule, from 0.
    pub rule: usize,
    /// How many more it admits now.
    pub remaining: u32,
    /// Until it admits one more, if nothing else happens.
    pub more_after: Duration,
    /// Until the whole quota is free again, if nothing else happens.
    pub reset_after: Duration,
}

/// How a hold (or, for a refund, a hit) ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It counts, from the time of its outcome. If the log has lost the hold, it is written anew.
    Keep,
    /// It is removed. Harmless if repeated.
    Refund,
    /// It is removed, and the kept hits up to that time are forgiven, unless another hold is in flight: rules
    /// that ask for a challenge ignore them from then on. Rules that block still count them; otherwise a
    /// guesser would get as many guesses again each time the owner signs in. Hits that were kept later,
    /// beside the attempt that succeeded, still count: a burst cannot use one success to wipe its own
    /// failures. At most a thousand at once, the oldest first. Under a limit that only blocks, this is a
    /// refund.
    Forgive {
        /// A time of the store's clock.
        up_to: Micros,
    },
}

/// What a settlement tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The store's time; if a bucket kept the hit, it counts from then.
    pub at: Micros,
    /// The state of each log afterwards. None: nobody asked, or it is settled and the store cannot tell.
    pub states: Option<Vec<LogPeek>>,
}

/// A hit that counts: in a log of this process, or from another record, to be written back to a store that may have
/// lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeptHit {
    /// From when it counts.
    pub at: Micros,
    /// Which hit it is; the same in all of its logs.
    pub id: HitId,
}

/// The state of a log, rule by rule; reading it changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPeek {
    /// When it was read, by the store's clock.
    pub at: Micros,
    /// Holds in flight.
    pub holds: u32,
    /// In the order of the limit's rules.
    pub rules: Vec<RulePeek>,
}

/// The times in a log, for people to look at, including those that no rule counts any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReading {
    /// When it was read, by the store's clock.
    pub at: Micros,
    /// Holds in flight.
    pub holds: u32,
    /// The kept hits, newest first; at most [`MOST_READ`].
    pub hits: Vec<Micros>,
}

/// What a rule counts now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RulePeek {
    /// Kept hits that this rule counts now, at most its `max`. A rule that asks for a challenge does not
    /// count forgiven hits.
    pub count: u32,
    /// Until a slot frees; zero if there is room.
    pub retry_after: Duration,
}

/// The store could not answer, or was asked what it cannot be. The caller decides what that means for a request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// There is no connection, or the server takes no writes. The call has written nothing.
    #[error("the window store cannot be reached")]
    Down,
    /// No answer came within the time-out, or the connection was lost before. The call may have been carried out, and may
    /// be yet.
    #[error("the window store did not answer")]
    TimedOut,
    /// The windows are not complete by the rebuild that the request names. A full rule may be reported instead.
    #[error("the windows in the store are incomplete")]
    Incomplete,
    /// The answer was not one that a store gives.
    #[error("the window store sent an unexpected answer: {0}")]
    Broken(String),
    /// The call is wrong: one step spans no more buckets. Nothing was asked of the store.
    #[error("{count} buckets in one step; at most {MOST_BUCKETS} are possible")]
    TooManyBuckets {
        /// How many there were.
        count: usize,
    },
    /// The call is wrong: two buckets are one log, because their limits have the same name, and it would count twice.
    /// Nothing was asked of the store. Put the rules into one limit.
    #[error("buckets {first} and {second} of one step are the same log")]
    SameLog {
        /// The place of one, from 0.
        first: usize,
        /// The place of the other, from 0.
        second: usize,
    },
}

impl StoreError {
    /// Whether it is certain that the call has written nothing.
    pub const fn wrote_nothing(&self) -> bool {
        match self {
            Self::Down | Self::Incomplete | Self::TooManyBuckets { .. } | Self::SameLog { .. } => true,
            Self::TimedOut | Self::Broken(_) => false,
        }
    }

    /// Whether the caller asked what cannot be asked: a mistake of the program, not an outage.
    pub const fn is_mistake(&self) -> bool {
        matches!(self, Self::TooManyBuckets { .. } | Self::SameLog { .. })
    }
}

/// What a limiter checks before it asks its store for a step over several buckets.
pub fn check_buckets(buckets: &[Bucket<'_>]) -> Result<(), StoreError> {
    if buckets.len() > MOST_BUCKETS {
        return Err(StoreError::TooManyBuckets { count: buckets.len() });
    }
    for (second, bucket) in buckets.iter().enumerate().skip(1) {
        if let Some(first) = buckets[..second].iter().position(|other| other.key == bucket.key) {
            return Err(StoreError::SameLog { first, second });
        }
    }
    Ok(())
}

/// A store of window logs. Every method uses one clock, waits at most the store's configured timeout for each
/// round trip (one, rarely two), and returns `Err` only if the store itself fails. The buckets of one step have passed
/// [`check_buckets`].
pub trait WindowStore: Send + Sync {
    /// One atomic step over every bucket: a hit in each, or in none. A refusal writes nothing. Any number of
    /// concurrent callers, from any number of instances, never get more admitted than a rule allows.
    fn reserve(
        &self,
        ask: &ReserveRequest<'_>,
    ) -> impl Future<Output = Result<StoreVerdict, StoreError>> + Send;

    /// Settles a reservation, bucket by bucket (`outcomes` is as long as `buckets`), in one atomic step. `peek` asks for
    /// what [`peek`](Self::peek) would tell of these logs afterwards, normally in the same round trip.
    fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> impl Future<Output = Result<Settlement, StoreError>> + Send;

    /// Reads the state of each of these logs, not necessarily of all at one moment. Writes nothing, except that
    /// holds whose owner died become kept hits.
    fn peek(&self, buckets: &[Bucket<'_>]) -> impl Future<Output = Result<Vec<LogPeek>, StoreError>> + Send;

    /// Reads the times of a log's newest hits. Writes as little as [`peek`](Self::peek).
    fn read(&self, bucket: Bucket<'_>) -> impl Future<Output = Result<LogReading, StoreError>> + Send;

    /// Deletes a log. A hold in flight is written anew when it is kept.
    fn clear(&self, bucket: Bucket<'_>) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes kept hits back, each with its own time and id, in any order and any number of times. A hit that
    /// is in its log stays unchanged; a hit that no rule can count any more is left out. Until the next
    /// admitted hit, a log keeps its newest hits up to twice its largest `max`. Atomic for each hit, not for
    /// all of them: if it fails, some may have been written.
    fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// The rebuild that completed the windows called `name` in this store. None if they never were complete, or if the store
    /// has lost data since: all of it, or some by an eviction, or because its clock was set forward. None, too, if they were
    /// last completed in another shape: a log keeps what its limit needs, so a log of an earlier shape may lack hits.
    fn rebuild_generation(
        &self,
        name: &str,
        shape: &str,
    ) -> impl Future<Output = Result<Option<HitId>, StoreError>> + Send;

    /// Whether these windows are still complete: asked after a hit was written, or another record has it. A store may have a
    /// quicker way than [`rebuild_generation`](Self::rebuild_generation), which tells as much as long as the store may not
    /// evict and its clock runs on.
    fn are_complete(
        &self,
        windows: CompleteWindows<'_>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send {
        let CompleteWindows { name, shape, generation } = windows;
        async move { Ok(self.rebuild_generation(name, shape).await? == Some(generation)) }
    }

    /// Starts to rebuild the windows called `name`. `by` is new each time. Returns the store's time; of several servers,
    /// the latest.
    fn begin_rebuild(&self, name: &str, by: HitId)
    -> impl Future<Output = Result<Micros, StoreError>> + Send;

    /// Marks the windows called `name` as complete in this shape, and in no other. Returns false, and marks
    /// nothing, if the store has lost its data since [`begin_rebuild`](Self::begin_rebuild).
    fn finish_rebuild(
        &self,
        name: &str,
        shape: &str,
        by: HitId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;
}
