//! Reads a document strictly: each key once, with its type and bounds; unknown keys are refused.

use std::cell::RefCell;

use super::document::{ConfigTable, ConfigValue, ValueNode};
use super::error::{ConfigLocation, ConfigProblem};
use super::section::SectionTable;

/// A value, or why it is not valid; the reason becomes a problem at the value's place.
pub(super) type ParseResult<T> = Result<T, String>;

/// Collects problems while the rest is read.
pub(super) type ProblemList = RefCell<Vec<ConfigProblem>>;

/// How the value of a key is read.
pub(super) trait KeyReader<T> {
    /// `None` if it is left out or wrong.
    fn read(self, section: &mut SectionReader<'_>, key: &'static str) -> Option<T>;
}

/// From the value alone.
impl<T, F: FnOnce(ValueNode) -> ParseResult<T>> KeyReader<T> for F {
    fn read(self, section: &mut SectionReader<'_>, key: &'static str) -> Option<T> {
        section.optional(key, self)
    }
}

/// A value without a default.
pub(super) struct NoDefault<F>(pub F);

impl<T, F: FnOnce(ValueNode) -> ParseResult<T>> KeyReader<Option<T>> for NoDefault<F> {
    fn read(self, section: &mut SectionReader<'_>, key: &'static str) -> Option<Option<T>> {
        section.optional(key, self.0).map(Some)
    }
}

/// A list of such values.
pub(super) struct ListOf<F>(pub F);

impl<T, F: FnMut(ValueNode) -> ParseResult<T>> KeyReader<Vec<T>> for ListOf<F> {
    fn read(self, section: &mut SectionReader<'_>, key: &'static str) -> Option<Vec<T>> {
        section.list(key, self.0)
    }
}

/// Read together with other keys of the section, or as a section of its own.
pub(super) struct WithinSection<F>(pub F);

impl<T, F: FnOnce(&mut SectionReader<'_>, &'static str) -> Option<T>> KeyReader<T> for WithinSection<F> {
    fn read(self, section: &mut SectionReader<'_>, key: &'static str) -> Option<T> {
        (self.0)(section, key)
    }
}

pub(super) fn subsection<S: SectionTable>(section: &mut SectionReader<'_>, key: &'static str) -> Option<S> {
    Some(section.section(key, S::read))
}

/// A table being read. A key that cannot be read gets its default, so that reading can continue; the whole
/// configuration is refused at the end.
pub(super) struct SectionReader<'p> {
    path: String,
    /// The place of the table; `None` if the document has none and every key has its default.
    place: Option<ConfigLocation>,
    rest: ConfigTable,
    asked: Vec<&'static str>,
    problems: &'p ProblemList,
}

