//! A valid configuration, and its live part: in force, read as one snapshot, replaced as one; and the handle that asks
//! the watcher's thread for a change.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use tokio::sync::{oneshot, watch};
use url::Url;

use super::backend::{self, BackendRead, WatchWaker};
use super::draft::{
    AppsEdit, DocumentDraft, DocumentEdit, DraftError, DraftRefusal, DraftSaveError, Overridden, SavedDraft,
    TheirDocument,
};
use super::error::{ConfigError, ConfigProblem};
use super::live_settings::BackendKind;
use super::settings::{Config, LiveSettings, Settings};
use super::source::{self, CheckedDocument, ConfigSource, Fingerprint};
use crate::clock::Micros;

/// The configuration in force. Clones share it.
#[derive(Debug, Clone)]
pub struct LiveHandle(Arc<LiveShared>);

#[derive(Debug)]
struct LiveShared {
    in_force: ArcSwap<InForceConfig>,
    refused: Mutex<Option<RefusedChange>>,
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
    pub document: Arc<str>,
}

impl InForceConfig {
    /// What a document says, if it is the one in force.
    pub(super) fn says(&self, text: &str) -> Option<&LiveSettings> {
        let read = self.fingerprint.is_some() && *self.document == *text;
        read.then_some(self.live.as_ref())
    }
}

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

    /// What environment variables set, whatever the document says.
    pub fn overridden(&self) -> Overridden {
        Overridden::by(self.0.source.environment())
    }

    /// What would be in force if the edit were written into the document in force, or everything that would be wrong.
    pub fn check(&self, edit: &DocumentEdit) -> Result<LiveSettings, Vec<DraftError>> {
        let in_force = self.in_force();
        let text = &in_force.document;
        let theirs = TheirDocument::new(&self.0.source, text, in_force.says(text));
        let put = theirs.and_then(|theirs| edit.put_into(&theirs));
        put.map(|(_, config)| config.live).map_err(DraftRefusal::into_errors)
    }

    /// A draft of `[[apps]]`.
    pub fn read_apps(&self, draft: DocumentDraft<'_>) -> Result<DocumentEdit, Vec<DraftError>> {
        Ok(DocumentEdit::Apps(Box::new(AppsEdit::read(draft, &self.0.public_url)?)))
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
    pub answer: oneshot::Sender<Result<SavedDraft, DraftSaveError>>,
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

/// A valid configuration.
#[derive(Debug)]
pub struct LoadedConfig {
    pub warnings: Vec<ConfigProblem>,
    pub settings: Settings,
    pub live: LiveHandle,
}

impl ConfigSource {
    /// Reads everything, or returns everything that is wrong with it.
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        let judged = self.interpret(&backend::find(self.path()))?;
        let settings = judged.config.settings.clone();
        let warnings = judged.config.warnings.clone();
        let live = match settings.backend.backend {
            BackendKind::Fixed | BackendKind::File => {
                LiveHandle::new(judged, self.clone(), BackendKind::File)
            }
            kind @ (BackendKind::Redis | BackendKind::Nacos) => {
                let source = self.over_the_rest(settings.backend.place(), &judged.document)?;
                // Until the backend was read once, the file applies.
                let seed = BackendRead::Bytes(source::live_part_of(&judged.document).into_bytes());
                LiveHandle::new(source.interpret(&seed)?, source, kind)
            }
        };
        Ok(LoadedConfig { warnings, settings, live })
    }
}

/// `gatehouse check-config`: whether a server would start from this source.
pub fn check(source: &ConfigSource) -> Result<(), ConfigError> {
    source.load().map(drop)
}

/// The result of reading the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// Its document is what [`LoadedConfig::live`] holds now.
    Followed,
    /// There is none yet: the first server writes the live part of the file there.
    Empty,
    Refused(ConfigError),
    Down(String),
}

impl LoadedConfig {
    /// Reads the backend of the limits once, for commands that run no server: applies its document, and
    /// writes nothing there.
    pub fn read_once(&self) -> ReloadResult {
        let found = match self.live.backend() {
            BackendKind::Fixed | BackendKind::File => return ReloadResult::Followed,
            BackendKind::Redis | BackendKind::Nacos => {
                match backend::service(&self.settings, &WatchWaker::noop()) {
                    Some(mut backend) => backend.read(None),
                    None => return ReloadResult::Followed,
                }
            }
        };
        match found {
            BackendRead::Missing => ReloadResult::Empty,
            BackendRead::Down(reason) => ReloadResult::Down(reason),
            found => match self.live.source().interpret(&found) {
                Ok(judged) => {
                    self.live.replace(judged.config.live, judged.fingerprint, judged.document);
                    ReloadResult::Followed
                }
                Err(error) => ReloadResult::Refused(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_FILE;

    fn refusal(source: &ConfigSource) -> String {
        check(source).expect_err("a refusal").to_string()
    }

    #[test]
    fn a_named_file_must_be_there_and_the_default_one_need_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let named = ConfigSource::new(Some(&path), Vec::new());
        assert_eq!(refusal(&named), format!("{}: there is no such file", path.display()));
        check(&ConfigSource::optional(&path, Vec::new())).expect("the defaults");
        assert_eq!(ConfigSource::new(None, Vec::new()).path(), Path::new(DEFAULT_FILE));
    }

    #[test]
    fn what_cannot_be_a_configuration_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let (source, shown) = (ConfigSource::new(Some(&path), Vec::new()), path.display());
        std::fs::write(&path, b"# fine\n# \xff\n").expect("written");
        assert_eq!(refusal(&source), format!("{shown}:2: is not UTF-8"));
        std::fs::write(&path, vec![b'\n'; 1024 * 1024 + 1]).expect("written");
        assert_eq!(
            refusal(&source),
            format!("{shown}: is longer than 1 MiB, the most a configuration can have")
        );
        let directory = ConfigSource::new(Some(folder.path()), Vec::new());
        assert!(refusal(&directory).contains(": cannot be read: "));
    }
}
