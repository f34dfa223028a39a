//! A draft of the limits: read as strictly as the document itself, and put into it.

mod apart;
mod errors;
mod json;
mod merge;
mod one;
mod overridden;
mod written;

#[cfg(test)]
mod tests;

use toml_edit::DocumentMut;

pub use errors::{DraftError, SaveError, Saved};
pub use merge::limits_toml;
pub use one::with_limit;
pub(super) use overridden::overridden;
pub use written::{rule_json, span_text};

use super::document::{self, Entry, Node, Table, Value};
use super::error::ConfigError;
use super::home::Found;
use super::limits::Limits;
use super::living::NOTHING_SET;
use super::reader;
use super::source::{Fingerprint, Source};
use errors::{DRAFT, draft_errors};

/// Limits as somebody would have them. They replace those of the document as a whole: what a draft does
/// not name returns to its default.
#[derive(Debug, Clone, Copy)]
pub enum Draft<'a> {
    /// `[limits.…]` tables, and nothing else.
    Toml(&'a str),
    /// An object as `[limits]` is a table.
    Json(&'a serde_json::Value),
}

/// A draft that was read so far as to know what it names.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Each value with its place in the draft.
    limits: Table,
    text: Text,
    /// Limits that the environment sets stay as they are, whatever the draft says of them.
    but_overridden: bool,
}

/// How the draft will be written into the document.
#[derive(Debug, Clone)]
enum Text {
    /// As its author wrote it.
    Toml(Box<DocumentMut>),
    /// By what it means: what stays the same is not touched.
    Meaning,
}

impl Edit {
    /// Says everything that is wrong with its shape; what it says is judged where it is put into a document.
    pub fn read(draft: Draft<'_>) -> Result<Self, Vec<DraftError>> {
        match draft {
            Draft::Json(value) => Ok(Self {
                limits: json::table(value).map_err(|error| vec![error])?,
                text: Text::Meaning,
                but_overridden: false,
            }),
            Draft::Toml(text) => {
                // As browsers send them.
                let text = &text.replace("\r\n", "\n");
                let root = document::parse(DRAFT.as_ref(), text).map_err(|error| draft_errors(&error))?;
                let limits = only_limits(root)?;
                let parsed = text.parse::<DocumentMut>().map_err(|error| {
                    vec![DraftError::at("", format!("is not TOML: {}", error.message()), None)]
                })?;
                Ok(Self { limits, text: Text::Toml(Box::new(parsed)), but_overridden: false })
            }
        }
    }

    /// For a document that was in force once: what the environment has taken over since is left out of it.
    #[must_use]
    pub fn but_overridden(self) -> Self {
        Self { but_overridden: true, ..self }
    }

    /// The limits that would be in force with this draft in the document.
    pub(super) fn limits(&self, source: &Source, text: &str, in_force: &Limits) -> Result<Limits, SaveError> {
        let theirs = source.tree(text).map_err(|error| not_ours(source, &error))?;
        let protected = overridden(source.environment());
        let candidate = self.instead_of(&theirs, &protected);
        let judged = source.read(candidate.clone()).map_err(|error| self.judged(source, &theirs, &error))?;
        if !self.but_overridden {
            self.refuse_overridden(&theirs, in_force, &protected)?;
        }
        Ok(judged.live.limits)
    }

    /// The document with this draft in it, its comments and its order kept. `in_force` is what limits that
    /// the environment sets may be shown as.
    pub(super) fn put_into(
        &self,
        source: &Source,
        text: &str,
        in_force: &Limits,
    ) -> Result<String, SaveError> {
        let limits = self.limits(source, text, in_force)?;
        let protected = overridden(source.environment());
        let (text, lines) = Lines::of(text);
        let text = text.as_str();
        let merged = match &self.text {
            Text::Toml(draft) => merge::replaced(text, draft, &protected),
            Text::Meaning => {
                let theirs = source.tree(text).map_err(|error| not_ours(source, &error))?;
                let wanted = bare(&self.instead_of(&theirs, &protected)).unwrap_or_else(|| limits.clone());
                merge::adjusted(text, bare(&theirs).as_ref(), &wanted, &names(&self.limits), &protected)
            }
        }
        .map_err(SaveError::Home)?;
        // One that is left empty would be taken for one that is being written.
        let merged = lines.put_back(if merged.trim().is_empty() { NOTHING_SET.to_owned() } else { merged });
        // What is written has to say what was judged.
        match source.tree(&merged).and_then(|root| source.read(root)) {
            Ok(config) if config.live.limits == limits => Ok(merged),
            Ok(_) => Err(SaveError::Home(
                "the draft cannot be put into this document without changing its meaning; write the limits as [limits.name] tables".to_owned(),
            )),
            Err(error) => Err(SaveError::Home(format!("the draft cannot be put into this document: {error}"))),
        }
    }

    /// Their document with these limits; those that the environment sets stay as they stand there.
    fn instead_of(&self, theirs: &Table, protected: &[String]) -> Table {
        let mut root = theirs.clone();
        let stood = match root.remove("limits") {
            Some(Entry { node: Node { value: Value::Table(table), .. }, .. }) => table,
            _ => Table::new(),
        };
        let mut limits = self.limits.clone();
        for name in protected {
            overridden::keep(name, &stood, &mut limits);
        }
        let place = errors::whole_draft();
        let node = Node { value: Value::Table(limits), place: place.clone() };
        root.insert("limits".to_owned(), Entry { key: place, node });
        root
    }

