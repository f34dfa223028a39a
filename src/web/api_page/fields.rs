//! A field as the page shows it: its type, its bounds, and whether it has to be there.

use serde_json::Value;

use super::read::{ApiText, entries, items, reference, resolved, text, word};

pub struct FieldView {
    pub name: &'static str,
    /// `path`, `query` or `header`; empty for a field of a body.
    pub place: &'static str,
    pub required: bool,
    /// In words: `string`, `array of integer`.
    pub kind: String,
    /// The type of its own that it or its items have.
    pub named: Option<&'static str>,
    pub bounds: Vec<String>,
    pub about: ApiText,
}

/// What has to be there comes first.
fn sorted(mut fields: Vec<FieldView>) -> Vec<FieldView> {
    fields.sort_by_key(|field| (!field.required, field.name));
    fields
}

pub fn fields(schema: &'static Value) -> Vec<FieldView> {
    let required = |name| items(&schema["required"]).any(|required| required == name);
    let others =
        schema.get("additionalProperties").filter(|others| others.is_object()).map(|others| ("*", others));
    let named = entries(&schema["properties"]).chain(others);
    sorted(named.map(|(name, field)| field_view(name, "", required(name), field, field)).collect())
}

pub fn parameters(parameters: &'static Value) -> Vec<FieldView> {
    let view = |parameter: &'static Value| {
        let required = parameter["required"] == true;
        field_view(
            word(&parameter["name"]),
            word(&parameter["in"]),
            required,
            &parameter["schema"],
            parameter,
        )
    };
    sorted(items(parameters).map(view).collect())
}

fn field_view(
    name: &'static str,
    place: &'static str,
    required: bool,
    schema: &'static Value,
    about: &'static Value,
) -> FieldView {
    let item = inner(schema);
    let named =
        reference(item).filter(|_| !resolved(item)["type"].is_string() || resolved(item)["type"] == "object");
    let about = match text(&about["description"]) {
        ApiText("") if named.is_none() => text(&resolved(item)["description"]),
        about => about,
    };
    FieldView { name, place, required, kind: kind(schema), named, bounds: bounds(resolved(item)), about }
}

/// What may be there if anything is: a field that may be null, too, is shown as what it is otherwise.
fn present(schema: &'static Value) -> &'static Value {
    items(&schema["oneOf"])
        .find(|choice| choice["type"] != "null")
        .filter(|_| nullable(schema))
        .unwrap_or(schema)
}

fn nullable(schema: &'static Value) -> bool {
    items(&schema["oneOf"]).any(|choice| choice["type"] == "null")
        || items(&schema["type"]).any(|kind| kind == "null")
}

/// The item of arrays and maps, within them all.
fn inner(schema: &'static Value) -> &'static Value {
    let schema = present(schema);
    match (&schema["items"], &schema["additionalProperties"]) {
        (item @ Value::Object(_), _) => inner(item),
        (_, item @ Value::Object(_)) if schema.get("properties").is_none() => inner(item),
        _ => schema,
    }
}

fn kind(schema: &'static Value) -> String {
    let whole = present(schema);
    let kind = match (&whole["items"], &whole["additionalProperties"]) {
        (item @ Value::Object(_), _) => format!("array of {}", kind(item)),
        (_, item @ Value::Object(_)) if whole.get("properties").is_none() => format!("map to {}", kind(item)),
        _ => match &resolved(whole)["type"] {
            Value::Array(kinds) => kinds[0].as_str().unwrap_or_default().to_owned(),
            kind => kind.as_str().unwrap_or("object").to_owned(),
        },
    };
    if nullable(schema) { format!("{kind} or null") } else { kind }
}

fn bounds(schema: &'static Value) -> Vec<String> {
    let mut bounds = Vec::new();
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> = choices.iter().filter_map(Value::as_str).collect();
        bounds.push(choices.join(" | "));
    }
    if let Some(format) = schema["format"].as_str().filter(|format| !["int32", "int64"].contains(format)) {
        bounds.push(format.to_owned());
    }
    for (least, most, unit) in [
        ("minLength", "maxLength", " characters"),
        ("minimum", "maximum", ""),
        ("minItems", "maxItems", " items"),
    ] {
        match (&schema[least], &schema[most]) {
            (Value::Null, Value::Null) => {}
            (least, Value::Null) if *least == 0 => {}
            (least, Value::Null) => bounds.push(format!("at least {least}{unit}")),
            (Value::Null, most) => bounds.push(format!("at most {most}{unit}")),
            (least, most) => bounds.push(format!("{least} to {most}{unit}")),
        }
    }
    if let Some(usual) = schema.get("default").filter(|usual| *usual != "") {
        bounds.push(format!("default {}", usual.as_str().map_or_else(|| usual.to_string(), str::to_owned)));
    }
    bounds
}
