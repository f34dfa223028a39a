//! Keeps the configuration in force equal to its backend: on a thread of its own, by polling, on demand, and when a
//! service announces a change. What was found is judged as a whole, and put in force or refused; drafts are saved on the
//! same thread.

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use super::backend;
use super::backend::{
    FileBackend, LOOKS, LimitsBackend, QUIET, SaveRequest, SwapResult, WatchControl, WatchMessage,
};
use super::draft::{CheckedEdit, SaveError, SavedEdit};
use super::error::ConfigError;
use super::live::{LiveHandle, RefusedChange};
use super::sections::RegistrationProof;
use super::settings::{Config, Settings};
use super::source::{BackendRead, CheckedDocument, ConfigSource, Fingerprint, LARGEST};
use crate::clock::Clock;

/// How often the file is read. With the settling time this stays well below the second within which a change is promised
/// to be in force. Reading a few kilobytes four times a second costs practically nothing, and finds what no event tells:
/// a file on a network file system, or behind a link into another folder.
const POLL: Duration = Duration::from_millis(250);
const _: () = assert!(POLL.as_millis() + LOOKS as u128 * QUIET.as_millis() < 1000);

/// How long a start waits for a service that keeps the limits.
const FIRST_READ: Duration = Duration::from_secs(3);

/// Reloads until it is dropped, which stops the thread.
#[derive(Debug)]
pub struct ConfigWatcher {
    control: WatchControl,
    thread: Option<JoinHandle<()>>,
}

