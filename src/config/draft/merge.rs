//! A document with other limits in it: comments and order kept, everything else byte for byte.

use toml_edit::{DocumentMut, Item, Table, TableLike};

use super::apart::{behind, take_apart};
use super::overridden::covers;
use super::written::{rule_toml, rules_toml};
use crate::config::limits::Limits;
use crate::throttle::{Limit, Mode, Rule, Span};

/// Room for the tables of a draft between two of the document's: tables are written in the order of their
/// positions, which are spread by this.
const STRIDE: isize = 1 << 20;

const NO_TABLE: &str = "limits are no tables in this document; write them as [limits.name]";

/// The `[limits.…]` part of a document, as it stands there; empty where there is none. Of the comments around it
/// those that touch it: what an empty line sets apart may be of another section, with a secret in it that was
/// commented out, and everybody in the console reads this.
pub fn limits_toml(document: &str) -> String {
    let document = document.trim_start_matches('\u{feff}').replace("\r\n", "\n");
    let Ok(mut document) = document.parse::<DocumentMut>() else { return String::new() };
    let Some(mut limits) = document.remove("limits") else { return String::new() };
    let trailing = match ends_with(&document, &limits) {
        true => behind(document.trailing().as_str().unwrap_or_default()).0.to_owned(),
        false => String::new(),
    };
    take_apart(&document, &mut limits);
    let mut alone = DocumentMut::new();
    alone.insert("limits", limits);
    alone.set_trailing(trailing);
    alone.to_string().trim_start_matches('\n').to_owned()
}

/// The document with the draft's text in the place of its limits.
pub(super) fn replaced(text: &str, draft: &DocumentMut, protected: &[String]) -> Result<String, String> {
    let mut document = spread(text)?;
    let mut before = document.remove("limits");
    let last = before.as_ref().is_none_or(|limits| ends_with(&document, limits));
    let first = before.as_ref().and_then(|limits| tables(limits).into_iter().min());
    let place = first.as_ref().map_or_else(|| end_of(&document), |(position, _)| *position);
    let mut draft = draft.clone();
    let mut trailing = draft.trailing().as_str().unwrap_or_default().to_owned();
    if last {
        let ours = document.trailing().as_str().unwrap_or_default();
        trailing.push_str(if before.is_some() { behind(ours).1 } else { ours });
    }
    let mut limits = draft.remove("limits").unwrap_or_else(implicit);
    let gap = match &mut before {
        Some(limits) if first.is_some() => take_apart(&document, limits),
        _ if document.is_empty() => String::new(),
        _ => "\n".to_owned(),
    };
    open_with(&mut limits, &gap);
    walk(&mut limits, &mut |table| table.set_position(table.position().map(|at| place + at)));
    if let Some(stood) = &before {
        keep_protected(stood, &mut limits, protected);
    }
    close_with(&mut document, place, last, &trailing);
    if limits.as_table_like().is_some_and(|table| !table.is_empty()) {
        document.insert("limits", limits);
    }
    Ok(document.to_string())
}

/// The document with `wanted` written into its limits, and what stays the same left as it is written.
/// `names` are those that the draft names: the others go.
pub(super) fn adjusted(
    text: &str,
    stood: Option<&Limits>,
    wanted: &Limits,
    names: &[String],
    protected: &[String],
) -> Result<String, String> {
    let mut document = spread(text)?;
    let end = document.get("limits").and_then(|limits| tables(limits).into_iter().max());
    let mut place = end.map_or_else(|| end_of(&document), |(position, _)| position);
    let limits = document.entry("limits").or_insert_with(implicit);
    prune(limits.as_table_like_mut().ok_or(NO_TABLE)?, names, protected);
    let default = Limits::default();
    for name in names.iter().filter(|name| !covers(protected, name)) {
        let Some(want) = wanted.get(name) else { continue };
        let all = limits.as_table_like_mut().ok_or(NO_TABLE)?;
        let (parent, key) = match name.strip_prefix("custom.") {
            None => (all, name.as_str()),
            Some(own) => {
                let custom = all.entry("custom").or_insert_with(implicit);
                (custom.as_table_like_mut().ok_or(NO_TABLE)?, own)
            }
        };
        match parent.get_mut(key) {
            Some(item) => {
                let had = stood.and_then(|limits| limits.get(name));
                if had != Some(want) {
                    let table = item.as_table_like_mut().ok_or(NO_TABLE)?;
                    adjust(table, had, want);
                }
            }
            None if default.get(name) == Some(want) => {}
            None => {
                place += 1;
                parent.insert(key, Item::Table(fresh(want, place)));
            }
        }
    }
    if limits.as_table_like().is_some_and(TableLike::is_empty) {
        document.remove("limits");
    }
    Ok(document.to_string())
}

