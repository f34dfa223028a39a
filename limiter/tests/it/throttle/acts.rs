//! What the cases do with a store, and how they read its verdicts.

use gatehouse_limiter::*;

use super::rig::*;

pub async fn hit<R: Rig>(rig: &R, buckets: &[Bucket<'_>]) -> StoreVerdict {
    take(rig, buckets, fresh_id(), ReserveKind::Hit, false).await
}

pub async fn take<R: Rig>(
    rig: &R,
    buckets: &[Bucket<'_>],
    id: HitId,
    kind: ReserveKind,
    solved: bool,
) -> StoreVerdict {
    rig.store().reserve(&ReserveRequest { buckets, id, kind, solved, complete: None }).await.unwrap()
}

pub async fn hold<R: Rig>(rig: &R, bucket: Bucket<'_>) -> HitId {
    let id = fresh_id();
    let verdict = take(rig, &[bucket], id, ReserveKind::Hold, false).await;
    assert!(admitted(verdict), "{verdict:?}");
    id
}

pub async fn settle<R: Rig>(rig: &R, bucket: Bucket<'_>, id: HitId, outcome: HoldOutcome) {
    rig.store().settle(&[bucket], id, &[outcome], false).await.unwrap();
}

pub fn admitted(verdict: StoreVerdict) -> bool {
    matches!(verdict, StoreVerdict::Admitted { .. })
}

pub fn held(verdict: StoreVerdict) -> bool {
    matches!(verdict, StoreVerdict::Held { .. })
}

#[track_caller]
pub fn refusal(verdict: StoreVerdict) -> Refusal {
    match verdict {
        StoreVerdict::Refused { refusal, .. } => refusal,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

#[track_caller]
pub fn remaining(verdict: StoreVerdict) -> u32 {
    match verdict {
        StoreVerdict::Admitted { room: Some(room), .. } => room.remaining,
        other => panic!("expected an admission, got {other:?}"),
    }
}
