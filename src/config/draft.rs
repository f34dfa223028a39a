//! Edits of a live section: read as strictly as the document itself, and written into it.

mod access;
mod apps;
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
use strum::VariantArray;
use toml_edit::DocumentMut;
use url::Url;

use super::access::AccessSettings;
use super::document::{self, ConfigTable, ConfigValue, TableEntry, ValueNode};
use super::error::{ConfigError, ConfigLocation, ConfigProblem};
use super::limits::Limits;
use super::live_section::LiveSection;
use super::sections::Server;
use super::settings::{Config, LiveSettings};
use super::source::{BackendRead, ConfigSource, Fingerprint, NOTHING_SET};
use crate::origins::Origins;

pub use access::AccessSaver;
pub use splice::limits_toml;

/// The key of the applications, which are changed as one.
const APPS: &str = LiveSection::Apps.name();

/// A change of one live section, as an administrator wants it.
#[derive(Debug, Clone)]
pub enum Edit {
    /// All of a section: what the draft leaves out returns to its default. But of a section of keys, a draft in JSON is
    /// about the keys that it names.
    Section(LiveSection, Draft),
    /// One limit by its full name, as an object with its keys. The others stay.
    Limit(String, Json),
    /// One application, as a document with its `[[apps]]` table, in the place of that of this name, or as the last; `None`
    /// removes it. The others stay.
    App(String, Option<String>),
    /// All of `[access]`, as an object.
    Access(Json, AccessSaver),
    /// A section as it was once in force, in TOML, without what has ended and what variables set by now.
    Restored(LiveSection, String, AccessSaver),
}

/// A section as it was sent.
#[derive(Debug, Clone)]
pub enum Draft {
    /// The tables of that section only: `[limits.…]`, `[[apps]]`.
    Toml(String),
    /// What the document has under the section's key.
    Json(Json),
}

impl Draft {
    /// A document with nothing but the draft, which is about `key`.
    fn tree(&self, key: &str) -> Result<ConfigTable, ConfigError> {
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
    fn toml(&self, key: &str) -> Result<DocumentMut, String> {
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

/// What an edit is read beside.
pub(super) struct EditBase<'a> {
    pub source: &'a ConfigSource,
    pub document: &'a str,
    pub access: &'a AccessSettings,
    pub origins: &'a Origins,
    /// Our own URL, whose host no application can have.
    pub public_url: &'a Url,
}

/// A valid edit. It may still conflict with the document that it is written into.
#[derive(Debug, Clone)]
struct ReadEdit {
    section: LiveSection,
    /// The only parts that it is about: a limit, or keys.
    only: Option<Vec<String>>,
    /// The other sections have their defaults.
    draft: Box<LiveSettings>,
    /// A draft of `[access]` without what has ended.
    kept: Option<Box<LiveSettings>>,
    /// Empty for `[access]`, and for limits in JSON, which are written by what they mean.
    toml: DocumentMut,
    /// JSON has no comments: of such a draft only the differences are written.
    from_json: bool,
    /// The limits that the draft names, each with its line in a draft in TOML.
    limits: Vec<(String, Option<usize>)>,
    /// What stands in the draft's way, unless it is so already.
    warnings: Vec<ConfigProblem>,
    /// What the environment sets is left unchanged, whatever the draft says about it.
    but_overridden: bool,
    public_url: Url,
}

/// A document with an edit in it, and what is in force with that.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub text: String,
    document: DocumentMut,
    pub config: Config,
}

/// An edit in a document: checked as a whole, and not saved yet.
#[derive(Debug, Clone)]
pub struct CheckedEdit {
    pub(super) edit: Edit,
    read: Box<ReadEdit>,
    /// The document that it was checked in.
    pub(super) base: Fingerprint,
    pub(super) candidate: Box<Candidate>,
}

impl CheckedEdit {
    pub(super) fn new(edit: Edit, base: &EditBase<'_>) -> Result<Self, SaveError> {
        let read = Box::new(ReadEdit::read(&edit, base).map_err(SaveError::Invalid)?);
        let candidate = Box::new(read.put_into(base.source, base.document)?);
        Ok(Self { edit, read, base: Fingerprint::of(base.document.as_bytes()), candidate })
    }

    /// What would be in force.
    pub const fn live(&self) -> &LiveSettings {
        &self.candidate.config.live
    }

