//! The part of JSON Schema that the document uses, and a check of one answer.

use serde_json::Value;

use crate::support::app::Answer;

pub fn document() -> Value {
    gatehouse::routes::DOCUMENT.clone()
}

/// The target of a `$ref`.
pub fn resolved<'a>(document: &'a Value, part: &'a Value) -> &'a Value {
    match part["$ref"].as_str() {
        Some(path) => {
            document.pointer(path.strip_prefix('#').unwrap()).unwrap_or_else(|| panic!("{path} is not there"))
        }
        None => part,
    }
}

/// Checks a value against a schema, with the part of JSON Schema that the document uses.
pub fn fits(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let schema = resolved(document, schema);
    let misfits = |choices: &[Value]| -> Vec<String> {
        choices.iter().filter_map(|choice| fits(document, choice, value, at).err()).collect()
    };
    for (how, most) in [("oneOf", 1), ("anyOf", usize::MAX)] {
        let Some(choices) = schema[how].as_array() else { continue };
        let misfits = misfits(choices);
        if !(1..=most).contains(&(choices.len() - misfits.len())) {
            return Err(format!("{at} fits not {how} them: {misfits:?}"));
        }
    }
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        return Err(format!("{at} is {value} and not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|wanted| !wanted.contains(value)) {
        return Err(format!("{at} is {value} and none of {}", schema["enum"]));
    }
    let kinds = match &schema["type"] {
        Value::Array(kinds) => kinds.as_slice(),
        // A choice among schemas, or a part of one, says no type of its own.
        Value::Null => return lacking(schema, value, at).map_or(Ok(()), Err),
        kind => std::slice::from_ref(kind),
    };
    let is = |kind: &Value| match kind.as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("boolean") => value.is_boolean(),
        Some("null") => value.is_null(),
        _ => panic!("{at}: this test knows no type {kind}"),
    };
    if !kinds.iter().any(is) {
        return Err(format!("{at} is {value} and none of {kinds:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        fits(document, &schema["items"], item, &format!("{at}[]"))?;
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for (name, field) in fields {
        let named = schema["properties"].get(name);
        let Some(inner) = named.or(schema.get("additionalProperties").filter(|any| any.is_object())) else {
            return Err(format!("{at}.{name} is not described"));
        };
        fits(document, inner, field, &format!("{at}.{name}"))?;
    }
    lacking(schema, value, at).map_or(Ok(()), Err)
}

fn lacking(schema: &Value, value: &Value, at: &str) -> Option<String> {
    let mut required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    required.find(|name| value.get(name).is_none()).map(|missing| format!("{at}.{missing} is missing"))
}

/// Checks one answer against the document: its status, type, headers and every field.
pub fn as_described(document: &Value, method: &str, path: &str, answer: &Answer) {
    let what = format!("{method} {path}: {} {}", answer.status, answer.text);
    let operation = &document["paths"][path][method];
    let response = operation["responses"].get(answer.status.to_string());
    let response = resolved(document, response.unwrap_or_else(|| panic!("{what} is not described")));
    for (name, header) in response["headers"].as_object().into_iter().flatten() {
        let required = resolved(document, header)["required"] == true;
        assert!(!required || !answer.header(name).is_empty(), "{what} has no {name}");
    }
    let Some(contents) = response["content"].as_object() else {
        assert!(answer.text.is_empty(), "{what} has a body");
        return;
    };
    let kind = answer.header("content-type").split(';').next().unwrap();
    let content = contents.get(kind).unwrap_or_else(|| panic!("{what} is {kind}, not {:?}", contents.keys()));
    if kind.ends_with("json") {
        fits(document, &content["schema"], &answer.body, "body")
            .unwrap_or_else(|misfit| panic!("{what}: {misfit}"));
    }
    if kind == "application/problem+json" {
        let examples: Vec<_> = content["examples"].as_object().unwrap().keys().map(String::as_str).collect();
        assert!(examples.contains(&answer.problem()), "{what} has no example");
    }
}
