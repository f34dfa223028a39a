//! Wall-clock time as a parameter: the system's clock, or one that a test moves.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Micros(pub i64);

impl Micros {
    /// A time this much later, or the last one that fits.
    pub const fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// A time this much earlier, or the first one that fits.
    pub const fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// The time since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(if micros > 0 { micros as u64 } else { 0 })
    }

    /// Whole seconds since the epoch, as in SQL columns.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// The start of that second.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }
}

/// From SQL columns of microseconds.
impl From<i64> for Micros {
    fn from(micros: i64) -> Self {
        Self(micros)
    }
}

/// Whole microseconds. `Duration::as_micros` uses 128 bits, which would slow down every decision.
const fn micros(span: Duration) -> i64 {
    (span.as_secs() as i64).saturating_mul(1_000_000).saturating_add(span.subsec_micros() as i64)
}

/// The source of time. Clones share the same clock.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    /// The system's clock, read through the processor's counter.
    #[default]
    System,
    /// Stands still until it is moved.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// A clock that stands at `start`.
    pub fn manual(start: Micros) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    /// The time now.
    pub fn now(&self) -> Micros {
        match self {
            Self::System => SYSTEM.now(),
            Self::Manual(micros) => Micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Advances a manual clock; has no effect on the system's.
    pub fn advance(&self, span: Duration) {
        if let Self::Manual(micros) = self {
            micros.fetch_add(span.as_micros() as i64, Ordering::SeqCst);
        }
    }

    /// Sets a manual clock, also backwards.
    pub fn set(&self, to: Micros) {
        if let Self::Manual(micros) = self {
            micros.store(to.0, Ordering::SeqCst);
        }
    }
}

static SYSTEM: LazyLock<CounterClock> = LazyLock::new(CounterClock::new);

/// How long the counter is used before the system's clock is read again. A step of that clock is noticed this
/// much later, and the two cannot drift apart for longer.
const BELIEVED: i64 = 10_000;
/// Two readings of the counter further apart are not from one moment: this thread was interrupted.
const AT_ONCE: i64 = 20;

/// The system's clock through the processor's counter, which takes a third of the time to read. All in
/// microseconds.
struct CounterClock {
    counter: quanta::Clock,
    /// Microseconds in 2^64 units of the counter, so that one multiplication gives the time.
    scale: u64,
    /// The counter at the last reading of the system's clock, and how far that was ahead of it.
    asked: AtomicI64,
    ahead: AtomicI64,
}

impl CounterClock {
    fn new() -> Self {
        let (asked, ahead) = (AtomicI64::new(-BELIEVED), AtomicI64::new(0));
        let counter = quanta::Clock::new();
        // This is as precise as quanta's own factor: this many units are days, and their nanoseconds stay below 2^63.
        let scale = u128::from(counter.delta_as_nanos(0, 1 << 50)) * (1 << 14) / 1_000;
        Self { counter, scale: scale as u64, asked, ahead }
    }

    fn now(&self) -> Micros {
        let count = self.count();
        let since = count - self.asked.load(Ordering::Acquire);
        // Negative if the machine was moved to another host and the counter went back.
        if (0..BELIEVED).contains(&since) {
            Micros(count + self.ahead.load(Ordering::Relaxed))
        } else {
            self.ask(count)
        }
    }

    fn count(&self) -> i64 {
        ((u128::from(self.counter.raw()) * u128::from(self.scale)) >> 64) as i64
    }

    #[cold]
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    fn ask(&self, count: i64) -> Micros {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64);
        if (0..=AT_ONCE).contains(&(self.count() - count)) {
            self.ahead.store(now - count, Ordering::Relaxed);
            self.asked.store(count, Ordering::Release);
        }
        Micros(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "what the clock is held to")]
    fn the_counted_clock_tells_the_systems_time() {
        let system = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        let begun = system();
        loop {
            let (before, now, after) = (system(), Clock::System.now().0, system());
            assert!(before - 100 <= now && now <= after + 100, "{before} {now} {after}");
            if after > begun + 5 * BELIEVED {
                break;
            }
        }
    }

    #[test]
    fn a_step_of_the_systems_clock_is_followed_and_so_is_one_of_the_counter() {
        let clock = CounterClock::new();
        let hour = Duration::from_secs(3600);
        for step in [-BELIEVED, BELIEVED] {
            let begun =
                std::iter::repeat_with(|| clock.now()).find(|_| clock.ahead.load(Ordering::Relaxed) != 0);
            let begun = begun.expect("it is asked until it is believed");
            clock.ahead.fetch_add(hour.as_micros() as i64, Ordering::Relaxed);
            clock.asked.fetch_add(step, Ordering::Relaxed);
            assert!(clock.now().since(begun) < hour, "the system's clock is asked again");
        }
    }
}
