//! The SQL database: SQLite or PostgreSQL, with the same statements for both.

mod files;
mod health;
mod instances;
mod key_check;
mod own;
mod session;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{
    ConnectOptions, Connection, Pool, Postgres, SqlStr, Sqlite, SqliteConnection, SqlitePool, Transaction,
};
use tokio::sync::{Mutex, MutexGuard};

use self::files::DatabaseFiles;
use self::health::DbHealth;
pub use self::instances::{GONE_AFTER, KNOWS, RENEWED_WITHIN, WaitingInstance};
pub use self::key_check::{CountedBefore, KeyCheck};
use self::own::OwnConnections;
use self::session::Durability;
use crate::clock::{Clock, Micros};
use crate::outage::DependencyStatus;

/// migrations/, in the binary (build.rs): a file for both databases, or one for each, named for its database.
static MIGRATIONS: &[(&str, &str)] = &include!(concat!(env!("OUT_DIR"), "/migrations.rs"));

/// The migrations for one database.
fn migrations(database: &str) -> Migrator {
    let of_both_or = |name: &str| name.split_once('.').is_none_or(|(_, only)| only == database);
    let migration = |(name, sql): &(&'static str, &'static str)| {
        let (version, description) = name.split_once('_').expect("a version, then what it is for");
        let version = version.parse().expect("a number");
        let description = Cow::Owned(description.replace('_', " "));
        Migration::new(version, description, MigrationType::Simple, SqlStr::from_static(sql), false)
    };
    let files = MIGRATIONS.iter().filter(|(name, _)| of_both_or(name));
    Migrator::with_migrations(files.map(migration).collect())
}

/// How long a statement waits for another write to end (SQLite).
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a request waits for a free connection before it fails.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// SQLite has one writer, but readers need not wait for it. 64 callers on two cores made 8,100 queries a
/// second over 1 connection, 10,600 over 4 and 11,700 over 8 (a tenth of them writes; a debug build).
const SQLITE_CONNECTIONS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 12;
/// Each is in a transaction of a few milliseconds, or waits for a lock with a bounded wait.
const POSTGRES_EXCLUSIVE: u32 = 4;

/// Pools of connections. Clones share them.
#[derive(Debug, Clone)]
pub enum Db {
    Sqlite(Arc<DbPools<Sqlite>>),
    Postgres(Arc<DbPools<Postgres>>),
}

/// Transactions that wait for a lock have connections of their own, few and used in turn: otherwise a burst
/// of them would take every connection, and nothing else could be read.
#[derive(Debug)]
pub struct DbPools<D: sqlx::Database> {
    /// See [`DbPools::reachable`].
    pub all: Pool<D>,
    exclusive: Pool<D>,
    /// The turns of the locks: only one caller in this process asks for a connection with each at a time. Otherwise a
    /// burst for one number or account would be in front of everybody else, or have every connection while its lock
    /// is stuck.
    turns: Box<[Mutex<()>]>,
    /// Connections of one thread each; None for PostgreSQL, which gains nothing by it, and in memory, where there is
    /// only one connection.
    own: Option<OwnConnections>,
    /// The files; None for PostgreSQL and in memory.
    files: Option<DatabaseFiles>,
    health: DbHealth,
}

/// A transaction; rolled back if it is dropped uncommitted.
#[derive(Debug)]
pub enum Tx {
    Sqlite(Transaction<'static, Sqlite>),
    Postgres(Transaction<'static, Postgres>),
}

/// The first connection to a new file changes it to WAL, and that change does not wait for another
/// connection's: if two instances start at once, one is told that the file is locked, and only has to try
/// again.
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
    /// Opens the database at `sqlite://path`, `sqlite::memory:` or `postgres://…`, and migrates it. A missing
    /// SQLite file is created, readable only by its owner.
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
        // A connection was tested when it was returned, and a file does not change in between.
        let mut pool = SqlitePoolOptions::new()
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .after_release(|connection, _| Box::pin(is_clean(connection)));
        if in_memory {
            // The tables live as long as a connection: there is exactly one, which is never closed.
            pool = pool.max_connections(1).min_connections(1).idle_timeout(None).max_lifetime(None);
        } else {
            let path = options.get_filename().to_owned();
            make_private(&path).map_err(|reason| ConnectError::File { path, reason })?;
            pool = pool.max_connections(SQLITE_CONNECTIONS);
        }
        let all = connect_sqlite(&pool, &options).await.map_err(ConnectError::Connect)?;
        // sqlx takes no lock while it migrates SQLite: two instances that start at once would both create the
        // tables. Inside one write transaction the second waits, then finds them.
        let mut tx = all.begin_with(IMMEDIATE).await.map_err(ConnectError::Connect)?;
        migrations("sqlite").run_direct(None, &mut *tx, false).await?;
        tx.commit().await.map_err(ConnectError::Connect)?;
        if in_memory {
            return Ok(Self::Sqlite(DbPools::new(all.clone(), all, None, None)));
        }
        let own = Some(OwnConnections::new(&options));
        let files = Some(DatabaseFiles::open(&options).await.map_err(ConnectError::Connect)?);
        // What is decided under the lock is on disk before anybody acts on it: after a power failure a sent
        // message must still be in the ledger. Other writes may lose the last moments.
        let durable = options.synchronous(SqliteSynchronous::Full);
        let exclusive =
            connect_sqlite(&pool.max_connections(1), &durable).await.map_err(ConnectError::Connect)?;
        Ok(Self::Sqlite(DbPools::new(all, exclusive, own, files)))
    }

