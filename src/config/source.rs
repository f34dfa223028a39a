//! Where the configuration is read from: a file that must exist or may be missing, and variables; and the live part of
//! a document, which another backend keeps and which applies over the rest of the file.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use strum::VariantArray;
use toml_edit::DocumentMut;

use super::document::{ConfigTable, ConfigValue, Environment, TableEntry, ValueNode};
use super::error::{ConfigError, ConfigProblem};
use super::live_section::LiveSection;
use super::reader::ProblemList;
use super::settings::Config;
use super::{document, misspelt, reader};

/// Read if no file is given; if it is missing, the defaults apply.
pub const DEFAULT_FILE: &str = "gatehouse.toml";

/// Far larger than any real document: a wrong path (a log, a device) must not fill the memory.
pub(super) const LARGEST: u64 = 1024 * 1024;

/// What was found where the document is kept. An equal result need not be judged again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackendRead {
    Bytes(Vec<u8>),
    Missing,
    Unreadable(String),
    /// Unknown, because the backend does not answer.
    Down(String),
}

impl BackendRead {
    /// The document; empty if there is none.
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Missing => Some(&[]),
            Self::Unreadable(_) | Self::Down(_) => None,
        }
    }
}

#[derive(Debug, Clone)]
pub struct ConfigSource {
    path: PathBuf,
    must_exist: bool,
    environment: Environment,
    /// If the document has only the live part: the rest of the file.
    beneath: Option<Arc<ConfigTable>>,
}

/// Identifies a file's content: instances with the same fingerprint have read the same bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

/// The first twelve hexadecimal digits: enough to compare by eye.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0[..6].iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl ConfigSource {
    /// The given file, which must exist, or else [`DEFAULT_FILE`], which may be missing.
    pub fn new(file: Option<&Path>, environment: Environment) -> Self {
        match file {
            Some(path) => Self { path: path.to_owned(), must_exist: true, environment, beneath: None },
            None => Self::optional(Path::new(DEFAULT_FILE), environment),
        }
    }

    /// A file for which the defaults apply while it is missing.
    pub fn optional(path: &Path, environment: Environment) -> Self {
        Self { path: path.to_owned(), must_exist: false, environment, beneath: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// For a backend with only the live part: its documents apply over the rest of this file.
    pub(super) fn over_the_rest(&self, path: PathBuf, file: &str) -> Result<Self, ConfigError> {
        let rest = without_live(self.tree(file)?);
        Ok(Self { path, must_exist: true, beneath: Some(Arc::new(rest)), ..self.clone() })
    }

    /// `known` is what it says, if that is known.
    pub(super) fn interpret(
        &self,
        found: &BackendRead,
        known: Option<Config>,
    ) -> Result<CheckedDocument, ConfigError> {
        let text = self.text(found)?;
        let config = match known {
            Some(config) => config,
            None => self.read(self.tree(text)?)?,
        };
        let fingerprint = Fingerprint::of(text.as_bytes());
        Ok(CheckedDocument { config, fingerprint, document: Arc::from(text) })
    }

    fn text<'f>(&self, found: &'f BackendRead) -> Result<&'f str, ConfigError> {
        let whole = |reason: &str| ConfigError::whole_file(&self.path, reason);
        let bytes: &[u8] = match found {
            BackendRead::Bytes(bytes) if bytes.len() as u64 > LARGEST => {
                return Err(whole("is longer than 1 MiB, the most a configuration can have"));
            }
            BackendRead::Bytes(bytes) => bytes,
            BackendRead::Missing if self.must_exist => return Err(whole("there is no such file")),
            BackendRead::Missing => &[],
            BackendRead::Unreadable(reason) | BackendRead::Down(reason) => {
                return Err(whole(&format!("cannot be read: {reason}")));
            }
        };
        document::text(&self.path, bytes)
    }

    /// The document as a tree, without the variables.
    pub(super) fn tree(&self, text: &str) -> Result<ConfigTable, ConfigError> {
        let document = document::parse(&self.path, text)?;
        match &self.beneath {
            None => Ok(document),
            Some(rest) => live_over(rest, document),
        }
    }

    pub(super) fn read(&self, root: ConfigTable) -> Result<Config, ConfigError> {
        read(root, &self.environment).0
    }
}

pub(super) struct CheckedDocument {
    pub config: Config,
    pub fingerprint: Fingerprint,
    pub document: Arc<str>,
}