    /// Whether anything that the edit is about differs in both.
    pub fn changed(&self, before: &LiveSettings, now: &LiveSettings) -> bool {
        !self.read.all_same(before, now, &|_| false)
    }

    /// The live sections with the edit.
    pub fn texts(&self) -> LiveTexts {
        LiveTexts::of(&self.candidate.document, self.live().access.settings())
    }

    /// The author has not seen the current document: its version, and what the draft would change in it.
    pub(super) fn stale(&self, source: &ConfigSource, found: &BackendRead) -> SaveError {
        let bytes = found.bytes().unwrap_or_default();
        let text = String::from_utf8_lossy(bytes);
        let (read, section) = (&self.read, self.read.section);
        let access = |live: &LiveSettings| live.access.settings().toml();
        let (current, draft) = match section {
            LiveSection::Access => {
                let now = source.tree(&text).ok().and_then(|root| read.alone(&root));
                (now.as_ref().map(access).unwrap_or_default(), access(self.live()))
            }
            _ => {
                let merged = read.put_into(source, &text);
                // If the document does not take it, the draft is shown as it was checked.
                let document = merged.as_ref().map_or(&self.candidate.document, |merged| &merged.document);
                (section.text_in(&text), section.toml(document))
            }
        };
        let diff = line_diff(&current, &draft).unified_diff().header("in force", "draft").to_string();
        SaveError::Stale { version: Fingerprint::of(bytes).to_string(), diff, draft }
    }
}

/// The live sections of a document as text, as the history has them: no other setting and no comment of another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LiveTexts {
    pub limits: String,
    /// An entry a line, in a form of its own.
    pub access: String,
    pub apps: String,
    /// All others; `None` if they were not recorded.
    pub others: Option<String>,
}

impl LiveTexts {
    /// `access` is what the document means, since it stands there in many forms.
    pub fn read(document: &str, access: &AccessSettings) -> Self {
        Self::of(&splice::shown(document), access)
    }

    fn of(document: &DocumentMut, access: &AccessSettings) -> Self {
        let others = LiveSection::VARIANTS.iter().filter(|section| !section.has_own_text());
        let others = others.map(|section| section.toml(document)).filter(|text| !text.is_empty());
        let others: Vec<_> = others.collect();
        Self {
            limits: LiveSection::Limits.toml(document),
            access: access.toml(),
            apps: LiveSection::Apps.toml(document),
            others: Some(others.join("\n")),
        }
    }

    /// One section; empty if nothing was set, `None` if it was not recorded.
    pub fn section(&self, section: LiveSection) -> Option<String> {
        match section {
            LiveSection::Limits => Some(self.limits.clone()),
            LiveSection::Access => Some(self.access.clone()),
            LiveSection::Apps => Some(self.apps.clone()),
            other => self.others.as_ref().map(|others| other.text_in(others)),
        }
    }
}

impl LiveSection {
    /// What is live of it in a document, as text for people to read and compare; empty if nothing is set.
    pub fn text_in(self, document: &str) -> String {
        self.toml(&splice::shown(document))
    }

    fn toml(self, document: &DocumentMut) -> String {
        match self {
            Self::Limits | Self::Access | Self::Apps => splice::section_toml(document, self.name()),
            Self::Factors
            | Self::Brand
            | Self::Login
            | Self::Origins
            | Self::Registration
            | Self::Captcha
            | Self::Sms
            | Self::Mail => splice::keys_toml(document, self.name(), self.keys()),
        }
    }

    /// Whether the history has a text for it alone.
    const fn has_own_text(self) -> bool {
        matches!(self, Self::Limits | Self::Access | Self::Apps)
    }
}

