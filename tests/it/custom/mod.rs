//! Custom limits, as other programs use them with a token.

mod limits;
mod systems;
mod tokens;

use serde_json::{Value, json};

use crate::admin::tokens::make;
use crate::support::app::{Answer, Client, Store, TestApp};
use crate::support::setup::Setup;

/// A program with a token, at an app with these limits.
pub struct Program {
    pub client: Client,
    pub token: String,
}

/// An app with limits, its administrator, and a program that may use all of them.
pub async fn start(store: Store, toml: &str) -> (TestApp, Client, Program) {
    started(TestApp::on(store).file(toml)).await
}

pub async fn started(setup: Setup) -> (TestApp, Client, Program) {
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    let token = make(&boss, &["*"]).await;
    let program = Program { client: app.client(), token };
    (app, boss, program)
}

impl Program {
    pub async fn call(&self, limit: &str, verb: &str, body: Value) -> Answer {
        let url = format!("{}/api/v1/limits/{limit}/{verb}", self.client.url);
        let request = self.client.http.post(url).bearer_auth(&self.token).json(&body);
        Answer::read(request.send().await.unwrap()).await
    }

    pub async fn reserve(&self, limit: &str, subject: &str) -> Answer {
        self.call(limit, "reserve", json!({ "subject": subject })).await
    }

    pub async fn peek(&self, limit: &str, subject: &str) -> Value {
        let answer = self.call(limit, "peek", json!({ "subject": subject })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    pub async fn refund(&self, limit: &str, subject: &str, hit: &str) -> u16 {
        self.call(limit, "refund", json!({ "subject": subject, "hit": hit })).await.status
    }

    /// How many of these reservations were admitted, all asked for at once.
    pub async fn admitted_at_once(&self, limit: &str, subject: &str, count: usize) -> usize {
        let asked: Vec<_> = (0..count)
            .map(|_| {
                let (client, token) = (self.client.clone(), self.token.clone());
                let (limit, subject) = (limit.to_owned(), subject.to_owned());
                let program = Program { client, token };
                tokio::spawn(async move { program.reserve(&limit, &subject).await.status })
            })
            .collect();
        let mut admitted = 0;
        for answer in asked {
            match answer.await.unwrap() {
                200 => admitted += 1,
                429 => {}
                other => panic!("{other}"),
            }
        }
        admitted
    }
}
