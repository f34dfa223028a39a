//! Drafts of the limits, of `[access]`, of `[[apps]]` and of `[factors]`: read as strictly as the document itself, and written into it.

mod access;
mod apps;
mod section;
mod splice;

#[cfg(test)]
mod access_tests;
#[cfg(test)]
mod apps_tests;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};
use similar::TextDiff;
use toml_edit::DocumentMut;
use url::Url;

use super::access::KEYS;
use super::document::{self, ConfigTable, ConfigValue, TableEntry, ValueNode};
use super::error::{ConfigError, ConfigLocation, ConfigProblem};
use super::factors::FactorSettings;
use super::limits::Limits;
use super::reader::SectionTable;
use super::settings::{Config, LiveSettings};
use super::source::{BackendRead, ConfigSource, Fingerprint, NOTHING_SET};
use section::Section;

pub use access::AccessSaver;
pub use splice::{apps_toml, limits_and_apps_toml, limits_toml, with_app, with_limit};

/// The key of the applications, which are changed as one.
const APPS: &str = "apps";

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
    fn tree(self, key: &str) -> Result<ConfigTable, ConfigError> {
        match self {
            Self::Json(value) => {
                let place = ConfigLocation::WholeFile { path: Path::new(DRAFT).into() };
                let entry = TableEntry::new(value_of(value, &place), place);
                Ok(ConfigTable::from([(key.to_owned(), entry)]))
            }
            Self::Toml(text) => document::parse(DRAFT.as_ref(), &unix_lines(text)),
        }
    }

    /// The draft as its author wrote it; of a draft in JSON, what it says.
    fn toml(self, key: &str) -> Result<DocumentMut, String> {
        match self {
            Self::Json(value) => {
                let text = toml::to_string(&json!({ key: value })).map_err(|error| error.to_string())?;
                parsed(&text)
            }
            Self::Toml(text) => parsed(&unix_lines(text)),
        }
    }
}

