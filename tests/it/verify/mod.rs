//! Codes for other programs: sent by token, checked by id.

pub mod apart;
mod checking;
mod looking_up;
mod losses;
mod scopes;
mod sending;
mod windows;

use serde_json::{Value, json};

use crate::admin::tokens::make;
use crate::support::app::{Answer, Client, Store, TestApp};
use crate::support::setup::Setup;

const PHONE: &str = "+8613800138000";

/// A program with a token for its codes.
#[derive(Clone)]
pub struct Program {
    pub client: Client,
    token: String,
}

async fn start(store: Store) -> (TestApp, Client, Program) {
    // Each test sets the limits that it is about.
    started(TestApp::on(store).without(&["sms-phone"])).await
}

pub async fn started(setup: Setup) -> (TestApp, Client, Program) {
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    let shop = Program::of(&app, &boss, "verify:shop").await;
    (app, boss, shop)
}

impl Program {
    pub async fn of(app: &TestApp, boss: &Client, scope: &str) -> Self {
        Self { client: app.client(), token: make(boss, &[scope]).await }
    }

    pub async fn call(&self, path: &str, body: Value) -> Answer {
        self.call_once(path, body, None).await
    }

    /// With an `Idempotency-Key`.
    pub async fn call_once(&self, path: &str, body: Value, key: Option<&str>) -> Answer {
        let url = format!("{}/api/v1/verifications{path}", self.client.url);
        let mut request = self.client.http.post(url).bearer_auth(&self.token).json(&body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        Answer::read(request.send().await.unwrap()).await
    }

    pub async fn send(&self, to: &str) -> Answer {
        self.call("", json!({ "to": to, "address": "203.0.113.7" })).await
    }

    /// A verification and its code.
    pub async fn sent(&self, to: &str) -> (String, String) {
        let id = id_of(&self.send(to).await);
        (id, self.client.codes(to).await.remove(0))
    }

    pub async fn check(&self, id: &str, code: &str) -> Answer {
        self.call(&format!("/{id}/check"), json!({ "code": code })).await
    }

    /// A wrong code that must be compared.
    pub async fn guess(&self, id: &str, code: &str) {
        let answer = self.check(id, &other_than(code)).await;
        assert_eq!((answer.status, answer.problem()), (401, "invalid-code"), "{}", answer.text);
    }

    pub async fn approve(&self, id: &str, code: &str) {
        let answer = self.check(id, code).await;
        assert_eq!((answer.status, &answer.body), (200, &json!({ "status": "approved" })), "{}", answer.text);
    }
}

pub fn id_of(sent: &Answer) -> String {
    assert_eq!(sent.status, 202, "{}", sent.text);
    sent.body["id"].as_str().expect("an id").to_owned()
}

/// Wrong, whatever the right one is.
pub fn other_than(code: &str) -> String {
    format!("{:06}", (code.parse::<u32>().unwrap() + 1) % 1_000_000)
}
