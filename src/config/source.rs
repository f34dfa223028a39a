//! Where the configuration is read from: a file that must exist or may be missing, and variables.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use toml_edit::DocumentMut;

use super::backend::{BackendRead, LARGEST, WatchWaker};
use super::document::{ConfigTable, ConfigValue, Environment, TableEntry, ValueNode};
use super::error::{ConfigError, ConfigProblem};
use super::live::LiveHandle;
use super::live_backend::BackendKind;
use super::reader::{ProblemList, SectionTable};
use super::sections::{CaptchaTunables, LoginTunables};
use super::settings::{Config, Settings};
use super::sms::SmsTunables;
use super::{backend, document, reader};

/// Read if no file is given; if it is missing, the defaults apply.
pub const DEFAULT_FILE: &str = "gatehouse.toml";

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
        Ok(Self {
            path,
            must_exist: true,
            environment: self.environment.clone(),
            beneath: Some(Arc::new(rest)),
        })
    }

    pub(super) fn interpret(&self, found: &BackendRead) -> Result<CheckedDocument, ConfigError> {
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
        let text = document::text(&self.path, bytes)?;
        let config = self.read(self.tree(text)?)?;
        Ok(CheckedDocument { config, fingerprint: Fingerprint::of(bytes), document: Arc::from(text) })
    }

    /// The document as a tree, without the variables.
    pub(super) fn tree(&self, text: &str) -> Result<ConfigTable, ConfigError> {
        let document = document::parse(&self.path, text)?;
        match &self.beneath {
            None => Ok(document),
            Some(rest) => live_over(rest, document),
        }
    }

    /// The configuration in a tree, with the variables over it.
    pub(super) fn read(&self, root: ConfigTable) -> Result<Config, ConfigError> {
        read(root, &self.environment)
    }
}

/// A valid document.
pub(super) struct CheckedDocument {
    pub config: Config,
    pub fingerprint: Fingerprint,
    pub document: Arc<str>,
}

/// A document with the variables over it; `path` names it in problems.
pub fn parse(path: &Path, text: &str, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    read(document::parse(path, text)?, environment)
}

/// How many entries of lists and tables are visited to read a document: for tests that bound its work.
pub fn visited(path: &Path, text: &str) -> usize {
    document::parse(path, text).map_or(0, |root| read_counting(root, &[]).1)
}

pub(super) fn read(root: ConfigTable, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    read_counting(root, environment).0
}

fn read_counting(
    mut root: ConfigTable,
    environment: &[(String, String)],
) -> (Result<Config, ConfigError>, usize) {
    let mut problems = Vec::new();
    document::overlay(&mut root, environment, &mut problems);
    let warnings = document::rename_former_keys(&mut root, &mut problems);
    let problems = ProblemList::new(problems);
    let config = Config { warnings, ..reader::read(root, &problems, Config::read) };
    let visited = problems.visited();
    (problems.into_result(config), visited)
}

/// A valid configuration.
#[derive(Debug)]
pub struct LoadedConfig {
    pub warnings: Vec<ConfigProblem>,
    pub settings: Settings,
    pub live: LiveHandle,
}

impl ConfigSource {
    /// Reads everything, or returns everything that is wrong with it.
    pub fn load(&self) -> Result<LoadedConfig, ConfigError> {
        let judged = self.interpret(&backend::find(self.path()))?;
        let settings = judged.config.settings.clone();
        let warnings = judged.config.warnings.clone();
        let live = match settings.backend.backend {
            BackendKind::Fixed | BackendKind::File => {
                LiveHandle::new(judged, self.clone(), BackendKind::File)
            }
            kind @ (BackendKind::Redis | BackendKind::Nacos) => {
                let source = self.over_the_rest(settings.backend.place(), &judged.document)?;
                // Until the backend was read once, the file applies.
                let seed = BackendRead::Bytes(live_part_of(&judged.document).into_bytes());
                LiveHandle::new(source.interpret(&seed)?, source, kind)
            }
        };
        Ok(LoadedConfig { warnings, settings, live })
    }
}

/// `gatehouse check-config`: whether a server would start from this source.
pub fn check(source: &ConfigSource) -> Result<(), ConfigError> {
    source.load().map(drop)
}

/// The result of reading the backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReloadResult {
    /// Its document is what [`LoadedConfig::live`] holds now.
    Followed,
    /// There is none yet: the first server writes the live part of the file there.
    Empty,
    Refused(ConfigError),
    Down(String),
}

