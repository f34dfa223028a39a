use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;
use crate::key::SubKey;
use crate::limit::{Limit, LimitMode, Rule, RuleAction};
use crate::limiter::Limiter;
use crate::memory::MemoryStore;
use crate::store::*;

/// A store behind a line on which the first reservation gets lost, and arrives when it is let go.
struct SlowLine {
    store: MemoryStore,
    late: Mutex<Option<(Vec<OwnedBucket>, HitId)>>,
    is_first: AtomicBool,
    refunds: AtomicBool,
}

impl SlowLine {
    async fn let_go(&self) {
        let (buckets, id) = self.late.lock().take().expect("it got lost");
        let buckets: Vec<Bucket<'_>> = buckets.iter().map(OwnedBucket::borrow).collect();
        let ask =
            ReserveRequest { buckets: &buckets, id, kind: ReserveKind::Hold, solved: false, complete: None };
        assert!(matches!(self.store.reserve(&ask).await, Ok(StoreVerdict::Admitted { .. })));
    }
}

impl WindowStore for SlowLine {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        if !self.is_first.swap(false, Ordering::SeqCst) {
            return self.store.reserve(ask).await;
        }
        let buckets = ask.buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
        *self.late.lock() = Some((buckets, ask.id));
        Err(StoreError::TimedOut)
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let settled = self.store.settle(buckets, id, outcomes, peek).await;
        self.refunds.store(true, Ordering::SeqCst);
        settled
    }

    async fn peek(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        self.store.peek(buckets).await
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        self.store.read(bucket).await
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        self.store.clear(bucket).await
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        self.store.restore(hits).await
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        self.store.rebuild_generation(name, shape).await
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<Micros, StoreError> {
        self.store.begin_rebuild(name, by).await
    }

    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        self.store.finish_rebuild(name, shape, by).await
    }
}

fn limiter() -> (Limiter<SlowLine>, Limit) {
    let (entropy, clock) = (Entropy::seeded(1), Clock::manual(Micros(1_000_000)));
    let store = SlowLine {
        store: MemoryStore::new(clock),
        late: Mutex::default(),
        is_first: AtomicBool::new(true),
        refunds: AtomicBool::new(false),
    };
    let rule = Rule::sliding(3, Duration::from_secs(60), RuleAction::Block);
    let limit = Limit::new("test", vec![rule], LimitMode::Enforce).unwrap();
    (Limiter::new(store, SubKey::random(&entropy), &entropy), limit)
}

async fn until(so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !so().await {
            // Debts are paid in real time.
            sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens");
}

#[tokio::test]
async fn a_reservation_that_its_refund_overtook_is_taken_back_again() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    assert!(limiter.hold(&[bucket], false, Duration::ZERO).await.is_err());
    until(async || limiter.store().refunds.load(Ordering::SeqCst)).await;
    limiter.store().let_go().await;
    assert_eq!(limiter.peek(bucket).await.unwrap().holds, 1);
    until(async || limiter.peek(bucket).await.unwrap().holds == 0).await;
    until(async || limiter.0.debts.0.lock().owed.is_empty()).await;
}

#[tokio::test]
async fn debts_are_bounded_and_are_none_once_nothing_counts_them() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    // No debt is settled meanwhile: this task does not yield.
    for _ in 0..MOST_OWED + 10 {
        limiter.0.owe(&[bucket], limiter.fresh_id(), &[HoldOutcome::Refund]);
    }
    assert_eq!(limiter.0.debts.0.lock().owed.len(), MOST_OWED);
    limiter.0.owe(&[bucket], limiter.fresh_id(), &[HoldOutcome::Keep]);
    assert_eq!(limiter.0.debts.0.lock().owed.len(), MOST_OWED, "what is kept counts by itself");
    limiter.0.debts.0.lock().owed.iter_mut().for_each(|debt| debt.until = debt.due);
    assert!(limiter.0.debts.next().is_none());
    assert!(limiter.0.debts.finish_if_empty());
}

#[tokio::test]
async fn a_debt_that_is_put_back_keeps_the_bound_and_one_that_was_paid_goes_first() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    let owe = || limiter.0.owe(&[bucket], limiter.fresh_id(), &[HoldOutcome::Refund]);
    (0..MOST_OWED).for_each(|_| owe());
    let debts = &limiter.0.debts;
    let first = debts.next().expect("it is due");
    owe();
    debts.put_back(Debt { is_paid: true, ..first });
    assert_eq!(debts.0.lock().owed.len(), MOST_OWED);
    owe();
    assert_eq!(debts.0.lock().owed.len(), MOST_OWED);
    assert!(debts.0.lock().owed.iter().all(|debt| !debt.is_paid));
}
