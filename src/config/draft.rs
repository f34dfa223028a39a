//! Drafts of the limits, of `[access]` and of `[[apps]]`: read as strictly as the document itself, and written into it.

mod access;
mod apps;
mod splice;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod apps_tests;
#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::path::Path;
use std::time::Duration;

use gatehouse_limiter::Limit;
use serde_json::{Value as Json, json};
use similar::TextDiff;
use toml_edit::DocumentMut;

use super::access::KEYS;
use super::backend::BackendRead;
use super::document::{ConfigTable, ConfigValue, TableEntry, ValueNode};
use super::error::{ConfigError, ConfigLocation};
use super::limits::Limits;
use super::reader::ProblemList;
use super::settings::{Config, LiveSettings};
use super::source::{ConfigSource, Fingerprint, NOTHING_SET};
use super::{document, reader};
use access::access_alone;

pub use access::{AccessEdit, AccessSaver};
pub use apps::AppsEdit;
pub use splice::{apps_toml, limits_and_apps_toml, limits_toml, rule_json, with_limit};

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
            Self::Json(value) => Ok(tree_of_json(key, value)),
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
        let names = limits_in(&root).into_iter().map(|(name, entry)| (name, line(&entry.key))).collect();
        let limits = read_limits(root).map_err(|error| draft_errors(&error))?;
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

    /// The document with this draft in it, with comments and order kept, and what is in force with that.
    fn put_into(&self, theirs: &TheirDocument<'_>) -> Result<(String, Config), DraftRefusal> {
        let overridden = Overridden::by(theirs.source.environment());
        let kept = |name: &str| overridden.limit(name);
        // What is in force says what the document says, unless a variable or an exemption changed it.
        let before = match theirs.known {
            Some(live) if overridden.limits.is_empty() && live.access.settings().allow.is_empty() => {
                Some(live.limits.clone())
            }
            _ => limits_alone(theirs.tree()?),
        };
        let merged = edited(theirs.text, |document| self.write(document, before.as_ref(), &kept))?;
        let config = judged(theirs, &merged, "limits")?;
        let limits = &config.live.limits;
        if !self.but_overridden {
            self.refuse_overridden(&kept, limits, before.as_ref())?;
        }
        // The result must mean what the draft says.
        let same =
            |limit: &Limit| kept(limit.name()) || limits.get(limit.name()) == self.limits.get(limit.name());
        if !self.limits.iter().chain(limits.iter()).all(same) {
            return Err(cannot_write(
                " without changing its meaning; write the limits as [limits.name] tables",
            ));
        }
        Ok((merged, config))
    }

    fn write(
        &self,
        document: &mut DocumentMut,
        before: Option<&Limits>,
        kept: &dyn Fn(&str) -> bool,
    ) -> Result<(), String> {
        let first = !document.contains_key("limits");
        if let Some(draft) = &self.toml {
            splice::put_end(document, draft, "limits");
        }
        for name in splice::limit_names(document) {
            if !kept(&name) && !self.names.iter().any(|(drafted, _)| *drafted == name) {
                splice::remove(document, &name);
            }
        }
        for (name, _) in self.names.iter().filter(|(name, _)| !kept(name)) {
            let had = before.and_then(|limits| limits.get(name));
            match (&self.toml, self.limits.get(name)) {
                (Some(draft), _) => splice::take(document, draft, name)?,
                (None, Some(want)) if had != Some(want) => splice::write(document, want)?,
                (None, _) => {}
            }
        }
        if first && document.contains_key("limits") {
            splice::set_end_apart(document);
        }
        Ok(())
    }

    /// A limit that a variable sets cannot be changed; a draft may contain it as it is shown or as it is in
    /// the document.
    fn refuse_overridden(
        &self,
        kept: &dyn Fn(&str) -> bool,
        in_force: &Limits,
        stands: Option<&Limits>,
    ) -> Result<(), DraftRefusal> {
        let refused = |name: &str| {
            let (wanted, stands) = (self.limits.get(name), stands.and_then(|limits| limits.get(name)));
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
fn edited(
    text: &str,
    edit: impl FnOnce(&mut DocumentMut) -> Result<(), String>,
) -> Result<String, DraftRefusal> {
    let plain = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let mut document = parsed(&plain).map_err(DraftRefusal::Backend)?;
    edit(&mut document).map_err(DraftRefusal::Backend)?;
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
fn limits_alone(root: &ConfigTable) -> Option<Limits> {
    let limits = root.get("limits").map(|entry| ("limits".to_owned(), entry.clone()));
    read_limits(limits.into_iter().collect()).ok()
}

fn parsed(text: &str) -> Result<DocumentMut, String> {
    #[cfg(test)]
    document::PARSED.set(document::PARSED.get() + 1);
    text.parse().map_err(|error: toml_edit::TomlError| format!("is not TOML: {}", error.message()))
}

/// The full names of the limits in a document; the others have their defaults.
pub fn named(text: &str) -> Vec<String> {
    let root = document::parse(DRAFT.as_ref(), text).unwrap_or_default();
    limits_in(&root).into_iter().map(|(name, _)| name).collect()
}

/// The document that a draft is put into. Parsing a long one takes milliseconds, so that is done when it is needed.
pub(super) struct TheirDocument<'a> {
    source: &'a ConfigSource,
    text: &'a str,
    /// What it says, if it is in force.
    known: Option<&'a LiveSettings>,
    tree: OnceCell<Result<ConfigTable, ConfigError>>,
}

impl<'a> TheirDocument<'a> {
    /// Refused if it is not a document.
    pub fn new(
        source: &'a ConfigSource,
        text: &'a str,
        known: Option<&'a LiveSettings>,
    ) -> Result<Self, DraftRefusal> {
        let theirs = Self { source, text, known, tree: OnceCell::new() };
        if known.is_none() {
            theirs.tree()?;
        }
        Ok(theirs)
    }

    fn tree(&self) -> Result<&ConfigTable, DraftRefusal> {
        let tree = self.tree.get_or_init(|| self.source.tree(self.text));
        tree.as_ref().map_err(|error| not_ours(self.source, error))
    }

    fn read(&self) -> Result<Result<Config, ConfigError>, DraftRefusal> {
        Ok(self.source.read(self.tree()?.clone()))
    }
}

/// What a document with a draft in it means.
fn judged(theirs: &TheirDocument<'_>, merged: &str, section: &str) -> Result<Config, DraftRefusal> {
    let source = theirs.source;
    let root = source.tree(merged).map_err(|error| cannot_write(&format!(": {error}")))?;
    source.read(root).map_err(|error| refused(theirs, &error, section))
}

/// A mistake that was there before the draft is not the draft's.
fn refused(theirs: &TheirDocument<'_>, error: &ConfigError, section: &str) -> DraftRefusal {
    let elsewhere =
        |error: &ConfigError| error.problems().iter().any(|problem| !problem.field.starts_with(section));
    match theirs.read() {
        Err(refusal) => refusal,
        Ok(Err(before)) if elsewhere(&before) && elsewhere(error) => not_ours(theirs.source, &before),
        Ok(_) => DraftRefusal::Invalid(draft_errors(error)),
    }
}

/// What is wrong with the document outside the draft.
fn not_ours(source: &ConfigSource, error: &ConfigError) -> DraftRefusal {
    DraftRefusal::Backend(format!(
        "{} has a mistake that this change is not about; correct it there first: {error}",
        source.path().display()
    ))
}

const DRAFT: &str = "draft";

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
    pub version: String,
    /// Whether anything that the draft is about differs from before: it may say the same in other words.
    pub changed: bool,
    pub toml: String,
    /// Its `[access]`; empty if there is none.
    pub access: String,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DraftRefusal {
    Invalid(Vec<DraftError>),
    /// The document cannot take it, whatever the draft says: the reason, and what to do about it.
    Backend(String),
}

impl DraftRefusal {
    pub(super) fn into_errors(self) -> Vec<DraftError> {
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
    fn at(field: &str, message: String, line: Option<usize>) -> Self {
        Self { field: field.to_owned(), message, line }
    }
}

/// The place of a draft's values without a line.
fn whole_draft() -> ConfigLocation {
    ConfigLocation::WholeFile { path: Path::new(DRAFT).into() }
}

fn line(place: &ConfigLocation) -> Option<usize> {
    match place {
        ConfigLocation::File { path, line, .. } if path.as_ref() == Path::new(DRAFT) => Some(*line),
        _ => None,
    }
}

fn draft_errors(error: &ConfigError) -> Vec<DraftError> {
    let draft_error = |problem: &super::ConfigProblem| {
        DraftError::at(&problem.field, problem.reason.clone(), line(&problem.place))
    };
    error.problems().iter().map(draft_error).collect()
}

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
    /// The document with the change in it, and what is in force with that.
    pub(super) fn put_into(&self, theirs: &TheirDocument<'_>) -> Result<(String, Config), DraftRefusal> {
        match self {
            Self::Limits(edit) => edit.put_into(theirs),
            Self::Access(edit) => edit.put_into(theirs),
            Self::Apps(edit) => edit.put_into(theirs),
        }
    }

    pub(super) fn changed(&self, before: &LiveSettings, now: &LiveSettings) -> bool {
        match self {
            Self::Limits(_) => now.limits != before.limits,
            Self::Access(_) => now.access != before.access,
            Self::Apps(_) => now.apps != before.apps,
        }
    }

    /// The part of a document that it is about, for people to compare.
    fn part(&self, source: &ConfigSource, text: &str) -> String {
        match self {
            Self::Limits(_) => splice::limits_toml(text),
            Self::Access(_) => source.tree(text).map(|root| access_alone(&root).toml()).unwrap_or_default(),
            Self::Apps(_) => splice::apps_toml(text),
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
    pub(super) fn stale(&self, source: &ConfigSource, found: &BackendRead) -> DraftSaveError {
        let bytes = found.bytes().unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let put = TheirDocument::new(source, &text, None).and_then(|theirs| self.put_into(&theirs));
        let drafted = put.ok().map(|(merged, _)| self.part(source, &merged));
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

/// What environment variables set, whatever the document says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overridden {
    /// The full names of limits; `*` means all, and `custom.*` all custom limits.
    limits: Vec<String>,
    /// The keys of `[access]`.
    pub access: Vec<&'static str>,
    pub apps: bool,
}

impl Overridden {
    pub(super) fn by(variables: &[(String, String)]) -> Self {
        let (mut all, mut access) = (Self::default(), Vec::new());
        for keys in variables.iter().filter_map(|(name, _)| document::keys_of(name)) {
            match keys.iter().map(String::as_str).collect::<Vec<_>>()[..] {
                ["limits"] => all.limits.push("*".to_owned()),
                ["limits", "custom"] => all.limits.push("custom.*".to_owned()),
                ["limits", "custom", name, ..] => all.limits.push(format!("custom.{name}")),
                ["limits", name, ..] => all.limits.push(name.to_owned()),
                ["access"] => access.extend(KEYS.map(str::to_owned)),
                ["access", key, ..] => access.push(key.to_owned()),
                ["apps", ..] => all.apps = true,
                _ => {}
            }
        }
        all.access = KEYS.into_iter().filter(|key| access.iter().any(|set| set == key)).collect();
        all
    }

    /// Whether a variable sets this limit.
    pub fn limit(&self, name: &str) -> bool {
        self.limits.iter().any(|pattern| match pattern.as_str() {
            "*" => true,
            "custom.*" => name.starts_with("custom."),
            exact => exact == name,
        })
    }
}

/// A document with nothing but the value of `key`.
fn tree_of_json(key: &str, value: &Json) -> ConfigTable {
    let place = whole_draft();
    ConfigTable::from([(key.to_owned(), TableEntry::new(value_of(value, &place), place))])
}

fn value_of(from: &Json, place: &ConfigLocation) -> ConfigValue {
    match from {
        Json::Null => ConfigValue::Other("null"),
        Json::Bool(value) => ConfigValue::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => ConfigValue::Integer(Ok(integer)),
            (None, Some(fraction)) if !number.is_u64() => ConfigValue::Fraction(fraction),
            _ => ConfigValue::Integer(Err(number.to_string())),
        },
        Json::String(text) => ConfigValue::Text(text.clone()),
        Json::Array(items) => {
            let node = |item| ValueNode { value: value_of(item, place), place: place.clone() };
            ConfigValue::Array(items.iter().map(node).collect())
        }
        Json::Object(entries) => {
            let entry = |(key, inner): (&String, _)| {
                (key.clone(), TableEntry::new(value_of(inner, place), place.clone()))
            };
            ConfigValue::Table(entries.iter().map(entry).collect())
        }
    }
}

/// The limits of a document by their full names; the others have their defaults.
fn limits_in(root: &ConfigTable) -> Vec<(String, &TableEntry)> {
    let limits = || root.get("limits").and_then(TableEntry::table).into_iter().flatten();
    let custom = limits().filter(|(name, _)| *name == "custom").filter_map(|(_, custom)| custom.table());
    let custom = custom.flatten().map(|(name, entry)| (format!("custom.{name}"), entry));
    let built_in = limits().filter(|(name, _)| *name != "custom").map(|(name, entry)| (name.clone(), entry));
    built_in.chain(custom).collect()
}

/// The limits of a document that contains nothing else, without the variables.
fn read_limits(root: ConfigTable) -> Result<Limits, ConfigError> {
    let problems = ProblemList::default();
    let limits = reader::read(root, &problems, |root| root.section("limits", Limits::read));
    problems.into_result(limits)
}
