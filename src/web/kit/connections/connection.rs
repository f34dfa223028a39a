//! One connection: since when it has had no complete request, and until when it may stay as it is.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use tokio::time::Instant;

/// For as long as a handler works on a complete request.
const NOT_OVERDUE: u64 = u64::MAX;

/// Written by the worker that serves it, read by whoever looks for one to close. Times are milliseconds of
/// the server's uptime.
pub struct Connection {
    uptime: Uptime,
    since: AtomicU64,
    until: AtomicU64,
    /// The same socket once more. None in tests.
    handle: Option<TcpStream>,
}

impl Connection {
    pub(super) fn new(uptime: Uptime, handle: Option<TcpStream>) -> Self {
        let connection = Self { uptime, since: AtomicU64::new(0), until: AtomicU64::new(0), handle };
        connection.since.store(connection.uptime.now(), Ordering::Relaxed);
        connection.stay(super::WAIT);
        connection
    }

    /// It may take so long from now on for what comes next.
    pub(super) fn stay(&self, span: Duration) {
        self.until.store(self.uptime.now() + millis(span), Ordering::Relaxed);
    }

    /// A request has arrived whole. Until it is answered, it is ours to be quick.
    pub(super) fn completed(&self) {
        self.since.store(self.uptime.now(), Ordering::Relaxed);
        self.until.store(NOT_OVERDUE, Ordering::Relaxed);
    }

    /// Its answer is under way, and may take so long. If it had to be made first, that was no waiting of the client's.
    pub(super) fn answered(&self, span: Duration) {
        let now = self.uptime.now();
        if self.until.load(Ordering::Relaxed) == NOT_OVERDUE {
            self.since.store(now, Ordering::Relaxed);
        }
        self.until.store(now + millis(span), Ordering::Relaxed);
    }

    /// Since when it has waited without a complete request; None while a handler works on one.
    pub(super) fn waits_since(&self) -> Option<u64> {
        (self.until.load(Ordering::Relaxed) != NOT_OVERDUE).then(|| self.since.load(Ordering::Relaxed))
    }

    pub(super) fn is_overdue(&self, now: u64) -> bool {
        self.until.load(Ordering::Relaxed) <= now
    }

    /// Whoever serves it finds it closed at the next read or write. The client is told by a reset: an end in good
    /// order waits behind what it does not read, and the system would keep all that for minutes.
    pub(super) fn close(&self) {
        if let Some(handle) = &self.handle {
            // It may be closed already.
            let _ = SockRef::from(handle).set_linger(Some(Duration::ZERO));
            let _ = handle.shutdown(Shutdown::Both);
        }
    }
}

/// How long the server has run, by a clock that nobody sets: deadlines hold where the system's clock is put
/// forward or back.
#[derive(Clone)]
pub(super) enum Uptime {
    Since(Instant),
    #[cfg(test)]
    Manual(std::sync::Arc<AtomicU64>),
}

impl Uptime {
    /// Milliseconds.
    pub fn now(&self) -> u64 {
        match self {
            Self::Since(begun) => millis(begun.elapsed()),
            #[cfg(test)]
            Self::Manual(millis) => millis.load(Ordering::SeqCst),
        }
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    span.as_millis() as u64
}
