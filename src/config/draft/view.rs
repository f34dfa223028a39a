//! The visible part of a document: its limits, or its applications, and their comments.
//!
//! A comment belongs to a table if it touches it. A comment after an empty line may belong to another section
//! and contain a secret that was commented out. Everybody in the console can read this view, so such a
//! comment is hidden, and kept.

use toml_edit::{DocumentMut, Item, Table};

/// The `[limits.…]` part of a document; empty if there is none.
pub fn limits_toml(document: &str) -> String {
    section_toml(document, "limits")
}

/// The `[[apps]]` part of a document; empty if there is none.
pub fn apps_toml(document: &str) -> String {
    section_toml(document, "apps")
}

fn section_toml(document: &str, key: &str) -> String {
    let document = document.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Ok(mut document) = document.parse::<DocumentMut>() else { return String::new() };
    let own_end = behind(&document, key).0.to_owned();
    let Some(mut section) = document.remove(key) else { return String::new() };
    headers(&mut section, &mut |table| {
        let (hidden, own) = above(table);
        if !hidden.trim().is_empty() {
            let own = format!("\n{own}");
            table.decor_mut().set_prefix(own);
        }
    });
    let mut alone = DocumentMut::new();
    alone.insert(key, section);
    alone.set_trailing(own_end);
    alone.to_string().trim_start_matches('\n').to_owned()
}

/// The text above a table: the hidden part, and its own comments.
pub(super) fn above(table: &Table) -> (&str, &str) {
    let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    prefix.split_at(empty_lines(prefix).last().map_or(0, |line| line.end))
}

/// The text after the last table of a document: the comments of the section `key`, and the others.
fn behind<'d>(document: &'d DocumentMut, key: &str) -> (&'d str, &'d str) {
    let trailing = document.trailing().as_str().unwrap_or_default();
    let last = |item: &Item| {
        let mut last = None;
        headers(&mut item.clone(), &mut |table| last = last.max(table.position()));
        last
    };
    let ours = document.get(key).is_some_and(|section| last(section) == last(document.as_item()));
    let own = empty_lines(trailing).next().map_or(trailing.len(), |line| line.start);
    trailing.split_at(if ours { own } else { 0 })
}

/// Replaces the section's comments at the end of a document with those of the draft.
pub(super) fn put_end(document: &mut DocumentMut, draft: &DocumentMut, key: &str) {
    let own = draft.trailing().as_str().unwrap_or_default();
    let end = format!("{own}{}", behind(document, key).1);
    document.set_trailing(end);
}

/// Text after another section must not touch a new section, which is written there.
pub(super) fn set_end_apart(document: &mut DocumentMut) {
    let end = document.trailing().as_str().unwrap_or_default();
    if !end.is_empty() && !end.starts_with('\n') {
        let end = format!("\n{end}");
        document.set_trailing(end);
    }
}

fn empty_lines(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> {
    let mut at = 0;
    text.split_inclusive('\n').filter_map(move |line| {
        let start = at;
        at += line.len();
        (line.ends_with('\n') && line.trim().is_empty()).then_some(start..at)
    })
}

/// Every table under an item that has a header line: `[limits.sms-phone]`.
pub(super) fn headers(item: &mut Item, visit: &mut dyn FnMut(&mut Table)) {
    let tables: Vec<&mut Table> = match item {
        Item::Table(table) => vec![table],
        Item::ArrayOfTables(tables) => tables.iter_mut().collect(),
        Item::None | Item::Value(_) => return,
    };
    for table in tables {
        if has_header(table) {
            visit(table);
        }
        table.iter_mut().for_each(|(_, inner)| headers(inner, visit));
    }
}

pub(super) fn has_header(table: &Table) -> bool {
    table.position().is_some() && !table.is_implicit() && !table.is_dotted()
}
