//! Keeps what is in force in step with the file: on its own thread, by events, by polling, on demand.

mod folder;
mod reload;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

pub use reload::ReloadOutcome;

use self::folder::Folder;
use self::reload::Reloader;
use super::live::LiveHandle;
use super::settings::Settings;
use super::source::{Found, Source};
use crate::clock::Clock;

/// Events get lost on network file systems, and where the file is a link into another folder. Half a
/// second and the settling after it stay under the second in which a change is promised to be in
/// force; reading a few kilobytes twice a second costs nothing that shows.
const POLL: Duration = Duration::from_millis(500);

/// A file counts as written when two looks this far apart see the same.
const QUIET: Duration = Duration::from_millis(50);

/// After so many looks a file that keeps changing is taken as it is; the next change follows it.
const LOOKS: u32 = 8;

pub(super) enum Wake {
    /// Something happened to the file, or may have.
    Changed,
    OnDemand,
    Stop,
}

/// Reloads while it lives; dropping it stops the thread.
#[derive(Debug)]
pub struct Watcher {
    wake: Sender<Wake>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Watches the file behind `source`; `running` is what the server was started with, which a change
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
        let (wake, woken) = channel();
        let stopping = Arc::new(AtomicBool::new(false));
        let folder = Folder::of(source.path(), wake.clone());
        let reloader = Reloader::new(source, running, live, clock);
        let mut watching =
            Watching { poll, woken, stopping: Arc::clone(&stopping), folder, reloader, on_reload };
        let thread = std::thread::Builder::new().name("config-watch".into()).spawn(move || watching.run())?;
        Ok(Self { wake, stopping, thread: Some(thread) })
    }

    /// Looks at the file now and reports what came of it, also where nothing did: what SIGHUP asks for.
    pub fn reload_now(&self) {
        // The thread is gone only if the hook panicked, which has been reported as such.
        self.wake.send(Wake::OnDemand).ok();
    }
}

impl Drop for Watcher {
    /// Waits for the thread, which takes one settling look (50 ms) at most.
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake.send(Wake::Stop).ok();
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

struct Watching<F> {
    poll: Duration,
    woken: Receiver<Wake>,
    stopping: Arc<AtomicBool>,
    folder: Folder,
    reloader: Reloader,
    on_reload: F,
}

impl<F: Fn(&ReloadOutcome)> Watching<F> {
    fn run(&mut self) {
        // Before the first wait, since the file may have changed between being loaded and being watched.
        let mut on_demand = false;
        while !self.stopping.load(Ordering::Relaxed) {
            self.folder.watch();
            let found = self.settled();
            if let Some(outcome) = self.reloader.step(found, on_demand) {
                outcome.log(self.reloader.path());
                (self.on_reload)(&outcome);
            }
            on_demand = match self.woken.recv_timeout(self.poll) {
                Ok(wake) => self.drain(wake),
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => return,
            };
        }
    }

    /// Takes every wake that has queued up: one look answers them all. True if one was on demand.
    fn drain(&self, first: Wake) -> bool {
        // Counted rather than asked for `any`, which would leave the rest queued.
        let wakes = std::iter::once(first).chain(self.woken.try_iter());
        wakes.filter(|wake| matches!(wake, Wake::OnDemand)).count() > 0
    }

    /// What is at the path once it has stopped changing: most editors write in several steps.
    fn settled(&self) -> Found {
        let mut found = self.reloader.find();
        if self.reloader.has_seen(&found) {
            return found;
        }
        for _ in 0..LOOKS {
            if self.stopping.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(QUIET);
            let again = self.reloader.find();
            if again == found {
                break;
            }
            found = again;
        }
        found
    }
}

#[cfg(test)]
mod tests;