/// Reads the table at the root of a document.
pub(super) fn read<T>(
    root: ConfigTable,
    problems: &ProblemList,
    read: impl FnOnce(&mut SectionReader<'_>) -> T,
) -> T {
    SectionReader { path: String::new(), place: None, rest: root, asked: Vec::new(), problems }.through(read)
}

impl<'p> SectionReader<'p> {
    fn through<T>(mut self, read: impl FnOnce(&mut Self) -> T) -> T {
        let out = read(&mut self);
        self.refuse_the_rest();
        out
    }

    /// The section under `key`, empty if there is none.
    pub fn section<T>(&mut self, key: &'static str, read: impl FnOnce(&mut SectionReader<'p>) -> T) -> T {
        let path = self.path_of(key);
        let (place, rest) = match self.take(key).map(|node| self.table_of(&path, node)) {
            Some(Some((place, table))) => (Some(place), table),
            _ => (None, ConfigTable::new()),
        };
        SectionReader { path, place, rest, asked: Vec::new(), problems: self.problems }.through(read)
    }

    /// The section that a table describes.
    pub fn table<S: SectionTable>(&mut self) -> S {
        self.section(S::NAME, S::read)
    }

    pub fn key<T>(&mut self, key: &'static str, reader: impl KeyReader<T>) -> Option<T> {
        reader.read(self, key)
    }

    /// Like [`Self::section`], but `None` if the document has no such section.
    pub fn optional_section<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&mut SectionReader<'p>) -> T,
    ) -> Option<T> {
        let stands = self.rest.contains_key(key);
        let out = self.section(key, read);
        stands.then_some(out)
    }

    /// The value under `key`, or `None` if it is left out or wrong.
    pub fn optional<T>(
        &mut self,
        key: &'static str,
        parse: impl FnOnce(ValueNode) -> ParseResult<T>,
    ) -> Option<T> {
        let path = self.path_of(key);
        let node = self.take(key)?;
        let place = node.place.clone();
        parse(node).map_err(|reason| self.refuse(place, path, reason)).ok()
    }

    pub fn value<T>(
        &mut self,
        key: &'static str,
        default: T,
        parse: impl FnOnce(ValueNode) -> ParseResult<T>,
    ) -> T {
        self.optional(key, parse).unwrap_or(default)
    }

    /// Like [`Self::optional`], but refused with `missing` at `place` if it is left out. Without a `place` it
    /// may be left out.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        missing: &str,
        place: Option<ConfigLocation>,
        parse: impl FnOnce(ValueNode) -> ParseResult<T>,
    ) -> Option<T> {
        if let (false, Some(place)) = (self.has(key), place) {
            self.refuse(place, self.path_of(key), missing);
        }
        self.optional(key, parse)
    }

    /// A list, each item with its own place; empty if left out.
    pub fn list<T>(
        &mut self,
        key: &'static str,
        mut parse: impl FnMut(ValueNode) -> ParseResult<T>,
    ) -> Option<Vec<T>> {
        let path = self.path_of(key);
        let items = self.optional(key, items)?;
        let parsed = items.into_iter().enumerate().filter_map(|(index, node)| {
            let place = node.place.clone();
            parse(node).map_err(|reason| self.refuse(place, format!("{path}[{index}]"), reason)).ok()
        });
        Some(parsed.collect())
    }

    /// A list of tables, each read as a section of its own.
    pub fn tables<T>(
        &mut self,
        key: &'static str,
        mut read: impl FnMut(&mut SectionReader<'p>) -> T,
    ) -> Option<Vec<T>> {
        let path = self.path_of(key);
        let items = self.optional(key, items)?;
        let parsed = items.into_iter().enumerate().filter_map(|(index, node)| {
            let path = format!("{path}[{index}]");
            let (place, rest) = self.table_of(&path, node)?;
            let section =
                SectionReader { path, place: Some(place), rest, asked: Vec::new(), problems: self.problems };
            Some(section.through(&mut read))
        });
        Some(parsed.collect())
    }

    /// Every entry of a table whose keys are names of the owner's choice.
    pub fn entries<T>(
        &mut self,
        mut name: impl FnMut(&str) -> ParseResult<()>,
        mut read: impl FnMut(&str, &mut SectionReader<'p>) -> T,
    ) -> Vec<(String, T)> {
        let entries = std::mem::take(&mut self.rest).into_iter().filter_map(|(key, entry)| {
            let path = self.path_of(&key);
            if let Err(reason) = name(&key) {
                self.refuse(entry.key, path, reason);
                return None;
            }
            let (place, rest) = self.table_of(&path, entry.node)?;
            let section =
                SectionReader { path, place: Some(place), rest, asked: Vec::new(), problems: self.problems };
            let out = section.through(|section| read(&key, section));
            Some((key, out))
        });
        entries.collect()
    }

    /// Every pair of a table whose keys are names of the owner's choice and whose values are not tables.
    pub fn pairs<T>(&mut self, mut parse: impl FnMut(&str, ValueNode) -> ParseResult<T>) -> Vec<(String, T)> {
        let pairs = std::mem::take(&mut self.rest).into_iter().filter_map(|(key, entry)| {
            let place = entry.node.place.clone();
            match parse(&key, entry.node) {
                Ok(value) => Some((key, value)),
                Err(reason) => {
                    self.refuse(place, self.path_of(&key), reason);
                    None
                }
            }
        });
        pairs.collect()
    }

    /// Whether a key that was not read yet has this text.
    pub fn says(&self, key: &str, word: &str) -> bool {
        self.rest.get(key).is_some_and(|entry| entry.node.clone().text().is_ok_and(|text| text == word))
    }

    pub fn has(&self, key: &str) -> bool {
        self.rest.contains_key(key)
    }

    /// The place of the key's value, if it has not been read yet; otherwise that of the table.
    pub fn place_of(&self, key: &str) -> Option<ConfigLocation> {
        self.rest.get(key).map(|entry| entry.node.place.clone()).or_else(|| self.place.clone())
    }

    /// The same for a key in a subsection that was not read yet; `None` if there is no such section.
    pub fn place_in(&self, section: &str, key: &str) -> Option<ConfigLocation> {
        let section = self.rest.get(section)?;
        let entry = section.table().and_then(|table| table.get(key)).unwrap_or(section);
        Some(entry.node.place.clone())
    }

    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn place(&self) -> Option<&ConfigLocation> {
        self.place.as_ref()
    }

    pub fn refuse(&self, place: ConfigLocation, field: String, reason: impl Into<String>) {
        self.problems.borrow_mut().push(ConfigProblem { place, field, reason: reason.into() });
    }

    /// Whether anything at or under this table has been refused so far.
    pub fn failed(&self) -> bool {
        self.problems.borrow().iter().any(|problem| {
            problem
                .field
                .strip_prefix(&self.path)
                .is_some_and(|rest| matches!(rest.chars().next(), None | Some('.' | '[')))
        })
    }

    fn take(&mut self, key: &'static str) -> Option<ValueNode> {
        self.asked.push(key);
        self.rest.remove(key).map(|entry| entry.node)
    }

    fn table_of(&self, path: &str, node: ValueNode) -> Option<(ConfigLocation, ConfigTable)> {
        let node = node.typed();
        match node.value {
            ConfigValue::Table(table) => Some((node.place, table)),
            other => {
                self.refuse(node.place, path.to_owned(), format!("is {}; it must be a table", other.kind()));
                None
            }
        }
    }

    fn refuse_the_rest(&mut self) {
        for (key, entry) in std::mem::take(&mut self.rest) {
            let hint = suggest(&key, &self.asked);
            let hint = hint.map_or_else(|| known(&self.asked), |close| format!("did you mean {close}?"));
            self.refuse(entry.key, self.path_of(&key), format!("is not a setting; {hint}"));
        }
    }
}

fn items(node: ValueNode) -> ParseResult<Vec<ValueNode>> {
    match node.typed().value {
        ConfigValue::Array(items) => Ok(items),
        other => Err(format!("is {}; it must be a list in [ ]", other.kind())),
    }
}

fn known(names: &[&str]) -> String {
    format!("allowed here: {}", names.join(", "))
}

/// The name that a mistyped one is closest to.
fn suggest<'n>(typed: &str, names: &[&'n str]) -> Option<&'n str> {
    let likeness = |name: &&'n str| strsim::jaro_winkler(&typed.replace('-', "_"), &name.replace('-', "_"));
    let best = names.iter().copied().max_by(|one, other| likeness(one).total_cmp(&likeness(other)))?;
    (likeness(&best) > 0.8).then_some(best)
}
