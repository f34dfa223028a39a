//! The backends that keep the document with the limits, and what each of them must do; here the file, which is read
//! when it has settled and replaced as a whole.

#[cfg(feature = "nacos")]
mod nacos;
mod redis;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use tokio::sync::oneshot;

use super::backend_settings::{BackendKind, BackendSettings};
use super::draft::{CheckedEdit, SaveError, SavedEdit};
use super::sections::StoreUrl;
use super::settings::Settings;
use super::source::{BackendRead, LARGEST};
use crate::files::open_regular;
use redis::RedisBackend;

#[derive(Debug, PartialEq, Eq)]
pub enum SwapResult {
    Done,
    /// There is another document than the caller expected; nothing was written.
    Overtaken(BackendRead),
}

/// A place where the document is kept. One thread of an instance calls it, and may block; any number of
/// instances may use the same place.
///
/// A place gets a `WatchControl` when it is created, and calls its `changed` if it learns of a change: too often does no
/// harm, and too seldom or never is made up for by polling. Everything else is done for it: its documents are judged and
/// put in force or refused. If it is a service without a document, the one in force is written to it.
pub trait LimitsBackend: Send {
    /// The current document. May block for at most two seconds. `known` is what was judged last: a place
    /// whose documents can be seen half-written reads again until the document has settled, unless it finds
    /// that one.
    fn read(&mut self, known: Option<&BackendRead>) -> BackendRead;

    /// Replaces the document with `next` if it is still `expected`, in one step: of several callers that
    /// expect the same one succeeds. `Err` says why it cannot be done and what to do about it; then nothing
    /// was written. May block for at most five seconds.
    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String>;

    /// Called before every wait: makes sure that changes are announced, where they can be.
    fn listen(&mut self) {}

    /// How long to wait at most before reading again, without an announcement.
    fn poll(&self) -> Duration;
}

/// The service that keeps the limits, if one does.
pub(super) fn service(
    running: &Settings,
    control: &WatchControl,
) -> std::io::Result<Option<Box<dyn LimitsBackend>>> {
    let BackendSettings { backend, url, key, poll, .. } = &running.backend;
    match (backend, url.as_ref().unwrap_or(&running.store.url), &running.backend.nacos) {
        (BackendKind::Redis, StoreUrl::Redis(url), _) => {
            let ca_file = running.store.ca_file.clone();
            let redis = RedisBackend::new(url.clone(), ca_file, key.clone(), *poll, control.clone());
            Ok(Some(Box::new(redis)))
        }
        #[cfg(feature = "nacos")]
        (BackendKind::Nacos, _, Some(nacos)) => {
            Ok(Some(Box::new(nacos::NacosBackend::new(nacos.clone(), *poll, control.clone())?)))
        }
        // A configuration that asks for a service that it does not name, or that this build lacks, is refused.
        _ => Ok(None),
    }
}

pub(super) enum WatchMessage {
    Changed,
    OnDemand,
    Save(Box<SaveRequest>),
    Stop,
}

/// An edit to put in force, if its author has seen the current document.
pub(super) struct SaveRequest {
    pub checked: CheckedEdit,
    pub seen: String,
    pub answer: oneshot::Sender<Result<SavedEdit, SaveError>>,
}

/// The watcher's thread, for those who tell it something or need something from it.
#[derive(Debug, Clone)]
pub struct WatchControl {
    wake: Sender<WatchMessage>,
    stopping: Arc<AtomicBool>,
}

impl WatchControl {
    pub(super) fn new() -> (Self, Receiver<WatchMessage>) {
        let (wake, woken) = std::sync::mpsc::channel();
        (Self { wake, stopping: Arc::default() }, woken)
    }

    /// For a document that is read once: nobody listens.
    pub(super) fn unheard() -> Self {
        Self::new().0
    }

    /// Called from any thread that learns of a change of the document.
    pub(super) fn changed(&self) {
        // The thread is gone only if the hook panicked, which has been reported as such.
        self.wake.send(WatchMessage::Changed).ok();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn reload(&self) {
        self.wake.send(WatchMessage::OnDemand).ok();
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.wake.send(WatchMessage::Stop).ok();
    }

    /// Writes an edit into the document and puts it in force: after `Ok` it is in force.
    pub async fn save(&self, checked: CheckedEdit, seen: &str) -> Result<SavedEdit, SaveError> {
        let (answer, answered) = oneshot::channel();
        let request = SaveRequest { checked, seen: seen.to_owned(), answer };
        let gone = || SaveError::Backend("the server is stopping; try again when it is running".to_owned());
        self.wake.send(WatchMessage::Save(Box::new(request))).map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}

/// A file counts as written if two reads this far apart are equal.
pub(super) const QUIET: Duration = Duration::from_millis(50);
/// After this many reads a file that keeps changing is used as it is; the next change follows.
pub(super) const LOOKS: u32 = 8;
/// How often another process's lock is tried, and in which interval: two seconds in all.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

pub(super) struct FileBackend {
    path: PathBuf,
    poll: Duration,
    control: WatchControl,
}

impl FileBackend {
    pub fn new(path: &Path, poll: Duration, control: WatchControl) -> Self {
        Self { path: path.to_owned(), poll, control }
    }

    /// The file behind all links.
    fn target(&self) -> Result<PathBuf, String> {
        if is_config_map(&self.path) {
            return Err(format!(
                "{} is mounted from a Kubernetes ConfigMap, which cannot be written from here; change the ConfigMap, or keep the limits in Redis ([live] backend = \"redis\")",
                self.path.display()
            ));
        }
        match fs::canonicalize(&self.path) {
            Err(reason) if reason.kind() == ErrorKind::NotFound && !self.path.is_symlink() => {
                Ok(self.path.clone())
            }
            other => other.map_err(|reason| self.failed(&reason)),
        }
    }

    fn failed(&self, reason: &std::io::Error) -> String {
        let file = self.path.display();
        match reason.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => format!(
                "the folder of {file} cannot be written ({reason}); let the server write there, or keep the limits in Redis ([live] backend = \"redis\")"
            ),
            ErrorKind::ResourceBusy => format!(
                "{file} is mounted as a single file and cannot be replaced ({reason}); mount its folder instead, or keep the limits in Redis ([live] backend = \"redis\")"
            ),
            _ => format!("{file} cannot be replaced: {reason}"),
        }
    }

    fn replace(&self, target: &Path, next: &str) -> std::io::Result<()> {
        let draft = beside(target, "new");
        let written = write(&draft, target, next).and_then(|()| fs::rename(&draft, target));
        if written.is_err() {
            fs::remove_file(&draft).ok();
        }
        written?;
        // Without it a power failure may bring back the old file, which was valid, too.
        folder_of(target).and_then(|folder| File::open(folder)?.sync_all())
    }
}

impl LimitsBackend for FileBackend {
    /// Reads the file when it has stopped changing: most editors write in several steps.
    fn read(&mut self, known: Option<&BackendRead>) -> BackendRead {
        let mut found = find(&self.path);
        if known == Some(&found) {
            return found;
        }
        for _ in 0..LOOKS {
            if self.control.is_stopping() {
                break;
            }
            std::thread::sleep(QUIET);
            let again = find(&self.path);
            if again == found {
                break;
            }
            found = again;
        }
        found
    }

