//! The document compared with the URL table, and checked for consistency.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use gatehouse::web::http::problem::kind_named;
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
    let document = document();
    for call in described(&document) {
        let (method, path) = call.split_once(' ').unwrap();
        let operation = &document["paths"][path][method.to_lowercase()];
        let client = app.client();
        let path = path
            .replace("{prefix}", "+861380013")
            .replace("{name}", "reply")
            .replace("{limit}", "login-account")
            .replace("{subject}", "x");
        let request = client.http.request(method.parse().unwrap(), format!("{}{path}", app.url));
        let body = operation.pointer("/requestBody/content/application~1json/example");
        let request = if method == "GET" { request } else { request.json(body.unwrap_or(&json!({}))) };
        let answer = Answer::read(request.send().await.unwrap()).await;
        // The example is nobody's invitation.
        let is_there = !matches!(answer.status, 404 | 405) || answer.problem() == "invitation-ended";
        assert!(is_there, "{call}: {}", answer.status);
        let security = operation["security"].as_array().unwrap();
        let is_open = security.is_empty() || security.contains(&json!({}));
        let turned_away = ["unauthenticated", "invalid-token"].contains(&answer.problem());
        assert_eq!(turned_away, !is_open, "{call}: {}", answer.text);
    }
    let served = app.client().get("/openapi.json").await;
    assert_eq!((&served.body, served.header("content-type")), (&document, "application/json"));
}

/// As forms send fields that nobody filled in.
#[tokio::test]
async fn a_filter_that_is_empty_is_none() {
    let app = TestApp::on(Store::Memory).start().await;
    let (boss, document) = (app.sign_in_admin("boss").await, document());
    let mut asked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for parameter in item["get"]["parameters"].as_array().into_iter().flatten() {
            if parameter["in"] == "query" {
                let asked_for = format!("{path}?{}=", parameter["name"].as_str().unwrap());
                let answer = boss.get(&asked_for).await;
                assert_eq!(answer.status, 200, "{asked_for}: {}", answer.text);
                asked += 1;
            }
        }
    }
    assert!(asked > 20, "only {asked} parameters");
}

/// Each body that the schema of a call allows has what the call needs: no field may be left out but for another.
#[test]
fn a_body_that_needs_one_of_several_fields_says_so() {
    let document = document();
    let proof = json!({ "altcha": "e30=" });
    for (schema, bodies, allowed) in [
        ("Solution", vec![json!({ "id": "x", "answer": "y" }), proof], true),
        ("Solution", vec![json!({}), json!({ "id": "x" }), json!({ "answer": "y" })], false),
        ("SecondFactor", vec![json!({ "totp": "492039" }), json!({ "recovery": "x", "trust": true })], true),
        (
            "SecondFactor",
            vec![json!({}), json!({ "totp": null }), json!({ "totp": "1", "recovery": "x" })],
            false,
        ),
        ("LimitsRequest", vec![json!({ "reason": "x", "toml": "" })], true),
        ("LimitsRequest", vec![json!({ "reason": "x" }), json!({ "toml": "" })], false),
        ("PreviewRequest", vec![json!({}), json!({ "limits": {}, "toml": "" })], false),
        ("AppsRequest", vec![json!({ "reason": "x" })], false),
        ("AppsPreviewRequest", vec![json!({})], false),
        ("LogtoPayload", vec![json!({})], false),
    ] {
        let schema_of = json!({ "$ref": format!("#/components/schemas/{schema}") });
        for body in bodies {
            assert_eq!(fits(&document, &schema_of, &body, schema).is_ok(), allowed, "{schema}: {body}");
        }
    }
}

/// The rules of those who make clients and pages of such documents.
#[test]
fn a_linter_finds_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/redocly-2.77.0");
    let (written, rules) = (tempfile::tempdir().unwrap(), include_str!("../../clients/redocly/redocly.yaml"));
    std::fs::write(written.path().join("openapi.json"), document().to_string()).unwrap();
    std::fs::write(written.path().join("redocly.yaml"), rules).unwrap();
    let mut linter = Command::new("node");
    linter.arg(folder.join("node_modules/@redocly/cli/bin/cli.js")).args(["lint", "openapi.json"]);
    // It would tell its makers of each run, and ask for a newer version.
    linter.envs([("REDOCLY_TELEMETRY", "off"), ("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")]);
    let told = linter.current_dir(written.path()).output().expect("node: scripts/setup installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(told.status.success(), "{}{}", text(&told.stdout), text(&told.stderr));
}

/// The texts of examples are the product's, and an example fits its schema.
#[test]
fn examples_are_what_is_said() {
    let document = document();
    for (name, example) in document["components"]["examples"].as_object().unwrap() {
        let (value, kind) =
            (&example["value"], kind_named(name).unwrap_or_else(|| panic!("{name} is no problem")));
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
