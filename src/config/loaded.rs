//! A configuration that was read without a fault, and what is live of it.

use super::error::ConfigError;
use super::home::{self, Found, Waker};
use super::live::LiveHandle;
use super::live_home::HomeKind;
use super::living;
use super::settings::Settings;
use super::source::Source;

/// A configuration that was read without a fault.
#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    pub live: LiveHandle,
}

impl Source {
    /// Reads everything, or says everything that is wrong with it.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let judged = self.interpret(&home::find(self.path()))?;
        let settings = judged.config.settings.clone();
        let live = match settings.home.home {
            HomeKind::Fixed | HomeKind::File => LiveHandle::new(judged, self.clone(), HomeKind::File),
            kind @ (HomeKind::Redis | HomeKind::Nacos) => {
                let source = self.over_the_rest(settings.home.place(), &judged.document)?;
                // Until the home was read once, what the file says is in force.
                let seed = Found::Bytes(living::seed(&judged.document).into_bytes());
                LiveHandle::new(source.interpret(&seed)?, source, kind)
            }
        };
        Ok(Loaded { settings, live })
    }
}

/// `gatehouse check-config`: whether a server would start from this source.
pub fn check(source: &Source) -> Result<(), ConfigError> {
    source.load().map(drop)
}

/// What the home said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// Its document is what [`Loaded::live`] holds now.
    Followed,
    /// There is none yet: the first server puts there what the file says.
    Empty,
    Refused(ConfigError),
    Down(String),
}

impl Loaded {
    /// One look at the home of the limits, for commands that run no server: follows what it says, and writes
    /// nothing there.
    pub fn look(&self) -> Look {
        let found = match self.live.home() {
            HomeKind::Fixed | HomeKind::File => return Look::Followed,
            HomeKind::Redis | HomeKind::Nacos => match home::service(&self.settings, &Waker::nobody()) {
                Some(mut home) => home.read(None),
                None => return Look::Followed,
            },
        };
        match found {
            Found::Missing => Look::Empty,
            Found::Down(reason) => Look::Down(reason),
            found => match self.live.source().interpret(&found) {
                Ok(judged) => {
                    self.live.replace(judged.config.live, judged.fingerprint, judged.document);
                    Look::Followed
                }
                Err(error) => Look::Refused(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::DEFAULT_FILE;

    fn refusal(source: &Source) -> String {
        check(source).expect_err("a refusal").to_string()
    }

    #[test]
    fn a_named_file_must_be_there_and_the_default_one_need_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let named = Source::new(Some(&path), Vec::new());
        assert_eq!(refusal(&named), format!("{}: there is no such file", path.display()));
        check(&Source::optional(&path, Vec::new())).expect("the defaults");
        assert_eq!(Source::new(None, Vec::new()).path(), Path::new(DEFAULT_FILE));
    }

    #[test]
    fn what_cannot_be_a_configuration_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let (source, shown) = (Source::new(Some(&path), Vec::new()), path.display());
        std::fs::write(&path, b"# fine\n# \xff\n").expect("written");
        assert_eq!(refusal(&source), format!("{shown}:2: is not UTF-8"));
        std::fs::write(&path, vec![b'\n'; 1024 * 1024 + 1]).expect("written");
        assert_eq!(
            refusal(&source),
            format!("{shown}: is longer than 1 MiB, the most a configuration can have")
        );
        let directory = Source::new(Some(folder.path()), Vec::new());
        assert!(refusal(&directory).contains(": cannot be read: "));
    }
}
