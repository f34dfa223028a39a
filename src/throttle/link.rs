//! The connection to Redis: multiplexed and monitored. A call never waits for a connection to be made: if
//! there is none it fails immediately, while a task keeps trying to connect.
//!
//! A thread with its own runtime, as each worker of a web server has, gets its own connection beside the
//! shared one: an answer that arrives on another thread would wake two threads.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, Script, ServerErrorKind, Value};
use thread_local::ThreadLocal;
use tokio::runtime::{self, Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::store::StoreError;

/// Between two attempts to connect early in an outage, so that a restarted server is found at once.
const RETRY_SOON: Duration = Duration::from_millis(25);
/// After this many attempts, about a second, the server is asked less often.
const SOON: u32 = 40;
const RETRY_LATER: Duration = Duration::from_millis(100);
/// Between two attempts at a thread's own connection; the shared one is used until then.
const RETRY_OWN: Duration = Duration::from_secs(1);
/// If the server refuses our name or password, somebody has to change that first.
const RETRY_REFUSED: Duration = Duration::from_secs(1);
/// Connecting takes several round trips (TCP, TLS, greeting), however short the timeout of a call is.
const CONNECT_AT_LEAST: Duration = Duration::from_millis(250);
/// This many failed attempts in a row are not an accident.
const OWN_TROUBLE: u32 = 3;
/// How often a connection without complaints is checked.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// After this many checks without an error, the same error is logged again.
const CALM: u32 = 10;

/// A link to one Redis server. Clones share it; it ends with its last clone.
#[derive(Clone)]
pub struct RedisLink(Arc<LinkInner>);

struct LinkInner {
    /// The connection that all threads share.
    common: Arc<SharedConnection>,
    /// The runtime that it was opened on; the threads of that runtime need no other connection.
    opened_on: runtime::Id,
    own: ThreadLocal<RefCell<Option<ThreadConnection>>>,
    options: ConnectionOptions,
}

/// A connection of one thread.
struct ThreadConnection {
    /// The runtime that drives it. A later thread may get this thread's slot, with another runtime.
    runtime: runtime::Id,
    shared: Arc<SharedConnection>,
}

/// How a connection is made.
#[derive(Clone)]
struct ConnectionOptions {
    client: Client,
    config: AsyncConnectionConfig,
    /// Loaded at every connection.
    scripts: Vec<Script>,
}

/// A connection, as its watcher last saw it.
#[derive(Default)]
struct SharedConnection {
    connection: ArcSwapOption<MultiplexedConnection>,
    /// Notified if the connection is gone, or if a call on it got no answer in time.
    doubt: Notify,
    /// The last error that the server returned for a call, until the watcher has seen it.
    fault: ArcSwapOption<String>,
    /// It returned errors a moment ago.
    faulty: AtomicBool,
}

impl RedisLink {
    /// Starts connecting in the background. `scripts` are loaded at every connection. `timeout` bounds each
    /// call and, if it is longer than 250 ms, each attempt to connect.
    pub fn open(client: Client, timeout: Duration, scripts: Vec<Script>) -> Self {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout.max(CONNECT_AT_LEAST)))
            .set_response_timeout(Some(timeout));
        let options = ConnectionOptions { client, config, scripts };
        let (common, opened_on) = (options.start(None), Handle::current().id());
        Self(Arc::new(LinkInner { common, opened_on, own: ThreadLocal::new(), options }))
    }

    /// Whether there is a connection and the server accepts calls. An outage that no call noticed is detected
    /// within a second.
    pub fn is_up(&self) -> bool {
        self.0.common.is_up()
    }

    /// Waits until the link is up, at most this long; returns whether it is.
    pub async fn ready(&self, at_most: Duration) -> bool {
        let up = async {
            while !self.is_up() {
                sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(at_most, up).await.is_ok()
    }

    /// One round trip.
    pub async fn call(&self, command: &Cmd) -> Result<Value, CallError> {
        let shared = self.0.nearest();
        let connection = shared.connection.load_full().ok_or(CallError::Store(StoreError::Down))?;
        let answer = MultiplexedConnection::clone(&connection).send_packed_command(command).await;
        shared.judge(&connection, answer)
    }
}

impl LinkInner {
    /// This thread's own connection if it is up, otherwise the shared one.
    fn nearest(&self) -> Arc<SharedConnection> {
        let here = Handle::current();
        if here.runtime_flavor() != RuntimeFlavor::CurrentThread || here.id() == self.opened_on {
            return Arc::clone(&self.common);
        }
        let mut place = self.own.get_or_default().borrow_mut();
        let own = match &*place {
            Some(own) if own.runtime == here.id() => Arc::clone(&own.shared),
            _ => {
                let shared = self.options.start(Some(Arc::downgrade(&self.common)));
                *place = Some(ThreadConnection { runtime: here.id(), shared: Arc::clone(&shared) });
                shared
            }
        };
        if own.is_up() { own } else { Arc::clone(&self.common) }
    }
}

impl ConnectionOptions {
    /// Starts connecting in the background on this runtime. `common` is used until the connection is up.
    fn start(&self, common: Option<Weak<SharedConnection>>) -> Arc<SharedConnection> {
        let shared = Arc::<SharedConnection>::default();
        tokio::spawn(watch(
            Arc::downgrade(&shared),
            self.clone(),
            FaultLog { common, ..FaultLog::default() },
        ));
        shared
    }

    async fn connect(&self) -> Result<MultiplexedConnection, RedisError> {
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        for script in &self.scripts {
            script.load_async(&mut connection).await?;
        }
        Ok(connection)
    }
}

impl SharedConnection {
    fn is_up(&self) -> bool {
        self.connection.load().is_some() && !self.faulty.load(Ordering::Relaxed)
    }

    fn judge(
        &self,
        connection: &Arc<MultiplexedConnection>,
        answer: Result<Value, RedisError>,
    ) -> Result<Value, CallError> {
        match answer {
            Ok(Value::ServerError(error)) => Err(self.refused(connection, error.into())),
            Ok(value) => Ok(value),
            Err(error) if error.is_timeout() => {
                // One slow call must not take the connection away from all others: the watcher checks it
                // first.
                self.doubt.notify_one();
                Err(CallError::Store(StoreError::TimedOut))
            }
            Err(error) if error.is_unrecoverable_error() => {
                self.lose(connection, &error.to_string());
                Err(CallError::Store(StoreError::Down))
            }
            Err(error) => Err(self.refused(connection, error)),
        }
    }

    /// The server returned an error.
    fn refused(&self, connection: &Arc<MultiplexedConnection>, error: RedisError) -> CallError {
        match error.kind() {
            // The caller loads the script and asks again.
            ErrorKind::Server(ServerErrorKind::NoScript) => {}
            // A primary that became a replica. The name may resolve to another server by now.
            ErrorKind::Server(ServerErrorKind::ReadOnly) => {
                self.faulty.store(true, Ordering::Relaxed);
                self.lose(connection, &error.to_string());
                return CallError::Store(StoreError::Down);
            }
            _ => {
                self.fault.store(Some(Arc::new(error.to_string())));
                self.faulty.store(true, Ordering::Relaxed);
            }
        }
        CallError::Server(error)
    }

    /// Drops this connection, unless another has already replaced it.
    fn lose(&self, broken: &Arc<MultiplexedConnection>, reason: &str) {
        let before = self.connection.compare_and_swap(broken, None);
        if before.as_ref().is_some_and(|before| Arc::ptr_eq(before, broken)) {
            self.fault.store(Some(Arc::new(reason.to_owned())));
            self.doubt.notify_one();
        }
    }
}

/// Why a call failed: the store cannot be reached, or it returned an error.
pub enum CallError {
    Store(StoreError),
    Server(RedisError),
}

/// Connects, checks the connection periodically and whenever it is in doubt, and reconnects. Ends when the
/// link is dropped.
async fn watch(shared: Weak<SharedConnection>, options: ConnectionOptions, mut faults: FaultLog) {
    let mut checks = interval(CHECK_EVERY);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut attempts = 0;
    while let Some(shared) = shared.upgrade() {
        let Some(connection) = shared.connection.load_full() else {
            faults.note(shared.fault.swap(None).as_deref());
            match options.connect().await {
                Ok(connection) => {
                    shared.connection.store(Some(Arc::new(connection)));
                    checks.reset();
                }
                Err(error) => {
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
        if let Err(reason) = answers(&connection).await {
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

/// Whether anything at all comes back, even an error.
async fn answers(connection: &MultiplexedConnection) -> Result<(), String> {
    match connection.clone().send_packed_command(&redis::cmd("PING")).await {
        Err(error) if error.is_timeout() || error.is_unrecoverable_error() => Err(error.to_string()),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn pause(error: &RedisError, attempts: u32) -> Duration {
    let unwelcome = error.kind() == ErrorKind::AuthenticationFailed
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
