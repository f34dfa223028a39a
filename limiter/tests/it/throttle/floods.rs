//! Many attempts: everything allowed is admitted, and never more, in any window and in any log. Each case
//! runs on each store.

use std::time::Duration;

use super::acts::*;
use super::rig::*;
use gatehouse_limiter::clock::Micros;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

on_stores! {
    hammering_gets_all_that_is_due
    worst_count_in_any_window_is_max
    thousand_hits_in_a_log_stay_exact
}

async fn hammering_gets_all_that_is_due(rig: &impl Rig) {
    let limit = limit("five", &[sliding(5, 2 * SECOND)]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let mut count = 0;
    for _ in 0..800 {
        count += u32::from(admitted(hit(rig, &[bucket]).await));
        rig.advance(Duration::from_millis(10));
    }
    assert_eq!(count, 20, "8 seconds hold four windows of five");
}

/// Traffic aligned to the first hit, aligned to the clock, and hammering: the patterns that reveal fixed
/// windows.
async fn worst_count_in_any_window_is_max(rig: &impl Rig) {
    let window = 2 * SECOND;
    let limit = limit("five", &[sliding(5, window)]);
    let bursts = |starts: &[u64]| -> Vec<Micros> {
        let burst = |start: u64| (0..10).map(move |i| rig.now().plus(Duration::from_millis(start + i)));
        starts.iter().copied().flat_map(burst).collect()
    };
    let patterns = [
        ("first-hit-aligned", bursts(&[0, 1900, 2005, 3900, 4010])),
        ("clock-aligned", bursts(&[1985, 2000, 3990, 4000, 5985, 6000])),
        ("hammering", (0..900).map(|i| rig.now().plus(Duration::from_millis(i * 9))).collect()),
    ];
    for (pattern, times) in patterns {
        let bucket = rig.limiter().bucket(&limit, pattern.as_bytes());
        let mut admissions = Vec::new();
        for time in times {
            rig.set(time);
            if admitted(hit(rig, &[bucket]).await) {
                admissions.push(time);
            }
        }
        let within =
            |end: &Micros| admissions.iter().filter(|at| **at <= *end && **at > end.minus(window)).count();
        assert_eq!(admissions.iter().map(within).max(), Some(5), "{pattern}");
    }
}

async fn thousand_hits_in_a_log_stay_exact(rig: &impl Rig) {
    let limit = limit("thousand", &[sliding(1000, HOUR), sliding(3, Duration::from_millis(100))]);
    let bucket = rig.limiter().bucket(&limit, b"a");
    let start = rig.now();
    for index in 0..1000 {
        assert!(admitted(hit(rig, &[bucket]).await), "{index}");
        rig.advance(Duration::from_millis(50));
    }
    assert_eq!(refusal(hit(rig, &[bucket]).await).retry_after, HOUR - 50 * SECOND);
    rig.set(start.plus(HOUR));
    assert_eq!(remaining(hit(rig, &[bucket]).await), 0);
    refusal(hit(rig, &[bucket]).await);
    assert_eq!(rig.members(bucket), 1000);
}