/// Removes what the draft does not name.
fn prune(limits: &mut dyn TableLike, names: &[String], protected: &[String]) {
    let goes = |name: &str| !names.iter().any(|other| other == name) && !covers(protected, name);
    let keys =
        |table: &dyn TableLike| -> Vec<String> { table.iter().map(|(key, _)| key.to_owned()).collect() };
    for key in keys(limits) {
        if key != "custom" && goes(&key) {
            limits.remove(&key);
        }
    }
    let Some(custom) = limits.get_mut("custom").and_then(Item::as_table_like_mut) else { return };
    for key in keys(custom) {
        if goes(&format!("custom.{key}")) {
            custom.remove(&key);
        }
    }
    if custom.is_empty() {
        limits.remove("custom");
    }
}

fn adjust(table: &mut dyn TableLike, had: Option<&Limit>, want: &Limit) {
    let mode = if want.mode() == Mode::Monitor { "monitor" } else { "enforce" };
    if table.get("mode").map_or("enforce", |mode| mode.as_str().unwrap_or_default()) != mode {
        put(table, "mode", mode.into());
    }
    let (had, want) = (had.map_or(&[][..], Limit::rules), want.rules());
    if had == want {
        return;
    }
    let Some(array) = table.get_mut("rules").and_then(Item::as_array_mut) else {
        table.insert("rules", Item::Value(rules_toml(want).into()));
        return;
    };
    while array.len() > want.len() {
        array.remove(array.len() - 1);
    }
    for (index, rule) in want.iter().enumerate() {
        match array.get_mut(index) {
            Some(_) if had.get(index) == Some(rule) => {}
            Some(value) => match value.as_inline_table_mut() {
                Some(inline) => adjust_rule(inline, rule),
                None => *value = rule_toml(rule).into(),
            },
            None => {
                let mut value = toml_edit::Value::from(rule_toml(rule));
                let prefix = array.iter().last().and_then(|last| last.decor().prefix()).cloned();
                match prefix.filter(|_| array.len() > 1 || array.trailing_comma()) {
                    Some(prefix) => value.decor_mut().set_prefix(prefix),
                    None => value.decor_mut().set_prefix(if index == 0 { "" } else { " " }),
                }
                array.push_formatted(value);
            }
        }
    }
}

fn adjust_rule(table: &mut toml_edit::InlineTable, rule: &Rule) {
    let wanted = rule_toml(rule);
    let keys: Vec<String> = table.iter().map(|(key, _)| key.to_owned()).collect();
    for key in keys.iter().filter(|key| !wanted.contains_key(key)) {
        table.remove(key);
    }
    for (key, value) in &wanted {
        let stands = table.get(key);
        let same = match (key, stands, &rule.span) {
            ("window", Some(text), Span::Sliding(window)) => {
                text.as_str().and_then(|text| humantime::parse_duration(text).ok()) == Some(*window)
            }
            ("then", None, _) => value.as_str() == Some("block"),
            (_, Some(stands), _) => {
                (stands.as_integer(), stands.as_str()) == (value.as_integer(), value.as_str())
            }
            (_, None, _) => false,
        };
        if !same {
            put(table, key, value.clone());
        }
    }
}

/// Sets a value, with the spaces and comments around the one before.
fn put(table: &mut dyn TableLike, key: &str, mut value: toml_edit::Value) {
    match table.get_mut(key).and_then(Item::as_value_mut) {
        Some(stands) => {
            *value.decor_mut() = stands.decor().clone();
            *stands = value;
        }
        None => drop(table.insert(key, Item::Value(value))),
    }
}

