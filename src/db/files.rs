//! Whether SQLite's files are still those that this process has open. If one is deleted or replaced under a running
//! server, what is written goes to a file that nobody can open again, and every statement succeeds.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, SqliteConnection, query};
use tokio::sync::Mutex;

/// The database, its write-ahead log, and the index of that.
#[derive(Debug)]
pub struct DatabaseFiles {
    opened: Vec<(PathBuf, FileId)>,
    /// Never used again: SQLite deletes its log when the last connection is closed, and those of pools come and go.
    kept_open: Mutex<Option<SqliteConnection>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let there = std::fs::metadata(path).ok()?;
        Some(Self { device: there.dev(), inode: there.ino() })
    }
}

impl DatabaseFiles {
    pub async fn open(options: &SqliteConnectOptions) -> Result<Self, sqlx::Error> {
        let mut connection = options.connect().await?;
        // Opens the log. From here on it stays.
        query("SELECT COUNT(*) FROM sqlite_schema").execute(&mut connection).await?;
        let path = options.get_filename();
        // SQLite follows a link, and keeps the log beside its target.
        let target = std::fs::canonicalize(path)?;
        let beside = |ending: &str| {
            let mut name = target.clone().into_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        let paths = [path.to_owned(), beside("-wal"), beside("-shm")];
        let opened = paths.into_iter().filter_map(|path| FileId::of(&path).map(|id| (path, id))).collect();
        Ok(Self { opened, kept_open: Mutex::new(Some(connection)) })
    }

    /// The first that was deleted or replaced; None while all are in place.
    pub fn gone(&self) -> Option<&Path> {
        let moved = self.opened.iter().find(|(path, id)| FileId::of(path) != Some(*id));
        moved.map(|(path, _)| path.as_path())
    }

    /// After all others: SQLite then merges the log into the database, if that is still the same.
    pub async fn close(&self) {
        if let Some(connection) = self.kept_open.lock().await.take() {
            // The result does not matter.
            let _ = connection.close().await;
        }
    }
}
