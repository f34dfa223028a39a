//! A draft of JSON as the tree that the strict reader takes.

use serde_json::Value as Json;

use super::errors::{DraftError, whole_draft};
use crate::config::document::{Entry, Node, Table, Value};

/// The tree of the `limits` object.
pub(super) fn table(limits: &Json) -> Result<Table, DraftError> {
    match value(limits) {
        Value::Table(table) => Ok(table),
        other => {
            Err(DraftError::at("limits", format!("is {} where an object is wanted", other.kind()), None))
        }
    }
}

fn value(from: &Json) -> Value {
    match from {
        Json::Null => Value::Other("null"),
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(integer), _) => Value::Integer(Ok(integer)),
            (None, Some(fraction)) if !number.is_u64() => Value::Fraction(fraction),
            _ => Value::Integer(Err(number.to_string())),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(items) => Value::Array(items.iter().map(node).collect()),
        Json::Object(entries) => Value::Table(
            entries
                .iter()
                .map(|(key, inner)| (key.clone(), Entry { key: whole_draft(), node: node(inner) }))
                .collect(),
        ),
    }
}

fn node(from: &Json) -> Node {
    Node { value: value(from), place: whole_draft() }
}
