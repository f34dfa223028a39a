//! A string on Redis as the backend of the limits, for any number of instances: replaced by compare and swap,
//! announced, and polled in case an announcement is lost.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::{Client, Connection, ErrorKind, RedisError, Script, ServerErrorKind};
use sha1::{Digest, Sha1};
use url::Url;

use super::{BackendRead, LARGEST, LimitsBackend, SwapResult, WatchWaker};
use crate::config::live_backend::{BackendKind, redis_place};

/// How long connecting may take, and how long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is tried while it does not answer.
const WHILE_DOWN: Duration = Duration::from_millis(500);
/// How long the subscriber waits for a message before it checks whether it should stop.
const SUBSCRIBER_WAIT: Duration = Duration::from_millis(250);
/// After this many silent waits, 5 s, the subscriber checks the connection.
const SILENT: u32 = 20;

pub(in crate::config) struct RedisBackend {
    server: DocumentServer,
    place: PathBuf,
    poll: Duration,
    swap: Script,
    connection: Option<Connection>,
    down: bool,
    waker: WatchWaker,
    listener: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct DocumentServer {
    url: Url,
    key: String,
}

impl RedisBackend {
    pub fn new(url: Url, key: String, poll: Duration, waker: WatchWaker) -> Self {
        // The part of the program that uses TLS first selects the crypto provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            place: redis_place(&key),
            server: DocumentServer { url, key },
            poll,
            swap: Script::new(include_str!("../../../lua/swap.lua")),
            connection: None,
            down: false,
            waker,
            listener: None,
        }
    }

    /// Asks on the existing connection and, if that is broken, once more on a new one.
    fn ask<T>(
        &mut self,
        ask: impl Fn(&Self, &mut Connection) -> Result<T, RedisError>,
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
        let mut connection = self.server.connect(PATIENCE)?;
        let answer = ask(self, &mut connection);
        if !answer.as_ref().is_err_and(is_broken) {
            self.connection = Some(connection);
        }
        answer
    }

    fn get(&mut self) -> Result<BackendRead, RedisError> {
        self.ask(|backend, connection| {
            let key = &backend.server.key;
            let length: u64 = redis::cmd("STRLEN").arg(key).query(connection)?;
            if length > LARGEST {
                return Ok(BackendRead::Unreadable("it is longer than 1 MiB".to_owned()));
            }
            let document: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(connection)?;
            Ok(document.map_or(BackendRead::Missing, BackendRead::Bytes))
        })
    }

    fn compare_and_swap(&mut self, expected: &BackendRead, next: &str) -> Result<bool, RedisError> {
        let seen = match expected {
            BackendRead::Bytes(bytes) => hex(&Sha1::digest(bytes)),
            _ => String::new(),
        };
        self.ask(|backend, connection| {
            let mut call = backend.swap.key(&backend.server.key);
            call.arg(&seen).arg(next).arg(&backend.server.key).invoke::<u8>(connection)
        })
        .map(|done| done == 1)
    }
}

impl LimitsBackend for RedisBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::Redis
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn read(&mut self, _: Option<&BackendRead>) -> BackendRead {
        let found = self.get().unwrap_or_else(|error| failed_read(&error));
        self.down = matches!(found, BackendRead::Down(_));
        found
    }

    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String> {
        // A swap whose answer was lost may have been done; the current document shows it, and is then in
        // force.
        match self.compare_and_swap(expected, next) {
            Ok(true) => Ok(SwapResult::Done),
            Ok(false) => match self.get().unwrap_or_else(|error| failed_read(&error)) {
                BackendRead::Bytes(bytes) if bytes == next.as_bytes() => Ok(SwapResult::Done),
                found => Ok(SwapResult::Overtaken(found)),
            },
            Err(error) => Err(format!(
                "{} cannot be written: {error}; try again once Redis answers",
                self.place.display()
            )),
        }
    }

    fn listen(&mut self) {
        if self.listener.as_ref().is_none_or(JoinHandle::is_finished) {
            let (server, waker) = (self.server.clone(), self.waker.clone());
            let thread = std::thread::Builder::new().name("limits-subscriber".into());
            // Without its thread there is still polling.
            self.listener = thread.spawn(move || server.listen(&waker)).ok();
        }
    }

    fn poll(&self) -> Duration {
        if self.down { self.poll.min(WHILE_DOWN) } else { self.poll }
    }
}

impl Drop for RedisBackend {
    /// The subscriber ends with the watcher; it is waited for, so that nothing of it outlives the server.
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take().filter(|_| self.waker.is_stopping()) {
            listener.join().ok();
        }
    }
}

impl DocumentServer {
    fn connect(&self, patience: Duration) -> Result<Connection, RedisError> {
        let client = Client::open(self.url.as_str())?;
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Receives announcements until the watcher stops, reconnecting as often as necessary.
    fn listen(&self, waker: &WatchWaker) {
        while !waker.is_stopping() {
            // A fault of the server is reported when the document is read.
            let _ = self.subscribe(waker);
            if !waker.is_stopping() {
                std::thread::sleep(SUBSCRIBER_WAIT);
            }
        }
    }

    fn subscribe(&self, waker: &WatchWaker) -> Result<(), RedisError> {
        let mut connection = self.connect(PATIENCE)?;
        let mut pubsub = connection.as_pubsub();
        pubsub.subscribe(&self.key)?;
        // Earlier announcements are found by reading.
        waker.changed();
        pubsub.set_read_timeout(Some(SUBSCRIBER_WAIT))?;
        let mut silent = 0;
        while !waker.is_stopping() {
            match pubsub.get_message() {
                Ok(_) => {
                    waker.changed();
                    silent = 0;
                }
                Err(error) if error.is_timeout() => silent += 1,
                Err(error) => return Err(error),
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

/// A connection that may still receive an answer to an earlier command cannot be used any more, nor can one
/// to a server that no longer accepts writes.
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

fn failed_read(error: &RedisError) -> BackendRead {
    match error.code() {
        Some("WRONGTYPE") => BackendRead::Unreadable("it is not a string".to_owned()),
        _ => BackendRead::Down(error.to_string()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
