//! Where the configuration is read from: a file that must exist or may be missing, and variables.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::backend::{BackendRead, LARGEST};
use super::document::{self, ConfigTable};
use super::environment::{self, Environment};
use super::error::ConfigError;
use super::living;
use super::reader::{self, ProblemList};
use super::renamed;
use super::settings::Config;

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
        let rest = living::rest(self.tree(file)?);
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
            Some(rest) => living::over(rest, document),
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
    environment::overlay(&mut root, environment, &mut problems);
    let warnings = renamed::apply(&mut root, &mut problems);
    let problems = ProblemList::new(problems);
    let config = Config { warnings, ..reader::read(root, &problems, Config::read) };
    let visited = problems.visited();
    (problems.into_result(config), visited)
}
