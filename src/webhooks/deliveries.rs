//! The table of what was and will be delivered, shared by every instance.

use std::time::Duration;

use sqlx::{query, query_as, query_scalar};

use super::notices::WebhookNotice;
use crate::clock::{Clock, Micros};
use crate::db::{Db, DbError, on_db};

/// How long a taken row belongs to whoever took it: longer than an attempt.
const LEASE: Duration = Duration::from_secs(60);
/// How long a row is kept: longer than the last retry after the first, and than any look back.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Clone)]
pub struct DeliveryTable {
    db: Db,
    clock: Clock,
}

/// A row that this instance may post now.
pub struct DueDelivery {
    pub notice: String,
    pub body: String,
    /// From 1.
    pub attempts: i64,
}

impl DeliveryTable {
    pub const fn new(db: Db, clock: Clock) -> Self {
        Self { db, clock }
    }

    /// The time on which the instances agree.
    pub async fn now(&self) -> Result<Micros, DbError> {
        self.db.now(&self.clock).await
    }

    /// Writes it down, unless some instance has.
    pub async fn add(&self, notice: &WebhookNotice, endpoint: &str, now: Micros) -> Result<(), DbError> {
        const KNOWN: &str = "SELECT COUNT(*) FROM webhook_deliveries WHERE notice = $1 AND endpoint = $2";
        const INSERT: &str = "INSERT INTO webhook_deliveries (notice, endpoint, body, created_at, next_at)
            VALUES ($1, $2, $3, $4, $4) ON CONFLICT (notice, endpoint) DO NOTHING";
        // Nearly always it is known, and a read takes no lock.
        let known: i64 = on_db!(&self.db, pool => query_scalar(KNOWN).bind(&notice.id).bind(endpoint)
            .fetch_one(pool).await)?;
        if known == 0 {
            on_db!(&self.db, pool => query(INSERT).bind(&notice.id).bind(endpoint).bind(notice.body())
                .bind(now.0).execute(pool).await.map(drop))?;
        }
        Ok(())
    }

    /// Takes the row that is due longest. Of two instances that want it, one gets it.
    pub async fn take(&self, endpoint: &str) -> Result<Option<DueDelivery>, DbError> {
        const DUE: &str = "SELECT notice FROM webhook_deliveries WHERE endpoint = $1 AND next_at <= $2
            ORDER BY next_at, notice LIMIT 1";
        const TAKE: &str = "UPDATE webhook_deliveries SET attempts = attempts + 1, next_at = $1
            WHERE notice = $2 AND endpoint = $3 AND next_at <= $4 RETURNING notice, body, attempts";
        let now = self.now().await?;
        let due: Option<String> = on_db!(&self.db, pool => query_scalar(DUE).bind(endpoint).bind(now.0)
            .fetch_optional(pool).await)?;
        let Some(notice) = due else { return Ok(None) };
        let taken: Option<(String, String, i64)> = on_db!(&self.db, pool => query_as(TAKE)
            .bind(now.plus(LEASE).0).bind(notice).bind(endpoint).bind(now.0).fetch_optional(pool).await)?;
        Ok(taken.map(|(notice, body, attempts)| DueDelivery { notice, body, attempts }))
    }

    /// It was delivered, or is given up.
    pub async fn done(&self, due: &DueDelivery, endpoint: &str) -> Result<(), DbError> {
        self.schedule(due, endpoint, None).await
    }

    pub async fn try_again(&self, due: &DueDelivery, endpoint: &str, wait: Duration) -> Result<(), DbError> {
        let at = self.now().await?.plus(wait);
        self.schedule(due, endpoint, Some(at)).await
    }

    async fn schedule(&self, due: &DueDelivery, endpoint: &str, at: Option<Micros>) -> Result<(), DbError> {
        const SQL: &str = "UPDATE webhook_deliveries SET next_at = $1 WHERE notice = $2 AND endpoint = $3 AND attempts = $4";
        on_db!(&self.db, pool => query(SQL).bind(at.map(|at| at.0)).bind(&due.notice).bind(endpoint)
            .bind(due.attempts).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Removes what is old, whatever became of it.
    pub async fn purge(&self, now: Micros) -> Result<(), DbError> {
        const OLD: &str =
            "SELECT COUNT(*) FROM (SELECT 1 FROM webhook_deliveries WHERE created_at < $1 LIMIT 1) AS old";
        const SQL: &str = "DELETE FROM webhook_deliveries WHERE created_at < $1";
        let before = now.minus(KEPT).0;
        let old: i64 = on_db!(&self.db, pool => query_scalar(OLD).bind(before).fetch_one(pool).await)?;
        if old > 0 {
            on_db!(&self.db, pool => query(SQL).bind(before).execute(pool).await.map(drop))?;
        }
        Ok(())
    }
}
