//! Passkeys of an authenticator that another library encodes and signs: Yubico's fido2.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::is_signed_in;
use crate::support::app::{PASSWORD, Store, TestApp};

struct Authenticator {
    python: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Authenticator {
    fn start() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let packages = root.join("target/tools/fido2-2.2.1");
        assert!(
            packages.is_dir(),
            "pip install --no-deps --target target/tools/fido2-2.2.1 -r tests/clients/fido2/requirements.txt"
        );
        let mut python = Command::new("python3")
            .arg(root.join("tests/clients/fido2/authenticator.py"))
            .env("PYTHONPATH", packages)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3");
        let ask = python.stdin.take().unwrap();
        let answers = BufReader::new(python.stdout.take().unwrap());
        Self { python, ask, answers }
    }

    fn ask(&mut self, question: &Value) -> Value {
        writeln!(self.ask, "{question}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{question}: {line:?}"))
    }
}

impl Drop for Authenticator {
    fn drop(&mut self) {
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}

#[tokio::test]
async fn passkeys_of_every_algorithm_are_added_and_sign_in() {
    let app = TestApp::on(Store::Memory).at_localhost().start().await;
    let mut authenticator = Authenticator::start();
    for (login, algorithm) in [("es256", -7), ("eddsa", -8), ("rs256", -257)] {
        let owner = app.client();
        assert_eq!(owner.register(login, PASSWORD).await.status, 201);
        let options = owner.passkey_options("add").await;
        let asked = json!({ "create": options, "origin": owner.url, "algorithm": algorithm });
        let added = owner.call("/passkeys", json!({ "passkey": authenticator.ask(&asked) })).await;
        assert_eq!(added.status, 201, "{algorithm}: {}", added.text);
        for _ in 0..2 {
            let visitor = app.client();
            let options = visitor.passkey_options("sign-in").await;
            let shown = authenticator.ask(&json!({ "get": options, "origin": visitor.url }));
            let mut wrong = shown.clone();
            wrong["response"]["signature"] = json!("AAAA");
            let refused = visitor.call("/passkeys/login", json!({ "passkey": wrong })).await;
            assert_eq!(refused.problem(), "invalid-passkey", "{algorithm}");
            let answer = visitor.call("/passkeys/login", json!({ "passkey": shown })).await;
            assert_eq!(
                (answer.status, &answer.body["user"]["login"]),
                (200, &json!(login)),
                "{}",
                answer.text
            );
            assert!(is_signed_in(&visitor).await);
        }
    }
}
