//! The document as its page shows it: tags, calls, and the types that their fields name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

use super::fields::{FieldView, fields, parameters};
use super::read::{ApiText, entries, items, reference, resolved, text, word};
use crate::web::kit::problem::Kind;
use crate::web::kit::problem_kind;
use crate::web::openapi::DOCUMENT;

/// All that the page shows of the API.
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
    /// By name, with their status.
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

/// A type that a field names.
pub struct TypeView {
    pub name: &'static str,
    pub about: ApiText,
    pub fields: Vec<FieldView>,
    /// It is one of these.
    pub choices: Vec<&'static str>,
}

pub static API: LazyLock<ApiView> = LazyLock::new(|| {
    let tags: Vec<_> = items(&DOCUMENT["tags"]).map(tag).collect();
    let types = types(&tags);
    ApiView { about: text(&DOCUMENT["info"]["description"]), tags, types }
});

fn tag(tag: &'static Value) -> TagView {
    let name = word(&tag["name"]);
    let calls = entries(&DOCUMENT["paths"])
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
            .filter_map(|(name, _)| problem_kind::named(name))
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

/// An answer that is no problem.
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
        let schema = &DOCUMENT["components"]["schemas"][name];
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_of_the_document_is_shown_once_with_its_errors_and_an_example() {
        let calls: Vec<_> = API.tags.iter().flat_map(|tag| &tag.calls).collect();
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
        assert!(API.types.iter().any(|kind| kind.name == "Solution" && kind.fields.len() == 3));
    }
}