impl ReadEdit {
    /// Reads an edit and nothing else; returns all of its problems.
    fn read(edit: &Edit, base: &EditBase<'_>) -> Result<Self, Vec<DraftError>> {
        let section = |section, draft: &Draft| Self::read_section(section, draft, base.public_url);
        match edit {
            Edit::Section(of, draft) => section(*of, draft),
            Edit::Limit(name, limit) => {
                let limits = match name.strip_prefix("custom.") {
                    None => json!({ name.as_str(): limit }),
                    Some(own) => json!({ "custom": { own: limit } }),
                };
                let edit = section(LiveSection::Limits, &Draft::Json(limits))?;
                Ok(Self { only: Some(vec![name.clone()]), ..edit })
            }
            Edit::App(name, app) => {
                let apps = splice::with_app(&LiveSection::Apps.text_in(base.document), name, app.as_deref());
                section(LiveSection::Apps, &Draft::Toml(apps.map_err(|error| vec![error])?))
            }
            Edit::Access(draft, saver) => {
                section(LiveSection::Access, &Draft::Json(draft.clone()))?.kept(base, saver)
            }
            Edit::Restored(of, toml, saver) => {
                let mut edit = section(*of, &Draft::Toml(toml.clone()))?;
                edit.but_overridden = true;
                if *of == LiveSection::Access {
                    edit.draft.access = edit.draft.access.settings().in_force(saver.now).into();
                    edit = edit.kept(base, saver)?;
                }
                Ok(edit)
            }
        }
    }

    fn read_section(section: LiveSection, draft: &Draft, public_url: &Url) -> Result<Self, Vec<DraftError>> {
        let root = draft.tree(section.name()).map_err(|error| errors(section, &error))?;
        let limits = limits_in(&root).into_iter().map(|(name, entry)| (name, line(&entry.key))).collect();
        let from_json = matches!(draft, Draft::Json(_));
        let keys = root.get(section.name()).and_then(TableEntry::table);
        let only = keys.filter(|_| from_json && !section.has_own_text());
        let only = only.map(|keys| keys.keys().cloned().collect());
        let (value, warnings) = section.read(root, public_url).map_err(|error| errors(section, &error))?;
        let toml = match section {
            LiveSection::Access => DocumentMut::new(),
            LiveSection::Limits if from_json => DocumentMut::new(),
            _ => draft.toml(section.name()).map_err(|reason| vec![DraftError::at("", reason, None)])?,
        };
        Ok(Self {
            section,
            only,
            draft: Box::new(value),
            kept: None,
            toml,
            from_json,
            limits,
            warnings,
            but_overridden: false,
            public_url: public_url.clone(),
        })
    }

    /// `[access]` without what has ended.
    fn kept(self, base: &EditBase<'_>, saver: &AccessSaver) -> Result<Self, Vec<DraftError>> {
        let access = access::kept(self.draft.access.settings(), base, saver)?.into();
        let kept = Box::new(LiveSettings { access, ..LiveSettings::default() });
        Ok(Self { kept: Some(kept), ..self })
    }

