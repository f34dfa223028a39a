//! A mail server as the tests play it. The bodies are Dovecot's.

use serde_json::{Value, json};

use super::{Program, start};
use crate::support::app::{Answer, Client, Store, TestApp};

/// A mail server with a token.
#[derive(Clone)]
pub struct MailServer {
    pub client: Client,
    pub token: String,
}

/// One attempt, as Dovecot describes it.
#[derive(Clone, Copy)]
pub struct Try<'a> {
    pub login: &'a str,
    pub remote: &'a str,
    pub session: &'a str,
    pub pwhash: &'a str,
}

/// The owner's address.
pub const HOME: &str = "198.51.100.20";

pub fn from<'a>(remote: &'a str, session: &'a str, pwhash: &'a str) -> Try<'a> {
    Try { login: "ada@example.com", remote, session, pwhash }
}

impl Try<'_> {
    /// What Dovecot 2.3.19 sends.
    pub fn body(self) -> Value {
        json!({
            "device_id": "", "login": self.login, "protocol": "imap", "pwhash": self.pwhash,
            "remote": self.remote, "session_id": self.session, "tls": false
        })
    }

    pub fn reported(self, success: bool, policy_reject: bool) -> Value {
        let mut body = self.body();
        body["success"] = success.into();
        body["policy_reject"] = policy_reject.into();
        body
    }
}

impl MailServer {
    pub async fn of(app: &TestApp, boss: &Client) -> Self {
        let Program { client, token } = Program::of(app, boss, "guard:mail").await;
        Self { client, token }
    }

    pub fn at(&self, app: &TestApp) -> Self {
        Self { client: app.client(), token: self.token.clone() }
    }

    pub async fn post(&self, command: &str, body: impl Into<reqwest::Body>) -> Answer {
        let url = format!("{}/wforce/?command={command}", self.client.url);
        let request = self.client.http.post(url).basic_auth("wforce", Some(&self.token));
        let request = request.header("content-type", "application/json").body(body);
        Answer::read(request.send().await.unwrap()).await
    }

    pub async fn allow(&self, attempt: Try<'_>) -> i64 {
        let answer = self.post("allow", attempt.body().to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["status"].as_i64().unwrap()
    }

    pub async fn tell(&self, attempt: Try<'_>, success: bool, policy_reject: bool) {
        let answer = self.post("report", attempt.reported(success, policy_reject).to_string()).await;
        assert_eq!((answer.status, &*answer.text), (200, r#"{"status":"ok"}"#));
    }

    pub async fn fail(&self, attempt: Try<'_>) {
        assert_eq!(self.allow(attempt).await, 0);
        self.tell(attempt, false, false).await;
    }

    pub async fn succeed(&self, attempt: Try<'_>) {
        assert_eq!(self.allow(attempt).await, 0);
        assert_eq!(self.allow(attempt).await, 0, "again after the password was right");
        self.tell(attempt, true, false).await;
    }

    /// Strangers fail until the name is used up.
    pub async fn use_up(&self) {
        for n in ["1", "2", "3"] {
            self.fail(from(&format!("203.0.113.{n}"), n, n)).await;
        }
        assert_eq!(self.allow(from("203.0.113.9", "s", "p")).await, -1);
    }

    /// The same by reports alone.
    pub async fn use_up_at(&self, remote: &str) {
        for n in ["x", "y", "z"] {
            self.tell(from(remote, n, n), false, false).await;
        }
    }
}

pub async fn mail(store: Store) -> (TestApp, Client, MailServer) {
    let (app, boss, _) = start(store).await;
    let mail = MailServer::of(&app, &boss).await;
    (app, boss, mail)
}