    async fn open_postgres(url: &str) -> Result<Self, ConnectError> {
        let options = PgConnectOptions::from_str(url).map_err(ConnectError::Url)?;
        // A connection is tested once it is known to be young enough: the server of an old one may not answer at all.
        let pool = |connections, lock_timeout, durability| {
            PgPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(ACQUIRE_TIMEOUT)
                .test_before_acquire(false)
                .after_connect(move |session, _| Box::pin(session::set_up(session, lock_timeout, durability)))
                .before_acquire(|session, metadata| Box::pin(session::is_usable(session, metadata)))
                .after_release(|_, metadata| Box::pin(async move { Ok(session::is_trusted(metadata)) }))
                .connect_with(options.clone())
        };
        let all = match pool(POSTGRES_CONNECTIONS, ACQUIRE_TIMEOUT, Durability::AsConfigured).await {
            Ok(all) => all,
            Err(error) => return Err(unreachable(&options, error).await),
        };
        let exclusive = pool(POSTGRES_EXCLUSIVE, LOCK_PATIENCE, Durability::Durable);
        let exclusive = exclusive.await.map_err(ConnectError::Connect)?;
        let (mut one, mut other) = (
            all.acquire().await.map_err(ConnectError::Connect)?,
            exclusive.acquire().await.map_err(ConnectError::Connect)?,
        );
        if !session::are_kept(&mut one, &mut other).await.map_err(ConnectError::Connect)? {
            return Err(ConnectError::Pooler);
        }
        drop((one, other));
        let mut migrating = all.acquire().await.map_err(ConnectError::Connect)?;
        session::set_up_to_migrate(&mut migrating).await.map_err(ConnectError::Connect)?;
        migrations("postgres").run_direct(None, &mut *migrating, false).await?;
        migrating.close().await.map_err(ConnectError::Connect)?;
        Ok(Self::Postgres(DbPools::new(all, exclusive, None, None)))
    }

    /// Begins a transaction that may read, and write based on what it read: no other transaction with the
    /// same lock, of any instance, runs until it ends (SQLite: no other with any lock). Waits at most 5 s for
    /// its turn among those of this process with the same lock, 5 s for a connection, and 1 s for other
    /// instances (SQLite: 5 s for other processes). Once committed it survives a power failure. Do not use the
    /// `Db` itself meanwhile: in memory it has one connection, which this transaction holds.
    pub async fn begin_exclusive(&self, lock: DbLock) -> Result<Tx, DbError> {
        match self {
            Self::Sqlite(pools) => {
                pools.reachable()?;
                let _asking = pools.turn(lock).await?;
                Ok(Tx::Sqlite(traced!("sqlite", begin_immediate(&pools.exclusive).await)?))
            }
            Self::Postgres(pools) => {
                pools.reachable()?;
                Ok(Tx::Postgres(traced!("postgresql", pools.begin_with(lock).await)?))
            }
        }
    }

    /// Begins a transaction of writes that may run beside others: for writes that must be atomic but decide
    /// nothing. A power failure may undo it.
    pub async fn begin(&self) -> Result<Tx, DbError> {
        match self {
            Self::Sqlite(pools) => {
                let pool = pools.reachable()?;
                Ok(Tx::Sqlite(traced!("sqlite", begin_immediate(pool).await)?))
            }
            Self::Postgres(pools) => {
                let pool = pools.reachable()?;
                Ok(Tx::Postgres(traced!("postgresql", pool.begin().await)?))
            }
        }
    }

