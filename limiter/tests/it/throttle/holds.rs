//! Attempts whose outcome is not known yet, and the effect of each outcome. Each case runs on each store.

use std::time::Duration;

use gatehouse_limiter::*;

use super::acts::*;
use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);

on_stores! {
    holds_fill_but_do_not_refuse
    a_kept_hold_counts_from_its_outcome
    a_hold_whose_owner_died_is_a_failure
    a_hold_dies_by_the_clock_even_if_it_steps_back
    a_full_rule_beside_one_with_holds_refuses
    a_dead_hold_that_is_settled_late_counts_once
    success_forgives_what_came_before_it_and_not_what_came_beside
    success_forgives_nothing_while_another_hold_is_in_flight
    a_block_rule_forgives_nothing
    a_limit_that_only_blocks_forgives_nothing
    what_fails_after_a_success_counts_whatever_the_time
    holds_fill_beside_what_was_forgiven
    a_log_drops_what_was_forgiven_first
    a_refund_takes_back_what_was_forgiven_too
    a_dead_hold_that_was_forgiven_stays_so
    a_hold_that_died_beside_a_success_is_forgiven_with_the_rest
    a_success_that_comes_after_its_hold_died_counts_nowhere
    a_refund_counts_the_holds_of_others_that_died
    a_clock_that_steps_back_after_a_success_frees_nothing
    calendar_rules_forgive_as_others_do
    what_is_written_back_from_before_a_success_is_forgiven
    a_success_forgives_a_thousand_at_once
    kept_after_a_clear_counts
}

async fn holds_fill_but_do_not_refuse(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let (first, second) = (hold(rig, bucket).await, hold(rig, bucket).await);
    assert!(held(hit(rig, &[bucket]).await), "its answer depends on how the holds end");
    settle(rig, bucket, first, HoldOutcome::Refund).await;
    assert!(admitted(hit(rig, &[bucket]).await));
    assert!(held(hit(rig, &[bucket]).await));
    settle(rig, bucket, second, HoldOutcome::Keep).await;
    refusal(hit(rig, &[bucket]).await);
}

async fn a_kept_hold_counts_from_its_outcome(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = hold(rig, bucket).await;
    rig.advance(2 * SECOND);
    settle(rig, bucket, id, HoldOutcome::Keep).await;
    settle(rig, bucket, id, HoldOutcome::Keep).await;
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

async fn a_hold_dies_by_the_clock_even_if_it_steps_back(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    hold(rig, bucket).await;
    rig.set(start.minus(5 * SECOND));
    rig.advance(window::HOLD_LIFE);
    assert!(held(hit(rig, &[bucket]).await), "five seconds longer");
    rig.advance(5 * SECOND);
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MINUTE - window::HOLD_LIFE);
}

/// Holds in one log change nothing about another, nor about a rule that kept hits fill by themselves.
async fn a_full_rule_beside_one_with_holds_refuses(rig: &impl Rig) {
    let (two, one) = (limit("two", &[sliding(2, MINUTE)]), limit("one", &[sliding(1, MINUTE)]));
    let (two, one) = (rig.limiter().bucket(&two, b"a"), rig.limiter().bucket(&one, b"a"));
    hit(rig, &[two]).await;
    hold(rig, two).await;
    assert!(held(hit(rig, &[two, one]).await));
    hit(rig, &[one]).await;
    rig.advance(SECOND);
    let full = refusal(hit(rig, &[two, one]).await);
    assert_eq!((full.bucket, full.retry_after), (1, MINUTE - SECOND));
    let rules = [sliding(1, MINUTE), sliding(3, HOUR)];
    let both = limit("both", &rules);
    let both = rig.limiter().bucket(&both, b"a");
    let first = hold(rig, both).await;
    settle(rig, both, first, HoldOutcome::Keep).await;
    rig.advance(2 * MINUTE);
    let second = hold(rig, both).await;
    assert!(held(hit(rig, &[both]).await));
    settle(rig, both, second, HoldOutcome::Keep).await;
    assert_eq!(refusal(hit(rig, &[both]).await).rule, 0);
}

