//! What the watcher's thread is asked for, and the handle that asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use tokio::sync::oneshot;

use super::backend::WatchWaker;
use super::draft::{DraftEdit, DraftSaveError, SavedDraft};

pub(super) enum WatchMessage {
    /// Something happened to the document, or may have.
    Changed,
    OnDemand,
    Save(Box<SaveRequest>),
    Stop,
}

/// A draft that is to be put in force, if its author has seen the document that stands there.
pub(super) struct SaveRequest {
    pub edit: DraftEdit,
    /// The version that the author has seen.
    pub seen: String,
    answer: oneshot::Sender<Result<SavedDraft, DraftSaveError>>,
}

impl SaveRequest {
    pub fn answer(self, saved: Result<SavedDraft, DraftSaveError>) {
        // Whoever asked may have gone; what was saved stays.
        self.answer.send(saved).ok();
    }
}

/// The watcher's thread, for those who ask something of it.
#[derive(Debug, Clone)]
pub struct WatchControl {
    wake: Sender<WatchMessage>,
    stopping: Arc<AtomicBool>,
}

impl WatchControl {
    pub(super) fn new() -> (Self, Receiver<WatchMessage>) {
        let (wake, woken) = std::sync::mpsc::channel();
        (Self { wake, stopping: Arc::default() }, woken)
    }

    /// For what keeps the document.
    pub(super) fn waker(&self) -> WatchWaker {
        let wake = self.wake.clone();
        // The thread is gone only if the hook panicked, which has been reported as such.
        WatchWaker::new(move || drop(wake.send(WatchMessage::Changed)), Arc::clone(&self.stopping))
    }

    pub(super) fn reload(&self) {
        self.wake.send(WatchMessage::OnDemand).ok();
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake.send(WatchMessage::Stop).ok();
    }

    /// Puts a draft into the document and in force: when this answers with `Ok`, it is.
    pub async fn save(&self, edit: DraftEdit, seen: &str) -> Result<SavedDraft, DraftSaveError> {
        let (answer, answered) = oneshot::channel();
        let request = SaveRequest { edit, seen: seen.to_owned(), answer };
        let gone =
            || DraftSaveError::Backend("the server is stopping; try again when it is running".to_owned());
        self.wake.send(WatchMessage::Save(Box::new(request))).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}
