//! The live configuration in force: taken as one snapshot, replaced as one.

use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::clock::Micros;

use super::control::Control;
use super::draft::{self, Draft, DraftError, Edit, SaveError};
use super::error::ConfigError;
use super::limits::Limits;
use super::live_home::HomeKind;
use super::settings::Live;
use super::source::{Fingerprint, Judged, Source};

/// What is in force, for everyone who asks. Clones share it.
#[derive(Debug, Clone)]
pub struct LiveHandle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    in_force: ArcSwap<InForce>,
    refused: Mutex<Option<Refused>>,
    /// What the document is read with.
    source: Source,
    home: HomeKind,
    /// Why the home does not answer, while it does not.
    home_down: Mutex<Option<String>>,
    /// Of the watcher, once there is one.
    control: OnceLock<Control>,
    /// Tells what waits for a change; holds the version.
    changed: watch::Sender<u64>,
}

/// One configuration and what it is known by.
#[derive(Debug, Clone)]
pub struct InForce {
    pub live: Arc<Live>,
    /// From 1; one more with each content that is applied.
    pub version: u64,
    /// Of the document; `None` where the configuration came from none.
    pub fingerprint: Option<Fingerprint>,
    /// The document itself.
    pub document: Arc<str>,
}

/// A change that was not applied.
#[derive(Debug, Clone)]
pub struct Refused {
    pub error: ConfigError,
    pub at: Micros,
}

impl LiveHandle {
    pub(super) fn new(judged: Judged, source: Source, home: HomeKind) -> Self {
        let Judged { config, fingerprint, document } = judged;
        Self::starting(config.live, Some(fingerprint), document, source, home)
    }

    /// A configuration that nothing reloads, as tests and the library's users want it.
    pub fn fixed(live: Live) -> Self {
        let nowhere = Source::optional(Path::new("configuration"), Vec::new());
        Self::starting(live, None, Arc::from(""), nowhere, HomeKind::Fixed)
    }

    fn starting(
        live: Live,
        fingerprint: Option<Fingerprint>,
        document: Arc<str>,
        source: Source,
        home: HomeKind,
    ) -> Self {
        let in_force = InForce { live: Arc::new(live), version: 1, fingerprint, document };
        Self(Arc::new(Shared {
            in_force: ArcSwap::from_pointee(in_force),
            refused: Mutex::new(None),
            source,
            home,
            home_down: Mutex::new(None),
            control: OnceLock::new(),
            changed: watch::Sender::new(1),
        }))
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

    pub fn home(&self) -> HomeKind {
        self.0.home
    }

    /// Why the home does not answer; `None` while it does.
    pub fn home_down(&self) -> Option<String> {
        self.0.home_down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn source(&self) -> &Source {
        &self.0.source
    }

    /// The names of the limits that environment variables set, whatever the document says. `*` stands for
    /// all, and `custom.*` for all of the owner's own.
    pub fn overridden(&self) -> Vec<String> {
        draft::overridden(self.0.source.environment())
    }

    /// The limits that would be in force if a draft stood in the document that is in force.
    pub fn parse(&self, draft: Draft<'_>) -> Result<Limits, Vec<DraftError>> {
        let in_force = self.in_force();
        let edit = Edit::read(draft)?;
        edit.put_into(&self.0.source, &in_force.document).map(|(_, limits)| limits).map_err(|error| {
            match error {
                SaveError::Invalid(errors) => errors,
                SaveError::Home(reason) => {
                    vec![DraftError { field: String::new(), message: reason, line: None }]
                }
                SaveError::Stale { .. } => unreachable!("nothing is compared"),
            }
        })
    }

    /// What a draft is saved through; `None` where nothing watches a home.
    pub fn control(&self) -> Option<&Control> {
        self.0.control.get()
    }

    /// Told whenever another configuration is in force, or one was refused.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    pub(super) fn controlled_by(&self, control: Control) {
        // The first watcher keeps it: a second one on the same handle is a mistake that changes nothing.
        self.0.control.set(control).ok();
    }

    /// Puts `live` in force; gives its version. Only the watcher's thread calls it.
    pub(super) fn replace(&self, live: Live, fingerprint: Fingerprint, document: Arc<str>) -> u64 {
        let version = self.version() + 1;
        let next = InForce { live: Arc::new(live), version, fingerprint: Some(fingerprint), document };
        self.0.in_force.store(Arc::new(next));
        self.note(None);
        version
    }

    pub(super) fn note(&self, refused: Option<Refused>) {
        *self.0.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        self.0.changed.send_replace(self.version());
    }

    /// Whether the home answers; true where that is news.
    pub(super) fn note_home(&self, down: Option<&str>) -> bool {
        let mut noted = self.0.home_down.lock().unwrap_or_else(PoisonError::into_inner);
        let news = noted.is_some() != down.is_some();
        *noted = down.map(str::to_owned);
        news
    }
}
