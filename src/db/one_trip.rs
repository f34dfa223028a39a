//! A whole transaction in one trip to SQLite's thread: a trip wakes that thread and then the caller's, which
//! costs more than most statements do.

use std::sync::Arc;

use sqlx::query::QueryScalar;
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions};
use sqlx::{ConnectOptions, Connection, Sqlite, SqliteConnection, query};
use tokio::sync::Mutex;

use super::{ACQUIRE_TIMEOUT, DbError, Pools};

/// One connection, because what it has read stays true for as long as nobody else writes: every other one
/// reads the file again after each of its commits. Out of the pools, which would make a trip of its own to
/// test it each time it is given back. Clones share it.
#[derive(Debug, Clone)]
pub struct Writer {
    options: SqliteConnectOptions,
    /// None before the first transaction, and after one that failed.
    open: Arc<Mutex<Option<SqliteConnection>>>,
}

type Transaction = QueryScalar<'static, Sqlite, String, SqliteArguments>;

impl Pools<Sqlite> {
    /// Runs statements that begin a transaction and commit it, all of them or none; the rows they return.
    /// Whoever goes away meanwhile leaves nothing half done: a transaction left open would be carried on by
    /// the connection's next user.
    pub async fn in_one_trip(&self, transaction: Transaction) -> Result<Vec<String>, DbError> {
        let (all, writer) = (self.all.clone(), self.writer.clone());
        let run = async move {
            match writer {
                Some(writer) => writer.run(transaction).await,
                None => run(transaction, &mut *all.acquire().await?).await,
            }
        };
        Ok(tokio::spawn(run).await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }
}

impl Writer {
    pub fn new(options: SqliteConnectOptions) -> Self {
        Self { options, open: Arc::default() }
    }

    async fn run(&self, transaction: Transaction) -> Result<Vec<String>, sqlx::Error> {
        let turn = tokio::time::timeout(ACQUIRE_TIMEOUT, self.open.lock()).await;
        let mut open = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let mut connection = match open.take() {
            Some(connection) => connection,
            None => self.options.connect().await?,
        };
        let rows = run(transaction, &mut connection).await?;
        *open = Some(connection);
        Ok(rows)
    }

    pub async fn close(&self) {
        if let Some(connection) = self.open.lock().await.take() {
            // It ends either way.
            let _ = connection.close().await;
        }
    }
}

async fn run(
    transaction: Transaction,
    connection: &mut SqliteConnection,
) -> Result<Vec<String>, sqlx::Error> {
    let rows = transaction.fetch_all(&mut *connection).await;
    if rows.is_err() {
        // Fails where it was not begun, or where SQLite has rolled it back by itself.
        let _ = query("ROLLBACK").execute(connection).await;
    }
    rows
}