async fn a_dead_hold_that_is_settled_late_counts_once(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let (late, refunded) = (hold(rig, bucket).await, hold(rig, bucket).await);
    rig.advance(window::HOLD_LIFE);
    refusal(hit(rig, &[bucket]).await);
    settle(rig, bucket, late, HoldOutcome::Keep).await;
    settle(rig, bucket, refunded, HoldOutcome::Refund).await;
    assert_eq!(rig.members(bucket), 1);
    assert!(admitted(hit(rig, &[bucket]).await));
}

/// Three failures, then a challenge; and a block after that.
fn guarded(block: u32) -> Limit {
    limit("guarded", &[Rule::sliding(3, MINUTE, RuleAction::Captcha), sliding(block, HOUR)])
}

/// What its rules count.
async fn counts<R: Rig>(rig: &R, bucket: Bucket<'_>) -> Vec<u32> {
    rig.limiter().peek(bucket).await.unwrap().rules.iter().map(|rule| rule.count).collect()
}

/// A right password that came alone.
async fn succeed<R: Rig>(rig: &R, bucket: Bucket<'_>) {
    let id = fresh_id();
    assert!(admitted(take(rig, &[bucket], id, ReserveKind::Hold, true).await));
    settle(rig, bucket, id, HoldOutcome::Forgive { up_to: rig.now() }).await;
}

async fn success_forgives_what_came_before_it_and_not_what_came_beside(rig: &impl Rig) {
    let limit = guarded(20);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    let beside = hold(rig, bucket).await;
    rig.advance(SECOND);
    let arrived = rig.now();
    let right = hold(rig, bucket).await;
    rig.advance(SECOND);
    settle(rig, bucket, beside, HoldOutcome::Keep).await;
    settle(rig, bucket, right, HoldOutcome::Forgive { up_to: arrived }).await;
    assert_eq!(counts(rig, bucket).await, [1, 2], "the failure that was told beside it stays");
}

async fn success_forgives_nothing_while_another_hold_is_in_flight(rig: &impl Rig) {
    let limit = guarded(20);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    rig.advance(SECOND);
    let (right, beside) = (hold(rig, bucket).await, hold(rig, bucket).await);
    settle(rig, bucket, right, HoldOutcome::Forgive { up_to: rig.now() }).await;
    assert_eq!(counts(rig, bucket).await, [1, 1]);
    settle(rig, bucket, beside, HoldOutcome::Forgive { up_to: rig.now() }).await;
    assert_eq!(counts(rig, bucket).await, [0, 1], "the last one was alone");
}

/// Ten failures in ten minutes are ten, however often the owner signs in in between.
async fn a_block_rule_forgives_nothing(rig: &impl Rig) {
    let limit = guarded(10);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    for failures in 0..10 {
        assert_eq!(counts(rig, bucket).await, [0, failures]);
        assert!(admitted(hit(rig, &[bucket]).await), "no challenge after {failures}");
        rig.advance(SECOND);
        if failures < 9 {
            succeed(rig, bucket).await;
        }
        rig.advance(MINUTE - SECOND);
    }
    let full = refusal(take(rig, &[bucket], fresh_id(), ReserveKind::Hold, true).await);
    assert_eq!((full.then, full.retry_after), (RuleAction::Block, 50 * MINUTE), "until the first one leaves");
    rig.set(start.plus(HOUR));
    assert!(admitted(hit(rig, &[bucket]).await));
    assert_eq!(rig.members(bucket), 10);
}

async fn a_limit_that_only_blocks_forgives_nothing(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    succeed(rig, bucket).await;
    assert_eq!(remaining(hit(rig, &[bucket]).await), 0);
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!((full.retry_after, rig.members(bucket)), (MINUTE, 2));
}

