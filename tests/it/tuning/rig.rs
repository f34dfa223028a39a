//! The common parts of tests that change limits: an administrator, and the calls that they make.

use serde_json::{Value, json};

use crate::support::app::{Answer, Client, PASSWORD, TestApp};

pub const LIMITS: &str = "/api/v1/admin/limits";

/// Signs in an administrator.
pub async fn admin(app: &TestApp, name: &str) -> Client {
    sign_in(app, name, app.client()).await
}

/// The same at an address, behind a proxy.
pub async fn admin_from(app: &TestApp, name: &str, address: &str) -> Client {
    sign_in(app, name, app.client_at(address)).await
}

async fn sign_in(app: &TestApp, name: &str, client: Client) -> Client {
    app.administrator(name).await;
    assert_eq!(client.login(name, PASSWORD).await.status, 200);
    client
}

/// The version, and the limits in the form that can be sent back.
pub async fn shown(client: &Client) -> (String, Value) {
    let answer = client.get(LIMITS).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("etag"), format!("\"{}\"", answer.body["version"].as_str().unwrap()));
    (answer.body["version"].as_str().unwrap().to_owned(), answer.body["limits"].clone())
}

pub async fn put(client: &Client, version: &str, body: Value) -> Answer {
    let request = client.http.put(format!("{}{LIMITS}", client.url)).json(&body);
    Answer::read(request.header("if-match", format!("\"{version}\"")).send().await.unwrap()).await
}

pub async fn save(client: &Client, version: &str, limits: &Value) -> Answer {
    put(client, version, json!({ "limits": limits, "reason": "a test" })).await
}

/// `max` failures of an account before a CAPTCHA, everything else unchanged.
pub fn with_max(limits: &Value, max: u32) -> Value {
    let mut limits = limits.clone();
    limits["login-account"]["rules"][0]["max"] = json!(max);
    limits
}

pub fn max(app: &TestApp) -> u32 {
    app.services.live.snapshot().limits.login_account.rules()[0].max
}
