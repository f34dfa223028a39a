//! What every store must do if its clock steps back, and comes forward again.

use std::time::Duration;

use gatehouse_limiter::*;

use super::acts::*;
use super::rig::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

on_stores! {
    a_clock_that_steps_back_frees_nothing
    a_clock_that_steps_back_refuses_for_that_much_longer
    what_is_written_behind_the_clock_stays_when_it_comes_forward
}

async fn a_clock_that_steps_back_frees_nothing(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let start = rig.now();
    hit(rig, &[bucket]).await;
    rig.set(start.minus(30 * SECOND));
    assert!(admitted(hit(rig, &[bucket]).await));
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!((full.frees_at, full.retry_after), (start.plus(MINUTE), 90 * SECOND), "by the clock as it is");
    rig.set(start.plus(MINUTE));
    assert!(admitted(hit(rig, &[bucket]).await));
}

/// The hit that had left comes back into the window with the clock.
async fn a_clock_that_steps_back_refuses_for_that_much_longer(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, 20 * SECOND)]);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    hit(rig, &[bucket]).await;
    rig.set(start.plus(25 * SECOND));
    assert_eq!(remaining(hit(rig, &[bucket]).await), 1, "it has left");
    rig.set(start.plus(17 * SECOND));
    let full = refusal(hit(rig, &[bucket]).await);
    assert_eq!((full.frees_at, full.at()), (start.plus(20 * SECOND), rig.now()));
    assert_eq!(rig.limiter().peek(bucket).await.unwrap().rules[0].retry_after, 3 * SECOND);
    rig.set(start.plus(20 * SECOND));
    assert!(admitted(hit(rig, &[bucket]).await));
}

async fn what_is_written_behind_the_clock_stays_when_it_comes_forward(rig: &impl Rig) {
    let limit = limit("two", &[sliding(2, MINUTE)]);
    let (bucket, start) = (rig.limiter().bucket(&limit, b"a"), rig.now());
    hit(rig, &[bucket]).await;
    rig.set(start.minus(30 * SECOND));
    match hit(rig, &[bucket]).await {
        StoreVerdict::Admitted { at, .. } => assert_eq!(at, start, "with the newest hit of its log"),
        other => panic!("expected an admission, got {other:?}"),
    }
    rig.set(start.plus(45 * SECOND));
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, 15 * SECOND);
}
