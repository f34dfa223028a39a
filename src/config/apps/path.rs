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
    /// Servers differ in what they make of it: escapes, dot segments, empty segments, parameters, backslashes, and
    /// short names as Windows makes them (`ADMINI~1`).
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
    // Windows drops dots at the end of a name, and what follows a colon (`::$INDEX_ALLOCATION` is the folder itself).
    let dots = |segment: &str| {
        let name = segment.split(':').next().unwrap_or_default();
        !segment.is_empty() && name.bytes().all(|byte| byte == b'.')
    };
    let short_name = |name: &[u8]| name[0] != b'/' && name[1] == b'~' && name[2].is_ascii_digit();
    path.starts_with('/')
        && path.bytes().all(|byte| byte.is_ascii_graphic() && !b"%\\;#\"<>^`{|}".contains(&byte))
        && !path.contains("//")
        && !path.split('/').any(dots)
        && !path.as_bytes().windows(3).any(short_name)
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
    /// more or less at its end, with what Windows drops at the end of a name, or if it is odd. For what closes.
    pub fn may_cover(&self, asked: AskedPath<'_>) -> bool {
        let AskedPath::Plain(path) = asked else { return true };
        let mut asked = path.trim_end_matches('/').split('/');
        let mut own = self.path.trim_end_matches('/').split('/');
        own.all(|own| asked.next().is_some_and(|asked| may_name(own, asked)))
            && (self.below || asked.next().is_none())
    }
}

/// Whether some server might take one name in a path for another: `admin.` and `ADMIN::$DATA` for `admin`.
fn may_name(own: &str, asked: &str) -> bool {
    let own = own.trim_end_matches('.');
    let Some((begin, rest)) = asked.as_bytes().split_at_checked(own.len()) else { return false };
    let first = rest.iter().find(|byte| **byte != b'.');
    begin.eq_ignore_ascii_case(own.as_bytes()) && first.is_none_or(|byte| *byte == b':')
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
