//! The limiter: turns subjects into keys, and waits for attempts in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::limit::Limit;
use super::store::*;
use super::wait_queue::{QueueKey, WaitQueue};
use crate::clock::Micros;
use crate::entropy::Entropy;
use crate::secret::SubKey;

/// Limits over a store. Clones share everything.
#[derive(Debug)]
pub struct Limiter<S>(Arc<LimiterInner<S>>);

struct LimiterInner<S> {
    store: S,
    subjects: SubKey,
    ids: IdSource,
    queue: WaitQueue,
}

/// The answer to a reservation that counts immediately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HitDecision {
    Admitted(AdmittedHit),
    Refused(Refusal),
    /// All slots are held by attempts in flight. Possible only for limits that are also used with
    /// [`Limiter::hold`].
    Held,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedHit {
    /// The id to refund it with.
    pub id: HitId,
    /// The store's time, from which it counts.
    pub at: Micros,
    pub room: Option<LimitRoom>,
    /// What a monitored limit would have refused.
    pub noted: Option<Refusal>,
}

/// The answer to an attempt whose outcome is not known yet.
#[derive(Debug)]
pub enum HoldDecision<S: WindowStore + 'static> {
    Held(Hold<S>),
    Refused(Refusal),
    /// It waited for others in flight for the full patience; or too many attempts wait, in shorter queues.
    OutOfPatience,
}