    pub async fn ping(&self) -> Result<(), DbError> {
        on_db!(self, pool => sqlx::query("SELECT 1").execute(pool).await.map(drop))?;
        Ok(())
    }

    /// The time on which several instances agree: PostgreSQL's own. With SQLite they share a machine, so it
    /// is `clock`'s, which a test may move.
    pub async fn now(&self, clock: &Clock) -> Result<Micros, DbError> {
        match (self, clock) {
            (Self::Postgres(pools), Clock::System) => {
                Ok(Micros(sqlx::query_scalar(NOW).fetch_one(pools.reachable()?).await?))
            }
            _ => Ok(clock.now()),
        }
    }

    /// Closes the connections when they are idle; SQLite's write-ahead log is merged into the file.
    pub async fn close(&self) {
        match self {
            Self::Sqlite(pools) => pools.close().await,
            Self::Postgres(pools) => pools.close().await,
        }
    }
}

/// The time of the call, not of the start of the transaction.
const NOW: &str = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

impl<D: sqlx::Database> DbPools<D> {
    fn new(
        all: Pool<D>,
        exclusive: Pool<D>,
        own: Option<OwnConnections>,
        files: Option<DatabaseFiles>,
    ) -> Arc<Self> {
        let turns = (0..TURNS).map(|_| Mutex::default()).collect();
        Arc::new(Self { all, exclusive, turns, own, files, health: DbHealth::default() })
    }

    /// The connections for everything except exclusive transactions. Returns an error immediately if the
    /// database does not answer, instead of waiting for a connection that cannot be made.
    pub fn reachable(&self) -> Result<&Pool<D>, sqlx::Error> {
        if self.health.is_reachable() { Ok(&self.all) } else { Err(sqlx::Error::PoolTimedOut) }
    }

    /// Until it is dropped, nobody else in this process asks for a connection with that lock.
    async fn turn(&self, lock: DbLock) -> Result<MutexGuard<'_, ()>, sqlx::Error> {
        let turn = self.turns[lock.0 as u64 as usize % TURNS].lock();
        tokio::time::timeout(ACQUIRE_TIMEOUT, turn).await.map_err(|_| sqlx::Error::PoolTimedOut)
    }

    async fn close(&self) {
        self.exclusive.close().await;
        if let Some(own) = &self.own {
            own.close().await;
        }
        self.all.close().await;
        if let Some(files) = &self.files {
            files.close().await;
        }
    }
}

/// A plain BEGIN takes the write lock at its first write. If another connection has written since its first
/// read, it fails immediately with "database is locked", whatever the timeout.
const IMMEDIATE: &str = "BEGIN IMMEDIATE";

/// Begins a transaction. If a connection has an open transaction that could not be ended (a COMMIT that
/// failed on a full disk, and its ROLLBACK, too), closes it and uses another one.
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

/// Whether a returned connection has no open transaction. A rollback may be in progress: the answer to a ping
/// comes after it.
async fn is_clean(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    if connection.is_in_transaction() {
        connection.ping().await?;
    }
    Ok(!connection.is_in_transaction())
}

/// Why no connection can be made, with the server's address. A pool tries again until its time is up, and
/// then says only that; one more attempt says why.
async fn unreachable(options: &PgConnectOptions, error: sqlx::Error) -> ConnectError {
    let error = match error {
        sqlx::Error::PoolTimedOut => {
            match tokio::time::timeout(ACQUIRE_TIMEOUT, try_session(options)).await {
                Ok(Err(reason)) => reason,
                Ok(Ok(())) | Err(_) => error,
            }
        }
        other => other,
    };
    let reason = reason_of(&error);
    let server = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    };
    ConnectError::Unreachable { server, reason }
}

fn reason_of(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(reason) if reason.kind() == std::io::ErrorKind::ConnectionRefused => {
            "connection refused".to_owned()
        }
        sqlx::Error::Io(reason) => reason.to_string(),
        sqlx::Error::Database(reason) => reason.message().to_owned(),
        sqlx::Error::Configuration(reason) => reason.to_string(),
        sqlx::Error::PoolTimedOut => "no answer".to_owned(),
        other => other.to_string(),
    }
}

