//! Imported accounts in the database: all of a file or none, and the dearest of their passwords.

use std::collections::HashMap;

use sqlx::{AssertSqlSafe, query, query_as, query_scalar};

use super::Accounts;
use crate::db::{DbError, DbLock, Tx, on_db, on_tx};
use crate::login::hash_function::HashCost;
use crate::login::import::ImportRow;
use crate::login::{AccountId, Phc};
use crate::sms::Phone;

/// Rows of one statement. Both databases take 32,766 parameters.
const BATCH: usize = 100;
const COLUMNS: usize = 6;
/// How often the import starts anew when names are registered while it runs.
const TRIES: usize = 3;

/// What became of an import.
#[derive(Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// Every account was created, or would have been.
    Done,
    /// Some cannot be, so none was. By the position of their rows.
    Refused(Vec<(usize, ImportConflict)>),
    /// None was created: names or numbers were taken again and again while they were being written.
    Raced,
}

/// Why an account cannot be created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportConflict {
    LoginTaken,
    /// By an account that was deleted.
    LoginDeleted,
    PhoneTaken,
}

const DEAREST_TIME: &str = "SELECT substr(password_hash, 10, 5) FROM accounts
    WHERE substr(password_hash, 1, 9) = 'imported$' ORDER BY substr(password_hash, 10, 5) DESC LIMIT 1";
const DEAREST_MEMORY: &str = "SELECT substr(password_hash, 16, 4) FROM accounts
    WHERE substr(password_hash, 1, 9) = 'imported$' ORDER BY substr(password_hash, 16, 4) DESC LIMIT 1";
const REMAINING: &str = "SELECT COUNT(*) FROM accounts WHERE substr(password_hash, 1, 9) = 'imported$'";

impl Accounts {
    /// Creates the accounts in one transaction; with `dry_run`, only says whether it could.
    pub async fn import(&self, rows: &[ImportRow], dry_run: bool) -> Result<ImportOutcome, DbError> {
        for _ in 0..TRIES {
            let mut tx = self.db.begin_exclusive(DbLock::on("accounts.import")).await?;
            let conflicts = conflicts(&mut tx, rows).await?;
            if !conflicts.is_empty() {
                return Ok(ImportOutcome::Refused(conflicts));
            }
            if dry_run {
                return Ok(ImportOutcome::Done);
            }
            if self.insert_all(&mut tx, rows).await? == rows.len() as u64 {
                tx.commit().await?;
                return Ok(ImportOutcome::Done);
            }
            // Somebody has registered one of the names since; the next try says which.
        }
        Ok(ImportOutcome::Raced)
    }

    /// Returns how many rows were inserted.
    async fn insert_all(&self, tx: &mut Tx, rows: &[ImportRow]) -> Result<u64, DbError> {
        // By the clock that messages are counted by, because the two are compared.
        let (created, since) = (self.clock.now(), tx.now(&self.clock).await?);
        let mut inserted = 0;
        for batch in rows.chunks(BATCH) {
            let values: Vec<_> = (0..batch.len()).map(|row| placeholders(row * COLUMNS, COLUMNS)).collect();
            // It must not fail on a key, because PostgreSQL would log the row.
            let sql = format!(
                "INSERT INTO accounts (id, login, password_hash, created_at, phone, phone_since)
                VALUES {} ON CONFLICT DO NOTHING",
                values.join(", ")
            );
            inserted += on_tx!(&mut *tx, connection => {
                let mut insert = query(AssertSqlSafe(sql));
                for ImportRow { login, password_hash, phone, .. } in batch {
                    insert = insert
                        .bind(AccountId::random(&self.entropy).to_string())
                        .bind(login.as_str())
                        .bind(password_hash.as_ref().map(Phc::as_str))
                        .bind(created.0)
                        .bind(phone.as_ref().map(Phone::as_str))
                        .bind(phone.as_ref().map(|_| since.0));
                }
                insert.execute(connection).await.map(|done| done.rows_affected())
            })?;
        }
        Ok(inserted)
    }

    /// The dearest imported password that is not replaced yet: the longest time, and the most memory. None if there is
    /// none. Reads two entries of indexes.
    pub async fn dearest_imported(&self) -> Result<Option<HashCost>, DbError> {
        let read = async |sql: &'static str| -> Result<Option<u32>, DbError> {
            let digits: Option<String> =
                on_db!(&self.db, pool => query_scalar(sql).fetch_optional(pool).await)?;
            // Digits that somebody has edited count as the most.
            Ok(digits.map(|digits| digits.parse().unwrap_or(u32::MAX)))
        };
        let (millis, memory_mib) = (read(DEAREST_TIME).await?, read(DEAREST_MEMORY).await?);
        Ok(millis.zip(memory_mib).map(|(millis, memory_mib)| HashCost { millis, memory_mib }))
    }

    /// How many imported passwords are not replaced yet.
    pub async fn count_imported(&self) -> Result<u64, DbError> {
        let count: i64 = on_db!(&self.db, pool => query_scalar(REMAINING).fetch_one(pool).await)?;
        Ok(count.unsigned_abs())
    }
}

/// `($1, $2, …)`, after so many others.
fn placeholders(after: usize, count: usize) -> String {
    let all: Vec<_> = (after + 1..=after + count).map(|number| format!("${number}")).collect();
    format!("({})", all.join(", "))
}

/// The rows whose name or number is taken, in their order.
async fn conflicts(tx: &mut Tx, rows: &[ImportRow]) -> Result<Vec<(usize, ImportConflict)>, DbError> {
    let logins: HashMap<&str, usize> =
        rows.iter().enumerate().map(|(row, account)| (account.login.as_str(), row)).collect();
    let phones: HashMap<&str, usize> = rows
        .iter()
        .enumerate()
        .filter_map(|(row, account)| Some((account.phone.as_ref()?.as_str(), row)))
        .collect();
    let mut found: Vec<_> = taken(tx, "login", &logins)
        .await?
        .into_iter()
        .map(|(row, deleted)| match deleted {
            true => (row, ImportConflict::LoginDeleted),
            false => (row, ImportConflict::LoginTaken),
        })
        .collect();
    found.extend(
        taken(tx, "phone", &phones).await?.into_iter().map(|(row, _)| (row, ImportConflict::PhoneTaken)),
    );
    found.sort_unstable_by_key(|(row, _)| *row);
    Ok(found)
}

/// The rows whose value an account has in that column, and whether that account was deleted.
async fn taken(
    tx: &mut Tx,
    column: &'static str,
    rows: &HashMap<&str, usize>,
) -> Result<Vec<(usize, bool)>, DbError> {
    let (values, mut found) = (rows.keys().copied().collect::<Vec<_>>(), Vec::new());
    for batch in values.chunks(BATCH) {
        let sql = format!(
            "SELECT {column}, deleted_at FROM accounts WHERE {column} IN {}",
            placeholders(0, batch.len())
        );
        let there: Vec<(String, Option<i64>)> = on_tx!(&mut *tx, connection => {
            let mut select = query_as(AssertSqlSafe(sql));
            for value in batch {
                select = select.bind(*value);
            }
            select.fetch_all(connection).await
        })?;
        found.extend(
            there.into_iter().filter_map(|(value, deleted)| Some((*rows.get(&*value)?, deleted.is_some()))),
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