impl<S: WindowStore + 'static> Limiter<S> {
    /// `subjects` is the key for hashing subjects; every instance on one store needs the same.
    pub fn new(store: S, subjects: SubKey, entropy: &Entropy) -> Self {
        Self(Arc::new(LimiterInner {
            store,
            subjects,
            ids: IdSource::new(entropy),
            queue: WaitQueue::default(),
        }))
    }

    pub fn store(&self) -> &S {
        &self.0.store
    }

    /// A subject's log under a limit. The same bytes are the same subject; two limits never share a log.
    pub fn bucket<'a>(&self, limit: &'a Limit, subject: &[u8]) -> Bucket<'a> {
        Bucket { limit, key: SubjectKey(self.0.subjects.short_hash(limit.tag(), subject)) }
    }

    /// An id for a hit that is written by [`Limiter::restore`].
    pub fn fresh_id(&self) -> HitId {
        self.0.ids.next()
    }

    /// Counts a hit in every bucket, or in none. Takes one round trip, or two if the attempt was refused a
    /// moment ago and may pass now; each waits at most the store's timeout.
    pub async fn reserve(&self, buckets: &[Bucket<'_>], solved: bool) -> Result<HitDecision, StoreError> {
        let ask = ReserveRequest { buckets, id: self.0.ids.next(), kind: ReserveKind::Hit, solved };
        self.0.store.reserve(&ask).await.map(|verdict| decision(&ask, verdict))
    }

    /// Like [`Limiter::reserve`], for an action that happens only if it was admitted. If no answer comes, or
    /// the caller is dropped before it comes, a hit that was written anyway is refunded.
    pub async fn reserve_or_nothing(
        &self,
        buckets: &[Bucket<'_>],
        solved: bool,
    ) -> Result<HitDecision, StoreError> {
        let ask = ReserveRequest { buckets, id: self.0.ids.next(), kind: ReserveKind::Hit, solved };
        self.reserve_or_refund(&ask).await.map(|verdict| decision(&ask, verdict))
    }

    /// Like [`Limiter::reserve`], with the id of an earlier admission. The hits in both calls are then one
    /// hit for a refund and for a restore.
    pub async fn reserve_by(&self, buckets: &[Bucket<'_>], id: HitId) -> Result<HitDecision, StoreError> {
        let ask = ReserveRequest { buckets, id, kind: ReserveKind::Hit, solved: true };
        self.reserve_or_refund(&ask).await.map(|verdict| decision(&ask, verdict))
    }

    /// Takes a slot in every bucket for an attempt whose outcome decides whether it counts. If attempts in
    /// flight hold all free slots, waits in a queue for one of them to end, at most `patience`.
    pub async fn hold(
        &self,
        buckets: &[Bucket<'_>],
        solved: bool,
        patience: Duration,
    ) -> Result<HoldDecision<S>, StoreError> {
        let ask = ReserveRequest { buckets, id: self.0.ids.next(), kind: ReserveKind::Hold, solved };
        let mut numbers = [0; MOST_BUCKETS];
        for (number, bucket) in numbers.iter_mut().zip(buckets) {
            *number = self.0.queue.arrive(bucket.key);
        }
        let mut lines = buckets.iter().map(|bucket| (bucket.key, solved));
        let line = lines.find(|key| self.0.queue.has_waiters(*key));
        let Some(key) = line else {
            let verdict = self.reserve_or_refund(&ask).await?;
            return match self.attempt(
                &ask,
                verdict,
                Some(QueueArrival { at: verdict_time(&verdict), numbers }),
            ) {
                Ok(attempt) => Ok(attempt),
                Err(key) => self.hold_in_queue(&ask, key, patience).await,
            };
        };
        self.hold_in_queue(&ask, key, patience).await
    }

    async fn hold_in_queue(
        &self,
        ask: &ReserveRequest<'_>,
        key: QueueKey,
        patience: Duration,
    ) -> Result<HoldDecision<S>, StoreError> {
        let Some(mut place) = self.0.queue.join(key) else { return Ok(HoldDecision::OutOfPatience) };
        let waiting = async {
            loop {
                if place.wait().await.is_err() {
                    return Ok(HoldDecision::OutOfPatience);
                }
                let verdict = self.reserve_or_refund(ask).await?;
                match self.attempt(ask, verdict, None) {
                    Ok(attempt) => return Ok(attempt),
                    Err(key) if key == place.key() => {}
                    Err(other) => match self.0.queue.join(other) {
                        Some(next) => place = next,
                        None => return Ok(HoldDecision::OutOfPatience),
                    },
                }
            }
        };
        tokio::time::timeout(patience, waiting).await.unwrap_or(Ok(HoldDecision::OutOfPatience))
    }

    /// Asks for a slot. If no answer comes, or the caller is dropped before it comes, refunds the slot that
    /// may have been taken.
    async fn reserve_or_refund(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        let mut unheard = UnansweredAsk { limiter: self, ask, answered: false };
        let verdict = self.0.store.reserve(ask).await;
        // A call that timed out may still be carried out.
        unheard.answered = verdict.is_ok();
        verdict
    }

    /// What a verdict means for an attempt; if the attempt must wait, for which log.
    fn attempt(
        &self,
        ask: &ReserveRequest<'_>,
        verdict: StoreVerdict,
        arrived: Option<QueueArrival>,
    ) -> Result<HoldDecision<S>, QueueKey> {
        match verdict {
            StoreVerdict::Admitted { at, room, noted } => Ok(HoldDecision::Held(Hold {
                limiter: self.clone(),
                buckets: ask.buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect(),
                id: ask.id,
                at,
                arrived,
                room,
                noted,
            })),
            StoreVerdict::Refused { refusal, .. } => Ok(HoldDecision::Refused(refusal)),
            StoreVerdict::Held { bucket, .. } => Err((ask.buckets[bucket].key, ask.solved)),
        }
    }

    /// Removes a hit by the id that its admission returned. Harmless if repeated.
    pub async fn refund(&self, buckets: &[Bucket<'_>], id: HitId) -> Result<(), StoreError> {
        self.settle(buckets, id, &vec![HoldOutcome::Refund; buckets.len()]).await.map(drop)
    }

    pub async fn peek(&self, bucket: Bucket<'_>) -> Result<LogPeek, StoreError> {
        self.0.store.peek(bucket).await
    }

    /// The times in a subject's log.
    pub async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        self.0.store.read(bucket).await
    }

    /// Deletes a subject's log.
    pub async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        let cleared = self.0.store.clear(bucket).await;
        self.0.queue.wake(bucket.key);
        cleared
    }

    /// Writes back hits that are known from another record; see [`WindowStore::restore`].
    pub async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        self.0.store.restore(hits).await
    }

    /// The rebuild generation of `name`; see [`WindowStore::rebuild_generation`].
    pub async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        self.0.store.rebuild_generation(name, shape).await
    }

    /// Starts to rebuild the windows called `name`.
    pub async fn begin_rebuild(&self, name: &str) -> Result<HitId, StoreError> {
        let by = self.0.ids.next();
        self.0.store.begin_rebuild(name, by).await?;
        Ok(by)
    }

    /// Finishes the rebuild. False if the store lost its data in the meantime: begin again.
    pub async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        self.0.store.finish_rebuild(name, shape, by).await
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
    ) -> Result<Micros, StoreError> {
        let settled = self.0.store.settle(buckets, id, outcomes).await;
        for bucket in buckets {
            self.0.queue.wake(bucket.key);
        }
        settled
    }
}

/// A call to the store whose future may be dropped, as a server drops the request of a client that hangs up.
/// A slot that nobody received would block others and then count as a failure.
struct UnansweredAsk<'a, S: WindowStore + 'static> {
    limiter: &'a Limiter<S>,
    ask: &'a ReserveRequest<'a>,
    answered: bool,
}

impl<S: WindowStore + 'static> Drop for UnansweredAsk<'_, S> {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (limiter, id) = (self.limiter.clone(), self.ask.id);
        let buckets: Vec<OwnedBucket> =
            self.ask.buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
        // On the same connection it cannot overtake the call. If it fails, or uses a new connection because
        // the old one was lost, the slot expires by itself.
        runtime.spawn(async move {
            let buckets: Vec<Bucket<'_>> = buckets.iter().map(OwnedBucket::borrow).collect();
            let _ = limiter.refund(&buckets, id).await;
        });
    }
}

