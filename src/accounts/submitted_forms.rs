//! Forms that are sent twice, as by a double click: one after the other, and the second gets the answer of the first
//! instead of acting again, and the session that it started.
//!
//! Only the same browser can repeat a form, and only to the byte: whoever can do that has the browser's cookie, the
//! form's token and everything that was typed. It opens nothing that the first one did not open.

use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::wait_queue::{QueuePosition, WaitQueue};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Account, FormAnswer, FormKey, HalfSignIns, HalfToken, SessionToken, Sessions};
use crate::db::DbError;
use crate::foundation::Foundation;
use crate::secret::SubKey;

/// Forms that may wait for the same one before them, for one form and in all. Any more do not wait.
const MOST_WAITING_FOR_ONE: usize = 8;
const MOST_WAITING: usize = 256;
/// Finished forms that this process remembers, so that it asks the database about no others.
const REMEMBERED: usize = 10_000;
/// How often a form is answered again before it is looked at like any other, which its limits count.
const MOST_REPEATS: u32 = 5;
/// Forms that may outlast a client that hangs up.
const MOST_OUTLASTING: usize = 256;

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
    /// Forms are recognised by hashes under a key of which every instance needs the same.
    pub fn new(foundation: &Foundation, sessions: Sessions, halves: HalfSignIns) -> Self {
        let key = foundation.secrets.derive("web.form");
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
        FormKey::of(self.key.hash(parts))
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

    /// How the form ended within the last minute. None if what it began has ended since.
    async fn repeat(&self, form: FormKey) -> Result<Option<RepeatedForm>, DbError> {
        let Some((answer, session, half)) = self.sessions.repeat_form(form).await? else { return Ok(None) };
        let Some(half) = half else { return Ok(Some(RepeatedForm { answer, session, half: None })) };
        let Some((token, lasts)) = self.halves.renew(&half).await? else { return Ok(None) };
        self.sessions.keep_half(form, self.halves.hash(&token)).await?;
        Ok(Some(RepeatedForm { answer, session, half: Some((token, lasts)) }))
    }
}
