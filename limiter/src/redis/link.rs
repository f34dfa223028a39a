//! The connection to Redis servers: multiplexed and monitored. Only while the first attempt to connect is under way does a
//! call wait for it. Later, if there is no connection, it fails immediately, while a task keeps trying to connect.
//!
//! A thread with its own runtime, as each worker of a web server has, gets its own connection beside the
//! shared one: an answer that arrives on another thread would wake two threads.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::{Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use thread_local::ThreadLocal;
use tokio::runtime::{self, Handle, RuntimeFlavor};
use tokio::sync::{Notify, watch};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{Instrument, info_span};

use super::connector::{ConnectionOptions, Connector, RedisConnection};
use super::info::{Eviction, EvictionPolicy};
use super::servers::RedisServers;
use crate::spans;
use crate::store::StoreError;

/// Between two attempts to connect early in an outage, so that a restarted server is found at once.
const RETRY_SOON: Duration = Duration::from_millis(25);
/// After this many attempts, about a second, the server is asked less often.
const SOON: u32 = 40;
const RETRY_LATER: Duration = Duration::from_millis(100);
/// Between two attempts at a thread's own connection; the shared one is used until then.
const RETRY_OWN: Duration = Duration::from_secs(1);
/// If the server refuses our name or password, somebody has to change that first.
const RETRY_REFUSED: Duration = Duration::from_secs(1);
/// This many failed attempts in a row are not an accident.
const OWN_TROUBLE: u32 = 3;
/// How often a connection without complaints is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// After this many checks without an error, the same error is logged again.
const CALM: u32 = 10;

/// A link to one Redis server, to the master that Sentinels name, or to a cluster. Clones share it; it ends with
/// its last clone.
#[derive(Clone)]
pub struct RedisLink(Arc<LinkInner>);

struct LinkInner {
    /// The connection that all threads share.
    common: Arc<SharedConnection>,
    /// The runtime that it was opened on, once it was; the threads of that runtime need no other connection.
    opened_on: OnceLock<runtime::Id>,
    own: ThreadLocal<RefCell<Option<ThreadConnection>>>,
    options: ConnectionOptions,
}

/// A connection of one thread.
struct ThreadConnection {
    /// The runtime that drives it. A later thread may get this thread's slot, with another runtime.
    runtime: runtime::Id,
    shared: Arc<SharedConnection>,
}

/// A connection, as its watcher last saw it.
#[derive(Default)]
struct SharedConnection {
    connection: ArcSwapOption<RedisConnection>,
    /// Notified if the connection is gone, or if a call on it got no answer in time.
    doubt: Notify,
    /// The last error that the server returned for a call, until the watcher has seen it.
    fault: ArcSwapOption<String>,
    /// It returned errors a moment ago.
    faulty: AtomicBool,
    /// How many connections were made so far.
    made: AtomicU64,
    /// An attempt to connect has ended, whether it succeeded or not.
    tried: watch::Sender<bool>,
    eviction: ArcSwapOption<Eviction>,
}

impl RedisLink {
    /// Starts connecting in the background; outside of a Tokio runtime, at the first call. `scripts` are loaded at every
    /// connection to a single server. `timeout` bounds each call, a first call's wait for the connection and, if it is
    /// longer than 250 ms, each attempt to connect. Servers that evict are not used: see [`RedisLink::eviction`].
    pub fn open(servers: impl Into<RedisServers>, timeout: Duration, scripts: Vec<Script>) -> Self {
        Self::open_to(servers.into(), timeout, scripts, false)
    }

    /// `allow_eviction`: servers that may evict are used, too.
    pub(super) fn open_to(
        servers: RedisServers,
        timeout: Duration,
        scripts: Vec<Script>,
        allow_eviction: bool,
    ) -> Self {
        let options = ConnectionOptions { servers, timeout, scripts, allow_eviction };
        let (common, opened_on, own) = (Arc::default(), OnceLock::new(), ThreadLocal::new());
        let link = LinkInner { common, opened_on, own, options };
        if let Ok(here) = Handle::try_current() {
            link.begin(&here);
        }
        Self(Arc::new(link))
    }

    /// Whether there is a connection and the server accepts calls. An outage that no call noticed is detected
    /// within a second.
    pub fn is_up(&self) -> bool {
        self.0.common.is_up()
    }

