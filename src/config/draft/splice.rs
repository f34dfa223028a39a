//! Parts of a document as text: what is shown of them, and how a draft is written into it. Comments and order are kept
//! as `toml_edit` keeps them.
//!
//! A comment belongs to a table if it touches it. A comment after an empty line may belong to another section
//! and contain a secret that was commented out. Everybody in the console can read this view, so such a
//! comment is hidden, and kept.

use std::collections::BTreeSet;
use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode, Rule, RuleSpan};
use toml_edit::{Array, Decor, DocumentMut, InlineTable, Item, Table, TableLike, Value};

use super::{APPS, DraftError, parsed, unix_lines};
use crate::config::limits::Limits;
use crate::config::live_section::LiveSection;
use crate::config::values::span_text;

/// The draft `toml` with the application of this name as in `table`, a document with that one table; a new one comes last.
/// Replaces an application; with None it is left out. Everything else is unchanged, including comments.
pub(super) fn with_app(toml: &str, name: &str, table: Option<&str>) -> Result<String, DraftError> {
    let whole = |message: String| DraftError::at("", message, None);
    let mut document = parsed(toml).map_err(whole)?;
    let drafted = parsed(table.unwrap_or_default()).map_err(whole)?;
    let new = drafted.get(APPS).and_then(Item::as_array_of_tables).and_then(|apps| apps.get(0));
    let mut apps = tables_of(document.remove(APPS));
    let found = apps.iter().position(|app| text_at(app, "name") == Some(name));
    let old = found.map(|index| apps.remove(index));
    if let Some(new) = new {
        apps.insert(found.unwrap_or(apps.len()), merged_app(old, new));
    }
    if !apps.is_empty() {
        document.insert(APPS, Item::ArrayOfTables(apps.into_iter().collect()));
    }
    Ok(document.to_string().trim_start_matches('\n').to_owned())
}

/// A part keeps its comments by its path, wherever it is.
fn merged_app(old: Option<Table>, new: &Table) -> Table {
    let (mut app, mut new) = (old.unwrap_or_else(apart), new.clone());
    new.retain(|key, item| item.as_array().is_none_or(|list| !list.is_empty()) || app.contains_key(key));
    if app.get("parts").is_some_and(Item::is_value) {
        merge_table(&mut app, &new);
        return app;
    }
    let (mut before, parts) = (tables_of(app.remove("parts")), tables_of(new.remove("parts")));
    // One in braces stays so.
    let client = match app.get("oidc") {
        Some(Item::Value(_)) => None,
        _ => new.remove("oidc").and_then(|new| new.into_table().ok()),
    };
    let old = client.as_ref().and_then(|_| app.remove("oidc")?.into_table().ok());
    merge_table(&mut app, &new);
    if let Some(client) = client {
        let mut table = old.unwrap_or_else(apart);
        merge_table(&mut table, &client);
        app.insert("oidc", Item::Table(table));
    }
    let part = |new: &Table| {
        let known = before.iter().position(|old| text_at(old, "path") == text_at(new, "path"));
        let mut part = known.map_or_else(apart, |at| before.remove(at));
        merge_table(&mut part, new);
        part
    };
    if !parts.is_empty() {
        app.insert("parts", Item::ArrayOfTables(parts.iter().map(part).collect()));
    }
    app
}

/// A table after an empty line.
fn apart() -> Table {
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    table
}

fn tables_of(item: Option<Item>) -> Vec<Table> {
    item.and_then(|item| item.into_array_of_tables().ok()).into_iter().flatten().collect()
}

pub(super) fn text_at<'t>(table: &'t Table, key: &str) -> Option<&'t str> {
    table.get(key).and_then(Item::as_str)
}

/// Writes the meaning of a limit; parts with the same meaning keep their form.
pub(super) fn write(document: &mut DocumentMut, limit: &Limit) -> Result<(), String> {
    merge_table(table_like(limit_in(document, limit.name()))?, &limit_toml(limit));
    Ok(())
}