async fn try_session(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    let mut session = options.connect().await?;
    session::set_up(&mut session, ACQUIRE_TIMEOUT, Durability::AsConfigured).await
}

impl Tx {
    pub async fn now(&mut self, clock: &Clock) -> Result<Micros, DbError> {
        match (self, clock) {
            (Self::Postgres(tx), Clock::System) => {
                Ok(Micros(sqlx::query_scalar(NOW).fetch_one(&mut **tx).await?))
            }
            _ => Ok(clock.now()),
        }
    }

    /// Takes one more lock until the transaction ends, under the rules of [`Db::begin_exclusive`]. SQLite has
    /// one writer, so such a transaction has every lock already.
    pub async fn lock(&mut self, lock: DbLock) -> Result<(), DbError> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(tx) => lock.take(tx).await,
        }
    }

    pub async fn commit(self) -> Result<(), DbError> {
        match self {
            Self::Sqlite(tx) => traced!("sqlite", tx.commit().await)?,
            Self::Postgres(tx) => traced!("postgresql", tx.commit().await)?,
        }
        Ok(())
    }
}

/// Creates the file with mode 0600, and its folders, if they do not exist. SQLite gives its write-ahead log
/// the mode of the file.
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

// How a statement is run on either database.

/// Runs one expression on the database behind a `Db` (its pool) or a `Tx` (its connection), so that each
/// statement is written once: `on_db!(&self.db, pool => query(SQL).execute(pool).await)`.
macro_rules! on_db {
    ($db:expr, $pool:ident => $run:expr) => {
        match $db {
            $crate::db::Db::Sqlite(pools) => match pools.reachable() {
                Ok($pool) => $crate::db::traced!("sqlite", $run),
                Err(error) => Err(error),
            },
            $crate::db::Db::Postgres(pools) => match pools.reachable() {
                Ok($pool) => $crate::db::traced!("postgresql", $run),
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
                $crate::db::traced!("sqlite", $run)
            }
            $crate::db::Tx::Postgres(tx) => {
                let $connection = &mut **tx;
                $crate::db::traced!("postgresql", $run)
            }
        }
    };
}
/// Runs a statement and returns how many rows it changed: `execute!(&self.db => query(SQL).bind(id))`; in a transaction,
/// `execute!(in &mut tx => query(SQL).bind(id))`.
macro_rules! execute {
    (in $tx:expr => $query:expr) => {
        $crate::db::on_tx!($tx, connection => $query.execute(connection).await.map(|done| done.rows_affected()))
    };
    ($db:expr => $query:expr) => {
        $crate::db::on_db!($db, pool => $query.execute(pool).await.map(|done| done.rows_affected()))
    };
}
/// In a span that names this line, if it is traced.
macro_rules! traced {
    ($system:literal, $run:expr) => {
        tracing::Instrument::instrument(async { $run }, $crate::spans::sql($system, file!(), line!())).await
    };
}
/// Reads a type from a row of either database. sqlx derives the same, but its macros have both drivers compiled a second
/// time, for the compiler: a quarter of a first build.
macro_rules! from_row {
    ($type:ty, $row:ident => $value:expr) => {
        impl sqlx::FromRow<'_, sqlx::sqlite::SqliteRow> for $type {
            fn from_row($row: &sqlx::sqlite::SqliteRow) -> Result<Self, sqlx::Error> {
                Ok($value)
            }
        }

        impl sqlx::FromRow<'_, sqlx::postgres::PgRow> for $type {
            fn from_row($row: &sqlx::postgres::PgRow) -> Result<Self, sqlx::Error> {
                Ok($value)
            }
        }
    };
}
/// Reads a type from a column of text.
macro_rules! text_column {
    ($type:ty, $text:ident => $value:expr) => {
        impl<DB: sqlx::Database> sqlx::Type<DB> for $type
        where
            String: sqlx::Type<DB>,
        {
            fn type_info() -> DB::TypeInfo {
                <String as sqlx::Type<DB>>::type_info()
            }

            fn compatible(column: &DB::TypeInfo) -> bool {
                <String as sqlx::Type<DB>>::compatible(column)
            }
        }

        impl<'r, DB: sqlx::Database> sqlx::Decode<'r, DB> for $type
        where
            &'r str: sqlx::Decode<'r, DB>,
        {
            fn decode(value: DB::ValueRef<'r>) -> Result<Self, sqlx::error::BoxDynError> {
                let $text = <&str as sqlx::Decode<'r, DB>>::decode(value)?;
                Ok($value)
            }
        }
    };
}
/// The id of a row: 128 random bits, so that it reveals no count and cannot be guessed. Written as 32 lower-case
/// hexadecimal digits, and parsed from nothing else: one id has one text.
macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            pub fn random(entropy: &$crate::entropy::Entropy) -> Self {
                Self(entropy.bytes())
            }

            pub fn parse(text: &str) -> Option<Self> {
                let digits = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
                let number = digits.then(|| u128::from_str_radix(text, 16).ok())??;
                Some(Self(number.to_be_bytes()))
            }

            pub const fn as_bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl From<[u8; 16]> for $name {
            fn from(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }
        }

        $crate::db::text_column!($name, text => Self::parse(text).ok_or("an id is not 32 hexadecimal digits")?);

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{:032x}", u128::from_be_bytes(self.0))
            }
        }
    };
}
pub(crate) use {execute, from_row, on_db, on_tx, random_id, text_column, traced};