    /// A limit that a variable sets cannot be saved; it may be sent back as it is shown, or as it stands.
    fn refuse_overridden(
        &self,
        theirs: &Table,
        in_force: &Limits,
        protected: &[String],
    ) -> Result<(), SaveError> {
        let (drafted, stood) = (bare(&self.instead_of(theirs, &[])), bare(theirs));
        let names = names(&self.limits);
        let refused: Vec<DraftError> = overridden::among(&names, protected)
            .filter(|name| {
                let wanted = drafted.as_ref().and_then(|limits| limits.get(name));
                let stands = stood.as_ref().and_then(|limits| limits.get(name));
                wanted.is_none() || (wanted != in_force.get(name) && wanted != stands)
            })
            .map(|name| {
                let reason = "is set by an environment variable of the server, which wins over what is saved here; change it there, or leave it as it is";
                DraftError::at(&format!("limits.{name}"), reason.to_owned(), self.line_of(name))
            })
            .collect();
        if refused.is_empty() { Ok(()) } else { Err(SaveError::Invalid(refused)) }
    }

    fn line_of(&self, name: &str) -> Option<usize> {
        let entry = match name.strip_prefix("custom.") {
            None => self.limits.get(name),
            Some(own) => match &self.limits.get("custom")?.node.value {
                Value::Table(custom) => custom.get(own),
                _ => None,
            },
        };
        errors::line(&entry?.key)
    }

    /// A mistake that was there before the draft is not the draft's.
    fn judged(&self, source: &Source, theirs: &Table, error: &ConfigError) -> SaveError {
        let elsewhere =
            |error: &ConfigError| error.problems().iter().any(|problem| !problem.field.starts_with("limits"));
        match source.read(theirs.clone()) {
            Err(before) if elsewhere(&before) && elsewhere(error) => not_ours(source, &before),
            _ => SaveError::Invalid(draft_errors(error)),
        }
    }
}

/// The full names of the limits that a document names; the others are at their defaults.
pub fn named(text: &str) -> Vec<String> {
    let root = document::parse(DRAFT.as_ref(), text).unwrap_or_default();
    match root.get("limits").map(|entry| &entry.node.value) {
        Some(Value::Table(limits)) => names(limits),
        _ => Vec::new(),
    }
}

fn names(limits: &Table) -> Vec<String> {
    let mut names: Vec<String> = limits.keys().filter(|name| *name != "custom").cloned().collect();
    if let Some(Entry { node: Node { value: Value::Table(custom), .. }, .. }) = limits.get("custom") {
        names.extend(custom.keys().map(|name| format!("custom.{name}")));
    }
    names
}

/// How a document ends its lines, and whether it begins with a mark of its encoding: merging knows neither.
struct Lines {
    carriage: bool,
    mark: bool,
}

impl Lines {
    fn of(text: &str) -> (String, Self) {
        let lines = Self { carriage: text.contains("\r\n"), mark: text.starts_with('\u{feff}') };
        (text.trim_start_matches('\u{feff}').replace("\r\n", "\n"), lines)
    }

    fn put_back(&self, text: String) -> String {
        let text = if self.carriage { text.replace('\n', "\r\n") } else { text };
        if self.mark { format!("\u{feff}{text}") } else { text }
    }
}

/// What a document says of the limits, without the variables; `None` where it cannot be said.
fn bare(root: &Table) -> Option<Limits> {
    let limits = root.get("limits").map(|entry| ("limits".to_owned(), entry.clone()));
    let problems = reader::Problems::default();
    let read =
        reader::read(limits.into_iter().collect(), &problems, |root| root.section("limits", Limits::read));
    problems.into_inner().is_empty().then_some(read)
}

/// What is wrong with the document where nobody touched it.
fn not_ours(source: &Source, error: &ConfigError) -> SaveError {
    SaveError::Home(format!(
        "{} has a mistake that is not in its limits; mend it there first: {error}",
        source.path().display()
    ))
}

/// Who saves has not seen what stands there now: what it is, and what the draft would change in it.
pub(super) fn stale(edit: &Edit, source: &Source, found: &Found) -> SaveError {
    let bytes = found.bytes().unwrap_or_default();
    let text = String::from_utf8_lossy(bytes);
    let current_toml = limits_toml(&text);
    let in_force = super::source::read(source.tree(&text).unwrap_or_default(), source.environment());
    let in_force = in_force.map(|config| config.live.limits).unwrap_or_default();
    let wanted = match edit.put_into(source, &text, &in_force) {
        Ok(candidate) => limits_toml(&candidate),
        Err(_) => match &edit.text {
            Text::Toml(draft) => draft.to_string(),
            Text::Meaning => {
                return SaveError::Stale {
                    version: Fingerprint::of(bytes).to_string(),
                    current_toml,
                    diff: String::new(),
                };
            }
        },
    };
    let diff = similar::TextDiff::from_lines(current_toml.as_str(), wanted.as_str());
    let diff = diff.unified_diff().header("in force", "draft").to_string();
    SaveError::Stale { version: Fingerprint::of(bytes).to_string(), current_toml, diff }
}

fn only_limits(mut root: Table) -> Result<Table, Vec<DraftError>> {
    let limits = match root.remove("limits") {
        None => Table::new(),
        Some(entry) => match entry.node.value {
            Value::Table(table) => table,
            other => {
                let reason = format!("is {} where a table is wanted", other.kind());
                return Err(vec![DraftError::at("limits", reason, errors::line(&entry.node.place))]);
            }
        },
    };
    let foreign: Vec<_> = root
        .iter()
        .map(|(key, entry)| {
            let reason = "is not part of the limits; only [limits.…] is changed here".to_owned();
            DraftError::at(key, reason, errors::line(&entry.key))
        })
        .collect();
    if foreign.is_empty() { Ok(limits) } else { Err(foreign) }
}
