//! The SQL database: SQLite or PostgreSQL, opened, migrated, and spoken to with the same statements.

mod error;
mod health;
mod lock;
mod own;
mod page;
#[cfg(test)]
pub(crate) mod tests;

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection, Executor, Pool, Postgres, Sqlite, SqliteConnection, SqlitePool, Transaction};

use crate::clock::{Clock, Micros};
pub use error::{ConnectError, DbError, OUTAGE};
use health::DbHealth;
pub use lock::DbLock;
use lock::LockQueue;
use own::OwnConnections;
pub use page::{RowCursor, RowPage};

static MIGRATIONS: sqlx::migrate::Migrator = sqlx::migrate!();

/// How long a statement waits for another's write to end (SQLite).
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request waits for a free connection before it fails.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// SQLite has one writer, but readers need not wait for it. 64 callers on two cores did 8,100 queries a
/// second over 1 connection, 10,600 over 4 and 11,700 over 8 (a tenth of them writes; a debug build).
const SQLITE_CONNECTIONS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 12;
/// Each is in a transaction of a few milliseconds, or waits for a lock at most as long as that may be waited for.
const POSTGRES_EXCLUSIVE: u32 = 4;
/// An instance that stalls while it has a lock must not hold up the others for as long as it likes.
const POSTGRES_PATIENCE: &str = "SET idle_in_transaction_session_timeout = '5s'";

/// Pools of connections. Clones share them.
#[derive(Debug, Clone)]
pub enum Db {
    Sqlite(DbPools<Sqlite>),
    Postgres(DbPools<Postgres>),
}

/// What waits for a lock has connections of its own, few and taken in turn: a burst of it
/// would hold every connection otherwise, and nothing else could be read meanwhile.
#[derive(Debug)]
pub struct DbPools<D: sqlx::Database> {
    /// See [`DbPools::reachable`].
    pub all: Pool<D>,
    exclusive: Pool<D>,
    /// Of those that ask for a lock (PostgreSQL).
    turns: LockQueue,
    /// None: there is nothing to gain by it (PostgreSQL), or one connection in all (in memory).
    own: Option<OwnConnections>,
    health: Arc<DbHealth>,
}

/// A transaction; rolled back where it is dropped uncommitted.
#[derive(Debug)]
pub enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// Runs one expression on whichever database is behind a `Db` (its pool) or a `Tx` (its connection),
/// so that each statement is written once: `on_db!(&self.db, pool => query(SQL).execute(pool).await)`.
macro_rules! on_db {
    ($db:expr, $pool:ident => $run:expr) => {
        match $db {
            $crate::db::Db::Sqlite($crate::db::DbPools { all: $pool, .. }) => $run,
            $crate::db::Db::Postgres(pools) => match pools.reachable() {
                Ok($pool) => $run,
                Err(error) => Err(error),
            },
        }
    };
}
macro_rules! on_tx {
    ($tx:expr, $connection:ident => $run:expr) => {
        match $tx {
            $crate::db::Tx::Sqlite(tx) => {
                let $connection = &mut **tx;
                $run
            }
            $crate::db::Tx::Postgres(tx) => {
                let $connection = &mut **tx;
                $run
            }
        }
    };
}
pub(crate) use {on_db, on_tx};

/// The change to WAL, which the first connection to a new file makes, does not wait for another's: of two
/// instances that start at once one is told that the file is locked, and only has to ask again.
async fn connect_sqlite(
    pool: &SqlitePoolOptions,
    options: &SqliteConnectOptions,
) -> Result<SqlitePool, sqlx::Error> {
    const TRIES: u32 = 100;
    const PAUSE: Duration = Duration::from_millis(20);
    for _ in 1..TRIES {
        match pool.clone().connect_with(options.clone()).await {
            Err(sqlx::Error::Database(error))
                if error.code().is_some_and(|code| LOCKED.contains(&&*code)) =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            other => return other,
        }
    }
    pool.clone().connect_with(options.clone()).await
}

/// SQLITE_BUSY, and the same while another connection recovers the log.
const LOCKED: [&str; 2] = ["5", "261"];