    /// The policy by which a server evicts, if one of them did when it was last checked: whenever a connection is made, and
    /// each second. Unless that is allowed, the link is down until they are set to `noeviction`.
    pub fn eviction(&self) -> Option<Eviction> {
        self.0.common.eviction.load().as_deref().cloned()
    }

    /// Whether servers that may evict are used.
    pub(super) fn allows_eviction(&self) -> bool {
        self.0.options.allow_eviction
    }

    /// Waits until the link is up, at most this long; returns whether it is.
    pub async fn ready(&self, at_most: Duration) -> bool {
        let up = async {
            self.0.begin(&Handle::current());
            while !self.is_up() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(at_most, up).await.is_ok()
    }

    /// Whether keys are spread over servers, so that a script can use one key only.
    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.0.options.servers, RedisServers::Cluster(_))
    }

    /// One round trip.
    pub async fn call(&self, command: &Cmd) -> Result<Value, CallError> {
        let span = spans::within(
            || info_span!(target: spans::TARGET, "redis", "otel.kind" = "client", "db.system.name" = "redis"),
        );
        let round_trip = async {
            let (shared, connection) = self.0.connection().await?;
            let answer = RedisConnection::clone(&connection).send(command).await;
            match shared.outcome(&connection, answer)? {
                Value::ServerError(error) => Err(shared.refused(&connection, error.into())),
                value => Ok(value),
            }
        };
        round_trip.instrument(span).await
    }

    /// Sends a command to every master; one answer each.
    pub(super) async fn call_masters(&self, command: &Cmd) -> Result<Vec<Value>, CallError> {
        let (shared, connection) = self.0.connection().await?;
        let answers = RedisConnection::clone(&connection).send_to_masters(command).await;
        shared.outcome(&connection, answers)
    }
}

impl LinkInner {
    /// Starts connecting in the background, on this runtime, unless that has begun. Returns on which it has.
    fn begin(&self, here: &Handle) -> runtime::Id {
        *self.opened_on.get_or_init(|| {
            start(here, &self.common, &self.options, None);
            here.id()
        })
    }

    async fn connection(&self) -> Result<(Arc<SharedConnection>, Arc<RedisConnection>), CallError> {
        let shared = self.nearest()?;
        if shared.connection.load().is_none() && !*shared.tried.borrow() {
            let _ = timeout(self.options.timeout, shared.tried.subscribe().wait_for(|tried| *tried)).await;
        }
        let connection = shared.connection.load_full().ok_or(CallError::Store(StoreError::Down))?;
        Ok((shared, connection))
    }

    /// This thread's own connection if it is up, otherwise the shared one.
    fn nearest(&self) -> Result<Arc<SharedConnection>, CallError> {
        let no_runtime = |_| CallError::Store(StoreError::Broken("a call outside of a Tokio runtime".into()));
        let here = Handle::try_current().map_err(no_runtime)?;
        if self.begin(&here) == here.id() || here.runtime_flavor() != RuntimeFlavor::CurrentThread {
            return Ok(Arc::clone(&self.common));
        }
        let mut place = self.own.get_or_default().borrow_mut();
        let own = match &*place {
            Some(own) if own.runtime == here.id() => Arc::clone(&own.shared),
            _ => {
                let shared = Arc::default();
                start(&here, &shared, &self.options, Some(Arc::downgrade(&self.common)));
                *place = Some(ThreadConnection { runtime: here.id(), shared: Arc::clone(&shared) });
                shared
            }
        };
        Ok(if own.is_up() { own } else { Arc::clone(&self.common) })
    }
}

/// Starts connecting in the background on this runtime. `common` is used until the connection is up.
fn start(
    here: &Handle,
    shared: &Arc<SharedConnection>,
    options: &ConnectionOptions,
    common: Option<Weak<SharedConnection>>,
) {
    let faults = FaultLog { common, ..FaultLog::default() };
    here.spawn(keep_connected(Arc::downgrade(shared), Connector::new(options.clone()), faults));
}

impl SharedConnection {
    fn is_up(&self) -> bool {
        self.connection.load().is_some() && !self.faulty.load(Ordering::Relaxed)
    }

