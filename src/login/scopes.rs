//! The custom limits that a token is valid for.

use std::collections::BTreeSet;
use std::fmt;

use crate::config::is_custom_name;

/// The most limits that one token names; for more, use `*`.
pub const MOST_SCOPES: usize = 64;

/// Names of custom limits as in `[limits.custom]`, or all of them. A limit need not exist yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenScopes {
    All,
    Named(BTreeSet<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ScopesError {
    #[error("names no limit")]
    Empty,
    #[error("names more than {MOST_SCOPES} limits")]
    TooMany,
    #[error("contains something that is not the name of a custom limit")]
    NoName,
}

impl TokenScopes {
    /// `*` alone means all of them.
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, ScopesError> {
        let names: BTreeSet<&str> = names.into_iter().collect();
        if names.is_empty() {
            return Err(ScopesError::Empty);
        }
        if names.len() == 1 && names.contains("*") {
            return Ok(Self::All);
        }
        if names.len() > MOST_SCOPES {
            return Err(ScopesError::TooMany);
        }
        if !names.iter().all(|name| is_custom_name(name)) {
            return Err(ScopesError::NoName);
        }
        Ok(Self::Named(names.into_iter().map(str::to_owned).collect()))
    }

    pub fn hold(&self, limit: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(limit),
        }
    }

    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::All => vec!["*"],
            Self::Named(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// The stored form: separated by spaces.
impl fmt::Display for TokenScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_are_names_of_custom_limits_or_all_of_them() {
        let parse = |text: &str| TokenScopes::parse(text.split_whitespace());
        let two = parse("reply  leave-campus reply").unwrap();
        assert_eq!(two.to_string(), "leave-campus reply");
        assert!(two.hold("reply") && !two.hold("custom.reply") && !two.hold("*"));
        assert!(parse("*").unwrap().hold("reply"));
        assert_eq!(parse(""), Err(ScopesError::Empty));
        for text in ["* reply", "Reply", "custom.reply", "a,b", "reply é"] {
            assert_eq!(parse(text), Err(ScopesError::NoName), "{text}");
        }
        let many = |count: usize| (0..count).map(|n| format!("l{n}")).collect::<Vec<_>>().join(" ");
        assert!(parse(&many(64)).is_ok());
        assert_eq!(parse(&many(65)), Err(ScopesError::TooMany));
    }
}
