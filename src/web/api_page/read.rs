//! The parts of the document, read as they are needed.

use serde_json::{Map, Value};

use crate::web::openapi::DOCUMENT;

/// A text of the document, with `code` in it.
#[derive(Clone, Copy)]
pub struct ApiText(pub &'static str);

impl ApiText {
    /// In turn what is plain and what is code.
    pub fn parts(&self) -> Vec<(bool, &'static str)> {
        self.0.split('`').enumerate().map(|(index, part)| (index % 2 == 1, part)).collect()
    }
}

pub fn word(value: &'static Value) -> &'static str {
    value.as_str().unwrap_or_default()
}

pub fn text(value: &'static Value) -> ApiText {
    ApiText(word(value))
}

pub fn items(value: &'static Value) -> impl Iterator<Item = &'static Value> {
    value.as_array().into_iter().flatten()
}

pub fn entries(value: &'static Value) -> impl Iterator<Item = (&'static str, &'static Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

/// The name of what a reference stands for.
pub fn reference(value: &'static Value) -> Option<&'static str> {
    value.get("$ref")?.as_str()?.rsplit('/').next()
}

/// What a reference stands for.
pub fn resolved(value: &'static Value) -> &'static Value {
    let path = value.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| DOCUMENT.pointer(path)).unwrap_or(value)
}
