//! Where the configuration is read from: a file that must be there or may be missing, and variables.

use std::fmt;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::document::{self, Table};
use super::environment::{self, Environment};
use super::error::ConfigError;
use super::home::{Found, HomeKind};
use super::live::LiveHandle;
use super::living;
use super::reader::{self, Problems};
use super::settings::{Config, Settings};
use crate::files::open_regular;

/// Read where no file is named; missing, it stands for the defaults.
pub const DEFAULT_FILE: &str = "gatehouse.toml";

/// Far beyond any real one: a wrong path (a log, a device) must not fill the memory.
pub(super) const LARGEST: u64 = 1024 * 1024;

#[derive(Debug, Clone)]
pub struct Source {
    path: PathBuf,
    must_exist: bool,
    environment: Environment,
    /// Where the document is not the file itself but what is live of it: the rest of the file.
    beneath: Option<Arc<Table>>,
}

/// A configuration that was read without a fault.
#[derive(Debug)]
pub struct Loaded {
    pub settings: Settings,
    pub live: LiveHandle,
}

/// Names a file's content: instances that show the same one have read the same bytes.
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

impl Source {
    /// The file named, which must be there, or else [`DEFAULT_FILE`], which need not.
    pub fn new(file: Option<&Path>, environment: Environment) -> Self {
        match file {
            Some(path) => Self { path: path.to_owned(), must_exist: true, environment, beneath: None },
            None => Self::optional(Path::new(DEFAULT_FILE), environment),
        }
    }

    /// A file that stands for the defaults while it is not there.
    pub fn optional(path: &Path, environment: Environment) -> Self {
        Self { path: path.to_owned(), must_exist: false, environment, beneath: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn environment(&self) -> &[(String, String)] {
        &self.environment
    }

    /// Reads everything, or says everything that is wrong with it.
    pub fn load(&self) -> Result<Loaded, ConfigError> {
        let judged = self.interpret(&find(&self.path))?;
        let settings = judged.config.settings.clone();
        let live = match settings.home.home {
            HomeKind::Fixed | HomeKind::File => LiveHandle::new(judged, self.clone(), HomeKind::File),
            kind @ (HomeKind::Redis | HomeKind::Nacos) => {
                let source = self.over_the_rest(settings.home.place(), &judged.document)?;
                // Until the home was read once, what the file says is in force.
                let seed = Found::Bytes(living::seed(&judged.document).into_bytes());
                LiveHandle::new(source.interpret(&seed)?, source, kind)
            }
        };
        Ok(Loaded { settings, live })
    }

    /// For a home that holds what is live alone: its documents stand over the rest of this file.
    fn over_the_rest(&self, path: PathBuf, file: &str) -> Result<Self, ConfigError> {
        let rest = living::rest(self.tree(file)?);
        Ok(Self {
            path,
            must_exist: true,
            environment: self.environment.clone(),
            beneath: Some(Arc::new(rest)),
        })
    }

    pub(super) fn interpret(&self, found: &Found) -> Result<Judged, ConfigError> {
        let whole = |reason: &str| ConfigError::whole_file(&self.path, reason);
        let bytes: &[u8] = match found {
            Found::Bytes(bytes) if bytes.len() as u64 > LARGEST => {
                return Err(whole("is longer than 1 MiB, and cannot be a configuration"));
            }
            Found::Bytes(bytes) => bytes,
            Found::Missing if self.must_exist => return Err(whole("there is no such file")),
            Found::Missing => &[],
            Found::Unreadable(reason) | Found::Down(reason) => {
                return Err(whole(&format!("cannot be read: {reason}")));
            }
        };
        let text = document::text(&self.path, bytes)?;
        let config = self.read(self.tree(text)?)?;
        Ok(Judged { config, fingerprint: Fingerprint::of(bytes), document: Arc::from(text) })
    }

    /// The document as a tree, without the variables.
    pub(super) fn tree(&self, text: &str) -> Result<Table, ConfigError> {
        let document = document::parse(&self.path, text)?;
        match &self.beneath {
            None => Ok(document),
            Some(rest) => living::over(rest, document),
        }
    }

    /// What a tree says, with the variables over it.
    pub(super) fn read(&self, root: Table) -> Result<Config, ConfigError> {
        read(root, &self.environment)
    }
}

/// A document that was read without a fault.
pub(super) struct Judged {
    pub config: Config,
    pub fingerprint: Fingerprint,
    pub document: Arc<str>,
}

/// What stands at a path.
pub(super) fn find(path: &Path) -> Found {
    let read = open_regular(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    match read {
        Ok(bytes) => Found::Bytes(bytes),
        Err(reason) if reason.kind() == ErrorKind::NotFound => Found::Missing,
        Err(reason) => Found::Unreadable(reason.to_string()),
    }
}

/// A document with the variables over it; `path` is what its problems are told with.
pub fn parse(path: &Path, text: &str, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    read(document::parse(path, text)?, environment)
}

pub(super) fn read(mut root: Table, environment: &[(String, String)]) -> Result<Config, ConfigError> {
    let mut problems = Vec::new();
    environment::overlay(&mut root, environment, &mut problems);
    let problems = Problems::new(problems);
    let config = reader::read(root, &problems, Config::read);
    let problems = problems.into_inner();
    if problems.is_empty() { Ok(config) } else { Err(ConfigError::new(problems)) }
}

/// `gatehouse check-config`: whether a server would start from this source.
pub fn check(source: &Source) -> Result<(), ConfigError> {
    source.load().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(source: &Source) -> String {
        check(source).expect_err("a refusal").to_string()
    }

    #[test]
    fn a_named_file_must_be_there_and_the_default_one_need_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let named = Source::new(Some(&path), Vec::new());
        assert_eq!(refusal(&named), format!("{}: there is no such file", path.display()));
        check(&Source::optional(&path, Vec::new())).expect("the defaults");
        assert_eq!(Source::new(None, Vec::new()).path(), Path::new(DEFAULT_FILE));
    }

    #[test]
    fn what_cannot_be_a_configuration_is_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("gatehouse.toml");
        let (source, shown) = (Source::new(Some(&path), Vec::new()), path.display());
        std::fs::write(&path, b"# fine\n# \xff\n").expect("written");
        assert_eq!(refusal(&source), format!("{shown}:2: is not UTF-8"));
        std::fs::write(&path, vec![b'\n'; 1024 * 1024 + 1]).expect("written");
        assert_eq!(refusal(&source), format!("{shown}: is longer than 1 MiB, and cannot be a configuration"));
        let directory = Source::new(Some(folder.path()), Vec::new());
        assert!(refusal(&directory).contains(": cannot be read: "));
    }
}