/// Copies a limit from a draft, with its comments.
pub(super) fn take(document: &mut DocumentMut, draft: &DocumentMut, name: &str) -> Result<(), String> {
    let new = find(draft, name).ok_or(NO_TABLE)?;
    match (limit_in(document, name), new) {
        (Some(Item::Table(old)), Item::Table(new))
            if has_header(new) && !old.is_dotted() && new.iter().all(|(_, item)| item.is_value()) =>
        {
            let mut new = new.clone();
            new.set_position(old.position());
            let prefix = format!("{}{}", above(old).0, before(new.decor()).trim_start_matches('\n'));
            new.decor_mut().set_prefix(prefix);
            *old = new;
        }
        (limit, new) => merge_table(table_like(limit)?, new.as_table_like().ok_or(NO_TABLE)?),
    }
    Ok(())
}

/// Removes a limit. Hidden text above it is kept above what follows it.
pub(super) fn remove(document: &mut DocumentMut, name: &str) {
    let limits = document.get_mut("limits").and_then(Item::as_table_like_mut);
    let removed = limits.and_then(|limits| match name.strip_prefix("custom.") {
        None => limits.remove(name),
        Some(own) => limits.get_mut("custom")?.as_table_like_mut()?.remove(own),
    });
    let Some(Item::Table(removed)) = removed else { return };
    keep_hidden(document, above(&removed).0.trim_start_matches('\n'), removed.position());
}

/// Puts the hidden text of tables that go above what follows their position.
pub(super) fn keep_hidden(document: &mut DocumentMut, hidden: &str, position: Option<isize>) {
    if hidden.is_empty() {
        return;
    }
    let mut next: Option<isize> = None;
    headers(document.as_item_mut(), &mut |table| {
        let behind = table.position().filter(|_| table.position() > position);
        next = next.into_iter().chain(behind).min();
    });
    match next {
        None => {
            document.set_trailing(format!("\n{hidden}{}", document.trailing().as_str().unwrap_or_default()))
        }
        Some(_) => headers(document.as_item_mut(), &mut |table| {
            if table.position() == next {
                let prefix = format!("\n{hidden}{}", before(table.decor()));
                table.decor_mut().set_prefix(prefix);
            }
        }),
    }
}

const NO_TABLE: &str = "the limits in this document are not tables; write them as [limits.name]";

/// The full names of the limits in a document, sorted, the custom ones last.
pub(super) fn limit_names(document: &DocumentMut) -> Vec<String> {
    let names = |item: Option<&Item>| {
        let table = item.and_then(Item::as_table_like).into_iter();
        table.flat_map(|table| table.iter()).map(|(name, _)| name.to_owned()).collect::<BTreeSet<_>>()
    };
    let limits = document.get("limits");
    let custom = names(limits.and_then(|limits| limits.get("custom")));
    let built_in = names(limits).into_iter().filter(|name| name != "custom");
    built_in.chain(custom.into_iter().map(|name| format!("custom.{name}"))).collect()
}

fn find<'d>(document: &'d DocumentMut, name: &str) -> Option<&'d Item> {
    let limits = document.get("limits")?;
    match name.strip_prefix("custom.") {
        None => limits.get(name),
        Some(own) => limits.get("custom")?.get(own),
    }
}

/// A limit of the document; a new one is written after the others.
fn limit_in<'d>(document: &'d mut DocumentMut, name: &str) -> Option<&'d mut Item> {
    let limits = inner(document.as_item_mut(), "limits", true)?;
    match name.strip_prefix("custom.") {
        None => inner(limits, name, false),
        Some(own) => inner(inner(limits, "custom", true)?, own, false),
    }
}

fn inner<'i>(parent: &'i mut Item, key: &str, implicit: bool) -> Option<&'i mut Item> {
    let parent = parent.as_table_like_mut()?;
    if !parent.contains_key(key) {
        let mut table = apart();
        table.set_implicit(implicit);
        parent.insert(key, Item::Table(table));
    }
    parent.get_mut(key)
}

fn table_like(item: Option<&mut Item>) -> Result<&mut dyn TableLike, String> {
    item.and_then(Item::as_table_like_mut).ok_or_else(|| NO_TABLE.to_owned())
}

/// The text before something, with its comments.
pub(super) fn before(decor: &Decor) -> &str {
    decor.prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default()
}

