//! The problems of a configuration, each with its place, its field and what would be right.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The most problems reported for one document; reading stops there. Others can write to stores that keep documents,
/// and every instance logs, shows and stores the problems of theirs.
pub(super) const MOST_PROBLEMS: usize = 100;
/// The longest field and reason, in letters.
const LONGEST_FIELD: usize = 200;
const LONGEST_REASON: usize = 1000;

/// Every problem found, in the order of the file; environment variables come last. If reading stopped before its end,
/// the last one says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError(Vec<ConfigProblem>);

/// One problem. Displayed as `gatehouse.toml:12: limits.login-account.rules[0].max: 0 is out of range; …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub place: ConfigLocation,
    /// The dotted path of the field; empty if it is not a single field.
    pub field: String,
    /// What is wrong, and what would be right. Never contains a value that may be a secret.
    pub reason: String,
}

/// Collects problems while the rest is read. Once it has more than are reported, reading stops.
#[derive(Default)]
pub(super) struct ProblemList {
    problems: RefCell<Vec<ConfigProblem>>,
    /// What keeps a document from nothing, and a draft from being saved.
    warnings: RefCell<Vec<ConfigProblem>>,
    /// Entries of lists and tables, until it was full.
    visited: Cell<usize>,
}

impl ProblemList {
    pub const fn new(problems: Vec<ConfigProblem>) -> Self {
        let warnings = RefCell::new(Vec::new());
        Self { problems: RefCell::new(problems), warnings, visited: Cell::new(0) }
    }

    pub fn push(&self, problem: ConfigProblem) {
        if !self.is_full() {
            self.problems.borrow_mut().push(problem);
        }
    }

    pub fn warn(&self, problem: ConfigProblem) {
        self.warnings.borrow_mut().push(problem);
    }

    pub fn take_warnings(&self) -> Vec<ConfigProblem> {
        self.warnings.take()
    }

    pub fn is_full(&self) -> bool {
        self.count() > MOST_PROBLEMS
    }

    pub fn count(&self) -> usize {
        self.problems.borrow().len()
    }

    pub fn visit(&self) {
        self.visited.set(self.visited.get() + 1);
    }

    pub const fn visited(&self) -> usize {
        self.visited.get()
    }

    pub fn into_result<T>(self, read: T) -> Result<T, ConfigError> {
        match self.problems.into_inner() {
            problems if problems.is_empty() => Ok(read),
            problems => Err(ConfigError::new(problems)),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigLocation {
    /// Lines count from 1; the offset is that of a byte, from 0.
    File {
        path: Arc<Path>,
        line: usize,
        offset: usize,
    },
    /// The file as a whole: it is missing, unreadable or too long.
    WholeFile {
        path: Arc<Path>,
    },
    Variable(Arc<str>),
}

impl ConfigError {
    /// Sorted by place. Of several problems with the same field at one place only the first is kept, because
    /// the others follow from it.
    pub(super) fn new(mut problems: Vec<ConfigProblem>) -> Self {
        let stopped = problems.len() > MOST_PROBLEMS;
        problems.sort_by_key(|problem| problem.place.order());
        problems.dedup_by(|later, first| later.place == first.place && later.field == first.field);
        if stopped && let Some(ConfigProblem { place, .. }) = problems.last().cloned() {
            let reason = "there are more mistakes than these; correct these first".to_owned();
            problems.truncate(MOST_PROBLEMS - 1);
            problems.push(ConfigProblem { place, field: String::new(), reason });
        }
        for ConfigProblem { field, reason, .. } in &mut problems {
            (*field, *reason) = (on_one_line(field, LONGEST_FIELD), on_one_line(reason, LONGEST_REASON));
        }
        Self(problems)
    }

    pub(super) fn whole_file(path: &Path, reason: impl Into<String>) -> Self {
        let place = ConfigLocation::WholeFile { path: path.into() };
        Self::new(vec![ConfigProblem { place, field: String::new(), reason: reason.into() }])
    }

    pub fn problems(&self) -> &[ConfigProblem] {
        &self.0
    }
}

/// A key of the document may contain anything: other characters could forge a log line, or could not be
/// stored in PostgreSQL.
fn on_one_line(text: &str, most: usize) -> String {
    let letter = |letter: char| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter };
    let cut = text.char_indices().nth(most).map(|(end, _)| &text[..end]);
    let mut line: String = cut.unwrap_or(text).chars().map(letter).collect();
    if cut.is_some() {
        line.push('…');
    }
    line
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, field, reason } = self;
        if field.is_empty() {
            write!(f, "{place}: {reason}")
        } else {
            write!(f, "{place}: {field}: {reason}")
        }
    }
}

impl ConfigLocation {
    fn order(&self) -> (u8, usize) {
        match self {
            Self::WholeFile { .. } => (0, 0),
            Self::File { offset, .. } => (1, *offset),
            Self::Variable(_) => (2, 0),
        }
    }
}

impl fmt::Display for ConfigLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, .. } => write!(f, "{}:{line}", path.display()),
            Self::WholeFile { path } => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
        }
    }
}
