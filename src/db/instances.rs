//! What the instances that run know: nothing begins that one of them would ignore.

use std::time::Duration;

use sqlx::query_scalar;

use super::{Db, DbError, on_db};
use crate::clock::Clock;

/// What this version knows, of what must not begin while an older one runs: second factors. Later ones count up.
pub const KNOWS: i64 = 1;
/// An instance that was silent for this long is gone.
pub const GONE_AFTER: Duration = Duration::from_secs(60);

impl Db {
    /// Whether an instance runs that knows less than this one. One look at a table of a few rows.
    pub async fn is_upgrading(&self, clock: &Clock) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM instances WHERE seen_at > $1 AND COALESCE(knows, 0) < $2";
        let since = self.now(clock).await?.minus(GONE_AFTER).0;
        let older: i64 =
            on_db!(self, pool => query_scalar(SQL).bind(since).bind(KNOWS).fetch_one(pool).await)?;
        Ok(older > 0)
    }
}
