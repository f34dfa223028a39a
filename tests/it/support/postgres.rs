//! A private PostgreSQL on a free port, for tests that stop and start it; stopped when dropped.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};

use super::database::{command, init, own, program, settings};
use super::ports::free_port;

/// Another test may take a free port before it is bound.
const TRIES: usize = 5;

pub struct PostgresServer {
    process: Child,
    pub port: u16,
    folder: tempfile::TempDir,
}

impl PostgresServer {
    pub async fn start() -> Self {
        for _ in 1..TRIES {
            if let Some(server) = Self::try_start().await {
                return server;
            }
        }
        Self::try_start().await.expect("a PostgreSQL that comes up")
    }

    /// A standby of this one: it follows what is written here, and takes no writes until it is promoted.
    pub async fn standby(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        own(folder.path());
        let mut copy = command(program("pg_basebackup"), folder.path());
        copy.args(["-D", "data", "-R", "-c", "fast", "-h", "127.0.0.1", "-U", "gatehouse", "-p"]);
        let copied = copy.arg(self.port.to_string()).status().unwrap();
        assert!(copied.success(), "pg_basebackup: {copied}");
        let port = free_port();
        let mut server = Self { process: serve(port, folder.path()), port, folder };
        assert!(server.answers().await, "a standby that comes up");
        server
    }

    /// Runs one statement.
    pub async fn run(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.unwrap();
        connection.close().await.unwrap();
    }

    /// None if it ended before it answered.
    async fn try_start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        init(folder.path());
        let port = free_port();
        let mut server = Self { process: serve(port, folder.path()), port, folder };
        server.answers().await.then_some(server)
    }

    /// Immediately, without notice to its clients.
    pub fn stop(&mut self) {
        // Unlike SIGKILL this also frees its shared memory.
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }

    /// Starts it again with its data.
    pub async fn restart(&mut self) {
        self.process = serve(self.port, self.folder.path());
        assert!(self.answers().await, "a PostgreSQL that comes back");
    }

    async fn answers(&mut self) -> bool {
        for _ in 0..2000 {
            if let Ok(connection) = PgConnection::connect(&self.url("postgres")).await {
                connection.close().await.unwrap();
                return true;
            }
            if self.process.try_wait().unwrap().is_some() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // a process that starts has no clock to advance
        }
        false
    }

    /// The URL of a database on it.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://gatehouse@127.0.0.1:{}/{database}", self.port)
    }

    /// An empty database; returns its URL.
    pub async fn database(&self, name: &str) -> String {
        self.run(&format!("CREATE DATABASE {name}")).await;
        self.url(name)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A PgBouncer in front of a PostgreSQL.
pub struct PgBouncer {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl PgBouncer {
    pub async fn start(server: &PostgresServer, pool_mode: &str) -> Self {
        for _ in 1..TRIES {
            if let Some(bouncer) = Self::try_start(server, pool_mode).await {
                return bouncer;
            }
        }
        Self::try_start(server, pool_mode).await.expect("a PgBouncer that comes up")
    }

    async fn try_start(server: &PostgresServer, pool_mode: &str) -> Option<Self> {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=gatehouse\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}
            unix_socket_dir =\nauth_type = any\nmax_db_connections = 30\npool_mode = {pool_mode}
            ignore_startup_parameters = extra_float_digits\n",
            server.port
        );
        // A line that begins with a space continues nothing, but is none either.
        let settings: String = settings.lines().map(|line| format!("{}\n", line.trim())).collect();
        std::fs::write(folder.path().join("pgbouncer.ini"), settings).unwrap();
        own(folder.path());
        let mut process = command("/usr/sbin/pgbouncer", folder.path()).arg("pgbouncer.ini").spawn().unwrap();
        for _ in 0..2000 {
            if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Some(Self { process, port, _folder: folder });
            }
            if process.try_wait().unwrap().is_some() {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(10)).await; // a process that starts has no clock to advance
        }
        None
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://gatehouse@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn serve(port: u16, folder: &Path) -> Child {
    let address = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="];
    let mut server = command(program("postgres"), folder);
    server.args(["-D", "data", "-p", &port.to_string()]).args(address).args(settings());
    server.spawn().unwrap()
}
