//! Environment variables over the file: `GATEHOUSE__SECTION__KEY=value`.

use std::sync::Arc;

use super::document::{ConfigTable, ConfigValue, TableEntry, ValueNode, parse_value};
use super::error::{ConfigLocation, ConfigProblem};

/// Two underscores: `GATEHOUSE_ANYTHING` belongs to something else and is ignored.
const PREFIX: &str = "GATEHOUSE__";

/// Names and values, as at the start of the process.
pub type Environment = Vec<(String, String)>;

/// This process's variables that are meant for the configuration.
pub fn of_process() -> Environment {
    std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(PREFIX))
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
        let node = ValueNode { value: ConfigValue::Raw(value.to_owned()), place: place.clone() };
        table.insert(key.clone(), TableEntry { key: place.clone(), node });
        return Ok(());
    }
    let fresh = || TableEntry {
        key: place.clone(),
        node: ValueNode { value: ConfigValue::Table(ConfigTable::new()), place: place.clone() },
    };
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
