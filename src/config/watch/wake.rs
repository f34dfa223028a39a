//! What the watcher's thread is woken with, and the handles that wake it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use tokio::sync::oneshot;

use crate::config::draft::{Edit, SaveError, Saved};

pub(super) enum Wake {
    /// Something happened to the document, or may have.
    Changed,
    OnDemand,
    Save(SaveRequest),
    Stop,
}

/// A draft that is to be put in force, if its author has seen the document that stands there.
pub struct SaveRequest {
    pub(super) edit: Edit,
    /// The version that the author has seen.
    pub(super) seen: String,
    answer: oneshot::Sender<Result<Saved, SaveError>>,
}

impl SaveRequest {
    pub(super) fn answer(self, saved: Result<Saved, SaveError>) {
        // Whoever asked may have gone; what was saved stays.
        self.answer.send(saved).ok();
    }
}

pub(super) fn channel() -> (Waker, Receiver<Wake>) {
    let (wake, woken) = std::sync::mpsc::channel();
    (Waker { wake, stopping: Arc::default() }, woken)
}

/// For a home that nobody waits for.
pub(in crate::config) fn nobody() -> Waker {
    channel().0
}

/// What a home tells changes with, from whichever thread hears of them.
#[derive(Debug, Clone)]
pub(in crate::config) struct Waker {
    wake: Sender<Wake>,
    stopping: Arc<AtomicBool>,
}

impl Waker {
    pub fn changed(&self) {
        self.wake.send(Wake::Changed).ok();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}

/// The watcher's thread, for those who ask something of it.
#[derive(Debug, Clone)]
pub struct Control(Waker);

impl Control {
    pub(super) fn of(waker: &Waker) -> Self {
        Self(waker.clone())
    }

    pub(super) fn reload(&self) {
        // The thread is gone only if the hook panicked, which has been reported as such.
        self.0.wake.send(Wake::OnDemand).ok();
    }

    pub(super) fn stop(&self) {
        self.0.stopping.store(true, Ordering::Relaxed);
        self.0.wake.send(Wake::Stop).ok();
    }

    /// Puts a draft into the document and in force: when this answers with `Ok`, it is.
    pub async fn save(&self, edit: Edit, seen: &str) -> Result<Saved, SaveError> {
        let (answer, answered) = oneshot::channel();
        let request = SaveRequest { edit, seen: seen.to_owned(), answer };
        let gone = || SaveError::Home("the server is stopping; try again once it runs".to_owned());
        self.0.wake.send(Wake::Save(request)).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}