/// Makes a table equal to another; what stays keeps its spaces and comments.
fn merge_table(old: &mut dyn TableLike, new: &dyn TableLike) {
    let keys: Vec<String> = old.iter().map(|(key, _)| key.to_owned()).collect();
    for key in keys.iter().filter(|key| !new.contains_key(key)) {
        old.remove(key);
    }
    for (key, item) in new.iter() {
        let Ok(value) = item.clone().into_value() else { continue };
        match old.get_mut(key).and_then(Item::as_value_mut) {
            // A minute may be written as 60s.
            Some(old) if SPANS.contains(&key) && span(old).is_some() && span(old) == span(&value) => {}
            Some(old) => merge_value(old, value),
            // It is the default if it is left out.
            None if key == "then" && value.as_str() == Some("block") => {}
            None => drop(old.insert(key, Item::Value(value))),
        }
    }
}

fn merge_value(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::InlineTable(old), Value::InlineTable(new)) => merge_table(old, &new),
        (Value::Array(old), Value::Array(new)) => merge_array(old, new),
        // In its own quotes.
        (Value::String(old), Value::String(new)) if old.value() == new.value() => {}
        (old, mut new) => {
            *new.decor_mut() = old.decor().clone();
            *old = new;
        }
    }
}

/// Keys of durations. A name may look like one.
const SPANS: [&str; 4] = ["window", "signed_in_within", "password_within", "factor_within"];

fn span(value: &Value) -> Option<Duration> {
    humantime::parse_duration(value.as_str()?).ok()
}

/// Takes the names that `new` does not have out of a list, each with the comment behind it. The last is left to
/// [`merge_array`].
fn take_out(old: &mut Array, new: &Array) {
    if old.iter().chain(new).any(|item| !item.is_str()) {
        return;
    }
    for at in (1..old.len()).rev() {
        if new.iter().any(|item| item.as_str() == old.get(at - 1).and_then(Value::as_str)) {
            continue;
        }
        let removed = old.remove(at - 1);
        let Some(next) = old.get_mut(at - 1) else { continue };
        let [gone, kept] = [removed.decor(), next.decor()].map(|decor| before(decor).to_owned());
        // What stands before a line's end belongs to the item before.
        let prefix = match (gone.find('\n'), kept.find('\n')) {
            (Some(end), Some(start)) => format!("{}{}", &gone[..end], &kept[start..]),
            _ => gone,
        };
        next.decor_mut().set_prefix(prefix);
    }
}

fn merge_array(old: &mut Array, new: Array) {
    take_out(old, &new);
    while old.len() > new.len() {
        // A comment after the previous item belongs above this one.
        let last = old.remove(old.len() - 1);
        let above = before(last.decor());
        if above.contains('\n') {
            old.set_trailing(above.trim_end_matches(' '));
        }
    }
    for (index, mut value) in new.into_iter().enumerate() {
        let behind = old.trailing().as_str().unwrap_or_default().to_owned();
        match old.get_mut(index) {
            Some(old) => merge_value(old, value),
            None if behind.contains('\n') => {
                value.decor_mut().set_prefix(format!("{behind}    "));
                old.push_formatted(value);
                old.set_trailing("\n");
            }
            None => old.push(value),
        }
    }
}

/// Empty if it is not a document.
pub(super) fn shown(document: &str) -> DocumentMut {
    parsed(&unix_lines(document.trim_start_matches('\u{feff}'))).unwrap_or_default()
}

/// Keys of a section with their values, without comments: one form, whatever it has in the document, and nothing of its
/// other keys.
pub(super) fn keys_toml(document: &DocumentMut, section: &str, keys: &[&str]) -> String {
    let Some(old) = document.get(section).and_then(Item::as_table_like) else { return String::new() };
    let mut table = Table::new();
    for key in keys {
        if let Some(mut value) = old.get(key).and_then(|item| item.clone().into_value().ok()) {
            value.decor_mut().clear();
            table.insert(key, Item::Value(value));
        }
    }
    if table.is_empty() {
        return String::new();
    }
    let mut alone = DocumentMut::new();
    alone.insert(section, Item::Table(table));
    alone.to_string()
}

/// Writes the keys of a section that do not stay, as the draft has them; one that it leaves out goes.
pub(super) fn write_keys(
    document: &mut DocumentMut,
    draft: &DocumentMut,
    section: LiveSection,
    stays: &dyn Fn(&str) -> bool,
) -> Result<(), String> {
    let drafted = draft.get(section.name()).and_then(Item::as_table_like);
    let new = |key: &str| drafted?.get(key)?.clone().into_value().ok();
    for key in section.keys().iter().filter(|key| !stays(key)) {
        match new(key) {
            Some(value) => {
                let table = table(document, section)?;
                match table.get_mut(key).and_then(Item::as_value_mut) {
                    Some(old) => merge_value(old, value),
                    None => set(table, key, value),
                }
            }
            None if document.contains_key(section.name()) => {
                if let Some(Item::Table(gone)) = table(document, section)?.remove(key) {
                    keep_hidden(document, above(&gone).0.trim_start_matches('\n'), gone.position());
                }
            }
            None => {}
        }
    }
    Ok(())
}

