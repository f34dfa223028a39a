//! What all instances learn within a second: that a session of an account has ended, or its groups have changed. A row
//! is written in the same step as the change, so that no change is without one.

use std::time::Duration;

use sqlx::{query, query_as};

use super::AccountId;
use super::id::stored;
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, Tx, on_db, on_tx};
use crate::entropy::Entropy;

/// How long a change can be read, by the database's clock: longer than any transaction takes from it to its commit.
/// Each of its few statements waits at most 5 s for a lock, and PostgreSQL ends it if it is idle for 5 s. An instance
/// that did not read for so long must forget all that it remembers.
pub const CHANGES_LAST: Duration = Duration::from_secs(300);

/// Read at once: more than 60 a second over those minutes. With more, every check reads SQL.
pub const MOST_CHANGES: usize = 20_000;

#[derive(Clone)]
pub struct SessionChanges {
    db: Db,
    clock: Clock,
}

impl SessionChanges {
    pub const fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// Those of the last minutes: what identifies each, and whose sessions it is about. None if there are more than
    /// [`MOST_CHANGES`]: then any account may be among them.
    pub async fn recent(&self) -> Result<Option<Vec<(String, AccountId)>>, DbError> {
        // Those before it may not be deleted yet.
        const SQL: &str = "SELECT id, account FROM session_changes WHERE at > $1 LIMIT $2";
        let since = self.db.now(&self.clock).await?.minus(CHANGES_LAST).0;
        let one_more = i64::try_from(MOST_CHANGES + 1).unwrap_or(i64::MAX);
        let rows: Vec<(String, String)> =
            on_db!(&self.db, pool => query_as(SQL).bind(since).bind(one_more).fetch_all(pool).await)?;
        if rows.len() > MOST_CHANGES {
            return Ok(None);
        }
        let read = |(id, account): (String, String)| Ok((id, stored(AccountId::parse(&account))?));
        Ok(Some(rows.into_iter().map(read).collect::<Result<_, sqlx::Error>>()?))
    }

    /// Deletes those that every instance has read; returns how many.
    pub async fn purge(&self) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM session_changes WHERE at <= $1";
        let before = self.db.now(&self.clock).await?.minus(CHANGES_LAST).0;
        Ok(on_db!(&self.db, pool => query(SQL).bind(before).execute(pool).await
            .map(|done| done.rows_affected()))?)
    }
}

/// `at` is by the clock on which all instances agree.
pub(super) async fn record(tx: &mut Tx, entropy: &Entropy, account: &str, at: Micros) -> Result<(), DbError> {
    const SQL: &str = "INSERT INTO session_changes (id, account, at) VALUES ($1, $2, $3)";
    // By it an instance knows which it has read. One made by the start of a session has another form.
    let id = format!("{:032x}", u128::from_be_bytes(entropy.bytes()));
    on_tx!(tx, connection => query(SQL).bind(&id).bind(account).bind(at.0).execute(connection).await.map(drop))?;
    Ok(())
}
