//! Hits written back to a store that lost them, and the mark that says so. Each case runs on each store.

use std::time::Duration;

use gatehouse_limiter::*;
use jiff::tz::TimeZone;

use super::rig::*;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const MICRO: Duration = Duration::from_micros(1);

on_stores! {
    restored_hits_count_by_their_own_times
    restoring_twice_is_restoring_once
    what_stands_stays_as_it_stands
    a_log_takes_back_its_newest_only
    hits_admitted_by_an_empty_log_push_out_nothing
    an_older_hit_makes_no_newer_one_count_for_longer
    what_no_rule_can_see_is_left_out
    a_calendar_unit_takes_back_what_it_counts
    restoring_disturbs_no_hold
    a_hold_of_the_same_id_stays_a_hold
    a_limit_without_rules_takes_nothing_back
    more_than_one_script_takes_are_all_restored
    hits_of_many_logs_each_come_back_to_their_own
    whole_is_what_was_written_back_whole
    a_hold_is_taken_only_while_windows_are_complete
}

async fn restore<R: Rig>(rig: &R, bucket: Bucket<'_>, hits: &[(Duration, HitId)]) {
    let kept = |(age, id): &(Duration, HitId)| (bucket, KeptHit { at: rig.now().minus(*age), id: *id });
    let hits: Vec<_> = hits.iter().map(kept).collect();
    rig.store().restore(&hits).await.unwrap();
}

async fn take<R: Rig>(rig: &R, bucket: Bucket<'_>, id: HitId, kind: ReserveKind) -> StoreVerdict {
    rig.store()
        .reserve(&ReserveRequest { buckets: &[bucket], id, kind, solved: false, complete: None })
        .await
        .unwrap()
}

async fn hit<R: Rig>(rig: &R, bucket: Bucket<'_>) -> StoreVerdict {
    take(rig, bucket, fresh_id(), ReserveKind::Hit).await
}

