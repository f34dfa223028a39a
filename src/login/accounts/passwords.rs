//! An account's password in the database, and what a change of it ends.

use sqlx::{query, query_scalar};

use super::Accounts;
use crate::db::{DbError, DbLock, on_db, on_tx};
use crate::login::{AccountId, DeviceId, Phc, session_changes};
use crate::sms::Phone;

/// How somebody has proved that they may set a password.
#[derive(Debug, Clone, Copy)]
pub enum ShownBy<'a> {
    /// By the password of that version, as a stranger.
    Password(i64),
    /// The same, from a known device.
    PasswordFrom(i64, DeviceId),
    /// By a code sent to the account's number.
    Phone(&'a Phone),
}

const SET_VERIFIED: &str = "UPDATE accounts SET password_hash = $1, must_change_password = 0,
    password_version = password_version + 1, password_failures = 0
    WHERE id = $2 AND password_version = $3 AND password_disabled_at IS NULL AND disabled_at IS NULL
    RETURNING password_version";
const SET_FROM_DEVICE: &str = "UPDATE accounts SET password_hash = $1, must_change_password = 0,
    password_version = password_version + 1, password_failures = 0, password_disabled_at = NULL
    WHERE id = $2 AND password_version = $3 AND disabled_at IS NULL AND NOT EXISTS (SELECT 1 FROM device_failures
    WHERE account = $2 AND device = $4 AND spent_at IS NOT NULL) RETURNING password_version";
const SET_PROVEN: &str = "UPDATE accounts SET password_hash = $1, must_change_password = 0,
    password_version = password_version + 1, password_failures = 0, password_disabled_at = NULL
    WHERE id = $2 AND phone = $3 AND disabled_at IS NULL RETURNING password_version";

impl Accounts {
    /// Sets a password that the owner chose, and ends every session of the account in the same step: an
    /// attempt that verified the old password starts no session. Returns the new version; None if the proof
    /// is no longer valid. A code or a known device also re-enables a disabled password. The failures of
    /// devices are deleted with the password that the devices knew.
    pub async fn set_password(
        &self,
        id: AccountId,
        phc: &Phc,
        shown: ShownBy<'_>,
    ) -> Result<Option<i64>, DbError> {
        const END_SESSIONS: &str = "DELETE FROM sessions WHERE account = $1";
        const FORGET_DEVICES: &str = "DELETE FROM device_failures WHERE account = $1";
        let account = id.to_string();
        let at = self.db.now(&self.clock).await?;
        let mut tx = self.db.begin_exclusive(DbLock::account(id.as_bytes())).await?;
        // The account first: a session that starts at the same time either holds its row or finds it changed.
        let version: Option<i64> = on_tx!(&mut tx, connection => {
            let set = match shown {
                ShownBy::Password(version) => query_scalar(SET_VERIFIED).bind(phc.as_str()).bind(&account).bind(version),
                ShownBy::PasswordFrom(version, device) => query_scalar(SET_FROM_DEVICE).bind(phc.as_str())
                    .bind(&account).bind(version).bind(device.to_string()),
                ShownBy::Phone(phone) => query_scalar(SET_PROVEN).bind(phc.as_str()).bind(&account).bind(phone.as_str()),
            };
            set.fetch_optional(connection).await
        })?;
        if version.is_some() {
            session_changes::record(&mut tx, &self.entropy, &account, at).await?;
            for sql in [END_SESSIONS, FORGET_DEVICES] {
                on_tx!(&mut tx, connection => query(sql).bind(&account).execute(connection).await.map(drop))?;
            }
            tx.commit().await?;
        }
        Ok(version)
    }

    /// Replaces the hash of the same password. False, and nothing changes, if the password was changed in the
    /// meantime.
    pub async fn rehash(&self, id: AccountId, old: &Phc, new: &Phc) -> Result<bool, DbError> {
        const SQL: &str = "UPDATE accounts SET password_hash = $1 WHERE id = $2 AND password_hash = $3";
        let rows = on_db!(&self.db, pool => query(SQL).bind(new.as_str()).bind(id.to_string()).bind(old.as_str())
            .execute(pool).await.map(|done| done.rows_affected()))?;
        Ok(rows > 0)
    }
}
