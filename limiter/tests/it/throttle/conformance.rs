//! What every store must do with hits. Each case runs on each store.

use std::time::Duration;

use gatehouse_limiter::*;

use super::acts::*;
use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);

on_stores! {
    admits_exactly_max
    refusal_writes_nothing
    frees_at_the_exact_microsecond
    one_hit_in_the_way_is_one_time_until_it_leaves
    a_monitored_limit_says_when_it_would_free
    whatever_is_admitted_or_kept_says_from_when_it_counts
    same_microsecond_counts_twice
    all_or_nothing
    refund_twice_is_one_refund
    a_late_refund_takes_back_its_own_hit_only
    hundred_parallel_admit_max
    never_more_members_than_max
    one_log_serves_many_rules
    the_strictest_answer_wins
    a_solved_challenge_lifts_captcha_rules_only
    monitored_limits_count_and_refuse_nothing
    a_limit_without_rules_admits_everything
    raising_max_keeps_what_was_counted
    lowering_max_applies_to_what_was_counted
    peek_agrees_with_what_happens_next
    many_peeks_are_one
    a_settlement_tells_the_states_that_a_peek_would
    subjects_do_not_share_logs
    limits_that_share_a_log_count_each_others_hits_and_drop_none
    one_log_twice_in_a_step_is_a_mistake
    a_step_spans_eight_logs_and_no_more
    what_is_left_says_when_there_is_more
}

async fn admits_exactly_max(rig: &impl Rig) {
    let limit = limit("five", &[sliding(5, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for left in (0..5).rev() {
        assert_eq!(remaining(hit(rig, &[bucket]).await), left);
        rig.advance(SECOND);
    }
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, HOUR - 5 * SECOND);
}

async fn refusal_writes_nothing(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    hit(rig, &[bucket]).await;
    for _ in 0..50 {
        refusal(hit(rig, &[bucket]).await);
        rig.advance(SECOND);
    }
    assert_eq!(rig.members(bucket), 2);
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, 10 * SECOND, "retrying prolongs nothing");
}

async fn frees_at_the_exact_microsecond(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let start = rig.now();
    assert!(admitted(hit(rig, &[bucket]).await));
    rig.set(start.plus(MINUTE - MICRO));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MICRO);
    rig.set(start.plus(MINUTE));
    assert!(admitted(hit(rig, &[bucket]).await), "a hit exactly as old as the window has left");
}

async fn one_hit_in_the_way_is_one_time_until_it_leaves(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    hit(rig, &[bucket]).await;
    rig.advance(SECOND);
    hit(rig, &[bucket]).await;
    for second in 1..60 {
        rig.set(start.plus(second * SECOND));
        let refusal = refusal(hit(rig, &[bucket]).await);
        assert_eq!((refusal.frees_at, refusal.at()), (start.plus(MINUTE), rig.now()), "after {second} s");
        rig.advance(Duration::from_millis(3));
        let again = self::refusal(hit(rig, &[bucket]).await);
        assert_eq!((again.frees_at, again.at()), (start.plus(MINUTE), rig.now()));
    }
    rig.set(start.plus(MINUTE));
    assert!(admitted(hit(rig, &[bucket]).await));
    assert_eq!(refusal(hit(rig, &[bucket]).await).frees_at, start.plus(MINUTE + SECOND), "the next hit");
}

async fn a_monitored_limit_says_when_it_would_free(rig: &impl Rig) {
    let watched = Limit::new("watched", vec![sliding(1, MINUTE)], LimitMode::Monitor).unwrap();
    let (bucket, start) = (rig.limiter().bucket(&watched, b"a"), rig.now());
    hit(rig, &[bucket]).await;
    rig.advance(SECOND);
    match hit(rig, &[bucket]).await {
        StoreVerdict::Admitted { noted: Some(noted), .. } => assert_eq!(noted.frees_at, start.plus(MINUTE)),
        other => panic!("expected an admission that is noted, got {other:?}"),
    }
}

