//! A valid configuration, and its live part.

use super::backend::{self, BackendRead, WatchWaker};
use super::error::{ConfigError, ConfigProblem};
use super::live::LiveHandle;
use super::live_backend::BackendKind;
use super::living;
use super::settings::Settings;
use super::source::ConfigSource;

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
                let seed = BackendRead::Bytes(living::seed(&judged.document).into_bytes());
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
    use std::path::Path;

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
