//! The keys by which applications verify tokens, and tokens that another library verifies by them.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::app::{Answer, Store, TestApp, on_both_stores};

/// Reads `{keys, token}`, and prints the claims if the key of its `kid` has signed it.
const VERIFY: &str = r#"
const { createPublicKey, verify } = require("node:crypto");
const { keys, token } = JSON.parse(require("node:fs").readFileSync(0));
const [header, claims, signature] = token.split(".");
const { alg, kid } = JSON.parse(Buffer.from(header, "base64url"));
const key = keys.find((key) => key.kid === kid && key.alg === alg && key.use === "sig");
const by = { key: createPublicKey({ key, format: "jwk" }), dsaEncoding: "ieee-p1363" };
if (verify("sha256", `${header}.${claims}`, by, Buffer.from(signature, "base64url"))) {
    console.log(Buffer.from(claims, "base64url").toString());
}
"#;

fn verified(set: &Value, token: &str) -> Option<Value> {
    let mut node = Command::new("node")
        .args(["-e", VERIFY])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node (scripts/setup installs it)");
    let question = json!({ "keys": set["keys"], "token": token });
    node.stdin.take().unwrap().write_all(question.to_string().as_bytes()).unwrap();
    let answer = node.wait_with_output().unwrap();
    assert!(answer.status.success());
    serde_json::from_slice(&answer.stdout).ok()
}

/// The set, once the first key has been made.
async fn keys_of(app: &TestApp) -> Answer {
    for _ in 0..3000 {
        let answer = app.client().get("/oauth/keys").await;
        if answer.status == 200 {
            return answer;
        }
        assert_eq!(answer.status, 503, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(20)).await; // the key is made on a thread of its own
    }
    panic!("no key");
}

#[tokio::test]
async fn a_client_gets_tokens_by_its_own_algorithm() {
    let of_files = "client_id = 'files-client'\n";
    let file = super::clients().replace(of_files, &format!("{of_files}signing = 'ES256'\n"));
    let app = super::start(TestApp::on(Store::Memory).file(&file)).await;
    let browser = super::browser(&app, "ada").await;
    let set = async || app.client().get("/oauth/keys").await.body;
    crate::support::until("both keys are there", async || set().await["keys"].as_array().unwrap().len() == 2)
        .await;
    let files = [("client_id", "files-client"), ("redirect_uri", "https://files.example/callback?from=us")];
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &super::code(&browser, &files).await),
        ("redirect_uri", files[1].1),
        ("code_verifier", super::VERIFIER),
    ];
    let of_files = super::call(&app, "/oauth/token", Some(("files-client", super::SECRET)), &fields).await;
    let of_wiki = super::exchange(&app, &super::code(&browser, &[]).await).await;
    for (answer, algorithm) in [(of_files, "ES256"), (of_wiki, "RS256")] {
        let token = answer.body["id_token"].as_str().unwrap();
        let claims = verified(&set().await, token).expect("one of the published keys has signed it");
        let key = set().await["keys"].as_array().unwrap().iter().find(|key| key["alg"] == algorithm).cloned();
        assert!(verified(&json!({ "keys": [key] }), token).is_some(), "{algorithm} {claims}");
    }
}

on_both_stores!(a_start_waits_for_no_key_and_all_instances_publish_the_same);

async fn a_start_waits_for_no_key_and_all_instances_publish_the_same(store: Store) {
    let app = TestApp::start(store).await;
    let early = app.client().get("/oauth/keys").await;
    assert_eq!((early.status, &early.body), (503, &json!({ "error": "temporarily_unavailable" })));
    assert_eq!((early.header("cache-control"), early.header("retry-after")), ("no-store", "2"));
    assert_eq!(early.header("access-control-allow-origin"), "*");
    assert_eq!(app.client().get("/healthz").await.status, 200);
    let two = app.beside(TestApp::on(store)).await;
    let three = app.beside(TestApp::on(store)).await;

    let set = keys_of(&app).await;
    assert_eq!(set.body["keys"].as_array().unwrap().len(), 1);
    assert_eq!(set.header("content-type"), "application/json");
    assert_eq!(set.header("cache-control"), "public, max-age=900");
    assert_eq!(set.header("access-control-allow-origin"), "*");
    assert_eq!(set.header("cross-origin-resource-policy"), "cross-origin");
    assert!(set.headers.get("set-cookie").is_none());
    for other in [&two, &three] {
        assert_eq!(keys_of(other).await.body, set.body);
    }
    for _ in 0..3 {
        let late = app.beside(TestApp::on(store)).await.client().get("/oauth/keys").await;
        assert_eq!(late.body, set.body, "an instance has them when it begins to serve");
    }
    let head = app.client().http.head(format!("{}/oauth/keys", app.url)).send().await.unwrap();
    assert_eq!(head.status(), 200);
}

#[tokio::test]
async fn another_library_verifies_tokens_of_both_algorithms_by_the_published_keys() {
    for algorithm in ["RS256", "ES256"] {
        let app = TestApp::on(Store::Memory).set("oidc.signing", algorithm).start().await;
        let set = keys_of(&app).await.body;
        let key = set["keys"][0].as_object().unwrap();
        let mut names: Vec<_> = key.keys().map(String::as_str).collect();
        names.sort_unstable();
        match algorithm {
            "RS256" => {
                assert_eq!(names, ["alg", "e", "kid", "kty", "n", "use"]);
                assert_eq!((&key["kty"], &key["e"]), (&json!("RSA"), &json!("AQAB")));
                // 256 bytes; a leading zero would make them 257.
                assert_eq!(key["n"].as_str().unwrap().len(), 342);
            }
            _ => {
                assert_eq!(names, ["alg", "crv", "kid", "kty", "use", "x", "y"]);
                assert_eq!((&key["kty"], &key["crv"]), (&json!("EC"), &json!("P-256")));
            }
        }
        let claims = json!({ "sub": "张三", "exp": 1_800_000_000 });
        let token = app.services.token_keys.sign(algorithm.parse().unwrap(), &claims, "JWT").unwrap();
        assert_eq!(verified(&set, &token), Some(claims), "{algorithm}");
        let (signed, signature) = token.rsplit_once('.').unwrap();
        let (header, _) = signed.split_once('.').unwrap();
        assert_eq!(verified(&set, &format!("{header}.e30.{signature}")), None, "{algorithm}");
    }
}