/// Failures in the same microsecond as a success, before it and after it.
async fn what_fails_after_a_success_counts_whatever_the_time(rig: &impl Rig) {
    let limit = guarded(20);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for round in 1..=3 {
        for left in (0..3).rev() {
            assert_eq!(remaining(hit(rig, &[bucket]).await), left);
        }
        assert_eq!(refusal(hit(rig, &[bucket]).await).then, RuleAction::Captcha);
        succeed(rig, bucket).await;
        assert_eq!(counts(rig, bucket).await, [0, 3 * round]);
    }
}

async fn holds_fill_beside_what_was_forgiven(rig: &impl Rig) {
    let limit = guarded(6);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for _ in 0..3 {
        hit(rig, &[bucket]).await;
    }
    succeed(rig, bucket).await;
    let first = fresh_id();
    let room = take(rig, &[bucket], first, ReserveKind::Hold, false).await;
    assert_eq!(remaining(room), 2, "by both rules");
    let (second, _third) = (hold(rig, bucket).await, hold(rig, bucket).await);
    assert!(held(take(rig, &[bucket], fresh_id(), ReserveKind::Hold, true).await), "by the block rule alone");
    settle(rig, bucket, first, HoldOutcome::Refund).await;
    settle(rig, bucket, second, HoldOutcome::Keep).await;
    assert_eq!(remaining(take(rig, &[bucket], fresh_id(), ReserveKind::Hold, false).await), 0);
}

async fn a_log_drops_what_was_forgiven_first(rig: &impl Rig) {
    let limit = guarded(4);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    for failures in 0..12 {
        assert!(admitted(hit(rig, &[bucket]).await), "{failures}");
        succeed_unless_blocked(rig, bucket).await;
        assert!(rig.members(bucket) <= 4);
        rig.advance(20 * MINUTE);
    }
    let reading = rig.store().read(bucket).await.unwrap();
    let newest = [11, 10, 9, 8].map(|failure| start.plus(failure * 20 * MINUTE));
    assert_eq!(reading.hits, newest, "people are shown all of them");
}

async fn succeed_unless_blocked<R: Rig>(rig: &R, bucket: Bucket<'_>) {
    let id = fresh_id();
    if admitted(take(rig, &[bucket], id, ReserveKind::Hold, true).await) {
        settle(rig, bucket, id, HoldOutcome::Forgive { up_to: rig.now() }).await;
    }
}

async fn a_refund_takes_back_what_was_forgiven_too(rig: &impl Rig) {
    let limit = guarded(2);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = fresh_id();
    take(rig, &[bucket], id, ReserveKind::Hit, false).await;
    succeed(rig, bucket).await;
    assert_eq!(counts(rig, bucket).await, [0, 1]);
    settle(rig, bucket, id, HoldOutcome::Refund).await;
    assert_eq!(counts(rig, bucket).await, [0, 0]);
    assert_eq!(rig.members(bucket), 0);
}

/// It counts already, from when its slot was taken, and settling it later does not count it again.
async fn a_dead_hold_that_was_forgiven_stays_so(rig: &impl Rig) {
    let limit = guarded(20);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    let late = hold(rig, bucket).await;
    rig.advance(window::HOLD_LIFE);
    succeed(rig, bucket).await;
    let told = rig.store().settle(&[bucket], late, &[HoldOutcome::Keep], false).await.unwrap();
    assert_eq!((told.at, counts(rig, bucket).await), (start, vec![0, 1]));
}

async fn a_hold_that_died_beside_a_success_is_forgiven_with_the_rest(rig: &impl Rig) {
    let limit = guarded(20);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hold(rig, bucket).await;
    rig.advance(SECOND);
    let (right, arrived) = (hold(rig, bucket).await, rig.now());
    rig.advance(window::HOLD_LIFE - SECOND);
    settle(rig, bucket, right, HoldOutcome::Forgive { up_to: arrived }).await;
    assert_eq!(counts(rig, bucket).await, [0, 1]);
}