    /// What a document says of the section without the variables; `None` if it has a mistake there.
    fn alone(&self, root: &ConfigTable) -> Option<LiveSettings> {
        self.section.alone(root, &self.public_url)
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
    fn put_into(&self, source: &ConfigSource, text: &str) -> Result<Candidate, SaveError> {
        let root = source.tree(text).map_err(|error| not_ours(source, &error))?;
        let before = self.alone(&root);
        let new: Vec<_> =
            self.warnings.iter().filter(|warning| !self.is_old(warning, before.as_ref())).collect();
        if !new.is_empty() {
            let new = new.into_iter().cloned().collect();
            return Err(SaveError::Invalid(errors(self.section, &ConfigError::new(new))));
        }
        let overridden = Overridden::by(source.environment());
        let fixed = |part: &str| overridden.sets(self.section, part);
        let put = |wanted: &LiveSettings| {
            let (text, document) =
                edited(text, |document| self.write(document, wanted, before.as_ref(), &fixed))?;
            let config = self.evaluate(source, &root, &text)?;
            Ok::<_, SaveError>(Candidate { text, document, config })
        };
        // With what has ended at first, so that a mistake is told at the entry as it was sent.
        let whole = put(&self.draft)?;
        if !self.but_overridden {
            self.refuse_overridden(&fixed, before.as_ref(), &whole.config.live)?;
        }
        let wanted = self.kept.as_ref().unwrap_or(&self.draft);
        let candidate = if *wanted == self.draft { whole } else { put(wanted)? };
        if self.all_same(wanted, &candidate.config.live, &fixed) {
            Ok(candidate)
        } else {
            Err(cannot_write(&format!(" without changing its meaning; {}", self.section.usual_form())))
        }
    }

    /// The parts that it is about, in either of both.
    fn parts<'l>(&'l self, one: &'l LiveSettings, other: &'l LiveSettings) -> Vec<&'l str> {
        match &self.only {
            Some(names) => names.iter().map(String::as_str).collect(),
            None => [self.section.parts(one), self.section.parts(other)].concat(),
        }
    }

    fn is_about(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|names| names.iter().any(|name| name == part))
    }

    /// Whether both have every part in common, except `ignored` ones.
    fn all_same(&self, one: &LiveSettings, other: &LiveSettings, ignored: &dyn Fn(&str) -> bool) -> bool {
        let parts = self.parts(one, other);
        parts.into_iter().all(|part| ignored(part) || self.section.same(one, other, part))
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
            LiveSection::Limits => self.write_limits(document, &wanted.limits, &same, fixed)?,
            LiveSection::Access => {
                access::write(document, wanted.access.settings(), &|key| fixed(key) || same(key))?;
            }
            LiveSection::Apps => {
                let stays = match self.from_json {
                    true => same(APPS),
                    // The page shows it like this.
                    false => splice::section_toml(document, APPS) == self.toml.to_string(),
                };
                if !stays && !fixed(APPS) {
                    apps::write(document, &self.toml);
                }
            }
            table => {
                let stays = |key: &str| !self.is_about(key) || fixed(key) || same(key);
                splice::write_keys(document, &self.toml, table, &stays)?;
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
        let drafted = |name: &str| self.limits.iter().any(|(drafted, _)| drafted == name);
        for name in splice::limit_names(document) {
            if self.only.is_none() && !fixed(&name) && !drafted(&name) {
                splice::remove(document, &name);
            }
        }
        for (name, _) in self.limits.iter().filter(|(name, _)| !fixed(name)) {
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
    ) -> Result<(), SaveError> {
        let line = |part: &str| self.limits.iter().find(|(name, _)| name == part).map(|(_, line)| *line);
        let named = |part: &str| match self.section {
            LiveSection::Limits => line(part).is_some(),
            _ => self.is_about(part),
        };
        let same = |other: &LiveSettings, part: &str| self.section.same(&self.draft, other, part);
        let mut refused = self.section.parts(&self.draft);
        refused.retain(|part| {
            let stays = same(in_force, part) || before.is_some_and(|before| same(before, part));
            fixed(part) && named(part) && !stays
        });
        let error = |part: &str| {
            DraftError::at(&self.section.field(part), SET_BY_VARIABLE.to_owned(), line(part).flatten())
        };
        match refused.is_empty() {
            true => Ok(()),
            false => Err(SaveError::Invalid(refused.into_iter().map(error).collect())),
        }
    }

    /// What the document means with the draft in it. A mistake that was there before is not the draft's.
    fn evaluate(
        &self,
        source: &ConfigSource,
        before: &ConfigTable,
        merged: &str,
    ) -> Result<Config, SaveError> {
        let root = source.tree(merged).map_err(|error| cannot_write(&format!(": {error}")))?;
        source.read(root).map_err(|error| {
            let elsewhere = |error: &ConfigError| {
                let mut problems = error.problems().iter();
                problems.any(|problem| !problem.field.starts_with(self.section.name()))
            };
            match source.read(before.clone()) {
                Err(before) if elsewhere(&before) && elsewhere(&error) => not_ours(source, &before),
                _ => SaveError::Invalid(errors(self.section, &error)),
            }
        })
    }
}

/// With fields as API and forms name them: `limits.sms-phone.rules[0]`, `deny[0].until`, `apps[0].name`.
fn errors(section: LiveSection, error: &ConfigError) -> Vec<DraftError> {
    let draft_error = |ConfigProblem { place, field, reason }: &ConfigProblem| {
        let field = match section {
            LiveSection::Access => field.strip_prefix("access.").unwrap_or(field),
            _ => field.as_str(),
        };
        DraftError::at(field, reason.clone(), line(place))
    };
    error.problems().iter().map(draft_error).collect()
}

const SET_BY_VARIABLE: &str = "is set by an environment variable of the server, which overrides what is saved here; change it there, or leave it unchanged";

/// A document after an edit, as text and parsed; what the edit does not touch stays as it is.
fn edited(
    text: &str,
    edit: impl FnOnce(&mut DocumentMut) -> Result<(), String>,
) -> Result<(String, DocumentMut), SaveError> {
    let plain = unix_lines(text.trim_start_matches('\u{feff}'));
    let mut document = parsed(&plain).map_err(SaveError::Backend)?;
    edit(&mut document).map_err(SaveError::Backend)?;
    let mut merged = document.to_string();
    if merged == plain {
        return Ok((text.to_owned(), document));
    }
    if merged.trim().is_empty() {
        // An empty document would look like one that is being written.
        merged = NOTHING_SET.to_owned();
    }
    // Line ends and byte order mark are the owner's; `toml_edit` handles neither.
    let merged = if text.contains("\r\n") { merged.replace('\n', "\r\n") } else { merged };
    let merged = if text.starts_with('\u{feff}') { format!("\u{feff}{merged}") } else { merged };
    Ok((merged, document))
}

fn cannot_write(why: &str) -> SaveError {
    SaveError::Backend(format!("the draft cannot be written into this document{why}"))
}

fn not_ours(source: &ConfigSource, error: &ConfigError) -> SaveError {
    SaveError::Backend(format!(
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

/// The limits that a text means alone, such as one of the history; `None` if it has a mistake.
pub fn read_limits(text: &str) -> Option<Limits> {
    let root = document::parse(DRAFT.as_ref(), text).ok()?;
    let live = LiveSection::Limits.read(root, &Server::default().public_url).ok()?.0;
    Some(live.limits)
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

/// What is in force after an edit was saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedEdit {
    pub version: String,
    /// Whether anything that the edit is about differs from before: it may say the same in other words.
    pub changed: bool,
    pub texts: LiveTexts,
}

/// Why an edit was not saved. The document and what is in force are unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveError {
    /// Somebody else changed the document in the meantime.
    Stale {
        version: String,
        /// A unified diff from the current section to the one with the edit.
        diff: String,
        /// The section with the edit in it.
        draft: String,
    },
    Invalid(Vec<DraftError>),
    /// The document cannot be written: the reason, and what to do about it.
    Backend(String),
}

impl SaveError {
    /// Tells the error as mistakes, for a draft that is only tried.
    pub fn into_errors(self) -> Vec<DraftError> {
        match self {
            Self::Invalid(errors) => errors,
            Self::Backend(reason) => vec![DraftError::at("", reason, None)],
            Self::Stale { diff, .. } => vec![DraftError::at("", diff, None)],
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
    /// Keys of the other sections, in the order of the sections.
    keys: Vec<(LiveSection, &'static str)>,
}

impl Overridden {
    pub(super) fn by(variables: &[(String, String)]) -> Self {
        let mut all = Self::default();
        for keys in variables.iter().filter_map(|(name, _)| document::keys_of(name)) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let Some(section) = keys.first().and_then(|name| LiveSection::named(name)) else { continue };
            match (section, &keys[1..]) {
                (LiveSection::Limits, []) => all.limits.push("*".to_owned()),
                (LiveSection::Limits, ["custom"]) => all.limits.push("custom.*".to_owned()),
                (LiveSection::Limits, ["custom", name, ..]) => all.limits.push(format!("custom.{name}")),
                (LiveSection::Limits, [name, ..]) => all.limits.push((*name).to_owned()),
                (LiveSection::Apps, _) | (_, []) => {
                    all.keys.extend(section.keys().iter().map(|key| (section, *key)));
                }
                (_, [name, ..]) => {
                    let known = section.keys().iter().filter(|key| *key == name);
                    all.keys.extend(known.map(|key| (section, *key)));
                }
            }
        }
        let place = |(section, key): &(LiveSection, &'static str)| {
            (*section as usize, section.keys().iter().position(|known| known == key))
        };
        all.keys.sort_by_key(place);
        all.keys.dedup();
        all
    }

    /// Whether a part of a section is set: a limit, a key, all applications.
    fn sets(&self, section: LiveSection, part: &str) -> bool {
        match section {
            LiveSection::Limits => self.limit(part),
            _ => self.keys_of(section).any(|key| key == part),
        }
    }

    /// The keys of a section.
    pub fn keys_of(&self, section: LiveSection) -> impl Iterator<Item = &'static str> {
        self.keys.iter().filter(move |(of, _)| *of == section).map(|(_, key)| *key)
    }

    pub fn apps(&self) -> bool {
        self.keys_of(LiveSection::Apps).next().is_some()
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
