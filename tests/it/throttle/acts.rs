//! What the cases do to a store, and how they read its verdicts.

use gatehouse::throttle::*;

use super::rig::*;

pub async fn hit<R: Rig>(rig: &R, buckets: &[Bucket<'_>]) -> Verdict {
    take(rig, buckets, fresh_id(), Kind::Hit, false).await
}

pub async fn take<R: Rig>(rig: &R, buckets: &[Bucket<'_>], id: HitId, kind: Kind, solved: bool) -> Verdict {
    rig.store().reserve(&Ask { buckets, id, kind, solved }).await.unwrap()
}

pub async fn hold<R: Rig>(rig: &R, bucket: Bucket<'_>) -> HitId {
    let id = fresh_id();
    let verdict = take(rig, &[bucket], id, Kind::Hold, false).await;
    assert!(admitted(verdict), "{verdict:?}");
    id
}

pub async fn settle<R: Rig>(rig: &R, bucket: Bucket<'_>, id: HitId, outcome: Outcome) {
    rig.store().settle(&[bucket], id, &[outcome]).await.unwrap();
}

pub fn admitted(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Admitted { .. })
}

pub fn held(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Held { .. })
}

#[track_caller]
pub fn refusal(verdict: Verdict) -> Refusal {
    match verdict {
        Verdict::Refused { refusal, .. } => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[track_caller]
pub fn remaining(verdict: Verdict) -> u32 {
    match verdict {
        Verdict::Admitted { room: Some(room), .. } => room.remaining,
        other => panic!("expected an admission, got {other:?}"),
    }
}
