//! The limiter: turns subjects into keys, and waits for attempts in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::Micros;
use crate::debts::Debts;
use crate::entropy::Entropy;
use crate::hold::LogCounts;
use crate::key::SubKey;
use crate::limit::{Limit, RuleAction};
use crate::store::*;
use crate::wait_queue::WaitQueue;

/// How soon to ask again for a hit if attempts in flight hold every slot.
const HELD_RETRY: Duration = Duration::from_secs(1);

/// The most attempts that may wait in this process: each is a parked request.
const MOST_WAITING: usize = 1024;

/// A log, and whether those who wait for it have solved a challenge: more slots are free to them, so they have a
/// queue of their own.
pub(crate) type QueueKey = (SubjectKey, bool);

/// Limits over a store. Clones share everything.
#[derive(Debug)]
pub struct Limiter<S>(pub(crate) Arc<LimiterInner<S>>);

pub(crate) struct LimiterInner<S> {
    store: S,
    subjects: SubKey,
    pub ids: IdSource,
    /// The attempts that came to each log for a slot.
    pub arrivals: LogCounts,
    pub queue: Arc<WaitQueue<QueueKey>>,
    pub debts: Debts,
}

/// The answer to a reservation that counts immediately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitDecision {
    /// It counts.
    Admitted(AdmittedHit),
    /// A rule is full; nothing was written.
    Refused(Refusal),
}

/// A hit that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedHit {
    /// The id to refund it with.
    pub id: HitId,
    /// The store's time, from which it counts.
    pub at: Micros,
    /// What is left, by the tightest enforced rule.
    pub room: Option<LimitRoom>,
    /// What a monitored limit would have refused.
    pub noted: Option<Refusal>,
}

