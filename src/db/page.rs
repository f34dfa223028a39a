//! Pages of a table, newest first: the common part for events, messages and changes of the limits.

use std::fmt;

use crate::clock::Micros;

/// The row after which the next page begins. May be part of a page's URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowCursor<Id> {
    pub at: Micros,
    pub id: Id,
}

impl<Id> RowCursor<Id> {
    /// Parses the displayed form; `id` reads the row's own part.
    pub fn parse_with(text: &str, id: impl FnOnce(&str) -> Option<Id>) -> Option<Self> {
        let (at, rest) = text.split_once('-')?;
        Some(Self { at: Micros(at.parse().ok()?), id: id(rest)? })
    }
}

impl<Id: fmt::Display> fmt::Display for RowCursor<Id> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.at.0, self.id)
    }
}

#[derive(Debug, Clone)]
pub struct RowPage<Entry, Id> {
    pub entries: Vec<Entry>,
    /// None on the last page.
    pub next: Option<RowCursor<Id>>,
}

impl<Entry, Id> RowPage<Entry, Id> {
    pub const fn empty() -> Self {
        Self { entries: Vec::new(), next: None }
    }

    /// From rows that were requested with one more than needed, which tells whether there is a next page.
    pub fn of(
        rows: impl IntoIterator<Item = Result<Entry, sqlx::Error>>,
        wanted: u32,
        place: impl FnOnce(&Entry) -> RowCursor<Id>,
    ) -> Result<Self, sqlx::Error> {
        let mut rows = rows.into_iter();
        let entries: Vec<Entry> = rows.by_ref().take(wanted as usize).collect::<Result<_, _>>()?;
        let more = rows.next().is_some();
        let next = entries.last().filter(|_| more).map(place);
        Ok(Self { entries, next })
    }
}
