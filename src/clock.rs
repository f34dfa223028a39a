//! Time: the limiter's clock, how long the process has run, and how long things took lately.

use std::sync::LazyLock;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

pub use gatehouse_limiter::clock::{Clock, Micros};

/// A moment in the JSON of the API.
pub fn as_time<S: Serializer>(at: &Micros, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&iso(*at))
}

/// Writes a time that there may not be.
pub fn as_time_if<S: Serializer>(at: &Option<Micros>, serializer: S) -> Result<S::Ok, S::Error> {
    at.map(iso).serialize(serializer)
}

/// RFC 3339 in UTC, in whole seconds.
pub fn iso(at: Micros) -> String {
    // Only a time tens of thousands of years away cannot be shown.
    let at = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// For people to read, in UTC: `2026-11-29 14:05 UTC`.
pub fn as_utc_minutes(at: Micros) -> String {
    let at = jiff::Timestamp::from_microsecond(at.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// How long the process has run. It goes on evenly even if the system's clock is set forward or back. On Linux it stands
/// still while the machine sleeps.
#[derive(Debug, Clone)]
pub(crate) enum Uptime {
    Since(Instant),
    /// Milliseconds.
    #[cfg(test)]
    Manual(std::sync::Arc<std::sync::atomic::AtomicU64>),
}

impl Uptime {
    pub fn begin() -> Self {
        Self::Since(Instant::now())
    }

    pub fn now(&self) -> Duration {
        match self {
            Self::Since(begun) => begun.elapsed(),
            #[cfg(test)]
            Self::Manual(millis) => Duration::from_millis(millis.load(std::sync::atomic::Ordering::SeqCst)),
        }
    }

    #[cfg(test)]
    pub fn manual() -> Self {
        Self::Manual(std::sync::Arc::default())
    }

    #[cfg(test)]
    pub fn advance(&self, span: Duration) {
        let Self::Manual(millis) = self else { unreachable!("only a test's is moved") };
        millis.fetch_add(span.as_millis() as u64, std::sync::atomic::Ordering::SeqCst);
    }
}

/// Time that nobody sets, and that goes on while the machine sleeps: since it was started, or what a test's clock says.
pub(crate) fn running(clock: &Clock) -> Duration {
    static BEGUN: LazyLock<Uptime> = LazyLock::new(Uptime::begin);
    match clock {
        // Seconds, with two digits after the point (proc_uptime(5)).
        Clock::System => std::fs::read_to_string("/proc/uptime")
            .ok()
            .and_then(|text| text.split_whitespace().next()?.parse().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .unwrap_or_else(|| BEGUN.now()),
        Clock::Manual(_) => clock.now().since(Micros(0)),
    }
}

const MINUTE: i64 = 60_000_000;
/// Minutes that are looked back on, the current one included.
const MINUTES: usize = 5;
/// Each is a fifth longer than the one before, from a millisecond to two minutes.
const STEPS: usize = 65;
const FIRST_SECONDS: f64 = 0.001;
const RATIO: f64 = 1.2;

/// How long something took lately.
#[derive(Debug, Default)]
pub struct RecentTimes(Mutex<[MinuteTimes; MINUTES]>);

#[derive(Debug, Clone, Copy)]
struct MinuteTimes {
    /// Since the epoch.
    minute: i64,
    counts: [u32; STEPS],
}

impl Default for MinuteTimes {
    fn default() -> Self {
        Self { minute: 0, counts: [0; STEPS] }
    }
}

impl RecentTimes {
    pub fn record(&self, now: Micros, took: Duration) {
        let minute = now.0.div_euclid(MINUTE);
        let mut minutes = self.0.lock();
        let times = &mut minutes[minute.rem_euclid(MINUTES as i64) as usize];
        if times.minute != minute {
            *times = MinuteTimes { minute, ..MinuteTimes::default() };
        }
        let step = (took.as_secs_f64() / FIRST_SECONDS).max(1.0).log(RATIO).ceil();
        times.counts[(step as usize).min(STEPS - 1)] += 1;
    }

    /// The time within which 95 of 100 ended, rounded up to a step; None if nothing did.
    pub fn p95(&self, now: Micros) -> Option<Duration> {
        let minute = now.0.div_euclid(MINUTE);
        let minutes = self.0.lock();
        let recent = minutes.iter().filter(|times| (0..MINUTES as i64).contains(&(minute - times.minute)));
        let mut sums = [0_u64; STEPS];
        for times in recent {
            sums.iter_mut().zip(times.counts).for_each(|(sum, count)| *sum += u64::from(count));
        }
        let all: u64 = sums.iter().sum();
        let mut within = 0;
        let step = sums.iter().position(|count| {
            within += count;
            within > 0 && within * 100 >= all * 95
        })?;
        Some(Duration::from_secs_f64(FIRST_SECONDS * RATIO.powi(step as i32)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nineteen_of_twenty_ended_within_it_and_what_is_five_minutes_old_is_forgotten() {
        let (times, start) = (RecentTimes::default(), Micros::from_seconds(600));
        assert_eq!(times.p95(start), None);
        for _ in 0..95 {
            times.record(start, Duration::from_millis(20));
        }
        for _ in 0..5 {
            times.record(start, Duration::from_secs(3));
        }
        let told = |at: Micros| times.p95(at).map(|took| took.as_secs_f64());
        assert!((0.020..0.025).contains(&told(start).unwrap()), "{:?}", told(start));
        times.record(start, Duration::from_secs(3));
        let later = start.plus(Duration::from_secs(4 * 60 + 59));
        assert!((3.0..3.7).contains(&told(later).unwrap()), "{:?}", told(later));
        assert_eq!(told(start.plus(Duration::from_secs(5 * 60))), None);
        times.record(start, Duration::from_secs(86_400));
        assert!(told(start).is_some(), "what takes longer than the last step is in it");
    }
}
