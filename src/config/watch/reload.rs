//! One reload: what was found in the backend, judged as a whole, and put in force or refused; and one save.

use std::path::Path;
use std::sync::Arc;

use crate::clock::Clock;

use crate::config::backend::{BackendRead, LARGEST, LimitsBackend, SwapResult};
use crate::config::control::SaveRequest;
use crate::config::draft::{self, DraftSaveError, SavedDraft};
use crate::config::error::ConfigError;
use crate::config::live::{LiveHandle, RefusedChange};
use crate::config::settings::Settings;
use crate::config::source::{CheckedDocument, ConfigSource, Fingerprint};

/// The result of reading the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// In force from now on. The keys in `needs_restart` differ from those at the server's start and are not
    /// applied.
    Applied { version: u64, fingerprint: Fingerprint, needs_restart: Vec<&'static str> },
    /// The document is in force already: reported on demand, or after a refusal.
    Unchanged { version: u64 },
    /// Nothing changed; the previous configuration stays in force.
    Refused { error: ConfigError },
    /// The backend does not answer; the previous configuration stays in force.
    Down { reason: String },
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
                tracing::error!(%file, "configuration refused; the previous one stays in force: {error}");
            }
            Self::Down { reason } => {
                tracing::error!(%file, "configuration cannot be read; the previous one stays in force: {reason}");
            }
        }
    }
}

pub(super) struct ConfigReloader {
    source: ConfigSource,
    /// The settings that the server was started with.
    running: Settings,
    live: LiveHandle,
    clock: Clock,
    /// What was judged last, valid or not: it is not judged twice.
    seen: Option<BackendRead>,
}

impl ConfigReloader {
    pub const fn new(source: ConfigSource, running: Settings, live: LiveHandle, clock: Clock) -> Self {
        Self { source, running, live, clock, seen: None }
    }

    pub const fn seen(&self) -> Option<&BackendRead> {
        self.seen.as_ref()
    }

    /// The document in force.
    pub fn document(&self) -> Arc<str> {
        Arc::clone(&self.live.in_force().document)
    }

    /// Judges what was found. `None` if it was judged last and nobody asked.
    pub fn step(&mut self, found: BackendRead, on_demand: bool) -> Option<ReloadOutcome> {
        if let BackendRead::Down(reason) = found {
            let news = self.live.note_backend(Some(&reason));
            return (news || on_demand).then_some(ReloadOutcome::Down { reason });
        }
        if self.live.note_backend(None) {
            tracing::info!(place = %self.source.path().display(), "the backend of the configuration answers again");
        }
        if self.seen.as_ref() == Some(&found) && !on_demand {
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
                self.live.note(Some(RefusedChange { error: error.clone(), at: self.clock.now() }));
                Some(ReloadOutcome::Refused { error })
            }
        }
    }

    fn judge(&self, found: &BackendRead) -> Result<ReloadOutcome, ConfigError> {
        let CheckedDocument { config, fingerprint, document } = self.source.interpret(found)?;
        let in_force = self.live.in_force();
        if in_force.fingerprint == Some(fingerprint) {
            return Ok(ReloadOutcome::Unchanged { version: in_force.version });
        }
        // At a start, no file means the defaults. Later it means that the file is being written or was
        // removed, and nobody asked for the defaults.
        let vanished = match found {
            BackendRead::Bytes(bytes) if bytes.trim_ascii().is_empty() => Some("is empty"),
            BackendRead::Missing => Some("was removed"),
            _ => None,
        };
        if let Some(reason) = vanished {
            return Err(ConfigError::whole_file(self.source.path(), reason));
        }
        let needs_restart = self.running.differences(&config.settings);
        let version = self.live.replace(config.live, fingerprint, document);
        Ok(ReloadOutcome::Applied { version, fingerprint, needs_restart })
    }

    /// Writes a draft into the document, and puts the document in force.
    pub fn save(
        &mut self,
        backend: &mut dyn LimitsBackend,
        request: &SaveRequest,
    ) -> (Result<SavedDraft, DraftSaveError>, Option<ReloadOutcome>) {
        let before = self.live.in_force();
        let (candidate, expected) = match self.candidate(backend, request) {
            Ok(candidate) => candidate,
            Err(error) => return (Err(error), None),
        };
        let same = expected.bytes() == Some(candidate.as_bytes());
        let swapped = if same { Ok(SwapResult::Done) } else { backend.swap(&expected, &candidate) };
        let outcome = match swapped {
            Err(reason) => return (Err(DraftSaveError::Backend(reason)), None),
            Ok(SwapResult::Overtaken(found)) => {
                return (Err(request.edit.stale(&self.source, &found)), None);
            }
            Ok(SwapResult::Done) => self.step(BackendRead::Bytes(candidate.into_bytes()), false),
        };
        if let Some(ReloadOutcome::Refused { error }) = &outcome {
            // The same judge accepted it before it was written.
            return (
                Err(DraftSaveError::Backend(format!("it was written, but then refused: {error}"))),
                outcome,
            );
        }
        let now = self.live.in_force();
        let saved = SavedDraft {
            version: now.fingerprint.map(|version| version.to_string()).unwrap_or_default(),
            changed: request.edit.changed(&before.live, &now.live),
            toml: draft::limits_toml(&now.document),
            access: now.live.access.settings().toml(),
            apps: draft::apps_toml(&now.document),
        };
        (Ok(saved), outcome)
    }

    /// The document with the draft in it, and the one that it is based on.
    fn candidate(
        &self,
        backend: &mut dyn LimitsBackend,
        request: &SaveRequest,
    ) -> Result<(String, BackendRead), DraftSaveError> {
        let place = backend.place().display().to_string();
        let unreadable = |reason: &str| DraftSaveError::Backend(format!("{place} cannot be read: {reason}"));
        let found = backend.read(self.seen());
        let bytes = match &found {
            BackendRead::Bytes(bytes) if bytes.len() as u64 > LARGEST => {
                return Err(unreadable("it is longer than 1 MiB"));
            }
            BackendRead::Bytes(bytes) => bytes.as_slice(),
            BackendRead::Missing => &[],
            BackendRead::Unreadable(reason) | BackendRead::Down(reason) => return Err(unreadable(reason)),
        };
        let text = std::str::from_utf8(bytes).map_err(|_| unreadable("it is not UTF-8"))?;
        let in_force = self.live.in_force();
        if text.trim().is_empty() && !in_force.document.trim().is_empty() {
            // Its other contents would be lost at the next start.
            return Err(DraftSaveError::Backend(format!(
                "{place} was removed or emptied; put it back first"
            )));
        }
        if Fingerprint::of(bytes).to_string() != request.seen {
            return Err(request.edit.stale(&self.source, &found));
        }
        let candidate = request.edit.put_into(&self.source, text)?;
        if candidate.len() as u64 > LARGEST {
            return Err(DraftSaveError::Backend(format!("{place} would be longer than 1 MiB")));
        }
        Ok((candidate, found))
    }
}