/// How an attempt arrived that did not have to wait.
#[derive(Debug, Clone, Copy)]
struct QueueArrival {
    /// The store's time.
    at: Micros,
    /// Its arrival number in each log.
    numbers: [u64; MOST_BUCKETS],
}

/// A slot taken for an attempt in flight. Settle it by how the attempt ended. A hold that is dropped
/// unsettled counts as a failure after [`window::HOLD_LIFE`](super::window::HOLD_LIFE).
#[derive(Debug)]
#[must_use = "a hold that is never settled becomes a failure"]
pub struct Hold<S: WindowStore + 'static> {
    limiter: Limiter<S>,
    buckets: Vec<OwnedBucket>,
    id: HitId,
    /// When the slot was taken, by the store's clock.
    pub at: Micros,
    /// None if it had to wait.
    arrived: Option<QueueArrival>,
    pub room: Option<LimitRoom>,
    pub noted: Option<Refusal>,
}

impl<S: WindowStore + 'static> Hold<S> {
    /// Its id in the logs.
    pub const fn id(&self) -> HitId {
        self.id
    }

    /// The logs that contain it.
    pub fn buckets(&self) -> &[OwnedBucket] {
        &self.buckets
    }

    /// The attempt failed: it counts in every bucket, from the returned time.
    pub async fn keep(self) -> Result<Micros, StoreError> {
        self.end(|_| HoldOutcome::Keep).await
    }

    /// The attempt failed, but counts only in the chosen buckets (by index).
    pub async fn keep_in(self, counts: impl Fn(usize) -> bool) -> Result<Micros, StoreError> {
        self.end(|bucket| if counts(bucket) { HoldOutcome::Keep } else { HoldOutcome::Refund }).await
    }

    /// The attempt was abandoned, or counts nowhere.
    pub async fn refund(self) -> Result<(), StoreError> {
        self.end(|_| HoldOutcome::Refund).await.map(drop)
    }

    /// The attempt succeeded: it counts nowhere. In the chosen buckets (by index), failures from before it
    /// arrived are forgiven, if it was alone there. It forgives nothing if others came to the same log
    /// through this limiter while it was in flight, if it had to wait for them, or if another hold is in
    /// flight anywhere: otherwise, during an attack, one success would give the attacker as many guesses
    /// again. Returns when the store recorded it, and whether forgiveness was requested.
    pub async fn succeed(self, forgive: impl Fn(usize) -> bool) -> Result<(Micros, bool), StoreError> {
        let arrived = self.arrived;
        let outcomes: Vec<HoldOutcome> = (0..self.buckets.len())
            .map(|bucket| match arrived {
                Some(QueueArrival { at, numbers })
                    if forgive(bucket) && self.is_last(bucket, numbers[bucket]) =>
                {
                    HoldOutcome::Forgive { up_to: at }
                }
                _ => HoldOutcome::Refund,
            })
            .collect();
        let forgives = outcomes.iter().any(|outcome| matches!(outcome, HoldOutcome::Forgive { .. }));
        self.end(|bucket| outcomes[bucket]).await.map(|at| (at, forgives))
    }

    fn is_last(&self, bucket: usize, number: u64) -> bool {
        self.limiter.0.queue.is_last(self.buckets[bucket].key, number)
    }

    async fn end(self, outcome: impl Fn(usize) -> HoldOutcome) -> Result<Micros, StoreError> {
        let outcomes: Vec<HoldOutcome> = (0..self.buckets.len()).map(outcome).collect();
        let buckets: Vec<Bucket<'_>> = self.buckets.iter().map(OwnedBucket::borrow).collect();
        self.limiter.settle(&buckets, self.id, &outcomes).await
    }
}

/// What a verdict means for a request that counts immediately.
fn decision(ask: &ReserveRequest<'_>, verdict: StoreVerdict) -> HitDecision {
    match verdict {
        StoreVerdict::Admitted { at, room, noted } => {
            HitDecision::Admitted(AdmittedHit { id: ask.id, at, room, noted })
        }
        StoreVerdict::Refused { refusal, .. } => HitDecision::Refused(refusal),
        StoreVerdict::Held { .. } => HitDecision::Held,
    }
}

fn verdict_time(verdict: &StoreVerdict) -> Micros {
    match verdict {
        StoreVerdict::Admitted { at, .. }
        | StoreVerdict::Held { at, .. }
        | StoreVerdict::Refused { at, .. } => *at,
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
struct IdSource {
    start: u64,
    counter: AtomicU64,
}

impl IdSource {
    fn new(entropy: &Entropy) -> Self {
        Self { start: u64::from_le_bytes(entropy.bytes()), counter: AtomicU64::new(0) }
    }

    fn next(&self) -> HitId {
        let step = self.counter.fetch_add(1, Ordering::Relaxed);
        let mut mixed = self.start.wrapping_add(step.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let [id @ .., _, _] = mixed.to_le_bytes();
        HitId(id)
    }
}
