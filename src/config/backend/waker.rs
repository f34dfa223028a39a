//! How a backend announces changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Called from any thread that learns of a change. Clones call the same.
#[derive(Clone)]
pub(in crate::config) struct WatchWaker {
    changed: Arc<dyn Fn() + Send + Sync>,
    stopping: Arc<AtomicBool>,
}

impl WatchWaker {
    /// `stopping` is set when nobody waits for changes any more.
    pub fn new(changed: impl Fn() + Send + Sync + 'static, stopping: Arc<AtomicBool>) -> Self {
        Self { changed: Arc::new(changed), stopping }
    }

    /// For a document that is read once.
    pub fn noop() -> Self {
        Self::new(|| {}, Arc::default())
    }

    pub fn changed(&self) {
        (self.changed)();
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }
}