async fn whatever_is_admitted_or_kept_says_from_when_it_counts(rig: &impl Rig) {
    let limit = limit("ten", &[sliding(10, MINUTE)]);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    match rig.limiter().reserve(&[bucket], false).await.unwrap() {
        HitDecision::Admitted(admission) => assert_eq!(admission.at, start),
        other => panic!("expected an admission, got {other:?}"),
    }
    let held = rig.limiter().hold(&[bucket], false, SECOND).await.unwrap();
    let HoldDecision::Held(hold) = held else { panic!("expected a hold") };
    assert_eq!(hold.at, start);
    rig.advance(SECOND);
    assert_eq!(hold.keep().await.unwrap(), start.plus(SECOND), "a failure counts from its outcome");
    // Its owner took too long: it counts already, from when its slot was taken.
    let id = self::hold(rig, bucket).await;
    rig.advance(30 * SECOND);
    hit(rig, &[bucket]).await;
    let settled = rig.store().settle(&[bucket], id, &[HoldOutcome::Keep], false).await.unwrap();
    assert_eq!(settled.at, start.plus(SECOND));
    let refunded = rig.store().settle(&[bucket], fresh_id(), &[HoldOutcome::Refund], false).await.unwrap();
    assert_eq!(refunded.at, rig.now());
}

async fn same_microsecond_counts_twice(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for _ in 0..3 {
        assert!(admitted(hit(rig, &[bucket]).await));
    }
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, MINUTE);
    assert_eq!(rig.members(bucket), 3);
}

async fn all_or_nothing(rig: &impl Rig) {
    let (wide, narrow) = (limit("wide", &[sliding(10, MINUTE)]), limit("narrow", &[sliding(1, MINUTE)]));
    let (wide, narrow) = (rig.limiter().bucket(&wide, b"a"), rig.limiter().bucket(&narrow, b"a"));
    assert!(admitted(hit(rig, &[wide, narrow]).await));
    for _ in 0..5 {
        let refusal = refusal(hit(rig, &[wide, narrow]).await);
        assert_eq!((refusal.bucket, refusal.rule), (1, 0));
    }
    assert_eq!((rig.members(wide), rig.members(narrow)), (1, 1));
}

async fn refund_twice_is_one_refund(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = fresh_id();
    take(rig, &[bucket], id, ReserveKind::Hit, false).await;
    assert!(admitted(hit(rig, &[bucket]).await));
    refusal(hit(rig, &[bucket]).await);
    for _ in 0..2 {
        settle(rig, bucket, id, HoldOutcome::Refund).await;
    }
    assert!(admitted(hit(rig, &[bucket]).await));
    refusal(hit(rig, &[bucket]).await);
}

async fn a_late_refund_takes_back_its_own_hit_only(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = fresh_id();
    take(rig, &[bucket], id, ReserveKind::Hit, false).await;
    rig.advance(MINUTE);
    assert!(admitted(hit(rig, &[bucket]).await));
    settle(rig, bucket, id, HoldOutcome::Refund).await;
    refusal(hit(rig, &[bucket]).await);
}

async fn hundred_parallel_admit_max<R: Rig>(rig: &R) {
    let limit = limit("seven", &[sliding(7, MINUTE)]);
    let (mut tasks, mut admissions) = (tokio::task::JoinSet::new(), 0);
    for _ in 0..100 {
        let (limiter, limit) = (rig.limiter().clone(), limit.clone());
        tasks.spawn(async move { limiter.reserve(&[limiter.bucket(&limit, b"a")], false).await.unwrap() });
    }
    while let Some(decision) = tasks.join_next().await {
        admissions += u32::from(matches!(decision.unwrap(), HitDecision::Admitted(_)));
    }
    assert_eq!(admissions, 7);
}

