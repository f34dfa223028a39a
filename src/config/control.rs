//! Requests to the watcher's thread, and the handle that sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use tokio::sync::oneshot;

use super::backend::WatchWaker;
use super::draft::{DocumentEdit, DraftSaveError, SavedDraft};

pub(super) enum WatchMessage {
    /// The document changed, or may have changed.
    Changed,
    OnDemand,
    Save(Box<SaveRequest>),
    Stop,
}

/// A draft to put in force, if its author has seen the current document.
pub(super) struct SaveRequest {
    pub edit: DocumentEdit,
    /// The version that the author has seen.
    pub seen: String,
    answer: oneshot::Sender<Result<SavedDraft, DraftSaveError>>,
}

impl SaveRequest {
    pub fn answer(self, saved: Result<SavedDraft, DraftSaveError>) {
        // The caller may be gone; what was saved stays.
        self.answer.send(saved).ok();
    }
}

/// The watcher's thread, for callers that need something from it.
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

    /// For the backend of the document.
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

    /// Writes a draft into the document and puts it in force: after `Ok` it is in force.
    pub async fn save(&self, edit: DocumentEdit, seen: &str) -> Result<SavedDraft, DraftSaveError> {
        let (answer, answered) = oneshot::channel();
        let request = SaveRequest { edit, seen: seen.to_owned(), answer };
        let gone =
            || DraftSaveError::Backend("the server is stopping; try again when it is running".to_owned());
        self.wake.send(WatchMessage::Save(Box::new(request))).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}
