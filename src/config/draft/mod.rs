//! Drafts of the limits, of `[access]` and of `[[apps]]`: read as strictly as the document itself, and written into it.

mod access;
mod apps;
mod document_edit;
mod edit;
mod errors;
mod overridden;
mod tree;
mod view;
mod written;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod apps_tests;
#[cfg(test)]
mod tests;

use serde_json::json;
use toml_edit::DocumentMut;

pub use access::{AccessEdit, AccessSaver};
pub use apps::AppsEdit;
pub use document_edit::{DocumentEdit, line_diff};
pub use edit::with_limit;
pub use errors::{DraftError, DraftRefusal, DraftSaveError, SavedDraft};
pub(super) use overridden::{overridden, overridden_access, overridden_apps};
pub use view::{apps_toml, limits_toml};
pub use written::{rule_json, span_text};

use super::document::{self, ConfigTable};
use super::error::ConfigError;
use super::limits::Limits;
use super::living::NOTHING_SET;
use super::source::ConfigSource;
use crate::throttle::Limit;
use errors::{DRAFT, draft_errors, line};
use overridden::covers;

/// Limits or applications as an administrator wants them. They replace those of the document completely: a limit that
/// the draft leaves out returns to its default.
#[derive(Debug, Clone, Copy)]
pub enum DocumentDraft<'a> {
    /// `[limits.…]` tables only, or `[[apps]]` tables only.
    Toml(&'a str),
    /// What the document has under `limits` or `apps`.
    Json(&'a serde_json::Value),
}

impl DocumentDraft<'_> {
    /// A document with nothing but the draft, which is about `key`.
    fn tree(self, key: &str) -> Result<ConfigTable, Vec<DraftError>> {
        match self {
            Self::Json(value) => Ok(tree::of_json(key, value)),
            Self::Toml(text) => {
                document::parse(DRAFT.as_ref(), &unix_lines(text)).map_err(|error| draft_errors(&error))
            }
        }
    }

    /// As its author wrote it; of a draft in JSON, what it says.
    fn toml(self, key: &str) -> Result<DocumentMut, Vec<DraftError>> {
        let text = match self {
            Self::Json(value) => toml::to_string(&json!({ key: value })).map_err(|error| error.to_string()),
            Self::Toml(text) => Ok(unix_lines(text)),
        };
        text.and_then(|text| parsed(&text)).map_err(|reason| vec![DraftError::at("", reason, None)])
    }
}