async fn never_more_members_than_max(rig: &impl Rig) {
    let limit = limit("four", &[sliding(4, SECOND)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for _ in 0..200 {
        hit(rig, &[bucket]).await;
        assert!(rig.members(bucket) <= 4);
        rig.advance(Duration::from_millis(70));
    }
    assert_eq!(rig.members(bucket), 4);
}

async fn one_log_serves_many_rules(rig: &impl Rig) {
    let limit = limit("sms", &[sliding(1, MINUTE), sliding(5, HOUR), sliding(10, 24 * HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let start = rig.now();
    for _ in 0..5 {
        assert!(admitted(hit(rig, &[bucket]).await));
        assert_eq!(refusal(hit(rig, &[bucket]).await).rule, if rig.members(bucket) < 5 { 0 } else { 1 });
        rig.advance(MINUTE);
    }
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!((full.rule, full.retry_after), (1, 55 * MINUTE));
    rig.set(start.plus(2 * HOUR));
    for _ in 0..5 {
        assert!(admitted(hit(rig, &[bucket]).await));
        rig.advance(MINUTE);
    }
    rig.set(start.plus(5 * HOUR));
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!(
        (full.rule, full.retry_after),
        (2, 19 * HOUR),
        "the tenth newest, not the oldest in the window"
    );
}

async fn the_strictest_answer_wins(rig: &impl Rig) {
    let limit = limit(
        "login",
        &[
            Rule::sliding(1, HOUR, RuleAction::Captcha),
            Rule::sliding(2, MINUTE, RuleAction::Block),
            sliding(3, SECOND * 90),
        ],
    );
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, &[bucket]).await;
    assert_eq!(refusal(hit(rig, &[bucket]).await).then, RuleAction::Captcha);
    take(rig, &[bucket], fresh_id(), ReserveKind::Hit, true).await;
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!((full.then, full.rule, full.retry_after), (RuleAction::Block, 1, MINUTE));
    rig.advance(MINUTE);
    take(rig, &[bucket], fresh_id(), ReserveKind::Hit, true).await;
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!(
        (full.then, full.rule, full.retry_after),
        (RuleAction::Block, 2, 30 * SECOND),
        "of two blocks, the longer"
    );
}

async fn a_solved_challenge_lifts_captcha_rules_only(rig: &impl Rig) {
    let limit = limit("login", &[Rule::sliding(3, MINUTE, RuleAction::Captcha), sliding(5, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    for _ in 0..3 {
        assert!(admitted(hit(rig, &[bucket]).await));
    }
    assert_eq!(refusal(hit(rig, &[bucket]).await).then, RuleAction::Captcha);
    for _ in 0..2 {
        assert!(admitted(take(rig, &[bucket], fresh_id(), ReserveKind::Hit, true).await));
    }
    let full = refusal(take(rig, &[bucket], fresh_id(), ReserveKind::Hit, true).await);
    assert_eq!((full.then, full.retry_after), (RuleAction::Block, HOUR));
}

async fn monitored_limits_count_and_refuse_nothing(rig: &impl Rig) {
    let limit = Limit::new("watched", vec![sliding(2, MINUTE)], LimitMode::Monitor).unwrap();
    let bucket = rig.limiter().bucket(&limit, b"a");
    for count in 0..10 {
        match hit(rig, &[bucket]).await {
            StoreVerdict::Admitted { noted, .. } => assert_eq!(noted.is_some(), count >= 2, "after {count}"),
            other => panic!("{other:?}"),
        }
        assert!(rig.members(bucket) <= 2);
    }
}

async fn a_limit_without_rules_admits_everything(rig: &impl Rig) {
    let (off, two) = (limit("off", &[]), limit("two", &[sliding(2, MINUTE)]));
    let (off, two) = (rig.limiter().bucket(&off, b"a"), rig.limiter().bucket(&two, b"a"));
    for _ in 0..10 {
        assert!(admitted(hit(rig, &[off]).await));
    }
    assert_eq!(rig.members(off), 0);
    assert!(admitted(hit(rig, &[off, two]).await) && admitted(hit(rig, &[off, two]).await));
    assert_eq!(refusal(hit(rig, &[off, two]).await).bucket, 1, "buckets are counted as they were asked for");
    settle(rig, off, fresh_id(), HoldOutcome::Keep).await;
    assert_eq!(rig.members(off), 0);
}

async fn raising_max_keeps_what_was_counted(rig: &impl Rig) {
    let (before, after) = (limit("live", &[sliding(2, MINUTE)]), limit("live", &[sliding(5, MINUTE)]));
    let (before, after) = (rig.limiter().bucket(&before, b"a"), rig.limiter().bucket(&after, b"a"));
    hit(rig, &[before]).await;
    hit(rig, &[before]).await;
    refusal(hit(rig, &[before]).await);
    for left in (0..3).rev() {
        assert_eq!(remaining(hit(rig, &[after]).await), left);
    }
    refusal(hit(rig, &[after]).await);
}

async fn lowering_max_applies_to_what_was_counted(rig: &impl Rig) {
    let (before, after) = (limit("live", &[sliding(9, MINUTE)]), limit("live", &[sliding(2, MINUTE)]));
    let (before, after) = (rig.limiter().bucket(&before, b"a"), rig.limiter().bucket(&after, b"a"));
    for _ in 0..9 {
        hit(rig, &[before]).await;
        rig.advance(SECOND);
    }
    assert_eq!(refusal(hit(rig, &[after]).await).retry_after, MINUTE - 2 * SECOND);
    rig.advance(MINUTE - 2 * SECOND);
    assert!(admitted(hit(rig, &[after]).await));
    assert_eq!(rig.members(after), 2);
}

async fn peek_agrees_with_what_happens_next(rig: &impl Rig) {
    let limit = limit("login", &[Rule::sliding(2, MINUTE, RuleAction::Captcha), sliding(3, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let peek = rig.limiter().peek(bucket).await.unwrap();
    assert_eq!((peek.at, peek.holds, peek.rules.len()), (rig.now(), 0, 2));
    hit(rig, &[bucket]).await;
    rig.advance(SECOND);
    hit(rig, &[bucket]).await;
    let peek = rig.limiter().peek(bucket).await.unwrap();
    assert_eq!(peek.rules[0], RulePeek { count: 2, retry_after: MINUTE - SECOND });
    assert_eq!(peek.rules[1], RulePeek { count: 2, retry_after: Duration::ZERO });
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, peek.rules[0].retry_after);
    rig.advance(MINUTE);
    hold(rig, bucket).await;
    let peek = rig.limiter().peek(bucket).await.unwrap();
    assert_eq!((peek.holds, peek.rules[0].count, peek.rules[1].count), (1, 0, 2));
}

fn hourly(max: u32) -> Rule {
    let span = RuleSpan::Calendar { unit: CalendarUnit::Hour, zone: jiff::tz::TimeZone::UTC };
    Rule { max, span, then: RuleAction::Block }
}

async fn many_peeks_are_one(rig: &impl Rig) {
    let three = limit("three", &[Rule::sliding(1, MINUTE, RuleAction::Captcha), hourly(3)]);
    let (off, two) = (limit("off", &[]), limit("two", &[sliding(2, MINUTE)]));
    let buckets = [&three, &off, &two, &two]
        .iter()
        .zip([b"a", b"a", b"a", b"b"])
        .map(|(limit, who)| rig.limiter().bucket(limit, who))
        .collect::<Vec<_>>();
    hit(rig, &[buckets[0], buckets[2]]).await;
    rig.advance(SECOND);
    hold(rig, buckets[2]).await;
    let states = rig.limiter().peek_all(&buckets).await.unwrap();
    for (bucket, state) in buckets.iter().zip(&states) {
        assert_eq!(*state, rig.limiter().peek(*bucket).await.unwrap());
    }
    let counts =
        states.iter().map(|state| (state.holds, state.rules.iter().map(|rule| rule.count).collect()));
    let expected: [(u32, Vec<u32>); 4] = [(0, vec![1, 1]), (0, vec![]), (1, vec![1]), (0, vec![0])];
    assert!(counts.eq(expected), "{states:?}");
    assert_eq!(states[0].rules[0].retry_after, MINUTE - SECOND);
}

async fn a_settlement_tells_the_states_that_a_peek_would(rig: &impl Rig) {
    let three = limit("three", &[hourly(3), Rule::sliding(1, MINUTE, RuleAction::Captcha)]);
    let (off, two) = (limit("off", &[]), limit("two", &[sliding(2, MINUTE)]));
    let buckets = [&off, &three, &two].map(|limit| rig.limiter().bucket(limit, b"a"));
    let (id, other) = (fresh_id(), hold(rig, buckets[2]).await);
    assert!(admitted(take(rig, &buckets, id, ReserveKind::Hold, false).await));
    rig.advance(SECOND);
    let outcomes = [HoldOutcome::Keep, HoldOutcome::Keep, HoldOutcome::Refund];
    let told = rig.store().settle(&buckets, id, &outcomes, true).await.unwrap();
    assert_eq!(told.at, rig.now());
    let states = told.states.unwrap();
    assert_eq!(states, rig.limiter().peek_all(&buckets).await.unwrap());
    assert_eq!(states[1].rules[0], RulePeek { count: 1, retry_after: Duration::ZERO });
    assert_eq!(states[1].rules[1], RulePeek { count: 1, retry_after: MINUTE });
    assert_eq!((states[2].holds, states[2].rules[0].count), (1, 0), "the other's");
    settle(rig, buckets[2], other, HoldOutcome::Refund).await;
    // Without a log there is nothing to settle.
    let told = rig.store().settle(&buckets[..1], id, &outcomes[..1], true).await.unwrap();
    assert_eq!(told.states.unwrap(), [LogPeek { at: rig.now(), holds: 0, rules: Vec::new() }]);
    // What is kept behind the newest hit of its log counts from then, and is looked at now.
    hit(rig, &[buckets[2]]).await;
    let (newest, id) = (rig.now(), hold(rig, buckets[2]).await);
    rig.set(newest.minus(5 * SECOND));
    let told = rig.store().settle(&buckets[2..], id, &[HoldOutcome::Keep], true).await.unwrap();
    assert_eq!((told.at, &told.states.unwrap()[0].rules[0].count), (newest, &2));
}

async fn subjects_do_not_share_logs(rig: &impl Rig) {
    let (one, other) = (limit("one", &[sliding(1, MINUTE)]), limit("other", &[sliding(1, MINUTE)]));
    for bucket in [
        rig.limiter().bucket(&one, b"a"),
        rig.limiter().bucket(&one, b"b"),
        rig.limiter().bucket(&other, b"a"),
    ] {
        assert!(admitted(hit(rig, &[bucket]).await));
        refusal(hit(rig, &[bucket]).await);
    }
}

/// As an exempt client and its neighbours do, whose rules differ.
async fn limits_that_share_a_log_count_each_others_hits_and_drop_none(rig: &impl Rig) {
    let challenging = Rule::sliding(2, HOUR, RuleAction::Captcha);
    let (small, large) = (limit("one", &[challenging]), limit("one", &[sliding(20, HOUR)]));
    let small = small.keeping(large.capacity());
    assert_eq!((small.capacity(), small == limit("one", small.rules())), (20, true));
    let bucket = |limit| rig.limiter().bucket(limit, b"a");
    for _ in 0..10 {
        assert!(admitted(hit(rig, &[bucket(&large)]).await));
        rig.advance(SECOND);
    }
    refusal(hit(rig, &[bucket(&small)]).await);
    let solved = async || rig.limiter().reserve(&[bucket(&small)], true).await.unwrap();
    for _ in 0..10 {
        assert!(matches!(solved().await, HitDecision::Admitted(_)));
        rig.advance(SECOND);
    }
    assert_eq!(rig.members(bucket(&small)), 20, "a hit under the smaller one drops none");
    refusal(hit(rig, &[bucket(&large)]).await);
    for _ in 0..30 {
        assert!(matches!(solved().await, HitDecision::Admitted(_)));
        rig.advance(SECOND);
    }
    assert_eq!(rig.members(bucket(&small)), 20, "and it keeps no more than that");
}

/// Every step over these buckets.
async fn errors<R: Rig>(rig: &R, buckets: &[Bucket<'_>]) -> Vec<StoreError> {
    let (limiter, id) = (rig.limiter(), fresh_id());
    vec![
        limiter.reserve(buckets, false).await.unwrap_err(),
        limiter.reserve_or_nothing(buckets, false).await.unwrap_err(),
        limiter.reserve_by(buckets, id).await.unwrap_err(),
        limiter.hold(buckets, false, SECOND).await.map(drop).unwrap_err(),
        limiter.peek_all(buckets).await.unwrap_err(),
        limiter.refund(buckets, id).await.unwrap_err(),
        limiter.keep(buckets, id).await.unwrap_err(),
    ]
}

/// Otherwise each store would count it in its own way.
async fn one_log_twice_in_a_step_is_a_mistake(rig: &impl Rig) {
    let (second, hour) = (limit("api", &[sliding(10, SECOND)]), limit("api", &[sliding(100, HOUR)]));
    let other = limit("other", &[sliding(1, HOUR)]);
    let [one, two] = [&second, &hour].map(|limit| rig.limiter().bucket(limit, b"a"));
    let other = rig.limiter().bucket(&other, b"a");
    for (buckets, places) in [(vec![one, one], (0, 1)), (vec![one, other, two], (0, 2))] {
        for error in errors(rig, &buckets).await {
            let StoreError::SameLog { first, second } = error else { panic!("{error}") };
            assert_eq!((first, second), places);
        }
    }
    assert_eq!((rig.members(one), rig.members(other)), (0, 0), "nothing was written");
}

async fn a_step_spans_eight_logs_and_no_more(rig: &impl Rig) {
    let limits: Vec<Limit> = (0..40).map(|number| limit(&format!("n{number}"), &[hourly(9)])).collect();
    let buckets: Vec<Bucket<'_>> = limits.iter().map(|limit| rig.limiter().bucket(limit, b"a")).collect();
    for count in [9, 40] {
        for error in errors(rig, &buckets[..count]).await {
            assert!(matches!(error, StoreError::TooManyBuckets { count: told } if told == count), "{error}");
        }
    }
    assert!(buckets.iter().all(|bucket| rig.members(*bucket) == 0), "nothing was written");
    let held = rig.limiter().hold(&buckets[..MOST_BUCKETS], false, SECOND).await.unwrap();
    let HoldDecision::Held(hold) = held else { panic!("expected a hold") };
    hold.succeed(|_| true).await.unwrap();
    assert!(admitted(hit(rig, &buckets[..MOST_BUCKETS]).await));
}

async fn what_is_left_says_when_there_is_more(rig: &impl Rig) {
    let (calendar, limit) =
        (limit("hour", &[hourly(2)]), limit("both", &[sliding(3, MINUTE), sliding(5, HOUR)]));
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    // When it is, the rule that binds, what is left of it, and when it admits one more.
    let expected = [
        (0, 0, 2, 60),
        (10, 0, 1, 60),
        (65, 0, 1, 70),
        (71, 0, 1, 125),
        (126, 1, 0, 3600),
        (3600, 1, 0, 3610),
    ];
    for (now, rule, left, more) in expected {
        rig.set(start.plus(now * SECOND));
        let StoreVerdict::Admitted { room: Some(room), .. } = hit(rig, &[bucket]).await else {
            panic!("refused after {now} s")
        };
        let told = (room.rule, room.remaining, rig.now().plus(room.more_after));
        assert_eq!(told, (rule, left, start.plus(more * SECOND)), "after {now} s");
    }
    let by_the_clock = rig.limiter().bucket(&calendar, b"a");
    for left in [1, 0] {
        let StoreVerdict::Admitted { room: Some(room), .. } = hit(rig, &[by_the_clock]).await else {
            panic!("refused with {left} left")
        };
        assert_eq!((room.remaining, rig.now().plus(room.more_after)), (left, start.plus(2 * HOUR)));
        rig.advance(SECOND);
    }
}
