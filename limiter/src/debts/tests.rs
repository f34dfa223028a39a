use tokio::task::yield_now;

use super::*;
use crate::faulty_store::{FaultyStore, limiter};
use crate::limiter::Limiter;
use crate::store::StoreError;

async fn until(so: impl AsyncFn() -> bool) {
    let waiting = async {
        while !so().await {
            // Debts are paid in real time.
            sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("it happens");
}

/// Owes a refund that nobody pays by itself.
fn owe_unpaid(limiter: &Limiter<FaultyStore>, bucket: Bucket<'_>, is_paid: bool) -> HitId {
    let id = limiter.fresh_id();
    let debt = Debt::new(&[bucket], id, &[HoldOutcome::Refund]).expect("it takes something back");
    limiter.0.debts.put_back(Debt { is_paid, ..debt });
    id
}

fn owed(limiter: &Limiter<FaultyStore>) -> Vec<HitId> {
    limiter.0.debts.0.lock().owed.iter().map(|debt| debt.id).collect()
}

#[tokio::test]
async fn a_reservation_that_its_refund_overtook_is_taken_back_again() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    limiter.store().fail(bucket, StoreError::TimedOut);
    assert!(limiter.hold(&[bucket], false, Duration::ZERO).await.is_err());
    limiter.store().repair();
    until(async || !limiter.store().settled.lock().is_empty()).await;
    limiter.store().let_late_call_arrive().await;
    assert_eq!(limiter.peek(bucket).await.unwrap().holds, 1);
    until(async || limiter.peek(bucket).await.unwrap().holds == 0).await;
    until(async || owed(&limiter).is_empty()).await;
}

#[tokio::test]
async fn a_reservation_that_was_not_sent_leaves_nothing_to_take_back() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    limiter.store().fail(bucket, StoreError::Down);
    assert!(limiter.reserve_or_nothing(&[bucket], false).await.is_err());
    assert!(limiter.hold(&[bucket], false, Duration::ZERO).await.is_err());
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!((limiter.store().settled.lock().len(), owed(&limiter)), (0, vec![]));
}

#[tokio::test]
async fn a_refund_that_was_not_sent_is_owed() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    let Ok(crate::HoldDecision::Held(hold)) = limiter.hold(&[bucket], false, Duration::ZERO).await else {
        panic!("a slot is free")
    };
    limiter.store().fail(bucket, StoreError::Down);
    assert!(hold.refund().await.is_err());
    assert_eq!(limiter.peek(bucket).await.unwrap().holds, 1);
    limiter.store().repair();
    until(async || limiter.peek(bucket).await.unwrap().holds == 0).await;
}

#[tokio::test]
async fn a_client_that_hangs_up_costs_one_refund() {
    let (limiter, limit) = limiter();
    let buckets = [limiter.bucket(&limit, b"a")];
    tokio::select! {
        biased;
        answer = limiter.reserve_or_nothing(&buckets, false) => panic!("{answer:?}"),
        () = async {} => {}
    }
    until(async || !limiter.store().settled.lock().is_empty()).await;
    for _ in 0..10 {
        yield_now().await;
    }
    assert_eq!((limiter.store().settled.lock().len(), owed(&limiter)), (1, vec![]));
}

#[tokio::test]
async fn debts_are_bounded_while_they_are_paid_in_vain() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    limiter.store().fail(bucket, StoreError::TimedOut);
    let owe = || limiter.0.owe(&[bucket], limiter.fresh_id(), &[HoldOutcome::Refund]);
    (0..MOST_OWED + 10).for_each(|_| owe());
    assert_eq!(owed(&limiter).len(), MOST_OWED);
    while limiter.store().settled.lock().len() < UNANSWERED {
        // The payer has one in its hands whenever this task goes on.
        yield_now().await;
        owe();
    }
    (0..10).for_each(|_| owe());
    assert_eq!(owed(&limiter).len(), MOST_OWED);
}

#[tokio::test]
async fn debts_are_none_once_nothing_counts_them() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    limiter.0.owe(&[bucket], limiter.fresh_id(), &[HoldOutcome::Keep]);
    assert_eq!(owed(&limiter), [], "what is kept counts by itself");
    owe_unpaid(&limiter, bucket, false);
    assert!(!limiter.0.debts.finish_if_empty());
    limiter.0.debts.0.lock().owed.iter_mut().for_each(|debt| debt.until = debt.due);
    assert!(limiter.0.debts.next().is_none());
    assert!(limiter.0.debts.finish_if_empty());
}

#[tokio::test]
async fn what_was_taken_back_once_gives_way_to_what_was_not() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    let oldest = owe_unpaid(&limiter, bucket, false);
    for number in 0..2 * MOST_OWED - 1 {
        owe_unpaid(&limiter, bucket, number < MOST_OWED);
    }
    assert_eq!(owed(&limiter)[0], oldest);
    owe_unpaid(&limiter, bucket, true);
    assert_eq!((owed(&limiter)[0], owed(&limiter).len()), (oldest, MOST_OWED), "it displaces nothing itself");
    let newest = owe_unpaid(&limiter, bucket, false);
    assert!(!owed(&limiter).contains(&oldest), "of equals the oldest goes");
    assert_eq!(owed(&limiter).last(), Some(&newest));
}

/// The store is a cluster one of whose masters is dead.
#[tokio::test]
async fn a_debt_that_cannot_be_paid_keeps_no_other_waiting() {
    let (limiter, limit) = limiter();
    let (dead, healthy) = (limiter.bucket(&limit, b"a"), limiter.bucket(&limit, b"b"));
    limiter.store().fail(dead, StoreError::TimedOut);
    let [first, second] = [dead, healthy].map(|bucket| owe_unpaid(&limiter, bucket, false));
    limiter.0.pay_due().await;
    assert_eq!(*limiter.store().settled.lock(), [first, second], "each once");
}

#[tokio::test]
async fn a_store_that_refuses_everything_is_asked_a_few_times_a_round() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    limiter.store().fail(bucket, StoreError::Broken("out of memory".into()));
    let ids: Vec<HitId> = (0..100).map(|_| owe_unpaid(&limiter, bucket, false)).collect();
    for _ in 0..2 {
        limiter.0.pay_due().await;
    }
    let asked = 2 * UNANSWERED;
    assert_eq!(*limiter.store().settled.lock(), ids[..asked], "the next round begins with the others");
}

#[tokio::test]
async fn a_payer_that_has_finished_does_not_dismiss_its_successor() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    let payer = || Payer { limiter: Arc::downgrade(&limiter.0), has_finished: false };
    let debt = || Debt::new(&[bucket], limiter.fresh_id(), &[HoldOutcome::Refund]).unwrap();
    let debts = &limiter.0.debts;
    let mut first = payer();
    first.has_finished = debts.finish_if_empty();
    assert!(debts.add(debt()), "the next debt needs another");
    drop(first);
    assert!(!debts.add(debt()), "which pays this one, too");
    drop(payer());
    assert!(debts.add(debt()), "one whose runtime ended is replaced");
}

#[test]
fn a_debt_is_paid_by_another_runtime_than_the_one_that_ended() {
    let (limiter, limit) = limiter();
    let bucket = limiter.bucket(&limit, b"a");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let owe = async || limiter.0.owe(&[bucket], limiter.fresh_id(), &[HoldOutcome::Refund]);
    runtime().block_on(owe());
    assert_eq!(owed(&limiter).len(), 1, "it ended before anything was paid");
    runtime().block_on(async {
        owe().await;
        until(async || owed(&limiter).is_empty()).await;
    });
}
