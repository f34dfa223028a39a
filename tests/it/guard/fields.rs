//! The `RateLimit` fields of an attempt: those of a password at our own sign-in.

use serde_json::{Value, json};

use super::{Program, start};
use crate::support::app::{Answer, Client, Store, on_both_stores};

on_both_stores!(
    an_attempt_has_the_fields_of_a_password_here,
    a_known_device_is_told_of_only_if_its_own_limit_decides,
);

/// Both fields, with the names of our own limits.
fn fields(answer: &Answer) -> [String; 2] {
    ["ratelimit-policy", "ratelimit"].map(|name| answer.header(name).replace("guard-", "login-"))
}

async fn here(client: &Client) -> [String; 2] {
    fields(&client.login("ada", "a wrong password").await)
}

async fn there(program: &Program, body: Value) -> [String; 2] {
    let answer = program.call("", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    if let Some(attempt) = answer.body["attempt"].as_str() {
        assert_eq!(program.tell(attempt, "failure").await.status, 200);
    }
    fields(&answer)
}

async fn an_attempt_has_the_fields_of_a_password_here(store: Store) {
    let (app, _, shop) = start(store).await;
    let stranger = app.client();
    for attempt in 0..4 {
        let body = json!({ "login": "ada", "address": "203.0.113.7" });
        let (theirs, ours) = (there(&shop, body).await, here(&stranger).await);
        assert_eq!(theirs, ours, "attempt {attempt}");
        assert!(theirs[0].starts_with("\"login-account\";q=3;w=60"), "{theirs:?}");
        let full = if attempt < 3 { "" } else { "\"login-account\";r=0;t=60" };
        assert_eq!(theirs[1], full, "while there is room nobody is told how much");
    }
}

async fn a_known_device_is_told_of_only_if_its_own_limit_decides(store: Store) {
    let (_app, _, shop) = start(store).await;
    let device = shop.succeed("ada").await;
    let stranger = there(&shop, json!({ "login": "bob", "address": "203.0.113.7" })).await;
    let body = json!({ "login": "ada", "address": "203.0.113.7", "device": device });
    for _ in 0..3 {
        assert_eq!(there(&shop, body.clone()).await, stranger);
    }
    let [policy, standing] = there(&shop, body).await;
    assert!(policy.starts_with("\"login-device\";q=3;w=60"), "{policy}");
    assert_eq!(standing, "\"login-device\";r=0;t=60");
}

/// Whoever has no token learns nothing, and a body that is none is no attempt.
#[tokio::test]
async fn what_is_no_attempt_has_none() {
    let (app, _, shop) = start(Store::Memory).await;
    let bad = shop.call("", json!({ "login": "ada", "address": "nowhere" })).await;
    assert_eq!((bad.status, fields(&bad)), (422, [String::new(), String::new()]));
    let request = app.client().http.post(format!("{}/api/v1/attempts", app.url));
    let answer = Answer::read(request.json(&json!({ "login": "ada" })).send().await.unwrap()).await;
    assert_eq!((answer.status, fields(&answer)), (401, [String::new(), String::new()]));
}