// Errors of a database: on opening it, and on using it.

/// A statement failed, or found no connection in time. The database's message is only for the log.
#[derive(Debug, thiserror::Error)]
#[error("database: {0}")]
pub struct DbError(sqlx::Error);

/// The state of the database, from failed statements and probes. A process has one.
pub static OUTAGE: DependencyStatus =
    DependencyStatus::new("the database", "gatehouse_database_up", "gatehouse_database_errors_total", 1);

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        if is_outage(&error) {
            OUTAGE.failed(&error);
        }
        if session::is_of_wrong_server(&error) {
            session::distrust();
        }
        Self(error)
    }
}

/// Whether the database is broken, rather than only refusing this statement.
fn is_outage(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(error) => error.code().unwrap_or_default(),
        sqlx::Error::RowNotFound | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => return false,
        _ => return true,
    };
    // PostgreSQL's codes have five characters, SQLite's are numbers of at most four digits.
    match code.parse::<u32>() {
        // The low byte is the kind: READONLY, IOERR, CORRUPT, FULL, CANTOPEN.
        Ok(number) if code.len() < 5 => [8, 10, 11, 13, 14].contains(&(number & 0xFF)),
        // Connection failure, no resources, operator intervention, system error; read-only standby.
        _ => ["08", "53", "57P", "58", "25006"].iter().any(|class| code.starts_with(class)),
    }
}

/// Why a database cannot be opened. The URL is not included, because it may contain a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("database.url: must begin with sqlite: or postgres:")]
    Scheme,
    #[error("database.url: {0}")]
    Url(sqlx::Error),
    #[error("database.url: cannot create {path}: {reason}")]
    File { path: PathBuf, reason: std::io::Error },
    #[error("database.url: cannot connect: {0}")]
    Connect(sqlx::Error),
    #[error(
        "database.url: a pooler between gives each transaction another session of PostgreSQL; set pool_mode = session in PgBouncer, or connect to PostgreSQL itself"
    )]
    Pooler,
    #[error("database.url: cannot connect to PostgreSQL at {server}: {reason}")]
    Unreachable { server: String, reason: String },
    #[error(
        "database.url: this database was migrated by a newer Gatehouse (migration {found}; this version knows {known}); run that version, or restore an older backup"
    )]
    Newer { found: i64, known: i64 },
    #[error("database migration: {0}")]
    Migrate(MigrateError),
}

impl From<MigrateError> for ConnectError {
    fn from(error: MigrateError) -> Self {
        let known = migrations("sqlite").iter().map(|migration| migration.version).max().unwrap_or_default();
        match error {
            MigrateError::VersionMissing(found) if found > known => Self::Newer { found, known },
            other => Self::Migrate(other),
        }
    }
}

impl DbError {
    /// A row with the same key exists already.
    pub fn is_unique_violation(&self) -> bool {
        matches!(&self.0, sqlx::Error::Database(error) if error.is_unique_violation())
    }

    /// Whether the database refused the values, and would again: a value that it cannot store, a row that
    /// violates a constraint.
    pub fn is_about_values(&self) -> bool {
        let code = self.0.as_database_error().and_then(|error| error.code());
        let Some(code) = code else { return false };
        // PostgreSQL: classes 22 (data exception) and 23 (integrity constraint violation), five characters each.
        if code.len() == 5 && (code.starts_with("22") || code.starts_with("23")) {
            return true;
        }
        // SQLite: the low byte is the kind: TOOBIG, CONSTRAINT, MISMATCH.
        code.len() < 5 && code.parse::<u32>().is_ok_and(|code| [18, 19, 20].contains(&(code & 0xFF)))
    }
}

