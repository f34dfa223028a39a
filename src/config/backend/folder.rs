//! The operating system's events for the file, through its folder.

use std::ffi::OsStr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::WatchWaker;

/// The link that Kubernetes swaps when it updates a mounted ConfigMap; the file itself never changes.
pub(super) const KUBERNETES_LINK: &str = "..data";

/// Watches the folder, not the file: an editor's rename replaces the file, which a watch on the old file does
/// not see. The path is used as given: resolved, it would bypass the links that Kubernetes swaps.
pub(super) struct FolderWatch {
    path: PathBuf,
    file: PathBuf,
    wake: WatchWaker,
    /// The watcher, and the folder (device, inode) that it watches, which may be replaced.
    watched: Option<(RecommendedWatcher, (u64, u64))>,
    complained: bool,
}

impl FolderWatch {
    pub fn of(file: &Path, wake: WatchWaker) -> Self {
        let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
        let path = parent.unwrap_or(Path::new(".")).to_owned();
        Self { path, file: file.to_owned(), wake, watched: None, complained: false }
    }

    /// Watches the folder that is at the path now, unless it is watched already.
    pub fn watch(&mut self) {
        let stands = std::fs::metadata(&self.path).ok().map(|folder| (folder.dev(), folder.ino()));
        if stands == self.watched.as_ref().map(|(_, identity)| *identity) {
            return;
        }
        self.watched = None;
        let Some(identity) = stands else { return };
        match self.watcher() {
            Ok(watcher) => self.watched = Some((watcher, identity)),
            Err(reason) if !self.complained => {
                self.complained = true;
                tracing::warn!(folder = %self.path.display(), %reason, "no file events; the configuration is polled");
            }
            Err(_) => {}
        }
    }

    fn watcher(&self) -> notify::Result<RecommendedWatcher> {
        let (wake, name) = (self.wake.clone(), self.file.file_name().map(OsStr::to_owned));
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error may have dropped events, so read the file.
            if event.map_or(true, |event| concerns(&event, name.as_deref())) {
                wake.changed();
            }
        })?;
        watcher.watch(&self.path, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    }
}

/// Our own reads are reported, too, and reacting to them would never end.
fn concerns(event: &Event, name: Option<&OsStr>) -> bool {
    let ours = |path: &PathBuf| {
        path.file_name().is_some_and(|file| Some(file) == name || file == OsStr::new(KUBERNETES_LINK))
    };
    !event.kind.is_access() && (event.need_rescan() || event.paths.iter().any(ours))
}

#[cfg(test)]
mod tests {
    use notify::EventKind;
    use notify::event::{AccessKind, AccessMode, ModifyKind};

    use super::*;

    fn heard(kind: EventKind, path: &str) -> bool {
        concerns(&Event::new(kind).add_path(path.into()), Some(OsStr::new("gatehouse.toml")))
    }

    #[test]
    fn reading_and_other_files_wake_nobody() {
        let written = EventKind::Modify(ModifyKind::Any);
        assert!(heard(written, "/etc/gatehouse/gatehouse.toml"));
        assert!(heard(written, "/etc/gatehouse/..data"));
        assert!(!heard(written, "/etc/gatehouse/gatehouse.db-wal"));
        assert!(!heard(
            EventKind::Access(AccessKind::Close(AccessMode::Read)),
            "/etc/gatehouse/gatehouse.toml"
        ));
        assert!(!heard(
            EventKind::Access(AccessKind::Open(AccessMode::Any)),
            "/etc/gatehouse/gatehouse.toml"
        ));
    }
}
