//! Forms that are sent twice, as by a double click: one after the other, and the second gets the answer of the first
//! instead of acting again, and the session that it started.
//!
//! Only the same browser can repeat a form, and only to the byte: whoever can do that has the browser's cookie, the
//! form's token and everything that was typed. It opens nothing that the first one did not open.

use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::wait_queue::{QueuePosition, WaitQueue};
use sqlx::{query, query_as};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Account, SessionToken, Sessions, hash_text};
use crate::accounts::{HalfSignIns, HalfToken};
use crate::db::{DbError, execute, on_db};
use crate::secret::SubKey;

/// How long a form that is sent again is recognised. Longer than any double click and than a reload of a page that
/// did not answer.
const RECOGNISED: Duration = Duration::from_secs(60);
/// Forms that may wait for the same one before them, for one form and in all. Any more do not wait.
const MOST_WAITING_FOR_ONE: usize = 8;
const MOST_WAITING: usize = 256;
/// Finished forms that this process remembers, so that it asks the database about no others.
const REMEMBERED: usize = 10_000;
/// How often a form is answered again before it is looked at like any other, which its limits count.
const MOST_REPEATS: u32 = 5;
/// Forms that may outlast a client that hangs up.
const MOST_OUTLASTING: usize = 256;

/// A form as it was sent: a keyed hash of the browser's id and everything in it, which nobody else can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FormKey(pub(super) [u8; 32]);

/// The answer to a form that succeeded: a redirect, and a message for the next page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormAnswer {
    pub location: String,
    pub flash: Option<String>,
}

#[derive(Debug)]
pub struct RepeatedForm {
    pub answer: FormAnswer,
    /// If it started a session: its new token, and its account.
    pub session: Option<(SessionToken, Account)>,
    /// If it was the first step of a sign-in: its new token, and how long it is good.
    pub half: Option<(HalfToken, Duration)>,
}

/// What a form began, by the token that its browser was given.
#[derive(Debug, Clone)]
pub enum FormToken {
    Session(SessionToken),
    Half(HalfToken),
}

pub struct SubmittedForms {
    sessions: Sessions,
    halves: HalfSignIns,
    key: SubKey,
    turns: Arc<WaitQueue<FormKey>>,
    /// With how often each was answered again.
    finished: quick_cache::sync::Cache<FormKey, u32>,
    outlasting: Arc<Semaphore>,
}

/// A form, and whether it is the first of its kind.
pub enum FormStart {
    First(FormTurn),
    Repeated(Box<RepeatedForm>),
}

/// The form's turn among those that are the same, until it is dropped.
pub struct FormTurn {
    form: FormKey,
    _turn: Option<QueuePosition<FormKey>>,
}

impl SubmittedForms {
    /// `key` is the key of the hashes by which forms are recognised; every instance needs the same.
    pub fn new(sessions: Sessions, halves: HalfSignIns, key: SubKey) -> Self {
        let turns = WaitQueue::new(MOST_WAITING, 1 + MOST_WAITING_FOR_ONE);
        let finished = quick_cache::sync::Cache::new(REMEMBERED);
        let outlasting = Arc::new(Semaphore::new(MOST_OUTLASTING));
        Self { sessions, halves, key, turns, finished, outlasting }
    }