fn fresh(limit: &Limit, position: isize) -> Table {
    let mut table = Table::new();
    table.set_position(Some(position));
    table.decor_mut().set_prefix("\n");
    if limit.mode() == Mode::Monitor {
        table.insert("mode", toml_edit::value("monitor"));
    }
    table.insert("rules", Item::Value(rules_toml(limit.rules()).into()));
    table
}

fn implicit() -> Item {
    let mut table = Table::new();
    table.set_implicit(true);
    Item::Table(table)
}

fn spread(text: &str) -> Result<DocumentMut, String> {
    let mut document =
        text.parse::<DocumentMut>().map_err(|error| format!("the document is not TOML: {error}"))?;
    walk(document.as_item_mut(), &mut |table| table.set_position(table.position().map(|at| at * STRIDE)));
    Ok(document)
}

/// Every table under an item, itself included.
pub(super) fn walk(item: &mut Item, visit: &mut dyn FnMut(&mut Table)) {
    match item {
        Item::Table(table) => {
            visit(table);
            for (_, inner) in table.iter_mut() {
                walk(inner, visit);
            }
        }
        Item::ArrayOfTables(array) => {
            for table in array.iter_mut() {
                visit(table);
                for (_, inner) in table.iter_mut() {
                    walk(inner, visit);
                }
            }
        }
        Item::None | Item::Value(_) => {}
    }
}

/// Where each table with a header of its own stands, and what is written before it.
pub(super) fn tables(item: &Item) -> Vec<(isize, String)> {
    let mut found = Vec::new();
    walk(&mut item.clone(), &mut |table| {
        if let Some(position) = table.position().filter(|_| !table.is_implicit() && !table.is_dotted()) {
            let prefix = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
            found.push((position, prefix.to_owned()));
        }
    });
    found
}

fn end_of(document: &DocumentMut) -> isize {
    tables(document.as_item()).into_iter().max().map_or(STRIDE, |(position, _)| position + STRIDE)
}

/// Whether the limits are the last thing in the document that they were taken out of.
fn ends_with(rest: &DocumentMut, limits: &Item) -> bool {
    let last = |item: &Item| tables(item).into_iter().max().map(|(position, _)| position);
    last(limits) > last(rest.as_item())
}

/// Begins the limits with these line breaks, in the place of their own.
fn open_with(limits: &mut Item, gap: &str) {
    let Some((first, prefix)) = tables(limits).into_iter().min() else { return };
    walk(limits, &mut |table| {
        if table.position() == Some(first) && !table.is_implicit() {
            table.decor_mut().set_prefix(format!("{gap}{}", prefix.trim_start_matches('\n')));
        }
    });
}

/// What the draft ends with stands before what follows it in the document.
fn close_with(document: &mut DocumentMut, place: isize, last: bool, trailing: &str) {
    let next = tables(document.as_item()).into_iter().filter(|(at, _)| *at > place).min();
    match next {
        Some((next, prefix)) if !last => walk(document.as_item_mut(), &mut |table| {
            if table.position() == Some(next) && !trailing.trim().is_empty() {
                table.decor_mut().set_prefix(format!("{}{prefix}", trailing));
            }
        }),
        _ => document.set_trailing(trailing),
    }
}

/// Leaves overridden limits as they stand in the document.
fn keep_protected(stood: &Item, limits: &mut Item, protected: &[String]) {
    let (Some(stood), Some(limits)) = (stood.as_table_like(), limits.as_table_like_mut()) else { return };
    keep_in("", stood, limits, protected);
    let none = Table::new();
    let theirs = stood.get("custom").and_then(Item::as_table_like).unwrap_or(&none);
    if protected.iter().any(|name| name.starts_with("custom.") || name == "*")
        && let Some(custom) = limits.entry("custom").or_insert_with(implicit).as_table_like_mut()
    {
        keep_in("custom.", theirs, custom, protected);
    }
}

fn keep_in(lead: &str, stood: &dyn TableLike, limits: &mut dyn TableLike, protected: &[String]) {
    let guarded = |key: &str| key != "custom" && covers(protected, &format!("{lead}{key}"));
    let drafted: Vec<String> =
        limits.iter().map(|(key, _)| key.to_owned()).filter(|key| guarded(key)).collect();
    for key in drafted {
        limits.remove(&key);
    }
    for (key, item) in stood.iter().filter(|(key, _)| guarded(key)) {
        limits.insert(key, item.clone());
    }
}
