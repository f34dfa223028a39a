//! Keeps what is in force in step with its home: on a thread of its own, by events, by polling, on demand.

mod reload;

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub use reload::ReloadOutcome;

use self::reload::Reloader;
use super::control::{Control, SaveRequest, Wake};
use super::home::{self, FileHome, Found, Home, Swapped, Waker};
use super::live::LiveHandle;
use super::live_home::HomeKind;
use super::settings::Settings;
use super::source::Source;
use crate::clock::Clock;

/// Events get lost on network file systems, and where the file is a link into another folder. Half a
/// second and the settling after it stay under the second in which a change is promised to be in
/// force; reading a few kilobytes twice a second costs nothing that shows.
const POLL: Duration = Duration::from_millis(500);

/// How long a start waits for a service that keeps the limits.
const FIRST_LOOK: Duration = Duration::from_secs(3);

/// Reloads while it lives; dropping it stops the thread.
#[derive(Debug)]
pub struct Watcher {
    control: Control,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Watches the home of the limits; `running` is what the server was started with, which a change
    /// is told against. `on_reload` is called on the watcher's thread after each outcome.
    pub fn start(
        source: Source,
        running: Settings,
        live: LiveHandle,
        clock: Clock,
        on_reload: impl Fn(&ReloadOutcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start_polling(POLL, source, running, live, clock, on_reload)
    }

    fn start_polling(
        poll: Duration,
        source: Source,
        running: Settings,
        live: LiveHandle,
        clock: Clock,
        on_reload: impl Fn(&ReloadOutcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (control, woken) = Control::new();
        let waker = control.waker();
        let home = home::service(&running, &waker)
            .unwrap_or_else(|| Box::new(FileHome::new(source.path(), poll, waker.clone())));
        live.controlled_by(control.clone());
        let (looked, first_look) = sync_channel(1);
        let service = home.kind() != HomeKind::File;
        let reloader = Reloader::new(live.source().clone(), running, live, clock);
        let mut watching = Watching { waker, woken, home, reloader, on_reload, looked };
        let thread = std::thread::Builder::new().name("config-watch".into()).spawn(move || watching.run())?;
        if service {
            // What stands there is in force from the first request on, if it can be had.
            first_look.recv_timeout(FIRST_LOOK).ok();
        }
        Ok(Self { control, thread: Some(thread) })
    }

    /// Looks at the home now and reports what came of it, also where nothing did: what SIGHUP asks for.
    pub fn reload_now(&self) {
        self.control.reload();
    }
}

impl Drop for Watcher {
    /// Waits for the thread, which takes one settling look (50 ms) at most where the home is a file.
    fn drop(&mut self) {
        self.control.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Watching<F> {
    waker: Waker,
    woken: Receiver<Wake>,
    home: Box<dyn Home>,
    reloader: Reloader,
    on_reload: F,
    /// Told once the home was looked at.
    looked: SyncSender<()>,
}

/// What queued up while the thread was waiting: one look answers it all.
#[derive(Default)]
struct Asked {
    on_demand: bool,
    saves: Vec<SaveRequest>,
}

impl<F: Fn(&ReloadOutcome)> Watching<F> {
    fn run(&mut self) {
        // Before the first wait, since the document may have changed between being loaded and being watched.
        let mut asked = Asked::default();
        while !self.waker.is_stopping() {
            self.home.listen();
            let found = self.find();
            let outcome = self.reloader.step(found, asked.on_demand);
            self.tell(outcome);
            self.looked.try_send(()).ok();
            for request in asked.saves {
                self.save(request);
            }
            asked = match self.woken.recv_timeout(self.home.poll()) {
                Ok(wake) => self.drain(wake),
                Err(RecvTimeoutError::Timeout) => Asked::default(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// Where a service has no document, what is in force is put there: at a first start what the file says,
    /// later what stood there before it was lost. Of several instances one is first.
    fn find(&mut self) -> Found {
        let found = self.home.read(self.reloader.seen());
        if found != Found::Missing || self.home.kind() == HomeKind::File {
            return found;
        }
        match self.home.swap(&found, &self.reloader.document()) {
            Ok(Swapped::Done) => {
                let place = self.home.place().display();
                tracing::warn!(%place, "the backend had no limits, so this instance stored those that it has in force");
                self.home.read(None)
            }
            Ok(Swapped::Overtaken(found)) => found,
            Err(reason) => Found::Down(reason),
        }
    }

    fn tell(&self, outcome: Option<ReloadOutcome>) {
        if let Some(outcome) = outcome {
            outcome.log(self.home.place());
            (self.on_reload)(&outcome);
        }
    }

    fn save(&mut self, request: SaveRequest) {
        let (saved, outcome) = self.reloader.save(&mut *self.home, &request);
        self.tell(outcome);
        request.answer(saved);
    }

    fn drain(&self, first: Wake) -> Asked {
        let mut asked = Asked::default();
        for wake in std::iter::once(first).chain(self.woken.try_iter()) {
            match wake {
                Wake::Changed | Wake::Stop => {}
                Wake::OnDemand => asked.on_demand = true,
                Wake::Save(request) => asked.saves.push(*request),
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests;
