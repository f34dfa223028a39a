//! Connections: none is held open for nothing, and past a bound the one that has waited longest without a
//! complete request is closed.
//!
//! actix closes a connection whose first head is slow and one that is idle. What it would keep for ever is
//! closed here: a body or a later head that never ends, and an answer that nobody reads. A connection that
//! must go is shut down beneath actix, which then finds it closed.

mod body;
mod connection;
mod table;

use std::iter;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use actix_web::dev::Extensions;
use actix_web::rt::net::TcpStream;
use tokio::time::Instant;

use crate::web::kit::client::{ClientAddress, SubjectBytes, TrustedProxies};
use connection::{Connection, Uptime};
use table::Table;

pub use body::{BodyTime, within_time};

/// How long the head of a first request may take. actix tells whoever is slower 408.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection may be idle between two requests.
pub const IDLE_TIME: Duration = Duration::from_secs(5);
/// How long a connection may go without a complete request, a later head that is slow included.
const WAIT: Duration = Duration::from_secs(10);
/// How long an answer may take to be read, and one second more for each so many bytes of it.
const ANSWER_TIME: Duration = Duration::from_secs(10);
const ANSWER_RATE: u64 = 64 * 1024;
/// What is left for the refusal of a body that was too slow.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Between two looks at what is overdue.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How many connections may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Past this many the one that has waited longest is closed for the next.
    pub total: usize,
    /// What one address (of IPv6, one /64) may have for longer than a second.
    pub per_peer: usize,
    /// Past this many nothing is accepted until one is closed; there is never need to wait long.
    pub ceiling: usize,
}

impl Bounds {
    /// What fits where so many files may be open. A connection takes two: actix's, and the one it is closed by.
    pub fn within(files: u64) -> Self {
        // Enough for databases, stores, gateways, logs and the runtime, of which each worker has its own.
        let others = (files / 4).min(256);
        // actix counts 25,600 to each worker at most; each connection has some 20 KiB of buffers.
        let ceiling = ((files - others) / 2).clamp(16, 20_480) as usize;
        let total = ceiling / 8 * 7;
        // An office behind one address has fewer than 512 open at any one moment, as idle ones are closed.
        Self { total, per_peer: (total / 2).min(512), ceiling }
    }
}

/// All connections of the server.
pub struct Connections {
    table: Mutex<Table>,
    bounds: Bounds,
    /// Everybody is one peer behind these, so they may have as many as they like.
    trusted: TrustedProxies,
    uptime: Uptime,
    closed: Closed,
}

/// Why connections were closed, as counters.
struct Closed {
    slow: metrics::Counter,
    peer: metrics::Counter,
    total: metrics::Counter,
    open: metrics::Gauge,
}

/// A connection that is open. It is forgotten when this is dropped, which actix does when it closes it.
pub struct Open {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    peer: Peer,
    id: u64,
}

/// Whom a connection counts against; nobody for a trusted proxy.
type Peer = Option<SubjectBytes>;

impl Connections {
    pub fn new(bounds: Bounds, trusted: TrustedProxies) -> Arc<Self> {
        Self::by(Uptime::Since(Instant::now()), bounds, trusted)
    }

    fn by(uptime: Uptime, bounds: Bounds, trusted: TrustedProxies) -> Arc<Self> {
        let closed =
            |why: &'static str| metrics::counter!("gatehouse_connections_closed_total", "why" => why);
        let closed = Closed {
            slow: closed("slow"),
            peer: closed("peer"),
            total: closed("total"),
            open: metrics::gauge!("gatehouse_connections"),
        };
        Arc::new(Self { table: Mutex::default(), bounds, trusted, uptime, closed })
    }

    /// For `HttpServer::on_connect`.
    pub fn accept(self: &Arc<Self>, stream: &dyn std::any::Any, data: &mut Extensions) {
        use std::os::fd::AsFd;
        let Some(stream) = stream.downcast_ref::<TcpStream>() else { return };
        let Ok(peer) = stream.peer_addr() else { return };
        // Where no file is left for it, which the bounds prevent, only actix closes it.
        let handle = stream.as_fd().try_clone_to_owned().ok();
        data.insert(self.open(peer.ip(), handle.map(Into::into)));
    }

    fn open(self: &Arc<Self>, address: IpAddr, handle: Option<std::net::TcpStream>) -> Open {
        let address = ClientAddress::told_by(address, iter::empty(), &self.trusted);
        let peer = (!self.trusted.contains(address.ip())).then(|| address.subject());
        let connection = Arc::new(Connection::new(self.uptime.clone(), handle));
        let mut table = self.table();
        if table.open() >= self.bounds.total {
            let is_over = peer.is_some() && table.open_of(peer) > self.bounds.per_peer;
            if table.close_longest(is_over.then_some(peer)) {
                self.closed.total.increment(1);
            }
        }
        let id = table.insert(peer, Arc::clone(&connection));
        drop(table);
        Open { connections: Arc::clone(self), connection, peer, id }
    }

    /// Closes what is overdue and what peers have too many of; to be called once a second.
    pub fn sweep(&self) {
        let mut table = self.table();
        let now = self.uptime.now();
        let (slow, peer) = (table.close_overdue(now), table.close_over(self.bounds.per_peer, now));
        self.closed.slow.increment(slow);
        self.closed.peer.increment(peer);
        self.closed.open.set(table.open() as f64);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Open {
    type Target = Arc<Connection>;

    fn deref(&self) -> &Arc<Connection> {
        &self.connection
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.connections.table().remove(self.peer, self.id);
    }
}

#[cfg(test)]
mod tests;
