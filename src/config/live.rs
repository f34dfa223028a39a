//! The live configuration in force: read as one snapshot, replaced as one.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::watch;
use url::Url;

use crate::clock::Micros;

use super::apps::Apps;
use super::draft::{self, AppsEdit, DocumentDraft, DocumentEdit, DraftEdit, DraftError, DraftRefusal};
use super::error::ConfigError;
use super::limits::Limits;
use super::live_backend::BackendKind;
use super::settings::{Config, LiveSettings};
use super::source::{CheckedDocument, ConfigSource, Fingerprint};
use super::watch::WatchControl;

/// The configuration in force. Clones share it.
#[derive(Debug, Clone)]
pub struct LiveHandle(Arc<LiveShared>);

#[derive(Debug)]
struct LiveShared {
    in_force: ArcSwap<InForceConfig>,
    refused: Mutex<Option<RefusedChange>>,
    /// How the document is read.
    source: ConfigSource,
    /// Our own URL since the start: another one in the document needs a restart.
    public_url: Url,
    backend: BackendKind,
    /// Why the backend does not answer; `None` while it does.
    backend_down: Mutex<Option<String>>,
    /// The watcher's control, once there is a watcher.
    control: OnceLock<WatchControl>,
    /// Notifies those who wait for a change; holds the version.
    changed: watch::Sender<u64>,
}

/// One configuration with its identity.
#[derive(Debug, Clone)]
pub struct InForceConfig {
    pub live: Arc<LiveSettings>,
    /// The same for clients in `[access] allow`; None if there are none.
    pub exempt: Option<Arc<LiveSettings>>,
    /// Starts at 1 and increases with each content that is applied.
    pub version: u64,
    /// Of the document; `None` if the configuration came from none.
    pub fingerprint: Option<Fingerprint>,
    /// The document itself.
    pub document: Arc<str>,
}

/// A change that was not applied.
#[derive(Debug, Clone)]
pub struct RefusedChange {
    pub error: ConfigError,
    pub at: Micros,
}

impl LiveHandle {
    pub(super) fn new(judged: CheckedDocument, source: ConfigSource, backend: BackendKind) -> Self {
        Self::starting(judged.config, Some(judged.fingerprint), judged.document, source, backend)
    }

    /// A configuration that is never reloaded, for tests and users of the library.
    pub fn fixed(live: LiveSettings) -> Self {
        let nowhere = ConfigSource::optional(Path::new("configuration"), Vec::new());
        let config = Config { live, ..Config::default() };
        Self::starting(config, None, Arc::from(""), nowhere, BackendKind::Fixed)
    }

    fn starting(
        config: Config,
        fingerprint: Option<Fingerprint>,
        document: Arc<str>,
        source: ConfigSource,
        backend: BackendKind,
    ) -> Self {
        let (live, exempt) = with_exempt(config.live);
        let in_force = InForceConfig { live, exempt, version: 1, fingerprint, document };
        Self(Arc::new(LiveShared {
            in_force: ArcSwap::from_pointee(in_force),
            refused: Mutex::new(None),
            source,
            public_url: config.settings.server.public_url,
            backend,
            backend_down: Mutex::new(None),
            control: OnceLock::new(),
            changed: watch::Sender::new(1),
        }))
    }

    /// The configuration in force. Take it once per request: a second one may differ.
    pub fn snapshot(&self) -> Arc<LiveSettings> {
        Arc::clone(&self.0.in_force.load().live)
    }

    /// The configuration in force for a client at this address (IPv4 never written as IPv6): with lifted limits if
    /// `[access] allow` covers it.
    pub fn snapshot_for(&self, client: IpAddr, now: Micros) -> Arc<LiveSettings> {
        let in_force = self.0.in_force.load();
        match &in_force.exempt {
            Some(exempt) if exempt.access.is_allowed(client, now) => Arc::clone(exempt),
            _ => Arc::clone(&in_force.live),
        }
    }

    /// The snapshot with its version and fingerprint, which belong together.
    pub fn in_force(&self) -> Arc<InForceConfig> {
        self.0.in_force.load_full()
    }

    pub fn version(&self) -> u64 {
        self.0.in_force.load().version
    }