// What a PostgreSQL transaction has exclusively across all instances: one number's messages rather than all
// of them, so that an instance that stalls blocks nothing else.

/// How long a transaction waits for the lock: longer than any transaction under it takes, and short enough
/// for somebody who waits for a code. After five seconds the server takes it away from a stalled instance.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);
/// Two locks share an entry with a chance of one in a thousand; then they are requested one after the other.
const TURNS: usize = 1024;

/// One lock. A transaction that takes several takes them in the order in which they are declared here, and
/// among the same kind the smaller first, so that no two wait for each other.
#[derive(Debug, Clone, Copy)]
pub struct DbLock(i64);

impl DbLock {
    /// Messages to one number, by its key.
    pub fn number(key: &[u8]) -> Self {
        Self::of("sms.number", key)
    }

    /// Setting a brake of our pages or of one program on a dialling prefix.
    pub fn brake(scope: &str, prefix: &str) -> Self {
        Self::of("sms.brake", format!("{scope} {prefix}").as_bytes())
    }

    /// Messages to a range that was not proven yet.
    pub fn new_range(scope: &str, range: &str) -> Self {
        Self::of("sms.range", format!("{scope} {range}").as_bytes())
    }

    /// An account's password.
    pub fn account(id: &[u8]) -> Self {
        Self::of("account", id)
    }

    /// What a client was let have, by its grant or its code.
    pub fn grant(id: &[u8]) -> Self {
        Self::of("oidc.grant", id)
    }

    /// Something that exists once per installation.
    pub fn on(what: &'static str) -> Self {
        Self::of(what, b"")
    }

    fn of(kind: &str, subject: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("gatehouse 2026 database lock");
        hasher.update(kind.as_bytes()).update(&[0]).update(subject);
        Self(i64::from_le_bytes(*hasher.finalize().as_bytes().first_chunk().expect("32 bytes hold 8")))
    }

    async fn take(self, tx: &mut Transaction<'static, Postgres>) -> Result<(), DbError> {
        sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(self.0).execute(&mut **tx).await?;
        Ok(())
    }
}

impl DbPools<Postgres> {
    async fn begin_with(&self, lock: DbLock) -> Result<Transaction<'static, Postgres>, DbError> {
        let _asking = self.turn(lock).await?;
        let mut tx = self.exclusive.begin().await?;
        lock.take(&mut tx).await?;
        Ok(tx)
    }
}

// Pages of a table, newest first: the common part for events, messages and changes of the limits.

/// The row after which the next page begins. May be part of a page's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCursor<Id> {
    pub at: Micros,
    pub id: Id,
}

impl<Id> RowCursor<Id> {
    /// Parses the displayed form; `id` reads the row's own part.
    pub fn parse_with(text: &str, id: impl FnOnce(&str) -> Option<Id>) -> Option<Self> {
        let (at, rest) = text.split_once('-')?;
        Some(Self { at: Micros(at.parse().ok()?), id: id(rest)? })
    }
}

impl<Id: fmt::Display> fmt::Display for RowCursor<Id> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.at.0, self.id)
    }
}

#[derive(Debug, Clone)]
pub struct RowPage<Entry, Id> {
    pub entries: Vec<Entry>,
    /// Where the next page begins; None on the last page.
    pub next: Option<RowCursor<Id>>,
}

impl<Entry, Id> RowPage<Entry, Id> {
    pub const fn empty() -> Self {
        Self { entries: Vec::new(), next: None }
    }

    /// From rows that were requested with one more than needed, which tells whether there is a next page.
    pub fn of(
        rows: impl IntoIterator<Item = Result<Entry, sqlx::Error>>,
        wanted: u32,
        place: impl FnOnce(&Entry) -> RowCursor<Id>,
    ) -> Result<Self, sqlx::Error> {
        let mut rows = rows.into_iter();
        let entries: Vec<Entry> = rows.by_ref().take(wanted as usize).collect::<Result<_, _>>()?;
        let more = rows.next().is_some();
        let next = entries.last().filter(|_| more).map(place);
        Ok(Self { entries, next })
    }
}

#[cfg(test)]
pub(crate) mod tests;
