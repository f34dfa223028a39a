//! A valid configuration, and its live part: in force, read as one snapshot, replaced as one.

use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use url::Url;

use super::backend::{self, WatchControl};
use super::backend_settings::BackendKind;
use super::draft::{CheckedEdit, Edit, EditBase, Overridden, SaveError};
use super::error::{ConfigError, ConfigProblem};
use super::sections::Server;
use super::settings::{LiveSettings, Settings};
use super::source::{self, BackendRead, CheckedDocument, ConfigSource, Fingerprint};
use crate::clock::Micros;
use crate::origins::Origins;

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
    backend_down: Mutex<Option<String>>,
    /// Where addresses come from, as the files in `[origins]` tell it.
    origins: Origins,
    control: OnceLock<WatchControl>,
    /// Notifies those who wait for a change; holds the version.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Clone)]
pub struct InForceConfig {
    pub live: Arc<LiveSettings>,
    /// The settings for clients in `[access] allow`; None if there are none.
    pub exempt: Option<Arc<LiveSettings>>,
    /// Starts at 1 and increases with each content that is applied.
    pub version: u64,
    /// The fingerprint of the document; `None` if the configuration came from none.
    pub fingerprint: Option<Fingerprint>,
    pub document: Arc<str>,
}

impl InForceConfig {
    /// The settings for a client at this address, as `LiveHandle::snapshot_for` has them.
    pub fn for_client(&self, client: IpAddr, now: Micros) -> Arc<LiveSettings> {
        match &self.exempt {
            Some(exempt) if exempt.access.is_allowed(client, now) => Arc::clone(exempt),
            _ => Arc::clone(&self.live),
        }
    }

    fn new(
        mut live: LiveSettings,
        origins: &Origins,
        version: u64,
        fingerprint: Option<Fingerprint>,
        document: Arc<str>,
    ) -> Self {
        live.access = live.access.telling(origins.clone());
        let mut exempt = None;
        if !live.access.settings().allow.is_empty() {
            let lifted = live.limits.lifted();
            // Both use the same logs, which keep enough for both.
            live.limits = live.limits.keeping_for(&lifted);
            exempt = Some(Arc::new(LiveSettings { limits: lifted, ..live.clone() }));
        }
        Self { live: Arc::new(live), exempt, version, fingerprint, document }
    }
}

#[derive(Debug, Clone)]
pub struct RefusedChange {
    pub error: ConfigError,
    pub at: Micros,
}

impl LiveHandle {
    pub(super) fn new(checked: CheckedDocument, source: ConfigSource, backend: BackendKind) -> Self {
        let CheckedDocument { config, fingerprint, document } = checked;
        let origins = Origins::default();
        let in_force = InForceConfig::new(config.live, &origins, 1, Some(fingerprint), document);
        Self::starting(in_force, origins, config.settings.server.public_url, source, backend)
    }

    /// A configuration that is never reloaded, for tests and users of the library.
    pub fn fixed(live: LiveSettings) -> Self {
        let nowhere = ConfigSource::optional(Path::new("configuration"), Vec::new());
        let origins = Origins::default();
        let in_force = InForceConfig::new(live, &origins, 1, None, Arc::from(""));
        Self::starting(in_force, origins, Server::default().public_url, nowhere, BackendKind::File)
    }

