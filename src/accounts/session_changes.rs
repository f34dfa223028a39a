//! What all instances learn within a second: that a session of an account has ended, or its groups or profile have
//! changed. A row is written in the same step as the change, so that no change is without one. It replaces those of the same
//! account before it, which it says again: so however often an account changes, there is one to read. (PostgreSQL may keep
//! one for each change at the same moment, until the next.)

use std::time::Duration;

use data_encoding::HEXLOWER;
use sqlx::{query, query_as};

use super::AccountId;
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, Tx, execute, on_db};
use crate::entropy::Entropy;

/// How long a change can be read, by the database's clock: longer than any transaction takes from it to its commit.
/// Each of its few statements waits at most 5 s for a lock, and PostgreSQL ends it if it is idle for 5 s. An instance
/// that did not read for so long must forget all that it remembers.
pub const CHANGES_LAST: Duration = Duration::from_secs(300);

/// Accounts that are read at once: more than 60 a second over those minutes. With more, every check reads SQL.
pub const MOST_CHANGES: usize = 20_000;

/// Read four times a second by each instance, from an index alone. Those before it may not be deleted yet.
const RECENT: &str = "SELECT id, account FROM session_changes WHERE at > $1 LIMIT $2";

#[derive(Clone)]
pub struct SessionChanges {
    db: Db,
    clock: Clock,
}

impl SessionChanges {
    pub const fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// The changes of the last minutes: what identifies each, and whose sessions it is about. None if there are more
    /// than [`MOST_CHANGES`]: then any account may be among them.
    pub async fn recent(&self) -> Result<Option<Vec<(String, AccountId)>>, DbError> {
        let since = self.db.now(&self.clock).await?.minus(CHANGES_LAST).0;
        let one_more = i64::try_from(MOST_CHANGES + 1).unwrap_or(i64::MAX);
        let rows: Vec<(String, AccountId)> =
            on_db!(&self.db, pool => query_as(RECENT).bind(since).bind(one_more).fetch_all(pool).await)?;
        Ok(Some(rows).filter(|rows| rows.len() <= MOST_CHANGES))
    }

    /// Deletes at most `batch` that every instance has read; returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM session_changes WHERE id IN (SELECT id FROM session_changes
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        let before = self.db.now(&self.clock).await?.minus(CHANGES_LAST).0;
        Ok(execute!(&self.db => query(SQL).bind(before).bind(i64::from(batch)))?)
    }
}

/// `at` is by the clock on which all instances agree.
pub(super) async fn record(tx: &mut Tx, entropy: &Entropy, account: &str, at: Micros) -> Result<(), DbError> {
    const FORGET: &str = "DELETE FROM session_changes WHERE account = $1";
    const SQL: &str = "INSERT INTO session_changes (id, account, at) VALUES ($1, $2, $3)";
    // An instance knows by it which it has read. One made by the start of a session has another form.
    let id = HEXLOWER.encode(&entropy.bytes::<16>());
    execute!(in tx => query(FORGET).bind(account))?;
    execute!(in tx => query(SQL).bind(&id).bind(account).bind(at.0))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use sqlx::AssertSqlSafe;

    use super::*;
    use crate::db::tests::{TestDatabase, on_both_databases};

    on_both_databases!(
        however_often_an_account_changes_there_is_one_row_to_read,
        changes_are_read_from_an_index_alone,
    );

    async fn however_often_an_account_changes_there_is_one_row_to_read(database: TestDatabase) {
        let db = database.open().await;
        let changes = SessionChanges::new(db.clone(), Clock::System);
        let (ada, bob) = (AccountId::random(&Entropy::Os), AccountId::random(&Entropy::Os));
        let mut ids = Vec::new();
        for _ in 0..50 {
            for account in [ada, bob] {
                let at = db.now(&changes.clock).await.unwrap();
                let mut tx = db.begin().await.unwrap();
                record(&mut tx, &Entropy::Os, &account.to_string(), at).await.unwrap();
                tx.commit().await.unwrap();
            }
            let recent = changes.recent().await.unwrap().unwrap();
            assert!(recent.len() <= 2, "{}", recent.len());
            ids.extend(recent.into_iter().map(|(id, _)| id));
        }
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 100, "each change is another than the one before it");
    }

    async fn changes_are_read_from_an_index_alone(database: TestDatabase) {
        const FILL: &str = "WITH RECURSIVE counted (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM counted WHERE i < 5000)
            INSERT INTO session_changes (id, account, at) SELECT 'id ' || CAST(i AS TEXT), 'account ' || CAST(i AS TEXT), i FROM counted";
        let db = database.open().await;
        on_db!(&db, pool => query(FILL).execute(pool).await.map(drop)).unwrap();
        let recent = RECENT.replace("$1", "4990").replace("$2", "20");
        let forget = "DELETE FROM session_changes WHERE account = 'account 7'";
        let (explain, read, found) = match &db {
            Db::Sqlite(_) => (
                "EXPLAIN QUERY PLAN",
                "COVERING INDEX session_changes_to_read",
                "INDEX session_changes_by_account",
            ),
            Db::Postgres(pools) => {
                query("VACUUM ANALYZE session_changes").execute(pools.reachable().unwrap()).await.unwrap();
                (
                    "EXPLAIN",
                    "Index Only Scan using session_changes_to_read",
                    "Index Scan using session_changes_by_account",
                )
            }
        };
        for (sql, wanted) in [(recent.as_str(), read), (forget, found)] {
            let plan = format!("{explain} {sql}");
            let lines: Vec<String> = match &db {
                Db::Sqlite(_) => {
                    let rows: Vec<(i64, i64, i64, String)> =
                        on_db!(&db, pool => query_as(AssertSqlSafe(plan.as_str())).fetch_all(pool).await)
                            .unwrap();
                    rows.into_iter().map(|row| row.3).collect()
                }
                Db::Postgres(_) => {
                    let rows: Vec<(String,)> =
                        on_db!(&db, pool => query_as(AssertSqlSafe(plan.as_str())).fetch_all(pool).await)
                            .unwrap();
                    rows.into_iter().map(|row| row.0).collect()
                }
            };
            assert!(lines.iter().any(|line| line.contains(wanted)), "{lines:?}");
        }
    }
}
