//! The instances and the version that each runs: one row each, renewed every few seconds.

use std::time::Duration;

use serde::Serialize;
use sqlx::{query, query_as};
use utoipa::ToSchema;

use super::{Tuning, TuningInner, version_of};
use crate::clock::{Micros, as_time};
use crate::db::{DbError, GONE_AFTER, KNOWS, on_db};

/// Between two signs of life.
pub(super) const EVERY: Duration = Duration::from_secs(5);

// An instance as it last reported, and as it is in the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Instance {
    #[serde(skip)]
    pub id: String,
    /// The machine, and the port that it listens on.
    pub host: String,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Micros,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub seen_at: Micros,
    /// What is in force there.
    pub version: String,
    // Since when, as far as it can tell: at the latest when it first reported it.
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub applied_at: Micros,
    /// Why a newer version is not in force there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The one that answers.
    pub this: bool,
}

type StoredInstance = (String, String, i64, i64, String, i64, Option<String>);

impl Tuning {
    /// Instances that run, seen within the last minute, by name.
    pub async fn instances(&self) -> Result<Vec<Instance>, DbError> {
        const SQL: &str = "SELECT id, host, started_at, seen_at, version, applied_at, refused FROM instances
            WHERE seen_at > $1 AND version <> '' ORDER BY host, id";
        let since = self.0.now().await?.minus(GONE_AFTER);
        let rows: Vec<StoredInstance> =
            on_db!(&self.0.db, pool => query_as(SQL).bind(since.0).fetch_all(pool).await)?;
        let instance =
            |(id, host, started_at, seen_at, version, applied_at, refused): StoredInstance| Instance {
                this: id == self.0.instance,
                id,
                host,
                started_at: Micros(started_at),
                seen_at: Micros(seen_at),
                version,
                applied_at: Micros(applied_at),
                refused,
            };
        Ok(rows.into_iter().map(instance).collect())
    }

    /// The hosts of other instances that run on this database, or wait for this one to end.
    pub async fn others(&self) -> Result<Vec<String>, DbError> {
        self.0.db.beside(&self.0.instance, &self.0.host, self.0.now().await?).await
    }

    /// Sends a sign of life, and removes instances without one for a minute.
    pub(super) async fn heartbeat(&self) -> Result<(), DbError> {
        const SQL: &str =
            "INSERT INTO instances (id, host, started_at, seen_at, version, applied_at, refused, knows)
            VALUES ($1, $2, $3, $4, $5, $4, $6, $7)
            ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, refused = excluded.refused,
                applied_at = CASE WHEN instances.version = excluded.version THEN instances.applied_at
                    ELSE excluded.applied_at END,
                version = excluded.version";
        const DROP: &str = "DELETE FROM instances WHERE seen_at <= $1";
        let now = self.0.now().await?;
        let TuningInner { instance, host, started_at, live, .. } = &*self.0;
        let version = version_of(&live.in_force());
        let refused = live.last_error().or_else(|| live.backend_down());
        on_db!(&self.0.db, pool => {
            query(SQL).bind(instance).bind(host).bind(started_at.0).bind(now.0).bind(&version)
                .bind(&refused).bind(KNOWS).execute(pool).await.map(drop)
        })?;
        let gone = now.minus(GONE_AFTER);
        on_db!(&self.0.db, pool => query(DROP).bind(gone.0).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// Tells the others that this instance stops.
    pub async fn leave(&self) {
        // With the row of its start, if it had to be alone.
        const SQL: &str = "DELETE FROM instances WHERE id = $1 OR (host = $2 AND version = '')";
        let TuningInner { instance, host, .. } = &*self.0;
        let gone =
            on_db!(&self.0.db, pool => query(SQL).bind(instance).bind(host).execute(pool).await.map(drop));
        if let Err(error) = gone.map_err(DbError::from) {
            tracing::warn!(%error, "this instance could not be removed from the list of instances, and stays there for a minute");
        }
    }
}
