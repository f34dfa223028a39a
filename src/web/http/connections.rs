//! Connections: idle ones are closed, and above a bound the one that has waited longest without a complete
//! request is closed. And the time limit for the whole body of a request: sending a byte now and then does not extend it.
//!
//! actix closes a connection whose first head is slow, and an idle one. It would keep others for ever, which
//! are closed here: a body or a later head that never ends, and an answer that nobody reads. Such a
//! connection is shut down below actix, which then finds it closed.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::body::{BodySize, EitherBody, MessageBody};
use actix_web::dev::{Extensions, Payload, ServiceRequest, ServiceResponse};
use actix_web::error::PayloadError;
use actix_web::http::ConnectionType;
use actix_web::middleware::Next;
use actix_web::web::Bytes;
use actix_web::{Error, HttpMessage, HttpRequest};
use futures_core::Stream;
use socket2::SockRef;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::clock::Uptime;
use crate::web::http::client::{ClientAddress, SubjectBytes, TrustedProxies};
use crate::web::http::error_page;
use crate::web::http::pipeline::{self, PacedStream, Pipeline};
use crate::web::http::problem::Problem;

/// How long the head of a first request may take. actix answers a slower one with 408.
pub const HEAD_TIME: Duration = Duration::from_secs(5);
pub const IDLE_TIME: Duration = Duration::from_secs(5);
/// How long a connection is still read after an answer that ends it, so that the answer is not lost in a reset.
pub const LINGER_TIME: Duration = Duration::from_secs(1);
/// How long a connection may go without a complete request. A slow later head counts, too.
const WAIT: Duration = Duration::from_secs(10);
/// How long reading an answer may take, plus one second for each `ANSWER_RATE` bytes.
const ANSWER_TIME: Duration = Duration::from_secs(10);
const ANSWER_RATE: u64 = 64 * 1024;
const LAST_ANSWER: Duration = Duration::from_secs(1);
pub const SWEEP_EVERY: Duration = Duration::from_secs(1);

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

