//! Holds: slots taken for attempts whose outcome decides whether they count.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use crate::clock::Micros;
use crate::limiter::{Limiter, QueueKey};
use crate::store::*;

/// This instance does not see when a hold of another instance ends, so the first in the queue also asks this
/// often.
const CHECK_EVERY: Duration = Duration::from_millis(100);

/// The answer to an attempt whose outcome is not known yet.
#[derive(Debug)]
pub enum HoldDecision<S: WindowStore + 'static> {
    /// The slot is taken: settle it when the outcome is known.
    Held(Hold<S>),
    /// A rule is full.
    Refused(Refusal),
    /// It waited for others in flight for the full patience; or too many attempts wait, in shorter queues.
    OutOfPatience,
}

impl<S: WindowStore + 'static> Limiter<S> {
    /// Takes a slot in every bucket for an attempt whose outcome decides whether it counts. If attempts in
    /// flight hold all free slots, waits in a queue for one of them to end, at most `patience`.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use gatehouse_limiter::{clock::Clock, entropy::Entropy, *};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let limiter = Limiter::new(MemoryStore::new(Clock::System), SubKey::random(&Entropy::Os), &Entropy::Os);
    /// # let rule = Rule::sliding(1, Duration::from_secs(60), RuleAction::Block);
    /// # let limit = Limit::new("login", vec![rule], LimitMode::Enforce)?;
    /// let patience = Duration::from_secs(5);
    /// let buckets = [limiter.bucket(&limit, b"alice")];
    /// if let HoldDecision::Held(hold) = limiter.hold(&buckets, false, patience).await? {
    ///     // Compare the password. A wrong one counts; a right one gives the slot back.
    ///     hold.keep().await?;
    /// }
    /// assert!(matches!(limiter.hold(&buckets, false, patience).await?, HoldDecision::Refused(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn hold(
        &self,
        buckets: &[Bucket<'_>],
        solved: bool,
        patience: Duration,
    ) -> Result<HoldDecision<S>, StoreError> {
        let ask = self.request(buckets, ReserveKind::Hold, solved)?;
        self.hold_as(&ask, patience).await
    }

    /// Holds a slot only while those windows are complete: otherwise it fails with [`StoreError::Incomplete`], and no
    /// slot is taken.
    pub async fn hold_if_complete(
        &self,
        complete: CompleteWindows<'_>,
        buckets: &[Bucket<'_>],
        solved: bool,
        patience: Duration,
    ) -> Result<HoldDecision<S>, StoreError> {
        let ask = self.request(buckets, ReserveKind::Hold, solved)?;
        self.hold_as(&ReserveRequest { complete: Some(complete), ..ask }, patience).await
    }

    async fn hold_as(
        &self,
        ask: &ReserveRequest<'_>,
        patience: Duration,
    ) -> Result<HoldDecision<S>, StoreError> {
        let ReserveRequest { buckets, solved, .. } = *ask;
        let numbers = self.0.arrivals.arrive(buckets);
        let mut queues = buckets.iter().map(|bucket| (bucket.key, solved));
        let key = match queues.find(|key| self.0.queue.has_waiters(key)) {
            Some(key) => key,
            None => match self.attempt(ask, Some(numbers)).await? {
                Ok(decision) => return Ok(decision),
                Err(key) => key,
            },
        };
        self.hold_in_queue(ask, key, patience).await
    }

    async fn hold_in_queue(
        &self,
        ask: &ReserveRequest<'_>,
        key: QueueKey,
        patience: Duration,
    ) -> Result<HoldDecision<S>, StoreError> {
        let Some(mut position) = self.0.queue.join(key) else { return Ok(HoldDecision::OutOfPatience) };
        let waiting = async {
            loop {
                let check = async {
                    match position.is_first() {
                        true => timeout(CHECK_EVERY, position.wait()).await.unwrap_or(Ok(())),
                        false => position.wait().await,
                    }
                };
                if check.await.is_err() {
                    return Ok(HoldDecision::OutOfPatience);
                }
                match self.attempt(ask, None).await? {
                    Ok(decision) => return Ok(decision),
                    Err(key) if key == *position.key() => {}
                    Err(other) => match self.0.queue.join(other) {
                        Some(next) => position = next,
                        None => return Ok(HoldDecision::OutOfPatience),
                    },
                }
            }
        };
        timeout(patience, waiting).await.unwrap_or(Ok(HoldDecision::OutOfPatience))
    }

    /// One attempt; if it must wait, for which log.
    async fn attempt(
        &self,
        ask: &ReserveRequest<'_>,
        arrivals: Option<[u64; MOST_BUCKETS]>,
    ) -> Result<Result<HoldDecision<S>, QueueKey>, StoreError> {
        Ok(match self.reserve_or_refund(ask).await? {
            StoreVerdict::Admitted { at, room, noted } => Ok(HoldDecision::Held(Hold {
                limiter: self.clone(),
                buckets: ask.buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect(),
                id: ask.id,
                at,
                arrivals,
                room,
                noted,
            })),
            StoreVerdict::Refused { refusal } => Ok(HoldDecision::Refused(refusal)),
            StoreVerdict::Held { bucket, .. } => Err((ask.buckets[bucket].key, ask.solved)),
        })
    }
}

