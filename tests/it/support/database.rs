//! A database for one test: SQLite in a folder, or PostgreSQL. Unit tests include this file, too.
//!
//! One PostgreSQL serves all tests of a run. The first test that needs it starts it, and it ends with the process
//! that runs the tests. A test's database in it is a copy of one that was migrated once.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

/// PostgreSQL refuses to run as root; then it runs as "nobody".
const NOBODY: u32 = 65534;
/// Its data need not survive anything.
const SETTINGS: [&str; 5] =
    ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off", "max_connections=1000"];
/// The database that the others are copied from.
const TEMPLATE: &str = "migrated";
/// Runs the command `$@` as long as the process `$0` exists.
const KEEPER: &str = r#""$@" & while [ -d "/proc/$0" ]; do sleep 1; done; kill -QUIT $!; wait; rm -rf "$(readlink -f data)" "$PWD""#;
/// Where its data is, if there is room: ext4 spends more on the files of each new database than all else costs,
/// because it passes over inodes that were freed a moment ago.
const MEMORY: &str = "/dev/shm";
/// Megabytes. It takes a few hundred, most of them its log.
const ROOM: u64 = 2048;

pub struct TestDatabase {
    pub url: String,
    home: DatabaseHome,
}

enum DatabaseHome {
    /// SQLite's; removed with it.
    Folder { _folder: tempfile::TempDir },
    /// The database of this name on the shared PostgreSQL.
    Shared(String),
}

impl TestDatabase {
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("a.db").display());
        Self { url, home: DatabaseHome::Folder { _folder: folder } }
    }

    pub async fn postgres() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut connection = shared_server().await;
        run(&mut connection, format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
        connection.close().await.unwrap();
        Self { url: shared_url(&name), home: DatabaseHome::Shared(name) }
    }
}

impl Drop for TestDatabase {
    /// Each takes 8 MB, and a run makes hundreds.
    fn drop(&mut self) {
        if let DatabaseHome::Shared(name) = &self.home {
            let folder = shared_folder();
            let mut dropdb = command(program("dropdb"), &folder);
            let _ = dropdb.args(["--force", "-U", "gatehouse", "-h"]).arg(&folder).arg(name).status();
        }
    }
}

/// Connects to the server of this test run, and starts it if necessary.
#[expect(clippy::zombie_processes, reason = "it outlives the test that starts it")]
async fn shared_server() -> PgConnection {
    let folder = shared_folder();
    std::fs::create_dir_all(&folder).unwrap();
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    if let Ok(connection) = PgConnection::connect(&shared_url("postgres")).await {
        return connection;
    }
    keep_in_memory(&folder);
    init(&folder);
    let mut keeper = command("sh", &folder);
    keeper.args(["-c", KEEPER, &parent_id().to_string()]).arg(program("postgres"));
    keeper.args(["-D", "data", "-c", "listen_addresses=", "-c"]);
    keeper.arg(format!("unix_socket_directories={}", folder.display()));
    keeper.args(settings()).process_group(0).spawn().unwrap();
    for _ in 0..2000 {
        if let Ok(mut connection) = PgConnection::connect(&shared_url("postgres")).await {
            run(&mut connection, format!("CREATE DATABASE {TEMPLATE}")).await;
            super::migrate(&shared_url(TEMPLATE)).await;
            return connection;
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // a process that starts has no clock to advance
    }
    panic!("no PostgreSQL in {}", folder.display());
}

/// Each run of tests has its own.
fn shared_folder() -> PathBuf {
    std::env::temp_dir().join(format!("gatehouse-test-postgres-{}", parent_id()))
}

fn shared_url(database: &str) -> String {
    format!("postgres://gatehouse@localhost/{database}?host={}", shared_folder().display())
}

/// Links the folder's `data`, which does not exist yet, to memory.
fn keep_in_memory(folder: &Path) {
    let asked = Command::new("df").args(["--output=avail", "--block-size=1M", MEMORY]).output();
    let said = asked.map(|df| String::from_utf8_lossy(&df.stdout).into_owned()).unwrap_or_default();
    let free = said.lines().last().and_then(|line| line.trim().parse::<u64>().ok());
    if free.is_none_or(|free| free < ROOM) {
        return;
    }
    let data = Path::new(MEMORY).join(folder.file_name().unwrap());
    if std::fs::create_dir(&data).is_err() {
        return;
    }
    if std::fs::metadata(&data).unwrap().uid() == 0 {
        chown(&data, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    symlink(&data, folder.join("data")).unwrap();
}

async fn run(connection: &mut PgConnection, sql: String) {
    connection.execute(AssertSqlSafe(sql)).await.unwrap();
}

/// The folder belongs to the user that PostgreSQL runs as.
pub fn own(folder: &Path) {
    let root = std::fs::metadata(folder).unwrap().uid() == 0;
    if root {
        chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

/// A cluster in the folder's `data` (this takes 0.7 s).
pub fn init(folder: &Path) {
    own(folder);
    let mut initdb = command(program("initdb"), folder);
    initdb.args(["-D", "data", "-U", "gatehouse", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
    let made = initdb.status().unwrap();
    assert!(made.success(), "initdb: {made}");
}

pub fn settings() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(|setting| ["-c", setting])
}

/// A command that runs in the folder as the folder's owner.
pub fn command(name: impl AsRef<std::ffi::OsStr>, folder: &Path) -> Command {
    let mut command = Command::new(name);
    let owner = std::fs::metadata(folder).unwrap().uid();
    if owner == NOBODY {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// Debian keeps them outside the PATH, in a folder for each version.
pub fn program(name: &str) -> PathBuf {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<_> = installed.map(|version| version.path().join("bin").join(name)).collect();
    found.retain(|path| path.exists());
    found.sort();
    found.pop().unwrap_or_else(|| name.into())
}
