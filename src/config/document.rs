//! The TOML document as a tree in which every value knows its place; environment variables over it
//! (`GATEHOUSE__SECTION__KEY=value`); and keys that had another name before, which are still read, with a warning.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, ConfigLocation, ConfigProblem, MOST_PROBLEMS};

#[derive(Debug, Clone)]
pub(super) struct ValueNode {
    pub value: ConfigValue,
    pub place: ConfigLocation,
}

#[derive(Debug, Clone)]
pub(super) enum ConfigValue {
    Text(String),
    /// Digits that do not fit an i64 are kept as text.
    Integer(Result<i64, String>),
    Fraction(f64),
    Boolean(bool),
    /// A date, or a fraction that is too large. No setting takes one, so only its kind matters.
    Other(&'static str),
    Array(Vec<ValueNode>),
    Table(ConfigTable),
    /// An environment variable's value: TOML if the reader wants another type, text otherwise.
    Raw(String),
}

pub(super) type ConfigTable = BTreeMap<String, TableEntry>;

/// The most bytes of a text with which a value, a line or a comment begins or ends. Parsing takes about as long for
/// each, at most a few tenths of a microsecond; `[access]` as long as can be has 45,000 in its 800 KiB.
const MOST_MARKS: usize = 64 * 1024;
/// The longest text, in bytes, of which every syntax error is reported: each takes a microsecond.
const LONGEST_WITH_ALL_ERRORS: usize = 16 * 1024;

/// A table's value, and the place of its key.
#[derive(Debug, Clone)]
pub(super) struct TableEntry {
    pub key: ConfigLocation,
    pub node: ValueNode,
}

pub(super) fn text<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, ConfigError> {
    std::str::from_utf8(bytes).map_err(|wrong| {
        let before = String::from_utf8_lossy(&bytes[..wrong.valid_up_to()]);
        let place = LineIndex::of(path, &before).place(before.len());
        ConfigError::new(vec![ConfigProblem {
            place,
            field: String::new(),
            reason: "is not UTF-8".to_owned(),
        }])
    })
}

#[cfg(test)]
thread_local! {
    /// How many texts this thread has parsed.
    pub(super) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Parses a whole file, or returns all of its syntax errors.
pub(super) fn parse(path: &Path, text: &str) -> Result<ConfigTable, ConfigError> {
    #[cfg(test)]
    PARSED.set(PARSED.get() + 1);
    let marks = text.bytes().filter(is_mark).count();
    if marks > MOST_MARKS {
        let reason = format!(
            "has {marks} line breaks, quotes, brackets, commas and other signs between its values; at most {MOST_MARKS} are allowed"
        );
        return Err(ConfigError::whole_file(path, reason));
    }
    let lines = LineIndex::of(path, text);
    let errors = match DeTable::parse(text) {
        Ok(root) => return Ok(table(root.into_inner(), &|offset| lines.place(offset))),
        Err(_) if text.len() <= LONGEST_WITH_ALL_ERRORS => DeTable::parse_recoverable(text).1,
        Err(first) => vec![first],
    };
    let headers = headers(text);
    let problems = errors.iter().take(MOST_PROBLEMS + 1).map(|error| {
        let span = error.span().unwrap_or(0..0);
        let key = text.get(span.clone()).unwrap_or_default().trim();
        let (field, reason) = match error.message() {
            "duplicate key" => {
                (field_at(&headers, span.start, key), "is set twice; keep one of them".to_owned())
            }
            other => (String::new(), format!("is not TOML: {}", other.replace('\n', ", "))),
        };
        ConfigProblem { place: lines.place(span.start), field, reason }
    });
    Err(ConfigError::new(problems.collect()))
}

fn is_mark(byte: &u8) -> bool {
    byte.is_ascii_control() || b"\"'\\#=,[]{}".contains(byte)
}

/// Parses one value, such as that of an environment variable; `None` if it is not TOML.
pub(super) fn parse_value(text: &str, place: &ConfigLocation) -> Option<ValueNode> {
    let value = DeValue::parse(text.trim()).ok()?;
    Some(ValueNode { value: convert(value.into_inner(), &|_| place.clone()), place: place.clone() })
}

fn table(from: DeTable<'_>, place: &dyn Fn(usize) -> ConfigLocation) -> ConfigTable {
    from.into_iter()
        .map(|(key, value)| {
            let (key_at, value_at) = (key.span().start, value.span().start);
            let node = ValueNode { value: convert(value.into_inner(), place), place: place(value_at) };
            (key.into_inner().into_owned(), TableEntry { key: place(key_at), node })
        })
        .collect()
}

fn convert(from: DeValue<'_>, place: &dyn Fn(usize) -> ConfigLocation) -> ConfigValue {
    match from {
        DeValue::String(text) => ConfigValue::Text(text.into_owned()),
        DeValue::Integer(digits) => ConfigValue::Integer(
            i64::from_str_radix(digits.as_str(), digits.radix()).map_err(|_| digits.as_str().to_owned()),
        ),
        DeValue::Float(digits) => {
            digits.as_str().parse().map_or(ConfigValue::Other(FRACTION), ConfigValue::Fraction)
        }
        DeValue::Boolean(value) => ConfigValue::Boolean(value),
        DeValue::Datetime(_) => ConfigValue::Other("a date"),
        DeValue::Array(items) => ConfigValue::Array(
            items
                .into_iter()
                .map(|item| {
                    let at = item.span().start;
                    ValueNode { value: convert(item.into_inner(), place), place: place(at) }
                })
                .collect(),
        ),
        DeValue::Table(inner) => ConfigValue::Table(table(inner, place)),
    }
}

/// The starts of lines, so that the text is read once to find the places of a hundred thousand values: drafts come
/// from people, and documents from stores that others write to.
struct LineIndex {
    path: Arc<Path>,
    begin: Vec<usize>,
}

impl LineIndex {
    fn of(path: &Path, text: &str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { path: path.into(), begin: std::iter::once(0).chain(newlines).collect() }
    }

    fn place(&self, offset: usize) -> ConfigLocation {
        let line = self.begin.partition_point(|begin| *begin <= offset);
        ConfigLocation::File { path: Arc::clone(&self.path), line, offset }
    }
}

/// The lines of a text that look like the header of a table, each with its place and the name in it.
fn headers(text: &str) -> Vec<(Range<usize>, &str)> {
    let mut at = 0;
    let lines = text.split_inclusive('\n').map(|line| {
        let start = at;
        at += line.len();
        (start..at, line)
    });
    lines
        .filter_map(|(place, line)| Some((place, line.trim().strip_prefix('[')?.split(']').next()?.trim())))
        .collect()
}

/// The dotted path of a key that the parser refused, from the text itself, because there is no tree.
fn field_at(headers: &[(Range<usize>, &str)], offset: usize, key: &str) -> String {
    let before = headers.partition_point(|(place, _)| place.start <= offset);
    match before.checked_sub(1).map(|last| &headers[last]) {
        Some((place, own)) if place.contains(&offset) => (*own).to_owned(),
        Some((_, section)) => format!("{section}.{key}"),
        None => key.to_owned(),
    }
}

const FRACTION: &str = "a number with a fraction";

impl ConfigValue {
    /// The kind of the value in plain words, with its article.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Raw(_) => "text",
            Self::Integer(_) => "a number",
            Self::Fraction(_) => FRACTION,
            Self::Boolean(_) => "a boolean",
            Self::Other(kind) => kind,
            Self::Array(_) => "a list",
            Self::Table(_) => "a table",
        }
    }
}

