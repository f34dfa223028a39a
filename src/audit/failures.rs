//! What failed at one account, for its owner: grouped by network, so that a flood cannot hide the rest.

use sqlx::query_as;

use super::log::EventLog;
use crate::clock::Micros;
use crate::db::{DbError, on_db};

/// The newest rows that are grouped: a few milliseconds of SQLite's time.
const MOST_ROWS: i64 = 5_000;

/// Failed attempts from one network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Masked; None if too many took part at once to be told apart.
    pub network: Option<String>,
    pub first: Micros,
    pub last: Micros,
    pub wrong_passwords: i64,
    pub wrong_codes: i64,
    /// Refused before anything was compared.
    pub refused: i64,
}

/// The networks of the newest failures, and how many networks there are in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FailureSummary {
    pub networks: Vec<FailedAttempts>,
    pub of: i64,
}

/// Mask, first and last time, wrong passwords, wrong codes, refusals, the number of networks.
type FailureRow = (Option<String>, i64, i64, i64, i64, i64, i64);

impl EventLog {
    /// Failed sign-ins to an account, and wrong codes of ours for its number, since then: at most `most` networks, the
    /// newest first. `account` and `phone` are keys of [`Audit::subject`](super::Audit::subject).
    pub async fn failures(
        &self,
        account: i64,
        phone: Option<i64>,
        since: Micros,
        most: u32,
    ) -> Result<FailureSummary, DbError> {
        const SQL: &str = "SELECT address_mask, MIN(at), MAX(until_at) AS newest,
            CAST(SUM(CASE WHEN action = 'sign-in' AND outcome = 'wrong' THEN count ELSE 0 END) AS BIGINT),
            CAST(SUM(CASE WHEN action = 'guess' AND outcome = 'wrong' THEN count ELSE 0 END) AS BIGINT),
            CAST(SUM(CASE WHEN outcome = 'wrong' THEN 0 ELSE count END) AS BIGINT), COUNT(*) OVER ()
            FROM (SELECT * FROM (SELECT at, until_at, action, outcome, count, address_mask FROM events
                    WHERE account_key = $1 AND at >= $3 AND action = 'sign-in'
                    AND outcome IN ('wrong', 'challenged', 'throttled') ORDER BY at DESC LIMIT $4) AS passwords
                UNION ALL SELECT * FROM (SELECT at, until_at, action, outcome, count, address_mask FROM events
                    WHERE phone_key = $2 AND at >= $3 AND action = 'guess'
                    AND COALESCE(detail, '') <> '{\"from\":\"program\"}'
                    AND outcome IN ('wrong', 'challenged', 'throttled') ORDER BY at DESC LIMIT $4) AS codes)
            AS failures GROUP BY address_mask ORDER BY newest DESC, address_mask LIMIT $5";
        let rows: Vec<FailureRow> = on_db!(&self.db, pool => query_as(SQL).bind(account).bind(phone)
            .bind(since.0).bind(MOST_ROWS).bind(i64::from(most)).fetch_all(pool).await)?;
        let of = rows.first().map_or(0, |row| row.6);
        let failed = |(network, first, last, wrong_passwords, wrong_codes, refused, _): FailureRow| {
            let (first, last) = (Micros(first), Micros(last));
            FailedAttempts { network, first, last, wrong_passwords, wrong_codes, refused }
        };
        Ok(FailureSummary { networks: rows.into_iter().map(failed).collect(), of })
    }
}