    fn outcome<T>(
        &self,
        connection: &Arc<RedisConnection>,
        answer: Result<T, RedisError>,
    ) -> Result<T, CallError> {
        match answer {
            Ok(value) => Ok(value),
            Err(error) if error.is_timeout() => {
                // One slow call must not take the connection away from all others: the watcher checks it
                // first.
                self.doubt.notify_one();
                Err(CallError::Store(StoreError::TimedOut))
            }
            Err(error) if error.is_unrecoverable_error() => {
                self.lose(connection, &error.to_string());
                Err(CallError::Store(StoreError::TimedOut))
            }
            Err(error) => Err(self.refused(connection, error)),
        }
    }

    /// The server returned an error.
    fn refused(&self, connection: &Arc<RedisConnection>, error: RedisError) -> CallError {
        match error.kind() {
            // The caller loads the script and asks again.
            ErrorKind::Server(ServerErrorKind::NoScript) => {}
            // A master that became a replica, whose name may resolve to another server by now; or a cluster in
            // which a slot has no master.
            ErrorKind::Server(
                ServerErrorKind::ReadOnly | ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown,
            ) => {
                self.faulty.store(true, Ordering::Relaxed);
                self.lose(connection, &error.to_string());
                return CallError::Store(match **connection {
                    RedisConnection::Node(_) => StoreError::Down,
                    // A cluster's client sends a call again if a connection breaks: the first may have been carried out.
                    RedisConnection::Cluster { .. } => StoreError::TimedOut,
                });
            }
            _ => {
                self.fault.store(Some(Arc::new(error.to_string())));
                self.faulty.store(true, Ordering::Relaxed);
            }
        }
        CallError::Server(error)
    }

    /// Returns an error if these servers evict and that is not allowed.
    fn refuse_evicting<T>(
        &self,
        found: Result<(T, EvictionPolicy), RedisError>,
        connector: &Connector,
        faults: &mut FaultLog,
    ) -> Result<T, RedisError> {
        let (found, policy) = found?;
        faults.note_policy(&policy, connector.allows_eviction());
        let eviction = match policy {
            EvictionPolicy::Evicts(eviction) => Some(Arc::new(eviction)),
            EvictionPolicy::Keeps | EvictionPolicy::Unknown => None,
        };
        let refused = eviction.as_deref().filter(|_| !connector.allows_eviction()).map(evicts);
        self.eviction.store(eviction);
        refused.map_or(Ok(found), Err)
    }

    /// Drops this connection, unless another has already replaced it.
    fn lose(&self, broken: &Arc<RedisConnection>, reason: &str) {
        let before = self.connection.compare_and_swap(broken, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, broken)) {
            self.fault.store(Some(Arc::new(reason.to_owned())));
            self.doubt.notify_one();
        }
    }
}

/// Why a call failed: the store cannot be reached, or it returned an error.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No answer came.
    #[error(transparent)]
    Store(StoreError),
    /// The server answered with an error.
    #[error(transparent)]
    Server(RedisError),
}

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Store(error) => error,
            CallError::Server(error) => Self::Broken(error.to_string()),
        }
    }
}

/// Connects, checks the connection periodically and whenever it is in doubt, and reconnects. Ends when the
/// link is dropped.
async fn keep_connected(shared: Weak<SharedConnection>, mut connector: Connector, mut faults: FaultLog) {
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut attempts = 0;
    // A thread's own connection follows the shared one to another master.
    let mut common_then = None;
    while let Some(shared) = shared.upgrade() {
        let Some(connection) = shared.connection.load_full() else {
            faults.note(shared.fault.swap(None).as_deref());
            match shared.refuse_evicting(connector.connect().await, &connector, &mut faults) {
                Ok(connection) => {
                    common_then = faults.common_made();
                    shared.made.fetch_add(1, Ordering::Relaxed);
                    shared.connection.store(Some(Arc::new(connection)));
                    shared.tried.send_replace(true);
                    checks.reset();
                }
                Err(error) => {
                    shared.tried.send_replace(true);
                    drop(shared);
                    if faults.common.is_some() {
                        faults.note_own(&error, attempts);
                        sleep(RETRY_OWN).await;
                    } else {
                        faults.note(Some(&error.to_string()));
                        sleep(pause(&error, attempts)).await;
                    }
                }
            }
            // A connection that is lost immediately does not reset the count.
            attempts = (attempts + 1).min(SOON);
            continue;
        };
        let at_leisure = tokio::select! {
            () = shared.doubt.notified() => false,
            _ = checks.tick() => true,
        };
        if shared.connection.load().is_none() {
            if attempts > 1 {
                sleep(RETRY_SOON).await;
            }
            continue;
        }
        let checked = RedisConnection::clone(&connection).check().await;
        let checked = checked.map(|policy| ((), policy));
        if let Err(error) = shared.refuse_evicting(checked, &connector, &mut faults) {
            shared.lose(&connection, &error.to_string());
        } else if faults.common_made() != common_then {
            shared.lose(&connection, "the shared connection was lost");
        } else if faults.common.is_none()
            && let Some(reason) = connector.moved().await
        {
            shared.lose(&connection, &reason);
        } else if at_leisure {
            attempts = 0;
            let fault = shared.fault.swap(None);
            shared.faulty.store(fault.is_some(), Ordering::Relaxed);
            faults.note(fault.as_deref());
            if fault.is_none() {
                faults.calm();
            }
        }
    }
}

