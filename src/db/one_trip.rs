//! A whole transaction in one trip to SQLite's thread: a trip wakes that thread and then the caller's, which
//! costs more than most statements do.

use sqlx::query::QueryScalar;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, query};

use super::{DbError, Pools};

impl Pools<Sqlite> {
    /// Runs statements that begin a transaction and commit it, all of them or none; the rows they return.
    /// Whoever goes away meanwhile leaves nothing half done: a transaction left open would be carried on by
    /// the connection's next user.
    pub async fn in_one_trip(
        &self,
        transaction: QueryScalar<'static, Sqlite, String, SqliteArguments>,
    ) -> Result<Vec<String>, DbError> {
        let writer = self.writer.clone();
        let run = async move {
            let mut connection = writer.acquire().await?;
            let rows = transaction.fetch_all(&mut *connection).await;
            if rows.is_err() {
                // Fails where it was not begun, or where SQLite has rolled it back by itself.
                let _ = query("ROLLBACK").execute(&mut *connection).await;
            }
            rows
        };
        Ok(tokio::spawn(run).await.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }
}
