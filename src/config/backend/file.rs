//! The configuration file as the backend of the limits: read when it has settled, replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::folder::{FolderWatch, KUBERNETES_LINK};
use super::{BackendRead, LARGEST, LimitsBackend, SwapResult, WatchWaker};
use crate::config::live_backend::BackendKind;
use crate::files::open_regular;

/// A file counts as written if two reads this far apart are equal.
const QUIET: Duration = Duration::from_millis(50);
/// After this many reads a file that keeps changing is used as it is; the next change follows.
const LOOKS: u32 = 8;
/// How often another process's lock is tried, and in which interval: two seconds in all.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

pub(in crate::config) struct FileBackend {
    path: PathBuf,
    poll: Duration,
    folder: FolderWatch,
    waker: WatchWaker,
}

impl FileBackend {
    pub fn new(path: &Path, poll: Duration, waker: WatchWaker) -> Self {
        Self { path: path.to_owned(), poll, folder: FolderWatch::of(path, waker.clone()), waker }
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
    fn kind(&self) -> BackendKind {
        BackendKind::File
    }

    fn place(&self) -> &Path {
        &self.path
    }

    /// Reads the file when it has stopped changing: most editors write in several steps.
    fn read(&mut self, known: Option<&BackendRead>) -> BackendRead {
        let mut found = find(&self.path);
        if known == Some(&found) {
            return found;
        }
        for _ in 0..LOOKS {
            if self.waker.is_stopping() {
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

    fn listen(&mut self) {
        self.folder.watch();
    }

    fn poll(&self) -> Duration {
        self.poll
    }
}

/// What is at a path.
pub(in crate::config) fn find(path: &Path) -> BackendRead {
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
    // Nobody else may read it before it has the mode of the old file.
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
