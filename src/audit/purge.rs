//! Deletes events that are older than the retention, or more than the maximum number of rows.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::{query, query_scalar};

use super::{Audit, EventLog, attack};
use crate::clock::Micros;
use crate::db::{DbError, on_db};

/// Between two counts of all rows if this process wrote few: other instances write, too.
const COUNT_EVERY: Duration = Duration::from_secs(60 * 60);
/// Counting ten million rows takes SQLite most of a second, so it is done once per this fraction of the
/// maximum written.
const COUNTED_SHARE: u64 = 100;

/// The number of excess rows when they were last counted.
#[derive(Default)]
pub(super) struct RowExcess(Mutex<ExcessCount>);

#[derive(Default)]
struct ExcessCount {
    at: Option<Micros>,
    /// Rows that this process had written by then.
    written: u64,
    excess: u64,
}

impl Audit {
    /// Deletes at most `batch` rows; returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        let retention = self.settings().retention;
        let before = self.0.clock.now().minus(retention);
        self.0.log.purge_counts(before).await?;
        attack::purge(&self.0.log.db, before).await?;
        let old = self.0.log.purge_before(before, batch).await?;
        let excess = if old > 0 { 0 } else { self.excess().await? };
        if excess == 0 {
            return Ok(old);
        }
        let most = u32::try_from(excess).unwrap_or(batch).min(batch);
        let gone = self.0.log.purge_oldest(most).await?;
        let mut counted = self.0.room.lock();
        counted.excess = counted.excess.saturating_sub(gone);
        Ok(gone)
    }

    /// The number of excess rows, counted again when it is time.
    async fn excess(&self) -> Result<u64, DbError> {
        let (now, written) = (self.0.clock.now(), self.0.writer.rows_written());
        let most = u64::from(self.settings().max_rows);
        {
            let counted = self.0.room.lock();
            let fresh = counted.at.is_some_and(|at| now.since(at) < COUNT_EVERY);
            if counted.excess > 0 || fresh && written - counted.written < most / COUNTED_SHARE {
                return Ok(counted.excess);
            }
        }
        let excess = self.0.log.count().await?.saturating_sub(most);
        *self.0.room.lock() = ExcessCount { at: Some(now), written, excess };
        Ok(excess)
    }
}

impl RowExcess {
    fn lock(&self) -> MutexGuard<'_, ExcessCount> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventLog {
    /// The oldest first.
    async fn purge_before(&self, before: Micros, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM events WHERE (at, id) IN (SELECT at, id FROM events WHERE at < $1
            ORDER BY at, id LIMIT $2)";
        Ok(on_db!(&self.db, pool => query(SQL).bind(before.0).bind(i64::from(batch)).execute(pool).await
            .map(|done| done.rows_affected()))?)
    }

    /// The oldest first, except administrators' actions: anybody can create events, but must not push out the
    /// record of those.
    async fn purge_oldest(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM events WHERE (at, id) IN (SELECT at, id FROM events
            WHERE NOT (action = 'admin' AND name <> 'access') ORDER BY at, id LIMIT $1)";
        Ok(on_db!(&self.db, pool => query(SQL).bind(i64::from(batch)).execute(pool).await
            .map(|done| done.rows_affected()))?)
    }

    async fn purge_counts(&self, before: Micros) -> Result<(), DbError> {
        for sql in
            ["DELETE FROM event_counts WHERE minute < $1", "DELETE FROM realm_counts WHERE minute < $1"]
        {
            on_db!(&self.db, pool => query(sql).bind(before.0).execute(pool).await.map(drop))?;
        }
        Ok(())
    }

    async fn count(&self) -> Result<u64, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM events";
        let rows: i64 = on_db!(&self.db, pool => query_scalar(SQL).fetch_one(pool).await)?;
        Ok(rows.unsigned_abs())
    }
}
