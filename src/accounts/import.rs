//! Imported accounts in the database: all of a file or none, and the slowest of their passwords.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::Value;
use sqlx::{AssertSqlSafe, query, query_as, query_scalar};
use zeroize::Zeroizing;

use self::exports::Exported;
use super::stored_hash::HashCost;
use super::{AccountId, Accounts, Factors, Phc, Profile, TotpSecret, Username, folded};
use crate::db::{DbError, DbLock, Tx, on_db, on_tx};
use crate::sms::{Phone, PhoneError};

mod exports;

pub use exports::{ExportSource, ExportSystem, FirebaseHashConfig};

/// Rows of one statement. Both databases take 32,766 parameters.
const BATCH: usize = 100;
const COLUMNS: usize = 6;
/// How often the import starts anew when names are registered while it runs.
const TRIES: usize = 3;

#[derive(Debug, PartialEq, Eq)]
pub enum ImportOutcome {
    /// Every account was created, or would have been.
    Done,
    /// Some cannot be, so none was. By the position of their rows.
    Refused(Vec<(usize, ImportConflict)>),
    /// No account was created: names or numbers were taken again and again while they were being written.
    Raced,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportConflict {
    LoginTaken,
    /// The name is that of an account that was deleted.
    LoginDeleted,
    PhoneTaken,
}

const SLOWEST_TIME: &str = "SELECT substr(password_hash, 10, 5) FROM accounts
    WHERE substr(password_hash, 1, 9) = 'imported$' ORDER BY substr(password_hash, 10, 5) DESC LIMIT 1";
const SLOWEST_MEMORY: &str = "SELECT substr(password_hash, 16, 4) FROM accounts
    WHERE substr(password_hash, 1, 9) = 'imported$' ORDER BY substr(password_hash, 16, 4) DESC LIMIT 1";
const REMAINING: &str = "SELECT COUNT(*) FROM accounts WHERE substr(password_hash, 1, 9) = 'imported$'";

impl Accounts {
    /// Creates the accounts in one transaction; with `dry_run`, only says whether it could.
    pub async fn import(
        &self,
        rows: &[ImportRow],
        factors: &Factors,
        dry_run: bool,
    ) -> Result<ImportOutcome, DbError> {
        for _ in 0..TRIES {
            let mut tx = self.db.begin_exclusive(DbLock::on("accounts.import")).await?;
            let conflicts = conflicts(&mut tx, rows).await?;
            if !conflicts.is_empty() {
                return Ok(ImportOutcome::Refused(conflicts));
            }
            if dry_run {
                return Ok(ImportOutcome::Done);
            }
            let ids: Vec<_> = rows.iter().map(|_| AccountId::random(&self.entropy)).collect();
            if self.insert_all(&mut tx, rows, &ids).await? == rows.len() as u64 {
                self.set_up_apps(&mut tx, rows, &ids, factors).await?;
                insert_profiles(&mut tx, rows, &ids).await?;
                tx.commit().await?;
                return Ok(ImportOutcome::Done);
            }
            // Somebody has registered one of the names since; the next try says which.
        }
        Ok(ImportOutcome::Raced)
    }

