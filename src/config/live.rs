//! The live configuration in force: taken as one snapshot, replaced as one.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;

use crate::clock::Micros;

use super::error::ConfigError;
use super::settings::Live;
use super::source::Fingerprint;

/// What is in force, for everyone who asks. Clones share it.
#[derive(Debug, Clone)]
pub struct LiveHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    in_force: ArcSwap<InForce>,
    refused: Mutex<Option<Refused>>,
}

/// One configuration and what it is known by.
#[derive(Debug, Clone)]
pub struct InForce {
    pub live: Arc<Live>,
    /// From 1; one more with each content that is applied.
    pub version: u64,
    /// Of the file; `None` where the configuration came from none.
    pub fingerprint: Option<Fingerprint>,
}

/// A change that was not applied.
#[derive(Debug, Clone)]
pub struct Refused {
    pub error: ConfigError,
    pub at: Micros,
}

impl LiveHandle {
    pub(super) fn new(live: Live, fingerprint: Fingerprint) -> Self {
        Self::starting(live, Some(fingerprint))
    }

    /// A configuration that nothing reloads, as tests and the library's users want it.
    pub fn fixed(live: Live) -> Self {
        Self::starting(live, None)
    }

    fn starting(live: Live, fingerprint: Option<Fingerprint>) -> Self {
        let in_force = InForce { live: Arc::new(live), version: 1, fingerprint };
        Self(Arc::new(Shared { in_force: ArcSwap::from_pointee(in_force), refused: Mutex::new(None) }))
    }

    /// What is in force now. Take it once a request: a second one may be another.
    pub fn snapshot(&self) -> Arc<Live> {
        Arc::clone(&self.0.in_force.load().live)
    }

    /// The snapshot with its version and fingerprint, which belong together.
    pub fn in_force(&self) -> Arc<InForce> {
        self.0.in_force.load_full()
    }

    pub fn version(&self) -> u64 {
        self.0.in_force.load().version
    }

    /// The change that waits to be put right; `None` when what is in force is what the file says.
    pub fn last_refused(&self) -> Option<Refused> {
        self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn last_error(&self) -> Option<String> {
        self.last_refused().map(|refused| refused.error.to_string())
    }

    /// Puts `live` in force; gives its version. Only the watcher's thread calls it.
    pub(super) fn replace(&self, live: Live, fingerprint: Fingerprint) -> u64 {
        let version = self.version() + 1;
        let next = InForce { live: Arc::new(live), version, fingerprint: Some(fingerprint) };
        self.0.in_force.store(Arc::new(next));
        self.note(None);
        version
    }

    pub(super) fn note(&self, refused: Option<Refused>) {
        *self.0.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }
}