/// With the comments of the value before.
pub(super) fn set(table: &mut dyn TableLike, key: &str, value: Value) {
    match (table.get_mut(key), value) {
        (Some(Item::Value(old)), mut value) => {
            *value.decor_mut() = old.decor().clone();
            *old = value;
        }
        (Some(Item::Table(old)), Value::InlineTable(new)) => merge_table(old, &new),
        (_, value) => drop(table.insert(key, Item::Value(value))),
    }
}

/// The table of the document; a new one is written after everything else.
pub(super) fn table(document: &mut DocumentMut, section: LiveSection) -> Result<&mut dyn TableLike, String> {
    let name = section.name();
    match document.get_mut(name) {
        // [[access.deny]] without [access] has no header to write keys under.
        Some(Item::Table(table)) if !table.is_dotted() => table.set_implicit(false),
        Some(_) => {}
        None => {
            document.insert(name, Item::Table(apart()));
            set_end_apart(document);
        }
    }
    let table = document.get_mut(name).and_then(Item::as_table_like_mut);
    table.ok_or_else(|| format!("{name} in this document is not a table; write it as [{name}]"))
}

pub(super) fn section_toml(document: &DocumentMut, key: &str) -> String {
    let Some(mut section) = document.get(key).cloned() else { return String::new() };
    headers(&mut section, &mut |table| {
        let (hidden, own) = above(table);
        if !hidden.trim().is_empty() {
            let own = format!("\n{own}");
            table.decor_mut().set_prefix(own);
        }
    });
    let mut alone = DocumentMut::new();
    alone.insert(key, section);
    alone.set_trailing(behind(document, key).0);
    alone.to_string().trim_start_matches('\n').to_owned()
}

/// The text above a table: the hidden part, and its own comments.
pub(super) fn above(table: &Table) -> (&str, &str) {
    let prefix = before(table.decor());
    prefix.split_at(empty_lines(prefix).last().map_or(0, |line| line.end))
}

