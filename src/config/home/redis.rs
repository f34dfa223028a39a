//! A string on Redis as the home of the limits, for any number of instances: replaced by compare and swap,
//! announced, and looked at now and then behind the announcements.

use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use redis::{Client, Connection, ErrorKind, RedisError, Script, ServerErrorKind};
use sha1::{Digest, Sha1};
use url::Url;

use super::{Found, Home, LARGEST, Swapped, Waker};
use crate::config::live_home::{HomeKind, redis_place};

/// How long connecting, and an answer, may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is tried while it does not answer.
const WHILE_DOWN: Duration = Duration::from_millis(500);
/// How long the listener waits for a message before it looks whether it is still wanted.
const EAR: Duration = Duration::from_millis(250);
/// After so many silent waits, 5 s, the listener asks whether anybody is there.
const SILENT: u32 = 20;

pub(in crate::config) struct RedisHome {
    server: Server,
    place: PathBuf,
    poll: Duration,
    swap: Script,
    connection: Option<Connection>,
    down: bool,
    waker: Waker,
    listener: Option<JoinHandle<()>>,
}

#[derive(Clone)]
struct Server {
    url: Url,
    key: String,
}

impl RedisHome {
    pub fn new(url: Url, key: String, poll: Duration, waker: Waker) -> Self {
        // Whichever part of the program speaks TLS first chooses what computes it.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self {
            place: redis_place(&key),
            server: Server { url, key },
            poll,
            swap: Script::new(include_str!("../../../lua/swap.lua")),
            connection: None,
            down: false,
            waker,
            listener: None,
        }
    }

    /// Asks on the connection that stands, and, where that one has broken, once more on a new one.
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

    fn get(&mut self) -> Result<Found, RedisError> {
        self.ask(|home, connection| {
            let key = &home.server.key;
            let length: u64 = redis::cmd("STRLEN").arg(key).query(connection)?;
            if length > LARGEST {
                return Ok(Found::Unreadable("it is longer than 1 MiB".to_owned()));
            }
            let document: Option<Vec<u8>> = redis::cmd("GET").arg(key).query(connection)?;
            Ok(document.map_or(Found::Missing, Found::Bytes))
        })
    }

    fn compare_and_swap(&mut self, expected: &Found, next: &str) -> Result<bool, RedisError> {
        let seen = match expected {
            Found::Bytes(bytes) => hex(&Sha1::digest(bytes)),
            _ => String::new(),
        };
        self.ask(|home, connection| {
            let mut call = home.swap.key(&home.server.key);
            call.arg(&seen).arg(next).arg(&home.server.key).invoke::<u8>(connection)
        })
        .map(|done| done == 1)
    }
}

impl Home for RedisHome {
    fn kind(&self) -> HomeKind {
        HomeKind::Redis
    }

    fn place(&self) -> &Path {
        &self.place
    }

    fn read(&mut self, _: Option<&Found>) -> Found {
        let found = self.get().unwrap_or_else(|error| trouble(&error));
        self.down = matches!(found, Found::Down(_));
        found
    }

    fn swap(&mut self, expected: &Found, next: &str) -> Result<Swapped, String> {
        // A swap whose answer was lost may have been done: what stands there says so, and is then in force.
        match self.compare_and_swap(expected, next) {
            Ok(true) => Ok(Swapped::Done),
            Ok(false) => match self.get().unwrap_or_else(|error| trouble(&error)) {
                Found::Bytes(bytes) if bytes == next.as_bytes() => Ok(Swapped::Done),
                found => Ok(Swapped::Overtaken(found)),
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
            let thread = std::thread::Builder::new().name("limits-ear".into());
            // Without a thread for it there is still the polling.
            self.listener = thread.spawn(move || server.listen(&waker)).ok();
        }
    }

    fn poll(&self) -> Duration {
        if self.down { self.poll.min(WHILE_DOWN) } else { self.poll }
    }
}

impl Drop for RedisHome {
    /// The listener ends with the watcher; it is waited for, so that nothing of it outlives the server.
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take().filter(|_| self.waker.is_stopping()) {
            listener.join().ok();
        }
    }
}

impl Server {
    fn connect(&self, patience: Duration) -> Result<Connection, RedisError> {
        let client = Client::open(self.url.as_str())?;
        let connection = client.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(patience))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Hears announcements until the watcher stops, over as many connections as it takes.
    fn listen(&self, waker: &Waker) {
        while !waker.is_stopping() {
            // What is wrong with the server is told where the document is read.
            let _ = self.hear(waker);
            if !waker.is_stopping() {
                std::thread::sleep(EAR);
            }
        }
    }

    fn hear(&self, waker: &Waker) -> Result<(), RedisError> {
        let mut connection = self.connect(PATIENCE)?;
        let mut ear = connection.as_pubsub();
        ear.subscribe(&self.key)?;
        // What was announced before this is found by looking.
        waker.changed();
        ear.set_read_timeout(Some(EAR))?;
        let mut silent = 0;
        while !waker.is_stopping() {
            match ear.get_message() {
                Ok(_) => {
                    waker.changed();
                    silent = 0;
                }
                Err(error) if error.is_timeout() => silent += 1,
                Err(error) => return Err(error),
            }
            if silent >= SILENT {
                ear.set_read_timeout(Some(PATIENCE))?;
                ear.ping::<redis::Value>()?;
                ear.set_read_timeout(Some(EAR))?;
                silent = 0;
            }
        }
        Ok(())
    }
}

/// A connection that may still have an answer to an earlier question in it is of no more use; nor is one
/// to a server that takes no writes any more.
fn is_broken(error: &RedisError) -> bool {
    error.is_io_error()
        || error.is_timeout()
        || error.is_unrecoverable_error()
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

fn trouble(error: &RedisError) -> Found {
    match error.code() {
        Some("WRONGTYPE") => Found::Unreadable("it is not a string".to_owned()),
        _ => Found::Down(error.to_string()),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
