//! A private PostgreSQL on a free port, with a cluster of its own (initdb takes 0.7 s), stopped when dropped.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::{Connection, Executor, PgConnection};

use super::ports::free_port;

/// PostgreSQL refuses to run as root: then it runs as "nobody".
const NOBODY: u32 = 65534;
/// Between looking for a free port and binding it another test may have taken it.
const TRIES: usize = 5;

pub struct PostgresServer {
    process: Child,
    pub port: u16,
    user: Option<u32>,
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

    /// None if it ended before it answered.
    async fn try_start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let user = (std::fs::metadata(folder.path()).unwrap().uid() == 0).then_some(NOBODY);
        chown(folder.path(), user, user).unwrap();
        let made = command("initdb", user, &folder)
            .args(["-D", "data", "-U", "gatehouse", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"])
            .status()
            .unwrap();
        assert!(made.success(), "initdb: {made}");
        let port = free_port();
        let mut server = Self { process: serve(port, user, &folder), port, user, folder };
        server.answers().await.then_some(server)
    }

    /// At once, without a word to its clients.
    pub fn stop(&mut self) {
        // Unlike after a SIGKILL its shared memory goes with it.
        let _ = Command::new("kill").args(["-QUIT", &self.process.id().to_string()]).status();
        let _ = self.process.wait();
    }

    /// The same once more, with what was in it.
    pub async fn restart(&mut self) {
        self.process = serve(self.port, self.user, &self.folder);
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

    /// An empty database; its URL.
    pub async fn database(&self, name: &str) -> String {
        let mut connection = PgConnection::connect(&self.url("postgres")).await.unwrap();
        connection.execute(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        connection.close().await.unwrap();
        self.url(name)
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn serve(port: u16, user: Option<u32>, folder: &tempfile::TempDir) -> Child {
    let settings =
        ["fsync=off", "listen_addresses=127.0.0.1", "unix_socket_directories=", "max_connections=200"];
    command("postgres", user, folder)
        .args(["-D", "data", "-p", &port.to_string()])
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .spawn()
        .unwrap()
}

fn command(name: &str, user: Option<u32>, folder: &tempfile::TempDir) -> Command {
    let mut command = Command::new(program(name));
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    // Its own working directory may be closed to that user.
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Debian keeps them off the PATH, in a folder for each version.
fn program(name: &str) -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = installed.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}
