//! The number of an account; no two accounts have the same.

use std::pin::Pin;

use sqlx::{query, query_scalar};

use super::{Account, Accounts};
use crate::clock::Micros;
use crate::db::{DbError, on_db};
use crate::login::AccountId;
use crate::sms::{Phone, PhoneOwners};

/// The result of setting a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhoneSet {
    Done,
    /// Another account has it.
    Taken,
    /// The account no longer exists, was disabled, or has another password.
    Gone,
}

impl Accounts {
    /// Gives the account a number, replacing any earlier one. The account is as it was when its password was
    /// verified: whatever happened to it since is not undone.
    pub async fn set_phone(&self, account: &Account, phone: &Phone) -> Result<PhoneSet, DbError> {
        // Checked first, because PostgreSQL would log a statement that fails on the index, including the
        // number. A client that was admitted by the older number in the meantime starts no session; existing
        // sessions continue.
        const SQL: &str =
            "UPDATE accounts SET phone_since = CASE WHEN phone = $1 THEN phone_since ELSE $3 END, phone = $1,
            password_version = password_version + 1
            WHERE id = $2 AND password_version = $4 AND disabled_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM accounts WHERE phone = $1 AND id <> $2)";
        let now = self.db.now(&self.clock).await?;
        let set = on_db!(&self.db, pool => query(SQL).bind(phone.as_str()).bind(account.id.to_string())
            .bind(now.0).bind(account.password_version).execute(pool).await.map(|done| done.rows_affected()))
        .map_err(DbError::from);
        match set {
            Ok(0) if self.find_by_phone(phone).await?.is_some() => Ok(PhoneSet::Taken),
            Ok(0) => Ok(PhoneSet::Gone),
            Ok(_) => Ok(PhoneSet::Done),
            Err(error) if error.is_unique_violation() => Ok(PhoneSet::Taken),
            Err(error) => Err(error),
        }
    }

    /// Removes the number, and with it every sign-in by it that has no session yet. False if it is the only
    /// way to sign in.
    pub async fn remove_phone(&self, id: AccountId) -> Result<bool, DbError> {
        const SQL: &str =
            "UPDATE accounts SET phone = NULL, phone_since = NULL, password_version = password_version + 1
            WHERE id = $1 AND password_hash IS NOT NULL AND password_disabled_at IS NULL";
        let rows = on_db!(&self.db, pool => query(SQL).bind(id.to_string()).execute(pool).await
            .map(|done| done.rows_affected()))?;
        Ok(rows > 0)
    }
}

impl PhoneOwners for Accounts {
    fn since<'a>(
        &'a self,
        phone: &'a Phone,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Micros>, DbError>> + Send + 'a>> {
        // An older version that runs beside this one leaves it out.
        const SQL: &str = "SELECT COALESCE(phone_since, created_at) FROM accounts WHERE phone = $1";
        Box::pin(async {
            let since: Option<i64> =
                on_db!(&self.db, pool => query_scalar(SQL).bind(phone.as_str()).fetch_optional(pool).await)?;
            Ok(since.map(Micros))
        })
    }
}
