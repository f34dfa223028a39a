//! Lost passwords: what stands in published lists, in a filter that is read from a file of one's own. It asks nobody, so
//! there is no outage of it; a file that cannot be read changes nothing, and the filter that was read last stays in use.

mod builder;
mod filter;

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;

use super::Password;
use crate::config::LoginTunables;
use crate::files::FileState;

pub use builder::{BuildError, BuildOptions, BuildProgress, BuildSummary, build};
pub use filter::{BreachedPasswords, FilterError};

const MIB: u64 = 1024 * 1024;

/// The filter in use. Clones share it.
#[derive(Clone, Default)]
pub struct BreachedList(Arc<BreachedListInner>);

#[derive(Default)]
struct BreachedListInner {
    filter: ArcSwapOption<BreachedPasswords>,
    followed: Mutex<FollowedFile>,
}

#[derive(Default)]
struct FollowedFile {
    /// The file that was read last, or tried: where, how large it might be, and its state.
    seen: Option<(PathBuf, u64, Option<FileState>)>,
    /// Why it is not in use.
    refused: Option<String>,
}

impl BreachedList {
    /// Reads the file that the settings name, if it is another one than before. It may take seconds: call it where
    /// blocking is allowed.
    pub fn follow(&self, settings: &LoginTunables) {
        let Some(path) = &settings.breached else {
            self.0.filter.store(None);
            return self.followed(FollowedFile::default());
        };
        let mut seen = (path.clone(), settings.breached_memory, FileState::of(path));
        let known = {
            let followed = self.0.followed.lock();
            if followed.seen.as_ref() == Some(&seen) {
                return;
            }
            followed.refused.clone()
        };
        // Without the lock, which the console takes.
        let refused = match Self::read(settings) {
            Ok(filter) => {
                if let Some(filter) = &filter {
                    tracing::info!(passwords = filter.entries(), path = %path.display(), "lost passwords are refused");
                }
                self.0.filter.store(filter.map(Arc::new));
                None
            }
            Err(error) => {
                let refused = Some(error.to_string());
                if refused != known {
                    tracing::error!(%error, "login.breached: the list is not in use; what was read before stays");
                }
                if error.may_pass() {
                    seen.2 = None;
                }
                refused
            }
        };
        self.followed(FollowedFile { seen: Some(seen), refused });
    }

    fn followed(&self, file: FollowedFile) {
        let up = if file.refused.is_none() { 1.0 } else { 0.0 };
        metrics::gauge!("gatehouse_breached_file_up").set(up);
        *self.0.followed.lock() = file;
    }

    /// The filter that the settings name; None if they name none.
    pub fn read(settings: &LoginTunables) -> Result<Option<BreachedPasswords>, FilterError> {
        let most = settings.breached_memory * MIB;
        settings.breached.as_deref().map(|path| BreachedPasswords::read(path, most)).transpose()
    }

    /// Why the file that the settings name is not in use; None if it is, or if they name none.
    pub fn refused(&self) -> Option<String> {
        self.0.followed.lock().refused.clone()
    }

    /// Whether the password is a lost one, in the form in which it was typed or in that which is hashed. One in 65,536
    /// others is taken for one. None while there is no filter.
    pub fn contains(&self, password: &Password) -> Option<bool> {
        let filter = self.0.filter.load();
        let has = |filter: &Arc<BreachedPasswords>| {
            filter.contains(password.bytes()) || filter.contains(password.bytes_as_typed())
        };
        filter.as_ref().map(has)
    }
}
