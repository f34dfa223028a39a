//! A change of the document by an administrator: of its limits, of `[access]`, or of `[[apps]]`.

use std::time::Duration;

use similar::TextDiff;

use super::access::{AccessEdit, stands};
use super::apps::AppsEdit;
use super::errors::{DraftRefusal, DraftSaveError};
use super::{DraftEdit, view};
use crate::config::backend::BackendRead;
use crate::config::settings::LiveSettings;
use crate::config::source::{ConfigSource, Fingerprint};

/// Longer texts are compared roughly from then on: the shortest difference of two long ones takes minutes.
const LONGEST_COMPARISON: Duration = Duration::from_millis(10);

/// The lines that two texts have in common, and the others.
pub fn line_diff<'t>(old: &'t str, new: &'t str) -> TextDiff<'t, 't, 't, str> {
    TextDiff::configure().timeout(LONGEST_COMPARISON).diff_lines(old, new)
}

#[derive(Debug, Clone)]
pub enum DocumentEdit {
    Limits(Box<DraftEdit>),
    Access(Box<AccessEdit>),
    Apps(Box<AppsEdit>),
}

impl DocumentEdit {
    /// The document with the change in it.
    pub(in crate::config) fn put_into(
        &self,
        source: &ConfigSource,
        text: &str,
    ) -> Result<String, DraftRefusal> {
        match self {
            Self::Limits(edit) => edit.put_into(source, text).map(|(merged, _)| merged),
            Self::Access(edit) => edit.put_into(source, text),
            Self::Apps(edit) => edit.put_into(source, text).map(|(merged, _)| merged),
        }
    }

    /// Whether it made a difference.
    pub(in crate::config) fn changed(&self, before: &LiveSettings, now: &LiveSettings) -> bool {
        match self {
            Self::Limits(_) => now.limits != before.limits,
            Self::Access(_) => now.access != before.access,
            Self::Apps(_) => now.apps != before.apps,
        }
    }

    /// The part of a document that it is about, for people to compare.
    fn part(&self, source: &ConfigSource, text: &str) -> String {
        match self {
            Self::Limits(_) => view::limits_toml(text),
            Self::Access(_) => source.tree(text).map(|root| stands(&root).toml()).unwrap_or_default(),
            Self::Apps(_) => view::apps_toml(text),
        }
    }

    /// The draft alone, if it cannot be put into the document.
    fn alone(&self) -> Option<String> {
        match self {
            Self::Limits(edit) => edit.toml.as_ref().map(ToString::to_string),
            Self::Access(edit) => Some(edit.settings().toml()),
            Self::Apps(edit) => Some(edit.toml()),
        }
    }

    /// The author has not seen the current document: its version, and what the draft would change in it.
    pub(in crate::config) fn stale(&self, source: &ConfigSource, found: &BackendRead) -> DraftSaveError {
        let bytes = found.bytes().unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let drafted = self.put_into(source, &text).ok().map(|merged| self.part(source, &merged));
        let diff = |drafted: String| {
            let current = self.part(source, &text);
            line_diff(&current, &drafted).unified_diff().header("in force", "draft").to_string()
        };
        let version = Fingerprint::of(bytes).to_string();
        DraftSaveError::Stale {
            version,
            diff: drafted.or_else(|| self.alone()).map(diff).unwrap_or_default(),
        }
    }
}
