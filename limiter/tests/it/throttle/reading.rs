//! What people are shown of a log. Each case runs on each store.

use std::time::Duration;

use gatehouse_limiter::*;

use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

on_stores! {
    a_reading_is_the_hits_of_a_log_newest_first
    a_reading_of_a_long_log_is_its_newest_thousand
}

async fn take<R: Rig>(rig: &R, buckets: &[Bucket<'_>], id: HitId, kind: ReserveKind) {
    let verdict = rig
        .store()
        .reserve(&ReserveRequest { buckets, id, kind, solved: false, complete: None })
        .await
        .unwrap();
    assert!(matches!(verdict, StoreVerdict::Admitted { .. }), "{verdict:?}");
}

async fn a_reading_is_the_hits_of_a_log_newest_first<R: Rig>(rig: &R) {
    let limit = limit("read", &[Rule::sliding(3, MINUTE, RuleAction::Block)]);
    let bucket = rig.limiter().bucket(&limit, b"one");
    let read = async || rig.store().read(bucket).await.unwrap();
    let begun = rig.now();
    assert_eq!(read().await, LogReading { at: begun, holds: 0, hits: vec![] });
    for _ in 0..2 {
        take(rig, &[bucket], fresh_id(), ReserveKind::Hit).await;
        rig.advance(SECOND);
    }
    let held = fresh_id();
    take(rig, &[bucket], held, ReserveKind::Hold).await;
    rig.advance(MINUTE);
    let members = rig.members(bucket);
    let reading = read().await;
    assert_eq!((reading.at, reading.holds), (rig.now(), 0), "its owner has died");
    let times = [2, 1, 0].map(|seconds| begun.plus(SECOND * seconds));
    assert_eq!(reading.hits, times, "those that no rule counts any more, too");
    assert_eq!(rig.members(bucket), members, "nothing is taken away");
    take(rig, &[bucket], fresh_id(), ReserveKind::Hold).await;
    let reading = read().await;
    assert_eq!((reading.holds, reading.hits), (1, times.to_vec()), "a hold is no hit");
}

async fn a_reading_of_a_long_log_is_its_newest_thousand<R: Rig>(rig: &R) {
    let limit = limit("read", &[Rule::sliding(1200, HOUR, RuleAction::Block)]);
    let bucket = rig.limiter().bucket(&limit, b"one");
    let begun = rig.now();
    let hits: Vec<_> =
        (0..1200).map(|n| (bucket, KeptHit { at: begun.minus(SECOND * n), id: fresh_id() })).collect();
    rig.store().restore(&hits).await.unwrap();
    let expected: Vec<_> = (0..1000).map(|n| begun.minus(SECOND * n)).collect();
    assert_eq!(rig.store().read(bucket).await.unwrap().hits, expected);
}