    /// Permission to go on after the client has hung up. None if too many do: then the form ends with its client,
    /// as any request does, so that a flood that hangs up leaves little behind.
    pub fn outlast(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.outlasting).try_acquire_owned().ok()
    }

    /// A form is recognised by all of these parts together.
    pub fn recognise(&self, parts: &[&[u8]]) -> FormKey {
        FormKey(self.key.hash(parts))
    }

    /// Waits until no form of the same kind is being answered by this process.
    pub async fn begin(&self, form: FormKey) -> Result<FormStart, DbError> {
        let turn = match self.turns.join(form) {
            Some(position) => position.turn().await.ok(),
            None => None,
        };
        if let Some(repeats) = self.finished.get(&form).filter(|repeats| *repeats < MOST_REPEATS)
            && let Some(repeated) = self.repeat(form).await?
        {
            self.finished.insert(form, repeats + 1);
            return Ok(FormStart::Repeated(Box::new(repeated)));
        }
        Ok(FormStart::First(FormTurn { form, _turn: turn }))
    }

    /// It has succeeded, and began what the token opens.
    pub async fn finish(&self, turn: &FormTurn, answer: &FormAnswer, token: Option<&FormToken>) {
        let (session, half) = match token {
            Some(FormToken::Session(token)) => (Some(token), None),
            Some(FormToken::Half(token)) => (None, Some(self.halves.hash(token))),
            None => (None, None),
        };
        match self.sessions.finish_form(turn.form, answer, session, half).await {
            Ok(()) => self.finished.insert(turn.form, 0),
            // If it is sent again, it is answered as a form of its own.
            Err(error) => tracing::debug!(%error, "a form's answer could not be kept"),
        }
    }

    /// It has failed: perhaps because another instance has just answered the same form.
    pub async fn find_elsewhere(&self, turn: &FormTurn) -> Result<Option<RepeatedForm>, DbError> {
        self.repeat(turn.form).await
    }

    /// As it ended within the last minute. None if what it began has ended since.
    async fn repeat(&self, form: FormKey) -> Result<Option<RepeatedForm>, DbError> {
        let Some((repeated, half)) = self.sessions.repeat_form(form).await? else { return Ok(None) };
        let Some(half) = half else { return Ok(Some(repeated)) };
        let Some((token, lasts)) = self.halves.renew(&half).await? else { return Ok(None) };
        self.sessions.keep_half(form, self.halves.hash(&token)).await?;
        Ok(Some(RepeatedForm { half: Some((token, lasts)), ..repeated }))
    }
}

impl Sessions {
    /// The form has succeeded; `token` is that of the session that it started.
    pub(super) async fn finish_form(
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
    async fn keep_half(&self, form: FormKey, half: String) -> Result<(), DbError> {
        const SQL: &str = "UPDATE finished_forms SET half = $1 WHERE form = $2";
        execute!(&self.db => query(SQL).bind(&half).bind(hash_text(form.0))).map(drop)?;
        Ok(())
    }

    /// How the same form ended within the last minute. If it started a session, the session gets a new token,
    /// because the browser may not have received the first one. None if that session has ended: who signed out must
    /// not be signed in again by a form that somebody sends once more. With it the hash of the half of a sign-in.
    async fn repeat_form(&self, form: FormKey) -> Result<Option<(RepeatedForm, Option<String>)>, DbError> {
        const FIND: &str =
            "SELECT location, flash, session, half FROM finished_forms WHERE form = $1 AND at > $2";
        const RENEW: &str = "UPDATE sessions SET token_hash = $1 WHERE id = $2 AND idle_until > $3";
        type Row = (String, Option<String>, Option<String>, Option<String>);
        let now = self.db.now(&self.clock).await?;
        let row: Option<Row> = on_db!(&self.db, pool => query_as(FIND)
            .bind(hash_text(form.0)).bind(now.minus(RECOGNISED).0).fetch_optional(pool).await)?;
        let Some((location, flash, session, half)) = row else { return Ok(None) };
        let repeated = RepeatedForm { answer: FormAnswer { location, flash }, session: None, half: None };
        let Some(session) = session else { return Ok(Some((repeated, half))) };
        let token = SessionToken(self.entropy.bytes());
        let renewed = execute!(&self.db => query(RENEW).bind(self.hash(&token)).bind(session)
            .bind(self.clock.now().0))?;
        if renewed == 0 {
            return Ok(None);
        }
        let account = self.find(&token).await?.map(|found| found.account);
        Ok(account.map(|account| (RepeatedForm { session: Some((token, account)), ..repeated }, half)))
    }

    /// Deletes at most `batch` forms that are no longer recognised; returns how many.
    pub async fn purge_forms(&self, batch: u32) -> Result<u64, DbError> {
        const SQL: &str = "DELETE FROM finished_forms WHERE form IN (SELECT form FROM finished_forms
            WHERE at <= $1 ORDER BY at LIMIT $2)";
        let before = self.db.now(&self.clock).await?.minus(RECOGNISED).0;
        Ok(execute!(&self.db => query(SQL).bind(before).bind(i64::from(batch)))?)
    }
}
