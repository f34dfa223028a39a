//! The slot of a request whose answer decides whether it counts. The store always learns the outcome, even if
//! the request is aborted.

use crate::throttle::{Hold, StoreError, WindowStore};

/// If this is dropped before the answer is known, for example because the client hangs up, the request
/// counts. Otherwise a client could avoid the limit by hanging up before the answer.
pub(super) struct InFlight<S: WindowStore + 'static>(Option<Hold<S>>);

impl<S: WindowStore + 'static> InFlight<S> {
    pub(super) fn new(hold: Hold<S>) -> Self {
        Self(Some(hold))
    }

    /// The answer is known. It is settled in a separate task, which continues if the client hangs up.
    pub(super) async fn end(mut self, counts: bool) {
        if let Some(hold) = self.0.take() {
            let _ = tokio::spawn(settle(hold, counts)).await;
        }
    }
}

impl<S: WindowStore + 'static> Drop for InFlight<S> {
    fn drop(&mut self) {
        let Some(hold) = self.0.take() else { return };
        // Without a runtime the server is gone. The slot becomes a hit by itself.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(settle(hold, true));
        }
    }
}

async fn settle<S: WindowStore + 'static>(hold: Hold<S>, counts: bool) {
    let told = if counts { hold.keep().await.map(drop) } else { hold.refund().await };
    if let Err(error) = told {
        failed(&error);
    }
}

pub(super) fn failed(error: &StoreError) {
    metrics::counter!("gatehouse_store_errors_total").increment(1);
    tracing::debug!(%error, "the window store failed while it checked the limits of a request");
}