impl<S: WindowStore + 'static> Limiter<S> {
    /// `subjects` is the key for hashing subjects; every instance on one store needs the same.
    ///
    /// ```
    /// use gatehouse_limiter::{Limiter, MemoryStore, SubKey, clock::Clock, entropy::Entropy};
    ///
    /// let store = MemoryStore::new(Clock::System);
    /// let limiter = Limiter::new(store, SubKey::random(&Entropy::Os), &Entropy::Os);
    /// ```
    pub fn new(store: S, subjects: SubKey, entropy: &Entropy) -> Self {
        Self(Arc::new(LimiterInner {
            store,
            subjects,
            ids: IdSource::new(entropy),
            arrivals: LogCounts::default(),
            queue: WaitQueue::new(MOST_WAITING, MOST_WAITING),
            debts: Debts::default(),
        }))
    }

    /// The store beneath.
    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// A subject's log under a limit. The same bytes are the same subject; two limits never share a log.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gatehouse_limiter::{clock::Clock, entropy::Entropy, *};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::new(MemoryStore::new(Clock::System), SubKey::random(&Entropy::Os), &Entropy::Os);
    /// # let rule = Rule::sliding(1, Duration::from_secs(60), RuleAction::Block);
    /// # let limit = Limit::new("login", vec![rule], LimitMode::Enforce)?;
    /// let here = limiter.bucket(&limit, b"alice");
    /// assert_eq!(here.key, limiter.bucket(&limit, b"alice").key);
    /// assert_ne!(here.key, limiter.bucket(&limit, b"bob").key);
    /// # Ok(())
    /// # }
    /// ```
    pub fn bucket<'a>(&self, limit: &'a Limit, subject: &[u8]) -> Bucket<'a> {
        Bucket { limit, key: SubjectKey(self.0.subjects.short_hash(limit.tag(), subject)) }
    }

    /// An id for a hit that is written by [`WindowStore::restore`].
    pub fn fresh_id(&self) -> HitId {
        self.0.ids.next()
    }

    /// Counts a hit in every bucket, or in none. Takes one round trip, or two if the attempt was refused a
    /// moment ago and may pass now; each waits at most the store's timeout.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gatehouse_limiter::{clock::Clock, entropy::Entropy, *};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::new(MemoryStore::new(Clock::System), SubKey::random(&Entropy::Os), &Entropy::Os);
    /// # let rule = Rule::sliding(1, Duration::from_secs(60), RuleAction::Block);
    /// # let limit = Limit::new("login", vec![rule], LimitMode::Enforce)?;
    /// let buckets = [limiter.bucket(&limit, b"alice")];
    /// assert!(matches!(limiter.reserve(&buckets, false).await?, HitDecision::Admitted(_)));
    /// let HitDecision::Refused(refusal) = limiter.reserve(&buckets, false).await? else { panic!("one a minute") };
    /// assert!(refusal.retry_after <= Duration::from_secs(60));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn reserve(&self, buckets: &[Bucket<'_>], solved: bool) -> Result<HitDecision, StoreError> {
        let ask = self.request(buckets, ReserveKind::Hit, solved)?;
        self.0.store.reserve(&ask).await.map(|verdict| decision(&ask, verdict))
    }

    /// Like [`Limiter::reserve`], for an action that happens only if it was admitted. If no answer comes, or
    /// the caller is dropped before it comes, a hit that was written anyway is refunded, at the latest when the store
    /// answers again.
    pub async fn reserve_or_nothing(
        &self,
        buckets: &[Bucket<'_>],
        solved: bool,
    ) -> Result<HitDecision, StoreError> {
        let ask = self.request(buckets, ReserveKind::Hit, solved)?;
        self.reserve_or_refund(&ask).await.map(|verdict| decision(&ask, verdict))
    }

    /// Like [`Limiter::reserve`], with the id of an earlier admission. The hits in both calls are then one
    /// hit for a refund and for a restore.
    pub async fn reserve_by(&self, buckets: &[Bucket<'_>], id: HitId) -> Result<HitDecision, StoreError> {
        let ask = ReserveRequest { id, ..self.request(buckets, ReserveKind::Hit, true)? };
        self.reserve_or_refund(&ask).await.map(|verdict| decision(&ask, verdict))
    }

    /// A request with an id of its own; an error if these buckets cannot be asked about in one step.
    pub(crate) fn request<'a>(
        &self,
        buckets: &'a [Bucket<'a>],
        kind: ReserveKind,
        solved: bool,
    ) -> Result<ReserveRequest<'a>, StoreError> {
        check_buckets(buckets)?;
        Ok(ReserveRequest { buckets, id: self.0.ids.next(), kind, solved, complete: None })
    }

    /// Asks for a slot. If no answer comes, or the caller is dropped before it comes, refunds the slot that
    /// may have been taken.
    pub(crate) async fn reserve_or_refund(
        &self,
        ask: &ReserveRequest<'_>,
    ) -> Result<StoreVerdict, StoreError> {
        let mut unheard = UnansweredAsk { limiter: self, ask, answered: false, failed: false };
        let verdict = self.0.store.reserve(ask).await;
        // A call that timed out may still be carried out.
        unheard.answered = verdict.as_ref().err().is_none_or(StoreError::wrote_nothing);
        unheard.failed = verdict.is_err();
        verdict
    }

    /// Removes a hit by the id that its admission returned. Harmless if repeated. If the store does not answer, this
    /// fails, and the hit is removed when it answers again, unless this process ends before.
    pub async fn refund(&self, buckets: &[Bucket<'_>], id: HitId) -> Result<(), StoreError> {
        self.settle(buckets, id, &vec![HoldOutcome::Refund; buckets.len()], false).await.map(drop)
    }

    /// Settles a hold by its id: the attempt failed, and counts. Harmless if repeated.
    pub async fn keep(&self, buckets: &[Bucket<'_>], id: HitId) -> Result<Micros, StoreError> {
        self.settle(buckets, id, &vec![HoldOutcome::Keep; buckets.len()], false)
            .await
            .map(|settled| settled.at)
    }

    /// How many hits count now, rule by rule. Writes nothing.
    pub async fn peek(&self, bucket: Bucket<'_>) -> Result<LogPeek, StoreError> {
        let states = self.peek_all(&[bucket]).await?;
        Ok(states.into_iter().next().expect("a state for each bucket"))
    }

    /// Peeks at several logs, in one round trip (in a cluster, one a log, all at once); for none, without one.
    pub async fn peek_all(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        if buckets.is_empty() {
            return Ok(Vec::new());
        }
        check_buckets(buckets)?;
        self.0.store.peek(buckets).await
    }

    /// The times in a subject's log.
    pub async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        self.0.store.read(bucket).await
    }

    /// Deletes a subject's log.
    pub async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        let cleared = self.0.store.clear(bucket).await;
        self.0.wake(bucket.key);
        cleared
    }

    /// If the store does not answer, what is to be taken back is taken back when it answers again.
    pub(crate) async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        check_buckets(buckets)?;
        let settled = self.0.settle_once(buckets, id, outcomes, peek).await;
        if settled.is_err() {
            self.0.owe(buckets, id, outcomes);
        }
        settled
    }
}

