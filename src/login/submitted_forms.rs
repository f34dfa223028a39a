//! Forms that are sent twice, as by a double click: one after the other, and the second gets the answer of the first
//! instead of acting again.
//!
//! Only the same browser can repeat a form, and only to the byte: whoever can do that has the browser's cookie, the
//! form's token and everything that was typed. It opens nothing that the first one did not open.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Sessions;
use super::sessions::{FormAnswer, FormKey, RepeatedForm, SessionToken};
use crate::db::DbError;
use crate::secret::SubKey;
use crate::throttle::wait_queue::{QueuePosition, WaitQueue};

/// Forms that may wait for the same one before them, for one form and in all. Any more do not wait.
const MOST_WAITING_FOR_ONE: usize = 8;
const MOST_WAITING: usize = 256;
/// Finished forms that this process remembers, so that it asks the database about no others.
const REMEMBERED: usize = 10_000;
/// How often a form is answered again before it is looked at like any other, which its limits count.
const MOST_REPEATS: u32 = 5;
/// Forms that may outlast a client that hangs up.
const MOST_OUTLASTING: usize = 256;

/// Clones share it.
#[derive(Clone)]
pub struct SubmittedForms(Arc<FormsInner>);

struct FormsInner {
    sessions: Sessions,
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
    pub fn new(sessions: Sessions, key: SubKey) -> Self {
        let turns = WaitQueue::new(MOST_WAITING, 1 + MOST_WAITING_FOR_ONE);
        let finished = quick_cache::sync::Cache::new(REMEMBERED);
        let outlasting = Arc::new(Semaphore::new(MOST_OUTLASTING));
        Self(Arc::new(FormsInner { sessions, key, turns, finished, outlasting }))
    }

    /// Permission to go on after the client has hung up. None if too many do: then the form ends with its client,
    /// as any request does, so that a flood that hangs up leaves little behind.
    pub fn outlast(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.outlasting).try_acquire_owned().ok()
    }

    /// A form is recognised by all of these parts together.
    pub fn recognise(&self, parts: &[&[u8]]) -> FormKey {
        FormKey(self.0.key.hash(parts))
    }

    /// Waits until no form of the same kind is being answered by this process.
    pub async fn begin(&self, form: FormKey) -> Result<FormStart, DbError> {
        let turn = match self.0.turns.join(form) {
            Some(position) => position.turn().await.ok(),
            None => None,
        };
        if let Some(repeats) = self.0.finished.get(&form).filter(|repeats| *repeats < MOST_REPEATS)
            && let Some(repeated) = self.0.sessions.repeat_form(form).await?
        {
            self.0.finished.insert(form, repeats + 1);
            return Ok(FormStart::Repeated(Box::new(repeated)));
        }
        Ok(FormStart::First(FormTurn { form, _turn: turn }))
    }

    /// It has succeeded. `token` is that of the session that it started.
    pub async fn finish(&self, turn: &FormTurn, answer: &FormAnswer, token: Option<&SessionToken>) {
        match self.0.sessions.finish_form(turn.form, answer, token).await {
            Ok(()) => self.0.finished.insert(turn.form, 0),
            // If it is sent again, it is answered as a form of its own.
            Err(error) => tracing::debug!(%error, "a form's answer could not be kept"),
        }
    }

    /// It has failed: perhaps because another instance has just answered the same form.
    pub async fn find_elsewhere(&self, turn: &FormTurn) -> Result<Option<RepeatedForm>, DbError> {
        self.0.sessions.repeat_form(turn.form).await
    }
}
