//! One look at the home of the limits, for commands that run no server. It writes nothing.

use super::error::ConfigError;
use super::home::{Found, HomeKind};
use super::source::Loaded;
use super::watch;

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
    /// Follows what the home says, where it is another place than the file.
    pub fn look(&self) -> Look {
        let found = match self.live.home() {
            HomeKind::Fixed | HomeKind::File => return Look::Followed,
            HomeKind::Redis | HomeKind::Nacos => match watch::service(&self.settings, &watch::nobody()) {
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
