//! Keeps the configuration in force equal to its backend: on a thread of its own, by events, by polling, and
//! on demand.

mod reload;

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub use reload::ReloadOutcome;

use self::reload::ConfigReloader;
use super::backend::{self, BackendRead, FileBackend, LimitsBackend, SwapResult, WatchWaker};
use super::control::{SaveRequest, WatchControl, WatchMessage};
use super::live::LiveHandle;
use super::live_backend::BackendKind;
use super::settings::Settings;
use super::source::ConfigSource;
use crate::clock::Clock;

/// Events get lost on network file systems, and if the file is a link into another folder. Half a second and
/// the settling time stay below the second within which a change is promised to be in force; reading a few
/// kilobytes twice a second costs practically nothing.
const POLL: Duration = Duration::from_millis(500);

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
        let waker = control.waker();
        let backend = backend::service(&running, &waker)
            .unwrap_or_else(|| Box::new(FileBackend::new(source.path(), poll, waker.clone())));
        live.controlled_by(control.clone());
        let (looked, first_look) = sync_channel(1);
        let service = backend.kind() != BackendKind::File;
        let reloader = ConfigReloader::new(live.source().clone(), running, live, clock);
        let mut watching = WatchThread { waker, woken, backend, reloader, on_reload, first_read: looked };
        let thread = std::thread::Builder::new().name("config-watch".into()).spawn(move || watching.run())?;
        if service {
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
    waker: WatchWaker,
    woken: Receiver<WatchMessage>,
    backend: Box<dyn LimitsBackend>,
    reloader: ConfigReloader,
    on_reload: F,
    /// Notified once the backend was read.
    first_read: SyncSender<()>,
}

/// Wake-ups that queued up while the thread was waiting; one read answers them all.
#[derive(Default)]
struct WatchRequests {
    on_demand: bool,
    saves: Vec<SaveRequest>,
}

impl<F: Fn(&ReloadOutcome)> WatchThread<F> {
    fn run(&mut self) {
        // Before the first wait, because the document may have changed between loading and watching.
        let mut asked = WatchRequests::default();
        while !self.waker.is_stopping() {
            self.backend.listen();
            let found = self.find();
            let outcome = self.reloader.step(found, asked.on_demand);
            self.tell(outcome);
            self.first_read.try_send(()).ok();
            for request in asked.saves {
                self.save(request);
            }
            asked = match self.woken.recv_timeout(self.backend.poll()) {
                Ok(wake) => self.drain(wake),
                Err(RecvTimeoutError::Timeout) => WatchRequests::default(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// If a service has no document, the one in force is written to it: at a first start the live part of the
    /// file, later the document from before it was lost. One of several instances succeeds.
    fn find(&mut self) -> BackendRead {
        let found = self.backend.read(self.reloader.seen());
        if found != BackendRead::Missing || self.backend.kind() == BackendKind::File {
            return found;
        }
        match self.backend.swap(&found, &self.reloader.document()) {
            Ok(SwapResult::Done) => {
                let place = self.backend.place().display();
                tracing::warn!(%place, "the backend had no limits, so this instance stored those that it has in force");
                self.backend.read(None)
            }
            Ok(SwapResult::Overtaken(found)) => found,
            Err(reason) => BackendRead::Down(reason),
        }
    }

    fn tell(&self, outcome: Option<ReloadOutcome>) {
        if let Some(outcome) = outcome {
            outcome.log(self.backend.place());
            (self.on_reload)(&outcome);
        }
    }

    fn save(&mut self, request: SaveRequest) {
        let (saved, outcome) = self.reloader.save(&mut *self.backend, &request);
        self.tell(outcome);
        request.answer(saved);
    }

    fn drain(&self, first: WatchMessage) -> WatchRequests {
        let mut asked = WatchRequests::default();
        for wake in std::iter::once(first).chain(self.woken.try_iter()) {
            match wake {
                WatchMessage::Changed | WatchMessage::Stop => {}
                WatchMessage::OnDemand => asked.on_demand = true,
                WatchMessage::Save(request) => asked.saves.push(*request),
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests;