/// A slot taken for an attempt in flight. Settle it by how the attempt ended. A hold that is dropped
/// unsettled counts as a failure after [`window::HOLD_LIFE`](super::window::HOLD_LIFE). If the store does not answer
/// when it is settled, the settlement fails, and what was to be given back is given back when the store answers again;
/// if this process ends before, it counts.
#[derive(Debug)]
#[must_use = "a hold that is never settled becomes a failure"]
pub struct Hold<S: WindowStore + 'static> {
    limiter: Limiter<S>,
    buckets: Vec<OwnedBucket>,
    id: HitId,
    /// When the slot was taken, by the store's clock.
    pub at: Micros,
    /// Its arrival number in each log; none if it had to wait.
    arrivals: Option<[u64; MOST_BUCKETS]>,
    /// What is left, by the tightest enforced rule.
    pub room: Option<LimitRoom>,
    /// What a monitored limit would have refused.
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
        self.end(kept_in(counts)).await
    }

    /// [`Hold::keep_in`], and then [`Limiter::peek_all`] at its logs, normally in the same round trip.
    pub async fn keep_in_and_peek(self, counts: impl Fn(usize) -> bool) -> Result<Settlement, StoreError> {
        self.settle(kept_in(counts), true).await
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
        let outcome = |bucket| match self.arrivals {
            Some(numbers) if forgive(bucket) && self.is_latest(bucket, numbers[bucket]) => {
                HoldOutcome::Forgive { up_to: self.at }
            }
            _ => HoldOutcome::Refund,
        };
        let outcomes: Vec<HoldOutcome> = (0..self.buckets.len()).map(outcome).collect();
        let forgives = outcomes.iter().any(|outcome| matches!(outcome, HoldOutcome::Forgive { .. }));
        self.end(|bucket| outcomes[bucket]).await.map(|at| (at, forgives))
    }

    /// Whether no attempt has come to this log since the one with that number.
    fn is_latest(&self, bucket: usize, number: u64) -> bool {
        number == self.limiter.0.arrivals.latest(self.buckets[bucket].key)
    }

    async fn end(self, outcome: impl Fn(usize) -> HoldOutcome) -> Result<Micros, StoreError> {
        self.settle(outcome, false).await.map(|settled| settled.at)
    }

    async fn settle(
        self,
        outcome: impl Fn(usize) -> HoldOutcome,
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let outcomes: Vec<HoldOutcome> = (0..self.buckets.len()).map(outcome).collect();
        let buckets: Vec<Bucket<'_>> = self.buckets.iter().map(OwnedBucket::borrow).collect();
        self.limiter.settle(&buckets, self.id, &outcomes, peek).await
    }
}

fn kept_in(counts: impl Fn(usize) -> bool) -> impl Fn(usize) -> HoldOutcome {
    move |bucket| if counts(bucket) { HoldOutcome::Keep } else { HoldOutcome::Refund }
}

/// A hold without an attempt yet. If the caller is dropped before there is one, as a server drops the request of a
/// client that hangs up, it is refunded.
#[derive(Debug)]
pub struct UnclaimedHold<S: WindowStore + 'static>(Option<Hold<S>>);

impl<S: WindowStore + 'static> UnclaimedHold<S> {
    /// Until it is claimed.
    pub const fn new(hold: Hold<S>) -> Self {
        Self(Some(hold))
    }

    /// The attempt begins: from now on it must be settled.
    pub fn claim(mut self) -> Hold<S> {
        self.0.take().expect("claimed once")
    }

    /// There is no attempt. Runs to its end even if the caller is dropped.
    pub async fn refund(self) -> Result<(), StoreError> {
        tokio::spawn(self.claim().refund()).await.expect("a refund does not panic")
    }
}

impl<S: WindowStore + 'static> Drop for UnclaimedHold<S> {
    fn drop(&mut self) {
        if let (Some(hold), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move { drop(hold.refund().await) });
        }
    }
}

/// Counters, a power of two. Logs of different attempts that share one only see more company than they have.
const COUNTERS: usize = 16_384;

/// A counter for each log. Allocated at the first use: who never counts does not need the 128 KiB.
#[derive(Debug)]
pub(crate) struct LogCounts(LazyLock<Box<[AtomicU64]>>);

