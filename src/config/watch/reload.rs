//! One reload: what was found at the path, judged as a whole, and put in force or refused.

use std::path::Path;

use crate::clock::Clock;

use super::super::error::ConfigError;
use super::super::live::{LiveHandle, Refused};
use super::super::settings::Settings;
use super::super::source::{Fingerprint, Found, Source};

/// What came of looking at the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// In force from now on. The keys in `needs_restart` differ from what the server was started with
    /// and are not followed.
    Applied { version: u64, fingerprint: Fingerprint, needs_restart: Vec<&'static str> },
    /// The file says what is in force already: asked for on demand, or after a refusal.
    Unchanged { version: u64 },
    /// Nothing changed; what was in force before still is.
    Refused { error: ConfigError },
}

impl ReloadOutcome {
    pub(super) fn log(&self, path: &Path) {
        let file = path.display();
        match self {
            Self::Applied { version, fingerprint, needs_restart } if needs_restart.is_empty() => {
                tracing::info!(%file, version, %fingerprint, "configuration applied");
            }
            Self::Applied { version, fingerprint, needs_restart } => {
                let keys = needs_restart.join(", ");
                tracing::warn!(%file, version, %fingerprint, "configuration applied; needs a restart: {keys}");
            }
            Self::Unchanged { version } => tracing::info!(%file, version, "configuration unchanged"),
            Self::Refused { error } => {
                tracing::error!(%file, "configuration refused, the one before stays in force: {error}");
            }
        }
    }
}

pub(super) struct Reloader {
    source: Source,
    /// What the server was started with.
    running: Settings,
    live: LiveHandle,
    clock: Clock,
    /// What was judged last, right or wrong: it is not judged twice.
    seen: Option<Found>,
}

impl Reloader {
    pub const fn new(source: Source, running: Settings, live: LiveHandle, clock: Clock) -> Self {
        Self { source, running, live, clock, seen: None }
    }

    pub fn path(&self) -> &Path {
        self.source.path()
    }

    pub fn find(&self) -> Found {
        self.source.find()
    }

    pub fn has_seen(&self, found: &Found) -> bool {
        self.seen.as_ref() == Some(found)
    }

    /// Judges what was found. `None` where it is what was judged last and nobody asked.
    pub fn step(&mut self, found: Found, on_demand: bool) -> Option<ReloadOutcome> {
        if self.has_seen(&found) && !on_demand {
            return None;
        }
        let judged = self.judge(&found);
        self.seen = Some(found);
        match judged {
            Ok(outcome @ ReloadOutcome::Unchanged { .. }) => {
                let recovered = self.live.last_refused().is_some();
                self.live.note(None);
                (recovered || on_demand).then_some(outcome)
            }
            Ok(outcome) => Some(outcome),
            Err(error) => {
                self.live.note(Some(Refused { error: error.clone(), at: self.clock.now() }));
                Some(ReloadOutcome::Refused { error })
            }
        }
    }

    fn judge(&self, found: &Found) -> Result<ReloadOutcome, ConfigError> {
        let (config, fingerprint) = self.source.interpret(found)?;
        let in_force = self.live.in_force();
        if in_force.fingerprint == Some(fingerprint) {
            return Ok(ReloadOutcome::Unchanged { version: in_force.version });
        }
        // At a start, nothing means the defaults. Later it means that the file is being written or was
        // taken away, and nobody asked for the defaults.
        let vanished = match found {
            Found::Bytes(bytes) if bytes.trim_ascii().is_empty() => Some("is empty"),
            Found::Missing => Some("was removed"),
            _ => None,
        };
        if let Some(reason) = vanished {
            return Err(ConfigError::whole_file(self.source.path(), reason));
        }
        let needs_restart = self.running.differences(&config.settings);
        let version = self.live.replace(config.live, fingerprint);
        Ok(ReloadOutcome::Applied { version, fingerprint, needs_restart })
    }
}