async fn a_success_that_comes_after_its_hold_died_counts_nowhere(rig: &impl Rig) {
    let limit = guarded(20);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let (late, arrived) = (hold(rig, bucket).await, rig.now());
    rig.advance(window::HOLD_LIFE);
    settle(rig, bucket, late, HoldOutcome::Forgive { up_to: arrived }).await;
    assert_eq!((counts(rig, bucket).await, rig.members(bucket)), (vec![0, 0], 0));
}

/// For good: a clock that steps back revives none.
async fn a_refund_counts_the_holds_of_others_that_died(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    hold(rig, bucket).await;
    rig.advance(window::HOLD_LIFE);
    settle(rig, bucket, fresh_id(), HoldOutcome::Refund).await;
    rig.set(start.plus(window::HOLD_LIFE - SECOND));
    assert_eq!(refusal(hit(rig, &[bucket]).await).frees_at, start.plus(MINUTE));
}

async fn a_clock_that_steps_back_after_a_success_frees_nothing(rig: &impl Rig) {
    let limit = guarded(2);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    hit(rig, &[bucket]).await;
    succeed(rig, bucket).await;
    rig.set(start.minus(30 * SECOND));
    assert!(admitted(hit(rig, &[bucket]).await));
    assert_eq!(refusal(hit(rig, &[bucket]).await).frees_at, start.plus(HOUR));
    assert_eq!(counts(rig, bucket).await, [1, 2]);
}

async fn calendar_rules_forgive_as_others_do(rig: &impl Rig) {
    let daily = |max, then| {
        let span = RuleSpan::Calendar { unit: CalendarUnit::Day, zone: jiff::tz::TimeZone::UTC };
        Rule { max, span, then }
    };
    let limit = limit("daily", &[daily(2, RuleAction::Captcha), daily(4, RuleAction::Block)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for _ in 0..2 {
        for _ in 0..2 {
            assert!(admitted(hit(rig, &[bucket]).await));
        }
        assert!(matches!(hit(rig, &[bucket]).await, StoreVerdict::Refused { .. }));
        succeed_unless_blocked(rig, bucket).await;
    }
    let full = refusal(take(rig, &[bucket], fresh_id(), ReserveKind::Hold, true).await);
    assert_eq!((full.then, full.retry_after), (RuleAction::Block, 12 * HOUR));
    assert_eq!(counts(rig, bucket).await, [2, 4]);
}

async fn what_is_written_back_from_before_a_success_is_forgiven(rig: &impl Rig) {
    let limit = guarded(20);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    succeed(rig, bucket).await;
    let kept = |age| (bucket, KeptHit { at: rig.now().minus(age), id: fresh_id() });
    rig.store().restore(&[kept(SECOND), kept(2 * SECOND)]).await.unwrap();
    assert_eq!(counts(rig, bucket).await, [0, 3]);
    rig.advance(SECOND);
    rig.store().restore(&[kept(Duration::ZERO)]).await.unwrap();
    assert_eq!(counts(rig, bucket).await, [1, 4]);
}

/// What one script moves is bounded; the oldest go first.
async fn a_success_forgives_a_thousand_at_once(rig: &impl Rig) {
    let limit = limit("many", &[Rule::sliding(1500, HOUR, RuleAction::Captcha), sliding(2000, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let hits: Vec<_> = (1..=1200)
        .map(|age| (bucket, KeptHit { at: rig.now().minus(SECOND * age), id: fresh_id() }))
        .collect();
    rig.store().restore(&hits).await.unwrap();
    succeed(rig, bucket).await;
    assert_eq!(counts(rig, bucket).await, [200, 1200]);
    succeed(rig, bucket).await;
    assert_eq!(counts(rig, bucket).await, [0, 1200]);
}

async fn kept_after_a_clear_counts(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = hold(rig, bucket).await;
    rig.store().clear(bucket).await.unwrap();
    settle(rig, bucket, id, HoldOutcome::Keep).await;
    refusal(hit(rig, &[bucket]).await);
}
