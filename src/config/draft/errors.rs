//! Why a draft was not saved, and what was saved.

use std::path::Path;

use crate::config::error::{ConfigError, ConfigLocation};

/// The place name of problems in a draft.
pub(super) const DRAFT: &str = "draft";

/// One problem in a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DraftError {
    /// The dotted path, for example `limits.login-account.rules[0].max`; empty if it is not a single field.
    pub field: String,
    /// What is wrong, and what would be right.
    pub message: String,
    /// The line in a draft in TOML, from 1.
    pub line: Option<usize>,
}

/// What is in force after a draft was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedDraft {
    /// The version of the document.
    pub version: String,
    /// Whether anything that the draft is about differs from before: it may say the same in other words.
    pub changed: bool,
    /// Its limits, with their comments.
    pub toml: String,
    /// Its `[access]`; empty if there is none.
    pub access: String,
    /// Its `[[apps]]`, with their comments.
    pub apps: String,
}

/// Why a draft was not saved. The document and what is in force are unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftSaveError {
    /// Somebody else changed the document in the meantime.
    Stale {
        version: String,
        /// A unified diff from the current document to the one with the draft.
        diff: String,
    },
    Invalid(Vec<DraftError>),
    /// The document cannot be written: the reason, and what to do about it.
    Backend(String),
}

/// Why a draft cannot be written into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftRefusal {
    Invalid(Vec<DraftError>),
    /// The document cannot take it, whatever the draft says: the reason, and what to do about it.
    Backend(String),
}

impl DraftRefusal {
    pub(in crate::config) fn into_errors(self) -> Vec<DraftError> {
        match self {
            Self::Invalid(errors) => errors,
            Self::Backend(reason) => vec![DraftError::at("", reason, None)],
        }
    }
}

impl From<DraftRefusal> for DraftSaveError {
    fn from(refusal: DraftRefusal) -> Self {
        match refusal {
            DraftRefusal::Invalid(errors) => Self::Invalid(errors),
            DraftRefusal::Backend(reason) => Self::Backend(reason),
        }
    }
}

impl DraftError {
    pub(super) fn at(field: &str, message: String, line: Option<usize>) -> Self {
        Self { field: field.to_owned(), message, line }
    }
}

/// The place of a draft's values without a line.
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