impl LoadedConfig {
    /// Reads the backend of the limits once, for commands that run no server: applies its document, and
    /// writes nothing there.
    pub fn read_once(&self) -> ReloadResult {
        let found = match self.live.backend() {
            BackendKind::Fixed | BackendKind::File => return ReloadResult::Followed,
            BackendKind::Redis | BackendKind::Nacos => {
                match backend::service(&self.settings, &WatchWaker::noop()) {
                    Some(mut backend) => backend.read(None),
                    None => return ReloadResult::Followed,
                }
            }
        };
        match found {
            BackendRead::Missing => ReloadResult::Empty,
            BackendRead::Down(reason) => ReloadResult::Down(reason),
            found => match self.live.source().interpret(&found) {
                Ok(judged) => {
                    self.live.replace(judged.config.live, judged.fingerprint, judged.document);
                    ReloadResult::Followed
                }
                Err(error) => ReloadResult::Refused(error),
            },
        }
    }
}

/// Sections with their live keys; all keys if none are listed.
pub(super) const LIVE: [(&str, &[&str]); 6] = [
    ("limits", &[]),
    ("access", &[]),
    ("apps", &[]),
    (LoginTunables::NAME, &[]),
    (CaptchaTunables::NAME, CaptchaTunables::KEYS),
    (SmsTunables::NAME, SmsTunables::KEYS),
];

fn live_keys(section: &str) -> Option<&'static [&'static str]> {
    LIVE.iter().find(|(name, _)| *name == section).map(|(_, keys)| *keys)
}

/// The file without its live part.
pub(super) fn without_live(mut file: ConfigTable) -> ConfigTable {
    for (section, keys) in LIVE {
        if keys.is_empty() {
            file.remove(section);
        } else if let Some(TableEntry { node: ValueNode { value: ConfigValue::Table(table), .. }, .. }) =
            file.get_mut(section)
        {
            table.retain(|key, _| !keys.contains(&key.as_str()));
        }
    }
    file
}

/// A live document over the rest of the file; refused if it contains settings that are not live.
pub(super) fn live_over(rest: &ConfigTable, document: ConfigTable) -> Result<ConfigTable, ConfigError> {
    let mut root = rest.clone();
    let problems = ProblemList::default();
    for (section, entry) in document.into_iter().take_while(|_| !problems.is_full()) {
        let Some(keys) = live_keys(&section) else {
            problems.push(foreign(&entry, section));
            continue;
        };
        let value = match entry.node.value {
            ConfigValue::Table(table) if !keys.is_empty() => table,
            value => {
                root.insert(section, TableEntry { node: ValueNode { value, ..entry.node }, ..entry });
                continue;
            }
        };
        let place = entry.node.place.clone();
        let fresh = TableEntry {
            key: entry.key,
            node: ValueNode { value: ConfigValue::Table(ConfigTable::new()), place },
        };
        let ConfigValue::Table(into) = &mut root.entry(section.clone()).or_insert(fresh).node.value else {
            continue;
        };
        for (key, inner) in value.into_iter().take_while(|_| !problems.is_full()) {
            if keys.contains(&key.as_str()) {
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
    let names = LIVE.iter().flat_map(|(section, keys)| {
        let whole = keys.is_empty().then(|| format!("[{section}]"));
        whole.into_iter().chain(keys.iter().map(move |key| format!("{section}.{key}")))
    });
    names.collect()
}

/// The live part of a configuration file, with its comments, with which an empty backend is filled.
pub(super) fn live_part_of(file: &str) -> String {
    let Ok(mut document) = file.parse::<DocumentMut>() else { return String::new() };
    document.retain(|section, item| match live_keys(section) {
        None => false,
        Some([]) => true,
        Some(keys) => item.as_table_like_mut().is_some_and(|table| {
            let gone: Vec<String> = table
                .iter()
                .map(|(key, _)| key.to_owned())
                .filter(|key| !keys.contains(&key.as_str()))
                .collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_FILE;

    fn refusal(source: &ConfigSource) -> String {
        check(source).expect_err("a refusal").to_string()
    }

    #[test]
    fn a_named_file_must_be_there_and_the_default_one_need_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let named = ConfigSource::new(Some(&path), Vec::new());
        assert_eq!(refusal(&named), format!("{}: there is no such file", path.display()));
        check(&ConfigSource::optional(&path, Vec::new())).expect("the defaults");
        assert_eq!(ConfigSource::new(None, Vec::new()).path(), Path::new(DEFAULT_FILE));
    }

    #[test]
    fn what_cannot_be_a_configuration_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let (source, shown) = (ConfigSource::new(Some(&path), Vec::new()), path.display());
        std::fs::write(&path, b"# fine\n# \xff\n").expect("written");
        assert_eq!(refusal(&source), format!("{shown}:2: is not UTF-8"));
        std::fs::write(&path, vec![b'\n'; 1024 * 1024 + 1]).expect("written");
        assert_eq!(
            refusal(&source),
            format!("{shown}: is longer than 1 MiB, the most a configuration can have")
        );
        let directory = ConfigSource::new(Some(folder.path()), Vec::new());
        assert!(refusal(&directory).contains(": cannot be read: "));
    }
}
