//! Wrong passwords in a row from strangers, and the disabling of a password that had too many.

use sqlx::{query, query_scalar};

use super::{Account, Accounts};
use crate::db::{DbError, on_db};
use crate::login::{AccountId, Username};

/// Rows of `unheld_failures`: so many that two names seldom share one.
const SLOTS: u16 = 1024;

/// The effect of one more wrong password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureResult {
    Counted,
    /// It was the last one allowed to strangers or to that device: the password is disabled for them.
    Disabled,
    /// The password was changed, or disabled for them, in the meantime.
    Void,
}

impl FailureResult {
    /// From the result of the statement that counted it.
    pub(super) const fn of(returned: Option<i32>) -> Self {
        match returned {
            None => Self::Void,
            Some(0) => Self::Counted,
            Some(_) => Self::Disabled,
        }
    }
}

impl Accounts {
    /// Counts a wrong password against the one that it was compared with, and disables that at the `max`-th
    /// in a row. Simultaneous ones all count, and one of them disables.
    pub async fn count_failure(&self, account: &Account, max: u32) -> Result<FailureResult, DbError> {
        const SQL: &str =
            "UPDATE accounts SET password_failures = password_failures + 1, password_disabled_at =
            CASE WHEN password_failures + 1 >= $1 THEN CAST($2 AS BIGINT) END
            WHERE id = $3 AND password_version = $4 AND password_disabled_at IS NULL
            RETURNING CASE WHEN password_disabled_at IS NULL THEN 0 ELSE 1 END";
        let (id, now) = (account.id.to_string(), self.clock.now().0);
        let disabled: Option<i32> = on_db!(&self.db, pool => query_scalar(SQL).bind(i64::from(max)).bind(now)
            .bind(id).bind(account.password_version).fetch_optional(pool).await)?;
        Ok(FailureResult::of(disabled))
    }

    /// As expensive as counting, for a name without a password. Each name always uses the same row, so that
    /// simultaneous attempts wait for each other as they would at an account.
    pub async fn count_unheld_failure(&self, login: &Username) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO unheld_failures (slot, count) VALUES ($1, 1)
            ON CONFLICT (slot) DO UPDATE SET count = unheld_failures.count + 1 RETURNING slot";
        let hash = blake3::hash(login.as_str().as_bytes());
        let [low, high, ..] = *hash.as_bytes();
        let slot = i64::from(u16::from_le_bytes([low, high]) % SLOTS);
        let _: Option<i64> =
            on_db!(&self.db, pool => query_scalar(SQL).bind(slot).fetch_optional(pool).await)?;
        Ok(())
    }

    /// The account's password was right: earlier wrong ones no longer count. False if it was changed or
    /// disabled after the account was read; then it was not right after all.
    pub async fn forget_failures(&self, account: &Account) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE accounts SET password_failures = 0
            WHERE id = $1 AND password_version = $2 AND password_disabled_at IS NULL";
        let rows = on_db!(&self.db, pool => query(SQL).bind(account.id.to_string())
            .bind(account.password_version).execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(rows > 0)
    }

    /// Re-enables a disabled password. False if it is not disabled.
    pub async fn enable_password(&self, id: AccountId) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE accounts SET password_failures = 0, password_disabled_at = NULL
            WHERE id = $1 AND password_disabled_at IS NOT NULL";
        let rows = on_db!(&self.db, pool => query(SQL).bind(id.to_string()).execute(pool).await
            .map(|done| done.rows_affected()))?;
        Ok(rows > 0)
    }
}

#[cfg(test)]
mod tests;
