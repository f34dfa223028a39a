//! The common parts of tests that change limits: the calls of an administrator.

use serde_json::{Value, json};

use crate::support::app::{Answer, Client, TestApp};

pub const LIMITS: &str = "/api/v1/admin/limits";

/// The version, and the limits in the form that can be sent back.
pub async fn shown(client: &Client) -> (String, Value) {
    let answer = client.get(LIMITS).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("etag"), format!("\"{}\"", answer.body["version"].as_str().unwrap()));
    (answer.body["version"].as_str().unwrap().to_owned(), answer.body["limits"].clone())
}

pub async fn save(client: &Client, version: &str, limits: &Value) -> Answer {
    client.put(LIMITS, version, json!({ "limits": limits, "reason": "a test" })).await
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
