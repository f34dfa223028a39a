//! Errors of a database: on opening it, and on using it.

use std::path::PathBuf;

use sqlx::migrate::MigrateError;

use super::MIGRATIONS;
use crate::outage::DependencyStatus;

/// A statement failed, or found no connection in time. The database's message is only for the log.
#[derive(Debug, thiserror::Error)]
#[error("database: {0}")]
pub struct DbError(sqlx::Error);

/// The state of the database, from failed statements and probes. A process has one.
pub static OUTAGE: DependencyStatus =
    DependencyStatus::new("the database", "gatehouse_database_up", "gatehouse_database_errors_total", 1);

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        if is_outage(&error) {
            OUTAGE.failed(&error);
        }
        Self(error)
    }
}

/// Whether the database is broken, rather than only refusing this statement.
fn is_outage(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(error) => error.code().unwrap_or_default(),
        sqlx::Error::RowNotFound | sqlx::Error::Decode(_) | sqlx::Error::ColumnDecode { .. } => return false,
        _ => return true,
    };
    // PostgreSQL's codes have five characters, SQLite's are numbers of at most four digits.
    match code.parse::<u32>() {
        // The low byte is the kind: READONLY, IOERR, CORRUPT, FULL, CANTOPEN.
        Ok(number) if code.len() < 5 => [8, 10, 11, 13, 14].contains(&(number & 0xFF)),
        // Connection failure, no resources, operator intervention, system error; read-only standby.
        _ => ["08", "53", "57P", "58", "25006"].iter().any(|class| code.starts_with(class)),
    }
}

/// Why a database cannot be opened. The URL is not included, because it may contain a password.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("database.url: must begin with sqlite: or postgres:")]
    Scheme,
    #[error("database.url: {0}")]
    Url(sqlx::Error),
    #[error("database.url: cannot create {path}: {reason}")]
    File { path: PathBuf, reason: std::io::Error },
    #[error("database.url: cannot connect: {0}")]
    Connect(sqlx::Error),
    #[error("database.url: cannot connect to PostgreSQL at {server}: {reason}")]
    Unreachable { server: String, reason: String },
    #[error(
        "database.url: this database was migrated by a newer Gatehouse (migration {found}; this version knows {known}); run that version, or restore an older backup"
    )]
    Newer { found: i64, known: i64 },
    #[error("database migration: {0}")]
    Migrate(MigrateError),
}

impl From<MigrateError> for ConnectError {
    fn from(error: MigrateError) -> Self {
        let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
        match error {
            MigrateError::VersionMissing(found) if found > known => Self::Newer { found, known },
            other => Self::Migrate(other),
        }
    }
}

impl DbError {
    /// A row with the same key exists already.
    pub fn is_unique_violation(&self) -> bool {
        matches!(&self.0, sqlx::Error::Database(error) if error.is_unique_violation())
    }

    /// Whether the database refused the values, and would again: a value that it cannot store, a row that
    /// violates a constraint.
    pub fn is_about_values(&self) -> bool {
        let code = self.0.as_database_error().and_then(|error| error.code());
        let Some(code) = code else { return false };
        // PostgreSQL: classes 22 (data exception) and 23 (integrity constraint violation), five characters each.
        if code.len() == 5 && (code.starts_with("22") || code.starts_with("23")) {
            return true;
        }
        // SQLite: the low byte is the kind: TOOBIG, CONSTRAINT, MISMATCH.
        code.len() < 5 && code.parse::<u32>().is_ok_and(|code| [18, 19, 20].contains(&(code & 0xFF)))
    }
}