pub struct Connections {
    table: Mutex<Table>,
    bounds: Bounds,
    /// A proxy's connections serve many clients, so trusted proxies have no bound.
    trusted: TrustedProxies,
    uptime: Uptime,
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
        // From the start: an increase shows only in a series that was there before.
        for why in ["slow", "peer", "total"] {
            count_closed(why, 0);
        }
        metrics::gauge!("gatehouse_connections").set(0.0);
        Arc::new(Self { table: Mutex::default(), bounds, trusted, uptime })
    }

    /// For each new connection, with the data that its requests find.
    pub fn accept(self: &Arc<Self>, stream: &PacedStream, data: &mut Extensions) {
        use std::os::fd::AsFd;
        data.insert(stream.pipeline());
        let stream = stream.stream();
        let Ok(peer) = stream.peer_addr() else { return };
        // If no file descriptor is left, which the bounds prevent, only actix can close the connection.
        let handle = stream.as_fd().try_clone_to_owned().ok();
        data.insert(self.open(peer.ip(), handle.map(Into::into)));
    }

    fn open(self: &Arc<Self>, address: IpAddr, handle: Option<TcpStream>) -> Open {
        let address = ClientAddress::at(address, &self.trusted);
        let peer = (!self.trusted.contains(address.ip())).then(|| address.subject());
        let connection = Arc::new(Connection::new(self.uptime.clone(), handle));
        let mut table = self.table();
        let mut refused = false;
        if table.open >= self.bounds.total {
            let is_over = peer.is_some() && table.open_of(peer) > self.bounds.per_peer;
            let closed = table.close_longest(is_over.then_some(peer));
            // All of its others are being answered, and it must not take what is left.
            refused = is_over && !closed;
            count_closed("total", u64::from(closed || refused));
        }
        let id = table.insert(peer, Arc::clone(&connection));
        if refused {
            table.close(Waiting { since: 0, id, peer });
        }
        drop(table);
        Open { connections: Arc::clone(self), connection, peer, id }
    }

    /// Closes overdue connections, and those that peers have above their bound. Call it once a second.
    pub fn sweep(&self) {
        let mut table = self.table();
        let now = millis(self.uptime.now());
        count_closed("slow", table.close_overdue(now));
        count_closed("peer", table.close_over(self.bounds.per_peer, now));
        metrics::gauge!("gatehouse_connections").set(table.open as f64);
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn count_closed(why: &'static str, connections: u64) {
    metrics::counter!("gatehouse_connections_closed_total", "why" => why).increment(connections);
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

/// A head in transit arrives within this time. Younger connections do not count towards a peer's bound.
const YOUNG: Duration = Duration::from_secs(1);
/// How many connections one scan finds at most. They are closed as needed.
const FOUND: usize = 64;

#[derive(Default)]
struct Table {
    peers: HashMap<Peer, HashMap<u64, Arc<Connection>>>,
    open: usize,
    last_id: u64,
    /// The connections that had waited longest at the last scan, longest first. All others had waited less and still
    /// have, because a wait only ever starts anew.
    longest: VecDeque<Waiting>,
}

#[derive(Clone, Copy)]
struct Waiting {
    since: u64,
    id: u64,
    peer: Peer,
}

impl Waiting {
    fn order(&self) -> (u64, u64) {
        (self.since, self.id)
    }
}

impl Table {
    pub fn open_of(&self, peer: Peer) -> usize {
        self.peers.get(&peer).map_or(0, HashMap::len)
    }

    #[cfg(test)]
    pub fn holds(&self, peer: Peer, id: u64) -> bool {
        self.peers.get(&peer).is_some_and(|of_peer| of_peer.contains_key(&id))
    }

    #[cfg(test)]
    pub fn peers(&self) -> usize {
        self.peers.len()
    }

    pub fn insert(&mut self, peer: Peer, connection: Arc<Connection>) -> u64 {
        self.last_id += 1;
        self.peers.entry(peer).or_default().insert(self.last_id, connection);
        self.open += 1;
        self.last_id
    }

    pub fn remove(&mut self, peer: Peer, id: u64) -> Option<Arc<Connection>> {
        let of_peer = self.peers.get_mut(&peer)?;
        let connection = of_peer.remove(&id)?;
        if of_peer.is_empty() {
            self.peers.remove(&peer);
        }
        self.open -= 1;
        Some(connection)
    }

    /// Closes the one that has waited longest, of one peer or of all. False if none is waiting.
    pub fn close_longest(&mut self, of: Option<Peer>) -> bool {
        let longest = match of {
            Some(peer) => self.waiting_of(peer).min_by_key(Waiting::order),
            None => self.longest_of_all(),
        };
        longest.is_some_and(|waiting| self.close(waiting))
    }

    pub fn close_overdue(&mut self, now: u64) -> u64 {
        let overdue = |peer: &Peer, (id, connection): (&u64, &Arc<Connection>)| {
            connection.is_overdue(now).then_some(Waiting { since: 0, id: *id, peer: *peer })
        };
        let overdue = self
            .peers
            .iter()
            .flat_map(|(peer, of_peer)| of_peer.iter().filter_map(|entry| overdue(peer, entry)));
        let overdue: Vec<_> = overdue.collect();
        overdue.into_iter().filter(|waiting| self.close(*waiting)).count() as u64
    }

    /// Closes the connections that peers have above their bound, longest wait first.
    pub fn close_over(&mut self, bound: usize, now: u64) -> u64 {
        let over: Vec<_> = self
            .peers
            .iter()
            .filter(|(peer, of_peer)| peer.is_some() && of_peer.len() > bound)
            .map(|(peer, of_peer)| (*peer, of_peer.len() - bound))
            .collect();
        let mut closed = 0;
        for (peer, excess) in over {
            let mut waiting: Vec<_> =
                self.waiting_of(peer).filter(|waiting| waiting.since + millis(YOUNG) <= now).collect();
            waiting.sort_unstable_by_key(Waiting::order);
            closed += waiting.into_iter().take(excess).filter(|waiting| self.close(*waiting)).count();
        }
        closed as u64
    }

    fn close(&mut self, waiting: Waiting) -> bool {
        let connection = self.remove(waiting.peer, waiting.id);
        connection.inspect(|connection| connection.close()).is_some()
    }

    fn waiting_of(&self, peer: Peer) -> impl Iterator<Item = Waiting> {
        self.peers.get(&peer).into_iter().flatten().filter_map(move |(id, connection)| {
            connection.waits_since().map(|since| Waiting { since, id: *id, peer })
        })
    }

    fn longest_of_all(&mut self) -> Option<Waiting> {
        while let Some(waiting) = self.longest.pop_front() {
            let connection = self.peers.get(&waiting.peer).and_then(|of_peer| of_peer.get(&waiting.id));
            if connection.and_then(|connection| connection.waits_since()) == Some(waiting.since) {
                return Some(waiting);
            }
        }
        let mut all: Vec<_> = self.peers.keys().flat_map(|peer| self.waiting_of(*peer)).collect();
        if all.len() > FOUND {
            all.select_nth_unstable_by_key(FOUND, Waiting::order);
            all.truncate(FOUND);
        }
        all.sort_unstable_by_key(Waiting::order);
        self.longest = all.into();
        self.longest.pop_front()
    }
}

/// The deadline while a handler works on a complete request.
const NOT_OVERDUE: u64 = u64::MAX;

/// The worker that serves the connection writes this; the code that closes connections reads it. Times are
/// milliseconds of the server's uptime.
pub struct Connection {
    uptime: Uptime,
    since: AtomicU64,
    until: AtomicU64,
    handle: Option<TcpStream>,
}

impl Connection {
    fn new(uptime: Uptime, handle: Option<TcpStream>) -> Self {
        let connection = Self { uptime, since: AtomicU64::new(0), until: AtomicU64::new(0), handle };
        connection.since.store(millis(connection.uptime.now()), Ordering::Relaxed);
        connection.stay(WAIT);
        connection
    }

    fn stay(&self, span: Duration) {
        self.until.store(millis(self.uptime.now()) + millis(span), Ordering::Relaxed);
    }

    /// A complete request has arrived. There is no deadline until it is answered.
    fn completed(&self) {
        self.since.store(millis(self.uptime.now()), Ordering::Relaxed);
        self.until.store(NOT_OVERDUE, Ordering::Relaxed);
    }

    /// The answer is being sent and may take this long. The time that the handler needed does not count as
    /// waiting.
    fn answered(&self, span: Duration) {
        let now = millis(self.uptime.now());
        if self.until.load(Ordering::Relaxed) == NOT_OVERDUE {
            self.since.store(now, Ordering::Relaxed);
        }
        self.until.store(now + millis(span), Ordering::Relaxed);
    }

    /// Since when it has waited without a complete request; None while a handler works on one.
    fn waits_since(&self) -> Option<u64> {
        (self.until.load(Ordering::Relaxed) != NOT_OVERDUE).then(|| self.since.load(Ordering::Relaxed))
    }

    fn is_overdue(&self, now: u64) -> bool {
        self.until.load(Ordering::Relaxed) <= now
    }

    /// The worker finds the connection closed at its next read or write. The client gets a reset. An orderly
    /// close would wait until the client reads the rest, and the system would keep that data for minutes.
    fn close(&self) {
        if let Some(handle) = &self.handle {
            // It may already be closed.
            let _ = SockRef::from(handle).set_linger(Some(Duration::ZERO));
            let _ = handle.shutdown(Shutdown::Both);
        }
    }
}

fn millis(span: Duration) -> u64 {
    span.as_millis() as u64
}

/// For a form of 16 KiB: 13 kbit/s, less than any phone with a network connection.
const BODY_TIME: Duration = Duration::from_secs(10);
/// For a document of 256 KiB, at 70 kbit/s. Only for authorised senders.
const DOCUMENT_TIME: Duration = Duration::from_secs(30);

/// For an answer that is written while it is read, which only administrators get: the export of events, up to
/// some 40 MB.
const STREAM_TIME: Duration = Duration::from_secs(10 * 60);

pub struct BodyTime {
    until: Cell<Instant>,
    is_over: Cell<bool>,
    connection: Arc<Connection>,
}

impl BodyTime {
    fn begin(connection: Arc<Connection>) -> Rc<Self> {
        let until = Cell::new(Instant::now() + BODY_TIME);
        connection.stay(BODY_TIME + LAST_ANSWER);
        Rc::new(Self { until, is_over: Cell::new(false), connection })
    }

    /// The handler reads a document, and the sender is authorised.
    pub fn allow_document(request: &HttpRequest) {
        if let Some(time) = request.extensions().get::<Rc<Self>>() {
            time.until.set(Instant::now() + DOCUMENT_TIME);
            time.connection.stay(DOCUMENT_TIME + LAST_ANSWER);
        }
    }
}

/// For `wrap(from_fn(within_time))`. If a body is late, the answer is 408, whatever the handler returned, and
/// the connection is closed. This also reports the progress of the request to its connection.
pub async fn within_time<B: MessageBody + 'static>(
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    // A request that came by no connection of ours, in a test, has one that nobody closes.
    let alone = || Arc::new(Connection::new(Uptime::begin(), None));
    let connection = request.conn_data::<Open>().map_or_else(alone, |open| Arc::clone(open));
    let time = match request.take_payload() {
        Payload::None => {
            connection.completed();
            None
        }
        payload => {
            let time = BodyTime::begin(Arc::clone(&connection));
            request.extensions_mut().insert(Rc::clone(&time));
            let pipeline = pipeline::of(&request);
            pipeline.body_follows(request.headers());
            let payload = Box::pin(TimedBody { payload, time: Rc::clone(&time), pipeline, timer: None });
            request.set_payload(Payload::Stream { payload });
            Some(time)
        }
    };
    let response = next.call(request).await?;
    if time.is_some_and(|time| time.is_over.get()) {
        return Ok(too_slow(response, &connection).map_into_right_body());
    }
    connection.answered(ANSWER_TIME + time_for(response.response().body().size()));
    Ok(response.map_into_left_body())
}

fn too_slow<B>(response: ServiceResponse<B>, connection: &Connection) -> ServiceResponse {
    connection.stay(LAST_ANSWER);
    let request = response.request().clone();
    let mut answer = error_page::answer(&request, &Problem::RequestTimeout);
    answer.head_mut().set_connection_type(ConnectionType::Close);
    ServiceResponse::new(request, answer)
}

fn time_for(size: BodySize) -> Duration {
    match size {
        BodySize::Sized(bytes) => Duration::from_secs(bytes / ANSWER_RATE),
        BodySize::None => Duration::ZERO,
        BodySize::Stream => STREAM_TIME,
    }
}

struct TimedBody {
    payload: Payload,
    time: Rc<BodyTime>,
    pipeline: Rc<Pipeline>,
    /// Created only if there is something to wait for: most bodies arrive with their heads.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream for TimedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if this.time.is_over.get() {
            return Poll::Ready(None);
        }
        let read = Pin::new(&mut this.payload).poll_next(context);
        this.pipeline.body_is_wanted(read.is_pending());
        match &read {
            Poll::Ready(Some(_)) => return read,
            Poll::Ready(None) => {
                this.time.connection.completed();
                return read;
            }
            Poll::Pending => {}
        }
        let until = this.time.until.get();
        let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        if timer.as_mut().poll(context).is_pending() {
            return Poll::Pending;
        }
        this.time.is_over.set(true);
        Poll::Ready(Some(Err(PayloadError::Io(io::ErrorKind::TimedOut.into()))))
    }
}

#[cfg(test)]
mod tests;
