//! Why a draft is not saved, and what was saved where it is.

use std::path::Path;

use crate::config::error::{ConfigError, ConfigLocation};

/// What problems in a draft are placed in.
pub(super) const DRAFT: &str = "draft";

/// One thing that is wrong with a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftError {
    /// Its dotted path, as `limits.login-account.rules[0].max`; empty where it is no single field.
    pub field: String,
    /// What is wrong, and what would be right.
    pub message: String,
    /// In a draft of TOML, from 1.
    pub line: Option<usize>,
}

/// What is in force once a draft was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedDraft {
    /// Of the document.
    pub version: String,
    /// Whether any limit is another than before: a draft may say the same in other words.
    pub changed: bool,
    /// The limits of it, with their comments.
    pub toml: String,
}

/// Why a draft was not saved. Then the document is as it was, and so is what is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftSaveError {
    /// Somebody else changed the document meanwhile.
    Stale {
        version: String,
        /// Unified: from what is in the document to what the draft would make of it.
        diff: String,
    },
    Invalid(Vec<DraftError>),
    /// The document cannot be written: why, and what to do about it.
    Backend(String),
}

impl DraftError {
    pub(super) fn at(field: &str, message: String, line: Option<usize>) -> Self {
        Self { field: field.to_owned(), message, line }
    }
}

/// The place of a draft's values that have no line.
pub(super) fn whole_draft() -> ConfigLocation {
    ConfigLocation::WholeFile { path: Path::new(DRAFT).into() }
}

pub(super) fn line(place: &ConfigLocation) -> Option<usize> {
    match place {
        ConfigLocation::File { path, line, .. } if path.as_ref() == Path::new(DRAFT) => Some(*line),
        _ => None,
    }
}

pub(super) fn draft_errors(error: &ConfigError) -> Vec<DraftError> {
    let draft_error = |problem: &crate::config::ConfigProblem| {
        DraftError::at(&problem.field, problem.reason.clone(), line(&problem.place))
    };
    error.problems().iter().map(draft_error).collect()
}
