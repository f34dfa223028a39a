//! `[database]`: where accounts, sessions and the ledger are stored.

use std::fmt;
use std::path::PathBuf;

use url::Url;

use super::document::ValueNode;
use super::reader::ParseResult;
use super::section::section;
use super::values::{text, without_password};

section! {
    Database in "database" {
        url: DatabaseUrl = DatabaseUrl::default(), database_url;
    }
}

#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    Sqlite(SqliteFile),
    Postgres(Url),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SqliteFile {
    /// Created, with its folder, if it is missing.
    Path(PathBuf),
    /// Lost when the process ends.
    Memory,
}

impl Default for DatabaseUrl {
    fn default() -> Self {
        Self::Sqlite(SqliteFile::Path("data/gatehouse.db".into()))
    }
}

/// Without the password, so that a debug line does not reveal it.
impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(SqliteFile::Path(path)) => write!(f, "sqlite://{}", path.display()),
            Self::Sqlite(SqliteFile::Memory) => f.write_str("sqlite::memory:"),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

fn database_url(node: ValueNode) -> ParseResult<DatabaseUrl> {
    let text = text(node)?;
    if let Some(rest) = text.strip_prefix("sqlite:") {
        return sqlite_file(rest.strip_prefix("//").unwrap_or(rest)).map(DatabaseUrl::Sqlite);
    }
    match text.split_once(':') {
        Some(("postgres" | "postgresql", _)) => Url::parse(&text)
            .map(DatabaseUrl::Postgres)
            .map_err(|wrong| format!("is not a URL ({wrong}); write it as \"postgres://user@host/name\"")),
        Some((scheme, _)) => Err(format!("has the scheme {scheme:?}; it must be sqlite or postgres")),
        None => {
            Err("is not a URL; write it as \"sqlite://data/gatehouse.db\" or \"postgres://user@host/name\""
                .to_owned())
        }
    }
}

fn sqlite_file(rest: &str) -> ParseResult<SqliteFile> {
    match rest {
        ":memory:" => Ok(SqliteFile::Memory),
        "" => Err("names no file; write it as \"sqlite://data/gatehouse.db\"".to_owned()),
        _ if rest.contains('?') => {
            Err("has options after `?`; remove them, Gatehouse sets its own".to_owned())
        }
        path => Ok(SqliteFile::Path(path.into())),
    }
}