    /// Returns how many rows were inserted.
    pub(super) async fn insert_all(
        &self,
        tx: &mut Tx,
        rows: &[ImportRow],
        ids: &[AccountId],
    ) -> Result<u64, DbError> {
        // The time is that of the database, by which messages are counted, because the two are compared.
        let (created, since) = (self.clock.now(), tx.now(&self.clock).await?);
        let mut inserted = 0;
        for (batch, ids) in rows.chunks(BATCH).zip(ids.chunks(BATCH)) {
            // It must not fail on a key, because PostgreSQL would log the row.
            let sql = format!(
                "INSERT INTO accounts (id, login, password_hash, created_at, phone, phone_since)
                VALUES {} ON CONFLICT DO NOTHING",
                placeholder_rows(batch.len(), COLUMNS)
            );
            inserted += on_tx!(&mut *tx, connection => {
                let mut insert = query(AssertSqlSafe(sql));
                for (ImportRow { login, password_hash, phone, .. }, id) in batch.iter().zip(ids) {
                    insert = insert
                        .bind(id.to_string())
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

    /// With those that have one: their sign-ins are asked for a second step.
    async fn set_up_apps(
        &self,
        tx: &mut Tx,
        rows: &[ImportRow],
        ids: &[AccountId],
        factors: &Factors,
    ) -> Result<(), DbError> {
        let now = tx.now(&self.clock).await?.0;
        let apps = ids.iter().zip(rows).filter_map(|(id, row)| Some((*id, row.totp.as_ref()?)));
        for batch in apps.collect::<Vec<_>>().chunks(BATCH) {
            let values = |columns| placeholder_rows(batch.len(), columns);
            let sql = format!("INSERT INTO totp (account, secret, confirmed_at) VALUES {}", values(3));
            on_tx!(&mut *tx, connection => {
                let insert = batch.iter().fold(query(AssertSqlSafe(sql)), |insert, (id, secret)| {
                    insert.bind(id.to_string()).bind(factors.sealed(*id, secret)).bind(now)
                });
                insert.execute(connection).await.map(drop)
            })?;
            let sql = format!("INSERT INTO factor_policies (account, required) VALUES {}", values(2));
            on_tx!(&mut *tx, connection => {
                let insert = batch.iter().fold(query(AssertSqlSafe(sql)), |insert, (id, _)| {
                    insert.bind(id.to_string()).bind(now)
                });
                insert.execute(connection).await.map(drop)
            })?;
        }
        Ok(())
    }

    /// The slowest imported password that is not replaced yet: the longest time, and the most memory. None if there is
    /// none. Reads two entries of indexes.
    pub async fn slowest_imported(&self) -> Result<Option<HashCost>, DbError> {
        let read = async |sql: &'static str| -> Result<Option<u32>, DbError> {
            let digits: Option<String> =
                on_db!(&self.db, pool => query_scalar(sql).fetch_optional(pool).await)?;
            // Digits that somebody has edited count as the most.
            Ok(digits.map(|digits| digits.parse().unwrap_or(u32::MAX)))
        };
        let (millis, memory_mib) = (read(SLOWEST_TIME).await?, read(SLOWEST_MEMORY).await?);
        Ok(millis.zip(memory_mib).map(|(millis, memory_mib)| HashCost { millis, memory_mib }))
    }

    /// How many imported passwords are not replaced yet.
    pub async fn count_imported(&self) -> Result<u64, DbError> {
        let count: i64 = on_db!(&self.db, pool => query_scalar(REMAINING).fetch_one(pool).await)?;
        Ok(count.unsigned_abs())
    }
}

/// `($1, $2, …)`, after so many others.
pub(super) fn placeholders(after: usize, count: usize) -> String {
    let all: Vec<_> = (after + 1..=after + count).map(|number| format!("${number}")).collect();
    format!("({})", all.join(", "))
}

fn placeholder_rows(rows: usize, columns: usize) -> String {
    let rows = (0..rows).map(|row| placeholders(row * columns, columns));
    rows.collect::<Vec<_>>().join(", ")
}

pub(super) async fn insert_profiles(
    tx: &mut Tx,
    rows: &[ImportRow],
    ids: &[AccountId],
) -> Result<(), DbError> {
    let profiles = ids.iter().zip(rows).filter(|(_, row)| row.profile != Profile::default());
    for batch in profiles.collect::<Vec<_>>().chunks(BATCH) {
        let sql = format!(
            "INSERT INTO profiles (account, email, email_verified, name) VALUES {}",
            placeholder_rows(batch.len(), 4)
        );
        on_tx!(&mut *tx, connection => {
            let insert = batch.iter().fold(query(AssertSqlSafe(sql)), |insert, (id, row)| {
                insert.bind(id.to_string()).bind(row.profile.email_text())
                    .bind(i64::from(row.profile.email_verified)).bind(row.profile.name_text())
            });
            insert.execute(connection).await.map(drop)
        })?;
    }
    Ok(())
}

/// The rows whose name or number is taken, in their order.
pub(super) async fn conflicts(
    tx: &mut Tx,
    rows: &[ImportRow],
) -> Result<Vec<(usize, ImportConflict)>, DbError> {
    let mut found = Vec::new();
    for (first, batch) in (0..).step_by(BATCH).zip(rows.chunks(BATCH)) {
        // An older version may have stored a name with a final sigma in another spelling.
        let folded: Vec<_> = batch.iter().map(|row| folded(row.login.as_str())).collect();
        let logins: Vec<_> = batch
            .iter()
            .map(|row| row.login.as_str())
            .chain(folded.iter().map(AsRef::as_ref))
            .map(Some)
            .collect();
        let phones = batch.iter().map(|row| row.phone.as_ref().map(Phone::as_str));
        let (logins, phones) =
            (taken(tx, "login", logins.into_iter()).await?, taken(tx, "phone", phones).await?);
        for ((row, ImportRow { login, phone, .. }), folded) in (first..).zip(batch).zip(&folded) {
            match logins.get(login.as_str()).or_else(|| logins.get(&**folded)) {
                Some(true) => found.push((row, ImportConflict::LoginDeleted)),
                Some(false) => found.push((row, ImportConflict::LoginTaken)),
                None => {}
            }
            if phone.as_ref().is_some_and(|phone| phones.contains_key(phone.as_str())) {
                found.push((row, ImportConflict::PhoneTaken));
            }
        }
    }
    Ok(found)
}

/// Returns the values that are taken already, and whether by a deleted account.
async fn taken(
    tx: &mut Tx,
    column: &'static str,
    values: impl ExactSizeIterator<Item = Option<&str>>,
) -> Result<HashMap<String, bool>, DbError> {
    let sql = format!(
        "SELECT {column}, deleted_at FROM accounts WHERE {column} IN {}",
        placeholders(0, values.len())
    );
    let there: Vec<(String, Option<i64>)> = on_tx!(tx, connection => {
        values.fold(query_as(AssertSqlSafe(sql)), |select, value| select.bind(value)).fetch_all(connection).await
    })?;
    Ok(there.into_iter().map(|(value, deleted)| (value, deleted.is_some())).collect())
}

// Reading a file of accounts to import: JSON lines or the export of another system, each account checked as registration
// checks its fields, and every mistake with its line or account.

/// In bytes, several times what the longest fields take.
const LONGEST_LINE: usize = 16 * 1024;
/// They are written in one transaction, which SQLite's other writers wait for at most 5 s.
pub const MOST_ROWS: usize = 100_000;
/// It is read at once.
const LARGEST_EXPORT: u64 = 1 << 30;
/// What to do with what is no file of lines.
const ONE_DOCUMENT: &str = "begins one JSON document, and an account is a line here; name whose export it is with --from keycloak, auth0, firebase or django, or write lines with jq -c '.[]'";
/// Mistakes that are kept; the rest are counted.
const MOST_MISTAKES: usize = 50;
/// How much of what the file says is repeated.
const LONGEST_REASON: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRow {
    /// Or the number of the account, as [`ImportFile::unit`] says.
    pub line: usize,
    pub login: Username,
    pub password_hash: Option<Phc>,
    pub phone: Option<Phone>,
    /// The secret of its authenticator app: it is asked for a second step from the first sign-in.
    pub totp: Option<TotpSecret>,
    pub profile: Profile,
}

/// Something in the file that is wrong. Names no value, so that a log may hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportMistake {
    pub line: usize,
    pub field: &'static str,
    pub reason: String,
}

#[derive(Debug, Default)]
pub struct ImportFile {
    pub rows: Vec<ImportRow>,
    pub mistakes: ImportMistakes,
    /// Numbers that are left out, because the file does not say that they were verified.
    pub unverified: usize,
    /// What rows and mistakes are counted in.
    pub unit: ImportUnit,
    /// What is not taken of an export, by account.
    pub left_out: Vec<(usize, &'static str)>,
    /// The number of addresses of an export that are left out, because nobody verified them.
    pub unverified_emails: usize,
    /// The accounts of an export whose names are addresses that nobody verified.
    pub unproven: HashSet<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum ImportUnit {
    #[default]
    Line,
    /// The first of an export is 1.
    Account,
}

/// The first mistakes of a file, and how many more there are.
#[derive(Debug, Default)]
pub struct ImportMistakes {
    pub first: Vec<ImportMistake>,
    pub more: usize,
}

/// One line; an unknown field is refused.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct ImportLine {
    login: Option<Value>,
    phone: Option<Value>,
    phone_verified: Option<Value>,
    password_hash: Option<Value>,
    totp: Option<Value>,
    email: Option<Value>,
    email_verified: Option<Value>,
    name: Option<Value>,
}

impl ImportFile {
    /// Reads to the end, whatever is wrong, unless it is no file of lines. Lines that are empty are skipped.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(
        mut input: impl BufRead,
        parse_phone: impl Fn(&str) -> Result<Phone, PhoneError>,
    ) -> io::Result<Self> {
        let mut reader = ImportReader::new(ImportUnit::Line, parse_phone);
        if is_document(input.fill_buf()?) {
            reader.line = 1;
            reader.note("line", ONE_DOCUMENT);
            return Ok(reader.file);
        }
        let mut text = Vec::new();
        for line in 1.. {
            reader.line = line;
            match next_line(&mut input, &mut text)? {
                LineRead::End => break,
                LineRead::TooLong => reader.note("line", &format!("is longer than {LONGEST_LINE} bytes")),
                LineRead::Line => reader.take(&text),
            }
            // Lines with mistakes are remembered, too.
            if reader.has_too_many() {
                break;
            }
        }
        Ok(reader.file)
    }

    /// Reads the export of another system.
    ///
    /// # Errors
    /// If it cannot be read, or is larger than 1 GiB, or is no JSON.
    pub fn read_export(
        input: impl BufRead,
        source: &ExportSource,
        parse_phone: impl Fn(&str) -> Result<Phone, PhoneError>,
    ) -> io::Result<Self> {
        let mut bytes = Zeroizing::new(Vec::new());
        if input.take(LARGEST_EXPORT + 1).read_to_end(&mut bytes)? as u64 > LARGEST_EXPORT {
            return Err(io::Error::other("it is larger than 1 GiB; split it and import the parts"));
        }
        let mut reader = ImportReader::new(ImportUnit::Account, parse_phone);
        for exported in exports::entries(source, &bytes)? {
            reader.line += 1;
            reader.take_exported(exported);
            if reader.has_too_many() {
                break;
            }
        }
        Ok(reader.file)
    }
}

/// Whether a file begins as no line of an account does: as a list, as an object over several lines, or with the users of an
/// export.
fn is_document(start: &[u8]) -> bool {
    let start = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start).trim_ascii_start();
    let Some(inside) = start.strip_prefix(b"{") else { return start.starts_with(b"[") };
    let spaces = inside.iter().take_while(|byte| **byte == b' ').count();
    let next = &inside[spaces..];
    next.starts_with(b"\n") || next.starts_with(b"\r") || next.starts_with(b"\"users\"")
}

/// A file as far as it is read, and the lines on which each name and number was first.
struct ImportReader<P> {
    file: ImportFile,
    line: usize,
    logins: HashMap<Username, usize>,
    phones: HashMap<Phone, usize>,
    parse_phone: P,
}

impl<P: Fn(&str) -> Result<Phone, PhoneError>> ImportReader<P> {
    fn new(unit: ImportUnit, parse_phone: P) -> Self {
        let file = ImportFile { unit, ..ImportFile::default() };
        Self { file, line: 0, logins: HashMap::new(), phones: HashMap::new(), parse_phone }
    }

    fn take(&mut self, text: &[u8]) {
        let line = self.line;
        let text = text.strip_prefix(b"\xef\xbb\xbf").filter(|_| line == 1).unwrap_or(text).trim_ascii();
        if text.is_empty() {
            return;
        }
        match parse_line(text) {
            Ok(fields) => {
                if !self.take_fields(fields) {
                    let reason = "is missing, and so is a phone with \"phone_verified\": true; nothing would open the account";
                    self.note("password_hash", reason);
                }
            }
            Err(reason) => self.note("line", &reason),
        }
    }

    fn take_exported(&mut self, exported: Exported) {
        let line = self.line;
        let account = match exported {
            Exported::Other => return,
            Exported::Wrong { field, reason } => return self.note(field, reason),
            Exported::LeftOut(what) => return self.file.left_out.push((line, what)),
            Exported::Account(account) => *account,
        };
        if !self.take_fields(account.line) {
            let what = "the account, which has no password and no verified phone number to open it with";
            return self.file.left_out.push((line, what));
        }
        self.file.left_out.extend(account.lost.into_iter().map(|lost| (line, lost)));
        if account.unproven {
            self.file.unproven.insert(line);
        }
        self.file.unverified_emails += usize::from(account.unverified_email);
    }

    /// Whether something opens the account, or a mistake is noted.
    fn take_fields(&mut self, fields: ImportLine) -> bool {
        let before = self.file.mistakes.count();
        let login = self.login(fields.login);
        let password_hash = self.hash(fields.password_hash);
        let phone = self.phone(fields.phone, fields.phone_verified);
        let totp = self.totp(fields.totp);
        let profile = self.profile(fields.email, fields.email_verified, fields.name);
        let line = self.line;
        let Some(login) = login.filter(|_| self.file.mistakes.count() == before) else { return true };
        if password_hash.is_none() && phone.is_none() {
            self.logins.remove(&login);
            return false;
        }
        let profile = profile.unwrap_or_default();
        self.file.rows.push(ImportRow { line, login, password_hash, phone, totp, profile });
        true
    }

    fn has_too_many(&mut self) -> bool {
        let too_many = self.line > MOST_ROWS;
        if too_many {
            let reason =
                format!("the file has more than {MOST_ROWS} accounts; split it and import the parts");
            self.note("line", &reason);
        }
        too_many
    }

    /// Where something was before.
    fn at(&self, line: usize) -> String {
        match self.file.unit {
            ImportUnit::Line => format!("on line {line}"),
            ImportUnit::Account => format!("in account {line}"),
        }
    }

    fn login(&mut self, value: Option<Value>) -> Option<Username> {
        let text = match value {
            Some(Value::String(text)) => text,
            Some(_) => return self.wrong("login", "must be a text"),
            None => return self.wrong("login", "is missing"),
        };
        let login = match Username::parse(&text) {
            Ok(login) => login.standard(),
            Err(error) => return self.wrong("login", &format!("cannot be used: {error}")),
        };
        if let Some(first) = self.logins.get(&login) {
            return self.wrong("login", &format!("is the same name as {}", self.at(*first)));
        }
        self.logins.insert(login.clone(), self.line);
        Some(login)
    }

    fn hash(&mut self, value: Option<Value>) -> Option<Phc> {
        let Value::String(text) = value? else { return self.wrong("password_hash", "must be a text") };
        match Phc::import(&text) {
            Ok(hash) => Some(hash),
            Err(error) => self.wrong("password_hash", &error.to_string()),
        }
    }

    fn phone(&mut self, value: Option<Value>, verified: Option<Value>) -> Option<Phone> {
        let verified = self.flag("phone_verified", verified)?;
        let text = match value {
            Some(Value::String(text)) => text,
            Some(_) => return self.wrong("phone", "must be a text, such as \"+8613800138000\""),
            None if verified => return self.wrong("phone", "is missing, but is said to be verified"),
            None => return None,
        };
        if !verified {
            self.file.unverified += 1;
            return None;
        }
        let phone = match (self.parse_phone)(&text) {
            Ok(phone) => phone,
            Err(error) => return self.wrong("phone", &error.to_string()),
        };
        if let Some(first) = self.phones.get(&phone) {
            return self.wrong("phone", &format!("is the same number as {}", self.at(*first)));
        }
        self.phones.insert(phone.clone(), self.line);
        Some(phone)
    }

    fn totp(&mut self, value: Option<Value>) -> Option<TotpSecret> {
        let Value::String(text) = value? else { return self.wrong("totp", "must be a text") };
        match TotpSecret::import(&Zeroizing::new(text)) {
            Ok(secret) => Some(secret),
            Err(reason) => self.wrong("totp", reason),
        }
    }

    fn profile(
        &mut self,
        email: Option<Value>,
        verified: Option<Value>,
        name: Option<Value>,
    ) -> Option<Profile> {
        let verified = self.flag("email_verified", verified)?;
        let mut texts = [None, None];
        for (text, (field, value)) in texts.iter_mut().zip([("email", email), ("name", name)]) {
            *text = match value {
                None => None,
                Some(Value::String(text)) => Some(text),
                Some(_) => return self.wrong(field, "must be a text"),
            };
        }
        let [email, name] = &texts;
        match Profile::parse(email.as_deref(), verified, name.as_deref()) {
            Ok(profile) => Some(profile),
            Err(error) => self.wrong(error.field(), &error.to_string()),
        }
    }

    fn flag(&mut self, field: &'static str, value: Option<Value>) -> Option<bool> {
        match value {
            None => Some(false),
            Some(Value::Bool(flag)) => Some(flag),
            Some(_) => self.wrong(field, "must be true or false"),
        }
    }

    fn wrong<T>(&mut self, field: &'static str, reason: &str) -> Option<T> {
        self.note(field, reason);
        None
    }

    fn note(&mut self, field: &'static str, reason: &str) {
        self.file.mistakes.add(self.line, field, reason.to_owned());
    }
}

impl ImportMistakes {
    pub fn add(&mut self, line: usize, field: &'static str, reason: String) {
        if self.first.len() < MOST_MISTAKES {
            let reason = reason.chars().take(LONGEST_REASON).collect();
            self.first.push(ImportMistake { line, field, reason });
        } else {
            self.more += 1;
        }
    }

    pub const fn count(&self) -> usize {
        self.first.len() + self.more
    }
}

fn parse_line(text: &[u8]) -> Result<ImportLine, String> {
    if text.first() != Some(&b'{') {
        return Err("is not a JSON object; write {\"login\": …, \"password_hash\": …}".to_owned());
    }
    serde_json::from_slice(text).map_err(|error| {
        let text = error.to_string();
        // Each line is a document of its own.
        let reason = text.split(" at line ").next().unwrap_or_default();
        // The message repeats the field, which may be what commands a terminal.
        let reason = if reason.contains(char::is_control) { "an unknown field" } else { reason };
        format!("column {}: {reason}", error.column())
    })
}

enum LineRead {
    Line,
    TooLong,
    End,
}

/// Reads up to the end of the line, and keeps no more than the longest line.
fn next_line(input: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<LineRead> {
    text.clear();
    let most = LONGEST_LINE as u64 + 1;
    if input.take(most).read_until(b'\n', text)? == 0 {
        return Ok(LineRead::End);
    }
    if text.len() <= LONGEST_LINE {
        return Ok(LineRead::Line);
    }
    while text.last() != Some(&b'\n') {
        text.clear();
        if input.take(most).read_until(b'\n', text)? == 0 {
            break;
        }
    }
    Ok(LineRead::TooLong)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod file_tests;
