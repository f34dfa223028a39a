//! Connections to SQLite outside the pools, for the statements of every sign-in. A pool tests a connection
//! each time it is returned, which is a round trip to the connection's thread. A round trip wakes that thread
//! and then the caller's, and so does each of several statements: that costs more than most statements
//! themselves.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::query::{QueryAs, QueryScalar};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow};
use sqlx::{ConnectOptions, Connection, FromRow, Sqlite, SqliteConnection, raw_sql};
use tokio::sync::{Mutex, MutexGuard};

use super::{ACQUIRE_TIMEOUT, DbError, DbPools};

/// One connection for reads and one for writes. The reader's cache stays valid as long as nobody else writes,
/// whereas every other connection reads the file again after each commit.
#[derive(Debug)]
pub struct OwnConnections {
    reader: OwnConnection,
    writer: OwnConnection,
}

/// A connection and its waiters. None before its first use, and after a failure.
#[derive(Debug)]
struct OwnConnection {
    options: SqliteConnectOptions,
    open: Mutex<Option<OpenConnection>>,
    closed: AtomicBool,
}

#[derive(Debug)]
struct OpenConnection {
    connection: SqliteConnection,
    /// The setup that has run on it.
    set_up: Vec<&'static str>,
}

impl DbPools<Sqlite> {
    /// The row that answers a question.
    pub async fn read<T>(
        &self,
        question: QueryAs<'_, Sqlite, T, SqliteArguments>,
    ) -> Result<Option<T>, DbError>
    where
        T: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
    {
        self.reachable()?;
        let Some(own) = &self.own else { return Ok(question.fetch_optional(&self.all).await?) };
        let mut turn = own.reader.turn("").await?;
        let answer = question.fetch_optional(connection(&mut turn)).await;
        OwnConnection::end(turn, answer)
    }

    /// Runs one statement even if the caller is dropped, and returns its result. `setup` creates the
    /// temporary tables, views and triggers that the statement needs; it runs once per connection.
    pub async fn write<T>(
        &self,
        setup: &'static str,
        statement: QueryScalar<'_, Sqlite, T, SqliteArguments>,
    ) -> Result<Vec<T>, DbError>
    where
        T: Send + Unpin,
        (T,): for<'r> FromRow<'r, SqliteRow>,
    {
        self.reachable()?;
        let Some(own) = &self.own else {
            let mut only = self.all.acquire().await?;
            raw_sql(setup).execute(&mut *only).await?;
            return Ok(statement.fetch_all(&mut *only).await?);
        };
        let mut turn = own.writer.turn(setup).await?;
        let rows = statement.fetch_all(connection(&mut turn)).await;
        OwnConnection::end(turn, rows)
    }
}

impl OwnConnections {
    pub fn new(options: &SqliteConnectOptions) -> Self {
        let new = || OwnConnection {
            options: options.clone(),
            open: Mutex::default(),
            closed: AtomicBool::new(false),
        };
        Self { reader: new(), writer: new() }
    }

    pub async fn close(&self) {
        for own in [&self.reader, &self.writer] {
            own.closed.store(true, Ordering::SeqCst);
            if let Some(OpenConnection { connection, .. }) = own.open.lock().await.take() {
                // The result does not matter.
                let _ = connection.close().await;
            }
        }
    }
}

type ConnectionGuard<'l> = MutexGuard<'l, Option<OpenConnection>>;

impl OwnConnection {
    async fn turn(&self, setup: &'static str) -> Result<ConnectionGuard<'_>, DbError> {
        let turn = tokio::time::timeout(ACQUIRE_TIMEOUT, self.open.lock()).await;
        let mut open = turn.map_err(|_| sqlx::Error::PoolTimedOut)?;
        if self.closed.load(Ordering::SeqCst) {
            return Err(sqlx::Error::PoolClosed.into());
        }
        // Taken out, so that a dropped caller leaves no connection that is half set up.
        let mut ready = match open.take() {
            Some(ready) => ready,
            None => OpenConnection { connection: self.options.connect().await?, set_up: Vec::new() },
        };
        if !setup.is_empty() && !ready.set_up.contains(&setup) {
            raw_sql(setup).execute(&mut ready.connection).await?;
            ready.set_up.push(setup);
        }
        *open = Some(ready);
        Ok(open)
    }

    /// After a failure the next caller opens another connection.
    fn end<T>(mut turn: ConnectionGuard<'_>, result: Result<T, sqlx::Error>) -> Result<T, DbError> {
        if result.is_err() {
            *turn = None;
        }
        Ok(result?)
    }
}

fn connection<'t>(turn: &'t mut ConnectionGuard<'_>) -> &'t mut SqliteConnection {
    &mut turn.as_mut().expect("whoever has a turn has a connection").connection
}
