//! Other programs' logins: they ask before a password is looked at, and say how it ended.

mod attempts;
pub mod console;
mod django;
mod dovecot;
mod fields;
pub mod mail_server;
mod repeats;
mod scopes;
mod shared;
mod wforce;

use serde_json::{Value, json};

use crate::admin::tokens::make;
use crate::support::app::{ANSWER, Answer, Client, Store, TestApp};
use crate::support::setup::Setup;

/// A program with a token for the login of one realm.
#[derive(Clone)]
pub struct Program {
    client: Client,
    token: String,
}

pub async fn start(store: Store) -> (TestApp, Client, Program) {
    started(TestApp::on(store)).await
}

pub async fn started(setup: Setup) -> (TestApp, Client, Program) {
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    let shop = Program::of(&app, &boss, "guard:shop").await;
    (app, boss, shop)
}

impl Program {
    pub async fn of(app: &TestApp, boss: &Client, scope: &str) -> Self {
        Self { client: app.client(), token: make(boss, &[scope]).await }
    }

    /// The same program, served by another instance.
    pub fn at(&self, app: &TestApp) -> Self {
        Self { client: app.client(), token: self.token.clone() }
    }

    pub async fn call(&self, path: &str, body: Value) -> Answer {
        let url = format!("{}/api/v1/attempts{path}", self.client.url);
        let request = self.client.http.post(url).bearer_auth(&self.token).json(&body);
        Answer::read(request.send().await.unwrap()).await
    }

    /// The decision on an attempt from an address of its own.
    pub async fn ask(&self, login: &str) -> Value {
        self.ask_with(json!({ "login": login, "address": "203.0.113.7" })).await
    }

    pub async fn ask_with(&self, body: Value) -> Value {
        let answer = self.call("", body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// An attempt that must be admitted.
    pub async fn go(&self, login: &str) -> String {
        admitted(&self.ask(login).await)
    }

    /// The same with a solved challenge.
    pub async fn go_solved(&self, login: &str, challenge: &Value) -> String {
        admitted(&self.ask_with(solved(login, challenge)).await)
    }

    pub async fn tell(&self, attempt: &str, outcome: &str) -> Answer {
        self.call(&format!("/{attempt}"), json!({ "outcome": outcome })).await
    }

    /// An attempt that fails.
    pub async fn fail(&self, login: &str) {
        let attempt = self.go(login).await;
        assert_eq!(self.tell(&attempt, "failure").await.status, 200);
    }

    /// The same from this address.
    pub async fn fail_from(&self, address: &str, login: &str) {
        let attempt = admitted(&self.ask_with(json!({ "login": login, "address": address })).await);
        assert_eq!(self.tell(&attempt, "failure").await.status, 200);
    }

    /// An attempt that succeeds; returns the device.
    pub async fn succeed(&self, login: &str) -> String {
        let attempt = self.go(login).await;
        let told = self.tell(&attempt, "success").await;
        assert_eq!(told.status, 200, "{}", told.text);
        told.body["device"].as_str().expect("a device").to_owned()
    }
}

fn admitted(decision: &Value) -> String {
    assert_eq!(decision["decision"], "go", "{decision}");
    assert_eq!(decision["settle_within"], 15);
    decision["attempt"].as_str().unwrap().to_owned()
}

fn solved(login: &str, challenge: &Value) -> Value {
    let captcha = json!({ "id": challenge["captcha"]["id"], "answer": ANSWER });
    json!({ "login": login, "address": "203.0.113.7", "captcha": captcha })
}
