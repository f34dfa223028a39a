//! The limits of a draft or a document as the tree that the strict reader takes.

use serde_json::Value as Json;

use super::errors::whole_draft;
use crate::config::document::{Entry, Node, Table, Value};
use crate::config::error::ConfigError;
use crate::config::limits::Limits;
use crate::config::reader::{self, Problems};

pub(super) fn of_json(from: &Json) -> Value {
    match from {
        Json::Null => Value::Other("null"),
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Integer(Ok(integer)),
            (None, Some(fraction)) if !number.is_u64() => Value::Fraction(fraction),
            _ => Value::Integer(Err(number.to_string())),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => {
            let node = |item| Node { value: of_json(item), place: whole_draft() };
            Value::Array(items.iter().map(node).collect())
        }
        Json::Object(entries) => {
            let entry = |(key, inner): (&String, _)| (key.clone(), Entry::new(of_json(inner), whole_draft()));
            Value::Table(entries.iter().map(entry).collect())
        }
    }
}

/// The limits that a document names by their full names; the others are at their defaults.
pub(super) fn named(root: &Table) -> Vec<(String, &Entry)> {
    let limits = || root.get("limits").and_then(Entry::table).into_iter().flatten();
    let custom = limits().filter(|(name, _)| *name == "custom").filter_map(|(_, custom)| custom.table());
    let custom = custom.flatten().map(|(name, entry)| (format!("custom.{name}"), entry));
    let built_in = limits().filter(|(name, _)| *name != "custom").map(|(name, entry)| (name.clone(), entry));
    built_in.chain(custom).collect()
}

/// The limits of a document that has nothing else in it, without the variables.
pub(super) fn limits(root: Table) -> Result<Limits, ConfigError> {
    let problems = Problems::default();
    let limits = reader::read(root, &problems, |root| root.section("limits", Limits::read));
    let problems = problems.into_inner();
    if problems.is_empty() { Ok(limits) } else { Err(ConfigError::new(problems)) }
}