    /// The last change that was refused; `None` if the configuration in force is what the document says.
    pub fn last_refused(&self) -> Option<RefusedChange> {
        self.0.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn last_error(&self) -> Option<String> {
        self.last_refused().map(|refused| refused.error.to_string())
    }

    pub fn backend(&self) -> BackendKind {
        self.0.backend
    }

    /// Why the backend does not answer; `None` while it does.
    pub fn backend_down(&self) -> Option<String> {
        self.0.backend_down.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn source(&self) -> &ConfigSource {
        &self.0.source
    }

    /// The names of the limits that environment variables set, whatever the document says. `*` means all, and
    /// `custom.*` all custom limits.
    pub fn overridden(&self) -> Vec<String> {
        draft::overridden(self.0.source.environment())
    }

    /// The keys of `[access]` that environment variables set, whatever the document says.
    pub fn overridden_access(&self) -> Vec<&'static str> {
        draft::overridden_access(self.0.source.environment())
    }

    /// Everything that would be wrong with the document in force if the edit were written into it.
    pub fn check(&self, edit: &DocumentEdit) -> Result<(), Vec<DraftError>> {
        let put = edit.put_into(&self.0.source, &self.in_force().document);
        put.map(drop).map_err(DraftRefusal::into_errors)
    }

    /// The limits that would be in force if the draft were written into the document in force.
    pub fn parse(&self, draft: DocumentDraft<'_>) -> Result<Limits, Vec<DraftError>> {
        let in_force = self.in_force();
        let edit = DraftEdit::read(draft)?;
        let put = edit.put_into(&self.0.source, &in_force.document);
        put.map(|(_, limits)| limits).map_err(DraftRefusal::into_errors)
    }

    /// A draft of `[[apps]]`.
    pub fn read_apps(&self, draft: DocumentDraft<'_>) -> Result<AppsEdit, Vec<DraftError>> {
        AppsEdit::read(draft, &self.0.public_url)
    }

    /// The applications that would be in force if the draft were written into the document in force.
    pub fn parse_apps(&self, draft: DocumentDraft<'_>) -> Result<Apps, Vec<DraftError>> {
        let edit = self.read_apps(draft)?;
        let put = edit.put_into(&self.0.source, &self.in_force().document);
        put.map(|(_, apps)| apps).map_err(DraftRefusal::into_errors)
    }

    /// Whether an environment variable sets `[[apps]]`, whatever the document says.
    pub fn overridden_apps(&self) -> bool {
        draft::overridden_apps(self.0.source.environment())
    }

    /// Saves drafts; `None` if no backend is watched.
    pub fn control(&self) -> Option<&WatchControl> {
        self.0.control.get()
    }

    /// Notified whenever another configuration is in force, or one was refused.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.changed.subscribe()
    }

    pub(super) fn controlled_by(&self, control: WatchControl) {
        // The first watcher wins; a second one on the same handle is a mistake that changes nothing.
        self.0.control.set(control).ok();
    }

    /// Puts `live` in force; returns its version. Only the watcher's thread calls it.
    pub(super) fn replace(&self, live: LiveSettings, fingerprint: Fingerprint, document: Arc<str>) -> u64 {
        let version = self.version() + 1;
        let (live, exempt) = with_exempt(live);
        let next = InForceConfig { live, exempt, version, fingerprint: Some(fingerprint), document };
        self.0.in_force.store(Arc::new(next));
        self.note(None);
        version
    }

    pub(super) fn note(&self, refused: Option<RefusedChange>) {
        *self.0.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        self.0.changed.send_replace(self.version());
    }

    /// Whether the backend answers; returns true if that has changed.
    pub(super) fn note_backend(&self, down: Option<&str>) -> bool {
        let mut noted = self.0.backend_down.lock().unwrap_or_else(PoisonError::into_inner);
        let news = noted.is_some() != down.is_some();
        *noted = down.map(str::to_owned);
        news
    }
}

/// The settings of everybody, and those of exempt clients. Both use the same logs, which keep enough for both.
fn with_exempt(live: LiveSettings) -> (Arc<LiveSettings>, Option<Arc<LiveSettings>>) {
    if live.access.settings().allow.is_empty() {
        return (Arc::new(live), None);
    }
    let lifted = live.limits.lifted();
    let live = LiveSettings { limits: live.limits.keeping_for(&lifted), ..live };
    let exempt = LiveSettings { limits: lifted, ..live.clone() };
    (Arc::new(live), Some(Arc::new(exempt)))
}
