//! The document compared with the URL table, and checked for consistency.

use std::collections::BTreeSet;

use gatehouse::web::http::problem_kind;
use serde_json::{Value, json};

use super::fits::*;
use crate::support::app::{Answer, Store, TestApp};
use crate::support::routes::{API, table};

/// Every call in the document, such as `POST /api/v1/login`.
fn described(document: &Value) -> BTreeSet<String> {
    let calls = document["paths"].as_object().unwrap().iter().flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    calls.collect()
}

/// Every call of the API in the URL table, and those for operators.
fn in_the_table() -> BTreeSet<String> {
    let is_told = |path: &str| path.starts_with(API) || ["/healthz", "/readyz", "/metrics"].contains(&path);
    let ways = table().into_iter().filter(|(_, path)| is_told(path));
    ways.map(|(method, path)| format!("{method} {path}")).collect()
}

#[test]
fn every_call_of_the_table_is_described_and_nothing_else() {
    assert_eq!(described(&document()), in_the_table());
}

#[tokio::test]
async fn every_call_that_is_described_is_answered() {
    let app = TestApp::on(Store::Memory).at_localhost().start().await;
    for call in described(&document()) {
        let (method, path) = call.split_once(' ').unwrap();
        let client = app.client();
        let path = path
            .replace("{prefix}", "+861380013")
            .replace("{name}", "reply")
            .replace("{limit}", "login-account")
            .replace("{subject}", "x");
        let request = client.http.request(method.parse().unwrap(), format!("{}{path}", app.url));
        let request = if method == "GET" { request } else { request.json(&json!({})) };
        let answer = Answer::read(request.send().await.unwrap()).await;
        assert!(!matches!(answer.status, 404 | 405), "{call}: {}", answer.status);
    }
    let served = app.client().get("/openapi.json").await;
    assert_eq!((&served.body, served.header("content-type")), (&document(), "application/json"));
}

/// The texts of examples are the product's, and an example fits its schema.
#[test]
fn examples_are_what_is_said() {
    let document = document();
    for (name, example) in document["components"]["examples"].as_object().unwrap() {
        let (value, kind) =
            (&example["value"], problem_kind::named(name).unwrap_or_else(|| panic!("{name} is no problem")));
        let told = (value["title"].as_str(), value["detail"].as_str(), value["status"].as_u64());
        assert_eq!(told, (Some(kind.title), Some(kind.detail), Some(kind.status.as_u16().into())), "{name}");
        assert_eq!(value["type"], format!("/problems/{name}"));
    }
    let mut checked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in item.as_object().unwrap().values() {
            let asked = &operation["requestBody"]["content"];
            let answers = operation["responses"].as_object().unwrap().values();
            let answers = answers.map(|response| &resolved(&document, response)["content"]);
            for content in answers.chain([asked]).filter_map(Value::as_object).flat_map(|map| map.values()) {
                let named = content["examples"].as_object().into_iter().flat_map(|map| map.values());
                let named = named.map(|example| &resolved(&document, example)["value"]);
                for example in named.chain(content.get("example")) {
                    fits(&document, &content["schema"], example, path).unwrap();
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 40, "only {checked} examples");
}

/// An unused definition suggests a typing mistake.
#[test]
fn nothing_is_defined_without_a_use() {
    let document = document();
    let text = document.to_string();
    for (kind, parts) in document["components"].as_object().unwrap() {
        for name in parts.as_object().unwrap().keys().filter(|_| kind != "securitySchemes") {
            assert!(text.contains(&format!("\"#/components/{kind}/{name}\"")), "{kind}/{name} is not used");
        }
    }
}