/// Browsers send lines that end in CR LF.
fn unix_lines(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// A valid draft. It may still conflict with the document that it is written into.
#[derive(Debug, Clone)]
pub struct DocumentEdit {
    section: Section,
    /// The other sections have their defaults.
    draft: Box<LiveSettings>,
    /// A draft of `[access]` without what has ended.
    kept: Option<Box<LiveSettings>>,
    toml: DocumentMut,
    /// JSON has no comments: of such a draft only the differences are written.
    from_json: bool,
    /// The line of each limit in a draft in TOML.
    lines: Vec<(String, usize)>,
    /// What stands in the draft's way, unless it is so already.
    warnings: Vec<ConfigProblem>,
    /// Limits that the environment sets are left unchanged, whatever the draft says about them.
    but_overridden: bool,
}

impl DocumentEdit {
    /// Reads limits and nothing else; returns all problems of the draft.
    pub fn limits(draft: DocumentDraft<'_>) -> Result<Self, Vec<DraftError>> {
        Self::read(Section::Limits, draft)
    }

    /// Reads an object with the structure of the `[access]` table; returns all of its problems.
    pub fn access(draft: &Json, saver: AccessSaver<'_>) -> Result<Self, Vec<DraftError>> {
        let edit = Self::read(Section::Access, DocumentDraft::Json(draft))?;
        let access = access::kept(edit.draft.access.settings(), saver)?.into();
        let kept = Box::new(LiveSettings { access, ..LiveSettings::default() });
        Ok(Self { kept: Some(kept), ..edit })
    }

    /// Reads applications and nothing else; returns all of their problems. No application can have the host of
    /// `public_url`.
    pub(super) fn apps(draft: DocumentDraft<'_>, public_url: &Url) -> Result<Self, Vec<DraftError>> {
        Self::read(Section::Apps(public_url.clone()), draft)
    }

    /// Reads `[factors]` and nothing else; returns all of its problems.
    pub fn factors(draft: DocumentDraft<'_>) -> Result<Self, Vec<DraftError>> {
        Self::read(Section::Factors, draft)
    }

    fn read(section: Section, draft: DocumentDraft<'_>) -> Result<Self, Vec<DraftError>> {
        let root = draft.tree(section.key()).map_err(|error| section.errors(&error))?;
        let lines = limits_in(&root).into_iter().filter_map(|(name, entry)| Some((name, line(&entry.key)?)));
        let lines = lines.collect();
        let (value, warnings) = section.read(root).map_err(|error| section.errors(&error))?;
        let toml = draft.toml(section.key()).map_err(|reason| vec![DraftError::at("", reason, None)])?;
        let from_json = matches!(draft, DocumentDraft::Json(_));
        Ok(Self {
            section,
            draft: Box::new(value),
            kept: None,
            toml,
            from_json,
            lines,
            warnings,
            but_overridden: false,
        })
    }

    /// For a document that was in force once: leaves out limits that the environment sets by now.
    #[must_use]
    pub fn but_overridden(self) -> Self {
        Self { but_overridden: true, ..self }
    }

    /// Whether it is about the secret of a client that has it so already, as other instances may read it.
    fn is_old(&self, warning: &ConfigProblem, before: Option<&LiveSettings>) -> bool {
        let at = warning
            .field
            .strip_prefix("apps[")
            .and_then(|rest| rest.split_once(']')?.0.parse::<usize>().ok());
        let client = at.and_then(|at| self.draft.apps.all().get(at)?.oidc.as_ref());
        let old = client.and_then(|client| before?.apps.client(&client.client_id));
        client.zip(old).is_some_and(|(client, (_, old))| client.secret == old.secret)
    }

    /// The document with the draft in it, with comments and order kept, and what is in force with that.
    pub(super) fn put_into(
        &self,
        source: &ConfigSource,
        text: &str,
    ) -> Result<(String, Config), DraftSaveError> {
        let root = source.tree(text).map_err(|error| not_ours(source, &error))?;
        let before = self.section.alone(&root);
        let new: Vec<_> =
            self.warnings.iter().filter(|warning| !self.is_old(warning, before.as_ref())).collect();
        if !new.is_empty() {
            let new = new.into_iter().cloned().collect();
            return Err(DraftSaveError::Invalid(self.section.errors(&ConfigError::new(new))));
        }
        let overridden = Overridden::by(source.environment());
        let fixed = |part: &str| self.section.is_overridden(&overridden, part);
        let put = |wanted: &LiveSettings| {
            let merged = edited(text, |document| self.write(document, wanted, before.as_ref(), &fixed))?;
            let config = self.evaluate(source, &root, &merged)?;
            Ok::<_, DraftSaveError>((merged, config))
        };
        // With what has ended at first, so that a mistake is told at the entry as it was sent.
        let whole = put(&self.draft)?;
        if !self.but_overridden {
            self.refuse_overridden(&fixed, before.as_ref(), &whole.1.live)?;
        }
        let wanted = self.kept.as_ref().unwrap_or(&self.draft);
        let (merged, config) = if *wanted == self.draft { whole } else { put(wanted)? };
        if self.section.all_same(wanted, &config.live, &fixed) {
            Ok((merged, config))
        } else {
            Err(cannot_write(&format!(" without changing its meaning; {}", self.section.usual_form())))
        }
    }

    /// Writes what differs from the document, except what variables set.
    fn write(
        &self,
        document: &mut DocumentMut,
        wanted: &LiveSettings,
        before: Option<&LiveSettings>,
        fixed: &dyn Fn(&str) -> bool,
    ) -> Result<(), String> {
        let same = |part: &str| before.is_some_and(|before| self.section.same(before, wanted, part));
        match self.section {
            Section::Limits => self.write_limits(document, &wanted.limits, &same, fixed)?,
            Section::Access => {
                access::write(document, wanted.access.settings(), &|key| fixed(key) || same(key))?;
            }
            Section::Factors => {
                access::write_factors(document, &wanted.factors, &|key| fixed(key) || same(key))?;
            }
            Section::Apps(_) => {
                let stays = match self.from_json {
                    true => same(APPS),
                    // The page shows it like this.
                    false => splice::section_toml(document, APPS) == self.toml.to_string(),
                };
                if !stays && !fixed(APPS) {
                    apps::write(document, &self.toml);
                }
            }
        }
        Ok(())
    }

    fn write_limits(
        &self,
        document: &mut DocumentMut,
        limits: &Limits,
        same: &dyn Fn(&str) -> bool,
        fixed: &dyn Fn(&str) -> bool,
    ) -> Result<(), String> {
        let first = !document.contains_key("limits");
        if !self.from_json {
            splice::put_end(document, &self.toml, "limits");
        }
        let drafted = splice::limit_names(&self.toml);
        for name in splice::limit_names(document) {
            if !fixed(&name) && !drafted.contains(&name) {
                splice::remove(document, &name);
            }
        }
        for name in drafted.iter().filter(|name| !fixed(name)) {
            match limits.get(name) {
                Some(limit) if self.from_json => {
                    if !same(name) {
                        splice::write(document, limit)?;
                    }
                }
                _ => splice::take(document, &self.toml, name)?,
            }
        }
        if first && document.contains_key("limits") {
            splice::set_end_apart(document);
        }
        Ok(())
    }

    /// What a variable sets cannot be changed; a draft may contain it as it is shown or as it is in the document.
    fn refuse_overridden(
        &self,
        fixed: &dyn Fn(&str) -> bool,
        before: Option<&LiveSettings>,
        in_force: &LiveSettings,
    ) -> Result<(), DraftSaveError> {
        let drafted = splice::limit_names(&self.toml);
        let named =
            |part: &str| !matches!(self.section, Section::Limits) || drafted.iter().any(|name| name == part);
        let same = |other: &LiveSettings, part: &str| self.section.same(&self.draft, other, part);
        let mut refused = self.section.parts(&self.draft);
        refused.retain(|part| {
            let stays = same(in_force, part) || before.is_some_and(|before| same(before, part));
            fixed(part) && named(part) && !stays
        });
        let error = |part: &str| {
            let line = self.lines.iter().find(|(name, _)| name == part).map(|(_, line)| *line);
            DraftError::at(&self.section.field(part), SET_BY_VARIABLE.to_owned(), line)
        };
        match refused.is_empty() {
            true => Ok(()),
            false => Err(DraftSaveError::Invalid(refused.into_iter().map(error).collect())),
        }
    }

    /// What the document means with the draft in it. A mistake that was there before is not the draft's.
    fn evaluate(
        &self,
        source: &ConfigSource,
        before: &ConfigTable,
        merged: &str,
    ) -> Result<Config, DraftSaveError> {
        let root = source.tree(merged).map_err(|error| cannot_write(&format!(": {error}")))?;
        source.read(root).map_err(|error| {
            let elsewhere = |error: &ConfigError| {
                let mut problems = error.problems().iter();
                problems.any(|problem| !problem.field.starts_with(self.section.key()))
            };
            match source.read(before.clone()) {
                Err(before) if elsewhere(&before) && elsewhere(&error) => not_ours(source, &before),
                _ => DraftSaveError::Invalid(self.section.errors(&error)),
            }
        })
    }

    pub(super) fn changed(&self, before: &LiveSettings, now: &LiveSettings) -> bool {
        !self.section.all_same(before, now, &|_| false)
    }

    /// The author has not seen the current document: its version, and what the draft would change in it.
    pub(super) fn stale(&self, source: &ConfigSource, found: &BackendRead) -> DraftSaveError {
        let bytes = found.bytes().unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let drafted = match self.put_into(source, &text) {
            Ok((merged, _)) => self.section.text(source, &merged),
            Err(_) => self.toml.to_string(),
        };
        let current = self.section.text(source, &text);
        let diff = line_diff(&current, &drafted).unified_diff().header("in force", "draft").to_string();
        DraftSaveError::Stale { version: Fingerprint::of(bytes).to_string(), diff }
    }
}

const SET_BY_VARIABLE: &str = "is set by an environment variable of the server, which overrides what is saved here; change it there, or leave it unchanged";

/// A document after an edit; what the edit does not touch stays as it is.
fn edited(
    text: &str,
    edit: impl FnOnce(&mut DocumentMut) -> Result<(), String>,
) -> Result<String, DraftSaveError> {
    let plain = unix_lines(text.trim_start_matches('\u{feff}'));
    let mut document = parsed(&plain).map_err(DraftSaveError::Backend)?;
    edit(&mut document).map_err(DraftSaveError::Backend)?;
    let mut merged = document.to_string();
    if merged == plain {
        return Ok(text.to_owned());
    }
    if merged.trim().is_empty() {
        // An empty document would look like one that is being written.
        merged = NOTHING_SET.to_owned();
    }
    // Line ends and byte order mark are the owner's; `toml_edit` handles neither.
    let merged = if text.contains("\r\n") { merged.replace('\n', "\r\n") } else { merged };
    Ok(if text.starts_with('\u{feff}') { format!("\u{feff}{merged}") } else { merged })
}

fn cannot_write(why: &str) -> DraftSaveError {
    DraftSaveError::Backend(format!("the draft cannot be written into this document{why}"))
}

fn not_ours(source: &ConfigSource, error: &ConfigError) -> DraftSaveError {
    DraftSaveError::Backend(format!(
        "{} has a mistake that this change is not about; correct it there first: {error}",
        source.path().display()
    ))
}

fn parsed(text: &str) -> Result<DocumentMut, String> {
    #[cfg(test)]
    document::PARSED.set(document::PARSED.get() + 1);
    text.parse().map_err(|error: toml_edit::TomlError| format!("is not TOML: {}", error.message()))
}

/// The full names of the limits in a document; the others have their defaults.
pub fn named_limits(text: &str) -> Vec<String> {
    let root = document::parse(DRAFT.as_ref(), text).unwrap_or_default();
    limits_in(&root).into_iter().map(|(name, _)| name).collect()
}

const DRAFT: &str = "draft";

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

impl DraftSaveError {
    pub(super) fn into_errors(self) -> Vec<DraftError> {
        match self {
            Self::Invalid(errors) => errors,
            Self::Backend(reason) => vec![DraftError::at("", reason, None)],
            Self::Stale { .. } => unreachable!("only a save says which version was seen"),
        }
    }
}

impl DraftError {
    fn at(field: &str, message: String, line: Option<usize>) -> Self {
        Self { field: field.to_owned(), message, line }
    }
}

fn line(place: &ConfigLocation) -> Option<usize> {
    match place {
        ConfigLocation::File { path, line, .. } if path.as_ref() == Path::new(DRAFT) => Some(*line),
        _ => None,
    }
}

/// Longer texts are compared roughly from then on: the shortest difference of two long ones takes minutes.
const LONGEST_COMPARISON: Duration = Duration::from_millis(10);

/// The lines that two texts have in common, and the others.
pub fn line_diff<'t>(old: &'t str, new: &'t str) -> TextDiff<'t, 't, 't, str> {
    TextDiff::configure().timeout(LONGEST_COMPARISON).diff_lines(old, new)
}

/// What environment variables set, whatever the document says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overridden {
    /// The full names of limits; `*` means all, and `custom.*` all custom limits.
    limits: Vec<String>,
    pub access: Vec<&'static str>,
    pub apps: bool,
    /// Keys of `[factors]`.
    pub factors: Vec<&'static str>,
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
                ["factors"] => all.factors.extend(FactorSettings::KEYS),
                ["factors", key, ..] => {
                    all.factors.extend(FactorSettings::KEYS.iter().filter(|known| **known == key));
                }
                _ => {}
            }
        }
        all.access = KEYS.into_iter().filter(|key| access.iter().any(|set| set == key)).collect();
        all
    }

    pub fn limit(&self, name: &str) -> bool {
        self.limits.iter().any(|pattern| match pattern.as_str() {
            "*" => true,
            "custom.*" => name.starts_with("custom."),
            exact => exact == name,
        })
    }
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
