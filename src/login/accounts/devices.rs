//! Wrong passwords in a row from a known device, counted apart from those of strangers.

use std::time::Duration;

use sqlx::{query, query_as, query_scalar};

use super::{Account, AccountRow, Accounts, FailureResult};
use crate::db::{Db, DbError, on_db, traced};
use crate::login::{AccountId, DeviceId, Username};

/// How long a device is known after its last sign-in: long enough for somebody who signs in twice a year.
/// Browsers keep a cookie for 400 days at most (RFC 6265bis), but a machine that was given away should become
/// a stranger's sooner.
pub const DEVICE_LIFE: Duration = Duration::from_secs(180 * 24 * 60 * 60);
/// The number of an account's devices whose failures are kept; beyond it, those that failed longest ago are
/// removed. Each device has signed in before, so only somebody who wants to fill the table has this many.
const MOST: i64 = 100;

/// The failures of a known device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceFailures {
    pub device: DeviceId,
    /// Wrong passwords in a row.
    pub failures: i64,
    /// There were too many: it is treated as a stranger until there is a new password.
    pub spent: bool,
}

impl Accounts {
    /// The account together with the failures of one of its devices, in one query.
    pub async fn find_from(
        &self,
        login: &Username,
        device: DeviceId,
    ) -> Result<Option<(Account, DeviceFailures)>, DbError> {
        const SQL: &str = "SELECT a.*, COALESCE(d.failures, 0) AS device_failures,
            CASE WHEN d.spent_at IS NULL THEN CAST(0 AS BIGINT) ELSE CAST(1 AS BIGINT) END AS device_spent
            FROM accounts a LEFT JOIN device_failures d ON d.account = a.id AND d.device = $2 WHERE a.login = $1";
        let id = device.to_string();
        let row: Option<DeviceRow> = match &self.db {
            Db::Sqlite(pools) => {
                traced!("sqlite", pools.read(query_as(SQL).bind(login.as_str()).bind(id)).await)?
            }
            Db::Postgres(pools) => {
                let question = query_as(SQL).bind(login.as_str()).bind(id);
                traced!("postgresql", question.fetch_optional(&pools.all).await)?
            }
        };
        let parse = |row: DeviceRow| {
            let DeviceRow { account, device_failures: failures, device_spent } = row;
            let found = DeviceFailures { device, failures, spent: device_spent != 0 };
            account.parse().map(|account| (account, found))
        };
        Ok(row.map(parse).transpose()?)
    }

    /// Counts a wrong password of a device, and at the `max`-th in a row the device is no longer known.
    /// Simultaneous ones all count, and one of them ends it.
    pub async fn count_device_failure(
        &self,
        account: &Account,
        device: DeviceId,
        max: u32,
    ) -> Result<FailureResult, DbError> {
        const SQL: &str = "INSERT INTO device_failures (account, device, failures, failed_at, spent_at)
            SELECT id, $1, 1, $2, CASE WHEN $3 <= 1 THEN CAST($2 AS BIGINT) END FROM accounts
            WHERE id = $4 AND password_version = $5
            ON CONFLICT (account, device) DO UPDATE SET failures = device_failures.failures + 1,
            failed_at = excluded.failed_at,
            spent_at = CASE WHEN device_failures.failures + 1 >= $3 THEN excluded.failed_at END
            WHERE device_failures.spent_at IS NULL
            RETURNING CASE WHEN spent_at IS NULL THEN 0 ELSE 1 END";
        let spent: Option<i32> = on_db!(&self.db, pool => query_scalar(SQL).bind(device.to_string())
            .bind(self.clock.now().0).bind(i64::from(max)).bind(account.id.to_string())
            .bind(account.password_version).fetch_optional(pool).await)?;
        Ok(FailureResult::of(spent))
    }

    /// The device's password was right: earlier wrong ones no longer count. False if there were too many in
    /// the meantime; then it was not right after all.
    pub async fn forget_device_failures(&self, account: &Account, device: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE device_failures SET failures = 0
            WHERE account = $1 AND device = $2 AND spent_at IS NULL";
        let rows = on_db!(&self.db, pool => query(SQL).bind(account.id.to_string()).bind(device.to_string())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(rows > 0)
    }

    /// Whether a device has had too many wrong passwords.
    pub async fn is_device_spent(&self, account: AccountId, device: DeviceId) -> Result<bool, DbError> {
        const SQL: &str = "SELECT COUNT(*) FROM device_failures
            WHERE account = $1 AND device = $2 AND spent_at IS NOT NULL";
        let count: i64 = on_db!(&self.db, pool => query_scalar(SQL).bind(account.to_string())
            .bind(device.to_string()).fetch_one(pool).await)?;
        Ok(count > 0)
    }

    /// Removes failures of devices whose cookies have expired, and those beyond an account's maximum.
    pub async fn purge_device_failures(&self) -> Result<(), DbError> {
        const OLD: &str = "DELETE FROM device_failures WHERE failed_at <= $1";
        const TOO_MANY: &str = "DELETE FROM device_failures WHERE (account, device) IN (
            SELECT account, device FROM (SELECT account, device,
            ROW_NUMBER() OVER (PARTITION BY account ORDER BY failed_at DESC, device) AS place
            FROM device_failures) AS ranked WHERE place > $1)";
        let before = self.clock.now().minus(DEVICE_LIFE).0;
        for (sql, bound) in [(OLD, before), (TOO_MANY, MOST)] {
            on_db!(&self.db, pool => query(sql).bind(bound).execute(pool).await.map(drop))?;
        }
        Ok(())
    }
}

#[derive(sqlx::FromRow)]
struct DeviceRow {
    #[sqlx(flatten)]
    account: AccountRow,
    device_failures: i64,
    device_spent: i64,
}

#[cfg(test)]
mod tests;
