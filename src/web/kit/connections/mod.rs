//! Connections: idle ones are closed, and above a bound the one that has waited longest without a complete
//! request is closed.
//!
//! actix closes a connection whose first head is slow, and an idle one. It would keep others for ever, which
//! are closed here: a body or a later head that never ends, and an answer that nobody reads. Such a
//! connection is shut down below actix, which then finds it closed.

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

use crate::clock::Uptime;
use crate::web::kit::client::{ClientAddress, SubjectBytes, TrustedProxies};
use connection::{Connection, millis};
use table::Table;

pub use body::{BodyTime, within_time};

/// How long the head of a first request may take. actix answers a slower one with 408.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
/// How long a connection may be idle between two requests.
pub const IDLE_TIME: Duration = Duration::from_secs(5);
/// How long a connection may go without a complete request. A slow later head counts, too.
const WAIT: Duration = Duration::from_secs(10);
/// How long reading an answer may take, plus one second for each `ANSWER_RATE` bytes.
const ANSWER_TIME: Duration = Duration::from_secs(10);
const ANSWER_RATE: u64 = 64 * 1024;
/// Time for sending the refusal of a slow body.
const LAST_ANSWER: Duration = Duration::from_secs(1);
/// Interval of the search for overdue connections.
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// How many connections may be open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Above this, the one that has waited longest is closed for each new one.
    pub total: usize,
    /// What one address (for IPv6, one /64) may keep for longer than a second.
    pub per_peer: usize,
    /// Above this, nothing is accepted until a connection closes. That never takes long.
    pub ceiling: usize,
}

impl Bounds {
    /// The bounds for this many open files. A connection takes two: actix's socket, and the duplicate that
    /// closes it.
    pub fn within(files: u64) -> Self {
        // Enough for databases, stores, gateways, logs and the runtime. Each worker has its own.
        let others = (files / 4).min(256);
        // actix allows at most 25,600 for each worker. Each connection has about 20 KiB of buffers.
        let ceiling = ((files - others) / 2).clamp(16, 20_480) as usize;
        let total = ceiling / 8 * 7;
        // An office behind one address has fewer than 512 open at the same time, because idle ones are
        // closed.
        Self { total, per_peer: (total / 2).min(512), ceiling }
    }
}

/// All connections of the server.
pub struct Connections {
    table: Mutex<Table>,
    bounds: Bounds,
    /// A proxy's connections serve many clients, so trusted proxies have no bound.
    trusted: TrustedProxies,
    uptime: Uptime,
    closed: Closed,
}

/// Counters of closed connections, by reason.
struct Closed {
    slow: metrics::Counter,
    peer: metrics::Counter,
    total: metrics::Counter,
    open: metrics::Gauge,
}

/// An open connection. actix drops this when it closes the connection, which removes it from the table.
pub struct Open {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    peer: Peer,
    id: u64,
}

/// The peer that a connection counts against; None for a trusted proxy.
type Peer = Option<SubjectBytes>;

impl Connections {
    pub fn new(bounds: Bounds, trusted: TrustedProxies) -> Arc<Self> {
        Self::by(Uptime::begin(), bounds, trusted)
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
        // If no file descriptor is left, which the bounds prevent, only actix can close the connection.
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

    /// Closes overdue connections, and those that peers have above their bound. Call it once a second.
    pub fn sweep(&self) {
        let mut table = self.table();
        let now = millis(self.uptime.now());
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
