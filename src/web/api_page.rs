//! `/api`: the API for people, drawn from the document that programs read: tags, calls, and the types that their fields name.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use serde_json::{Map, Value};

use crate::web::http::problem::{Kind, kind_named};
use crate::web::http::{Layout, PageRequest, Problem};
use crate::web::openapi::ApiDocument;

#[derive(Template)]
#[template(path = "pages/api.html")]
pub struct ApiPage {
    layout: Layout,
    api: &'static ApiView,
}

impl ApiPage {
    pub fn new(visit: &PageRequest, document: &'static Value) -> Self {
        Self { layout: visit.layout("/api", None), api: ApiView::of(document) }
    }
}

pub async fn show(visit: PageRequest) -> Result<HttpResponse, Problem> {
    let document = ApiDocument::of(visit.request())?;
    Ok(visit.page(StatusCode::OK, &ApiPage::new(&visit, document)))
}

pub struct ApiView {
    pub about: ApiText,
    pub tags: Vec<TagView>,
    pub types: Vec<TypeView>,
}

pub struct TagView {
    pub name: &'static str,
    pub about: ApiText,
    pub calls: Vec<CallView>,
}

pub struct CallView {
    pub id: &'static str,
    pub method: String,
    pub path: &'static str,
    pub summary: ApiText,
    pub about: ApiText,
    /// The key of the words for what the caller shows.
    pub shows: &'static str,
    pub parameters: Vec<FieldView>,
    pub body: Vec<FieldView>,
    pub answers: Vec<AnswerView>,
    pub problems: Vec<Kind>,
    pub curl: String,
}

pub struct AnswerView {
    pub status: &'static str,
    pub about: ApiText,
    pub headers: Vec<(&'static str, ApiText)>,
    pub fields: Vec<FieldView>,
    pub example: Option<String>,
}

pub struct TypeView {
    pub name: &'static str,
    pub about: ApiText,
    pub fields: Vec<FieldView>,
    pub choices: Vec<&'static str>,
}

/// What references of the document are to.
static DOCUMENT: OnceLock<&Value> = OnceLock::new();

fn document() -> &'static Value {
    DOCUMENT.get().copied().unwrap_or(&Value::Null)
}

