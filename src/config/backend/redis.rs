//! A string on Redis as the backend of the limits, for any number of instances: replaced by compare and swap,
//! announced, and polled in case an announcement is lost.

use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gatehouse_limiter::{RedisServers, RedisUrl};
use redis::cluster::ClusterConnection;
use redis::{Client, Cmd, Connection, ErrorKind, FromRedisValue, RedisError, ServerErrorKind};
use sha1::{Digest, Sha1};

use super::{BackendRead, LARGEST, LimitsBackend, SwapResult, WatchControl};
use crate::https;

/// How long connecting may take, and how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is tried while it does not answer.
const WHILE_DOWN: Duration = Duration::from_millis(500);
/// How long the subscriber waits for a message before it checks whether it should stop.
const SUBSCRIBER_WAIT: Duration = Duration::from_millis(250);
/// How long finding the master may take; a Sentinel that does not answer takes a second and a half of it.
const FIND_AT_MOST: Duration = Duration::from_secs(3);
/// How often a node of a cluster may send a call on to another.
const MOST_REDIRECTS: u32 = 3;
/// After this many silent waits, 5 s, the subscriber checks the connection.
const SILENT: u32 = 20;

const SWAP: &str = include_str!("../../../lua/swap.lua");

pub(in crate::config) struct RedisBackend {
    server: DocumentServer,
    poll: Duration,
    connection: Option<DocumentConnection>,
    down: bool,
    control: WatchControl,
    listener: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct DocumentServer {
    url: RedisUrl,
    ca_file: Option<PathBuf>,
    key: String,
}

enum DocumentConnection {
    Node(Connection),
    Cluster(Box<ClusterConnection>),
}

impl DocumentConnection {
    fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, RedisError> {
        match self {
            Self::Node(connection) => command.query(connection),
            Self::Cluster(connection) => command.query(&mut **connection),
        }
    }
}

impl RedisBackend {
    pub fn new(
        url: RedisUrl,
        ca_file: Option<PathBuf>,
        key: String,
        poll: Duration,
        control: WatchControl,
    ) -> Self {
        // The part of the program that uses TLS first selects the crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            server: DocumentServer { url, ca_file, key },
            poll,
            connection: None,
            down: false,
            control,
            listener: None,
        }
    }

    /// Asks on the existing connection and, if that is broken, once more on a new one.
    fn ask<T>(
        &mut self,
        ask: impl Fn(&Self, &mut DocumentConnection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        if let Some(mut connection) = self.connection.take() {
            match ask(self, &mut connection) {
                Err(error) if is_broken(&error) => {}
                answer => {
                    self.connection = Some(connection);
                    return answer;
                }
            }
        }
        let mut connection = self.server.connect()?;
        let answer = ask(self, &mut connection);
        // The master is looked up each time: one that is cut off from its Sentinels reports nothing.
        if !answer.as_ref().is_err_and(is_broken) && !self.server.url.is_sentinel() {
            self.connection = Some(connection);
        }
        answer
    }

    fn get(&mut self) -> BackendRead {
        let found = self.ask(|backend, connection| {
            let key = &backend.server.key;
            let length: u64 = connection.query(redis::cmd("STRLEN").arg(key))?;
            if length > LARGEST {
                return Ok(BackendRead::Unreadable("it is longer than 1 MiB".to_owned()));
            }
            let document: Option<Vec<u8>> = connection.query(redis::cmd("GET").arg(key))?;
            Ok(document.map_or(BackendRead::Missing, BackendRead::Bytes))
        });
        found.unwrap_or_else(|error| match error.code() {
            Some("WRONGTYPE") => BackendRead::Unreadable("it is not a string".to_owned()),
            _ => BackendRead::Down(error.to_string()),
        })
    }

    fn compare_and_swap(&mut self, expected: &BackendRead, next: &str) -> Result<bool, RedisError> {
        let seen = match expected {
            BackendRead::Bytes(bytes) => HEXLOWER.encode(&Sha1::digest(bytes)),
            _ => String::new(),
        };
        self.ask(|backend, connection| {
            let key = &backend.server.key;
            let mut call = redis::cmd("EVAL");
            call.arg(SWAP).arg(1).arg(key).arg(&seen).arg(next).arg(key);
            connection.query::<u8>(&call)
        })
        .map(|done| done == 1)
    }
}

impl LimitsBackend for RedisBackend {
    fn read(&mut self, _: Option<&BackendRead>) -> BackendRead {
        let found = self.get();
        self.down = matches!(found, BackendRead::Down(_));
        found
    }

    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String> {
        // A swap whose answer was lost may have been done; the current document shows it, and is then in
        // force.
        match self.compare_and_swap(expected, next) {
            Ok(true) => Ok(SwapResult::Done),
            Ok(false) => match self.get() {
                BackendRead::Bytes(bytes) if bytes == next.as_bytes() => Ok(SwapResult::Done),
                found => Ok(SwapResult::Overtaken(found)),
            },
            Err(error) => Err(format!(
                "redis {} cannot be written: {error}; try again once Redis answers",
                self.server.key
            )),
        }
    }

