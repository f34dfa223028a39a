//! The limits of a draft or a document as the tree that the strict reader takes.

use serde_json::Value as Json;

use super::errors::whole_draft;
use crate::config::document::{ConfigTable, ConfigValue, TableEntry, ValueNode};
use crate::config::error::{ConfigError, ConfigLocation};
use crate::config::limits::Limits;
use crate::config::reader::{self, ProblemList};

/// A document with nothing but the value of `key`.
pub(super) fn of_json(key: &str, value: &Json) -> ConfigTable {
    let place = whole_draft();
    ConfigTable::from([(key.to_owned(), TableEntry::new(value_of(value, &place), place))])
}

fn value_of(from: &Json, place: &ConfigLocation) -> ConfigValue {
    match from {
        Json::Null => ConfigValue::Other("null"),
        Json::Bool(value) => ConfigValue::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => ConfigValue::Integer(Ok(integer)),
            (None, Some(fraction)) if !number.is_u64() => ConfigValue::Fraction(fraction),
            _ => ConfigValue::Integer(Err(number.to_string())),
        },
        Json::String(text) => ConfigValue::Text(text.clone()),
        Json::Array(items) => {
            let node = |item| ValueNode { value: value_of(item, place), place: place.clone() };
            ConfigValue::Array(items.iter().map(node).collect())
        }
        Json::Object(entries) => {
            let entry = |(key, inner): (&String, _)| {
                (key.clone(), TableEntry::new(value_of(inner, place), place.clone()))
            };
            ConfigValue::Table(entries.iter().map(entry).collect())
        }
    }
}

/// The limits of a document by their full names; the others have their defaults.
pub(super) fn named(root: &ConfigTable) -> Vec<(String, &TableEntry)> {
    let limits = || root.get("limits").and_then(TableEntry::table).into_iter().flatten();
    let custom = limits().filter(|(name, _)| *name == "custom").filter_map(|(_, custom)| custom.table());
    let custom = custom.flatten().map(|(name, entry)| (format!("custom.{name}"), entry));
    let built_in = limits().filter(|(name, _)| *name != "custom").map(|(name, entry)| (name.clone(), entry));
    built_in.chain(custom).collect()
}

/// The limits of a document that contains nothing else, without the variables.
pub(super) fn limits(root: ConfigTable) -> Result<Limits, ConfigError> {
    let problems = ProblemList::default();
    let limits = reader::read(root, &problems, |root| root.section("limits", Limits::read));
    problems.into_result(limits)
}
