//! The signal to stop, for tasks that run beside the requests: each ends at a point where it holds nothing
//! half done.

use std::time::Duration;

use tokio::sync::watch;

/// Stops every [`StopSignal`] when it is dropped.
#[derive(Debug)]
pub struct StopSender(watch::Sender<()>);

#[derive(Debug, Clone)]
pub struct StopSignal(watch::Receiver<()>);

impl StopSender {
    pub fn new() -> Self {
        Self(watch::Sender::new(()))
    }

    pub fn stop(&self) -> StopSignal {
        StopSignal(self.0.subscribe())
    }
}

impl Default for StopSender {
    fn default() -> Self {
        Self::new()
    }
}

impl StopSignal {
    /// Waits for a while; false if it is stopped in the meantime.
    pub async fn pause(&mut self, span: Duration) -> bool {
        tokio::select! {
            () = self.told() => false,
            () = tokio::time::sleep(span) => true,
        }
    }

    /// Returns when it is stopped, and immediately ever after.
    pub async fn told(&mut self) {
        // Nothing is ever sent: dropping the sender is the signal.
        while self.0.changed().await.is_ok() {}
    }
}
