//! Time since a process began, as a parameter: by a monotonic clock, or by one that a test moves.

use std::time::Duration;

use tokio::time::Instant;

/// It goes on evenly even if the system's clock is set forward or back. On Linux it stands still while the machine
/// sleeps.
#[derive(Debug, Clone)]
pub enum Uptime {
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
