//! Whoever has a session can begin many calls and keep their bodies back. When it has ended, none of them does anything.

use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream;
use reqwest::Body;
use serde_json::json;
use tokio::sync::watch;

use super::fits::document;
use super::unstorable::{body, paths, start};

/// After the head, a byte of the body: the rest when it is time.
fn kept_back(text: String, go: watch::Receiver<bool>) -> Body {
    let (first, rest) = text.split_at(1);
    let parts = [first.to_owned(), rest.to_owned()].into_iter().enumerate();
    Body::wrap_stream(stream::unfold((parts, go), async |(mut parts, mut go)| {
        let (number, part) = parts.next()?;
        if number > 0 {
            go.wait_for(|go| *go).await.expect("the test goes on");
        }
        Some((Ok::<_, std::io::Error>(part), (parts, go)))
    }))
}

#[tokio::test]
async fn a_call_is_judged_when_its_body_is_there() {
    let app = start().await;
    let client = app.sign_in_admin("boss").await;
    let document = document();
    let (go, waiting) = watch::channel(false);
    let mut calls = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let security = operation["security"].as_array();
            let by_session = |ways: &Vec<serde_json::Value>| {
                ways.iter().any(|way| !way["session"].is_null()) && !ways.contains(&json!({}))
            };
            if schema.is_null() || !security.is_some_and(by_session) {
                continue;
            }
            let path = paths(path, "").remove(0);
            let body = kept_back(body(&document, schema, "").to_string(), waiting.clone());
            let request =
                client.http.request(method.to_uppercase().parse().unwrap(), format!("{}{path}", app.url));
            let request = request.header("content-type", "application/json").body(body);
            let what = format!("{method} {path}");
            calls.push(async move { (what, request.send().await.unwrap().status()) });
        }
    }
    assert!(calls.len() > 20, "{}", calls.len());
    let calls = tokio::spawn(join_all(calls));
    // A call that is judged once only after this proves nothing here, and fails nothing.
    tokio::time::sleep(Duration::from_secs(1)).await; // nothing tells that calls were judged whose bodies are not there
    assert_eq!(client.call("/logout", json!({})).await.status, 204);
    go.send(true).unwrap();
    // Whose bodies here are none that fit: nothing is done with them.
    const UNFIT: [&str; 3] = ["post /api/v1/admin/confirm", "post /api/v1/confirm", "post /api/v1/passkeys"];
    for (call, status) in calls.await.unwrap() {
        assert_eq!(status, if UNFIT.contains(&&*call) { 422 } else { 401 }, "{call}");
    }
}