impl ConfigWatcher {
    /// Watches the backend of the limits; `running` is what the server was started with, and a change is
    /// compared with it. `on_reload` is called on the watcher's thread after each outcome.
    pub fn start(
        source: ConfigSource,
        running: Settings,
        live: LiveHandle,
        clock: Clock,
        on_reload: impl Fn(&ReloadOutcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_polling(POLL, source, running, live, clock, on_reload)
    }

    fn start_polling(
        poll: Duration,
        source: ConfigSource,
        running: Settings,
        live: LiveHandle,
        clock: Clock,
        on_reload: impl Fn(&ReloadOutcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (control, woken) = WatchControl::new();
        let service = backend::service(&running, &control)?;
        let is_service = service.is_some();
        let backend =
            service.unwrap_or_else(|| Box::new(FileBackend::new(source.path(), poll, control.clone())));
        live.controlled_by(control.clone());
        let (looked, first_look) = sync_channel(1);
        let mut watching = WatchThread {
            control: control.clone(),
            woken,
            backend,
            is_service,
            running,
            live,
            clock,
            seen: None,
            on_reload,
            first_read: looked,
        };
        let thread = std::thread::Builder::new().name("config-watch".into()).spawn(move || watching.run())?;
        if is_service {
            // The current document is in force from the first request on, if it can be read.
            first_look.recv_timeout(FIRST_READ).ok();
        }
        Ok(Self { control, thread: Some(thread) })
    }

    /// Reads the backend now and reports the result, even if nothing changed. Used for SIGHUP.
    pub fn reload_now(&self) {
        self.control.reload();
    }
}

impl Drop for ConfigWatcher {
    /// Waits for the thread, which needs at most one settling read (50 ms) if the backend is a file.
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct WatchThread<F> {
    control: WatchControl,
    woken: Receiver<WatchMessage>,
    backend: Box<dyn LimitsBackend>,
    is_service: bool,
    running: Settings,
    live: LiveHandle,
    clock: Clock,
    /// What was judged last, valid or not: it is not judged twice.
    seen: Option<BackendRead>,
    on_reload: F,
    first_read: SyncSender<()>,
}

impl<F: Fn(&ReloadOutcome)> WatchThread<F> {
    fn run(&mut self) {
        let (mut on_demand, mut saves) = (false, Vec::<Box<SaveRequest>>::new());
        // Before the first wait, because the document may have changed between loading and watching.
        while !self.control.is_stopping() {
            self.backend.listen();
            let found = self.find();
            self.follow(found, std::mem::take(&mut on_demand), None);
            self.first_read.try_send(()).ok();
            for request in saves.drain(..) {
                let SaveRequest { checked, seen, answer } = *request;
                // The caller may be gone; what was saved stays.
                answer.send(self.save(checked, &seen)).ok();
            }
            let first = match self.woken.recv_timeout(self.backend.poll()) {
                Err(RecvTimeoutError::Disconnected) => return,
                woken => woken.ok(),
            };
            // One read answers all wake-ups that queued up meanwhile.
            for wake in first.into_iter().chain(self.woken.try_iter()) {
                match wake {
                    WatchMessage::Changed | WatchMessage::Stop => {}
                    WatchMessage::OnDemand => on_demand = true,
                    WatchMessage::Save(request) => saves.push(request),
                }
            }
        }
    }

    /// If a service has no document, the one in force is written to it: at a first start the live part of the
    /// file, later the document from before it was lost. One of several instances succeeds.
    fn find(&mut self) -> BackendRead {
        let found = self.backend.read(self.seen.as_ref());
        if found != BackendRead::Missing || !self.is_service {
            return found;
        }
        match self.backend.swap(&found, &self.live.in_force().document) {
            Ok(SwapResult::Done) => {
                tracing::warn!(place = %self.place(), "the backend had no limits, so this instance stored those that it has in force");
                self.backend.read(None)
            }
            Ok(SwapResult::Overtaken(found)) => found,
            Err(reason) => BackendRead::Down(reason),
        }
    }

    /// The name of the document in problems.
    fn place(&self) -> std::path::Display<'_> {
        self.live.source().path().display()
    }

    /// Judges what was found, unless the verdict is known: reading a long document takes milliseconds. `None` if it was
    /// judged last and nobody asked.
    fn follow(
        &mut self,
        found: BackendRead,
        on_demand: bool,
        config: Option<Config>,
    ) -> Option<ReloadOutcome> {
        let outcome = self.outcome_of(found, on_demand, config)?;
        outcome.log(&self.place());
        (self.on_reload)(&outcome);
        Some(outcome)
    }

    fn outcome_of(
        &mut self,
        found: BackendRead,
        on_demand: bool,
        config: Option<Config>,
    ) -> Option<ReloadOutcome> {
        if let BackendRead::Down(reason) = found {
            let news = self.live.note_backend(Some(&reason));
            return (news || on_demand).then_some(ReloadOutcome::Down { reason });
        }
        if self.live.note_backend(None) {
            tracing::info!(place = %self.place(), "the backend of the configuration answers again");
        }
        if self.seen.as_ref() == Some(&found) && !on_demand {
            return None;
        }
        let outcome = self.evaluate(&found, config);
        self.seen = Some(found);
        match outcome {
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

    fn evaluate(&self, found: &BackendRead, config: Option<Config>) -> Result<ReloadOutcome, ConfigError> {
        let CheckedDocument { config, fingerprint, document } =
            self.live.source().interpret(found, config)?;
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
            return Err(ConfigError::whole_file(self.live.source().path(), reason));
        }
        let requires_mail = config.live.registration.requires(RegistrationProof::Email);
        if requires_mail && !self.running.mail.sends(&self.running.server, &self.running.sms) {
            const NO_MAIL: &str = "requires an address of whoever registers (registration.require), but mail.url is not in force; restart, and both are";
            return Err(ConfigError::whole_file(self.live.source().path(), NO_MAIL));
        }
        let needs_restart = self.running.differences(&config.settings);
        for warning in &config.warnings {
            tracing::warn!(%warning, "the configuration has what to mend");
        }
        let version = self.live.replace(config.live, fingerprint, document);
        Ok(ReloadOutcome::Applied { version, fingerprint, needs_restart })
    }

    /// Writes an edit into the document, and puts the document in force.
    fn save(&mut self, checked: CheckedEdit, seen: &str) -> Result<SavedEdit, SaveError> {
        let before = self.live.in_force();
        let (checked, expected) = self.current(checked, seen)?;
        let text = &checked.candidate.text;
        if expected.bytes() != Some(text.as_bytes())
            && let SwapResult::Overtaken(found) =
                self.backend.swap(&expected, text).map_err(SaveError::Backend)?
        {
            return Err(checked.stale(self.live.source(), &found));
        }
        let written = BackendRead::Bytes(text.clone().into_bytes());
        let config = checked.candidate.config.clone();
        if let Some(ReloadOutcome::Refused { error }) = self.follow(written, false, Some(config)) {
            // This judge accepted it before it was written.
            return Err(SaveError::Backend(format!("it was written, but then refused: {error}")));
        }
        let now = self.live.in_force();
        Ok(SavedEdit {
            version: now.fingerprint.map(|version| version.to_string()).unwrap_or_default(),
            changed: checked.changed(&before.live, &now.live),
            texts: checked.texts(),
        })
    }

    /// The edit in the document as the backend holds it now, which its author must have seen, and that document.
    fn current(
        &mut self,
        mut checked: CheckedEdit,
        seen: &str,
    ) -> Result<(CheckedEdit, BackendRead), SaveError> {
        let found = self.backend.read(self.seen.as_ref());
        let place = self.place();
        let unreadable = |reason: &str| SaveError::Backend(format!("{place} cannot be read: {reason}"));
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
            return Err(SaveError::Backend(format!("{place} was removed or emptied; put it back first")));
        }
        let base = Fingerprint::of(bytes);
        if base.to_string() != seen {
            return Err(checked.stale(self.live.source(), &found));
        }
        if checked.base != base {
            // The author has seen it on an instance where it was in force before it was here.
            checked = self.live.check_in(text, checked.edit)?;
        }
        if checked.candidate.text.len() as u64 > LARGEST {
            return Err(SaveError::Backend(format!("{place} would be longer than 1 MiB")));
        }
        Ok((checked, found))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
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
    fn log(&self, file: &impl Display) {
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
