use super::*;
use crate::faulty_store::{FaultyStore, limiter};
use crate::limit::LimitMode;

/// Every step over these buckets.
async fn errors(limiter: &Limiter<FaultyStore>, buckets: &[Bucket<'_>]) -> [StoreError; 8] {
    let id = limiter.fresh_id();
    let complete = CompleteWindows { name: "it", shape: "s", generation: id };
    [
        limiter.reserve(buckets, false).await.unwrap_err(),
        limiter.reserve_or_nothing(buckets, false).await.unwrap_err(),
        limiter.reserve_by(buckets, id).await.unwrap_err(),
        limiter.hold(buckets, false, HELD_RETRY).await.map(drop).unwrap_err(),
        limiter.hold_if_complete(complete, buckets, false, HELD_RETRY).await.map(drop).unwrap_err(),
        limiter.refund(buckets, id).await.unwrap_err(),
        limiter.keep(buckets, id).await.unwrap_err(),
        limiter.peek_all(buckets).await.unwrap_err(),
    ]
}

/// The store here panics if it is asked.
#[tokio::test]
async fn a_step_that_is_a_mistake_never_reaches_the_store() {
    let (limiter, limit) = limiter();
    let other = Limit::new("other", limit.rules().to_vec(), LimitMode::Enforce).unwrap();
    let [one, other] = [&limit, &other].map(|limit| limiter.bucket(limit, b"a"));
    for error in errors(&limiter, &[one, other, one]).await {
        assert!(matches!(error, StoreError::SameLog { first: 0, second: 2 }), "{error}");
    }
    let subjects: Vec<[u8; 1]> = (0..=MOST_BUCKETS as u8).map(|subject| [subject]).collect();
    let many: Vec<Bucket<'_>> = subjects.iter().map(|subject| limiter.bucket(&limit, subject)).collect();
    for error in errors(&limiter, &many).await {
        assert!(matches!(error, StoreError::TooManyBuckets { count: 9 }), "{error}");
    }
    assert!(
        matches!(limiter.reserve(&many[1..], false).await, Ok(HitDecision::Admitted(_))),
        "eight are possible"
    );
}
