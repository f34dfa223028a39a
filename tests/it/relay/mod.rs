//! Codes that identity providers make: sent once, in our words, within the time that they wait.

mod brake;
mod hostile;
mod logto;
mod supabase;

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::admin::tokens::make;
use crate::support::app::{Answer, Client, TestApp};

const PHONE: &str = "+8613800138000";
/// As providers store it.
const BARE: &str = "8613800138000";

/// An identity provider that calls by token.
#[derive(Clone)]
pub struct Logto {
    client: Client,
    token: String,
}

impl Logto {
    pub async fn of(app: &TestApp, boss: &Client, scope: &str) -> Self {
        Self { client: app.client(), token: make(boss, &[scope]).await }
    }

    pub async fn call(&self, path: &str, body: &Value) -> Answer {
        let url = format!("{}/api/v1/relay/{path}", self.client.url);
        let request = self.client.http.post(url).bearer_auth(&self.token).json(body);
        Answer::read(request.send().await.unwrap()).await
    }

    pub async fn send(&self, to: &str, code: &str) -> Answer {
        let body = json!({ "to": to, "type": "SignIn", "payload": { "code": code } });
        self.call("logto/idp", &body).await
    }

    pub async fn tell(&self, id: &str, outcome: &str) -> u16 {
        self.call(&format!("{id}/outcome"), &json!({ "outcome": outcome })).await.status
    }
}

pub fn id_of(answer: &Answer) -> String {
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"), "{}", answer.text);
    answer.body["id"].as_str().expect("an id").to_owned()
}

/// No provider is told when to come back: one of them would do so at once.
pub fn refused(answer: &Answer) -> (u16, &str) {
    assert!(!answer.headers.contains_key("retry-after"), "{:?}", answer.headers);
    (answer.status, answer.problem())
}

/// A secret as Supabase shows it, in a file.
pub struct Secret(tempfile::NamedTempFile, String);

impl Secret {
    pub fn of(byte: u8) -> Self {
        let file = tempfile::NamedTempFile::new().unwrap();
        let secret = format!("whsec_{}", STANDARD.encode([byte; 32]));
        std::fs::write(file.path(), format!("v1,{secret}\n")).unwrap();
        Self(file, secret)
    }

    pub fn reference(&self) -> String {
        format!("'file:{}'", self.0.path().display())
    }

    /// What the provider's own library makes of it.
    pub fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        const SIGN: &str = "import sys\nfrom datetime import datetime, timezone\n\
            from standardwebhooks.webhooks import Webhook\n\
            secret, name, at = sys.argv[1:]\n\
            at = datetime.fromtimestamp(int(at), tz=timezone.utc)\n\
            print(Webhook(secret).sign(name, at, sys.stdin.buffer.read().decode()), end='')";
        let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/tools/standardwebhooks-1.1.0");
        let missing =
            "pip install --no-deps --target target/tools/standardwebhooks-1.1.0 standardwebhooks==1.1.0";
        assert!(packages.is_dir(), "{missing}");
        let mut python = Command::new("python3")
            .args(["-c", SIGN, &self.1, id, &timestamp.to_string()])
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let mut input = python.stdin.take().unwrap();
        input.write_all(body.as_bytes()).unwrap();
        drop(input);
        let done = python.wait_with_output().unwrap();
        assert!(done.status.success());
        String::from_utf8(done.stdout).unwrap()
    }
}
