//! One connection: since when it has had no complete request, and its current deadline.

use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;

use crate::clock::Uptime;

/// The deadline while a handler works on a complete request.
const NOT_OVERDUE: u64 = u64::MAX;

/// The worker that serves the connection writes this; the code that closes connections reads it. Times are
/// milliseconds of the server's uptime.
pub struct Connection {
    uptime: Uptime,
    since: AtomicU64,
    until: AtomicU64,
    /// A duplicate of the socket. None in tests.
    handle: Option<TcpStream>,
}

impl Connection {
    pub(super) fn new(uptime: Uptime, handle: Option<TcpStream>) -> Self {
        let connection = Self { uptime, since: AtomicU64::new(0), until: AtomicU64::new(0), handle };
        connection.since.store(millis(connection.uptime.now()), Ordering::Relaxed);
        connection.stay(super::WAIT);
        connection
    }

    /// Sets the deadline for the next step to this long from now.
    pub(super) fn stay(&self, span: Duration) {
        self.until.store(millis(self.uptime.now()) + millis(span), Ordering::Relaxed);
    }

    /// A complete request has arrived. There is no deadline until it is answered.
    pub(super) fn completed(&self) {
        self.since.store(millis(self.uptime.now()), Ordering::Relaxed);
        self.until.store(NOT_OVERDUE, Ordering::Relaxed);
    }

    /// The answer is being sent and may take this long. The time that the handler needed does not count as
    /// waiting.
    pub(super) fn answered(&self, span: Duration) {
        let now = millis(self.uptime.now());
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

    /// The worker finds the connection closed at its next read or write. The client gets a reset. An orderly
    /// close would wait until the client reads the rest, and the system would keep that data for minutes.
    pub(super) fn close(&self) {
        if let Some(handle) = &self.handle {
            // It may already be closed.
            let _ = SockRef::from(handle).set_linger(Some(Duration::ZERO));
            let _ = handle.shutdown(Shutdown::Both);
        }
    }
}

pub(super) fn millis(span: Duration) -> u64 {
    span.as_millis() as u64
}