impl TableEntry {
    pub fn new(value: ConfigValue, place: ConfigLocation) -> Self {
        Self { key: place.clone(), node: ValueNode { value, place } }
    }

    pub const fn value_mut(&mut self) -> &mut ConfigValue {
        &mut self.node.value
    }

    pub fn table(&self) -> Option<&ConfigTable> {
        match &self.node.value {
            ConfigValue::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl ValueNode {
    /// The value with its TOML type; an environment variable's is determined here.
    pub fn typed(self) -> Self {
        match &self.value {
            ConfigValue::Raw(raw) => match parse_value(raw, &self.place) {
                Some(parsed) => parsed,
                None => Self { value: ConfigValue::Text(raw.clone()), place: self.place },
            },
            _ => self,
        }
    }

    pub fn items(&self) -> usize {
        match &self.value {
            ConfigValue::Array(items) => items.iter().map(|item| 1 + item.items()).sum(),
            ConfigValue::Table(table) => table.values().map(|entry| entry.node.items()).sum(),
            _ => 0,
        }
    }

    /// The value as text. An environment variable may be written with or without quotes.
    pub fn text(self) -> Result<String, String> {
        let kind = self.value.kind();
        match self.value {
            ConfigValue::Text(text) => Ok(text),
            ConfigValue::Raw(raw) => Ok(match parse_value(&raw, &self.place).map(|node| node.value) {
                Some(ConfigValue::Text(text)) => text,
                _ => raw,
            }),
            _ => Err(format!("is {kind}; it must be text in quotes")),
        }
    }
}

/// Two underscores: `GATEHOUSE_ANYTHING` belongs to something else and is ignored, unless it is a setting in another
/// spelling (`misspelt`).
pub(super) const PREFIX: &str = "GATEHOUSE__";

/// Names and values, as at the start of the process.
pub type Environment = Vec<(String, String)>;

/// What every name that may be meant for us begins with, in whatever case.
pub(super) const LEAD: &str = "GATEHOUSE_";

pub(super) fn may_be_ours(name: &str) -> bool {
    name.get(..LEAD.len()).is_some_and(|lead| lead.eq_ignore_ascii_case(LEAD))
}

/// This process's variables that are meant for the configuration, or may be.
pub fn of_process() -> Environment {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| may_be_ours(name))
        .collect()
}

/// Puts the variables over the file's tree, outer tables before inner ones, in an order that does not depend
/// on the system: the result depends only on names and values.
pub(super) fn overlay(
    root: &mut ConfigTable,
    environment: &[(String, String)],
    problems: &mut Vec<ConfigProblem>,
) {
    let mut ours: Vec<(Vec<String>, &str, &str)> = environment
        .iter()
        .filter_map(|(name, value)| Some((keys(name.strip_prefix(PREFIX)?), name.as_str(), value.as_str())))
        .collect();
    ours.sort();
    for (keys, name, value) in ours {
        let place = ConfigLocation::Variable(Arc::from(name));
        if let Err(reason) = check(name, value, &keys).and_then(|()| put(root, &keys, value, &place)) {
            problems.push(ConfigProblem { place, field: keys.join("."), reason });
        }
    }
}

/// The keys of the setting that a variable sets; None if it is not ours.
pub(super) fn keys_of(name: &str) -> Option<Vec<String>> {
    name.strip_prefix(PREFIX).map(keys)
}

fn check(name: &str, value: &str, keys: &[String]) -> Result<(), String> {
    if keys.iter().any(String::is_empty) {
        return Err("names no setting; write GATEHOUSE__SECTION__KEY".to_owned());
    }
    if name.chars().any(|letter| letter.is_lowercase()) {
        return Err(format!("must be written in capitals: {}", name.to_uppercase()));
    }
    if value.contains(char::REPLACEMENT_CHARACTER) {
        return Err("its value is not UTF-8".to_owned());
    }
    Ok(())
}

/// The keys in a variable's name. Shells allow no `-` in a name, so `_` is used where our names have one: in
/// limits and HTTP headers. Other keys are written with `_`.
fn keys(rest: &str) -> Vec<String> {
    let mut keys: Vec<String> = rest.split("__").map(str::to_lowercase).collect();
    let dashed = match keys.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["limits", "custom", _, ..] => Some(2),
        ["limits", _, ..] => Some(1),
        ["sms", "http", "headers", _] => Some(3),
        _ => None,
    };
    if let Some(index) = dashed {
        keys[index] = keys[index].replace('_', "-");
    }
    keys
}

fn put(table: &mut ConfigTable, keys: &[String], value: &str, place: &ConfigLocation) -> Result<(), String> {
    let (key, inner) = keys.split_first().expect("split gives at least one part");
    if inner.is_empty() {
        if let Some(TableEntry { key: ConfigLocation::Variable(other), .. }) = table.get(key) {
            return Err(format!("sets the same as {other}; keep one of them"));
        }
        table.insert(key.clone(), TableEntry::new(ConfigValue::Raw(value.to_owned()), place.clone()));
        return Ok(());
    }
    let fresh = || TableEntry::new(ConfigValue::Table(ConfigTable::new()), place.clone());
    let entry = table.entry(key.clone()).or_insert_with(fresh);
    if let ConfigValue::Raw(raw) = &entry.node.value
        && let Some(parsed) = parse_value(raw, &entry.node.place)
    {
        entry.node = parsed;
    }
    match &mut entry.node.value {
        ConfigValue::Table(table) => put(table, inner, value, place),
        other => Err(format!("{key} is {}, so nothing can be set inside it", other.kind())),
    }
}
