//! Reading a file of accounts to import: JSON lines, each checked as registration checks its fields, and every mistake
//! with its line.

use std::collections::HashMap;
use std::io::{self, BufRead, Read};

use serde::Deserialize;
use serde_json::Value;

use super::{Phc, Username};
use crate::sms::{Phone, PhoneError};

/// In bytes, several times what the longest fields take.
const LONGEST_LINE: usize = 16 * 1024;
/// They are written in one transaction, which SQLite's other writers wait for at most 5 s.
pub const MOST_ROWS: usize = 100_000;
/// Mistakes that are kept; the rest are counted.
const MOST_MISTAKES: usize = 50;
/// How much of what the file says is repeated.
const LONGEST_REASON: usize = 200;

/// An account to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRow {
    pub line: usize,
    pub login: Username,
    pub password_hash: Option<Phc>,
    pub phone: Option<Phone>,
}

/// Something in the file that is wrong. Names no value, so that a log may hold it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportMistake {
    pub line: usize,
    pub field: &'static str,
    pub reason: String,
}

/// What a file contains.
#[derive(Debug, Default)]
pub struct ImportFile {
    pub rows: Vec<ImportRow>,
    pub mistakes: ImportMistakes,
    /// Numbers that are left out, because the file does not say that they were verified.
    pub unverified: usize,
}

/// The first mistakes of a file, and how many more there are.
#[derive(Debug, Default)]
pub struct ImportMistakes {
    pub first: Vec<ImportMistake>,
    pub more: usize,
}

/// One line; an unknown field is refused.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImportLine {
    login: Option<Value>,
    phone: Option<Value>,
    phone_verified: Option<Value>,
    password_hash: Option<Value>,
}

/// The lines on which each name and number was first.
#[derive(Default)]
struct SeenBefore {
    logins: HashMap<Username, usize>,
    phones: HashMap<Phone, usize>,
}

impl ImportFile {
    /// Reads to the end, whatever is wrong. Lines that are empty are skipped.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(
        mut input: impl BufRead,
        parse_phone: impl Fn(&str) -> Result<Phone, PhoneError>,
    ) -> io::Result<Self> {
        let (mut file, mut seen, mut text) = (Self::default(), SeenBefore::default(), Vec::new());
        for line in 1.. {
            match next_line(&mut input, &mut text)? {
                LineRead::End => break,
                LineRead::TooLong => {
                    let reason = format!("is longer than {LONGEST_LINE} bytes");
                    file.mistakes.add(line, "line", reason);
                }
                LineRead::Line => file.take(line, &text, &mut seen, &parse_phone),
            }
            // Lines with mistakes are remembered, too.
            if line > MOST_ROWS {
                let reason =
                    format!("the file has more than {MOST_ROWS} accounts; split it and import the parts");
                file.mistakes.add(line, "line", reason);
                break;
            }
        }
        Ok(file)
    }

    fn take(
        &mut self,
        line: usize,
        text: &[u8],
        seen: &mut SeenBefore,
        parse_phone: &impl Fn(&str) -> Result<Phone, PhoneError>,
    ) {
        let text = text.strip_prefix(b"\xef\xbb\xbf").filter(|_| line == 1).unwrap_or(text).trim_ascii();
        if text.is_empty() {
            return;
        }
        let fields = match parse_line(text) {
            Ok(fields) => fields,
            Err(reason) => return self.mistakes.add(line, "line", reason),
        };
        let before = self.mistakes.count();
        let login = self.login(line, fields.login, seen);
        let password_hash = self.hash(line, fields.password_hash);
        let phone = self.phone(line, fields.phone, fields.phone_verified, seen, parse_phone);
        if self.mistakes.count() > before {
            return;
        }
        let Some(login) = login else { return };
        if password_hash.is_none() && phone.is_none() {
            let reason =
                "is missing, and so is a phone with \"phone_verified\": true; nothing would open the account";
            return self.mistakes.add(line, "password_hash", reason.to_owned());
        }
        self.rows.push(ImportRow { line, login, password_hash, phone });
    }

    fn login(&mut self, line: usize, value: Option<Value>, seen: &mut SeenBefore) -> Option<Username> {
        let text = match value {
            Some(Value::String(text)) => text,
            Some(_) => return self.wrong(line, "login", "must be a text"),
            None => return self.wrong(line, "login", "is missing"),
        };
        let login = match Username::parse(&text) {
            Ok(login) => login,
            Err(error) => return self.wrong(line, "login", &format!("cannot be used: {error}")),
        };
        if let Some(first) = seen.logins.get(&login) {
            return self.wrong(line, "login", &format!("is the same name as on line {first}"));
        }
        seen.logins.insert(login.clone(), line);
        Some(login)
    }

    fn hash(&mut self, line: usize, value: Option<Value>) -> Option<Phc> {
        let text = match value? {
            Value::String(text) => text,
            _ => return self.wrong(line, "password_hash", "must be a text"),
        };
        match Phc::import(&text) {
            Ok(hash) => Some(hash),
            Err(error) => self.wrong(line, "password_hash", &error.to_string()),
        }
    }

    fn phone(
        &mut self,
        line: usize,
        value: Option<Value>,
        verified: Option<Value>,
        seen: &mut SeenBefore,
        parse_phone: &impl Fn(&str) -> Result<Phone, PhoneError>,
    ) -> Option<Phone> {
        let verified = match verified {
            None => false,
            Some(Value::Bool(verified)) => verified,
            Some(_) => return self.wrong(line, "phone_verified", "must be true or false"),
        };
        let text = match value {
            Some(Value::String(text)) => text,
            Some(_) => return self.wrong(line, "phone", "must be a text, such as \"+8613800138000\""),
            None if verified => return self.wrong(line, "phone", "is missing, but is said to be verified"),
            None => return None,
        };
        if !verified {
            self.unverified += 1;
            return None;
        }
        let phone = match parse_phone(&text) {
            Ok(phone) => phone,
            Err(error) => return self.wrong(line, "phone", &error.to_string()),
        };
        if let Some(first) = seen.phones.get(&phone) {
            return self.wrong(line, "phone", &format!("is the same number as on line {first}"));
        }
        seen.phones.insert(phone.clone(), line);
        Some(phone)
    }

    fn wrong<T>(&mut self, line: usize, field: &'static str, reason: &str) -> Option<T> {
        self.mistakes.add(line, field, reason.to_owned());
        None
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
