//! Names and the addresses from which they signed in: what a known device is to clients that can keep nothing.
//! Somebody else at such an address shares the count of that one name there, and nothing else.

use std::time::Duration;

use sqlx::{query, query_scalar};

use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, on_db};
use crate::login::DeviceId;

/// How long a pair is known after its last success.
const KNOWN_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// A success is not written again within this time.
const FRESH: Duration = Duration::from_secs(24 * 60 * 60);
/// The number of pairs that are remembered without the database.
const REMEMBERED: usize = 100_000;

/// The pairs over their database.
pub struct KnownPairs {
    db: Db,
    clock: Clock,
    /// When each was last seen.
    seen: quick_cache::sync::Cache<DeviceId, Micros>,
}

impl KnownPairs {
    pub fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock, seen: quick_cache::sync::Cache::new(REMEMBERED) }
    }

    pub async fn is_known(&self, pair: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = "SELECT seen_at FROM guard_pairs WHERE pair = $1";
        let known = |seen: Micros| self.clock.now().since(seen) < KNOWN_FOR;
        if self.seen.get(&pair).is_some_and(known) {
            return Ok(true);
        }
        let seen: Option<i64> = on_db!(&self.db, pool => query_scalar(SQL).bind(pair.to_string())
            .fetch_optional(pool).await)?;
        let Some(seen) = seen.map(Micros).filter(|seen| known(*seen)) else { return Ok(false) };
        self.seen.insert(pair, seen);
        Ok(true)
    }

    /// The name has signed in from there.
    pub async fn remember(&self, pair: DeviceId) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO guard_pairs (pair, seen_at) VALUES ($1, $2)
            ON CONFLICT (pair) DO UPDATE SET seen_at = excluded.seen_at
            WHERE guard_pairs.seen_at < excluded.seen_at";
        let now = self.clock.now();
        if self.seen.get(&pair).is_some_and(|seen| now.since(seen) < FRESH) {
            return Ok(());
        }
        on_db!(&self.db, pool => query(SQL).bind(pair.to_string()).bind(now.0).execute(pool).await.map(drop))?;
        self.seen.insert(pair, now);
        Ok(())
    }

    /// Deletes at most `batch` pairs that are known no longer; returns how many.
    pub async fn purge(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM guard_pairs WHERE pair IN (SELECT pair FROM guard_pairs
            WHERE seen_at <= $1 ORDER BY seen_at LIMIT $2)";
        let before = self.clock.now().minus(KNOWN_FOR).0;
        Ok(on_db!(&self.db, pool => query(SQL).bind(before).bind(i64::from(batch)).execute(pool).await
            .map(|done| done.rows_affected()))?)
    }
}
