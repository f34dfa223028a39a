//! What the instances that run know: nothing begins that one of them would ignore. And those that wait for others to end.

use std::time::Duration;

use sqlx::{query, query_scalar};

use super::{Db, DbError, DbLock, execute, on_db};
use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;

/// What this version knows, of what must not begin while an older one runs: 1 second factors, 2 mail. Later ones count up.
pub const KNOWS: i64 = 2;
/// An instance that was silent for this long is gone.
pub const GONE_AFTER: Duration = Duration::from_secs(60);

/// One that has to be known to run gives a sign of life every five seconds. This is also how far the clocks of two may be
/// apart: a row from later than that is of a clock that was wrong.
const ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// A process that was here before gives no sign of life in this time. Another machine of the same name does.
pub const RENEWED_WITHIN: Duration = Duration::from_secs(7);

/// An instance that does not run yet. In the list it has no version.
#[derive(Debug)]
pub struct WaitingInstance {
    id: String,
    host: String,
    pub since: Micros,
}

impl WaitingInstance {
    /// For a command, which nobody waits for.
    pub fn unlisted(host: String, since: Micros) -> Self {
        Self { id: String::new(), host, since }
    }
}

impl Db {
    /// Lists an instance that has to be alone. Of two that begin at once the later one sees the earlier.
    pub async fn announce(
        &self,
        host: &str,
        clock: &Clock,
        entropy: &Entropy,
    ) -> Result<WaitingInstance, DbError> {
        const SQL: &str =
            "INSERT INTO instances (id, host, started_at, seen_at, version, applied_at, refused, knows)
            VALUES ($1, $2, $3, $3, '', $3, NULL, $4)";
        let id = format!("{:016x}", u64::from_be_bytes(entropy.bytes()));
        let mut tx = self.begin_exclusive(DbLock::on("instances.announce")).await?;
        let since = tx.now(clock).await?;
        execute!(in &mut tx => query(SQL).bind(&id).bind(host).bind(since.0).bind(KNOWS))?;
        tx.commit().await?;
        Ok(WaitingInstance { id, host: host.to_owned(), since })
    }

    /// The hosts of other instances that run, or began to wait earlier.
    pub async fn others_than(&self, us: &WaitingInstance, now: Micros) -> Result<Vec<String>, DbError> {
        const SQL: &str = "SELECT DISTINCT host FROM instances WHERE id <> $1 AND seen_at > $2
            AND seen_at < $3 AND (host <> $4 OR seen_at > $5) AND (version <> '' OR started_at < $6
                OR (started_at = $6 AND id < $1)) ORDER BY host";
        let (alive, future) = (now.minus(ALIVE_WITHIN), now.plus(ALIVE_WITHIN));
        // The process that was here before, if it was killed, or another machine that has our name.
        let alive_here = if now.since(us.since) < RENEWED_WITHIN { alive } else { us.since };
        Ok(on_db!(self, pool => query_scalar(SQL).bind(&us.id).bind(alive.0).bind(future.0).bind(&us.host)
            .bind(alive_here.0).bind(us.since.0).fetch_all(pool).await)?)
    }

    /// A sign of life of one that waits.
    pub async fn still_waits(&self, us: &WaitingInstance, now: Micros) -> Result<(), DbError> {
        const SQL: &str = "UPDATE instances SET seen_at = $1 WHERE id = $2";
        execute!(self => query(SQL).bind(now.0).bind(&us.id))?;
        Ok(())
    }

    /// It does not wait any more.
    pub async fn withdraw(&self, us: &WaitingInstance) -> Result<(), DbError> {
        const SQL: &str = "DELETE FROM instances WHERE id = $1";
        execute!(self => query(SQL).bind(&us.id))?;
        Ok(())
    }

    /// The hosts of instances other than that one that run, or wait for it to end. Before it ran, it was in the list without
    /// a version.
    pub async fn beside(&self, id: &str, host: &str, now: Micros) -> Result<Vec<String>, DbError> {
        const SQL: &str =
            "SELECT DISTINCT host FROM instances WHERE seen_at > $1 AND seen_at < $2 AND id <> $3
            AND (host <> $4 OR version <> '') ORDER BY host";
        let (alive, future) = (now.minus(ALIVE_WITHIN), now.plus(ALIVE_WITHIN));
        Ok(on_db!(self, pool => query_scalar(SQL).bind(alive.0).bind(future.0).bind(id).bind(host)
            .fetch_all(pool).await)?)
    }

    /// Whether an instance runs that knows less than this one. One look at a table of a few rows.
    pub async fn is_upgrading(&self, clock: &Clock) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM instances WHERE seen_at > $1 AND COALESCE(knows, 0) < $2";
        let since = self.now(clock).await?.minus(GONE_AFTER).0;
        let older: i64 =
            on_db!(self, pool => query_scalar(SQL).bind(since).bind(KNOWS).fetch_one(pool).await)?;
        Ok(older > 0)
    }
}