    fn listen(&mut self) {
        if self.listener.as_ref().is_none_or(JoinHandle::is_finished) {
            let (server, control) = (self.server.clone(), self.control.clone());
            let thread = std::thread::Builder::new().name("limits-subscriber".into());
            // Without its thread there is still polling.
            self.listener = thread.spawn(move || server.listen(&control)).ok();
        }
    }

    fn poll(&self) -> Duration {
        if self.down { self.poll.min(WHILE_DOWN) } else { self.poll }
    }
}

impl Drop for RedisBackend {
    /// The subscriber ends with the watcher; it is waited for, so that nothing of it outlives the server.
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take().filter(|_| self.control.is_stopping()) {
            listener.join().ok();
        }
    }
}

impl DocumentServer {
    fn servers(&self) -> Result<RedisServers, RedisError> {
        let authorities = self.ca_file.as_deref().map(https::authorities_and).transpose();
        let authorities = authorities
            .map_err(|reason| RedisError::from((ErrorKind::InvalidClientConfig, "store.ca_file", reason)))?;
        self.url.servers(authorities)
    }

    fn connect(&self) -> Result<DocumentConnection, RedisError> {
        match self.servers()? {
            RedisServers::Cluster(servers) => {
                let client =
                    servers.builder().connection_timeout(PATIENCE).retries(MOST_REDIRECTS).build()?;
                let connection = client.get_connection()?;
                connection.set_read_timeout(Some(PATIENCE))?;
                connection.set_write_timeout(Some(PATIENCE))?;
                Ok(DocumentConnection::Cluster(Box::new(connection)))
            }
            servers => node(servers).map(DocumentConnection::Node),
        }
    }

    /// Receives announcements until the watcher stops, reconnecting as often as necessary.
    fn listen(&self, control: &WatchControl) {
        while !control.is_stopping() {
            // A fault of the server is reported when the document is read.
            let _ = self.subscribe(control);
            if !control.is_stopping() {
                std::thread::sleep(SUBSCRIBER_WAIT);
            }
        }
    }

    fn subscribe(&self, control: &WatchControl) -> Result<(), RedisError> {
        let mut connection = node(self.servers()?)?;
        let mut pubsub = connection.as_pubsub();
        pubsub.subscribe(&self.key)?;
        // Earlier announcements are found by reading.
        control.changed();
        pubsub.set_read_timeout(Some(SUBSCRIBER_WAIT))?;
        let mut silent = 0;
        while !control.is_stopping() {
            match pubsub.get_message() {
                Ok(_) => {
                    control.changed();
                    silent = 0;
                }
                Err(error) if error.is_timeout() => silent += 1,
                Err(error) => return Err(error),
            }
            if silent >= SILENT && self.url.is_sentinel() {
                return Ok(());
            }
            if silent >= SILENT {
                pubsub.set_read_timeout(Some(PATIENCE))?;
                pubsub.ping::<redis::Value>()?;
                pubsub.set_read_timeout(Some(SUBSCRIBER_WAIT))?;
                silent = 0;
            }
        }
        Ok(())
    }
}

/// A connection to one server; in a cluster to any, because each passes announcements on to all.
fn node(servers: RedisServers) -> Result<Connection, RedisError> {
    let clients = match servers {
        RedisServers::Standalone(client) => vec![client],
        RedisServers::Sentinel(servers) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let mut sentinels = servers.client()?;
            vec![runtime.block_on(async {
                let master = tokio::time::timeout(FIND_AT_MOST, sentinels.async_get_client()).await;
                master.map_err(|_| std::io::Error::from(std::io::ErrorKind::TimedOut))?
            })?]
        }
        RedisServers::Cluster(servers) => servers.nodes()?,
    };
    let mut failed = RedisError::from((ErrorKind::InvalidClientConfig, "names no host"));
    for client in clients {
        match connect(&client) {
            Ok(connection) => return Ok(connection),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn connect(client: &Client) -> Result<Connection, RedisError> {
    let connection = client.get_connection_with_timeout(PATIENCE)?;
    connection.set_read_timeout(Some(PATIENCE))?;
    connection.set_write_timeout(Some(PATIENCE))?;
    Ok(connection)
}

/// A connection that may still receive an answer to an earlier command cannot be used any more, nor can one
/// to a server that no longer accepts writes.
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}
