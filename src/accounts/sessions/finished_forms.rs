//! Forms that succeeded within the last minute, and what they began: see `SubmittedForms`.

use std::time::Duration;

use sqlx::{query, query_as};

use super::{Account, SessionToken, Sessions, hash_text};
use crate::db::{DbError, execute, on_db};

/// How long a form that is sent again is recognised. Longer than any double click and than a reload of a page that
/// did not answer.
const RECOGNISED: Duration = Duration::from_secs(60);

/// A form as it was sent: a keyed hash of the browser's id and everything in it, which nobody else can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FormKey([u8; 32]);

impl FormKey {
    pub(in crate::accounts) const fn of(hash: [u8; 32]) -> Self {
        Self(hash)
    }
}

/// The answer to a form that succeeded: a redirect, and a message for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormAnswer {
    pub location: String,
    pub flash: Option<String>,
}

/// The answer; the new token of the session that the form started, and its account; the hash of the half of a sign-in
/// that it began.
type FinishedForm = (FormAnswer, Option<(SessionToken, Account)>, Option<String>);

impl Sessions {
    /// The form has succeeded; `token` is that of the session that it started.
    pub(in crate::accounts) async fn finish_form(
        &self,
        form: FormKey,
        answer: &FormAnswer,
        token: Option<&SessionToken>,
        half: Option<String>,
    ) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO finished_forms (form, at, location, flash, session, half)
            VALUES ($1, $2, $3, $4, (SELECT id FROM sessions WHERE token_hash = $5), $6)
            ON CONFLICT (form) DO UPDATE SET at = excluded.at, location = excluded.location,
            flash = excluded.flash, session = excluded.session, half = excluded.half";
        let now = self.db.now(&self.clock).await?;
        let hash = token.map(|token| self.hash(token));
        execute!(&self.db => query(SQL).bind(hash_text(form.0)).bind(now.0).bind(&answer.location)
            .bind(&answer.flash).bind(&hash).bind(&half))?;
        Ok(())
    }

    /// The half of a sign-in that the form began has another token now, of this hash.
    pub(in crate::accounts) async fn keep_half(&self, form: FormKey, half: String) -> Result<(), DbError> {
        const SQL: &str = "UPDATE finished_forms SET half = $1 WHERE form = $2";
        execute!(&self.db => query(SQL).bind(&half).bind(hash_text(form.0))).map(drop)?;
        Ok(())
    }

    /// How the same form ended within the last minute. If it started a session, the session gets a new token,
    /// because the browser may not have received the first one. None if that session has ended: who signed out must
    /// not be signed in again by a form that somebody sends once more. With it the hash of the half of a sign-in.
    pub(in crate::accounts) async fn repeat_form(
        &self,
        form: FormKey,
    ) -> Result<Option<FinishedForm>, DbError> {
        const FIND: &str =
            "SELECT location, flash, session, half FROM finished_forms WHERE form = $1 AND at > $2";
        const RENEW: &str = "UPDATE sessions SET token_hash = $1 WHERE id = $2 AND idle_until > $3";
        type Row = (String, Option<String>, Option<String>, Option<String>);
        let now = self.db.now(&self.clock).await?;
        let row: Option<Row> = on_db!(&self.db, pool => query_as(FIND)
            .bind(hash_text(form.0)).bind(now.minus(RECOGNISED).0).fetch_optional(pool).await)?;
        let Some((location, flash, session, half)) = row else { return Ok(None) };
        let answer = FormAnswer { location, flash };
        let Some(session) = session else { return Ok(Some((answer, None, half))) };
        let token = SessionToken(self.entropy.bytes());
        let renewed = execute!(&self.db => query(RENEW).bind(self.hash(&token)).bind(session)
            .bind(self.clock.now().0))?;
        if renewed == 0 {
            return Ok(None);
        }
        // The session may be one that opens nothing but a page on which a second factor is set up.
        let account = self.recognise(&token).await?.map(|found| found.account);
        Ok(account.map(|account| (answer, Some((token, account)), half)))
    }

    /// Deletes at most `batch` forms that are no longer recognised; returns how many.
    pub async fn purge_forms(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM finished_forms WHERE form IN (SELECT form FROM finished_forms
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        let before = self.db.now(&self.clock).await?.minus(RECOGNISED).0;
        Ok(execute!(&self.db => query(SQL).bind(before).bind(i64::from(batch)))?)
    }
}
