//! Clients that others have written sign in, refresh and sign out.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::*;

/// What a client prints, line by line, and what it is told.
struct Talk {
    node: std::process::Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Talk {
    /// `secret` is how the client authenticates, and by what.
    fn begin(app: &TestApp, id: &str, secret: &str, redirect_uri: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let packages = root.join("target/tools/oidc-6.9.0");
        assert!(packages.join("node_modules").is_dir(), "scripts/test fetches openid-client");
        let mut node = Command::new("node")
            .arg(root.join("tests/clients/oidc/client.mjs"))
            .arg(packages)
            .args([&app.url, id, secret, redirect_uri, "https://wiki.example/bye"])
            .arg(app.clock.now().seconds().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node");
        let answers = BufReader::new(node.stdout.take().unwrap());
        Self { node, answers }
    }

    async fn hear(&mut self) -> Value {
        let mut line = String::new();
        tokio::task::block_in_place(|| self.answers.read_line(&mut line).unwrap());
        serde_json::from_str(&line).expect("a line of JSON")
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.node.stdin.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openid_client_signs_in_refreshes_and_signs_out() {
    for algorithm in ["RS256", "ES256"] {
        let app = start(on(Store::Memory).set("oidc.signing", algorithm)).await;
        for (number, (id, secret, redirect_uri)) in [
            ("wiki", format!("basic:{SECRET}"), WIKI),
            ("wiki", format!("post:{SECRET}"), WIKI),
            ("spa", "none".to_owned(), SPA),
        ]
        .into_iter()
        .enumerate()
        {
            let login = format!("ada-{number}");
            let browser = browser(&app, &login).await;
            let mut client = Talk::begin(&app, id, &secret, redirect_uri);
            let to = client.hear().await["to"].as_str().unwrap().to_owned();
            let to = to.strip_prefix(&app.url).expect("the authorization endpoint");
            let mut answer = browser.get(to).await;
            if id == "spa" {
                let (_, query) = to.split_once('?').unwrap();
                let account = answer.hidden("account").unwrap();
                let fields = [("request", query), ("account", &*account), ("agree", "yes")];
                browser.submit(to, "/oauth/consent", &fields).await;
                answer = browser.get(to).await;
            }
            client.tell(answer.header("location"));
            let told = client.hear().await;
            assert_eq!(told["claims"]["preferred_username"], login, "{told}");
            assert_eq!(told["user"]["sub"], told["claims"]["sub"]);
            assert_eq!(told["refreshed"]["sub"], told["claims"]["sub"]);
            assert_eq!(told["active"], if id == "wiki" { json!(true) } else { Value::Null });
            let end = told["end"].as_str().unwrap().strip_prefix(&app.url).unwrap();
            let out = browser.get(end).await;
            let leads = if id == "wiki" { "https://wiki.example/bye?state=bye" } else { "/login" };
            assert_eq!((out.status, out.header("location")), (303, leads));
            client.tell("");
            assert_eq!(client.hear().await["refused"], "invalid_grant");
        }
    }
}