fn evicts(eviction: &Eviction) -> RedisError {
    let what = "it forgets what is counted when its memory is full; set maxmemory-policy noeviction";
    (ErrorKind::InvalidClientConfig, what, eviction.to_string()).into()
}

fn pause(error: &RedisError, attempts: u32) -> Duration {
    let unwelcome = matches!(error.kind(), ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig)
        || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    match unwelcome {
        true => RETRY_REFUSED,
        false if attempts < SOON => RETRY_SOON,
        false => RETRY_LATER,
    }
}

/// Which errors were logged so far: each one once, however often it occurs.
#[derive(Default)]
struct FaultLog {
    said: Vec<String>,
    calm: u32,
    /// The policy that was told last.
    policy: Option<EvictionPolicy>,
    /// For a thread's own connection: the log of the shared one reports the state of the server.
    common: Option<Weak<SharedConnection>>,
}

impl FaultLog {
    /// At most this many different errors are logged, in case a server words each one differently.
    const MOST: usize = 8;

    fn note(&mut self, fault: Option<&(impl AsRef<str> + ?Sized)>) {
        let Some(reason) = fault.map(AsRef::as_ref) else { return };
        self.calm = 0;
        if self.common.is_none()
            && self.said.len() < Self::MOST
            && !self.said.iter().any(|said| said == reason)
        {
            tracing::warn!("redis is out of service; trying again until it answers: {reason}");
            self.said.push(reason.to_owned());
        }
    }

    /// A policy that is refused is told as the fault that it is.
    fn note_policy(&mut self, policy: &EvictionPolicy, allowed: bool) {
        if self.common.is_some() || self.policy.as_ref() == Some(policy) {
            return;
        }
        match policy {
            EvictionPolicy::Evicts(eviction) if allowed => {
                tracing::warn!(%eviction, "redis forgets what is counted when its memory is full; set maxmemory-policy noeviction");
            }
            EvictionPolicy::Unknown => {
                tracing::warn!(
                    "redis does not say by INFO memory whether it evicts; see that its maxmemory-policy is noeviction"
                );
            }
            EvictionPolicy::Evicts(_) | EvictionPolicy::Keeps => {}
        }
        self.policy = Some(policy.clone());
    }

    /// How many shared connections were made; none if this is the shared one.
    fn common_made(&self) -> Option<u64> {
        let common = self.common.as_ref()?.upgrade()?;
        Some(common.made.load(Ordering::Relaxed))
    }

    /// A thread's own connection cannot be made, although the shared one is up: the server, or a proxy before
    /// it, accepts no more connections.
    fn note_own(&mut self, error: &RedisError, attempts: u32) {
        let common = self.common.as_ref().and_then(Weak::upgrade);
        if attempts == OWN_TROUBLE && common.is_some_and(|common| common.is_up()) {
            tracing::warn!(
                "a worker cannot open its own connection to redis, so it uses the shared one: {error}"
            );
        }
    }

    /// Records a check that found nothing wrong.
    fn calm(&mut self) {
        self.calm = (self.calm + 1).min(CALM);
        if self.calm == 1 && !self.said.is_empty() {
            tracing::info!("redis answers again");
        }
        if self.calm == CALM {
            self.said.clear();
        }
    }
}

#[cfg(test)]
mod tests;
