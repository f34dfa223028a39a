//! `[[apps]]`: saved into the same document as the limits, with the same history.

use std::sync::Arc;

use super::{ChangeActor, DocumentDraft, NotWritten, SaveError, SavedDraft, Tuning, version_of};
use crate::config::{self, DocumentEdit, LiveSettings};

/// The applications in force in this instance.
#[derive(Debug, Clone)]
pub struct CurrentApps {
    /// The version of the document, which a save must name.
    pub version: String,
    pub live: Arc<LiveSettings>,
    /// The `[[apps]]` part of the document, with its comments.
    pub toml: String,
    /// Whether an environment variable sets them, whatever the document says.
    pub overridden: bool,
}

impl Tuning {
    pub fn current_apps(&self) -> CurrentApps {
        let in_force = self.0.live.in_force();
        CurrentApps {
            version: version_of(&in_force),
            live: Arc::clone(&in_force.live),
            toml: config::apps_toml(&in_force.document),
            overridden: self.0.live.overridden_apps(),
        }
    }

    /// Puts a draft of `[[apps]]` in force, if `if_match` is the current version of the document. After `Ok` it is in
    /// force in this instance; the others follow within a second.
    pub async fn save_apps(
        &self,
        draft: DocumentDraft<'_>,
        if_match: &str,
        by: ChangeActor<'_>,
        reason: &str,
    ) -> Result<SavedDraft, SaveError> {
        let edit = self.0.live.read_apps(draft).map_err(NotWritten::Invalid)?;
        self.put(DocumentEdit::Apps(Box::new(edit)), if_match, by, reason).await
    }
}