impl ApiView {
    /// The view of the document, which is made once.
    pub fn of(document: &'static Value) -> &'static Self {
        static API: OnceLock<ApiView> = OnceLock::new();
        DOCUMENT.get_or_init(|| document);
        API.get_or_init(|| {
            let tags: Vec<_> = items(&document["tags"]).map(tag).collect();
            let types = types(&tags);
            Self { about: text(&document["info"]["description"]), tags, types }
        })
    }
}

fn tag(tag: &'static Value) -> TagView {
    let name = word(&tag["name"]);
    let calls = entries(&document()["paths"])
        .flat_map(|(path, methods)| entries(methods).map(move |(method, call)| (path, method, call)))
        .filter(|(.., call)| call["tags"][0] == *name)
        .map(|(path, method, call)| call_view(path, method, call))
        .collect();
    TagView { name, about: text(&tag["description"]), calls }
}

fn call_view(path: &'static str, method: &str, call: &'static Value) -> CallView {
    let shows = match items(&call["security"]).next() {
        None => "api.shows-nothing",
        Some(scheme) if scheme.get("token").is_some() => "api.shows-token",
        Some(_) => "api.shows-session",
    };
    let problem = |(_, answer): (_, &'static Value)| {
        entries(&answer["content"]["application/problem+json"]["examples"])
            .filter_map(|(name, _)| kind_named(name))
    };
    CallView {
        id: word(&call["operationId"]),
        method: method.to_uppercase(),
        path,
        summary: text(&call["summary"]),
        about: text(&call["description"]),
        shows,
        parameters: parameters(&call["parameters"]),
        body: fields(resolved(&call["requestBody"]["content"]["application/json"]["schema"])),
        answers: entries(&call["responses"]).filter_map(answer).collect(),
        problems: entries(&call["responses"]).flat_map(problem).collect(),
        curl: curl(path, method, call),
    }
}

fn answer((status, answer): (&'static str, &'static Value)) -> Option<AnswerView> {
    let content = entries(&answer["content"]).next();
    if content.is_some_and(|(kind, _)| kind == "application/problem+json") {
        return None;
    }
    let content = content.map_or(&Value::Null, |(_, content)| content);
    let header = |(name, header)| (name, text(&resolved(header)["description"]));
    let example = content.get("example").map(|example| match example {
        Value::String(text) => text.clone(),
        example => format!("{example:#}"),
    });
    Some(AnswerView {
        status,
        about: text(&answer["description"]),
        headers: entries(&answer["headers"]).map(header).collect(),
        fields: fields(resolved(&content["schema"])),
        example,
    })
}

/// The types that fields name, and those that these name in turn.
fn types(tags: &[TagView]) -> Vec<TypeView> {
    let calls = tags.iter().flat_map(|tag| &tag.calls);
    let shown =
        calls.flat_map(|call| call.body.iter().chain(call.answers.iter().flat_map(|answer| &answer.fields)));
    let mut open: Vec<_> = shown.filter_map(|field| field.named).collect();
    let (mut seen, mut types) = (BTreeSet::new(), Vec::new());
    while let Some(name) = open.pop() {
        if !seen.insert(name) {
            continue;
        }
        let schema = &document()["components"]["schemas"][name];
        let choices: Vec<_> = items(&schema["oneOf"]).filter_map(reference).collect();
        let fields = fields(schema);
        open.extend(fields.iter().filter_map(|field| field.named).chain(choices.iter().copied()));
        types.push(TypeView { name, about: text(&schema["description"]), fields, choices });
    }
    types.sort_by_key(|kind| kind.name);
    types
}

fn curl(path: &str, method: &str, call: &Value) -> String {
    let mut url = format!("https://gatehouse.example{path}");
    let mut parts = Vec::new();
    for parameter in call["parameters"].as_array().into_iter().flatten() {
        let (name, example) = (&parameter["name"], &parameter["example"]);
        let (Some(name), Some(example)) = (name.as_str(), example.as_str()) else { continue };
        match parameter["in"].as_str() {
            Some("path") => url = url.replace(&format!("{{{name}}}"), example),
            _ => parts.push(format!("-H '{name}: {example}'")),
        }
    }
    let security = call["security"][0].as_object();
    if security.is_some_and(|scheme| scheme.contains_key("token")) {
        parts.push("-H 'Authorization: Bearer ght_…'".to_owned());
    } else if security.is_some() {
        parts.push("-b cookies.txt".to_owned());
    }
    if call["responses"].to_string().contains("Cookie")
        && call["responses"].to_string().contains("Set-Cookie")
    {
        parts.push("-c cookies.txt".to_owned());
    }
    if let Some(example) = call["requestBody"]["content"]["application/json"].get("example") {
        let body = example.to_string().replace('\'', "'\\''");
        parts.push(format!("-H 'Content-Type: application/json' \\\n  -d '{body}'"));
    }
    let first = if method == "get" {
        format!("curl {url}")
    } else {
        format!("curl -X {} {url}", method.to_uppercase())
    };
    [first].into_iter().chain(parts).collect::<Vec<_>>().join(" \\\n  ")
}

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

pub fn reference(value: &'static Value) -> Option<&'static str> {
    value.get("$ref")?.as_str()?.rsplit('/').next()
}

pub fn resolved(value: &'static Value) -> &'static Value {
    let path = value.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
    path.and_then(|path| document().pointer(path)).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::DOCUMENT;

    #[test]
    fn every_call_of_the_document_is_shown_once_with_its_errors_and_an_example() {
        let calls: Vec<_> = ApiView::of(&DOCUMENT).tags.iter().flat_map(|tag| &tag.calls).collect();
        let described = entries(&DOCUMENT["paths"]).flat_map(|(_, methods)| entries(methods)).count();
        assert_eq!(calls.len(), described);
        let login = calls.iter().find(|call| call.path == "/api/v1/login").unwrap();
        assert!(login.problems.iter().any(|problem| problem.name == "throttled"));
        assert!(
            login.curl.starts_with("curl -X POST https://gatehouse.example/api/v1/login"),
            "{}",
            login.curl
        );
        assert!(login.body.iter().any(|field| field.name == "captcha" && field.named == Some("Solution")));
        assert!(
            ApiView::of(&DOCUMENT).types.iter().any(|kind| kind.name == "Solution" && kind.fields.len() == 3)
        );
    }
}