impl Db {
    /// Opens the database at `sqlite://path`, `sqlite::memory:` or `postgres://…`, and brings its
    /// tables up to date. A SQLite file that is not there is made, readable by its owner only.
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        match url.split_once(':').map(|(scheme, _)| scheme) {
            Some("sqlite") => Self::open_sqlite(url).await,
            Some("postgres" | "postgresql") => Self::open_postgres(url).await,
            _ => Err(ConnectError::Scheme),
        }
    }

    async fn open_sqlite(url: &str) -> Result<Self, ConnectError> {
        let in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let options = SqliteConnectOptions::from_str(url)
            .map_err(ConnectError::Url)?
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(BUSY_TIMEOUT)
            .foreign_keys(true);
        // A connection was tested when it was given back; in between nothing becomes of a file of ours.
        let mut pool = SqlitePoolOptions::new()
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .after_release(|connection, _| Box::pin(is_clean(connection)));
        if in_memory {
            // The tables live as long as a connection does: one, and it is never let go.
            pool = pool.max_connections(1).min_connections(1).idle_timeout(None).max_lifetime(None);
        } else {
            let path = options.get_filename().to_owned();
            make_private(&path).map_err(|reason| ConnectError::File { path, reason })?;
            pool = pool.max_connections(SQLITE_CONNECTIONS);
        }
        let all = connect_sqlite(&pool, &options).await.map_err(ConnectError::Connect)?;
        // sqlx locks nothing while it migrates SQLite: two instances that start at once would both
        // create the tables. Inside one write transaction the second waits, then finds them made.
        let mut tx = all.begin_with(IMMEDIATE).await.map_err(ConnectError::Connect)?;
        MIGRATIONS.run_direct(None, &mut *tx, false).await?;
        tx.commit().await.map_err(ConnectError::Connect)?;
        if in_memory {
            return Ok(Self::Sqlite(DbPools {
                exclusive: all.clone(),
                turns: LockQueue::default(),
                own: None,
                health: Arc::default(),
                all,
            }));
        }
        let own = Some(OwnConnections::new(&options));
        // What is decided under the lock is on the disk before anybody acts on it: after a power cut a
        // message that went out must still be in the ledger. The rest may lose its last moments.
        let durable = options.synchronous(SqliteSynchronous::Full);
        let exclusive =
            connect_sqlite(&pool.max_connections(1), &durable).await.map_err(ConnectError::Connect)?;
        Ok(Self::Sqlite(DbPools { all, exclusive, turns: LockQueue::default(), own, health: Arc::default() }))
    }

    async fn open_postgres(url: &str) -> Result<Self, ConnectError> {
        let options = PgConnectOptions::from_str(url).map_err(ConnectError::Url)?;
        let pool = |connections, lock_timeout: Duration| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .after_connect(move |connection, _| {
                    Box::pin(async move {
                        connection.execute(POSTGRES_PATIENCE).await?;
                        let patience = format!("SET lock_timeout = {}", lock_timeout.as_millis());
                        connection.execute(sqlx::AssertSqlSafe(patience)).await.map(drop)
                    })
                })
                .connect_with(options.clone())
        };
        let all = pool(POSTGRES_CONNECTIONS, ACQUIRE_TIMEOUT).await.map_err(ConnectError::Connect)?;
        let exclusive = pool(POSTGRES_EXCLUSIVE, lock::PATIENCE).await.map_err(ConnectError::Connect)?;
        MIGRATIONS.run(&all).await?;
        Ok(Self::Postgres(DbPools {
            all,
            exclusive,
            turns: LockQueue::default(),
            own: None,
            health: Arc::default(),
        }))
    }

    /// Begins a transaction that may read and then write on what it read: no other of the same lock, of any
    /// instance, runs until it ends (SQLite: no other of any lock). Waits at most 5 s for its turn in this
    /// process, and 1 s for other instances (SQLite: 5 s). Once it is committed a power cut does not undo it.
    /// Ask nothing of the `Db` itself meanwhile: in memory it has one connection, and this holds it.
    pub async fn begin_exclusive(&self, lock: DbLock) -> Result<Tx, DbError> {
        match self {
            Self::Sqlite(pools) => Ok(Tx::Sqlite(begin_immediate(&pools.exclusive).await?)),
            Self::Postgres(pools) => {
                pools.reachable()?;
                Ok(Tx::Postgres(pools.turns.begin(&pools.exclusive, lock).await?))
            }
        }
    }

    /// Begins a transaction of writes, beside others: for what is lost whole or written whole, and decides
    /// nothing. A power cut may undo it.
    pub async fn begin(&self) -> Result<Tx, DbError> {
        match self {
            Self::Sqlite(pools) => Ok(Tx::Sqlite(begin_immediate(&pools.all).await?)),
            Self::Postgres(pools) => Ok(Tx::Postgres(pools.reachable()?.begin().await?)),
        }
    }

    /// Whether the database answers, for readiness.
    pub async fn ping(&self) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query("SELECT 1").execute(pool).await.map(drop))?;
        Ok(())
    }

    /// The time that several instances agree on: PostgreSQL's own. With SQLite they share a machine, and
    /// where `clock` is none of the system's a test moves it: then it is `clock`'s.
    pub async fn now(&self, clock: &Clock) -> Result<Micros, DbError> {
        match (self, clock) {
            (Self::Postgres(pools), Clock::System) => {
                Ok(Micros(sqlx::query_scalar(NOW).fetch_one(pools.reachable()?).await?))
            }
            _ => Ok(clock.now()),
        }
    }

    /// Lets the connections go once they are idle; SQLite's write-ahead log is folded in.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(pools) => pools.close().await,
            Self::Postgres(pools) => pools.close().await,
        }
    }
}

