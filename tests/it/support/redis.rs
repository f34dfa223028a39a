//! A private redis-server on a free port, killed when dropped.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::ports::free_port;
use super::steered::SteeredClock;

/// Waiting for other processes ends after this many looks, a minute or more.
const MOST_LOOKS: u32 = 6000;

pub struct RedisServer {
    process: Child,
    pub port: u16,
}

impl RedisServer {
    pub fn start() -> Self {
        Self::start_at(free_port(), |_| {})
    }

    /// Uses this clock.
    pub fn steered(clock: &SteeredClock) -> Self {
        Self::start_at(free_port(), |command| clock.steer(command))
    }

    pub fn start_at(port: u16, prepare: impl Fn(&mut Command)) -> Self {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no", "--dir", "/tmp", "--loglevel", "warning"]);
        // A clock that a test moves by an hour would end the history of writes, which is what a loss looks like.
        command.args(["--repl-backlog-ttl", "0"]);
        // On some machines its allocator's thread spins: a seventh of what all tests compute.
        command.args(["--jemalloc-bg-thread", "no"]);
        prepare(&mut command);
        Self::spawn(command, port)
    }

    /// A Sentinel with this file of settings, which it rewrites.
    pub fn sentinel(port: u16, file: &Path) -> Self {
        let mut command = Command::new("redis-server");
        command.arg(file).args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--sentinel"]);
        Self::spawn(command, port)
    }

    fn spawn(mut command: Command, port: u16) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("redis-server (Debian: apt-get install redis-server)");
        let server = Self { process, port };
        server.wait_until_up();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).unwrap()
    }

    pub fn connection(&self) -> redis::Connection {
        self.client().get_connection_with_timeout(Duration::from_secs(60)).unwrap()
    }

    /// `kill -9`, without notice to its clients.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// Calls of each command so far, from `INFO commandstats`, scripts' own calls included.
    pub fn calls(&self, command: &str) -> u64 {
        let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut self.connection()).unwrap();
        let prefix = format!("cmdstat_{command}:calls=");
        let line = stats.lines().find_map(|line| line.strip_prefix(&prefix));
        line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
    }

    pub fn set(&self, name: &str, value: &str) {
        redis::cmd("CONFIG").arg("SET").arg(name).arg(value).query::<()>(&mut self.connection()).unwrap();
    }

    /// Forgets all that it may by that policy, as it does when its memory is full.
    pub fn evict(&self, policy: &str) {
        self.set("maxmemory-policy", policy);
        self.set("maxmemory", "1");
        let mut link = self.connection();
        until("all that expires is evicted", || {
            let kept: String = redis::cmd("INFO").arg("keyspace").query(&mut link).unwrap();
            !kept.contains("db0:") || kept.contains("expires=0")
        });
        self.set("maxmemory", "0");
    }

    /// A line of `INFO replication`. Sentinels close all connections of a server whose role they change, so that
    /// it is asked again.
    pub fn replication(&self, name: &str) -> String {
        let ask = || {
            let mut link = self.client().get_connection_with_timeout(Duration::from_secs(60))?;
            redis::cmd("INFO").arg("replication").query::<String>(&mut link)
        };
        let info = (0..20).find_map(|_| ask().ok()).expect("an answer to INFO");
        let prefix = format!("{name}:");
        info.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default().to_owned()
    }

    fn wait_until_up(&self) {
        for _ in 0..2000 {
            let answer = self.client().get_connection_with_timeout(Duration::from_millis(200));
            if answer.and_then(|mut connection| redis::cmd("PING").query::<()>(&mut connection)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5)); // a process that starts has no clock to advance
        }
        panic!("redis-server did not come up on port {}", self.port);
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Asks other processes until they are ready.
pub fn until(what: &str, mut ready: impl FnMut() -> bool) {
    for _ in 0..MOST_LOOKS {
        if ready() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10)); // other processes have no clock to advance
    }
    panic!("waited too long until {what}");
}
