//! Forms that succeeded a moment ago. If one is sent again, as by a double click, it is answered in the same way,
//! and gets the session that it started the first time.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sqlx::{query, query_as};

use super::{SessionToken, Sessions};
use crate::db::{DbError, on_db};
use crate::login::Account;

/// How long a form that is sent again is recognised. Longer than any double click and than a reload of a page that
/// did not answer.
const RECOGNISED: Duration = Duration::from_secs(60);

/// A form as it was sent: a keyed hash of the browser's id and everything in it, which nobody else can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FormKey(pub(in crate::login) [u8; 32]);

/// The answer to a form that succeeded: a redirect, and a message for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormAnswer {
    pub location: String,
    pub flash: Option<String>,
}

/// The answer to the same form again.
#[derive(Debug)]
pub struct RepeatedForm {
    pub answer: FormAnswer,
    /// If it started a session: its new token, and its account.
    pub session: Option<(SessionToken, Account)>,
}

impl Sessions {
    /// The form has succeeded; `token` is that of the session that it started.
    pub(in crate::login) async fn finish_form(
        &self,
        form: FormKey,
        answer: &FormAnswer,
        token: Option<&SessionToken>,
    ) -> Result<(), DbError> {
        const SQL: &str = "INSERT INTO finished_forms (form, at, location, flash, session)
            VALUES ($1, $2, $3, $4, (SELECT id FROM sessions WHERE token_hash = $5))
            ON CONFLICT (form) DO UPDATE SET at = excluded.at, location = excluded.location,
            flash = excluded.flash, session = excluded.session";
        let now = self.db.now(&self.clock).await?;
        let hash = token.map(|token| self.hash(token));
        on_db!(&self.db, pool => query(SQL).bind(text(form)).bind(now.0).bind(&answer.location)
            .bind(&answer.flash).bind(&hash).execute(pool).await.map(drop))?;
        Ok(())
    }

    /// How the same form ended within the last minute. If it started a session, the session gets a new token,
    /// because the browser may not have received the first one. None if that session has ended: who signed out must
    /// not be signed in again by a form that somebody sends once more.
    pub(in crate::login) async fn repeat_form(&self, form: FormKey) -> Result<Option<RepeatedForm>, DbError> {
        const FIND: &str = "SELECT location, flash, session FROM finished_forms WHERE form = $1 AND at > $2";
        const RENEW: &str = "UPDATE sessions SET token_hash = $1 WHERE id = $2 AND idle_until > $3";
        let now = self.db.now(&self.clock).await?;
        let row: Option<(String, Option<String>, Option<String>)> = on_db!(&self.db, pool => query_as(FIND)
            .bind(text(form)).bind(now.minus(RECOGNISED).0).fetch_optional(pool).await)?;
        let Some((location, flash, session)) = row else { return Ok(None) };
        let answer = FormAnswer { location, flash };
        let Some(session) = session else { return Ok(Some(RepeatedForm { answer, session: None })) };
        let token = SessionToken(self.entropy.bytes());
        let renewed = on_db!(&self.db, pool => query(RENEW).bind(self.hash(&token)).bind(session)
            .bind(self.clock.now().0).execute(pool).await.map(|done| done.rows_affected()))?;
        if renewed == 0 {
            return Ok(None);
        }
        let account = self.find(&token).await?.map(|found| found.account);
        Ok(account.map(|account| RepeatedForm { answer, session: Some((token, account)) }))
    }

    /// Deletes at most `batch` forms that are no longer recognised; returns how many.
    pub async fn purge_forms(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM finished_forms WHERE form IN (SELECT form FROM finished_forms
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        let before = self.db.now(&self.clock).await?.minus(RECOGNISED).0;
        Ok(on_db!(&self.db, pool => query(SQL).bind(before).bind(i64::from(batch)).execute(pool).await
            .map(|done| done.rows_affected()))?)
    }
}

fn text(FormKey(hash): FormKey) -> String {
    URL_SAFE_NO_PAD.encode(hash)
}