/// A document with the variables over it; `path` names it in problems.
pub fn parse(path: &Path, text: &str, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    read(document::parse(path, text)?, environment).0
}

/// How many entries of lists and tables are visited to read a document: for tests that bound its work.
pub fn visited(path: &Path, text: &str) -> usize {
    document::parse(path, text).map_or(0, |root| read(root, &[]).1)
}

#[cfg(test)]
thread_local! {
    /// How many documents this thread has read as a whole.
    pub(super) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What a tree means, and how many entries were visited to know it.
fn read(mut root: ConfigTable, environment: &[(String, String)]) -> (Result<Config, ConfigError>, usize) {
    #[cfg(test)]
    READ.set(READ.get() + 1);
    let mut problems = Vec::new();
    let environment = misspelt::told_apart(&root, environment, &mut problems);
    document::overlay(&mut root, &environment, &mut problems);
    let problems = ProblemList::new(problems);
    let config = reader::read(root, &problems, Config::read);
    let config = Config { warnings: problems.take_warnings(), ..config };
    let visited = problems.visited();
    (problems.into_result(config), visited)
}

pub(super) fn without_live(mut file: ConfigTable) -> ConfigTable {
    for section in LiveSection::VARIANTS {
        if section.live_keys().is_empty() {
            file.remove(section.name());
        } else if let Some(ConfigValue::Table(table)) =
            file.get_mut(section.name()).map(|entry| &mut entry.node.value)
        {
            table.retain(|key, _| !section.is_live(key));
        }
    }
    file
}

/// A live document over the rest of the file; refused if it contains settings that are not live.
pub(super) fn live_over(rest: &ConfigTable, document: ConfigTable) -> Result<ConfigTable, ConfigError> {
    let mut root = rest.clone();
    let problems = ProblemList::default();
    for (section, entry) in document.into_iter().take_while(|_| !problems.is_full()) {
        let Some(live) = LiveSection::named(&section) else {
            problems.push(foreign(&entry, section));
            continue;
        };
        let TableEntry { key, node: ValueNode { value, place } } = entry;
        let value = match value {
            ConfigValue::Table(table) if !live.live_keys().is_empty() => table,
            value => {
                root.insert(section, TableEntry { key, node: ValueNode { value, place } });
                continue;
            }
        };
        let fresh = ValueNode { value: ConfigValue::Table(ConfigTable::new()), place };
        let fresh = TableEntry { key, node: fresh };
        let ConfigValue::Table(into) = &mut root.entry(section.clone()).or_insert(fresh).node.value else {
            continue;
        };
        for (key, inner) in value.into_iter().take_while(|_| !problems.is_full()) {
            if live.is_live(&key) {
                into.insert(key, inner);
            } else {
                problems.push(foreign(&inner, format!("{section}.{key}")));
            }
        }
    }
    problems.into_result(root)
}

fn foreign(entry: &TableEntry, field: String) -> ConfigProblem {
    let reason =
        format!("is not live; set it in the configuration file. Allowed here: {}", live_names().join(", "));
    ConfigProblem { place: entry.key.clone(), field, reason }
}

/// The live settings as an owner writes them: `[limits]`, `captcha.ttl`.
pub(super) fn live_names() -> Vec<String> {
    let names = |section: &LiveSection| match section.live_keys() {
        [] => vec![format!("[{}]", section.name())],
        keys => keys.iter().map(|key| format!("{}.{key}", section.name())).collect(),
    };
    LiveSection::VARIANTS.iter().flat_map(names).collect()
}

/// The live part of a configuration file, with its comments, with which an empty backend is filled.
pub(super) fn live_part_of(file: &str) -> String {
    let Ok(mut document) = file.parse::<DocumentMut>() else { return String::new() };
    document.retain(|section, item| match LiveSection::named(section) {
        None => false,
        Some(section) if section.live_keys().is_empty() => true,
        Some(section) => item.as_table_like_mut().is_some_and(|table| {
            let keys = table.iter().map(|(key, _)| key.to_owned());
            let gone: Vec<String> = keys.filter(|key| !section.is_live(key)).collect();
            for key in gone {
                table.remove(&key);
            }
            !table.is_empty()
        }),
    });
    let text = document.to_string();
    match text.trim_start_matches('\n') {
        "" => NOTHING_SET.to_owned(),
        text => text.to_owned(),
    }
}

/// A document that sets nothing: an empty one may be one that is being written.
pub(super) const NOTHING_SET: &str = "# Nothing is set here: every setting has its default.\n";
