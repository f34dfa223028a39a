//! Attempts whose outcome is not known yet, and what each outcome leaves. Each case runs on each store.

use std::time::Duration;

use gatehouse::throttle::*;

use super::acts::*;
use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const MICRO: Duration = Duration::from_micros(1);

on_stores! {
    holds_fill_but_do_not_refuse
    a_kept_hold_counts_from_its_outcome
    a_hold_whose_owner_died_is_a_failure
    a_dead_hold_that_is_settled_late_counts_once
    success_forgives_what_came_before_it_and_not_what_came_beside
    success_forgives_nothing_while_another_hold_is_in_flight
    kept_after_a_clear_counts
}

async fn holds_fill_but_do_not_refuse(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let (first, second) = (hold(rig, bucket).await, hold(rig, bucket).await);
    assert!(held(hit(rig, &[bucket]).await), "its answer depends on how the holds end");
    settle(rig, bucket, first, Outcome::Refund).await;
    assert!(admitted(hit(rig, &[bucket]).await));
    assert!(held(hit(rig, &[bucket]).await));
    settle(rig, bucket, second, Outcome::Keep).await;
    refusal(hit(rig, &[bucket]).await);
}

async fn a_kept_hold_counts_from_its_outcome(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = hold(rig, bucket).await;
    rig.advance(2 * SECOND);
    settle(rig, bucket, id, Outcome::Keep).await;
    settle(rig, bucket, id, Outcome::Keep).await;
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MINUTE);
    assert_eq!(rig.members(bucket), 1);
}

async fn a_hold_whose_owner_died_is_a_failure(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hold(rig, bucket).await;
    rig.advance(window::HOLD_LIFE - MICRO);
    assert!(held(hit(rig, &[bucket]).await));
    rig.advance(MICRO);
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MINUTE - window::HOLD_LIFE);
    rig.advance(MINUTE - window::HOLD_LIFE);
    assert!(admitted(hit(rig, &[bucket]).await), "and it expires like one");
}

async fn a_dead_hold_that_is_settled_late_counts_once(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let (late, refunded) = (hold(rig, bucket).await, hold(rig, bucket).await);
    rig.advance(window::HOLD_LIFE);
    refusal(hit(rig, &[bucket]).await);
    settle(rig, bucket, late, Outcome::Keep).await;
    settle(rig, bucket, refunded, Outcome::Refund).await;
    assert_eq!(rig.members(bucket), 1);
    assert!(admitted(hit(rig, &[bucket]).await));
}

async fn success_forgives_what_came_before_it_and_not_what_came_beside(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    let beside = hold(rig, bucket).await;
    rig.advance(SECOND);
    let arrived = rig.now();
    let right = hold(rig, bucket).await;
    rig.advance(SECOND);
    settle(rig, bucket, beside, Outcome::Keep).await;
    settle(rig, bucket, right, Outcome::Forgive { up_to: arrived }).await;
    assert_eq!(rig.members(bucket), 1, "the failure that was told beside it stays");
    assert_eq!(rig.store().peek(bucket).await.unwrap().rules[0].count, 1);
}

async fn success_forgives_nothing_while_another_hold_is_in_flight(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    rig.advance(SECOND);
    let (right, beside) = (hold(rig, bucket).await, hold(rig, bucket).await);
    settle(rig, bucket, right, Outcome::Forgive { up_to: rig.now() }).await;
    assert_eq!(rig.store().peek(bucket).await.unwrap().rules[0].count, 1);
    settle(rig, bucket, beside, Outcome::Forgive { up_to: rig.now() }).await;
    assert_eq!(rig.members(bucket), 0, "the last one was alone");
}

async fn kept_after_a_clear_counts(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = hold(rig, bucket).await;
    rig.store().clear(bucket).await.unwrap();
    settle(rig, bucket, id, Outcome::Keep).await;
    refusal(hit(rig, &[bucket]).await);
}