/// The text after the last table of a document: the comments of the section `key`, and the others.
fn behind<'d>(document: &'d DocumentMut, key: &str) -> (&'d str, &'d str) {
    let trailing = document.trailing().as_str().unwrap_or_default();
    let ours =
        document.get(key).is_some_and(|section| last_position(section) == last_position(document.as_item()));
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

/// The position of the last table under an item that has a header line.
pub(super) fn last_position(item: &Item) -> Option<isize> {
    let of = |table: &Table| {
        let own = table.position().filter(|_| has_header(table));
        own.max(table.iter().filter_map(|(_, inner)| last_position(inner)).max())
    };
    match item {
        Item::Table(table) => of(table),
        Item::ArrayOfTables(tables) => tables.iter().filter_map(of).max(),
        Item::None | Item::Value(_) => None,
    }
}

pub(super) fn has_header(table: &Table) -> bool {
    table.position().is_some() && !table.is_implicit() && !table.is_dotted()
}

/// The table of a limit, without the defaults.
pub(super) fn limit_toml(limit: &Limit) -> Table {
    let mut rules: Array = limit.rules().iter().map(rule_toml).collect();
    if rules.len() > 2 {
        rules.iter_mut().for_each(|rule| rule.decor_mut().set_prefix("\n    "));
        rules.set_trailing_comma(true);
        rules.set_trailing("\n");
    }
    let mut table = Table::new();
    if limit.mode() == LimitMode::Monitor {
        table.insert("mode", toml_edit::value("monitor"));
    }
    table.insert("rules", toml_edit::value(rules));
    table
}

/// Every limit as a table of a document; what a default is says so.
pub fn limits_toml(limits: &Limits) -> String {
    let default = Limits::default();
    let table = |limit: &Limit| {
        let note = if default.get(limit.name()) == Some(limit) { " # default" } else { "" };
        format!("[limits.{}]{note}\n{}", limit.name(), limit_toml(limit))
    };
    limits.iter().map(table).collect::<Vec<_>>().join("\n")
}

fn rule_toml(rule: &Rule) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert("max", i64::from(rule.max).into());
    match &rule.span {
        RuleSpan::Sliding(window) => drop(table.insert("window", span_text(*window).into())),
        RuleSpan::Calendar { unit, zone } => {
            table.insert("per", unit.as_str().into());
            if let Some(name) = zone.iana_name().filter(|name| *name != "UTC") {
                table.insert("timezone", name.into());
            }
        }
    }
    table.insert("then", rule.then.as_str().into());
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_limits_are_written_as_they_are_read_and_a_default_says_so() {
        let text = "[limits.sms-total]\nmode = \"monitor\"\nrules = []\n\n[limits.custom.reply]\n\
            rules = [{ max = 3, per = \"month\", timezone = \"Asia/Shanghai\", then = \"block\" }]\n";
        let read = |text: &str| crate::config::read_limits(text).unwrap();
        let written = limits_toml(&read(text));
        assert_eq!(read(&written), read(text), "{written}");
        let notes = written.matches("] # default\n").count();
        assert_eq!(notes, Limits::default().iter().count() - 1, "{written}");
        assert!(written.contains("[limits.sms-total]\n") && written.contains("[limits.custom.reply]\n"));
    }

    const APPLICATIONS: &str = r#"# Everybody reads it.
[[apps]] # notes
name = "wiki"
hosts = ["wiki.example"] # one
who = ['group:staff', "ada"]

# Only on call.
[[apps.parts]]
path = "/admin/*" # dangerous
who = ["group:on-call"]

# Keys.
[[apps.parts]]
path = "/keys/*"
factor_within = "60m"
signed_in_within = "60m"

# Sold in May.
[[apps]]
name = "shop"
hosts = ["shop.example"]
# The end.
"#;

    #[test]
    fn an_application_is_changed_and_comments_stay_with_what_they_are_about() {
        let shop = "[[apps]]\nname = \"shop\"\nhosts = [\"shop.example\"]\nwho = []\npublic = []\n";
        assert_eq!(with_app(APPLICATIONS, "shop", Some(shop)).unwrap(), APPLICATIONS);
        let wiki = r#"[[apps]]
name = "notes"
hosts = ["wiki.example", "notes.example"]
who = ["group:staff"]
public = ["/health"]
[[apps.parts]]
path = "/keys/*"
factor_within = "1h"
signed_in_within = "1h"
[[apps.parts]]
path = "/x"
who = []
"#;
        let changed = with_app(APPLICATIONS, "wiki", Some(wiki)).unwrap();
        let gone =
            "# Only on call.\n[[apps.parts]]\npath = \"/admin/*\" # dangerous\nwho = [\"group:on-call\"]\n\n";
        let expected = APPLICATIONS
            .replace(gone, "")
            .replace("name = \"wiki\"", "name = \"notes\"")
            .replace("[\"wiki.example\"]", "[\"wiki.example\", \"notes.example\"]")
            .replace("'group:staff', \"ada\"]\n", "'group:staff']\npublic = [\"/health\"]\n")
            .replace("\"60m\"\n\n", "\"60m\"\n\n[[apps.parts]]\npath = \"/x\"\nwho = []\n\n");
        assert_eq!(changed, expected);
    }

    #[test]
    fn a_client_is_changed_and_comments_stay_with_what_they_are_about() {
        let old = "[[apps]]\nname = \"dash\"\n\n# Since May.\n[apps.oidc] # beta\nredirect_uris = [\n    # Theirs.\n    \"https://a.example/cb\",\n]\n\n\
            [[apps.parts]]\npath = \"/x\"\nwho = []\n\n[[apps]]\nname = \"shop\"\nhosts = [\"shop.example\"]\n";
        let app = |rest: &str| format!("[[apps]]\nname = \"dash\"\nhosts = []\n{rest}");
        let part = "[[apps.parts]]\npath = \"/x\"\nwho = []\n";
        let client = "[apps.oidc]\nredirect_uris = [\"https://a.example/cb\"]\n";
        assert_eq!(with_app(old, "dash", Some(&app(&format!("{client}{part}")))).unwrap(), old);
        let more = client.replace("cb\"]", "cb\", \"https://b.example/cb\"]\npkce = \"required\"");
        let changed = with_app(old, "dash", Some(&app(&format!("{more}{part}")))).unwrap();
        let expected = old.replace(
            "    \"https://a.example/cb\",\n]\n",
            "    \"https://a.example/cb\",\n    \"https://b.example/cb\",\n]\npkce = \"required\"\n",
        );
        assert_eq!(changed, expected);
        let without = with_app(old, "dash", Some(&app(part))).unwrap();
        assert!(!without.contains("oidc") && without.contains("[[apps.parts]]"), "{without}");
        // A new one is a table of its own, and one in braces stays there.
        let bare = "[[apps]]\nname = \"dash\"\nhosts = [\"d.example\"]\n\n[[apps]]\nname = \"shop\"\n";
        let added = with_app(bare, "dash", Some(&app(client).replace("[]", "[\"d.example\"]"))).unwrap();
        assert_eq!(added, bare.replace("\"]\n\n", &format!("\"]\n\n{client}\n")));
        let braces =
            "[[apps]]\nname = \"dash\"\noidc = { redirect_uris = [\"https://a.example/cb\"] } # short\n";
        let changed = with_app(braces, "dash", Some(&app(&more))).unwrap();
        assert!(
            changed.contains("oidc = { redirect_uris")
                && changed.contains("b.example")
                && changed.contains("# short"),
            "{changed}"
        );
    }

    #[test]
    fn a_name_that_goes_takes_its_comment_along() {
        let old = "[[apps]]\nname = \"wiki\"\nhosts = [\"a.example\"]\nwho = [\n    \"ada\", # until June\n    # Of the office.\n    \"bob\", # on call\n    \"eve\", # guest\n]\n";
        let who = |names: &str| {
            let new = format!("[[apps]]\nname = \"wiki\"\nhosts = [\"a.example\"]\nwho = [{names}]\n");
            with_app(old, "wiki", Some(&new)).unwrap()
        };
        let ada = "    \"ada\", # until June\n";
        assert_eq!(who(r#""bob", "eve""#), old.replace(ada, ""));
        assert_eq!(who(r#""ada", "eve""#), old.replace("    # Of the office.\n    \"bob\", # on call\n", ""));
        assert_eq!(who(r#""eve""#).matches('#').count(), 1, "{}", who(r#""eve""#));
        assert!(!who(r#""zoe", "eve""#).contains("until June"));
    }

    #[test]
    fn a_name_that_looks_like_a_duration_is_changed_to_one_as_long() {
        let app = |name: &str| {
            format!("[[apps]]\nname = \"{name}\"\nhosts = [\"a.example\"]\nwho = [\"{name}\"]\n")
        };
        assert_eq!(with_app(&app("1h"), "1h", Some(&app("60m"))).unwrap(), app("60m"));
    }

    #[test]
    fn an_application_is_added_as_the_last_and_removed_with_its_comments() {
        let new = "[[apps]]\nname = \"files\"\nhosts = [\"files.example\"]\n";
        let added = with_app(APPLICATIONS, "", Some(new)).unwrap();
        assert_eq!(added, APPLICATIONS.replace("# The end", &format!("\n{new}# The end")));
        assert_eq!(with_app("", "", Some(new)).unwrap(), new);
        let without = with_app(&added, "wiki", None).unwrap();
        assert_eq!(without, &added[added.find("# Sold").unwrap()..]);
        assert_eq!(with_app(new, "files", None).unwrap(), "");
        assert_eq!(with_app(APPLICATIONS, "nothing", None).unwrap(), APPLICATIONS);
    }

    #[test]
    fn applications_in_one_line_are_changed_too() {
        let toml =
            "apps = [{ name = \"wiki\", hosts = [\"a.example\"], parts = [{ path = \"/x\", who = [] }] }]\n";
        let new = "[[apps]]\nname = \"wiki\"\nhosts = [\"b.example\"]\n[[apps.parts]]\npath = \"/x\"\nwho = [\"ada\"]\n";
        let changed: DocumentMut = with_app(toml, "wiki", Some(new)).unwrap().parse().unwrap();
        assert_eq!(changed["apps"][0]["hosts"][0].as_str(), Some("b.example"));
        assert_eq!(changed["apps"][0]["parts"][0]["who"][0].as_str(), Some("ada"));
    }
}
