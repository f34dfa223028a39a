//! The problems of a configuration, each with its place, its field and what would be right.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The most problems reported for one document. Others can write to stores that keep documents, and every
/// instance logs, shows and stores the problems of theirs.
const MOST_PROBLEMS: usize = 100;
/// The longest field and reason, in letters.
const LONGEST_FIELD: usize = 200;
const LONGEST_REASON: usize = 1000;

/// Every problem found, in the order of the file; environment variables come last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    problems: Vec<ConfigProblem>,
    /// The number of problems that are not listed.
    more: usize,
}

/// One problem. Displayed as `gatehouse.toml:12: limits.login-account.rules[0].max: 0 is out of range; …`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    pub place: ConfigLocation,
    /// The dotted path of the field; empty if it is not a single field.
    pub field: String,
    /// What is wrong, and what would be right. Never contains a value that may be a secret.
    pub reason: String,
}

/// The place of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigLocation {
    /// Lines and columns (in characters) count from 1.
    File { path: Arc<Path>, line: usize, column: usize },
    /// The file as a whole: it is missing, unreadable or too long.
    WholeFile { path: Arc<Path> },
    /// An environment variable, by its name.
    Variable(Arc<str>),
}

impl ConfigError {
    /// Sorted by place. Of several problems with the same field at one place only the first is kept, because
    /// the others follow from it.
    pub(super) fn new(mut problems: Vec<ConfigProblem>) -> Self {
        problems.sort_by_key(|problem| problem.place.order());
        problems.dedup_by(|later, first| later.place == first.place && later.field == first.field);
        let more = problems.len().saturating_sub(MOST_PROBLEMS);
        problems.truncate(MOST_PROBLEMS);
        for ConfigProblem { field, reason, .. } in &mut problems {
            (*field, *reason) = (on_one_line(field, LONGEST_FIELD), on_one_line(reason, LONGEST_REASON));
        }
        Self { problems, more }
    }

    pub(super) fn whole_file(path: &Path, reason: impl Into<String>) -> Self {
        let place = ConfigLocation::WholeFile { path: path.into() };
        Self::new(vec![ConfigProblem { place, field: String::new(), reason: reason.into() }])
    }

    pub fn problems(&self) -> &[ConfigProblem] {
        &self.problems
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

/// One problem per line.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        match self.more {
            0 => Ok(()),
            more => write!(f, "\n… and {more} more"),
        }
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
    fn order(&self) -> (u8, usize, usize) {
        match self {
            Self::WholeFile { .. } => (0, 0, 0),
            Self::File { line, column, .. } => (1, *line, *column),
            Self::Variable(_) => (2, 0, 0),
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