    fn starting(
        in_force: InForceConfig,
        origins: Origins,
        public_url: Url,
        source: ConfigSource,
        backend: BackendKind,
    ) -> Self {
        Self(Arc::new(LiveShared {
            in_force: ArcSwap::from_pointee(in_force),
            refused: Mutex::new(None),
            source,
            public_url,
            backend,
            backend_down: Mutex::new(None),
            origins,
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
        self.0.in_force.load().for_client(client, now)
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
        self.0.refused.lock().clone()
    }

    pub fn last_error(&self) -> Option<String> {
        self.last_refused().map(|refused| refused.error.to_string())
    }

    pub fn backend(&self) -> BackendKind {
        self.0.backend
    }

    /// Why the backend does not answer; `None` while it does.
    pub fn backend_down(&self) -> Option<String> {
        self.0.backend_down.lock().clone()
    }

    /// Where addresses come from. Whoever has it follows the files that the settings name.
    pub fn origins(&self) -> &Origins {
        &self.0.origins
    }

    pub(super) fn source(&self) -> &ConfigSource {
        &self.0.source
    }

    /// What environment variables set, whatever the document says.
    pub fn overridden(&self) -> Overridden {
        Overridden::by(self.0.source.environment())
    }

    /// Writes an edit into the document in force and checks that as a whole, without saving it; or returns everything
    /// that would be wrong.
    pub fn check(&self, edit: Edit) -> Result<CheckedEdit, SaveError> {
        self.check_in(&self.in_force().document, edit)
    }

    pub(super) fn check_in(&self, document: &str, edit: Edit) -> Result<CheckedEdit, SaveError> {
        let (live, public_url) = (self.snapshot(), &self.0.public_url);
        let (access, origins) = (live.access.settings(), &self.0.origins);
        CheckedEdit::new(edit, &EditBase { source: &self.0.source, document, access, origins, public_url })
    }

    /// Saves edits; `None` if no backend is watched.
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
        let in_force = InForceConfig::new(live, &self.0.origins, version, Some(fingerprint), document);
        self.0.in_force.store(Arc::new(in_force));
        self.note(None);
        version
    }

    pub(super) fn note(&self, refused: Option<RefusedChange>) {
        *self.0.refused.lock() = refused;
        self.0.changed.send_replace(self.version());
    }

    /// Whether the backend answers; returns true if that has changed.
    pub(super) fn note_backend(&self, down: Option<&str>) -> bool {
        let mut noted = self.0.backend_down.lock();
        let news = noted.is_some() != down.is_some();
        *noted = down.map(str::to_owned);
        news
    }
}

#[derive(Debug)]
pub struct LoadedConfig {
    pub warnings: Vec<ConfigProblem>,
    pub settings: Settings,
    pub live: LiveHandle,
}

impl ConfigSource {
    /// Reads everything, or returns everything that is wrong with it.
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        let checked = self.interpret(&backend::find(self.path()), None)?;
        let settings = checked.config.settings.clone();
        let warnings = checked.config.warnings.clone();
        let live = match settings.backend.backend {
            BackendKind::File => LiveHandle::new(checked, self.clone(), BackendKind::File),
            kind @ (BackendKind::Redis | BackendKind::Nacos) => {
                let source = self.over_the_rest(settings.backend.place(), &checked.document)?;
                // Until the backend was read once, the file applies.
                let seed = BackendRead::Bytes(source::live_part_of(&checked.document).into_bytes());
                LiveHandle::new(source.interpret(&seed, None)?, source, kind)
            }
        };
        Ok(LoadedConfig { warnings, settings, live })
    }
}

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
        let found = match backend::service(&self.settings, &WatchControl::unheard()) {
            Ok(None) => return ReloadResult::Followed,
            Ok(Some(mut backend)) => backend.read(None),
            Err(reason) => BackendRead::Down(reason.to_string()),
        };
        match found {
            BackendRead::Missing => ReloadResult::Empty,
            BackendRead::Down(reason) => ReloadResult::Down(reason),
            found => match self.live.source().interpret(&found, None) {
                Ok(checked) => {
                    self.live.replace(checked.config.live, checked.fingerprint, checked.document);
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
        source.load().expect_err("a refusal").to_string()
    }

    #[test]
    fn a_named_file_must_be_there_and_the_default_one_need_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let named = ConfigSource::new(Some(&path), Vec::new());
        assert_eq!(refusal(&named), format!("{}: there is no such file", path.display()));
        ConfigSource::optional(&path, Vec::new()).load().expect("the defaults");
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
