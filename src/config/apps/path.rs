//! Paths of applications: which a pattern covers, and which are too odd to be judged by a pattern.

use std::fmt;

use crate::config::document::ValueNode;
use crate::config::reader::ParseResult;

const LONGEST: usize = 512;

/// `/health` is that path alone, `/static/*` everything below that folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathPattern {
    path: String,
    below: bool,
}

/// The path of a request to an application, without its query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskedPath<'a> {
    /// Servers read it in one way only.
    Plain(&'a str),
    /// Servers differ in what they make of it: escapes, dot segments, empty segments, parameters, backslashes.
    Odd,
}

impl<'a> AskedPath<'a> {
    /// `target` is the path and query of a request, as they were sent.
    pub fn of(target: &'a str) -> Self {
        let path = target.split('?').next().unwrap_or_default();
        if is_plain(path) { Self::Plain(path) } else { Self::Odd }
    }
}

/// Visible ASCII, from a slash on, without anything that is decoded, resolved, collapsed or cut off by some servers.
fn is_plain(path: &str) -> bool {
    let dots = |segment: &str| matches!(segment, "." | "..");
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"%\\;#\"<>^`{|}".contains(&byte))
        && !path.contains("//")
        && !path.split('/').any(dots)
}

impl PathPattern {
    pub fn parse(text: &str) -> Result<Self, String> {
        let (path, below) = match text.strip_suffix("/*") {
            Some(folder) => (format!("{folder}/"), true),
            None => (text.to_owned(), false),
        };
        if path.is_empty() || path.len() > LONGEST || path.contains(['*', '?']) || !is_plain(&path) {
            return Err(format!(
                "{text:?} is not a path; write \"/health\" for one path or \"/static/*\" for all below a folder, without %, \\, ;, //, dot segments or a query"
            ));
        }
        Ok(Self { path, below })
    }

    pub(super) fn read(node: ValueNode) -> ParseResult<Self> {
        Self::parse(&node.text()?)
    }

    /// A path that the pattern covers, and no longer pattern does.
    pub fn example(&self) -> String {
        if self.below { format!("{}{}", self.path, unmatched_segment()) } else { self.path.clone() }
    }

    /// A path that only patterns for everything cover.
    pub fn unmatched_example() -> String {
        format!("/{}", unmatched_segment())
    }

    /// Whether it is certain that the pattern covers the path. For what opens.
    pub fn covers(&self, asked: AskedPath<'_>) -> bool {
        let AskedPath::Plain(path) = asked else { return false };
        if self.below { path.starts_with(&self.path) } else { path == self.path }
    }

    /// Whether some server might take the path for one that the pattern covers: in other letters' case, with a slash
    /// more or less at its end, or if it is odd. For what closes.
    pub fn may_cover(&self, asked: AskedPath<'_>) -> bool {
        let AskedPath::Plain(path) = asked else { return true };
        let (path, own) = (path.trim_end_matches('/'), self.path.trim_end_matches('/'));
        let Some(begin) = path.as_bytes().get(..own.len()) else { return false };
        let rest = &path.as_bytes()[own.len()..];
        begin.eq_ignore_ascii_case(own.as_bytes()) && (rest.is_empty() || (self.below && rest[0] == b'/'))
    }
}

/// Longer than what is in any pattern.
fn unmatched_segment() -> String {
    "x".repeat(LONGEST + 1)
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.path, if self.below { "*" } else { "" })
    }
}
