//! The TOML document as a tree in which every value knows where it was written.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use toml::de::{DeTable, DeValue};

use super::error::{ConfigError, Place, Problem};

/// A value and where it stands.
#[derive(Debug, Clone)]
pub(super) struct Node {
    pub value: Value,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    /// Digits that fit no i64 are kept as the text that was written.
    Integer(Result<i64, String>),
    Fraction(f64),
    Boolean(bool),
    /// A date, or a fraction too large to be kept: no setting takes one, so that only its kind matters.
    Other(&'static str),
    Array(Vec<Node>),
    Table(Table),
    /// An environment variable's value: TOML where the reader wants it so, text otherwise.
    Raw(String),
}

pub(super) type Table = BTreeMap<String, Entry>;

/// How many mistakes in its grammar a text is told: who wrote so many wants none of the others listed.
const MOST_PROBLEMS: usize = 100;
/// Bytes between two places of a text up to which its letters were counted.
const STEP: usize = 1024;

/// A table's value, and where its key stands.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: Place,
    pub node: Node,
}

/// A file's bytes as the text that TOML is.
pub(super) fn text<'b>(path: &Path, bytes: &'b [u8]) -> Result<&'b str, ConfigError> {
    std::str::from_utf8(bytes).map_err(|wrong| {
        let before = String::from_utf8_lossy(&bytes[..wrong.valid_up_to()]);
        let place = Lines::of(&path.into(), &before).place(before.len());
        ConfigError::new(vec![Problem { place, field: String::new(), reason: "is not UTF-8".to_owned() }])
    })
}

/// Parses a whole file, or says everything that is no TOML in it.
pub(super) fn parse(path: &Path, text: &str) -> Result<Table, ConfigError> {
    let lines = Lines::of(&path.into(), text);
    let (root, errors) = DeTable::parse_recoverable(text);
    if errors.is_empty() {
        return Ok(table(root.into_inner(), &|offset| lines.place(offset)));
    }
    let problems = errors.iter().take(MOST_PROBLEMS).map(|error| {
        let span = error.span().unwrap_or(0..0);
        let key = text.get(span.clone()).unwrap_or_default().trim();
        let (field, reason) = match error.message() {
            "duplicate key" => (field_at(text, span.start, key), "is set twice; keep one of them".to_owned()),
            other => (String::new(), format!("is not TOML: {}", other.replace('\n', ", "))),
        };
        Problem { place: lines.place(span.start), field, reason }
    });
    Err(ConfigError::new(problems.collect()))
}

/// Parses one value, such as an environment variable holds; `None` where it is no TOML.
pub(super) fn parse_value(text: &str, place: &Place) -> Option<Node> {
    let value = DeValue::parse(text.trim()).ok()?;
    Some(Node { value: convert(value.into_inner(), &|_| place.clone()), place: place.clone() })
}

fn table(from: DeTable<'_>, place: &dyn Fn(usize) -> Place) -> Table {
    from.into_iter()
        .map(|(key, value)| {
            let (key_at, value_at) = (key.span().start, value.span().start);
            let node = Node { value: convert(value.into_inner(), place), place: place(value_at) };
            (key.into_inner().into_owned(), Entry { key: place(key_at), node })
        })
        .collect()
}

fn convert(from: DeValue<'_>, place: &dyn Fn(usize) -> Place) -> Value {
    match from {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(digits) => Value::Integer(
            i64::from_str_radix(digits.as_str(), digits.radix()).map_err(|_| digits.as_str().to_owned()),
        ),
        DeValue::Float(digits) => digits.as_str().parse().map_or(Value::Other(FRACTION), Value::Fraction),
        DeValue::Boolean(value) => Value::Boolean(value),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| {
                    let at = item.span().start;
                    Node { value: convert(item.into_inner(), place), place: place(at) }
                })
                .collect(),
        ),
        DeValue::Table(inner) => Value::Table(table(inner, place)),
    }
}

/// Where lines begin and how many letters there are before, so that asking for the place of each of a hundred
/// thousand values reads the text once: drafts come from people, and documents from stores that others write to.
struct Lines<'t> {
    path: Arc<Path>,
    text: &'t [u8],
    begin: Vec<usize>,
    /// Letters before each `STEP`-th byte.
    letters: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn of(path: &Arc<Path>, text: &'t str) -> Self {
        let bytes = text.as_bytes();
        let newlines = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let mut letters = vec![0];
        for step in bytes.chunks(STEP) {
            letters.push(letters[letters.len() - 1] + letters_in(step));
        }
        Self {
            path: Arc::clone(path),
            text: bytes,
            begin: std::iter::once(0).chain(newlines).collect(),
            letters,
        }
    }

    fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        let line = self.begin.partition_point(|begin| *begin <= offset);
        let column = self.letters_before(offset) - self.letters_before(self.begin[line - 1]) + 1;
        Place::File { path: Arc::clone(&self.path), line, column }
    }

    fn letters_before(&self, offset: usize) -> usize {
        let step = offset / STEP;
        self.letters[step] + letters_in(&self.text[step * STEP..offset])
    }
}

/// In UTF-8 every letter has one byte that continues none.
fn letters_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

/// The dotted path of a key that the parser refused, from the text itself: there is no tree to ask.
fn field_at(text: &str, offset: usize, key: &str) -> String {
    let header = |line: &str| {
        line.trim()
            .strip_prefix('[')
            .and_then(|rest| rest.split(']').next())
            .map(|name| name.trim().to_owned())
    };
    let line_start = text[..offset].rfind('\n').map_or(0, |at| at + 1);
    if let Some(own) = text[line_start..].lines().next().and_then(header) {
        return own;
    }
    match text[..line_start].lines().rev().find_map(header) {
        Some(section) => format!("{section}.{key}"),
        None => key.to_owned(),
    }
}

const FRACTION: &str = "a number with a fraction";

impl Value {
    /// The kind of the value in an owner's words, with its article.
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

impl Entry {
    pub fn new(value: Value, place: Place) -> Self {
        Self { key: place.clone(), node: Node { value, place } }
    }

    pub fn table(&self) -> Option<&Table> {
        match &self.node.value {
            Value::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl Node {
    /// The value with TOML's type: an environment variable's is found here.
    pub fn typed(self) -> Self {
        match &self.value {
            Value::Raw(raw) => match parse_value(raw, &self.place) {
                Some(parsed) => parsed,
                None => Self { value: Value::Text(raw.clone()), place: self.place },
            },
            _ => self,
        }
    }

    /// The value as text: an environment variable needs no quotes, and may have them.
    pub fn text(self) -> Result<String, String> {
        let kind = self.value.kind();
        match self.value {
            Value::Text(text) => Ok(text),
            Value::Raw(raw) => Ok(match parse_value(&raw, &self.place).map(|node| node.value) {
                Some(Value::Text(text)) => text,
                _ => raw,
            }),
            _ => Err(format!("is {kind}; it must be text in quotes")),
        }
    }
}
