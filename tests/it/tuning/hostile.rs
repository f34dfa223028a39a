//! Drafts as long as they can be: reading one ends at the first hundred mistakes, and at the most entries allowed.

use gatehouse::accounts::{NewToken, TokenScopes, Username};
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::app::{Answer, Client, Store, TestApp};

const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// A list of empty tables as long as a body can hold.
fn empty(count: usize) -> Value {
    vec![json!({}); count].into()
}

fn custom_limits(count: usize) -> Value {
    let limits = (0..count).map(|number| (format!("l{number}"), json!({ "rules": [] })));
    json!({ "custom": limits.collect::<serde_json::Map<_, _>>() })
}

/// Every call that takes a draft, with drafts that it refuses.
fn drafts() -> Vec<(&'static str, &'static str, Value)> {
    let app = |parts: usize| json!([{ "name": "a", "hosts": ["a.example"], "parts": empty(parts) }]);
    let names = |count: usize| (0..count).map(|name| format!("group:g{name}")).collect::<Vec<_>>();
    let toml = |text: &str, count: usize| json!({ "toml": text.repeat(count) });
    let apps = [
        json!({ "apps": empty(60_000) }),
        json!({ "apps": empty(4_000) }),
        json!({ "apps": app(30_000) }),
        json!({ "apps": app(4_000) }),
        json!({ "apps": [{ "name": "a", "hosts": ["a.example"], "who": names(15_000) }] }),
        toml("[[apps]]\n", 25_000),
        toml("[[apps]]\n", 4_000),
        toml("\n", 120_000),
        toml("=\n", 30_000),
        json!({ "toml": format!("[[apps]]\n{}", "[[apps.parts]]\n".repeat(15_000)) }),
        json!({ "toml": format!("{} = 1\n", "a".repeat(250_000)) }),
        json!({ "toml": format!("a = {}", "[".repeat(60_000)) }),
    ];
    let limits = [
        json!({ "limits": custom_limits(4_500) }),
        json!({ "limits": { "login-account": { "rules": empty(60_000) } } }),
        json!({ "toml": (0..12_000).map(|name| format!("[limits.l{name}]\n")).collect::<String>() }),
    ];
    let until = "2030-01-01T00:00:00Z";
    let networks: Vec<_> =
        (0..2_500).map(|_| json!({ "network": "192.0.2.1", "until": until, "reason": "r" })).collect();
    let access = [
        json!({ "deny": empty(30_000) }),
        json!({ "allow": networks }),
        json!({ "pause_sms": empty(60_000) }),
    ];
    let of = |method, path, bodies: &[Value]| {
        bodies.iter().map(|body| (method, path, body.clone())).collect::<Vec<_>>()
    };
    [
        of("POST", "/api/v1/admin/apps/preview", &apps),
        of("PUT", "/api/v1/admin/apps", &apps[..2]),
        of("POST", "/api/v1/admin/limits/preview", &limits),
        of("PUT", "/api/v1/admin/limits", &limits[..1]),
        of("PUT", "/api/v1/admin/access", &access),
    ]
    .concat()
}

async fn send(app: &TestApp, client: &Client, token: Option<&str>, way: &(&str, &str, Value)) -> Answer {
    let (method, path, mut body) = way.clone();
    let url = format!("{}{path}", app.url);
    let request = client.http.request(Method::from_bytes(method.as_bytes()).unwrap(), url);
    let request = match method {
        "PUT" => {
            body["reason"] = "a test".into();
            request.header("if-match", client.get("/api/v1/admin/limits").await.header("etag"))
        }
        _ => request,
    };
    let request = match token {
        Some(token) => request.bearer_auth(token),
        None => request.header("origin", &app.url),
    };
    Answer::read(request.json(&body).send().await.unwrap()).await
}

#[tokio::test]
async fn a_draft_of_nothing_but_mistakes_is_answered_with_a_hundred_of_them_at_most() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    for way in drafts() {
        let refused = send(&app, &boss, None, &way).await;
        let what = format!("{} {} {:.100}", way.0, way.1, way.2.to_string());
        assert_eq!(refused.problem(), "invalid-input", "{what}: {:.500}", refused.text);
        let errors = refused.body["errors"].as_array().unwrap();
        assert!((1..=100).contains(&errors.len()), "{what}: {} mistakes", errors.len());
        assert!(refused.text.len() < 64 * 1024, "{what}: {} bytes", refused.text.len());
        if errors.len() == 100 {
            let last = errors[99]["message"].as_str().unwrap();
            assert!(last.contains("there are more mistakes"), "{what}: {last}");
        }
    }
}

#[tokio::test]
async fn a_token_that_only_reads_tries_no_more_limits_than_there_may_be() {
    let app = TestApp::start(Store::Memory).await;
    app.sign_in_admin("boss").await;
    let account = app.services.accounts.find(&Username::parse("boss").unwrap()).await.unwrap().unwrap();
    let scopes = TokenScopes::parse(["limits:read"]).unwrap();
    let new = NewToken { name: "monitor".into(), scopes, expires_in: Some(DAY) };
    let token = app.services.tokens.create(&new, account.id).await.unwrap().unwrap().0.expose();
    let preview = async |count| {
        let way = ("POST", "/api/v1/admin/limits/preview", json!({ "limits": custom_limits(count) }));
        send(&app, &app.client(), Some(&token), &way).await
    };
    assert_eq!(preview(200).await.status, 200);
    let refused = preview(201).await;
    assert_eq!(refused.problem(), "invalid-input", "{}", refused.text);
    let message = refused.body["errors"][0]["message"].as_str().unwrap();
    assert_eq!(message, "has 201 entries; at most 200 are allowed");
    assert_eq!(refused.body["errors"][0]["field"], "limits.custom");
}

/// Of one administrator they are read one after the other, and all are answered.
#[tokio::test]
async fn many_drafts_at_once_are_all_answered() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let way = ("POST", "/api/v1/admin/apps/preview", json!({ "apps": empty(4_000) }));
    let answers = futures_util::future::join_all((0..8).map(|_| send(&app, &boss, None, &way))).await;
    for answer in answers {
        let busy = answer.problem() == "unavailable" && !answer.header("retry-after").is_empty();
        assert!(busy || answer.problem() == "invalid-input", "{}", answer.text);
    }
}

#[tokio::test]
async fn the_editors_say_the_same_as_the_calls() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let custom = (0..3_000).map(|name| format!("[limits.custom.l{name}]\nrules = []\n")).collect::<String>();
    for (page, toml, told) in [
        ("/admin/apps/edit", "[[apps]]\n".repeat(4_000), "there are more mistakes"),
        ("/admin/apps/edit", "[[apps]]\n".repeat(12_000), "has 12000 entries"),
        ("/admin/limits/toml", custom, "at most 200 are allowed"),
    ] {
        for act in ["try", "save"] {
            let version = boss.get(page).await.hidden("version").unwrap();
            let fields = [("do", act), ("version", &version), ("toml", &toml), ("reason", "a test")];
            let answer = boss.submit(page, page, &fields).await;
            assert_eq!(answer.status, 422, "{act} at {page}");
            assert!(answer.text.contains(told), "{act} at {page}");
        }
    }
}
