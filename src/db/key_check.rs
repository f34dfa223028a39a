//! Under which key what is stored was hashed. Under another one nothing of it is found, and every window begins anew.

use sqlx::{query, query_as, query_scalar};

use super::{Db, DbError, execute, on_db};
use crate::clock::Micros;

/// What the database says about its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyCheck {
    /// The value as [`MasterKey::check_value`](crate::secret::MasterKey::check_value) has it.
    pub value: String,
    pub given_up: CountedBefore,
}

/// When messages, wrong passwords and wrong second factors were last counted under a key that was given up: nobody can tell
/// any more for whom. Zero if none were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CountedBefore {
    pub messages: Micros,
    pub passwords: Micros,
    pub factors: Micros,
}

impl Db {
    /// Reads the check; None if the database has never been used, or by versions before this check alone.
    pub async fn key_check(&self) -> Result<Option<KeyCheck>, DbError> {
        const SQL: &str = "SELECT value, messages_at, passwords_at, factors_at FROM key_check WHERE id = 1";
        let row: Option<(String, i64, i64, i64)> =
            on_db!(self, pool => query_as(SQL).fetch_optional(pool).await)?;
        Ok(row.map(|(value, messages, passwords, factors)| {
            let [messages, passwords, factors] = [messages, passwords, factors].map(Micros);
            KeyCheck { value, given_up: CountedBefore { messages, passwords, factors } }
        }))
    }

    /// Takes this value if it has none. Returns what it has: that of whoever came first.
    pub async fn take_key_check(&self, value: &str) -> Result<KeyCheck, DbError> {
        const SQL: &str = "INSERT INTO key_check (id, value) VALUES (1, $1) ON CONFLICT DO NOTHING";
        if let Some(known) = self.key_check().await? {
            return Ok(known);
        }
        execute!(self => query(SQL).bind(value))?;
        Ok(self.key_check().await?.ok_or(sqlx::Error::RowNotFound)?)
    }

    /// Gives up the key that it knows for another one.
    pub async fn replace_key_check(&self, value: &str) -> Result<(), DbError> {
        const SQL: &str =
            "INSERT INTO key_check (id, value, messages_at, passwords_at, factors_at) VALUES (1, $1, $2, $3, $4)
            ON CONFLICT (id) DO UPDATE SET value = excluded.value, messages_at = excluded.messages_at,
                passwords_at = excluded.passwords_at, factors_at = excluded.factors_at";
        let CountedBefore { messages, passwords, factors } = self.newest_counted().await?;
        execute!(self => query(SQL).bind(value).bind(messages.0).bind(passwords.0).bind(factors.0))?;
        Ok(())
    }

    async fn newest_counted(&self) -> Result<CountedBefore, DbError> {
        const MESSAGES: &str = "SELECT MAX(created_at) FROM sms_messages WHERE state <> 'refused'";
        const GUESSES: &str = "SELECT MAX(at) FROM sms_guesses";
        const PASSWORDS: &str = "SELECT MAX(at) FROM failed_attempts WHERE logs NOT LIKE 'factor-%'";
        const FACTORS: &str = "SELECT MAX(at) FROM failed_attempts WHERE logs LIKE 'factor-%'";
        let newest = async |sql: &'static str| -> Result<Micros, DbError> {
            let at: Option<i64> = on_db!(self, pool => query_scalar(sql).fetch_one(pool).await)?;
            Ok(Micros(at.unwrap_or_default()))
        };
        Ok(CountedBefore {
            messages: newest(MESSAGES).await?.max(newest(GUESSES).await?),
            passwords: newest(PASSWORDS).await?,
            factors: newest(FACTORS).await?,
        })
    }
}
