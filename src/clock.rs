//! Wall-clock time as a parameter: the system's, or one that a test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub i64);

impl Micros {
    pub const fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    pub const fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// From `earlier` to here; zero where `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        let micros = self.0.saturating_sub(earlier.0);
        Duration::from_micros(if micros > 0 { micros as u64 } else { 0 })
    }

    /// Whole seconds since the epoch, as SQL columns keep them.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }
}

/// Whole microseconds. `Duration::as_micros` goes by way of 128 bits, which every decision would pay for.
const fn micros(span: Duration) -> i64 {
    (span.as_secs() as i64).saturating_mul(1_000_000).saturating_add(span.subsec_micros() as i64)
}

/// Where the time comes from. Clones share the same clock.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    /// Stands still until it is moved.
    Manual(Arc<AtomicI64>),
}

impl Clock {
    pub fn manual(start: Micros) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.0)))
    }

    #[expect(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
    pub fn now(&self) -> Micros {
        match self {
            Self::System => Micros(
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as i64),
            ),
            Self::Manual(micros) => Micros(micros.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock on; the system's clock is not ours to move.
    pub fn advance(&self, span: Duration) {
        if let Self::Manual(micros) = self {
            micros.fetch_add(span.as_micros() as i64, Ordering::SeqCst);
        }
    }

    /// Sets a manual clock, backwards too.
    pub fn set(&self, to: Micros) {
        if let Self::Manual(micros) = self {
            micros.store(to.0, Ordering::SeqCst);
        }
    }
}
