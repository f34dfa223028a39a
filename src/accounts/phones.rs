//! The numbers of accounts; no two accounts have the same.

use sqlx::query;

use super::{Account, Accounts};
use crate::db::{DbError, DbLock, execute};
use crate::mail::{self, LetterKind};
use crate::sms::Phone;

/// What became of giving an account a number or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecipientSet {
    Done,
    /// Another account has it.
    Taken,
    /// The account no longer exists, was disabled, or has another password.
    Gone,
}

impl Accounts {
    /// Gives the account a number, replacing any earlier one. The account is as it was when its password was
    /// verified: whatever happened to it since is not undone.
    pub async fn set_phone(&self, account: &Account, phone: &Phone) -> Result<RecipientSet, DbError> {
        // Checked first, because PostgreSQL would log a statement that fails on the index, including the
        // number. A client that was admitted by the older number in the meantime starts no session; existing
        // sessions continue.
        const SQL: &str =
            "UPDATE accounts SET phone_lost_at = CASE WHEN phone <> $1 THEN $3 ELSE phone_lost_at END,
            phone_since = CASE WHEN phone = $1 THEN phone_since ELSE $3 END, phone = $1,
            password_version = password_version + 1
            WHERE id = $2 AND password_version = $4 AND disabled_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM accounts WHERE phone = $1 AND id <> $2)";
        let id = account.id.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.id.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        let set = execute!(in &mut tx => query(SQL).bind(phone.as_str()).bind(&id).bind(now.0)
            .bind(account.password_version))
        .map_err(DbError::from);
        if matches!(set, Ok(1..)) {
            mail::tell(&mut tx, &self.entropy, (&id, LetterKind::PhoneChanged), now).await?;
            tx.commit().await?;
        } else {
            drop(tx);
        }
        match set {
            Ok(0) if self.find_by_phone(phone).await?.is_some() => Ok(RecipientSet::Taken),
            Ok(0) => Ok(RecipientSet::Gone),
            Ok(_) => Ok(RecipientSet::Done),
            Err(error) if error.is_unique_violation() => Ok(RecipientSet::Taken),
            Err(error) => Err(error),
        }
    }

    /// Removes the number, and with it every sign-in by it that has no session yet. The account is as it was when its
    /// password was verified. False if the number is the only way to sign in, or the account was changed since.
    pub async fn remove_phone(&self, account: &Account) -> Result<bool, DbError> {
        const SQL: &str =
            "UPDATE accounts SET phone_lost_at = CASE WHEN phone IS NOT NULL THEN $2 ELSE phone_lost_at END,
            phone = NULL, phone_since = NULL, password_version = password_version + 1
            WHERE id = $1 AND password_version = $3 AND password_hash IS NOT NULL AND password_disabled_at IS NULL";
        let id = account.id.to_string();
        let mut tx = self.db.begin_exclusive(DbLock::account(account.id.as_bytes())).await?;
        let now = tx.now(&self.clock).await?;
        let removed =
            execute!(in &mut tx => query(SQL).bind(&id).bind(now.0).bind(account.password_version))? > 0;
        if removed {
            mail::tell(&mut tx, &self.entropy, (&id, LetterKind::PhoneRemoved), now).await?;
            tx.commit().await?;
        }
        Ok(removed)
    }
}