    fn swap(&mut self, expected: &BackendRead, next: &str) -> Result<SwapResult, String> {
        let target = self.target()?;
        let _lock = lock(&beside(&target, "lock")).map_err(|reason| self.failed(&reason))?;
        let found = find(&self.path);
        if found != *expected {
            return Ok(SwapResult::Overtaken(found));
        }
        self.replace(&target, next).map_err(|reason| self.failed(&reason))?;
        Ok(SwapResult::Done)
    }

    fn poll(&self) -> Duration {
        self.poll
    }
}

pub(super) fn find(path: &Path) -> BackendRead {
    let read = open_regular(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read {
        Ok(bytes) => BackendRead::Bytes(bytes),
        Err(reason) if reason.kind() == ErrorKind::NotFound => BackendRead::Missing,
        Err(reason) => BackendRead::Unreadable(reason.to_string()),
    }
}

/// The link that Kubernetes swaps when it updates a mounted ConfigMap; the file itself never changes.
const KUBERNETES_LINK: &str = "..data";

/// Kubernetes mounts each key as a link through `..data`, which it swaps. A file written behind it is lost at
/// the next swap, and the mount is normally read-only.
fn is_config_map(path: &Path) -> bool {
    let through = |link: &Path| link.components().any(|part| part.as_os_str() == KUBERNETES_LINK);
    fs::read_link(path).is_ok_and(|link| through(&link))
}

/// Held until it is dropped, by one process at a time. The file is not removed, because then two processes
/// could hold it.
fn lock(path: &Path) -> std::io::Result<File> {
    // Does not block if somebody has put a FIFO there.
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(path)?;
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
            Err(fs::TryLockError::Error(reason)) => return Err(reason),
        }
    }
    Err(std::io::Error::new(ErrorKind::TimedOut, "another instance is writing it; try again"))
}

/// A hidden name in the same folder, because a rename only works within a file system.
fn beside(target: &Path, ending: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{ending}"))
}

fn folder_of(target: &Path) -> std::io::Result<&Path> {
    match target.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Ok(Path::new(".")),
        Some(parent) => Ok(parent),
        None => Err(ErrorKind::NotADirectory.into()),
    }
}

/// Writes the new file with the owner and the mode of the one that it replaces, and waits until it is on the
/// disk.
fn write(draft: &Path, target: &Path, next: &str) -> std::io::Result<()> {
    // Left behind by a process that was killed; the holder of the lock may remove it.
    fs::remove_file(draft).ok();
    let before = fs::metadata(target).ok();
    let mode = before.as_ref().map_or(0o644, |file| file.mode() & 0o7777);
    // No other user may read it before it has the mode of the old file.
    let first = if before.is_some() { 0o600 } else { mode };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(first).open(draft)?;
    if let Some(before) = before {
        // Only root may change a file's owner, and its owner may only set one of their own groups: each may
        // fail alone.
        let stands = file.metadata()?;
        if stands.gid() != before.gid() {
            fchown(&file, None, Some(before.gid())).ok();
        }
        if stands.uid() != before.uid() {
            fchown(&file, Some(before.uid()), None).ok();
        }
        let mode = mode_for(mode, file.metadata()?.gid() == before.gid());
        file.set_permissions(fs::Permissions::from_mode(mode))?;
    }
    file.write_all(next.as_bytes())?;
    file.sync_all()
}

/// Another group must not get the permissions of the old file's group; it gets those of everybody.
const fn mode_for(mode: u32, same_group: bool) -> u32 {
    if same_group { mode } else { mode & !0o2070 | (mode & 0o007) << 3 & mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_group_gets_no_more_than_everybody() {
        for (mode, same, other) in [(0o640, 0o640, 0o600), (0o664, 0o664, 0o644), (0o600, 0o600, 0o600)] {
            assert_eq!((mode_for(mode, true), mode_for(mode, false)), (same, other), "{mode:o}");
        }
        assert_eq!(mode_for(0o604, false), 0o604, "nor more than the old group");
    }
}