#[track_caller]
fn wait(verdict: StoreVerdict) -> Duration {
    match verdict {
        StoreVerdict::Refused { refusal, .. } => refusal.retry_after,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

async fn restored_hits_count_by_their_own_times(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    // In any order.
    restore(rig, bucket, &[20, 50, 10].map(|age| (age * MINUTE, fresh_id()))).await;
    assert_eq!(wait(hit(rig, bucket).await), 10 * MINUTE);
    rig.advance(10 * MINUTE - MICRO);
    assert_eq!(wait(hit(rig, bucket).await), MICRO);
    rig.advance(MICRO);
    assert!(matches!(hit(rig, bucket).await, StoreVerdict::Admitted { .. }));
    assert_eq!(wait(hit(rig, bucket).await), 30 * MINUTE, "the next oldest");
}

async fn restoring_twice_is_restoring_once(rig: &impl Rig) {
    let limit = limit("five", &[sliding(5, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let hits = [1, 2, 3].map(|age| (age * MINUTE, fresh_id()));
    for _ in 0..3 {
        restore(rig, bucket, &hits).await;
    }
    assert_eq!(rig.members(bucket), 3);
}

async fn what_stands_stays_as_it_stands(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = fresh_id();
    take(rig, bucket, id, ReserveKind::Hit).await;
    rig.advance(MINUTE);
    restore(rig, bucket, &[(Duration::ZERO, id)]).await;
    assert_eq!(rig.members(bucket), 1);
    assert_eq!(wait(hit(rig, bucket).await), 59 * MINUTE);
}

async fn a_log_takes_back_its_newest_only(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let hits: Vec<_> = (1..=10).map(|age| (age * MINUTE, fresh_id())).collect();
    restore(rig, bucket, &hits).await;
    assert_eq!(rig.members(bucket), 6, "twice what it can count");
    assert_eq!(wait(hit(rig, bucket).await), 57 * MINUTE);
    rig.advance(57 * MINUTE);
    assert!(matches!(hit(rig, bucket).await, StoreVerdict::Admitted { .. }));
    assert_eq!(rig.members(bucket), 3, "the next one that is admitted tidies up");
}

/// A log that has lost its hits admits what it must not. That is refunded later, and what was written back
/// meanwhile must still be there.
async fn hits_admitted_by_an_empty_log_push_out_nothing(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let admitted = [fresh_id(), fresh_id(), fresh_id()];
    for id in admitted {
        take(rig, bucket, id, ReserveKind::Hit).await;
    }
    restore(rig, bucket, &[10, 20, 30].map(|age| (age * MINUTE, fresh_id()))).await;
    for id in admitted {
        rig.store().settle(&[bucket], id, &[HoldOutcome::Refund], false).await.unwrap();
    }
    assert_eq!(rig.members(bucket), 3);
    assert_eq!(wait(hit(rig, bucket).await), 30 * MINUTE);
}

async fn an_older_hit_makes_no_newer_one_count_for_longer(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    hit(rig, bucket).await;
    hit(rig, bucket).await;
    restore(rig, bucket, &[(30 * MINUTE, fresh_id())]).await;
    assert_eq!(wait(hit(rig, bucket).await), HOUR);
}

async fn what_no_rule_can_see_is_left_out(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    restore(rig, bucket, &[(2 * MINUTE, fresh_id())]).await;
    assert_eq!(rig.members(bucket), 0);
}

async fn a_calendar_unit_takes_back_what_it_counts(rig: &impl Rig) {
    let span = RuleSpan::Calendar { unit: CalendarUnit::Day, zone: TimeZone::UTC };
    let limit = limit("day", &[Rule { max: 2, span, then: RuleAction::Block }]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    // It is noon: eleven hours ago is today, thirteen is not.
    restore(rig, bucket, &[(11 * HOUR, fresh_id()), (13 * HOUR, fresh_id())]).await;
    assert!(matches!(hit(rig, bucket).await, StoreVerdict::Admitted { .. }));
    assert_eq!(wait(hit(rig, bucket).await), 12 * HOUR);
}

async fn restoring_disturbs_no_hold(rig: &impl Rig) {
    let limit = limit("three", &[sliding(3, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = fresh_id();
    take(rig, bucket, id, ReserveKind::Hold).await;
    restore(rig, bucket, &[1, 2, 3, 4].map(|age| (age * MINUTE, fresh_id()))).await;
    assert_eq!(rig.limiter().peek(bucket).await.unwrap().holds, 1);
    assert_eq!(rig.members(bucket), 5, "four kept and the hold");
    rig.store().settle(&[bucket], id, &[HoldOutcome::Keep], false).await.unwrap();
    assert_eq!(wait(hit(rig, bucket).await), 58 * MINUTE, "the kept one and the newest two");
}

async fn a_hold_of_the_same_id_stays_a_hold(rig: &impl Rig) {
    let limit = limit("one", &[sliding(1, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let id = fresh_id();
    take(rig, bucket, id, ReserveKind::Hold).await;
    restore(rig, bucket, &[(MINUTE, id)]).await;
    assert!(matches!(hit(rig, bucket).await, StoreVerdict::Held { .. }));
    rig.store().settle(&[bucket], id, &[HoldOutcome::Refund], false).await.unwrap();
    assert_eq!(rig.members(bucket), 0);
}

async fn a_limit_without_rules_takes_nothing_back(rig: &impl Rig) {
    let limit = limit("none", &[]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    restore(rig, bucket, &[(MINUTE, fresh_id())]).await;
    assert_eq!(rig.members(bucket), 0);
}

async fn more_than_one_script_takes_are_all_restored(rig: &impl Rig) {
    let limit = limit("many", &[sliding(1000, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let hits: Vec<_> = (1..=1000).map(|age| (age * Duration::from_secs(1), fresh_id())).collect();
    restore(rig, bucket, &hits).await;
    assert_eq!(rig.members(bucket), 1000);
    assert_eq!(wait(hit(rig, bucket).await), HOUR - Duration::from_secs(1000));
}

async fn hits_of_many_logs_each_come_back_to_their_own(rig: &impl Rig) {
    let (few, many) = (limit("few", &[sliding(2, HOUR)]), limit("many", &[sliding(500, MINUTE)]));
    let bucket = |limit, number: usize| rig.limiter().bucket(limit, &number.to_le_bytes());
    // Every 50th log has more than a script takes; and of each, one hit is too old.
    let wanted: Vec<_> = (0..160)
        .map(|number| match number % 50 {
            0 => (bucket(&many, number), 240, MINUTE),
            _ => (bucket(&few, number), 1 + number % 3, HOUR),
        })
        .collect();
    let mut hits = Vec::new();
    for age in 0..=240 {
        for (bucket, count, window) in &wanted {
            let age = match age {
                0 => *window * 2,
                age if age <= *count => *window * age as u32 / 300,
                _ => continue,
            };
            hits.push((*bucket, KeptHit { at: rig.now().minus(age), id: fresh_id() }));
        }
    }
    rig.store().restore(&hits).await.unwrap();
    for (bucket, count, _) in wanted {
        assert_eq!(rig.members(bucket), count);
    }
}

async fn whole_is_what_was_written_back_whole(rig: &impl Rig) {
    let store = rig.store();
    let (one, other) = (fresh_id(), fresh_id());
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), None);
    store.begin_rebuild("thing", one).await.unwrap();
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), None, "begun is not ended");
    assert!(store.finish_rebuild("thing", "small", one).await.unwrap());
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), Some(one));
    assert_eq!(store.rebuild_generation("thing-else", "small").await.unwrap(), None);
    store.begin_rebuild("thing", other).await.unwrap();
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), Some(one));
    assert!(store.finish_rebuild("thing", "small", other).await.unwrap());
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), Some(other));
    // Another shape replaces it, and is replaced by it.
    for (shape, before) in [("large", "small"), ("small", "large")] {
        assert_eq!(store.rebuild_generation("thing", shape).await.unwrap(), None, "{shape}");
        store.begin_rebuild("thing", one).await.unwrap();
        assert!(store.finish_rebuild("thing", shape, one).await.unwrap());
        assert_eq!(store.rebuild_generation("thing", shape).await.unwrap(), Some(one));
        assert_eq!(store.rebuild_generation("thing", before).await.unwrap(), None, "{before}");
    }
}

async fn a_hold_is_taken_only_while_windows_are_complete(rig: &impl Rig) {
    let (three, one) = (limit("three", &[sliding(3, HOUR)]), limit("one", &[sliding(1, HOUR)]));
    let buckets = [rig.limiter().bucket(&three, b"a"), rig.limiter().bucket(&one, b"a")];
    let (generation, other) = (fresh_id(), fresh_id());
    let named = |name, shape, generation| CompleteWindows { name, shape, generation };
    let own = named("thing", "small", generation);
    // Of several logs and of one, which a cluster decides in other ways.
    let hold = async |complete, buckets: &[Bucket<'_>]| {
        let held = rig.limiter().hold_if_complete(complete, buckets, false, Duration::ZERO).await;
        held.map(|decision| match decision {
            HoldDecision::Held(hold) => hold,
            HoldDecision::Refused(_) | HoldDecision::OutOfPatience => panic!("there is room"),
        })
    };
    for buckets in [&buckets[..], &buckets[..1]] {
        assert!(matches!(hold(own, buckets).await, Err(StoreError::Incomplete)), "never complete");
    }
    rig.store().begin_rebuild("thing", generation).await.unwrap();
    assert!(rig.store().finish_rebuild("thing", "small", generation).await.unwrap());
    let wrong = [named("thing-else", "small", generation), named("thing", "large", generation)];
    for complete in wrong.into_iter().chain([named("thing", "small", other)]) {
        for buckets in [&buckets[..], &buckets[..1]] {
            assert!(matches!(hold(complete, buckets).await, Err(StoreError::Incomplete)), "{complete:?}");
        }
    }
    assert_eq!(buckets.map(|bucket| rig.members(bucket)), [0, 0], "nothing is left behind");
    let open = limit("open", &[]);
    let of_no_log = [rig.limiter().bucket(&open, b"a")];
    let another = named("thing", "small", other);
    assert!(matches!(hold(another, &of_no_log).await, Err(StoreError::Incomplete)), "nobody can tell");
    hold(own, &buckets).await.unwrap().keep().await.unwrap();
    hold(own, &buckets[..1]).await.unwrap().refund().await.unwrap();
    assert_eq!(buckets.map(|bucket| rig.members(bucket)), [1, 1]);
    let full = rig.limiter().hold_if_complete(own, &buckets, false, Duration::ZERO).await.unwrap();
    assert!(matches!(full, HoldDecision::Refused(Refusal { bucket: 1, .. })));
}

#[tokio::test]
async fn a_flush_takes_the_mark_along() {
    let rig = RedisRig::new().await;
    let (store, generation) = (rig.store(), fresh_id());
    store.begin_rebuild("thing", generation).await.unwrap();
    assert!(store.finish_rebuild("thing", "small", generation).await.unwrap());
    let limit = limit("three", &[sliding(3, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let complete = CompleteWindows { name: "thing", shape: "small", generation };
    let ask = ReserveRequest {
        buckets: &[bucket],
        id: fresh_id(),
        kind: ReserveKind::Hit,
        solved: false,
        complete: Some(complete),
    };
    assert!(
        matches!(store.reserve(&ask).await, Ok(StoreVerdict::Admitted { .. })),
        "a hit may ask for it, too"
    );
    rig.server.flush();
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), None);
    assert!(matches!(store.reserve(&ask).await, Err(StoreError::Incomplete)));
    assert_eq!(rig.members(bucket), 0);
}

#[tokio::test]
async fn what_was_lost_while_it_was_written_back_is_not_whole() {
    let rig = RedisRig::new().await;
    let (store, id) = (rig.store(), fresh_id());
    store.begin_rebuild("thing", id).await.unwrap();
    rig.server.flush();
    assert!(!store.finish_rebuild("thing", "small", id).await.unwrap());
    assert_eq!(store.rebuild_generation("thing", "small").await.unwrap(), None);
}

#[tokio::test]
async fn restored_logs_live_as_long_as_their_hits_and_the_mark_for_good() {
    let rig = RedisRig::new().await;
    let limit = limit("two", &[sliding(2, HOUR)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let life =
        |key: &str| -> i64 { ::redis::cmd("PTTL").arg(key).query(&mut rig.server.connection()).unwrap() };
    let key = rig.store().key_name(bucket);
    restore(&rig, bucket, &[(50 * MINUTE, fresh_id())]).await;
    let left = life(&key);
    // Ten minutes, and the ten seconds by which a clock may be put back.
    assert!((600_000..=610_002).contains(&left), "{left}");
    restore(&rig, bucket, &[(55 * MINUTE, fresh_id())]).await;
    assert_eq!(life(&key), left, "an older hit takes no life away");
    restore(&rig, bucket, &[(Duration::ZERO, fresh_id())]).await;
    assert!(life(&key) > 3_600_000);
    let id = fresh_id();
    rig.store().begin_rebuild("thing", id).await.unwrap();
    let begun: Vec<String> =
        ::redis::cmd("KEYS").arg("t:restoring-*").query(&mut rig.server.connection()).unwrap();
    assert_eq!(begun.len(), 1);
    assert!(life(&begun[0]) > 0, "what is never ended goes away");
    assert!(rig.store().finish_rebuild("thing", "small", id).await.unwrap());
    assert_eq!(life("t:complete-{thing}"), -1);
}