/// The moment of asking, not that of the transaction's begin.
const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

impl<D: sqlx::Database> Clone for DbPools<D> {
    fn clone(&self) -> Self {
        let (all, exclusive) = (self.all.clone(), self.exclusive.clone());
        let turns = self.turns.clone();
        Self { all, exclusive, turns, own: self.own.clone(), health: Arc::clone(&self.health) }
    }
}

impl<D: sqlx::Database> DbPools<D> {
    /// The connections for everything but what is exclusive; an error at once where the database does not answer,
    /// instead of a wait for a connection that nobody can make.
    pub fn reachable(&self) -> Result<&Pool<D>, sqlx::Error> {
        if self.health.is_reachable() { Ok(&self.all) } else { Err(sqlx::Error::PoolTimedOut) }
    }

    async fn close(&self) {
        self.exclusive.close().await;
        if let Some(own) = &self.own {
            own.close().await;
        }
        self.all.close().await;
    }
}

/// A plain BEGIN takes the write lock at its first write and, where another has written since its first
/// read, fails at once with "database is locked", whatever the time-out.
const IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Begins; where a connection has a transaction open that nobody could end (a COMMIT that failed on a full disk,
/// and its ROLLBACK with it), that is closed and another one opened.
async fn begin_immediate(pool: &SqlitePool) -> Result<Transaction<'static, Sqlite>, sqlx::Error> {
    for _ in 0..SQLITE_CONNECTIONS {
        match pool.begin_with(IMMEDIATE).await {
            Err(error) if is_left_open(&error) => pool.acquire().await?.close_on_drop(),
            other => return other,
        }
    }
    pool.begin_with(IMMEDIATE).await
}

fn is_left_open(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::InvalidSavePointStatement | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(error) => error.message().contains("within a transaction"),
        _ => false,
    }
}

/// Whether a connection that is given back has no transaction open. A rollback may be under way: the answer to a
/// ping comes after it.
async fn is_clean(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// What is read has to be what others committed before the lock was given: under a stricter default of the
/// database it would be what stood there when the lock was asked for.
const READ_COMMITTED: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

impl Tx {
    /// As [`Db::now`].
    pub async fn now(&mut self, clock: &Clock) -> Result<Micros, DbError> {
        match (self, clock) {
            (Self::Postgres(tx), Clock::System) => {
                Ok(Micros(sqlx::query_scalar(NOW).fetch_one(&mut **tx).await?))
            }
            _ => Ok(clock.now()),
        }
    }

    /// Takes one more lock until the transaction ends, under the rules of [`Db::begin_exclusive`]. SQLite has
    /// one writer: whoever began so has it.
    pub async fn lock(&mut self, lock: DbLock) -> Result<(), DbError> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(tx) => lock.take(tx).await,
        }
    }

    pub async fn commit(self) -> Result<(), DbError> {
        match self {
            Self::Sqlite(tx) => tx.commit().await?,
            Self::Postgres(tx) => tx.commit().await?,
        }
        Ok(())
    }
}

/// Makes the file with mode 0600, and the folders over it, where they are not there. SQLite gives its
/// write-ahead log the mode of the file.
fn make_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    match std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(reason) if reason.kind() != std::io::ErrorKind::AlreadyExists => Err(reason),
        _ => Ok(()),
    }
}