impl Default for LogCounts {
    fn default() -> Self {
        Self(LazyLock::new(|| (0..COUNTERS).map(|_| AtomicU64::new(0)).collect()))
    }
}

impl LogCounts {
    /// Counts one attempt at its logs; returns its number at each. Logs of one attempt that share a counter count it once:
    /// otherwise it would be in its own company, and the success of this account would never forgive.
    fn arrive(&self, buckets: &[Bucket<'_>]) -> [u64; MOST_BUCKETS] {
        let mut numbers = [0; MOST_BUCKETS];
        for (index, bucket) in buckets.iter().enumerate() {
            let same = buckets[..index].iter().position(|earlier| place(earlier.key) == place(bucket.key));
            numbers[index] = same.map_or_else(|| self.add(bucket.key), |earlier| numbers[earlier]);
        }
        numbers
    }

    /// Counts one more at this log; returns its number.
    pub fn add(&self, key: SubjectKey) -> u64 {
        self.counter(key).fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the latest at this log.
    pub fn latest(&self, key: SubjectKey) -> u64 {
        self.counter(key).load(Ordering::SeqCst)
    }

    fn counter(&self, key: SubjectKey) -> &AtomicU64 {
        &self.0[place(key)]
    }
}

/// Keys are keyed hashes already, so any of their bits will do.
fn place(key: SubjectKey) -> usize {
    usize::from(u16::from_le_bytes([key.0[10], key.0[11]])) % COUNTERS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::entropy::Entropy;
    use crate::key::SubKey;
    use crate::limit::{Limit, LimitMode, Rule, RuleAction};
    use crate::memory::MemoryStore;

    fn limiter() -> (Limiter<MemoryStore>, Limit, Clock) {
        let (entropy, clock) = (Entropy::seeded(1), Clock::manual(Micros(1_000_000)));
        let limiter = Limiter::new(MemoryStore::new(clock.clone()), SubKey::random(&entropy), &entropy);
        let rule = Rule::sliding(9, Duration::from_secs(60), RuleAction::Captcha);
        (limiter, Limit::new("test", vec![rule], LimitMode::Enforce).unwrap(), clock)
    }

    async fn held(limiter: &Limiter<MemoryStore>, buckets: &[Bucket<'_>]) -> Hold<MemoryStore> {
        match limiter.hold(buckets, false, Duration::ZERO).await {
            Ok(HoldDecision::Held(hold)) => hold,
            other => panic!("{other:?}"),
        }
    }

    async fn holds_after(then: impl AsyncFnOnce(UnclaimedHold<MemoryStore>)) -> (u32, u32) {
        let (limiter, limit, _) = limiter();
        let bucket = limiter.bucket(&limit, b"alice");
        let hold = held(&limiter, &[bucket]).await;
        then(UnclaimedHold::new(hold)).await;
        // What it left to the runtime.
        tokio::task::yield_now().await;
        let peek = limiter.peek(bucket).await.unwrap();
        (peek.holds, peek.rules[0].count)
    }

    /// One pair of logs in 16,384 shares a counter.
    #[tokio::test]
    async fn an_attempt_is_not_in_its_own_company() {
        let (limiter, limit, clock) = limiter();
        let own = limiter.bucket(&limit, b"alice");
        let others = (0_u32..).map(|other| other.to_be_bytes());
        let twin =
            others.map(|name| limiter.bucket(&limit, &name)).find(|it| place(it.key) == place(own.key));
        let logs = [own, twin.unwrap()];
        for company in [None, Some(0), Some(1)] {
            held(&limiter, &logs).await.keep().await.unwrap();
            clock.advance(Duration::from_secs(1));
            let hold = held(&limiter, &logs).await;
            if let Some(log) = company {
                held(&limiter, &logs[log..=log]).await.refund().await.unwrap();
            }
            let (_, forgives) = hold.succeed(|_| true).await.unwrap();
            let left = limiter.peek_all(&logs).await.unwrap();
            let left: Vec<u32> = left.iter().map(|log| log.rules[0].count).collect();
            // What was not forgiven counts once more the next time.
            let expected = company.map_or(0, |log| 1 + log as u32);
            assert_eq!((forgives, left), (company.is_none(), vec![expected; 2]), "{company:?}");
        }
    }

    #[tokio::test]
    async fn a_hold_that_nobody_claims_is_given_back() {
        assert_eq!(holds_after(async |unclaimed| drop(unclaimed)).await, (0, 0));
        assert_eq!(holds_after(async |unclaimed| unclaimed.refund().await.unwrap()).await, (0, 0));
    }

    #[tokio::test]
    async fn one_that_is_claimed_is_its_attempts() {
        let keep = async |unclaimed: UnclaimedHold<MemoryStore>| {
            unclaimed.claim().keep().await.unwrap();
        };
        assert_eq!(holds_after(keep).await, (0, 1));
    }
}