impl<S: WindowStore + 'static> LimiterInner<S> {
    pub(crate) async fn settle_once(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let settled = self.store.settle(buckets, id, outcomes, peek).await;
        for bucket in buckets {
            self.wake(bucket.key);
        }
        settled
    }

    fn wake(&self, key: SubjectKey) {
        for solved in [false, true] {
            self.queue.wake(&(key, solved));
        }
    }
}

/// A call to the store whose future may be dropped, as a server drops the request of a client that hangs up.
/// A slot that nobody received would block others and then count as a failure.
struct UnansweredAsk<'a, S: WindowStore + 'static> {
    limiter: &'a Limiter<S>,
    ask: &'a ReserveRequest<'a>,
    answered: bool,
    /// The answer was an error: the connection may be another one by now.
    failed: bool,
}

impl<S: WindowStore + 'static> Drop for UnansweredAsk<'_, S> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (limiter, id, failed) = (self.limiter.clone(), self.ask.id, self.failed);
        let buckets: Vec<OwnedBucket> =
            self.ask.buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
        // On the same connection the refund cannot overtake the call. On a new one, because the old one was lost, it can.
        runtime.spawn(async move {
            let buckets: Vec<Bucket<'_>> = buckets.iter().map(OwnedBucket::borrow).collect();
            if limiter.refund(&buckets, id).await.is_ok() && failed {
                limiter.0.owe_again(&buckets, id);
            }
        });
    }
}

/// What a verdict means for a request that counts immediately.
fn decision(ask: &ReserveRequest<'_>, verdict: StoreVerdict) -> HitDecision {
    match verdict {
        StoreVerdict::Admitted { at, room, noted } => {
            HitDecision::Admitted(AdmittedHit { id: ask.id, at, room, noted })
        }
        StoreVerdict::Refused { refusal } => HitDecision::Refused(refusal),
        // Attempts in flight hold every slot. Each may end at any moment, so that it is worth asking again soon.
        StoreVerdict::Held { at, bucket } => HitDecision::Refused(Refusal {
            bucket,
            rule: 0,
            then: RuleAction::Block,
            retry_after: HELD_RETRY,
            frees_at: at.plus(HELD_RETRY),
        }),
    }
}

impl<S> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<S: std::fmt::Debug> std::fmt::Debug for LimiterInner<S> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Limiter").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Makes ids that no other instance makes: a random start per process and a mixed counter (SplitMix64, whose
/// steps never repeat). 48 bits are enough, because ids must differ only within one log.
pub(crate) struct IdSource {
    start: u64,
    counter: AtomicU64,
}

impl IdSource {
    fn new(entropy: &Entropy) -> Self {
        Self { start: u64::from_le_bytes(entropy.bytes()), counter: AtomicU64::new(0) }
    }

    pub fn next(&self) -> HitId {
        let step = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut mixed = self.start.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let [id @ .., _, _] = mixed.to_le_bytes();
        HitId(id)
    }
}

#[cfg(test)]
mod tests;