/// Browsers send lines that end in CR LF.
fn unix_lines(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Valid limits. They may still conflict with the document that they are written into.
#[derive(Debug, Clone)]
pub struct DraftEdit {
    limits: Limits,
    /// The limits that it names, with the line of each if the draft is in TOML.
    names: Vec<(String, Option<usize>)>,
    /// As its author wrote it. `None`: a draft in JSON, of which the differences are written.
    toml: Option<DocumentMut>,
    /// Limits that the environment sets are left unchanged, whatever the draft says about them.
    but_overridden: bool,
}

impl DraftEdit {
    /// Returns all problems of the draft.
    pub fn read(draft: DocumentDraft<'_>) -> Result<Self, Vec<DraftError>> {
        let root = draft.tree("limits")?;
        let names = tree::named(&root).into_iter().map(|(name, entry)| (name, line(&entry.key))).collect();
        let limits = tree::limits(root).map_err(|error| draft_errors(&error))?;
        let toml = match draft {
            DocumentDraft::Json(_) => None,
            DocumentDraft::Toml(_) => Some(draft.toml("limits")?),
        };
        Ok(Self { limits, names, toml, but_overridden: false })
    }

    /// For a document that was in force once: leaves out limits that the environment sets by now.
    #[must_use]
    pub fn but_overridden(self) -> Self {
        Self { but_overridden: true, ..self }
    }

    /// The document with this draft in it, with comments and order kept, and the limits that it puts in
    /// force.
    pub(super) fn put_into(
        &self,
        source: &ConfigSource,
        text: &str,
    ) -> Result<(String, Limits), DraftRefusal> {
        let theirs = source.tree(text).map_err(|error| not_ours(source, &error))?;
        let overridden = overridden(source.environment());
        let kept = |name: &str| covers(&overridden, name);
        let merged = self.merged(text, &theirs, &kept).map_err(DraftRefusal::Backend)?;
        let root = source.tree(&merged).map_err(|error| cannot_write(&format!(": {error}")))?;
        let config = source.read(root).map_err(|error| refused(source, &theirs, &error, "limits"))?;
        let limits = config.live.limits;
        if !self.but_overridden {
            self.refuse_overridden(&kept, &limits, &theirs)?;
        }
        // The result must mean what the draft says.
        let same =
            |limit: &Limit| kept(limit.name()) || limits.get(limit.name()) == self.limits.get(limit.name());
        if !self.limits.iter().chain(limits.iter()).all(same) {
            return Err(cannot_write(
                " without changing its meaning; write the limits as [limits.name] tables",
            ));
        }
        Ok((merged, limits))
    }

    fn merged(
        &self,
        text: &str,
        theirs: &ConfigTable,
        kept: &dyn Fn(&str) -> bool,
    ) -> Result<String, String> {
        edited(text, |document| self.write(document, theirs, kept))
    }

    fn write(
        &self,
        document: &mut DocumentMut,
        theirs: &ConfigTable,
        kept: &dyn Fn(&str) -> bool,
    ) -> Result<(), String> {
        let first = !document.contains_key("limits");
        if let Some(draft) = &self.toml {
            view::put_end(document, draft, "limits");
        }
        for (name, _) in tree::named(theirs) {
            if !kept(&name) && !self.names.iter().any(|(drafted, _)| *drafted == name) {
                edit::remove(document, &name);
            }
        }
        let before = stands(theirs);
        for (name, _) in self.names.iter().filter(|(name, _)| !kept(name)) {
            let had = before.as_ref().and_then(|limits| limits.get(name));
            match (&self.toml, self.limits.get(name)) {
                (Some(draft), _) => edit::take(document, draft, name)?,
                (None, Some(want)) if had != Some(want) => edit::write(document, want)?,
                (None, _) => {}
            }
        }
        if first && document.contains_key("limits") {
            view::set_end_apart(document);
        }
        Ok(())
    }

    /// A limit that a variable sets cannot be changed; a draft may contain it as it is shown or as it is in
    /// the document.
    fn refuse_overridden(
        &self,
        kept: &dyn Fn(&str) -> bool,
        in_force: &Limits,
        theirs: &ConfigTable,
    ) -> Result<(), DraftRefusal> {
        let stands = stands(theirs);
        let refused = |name: &str| {
            let (wanted, stands) =
                (self.limits.get(name), stands.as_ref().and_then(|limits| limits.get(name)));
            kept(name) && wanted != in_force.get(name) && wanted != stands
        };
        let refused = self.names.iter().filter(|(name, _)| refused(name));
        let errors: Vec<_> = refused
            .map(|(name, line)| DraftError::at(&format!("limits.{name}"), SET_BY_VARIABLE.to_owned(), *line))
            .collect();
        if errors.is_empty() { Ok(()) } else { Err(DraftRefusal::Invalid(errors)) }
    }
}

const SET_BY_VARIABLE: &str = "is set by an environment variable of the server, which overrides what is saved here; change it there, or leave it unchanged";

/// A document after an edit; what the edit does not touch stays as it is.
fn edited(text: &str, edit: impl FnOnce(&mut DocumentMut) -> Result<(), String>) -> Result<String, String> {
    let plain = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut document = parsed(&plain)?;
    edit(&mut document)?;
    let mut merged = document.to_string();
    if merged.trim().is_empty() {
        // An empty document would look like one that is being written.
        merged = NOTHING_SET.to_owned();
    }
    // Line ends and byte order mark are the owner's; `toml_edit` handles neither.
    let merged = if text.contains("\r\n") { merged.replace('\n', "\r\n") } else { merged };
    Ok(if text.starts_with('\u{feff}') { format!("\u{feff}{merged}") } else { merged })
}

fn cannot_write(why: &str) -> DraftRefusal {
    DraftRefusal::Backend(format!("the draft cannot be written into this document{why}"))
}

/// The limits of a document without the variables; `None` if one of them has a mistake.
fn stands(root: &ConfigTable) -> Option<Limits> {
    let limits = root.get("limits").map(|entry| ("limits".to_owned(), entry.clone()));
    tree::limits(limits.into_iter().collect()).ok()
}

fn parsed(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|error: toml_edit::TomlError| format!("is not TOML: {}", error.message()))
}

/// The full names of the limits in a document; the others have their defaults.
pub fn named(text: &str) -> Vec<String> {
    let root = document::parse(DRAFT.as_ref(), text).unwrap_or_default();
    tree::named(&root).into_iter().map(|(name, _)| name).collect()
}

/// A mistake that was there before the draft is not the draft's.
fn refused(source: &ConfigSource, theirs: &ConfigTable, error: &ConfigError, section: &str) -> DraftRefusal {
    let elsewhere =
        |error: &ConfigError| error.problems().iter().any(|problem| !problem.field.starts_with(section));
    match source.read(theirs.clone()) {
        Err(before) if elsewhere(&before) && elsewhere(error) => not_ours(source, &before),
        _ => DraftRefusal::Invalid(draft_errors(error)),
    }
}

/// What is wrong with the document outside the draft.
fn not_ours(source: &ConfigSource, error: &ConfigError) -> DraftRefusal {
    DraftRefusal::Backend(format!(
        "{} has a mistake that this change is not about; correct it there first: {error}",
        source.path().display()
    ))
}
