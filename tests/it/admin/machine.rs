//! Programs that call the admin API with a token.

use std::time::Duration;

use gatehouse::accounts::{AdminScope, NewToken, TokenScopes, Username};
use gatehouse::web::http::row::Caller;
use reqwest::Method;
use serde_json::{Value, json};
use strum::VariantArray;

use crate::support::app::{Answer, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::routes::{API, rows};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

on_both_stores!(
    a_call_takes_a_token_with_its_scope_and_no_other,
    a_change_by_a_program_is_in_the_history_with_who_made_its_token,
    no_token_touches_an_administrator,
    a_token_gets_one_refusal_for_whatever_it_would_do_to_administrators,
    a_token_is_as_good_as_who_made_it,
);

/// A token that `boss` made.
async fn token(app: &TestApp, scopes: &[&str]) -> String {
    let boss = app.services.accounts.find(&Username::parse("boss").unwrap()).await.unwrap().unwrap();
    let scopes = TokenScopes::parse(scopes.iter().copied()).unwrap();
    let new = NewToken { name: "terraform".into(), scopes, expires_in: Some(DAY) };
    app.services.tokens.create(&new, boss.id).await.unwrap().unwrap().0.expose()
}

async fn call(app: &TestApp, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
    let mut request = app
        .client()
        .http
        .request(method, format!("{}{path}", app.url))
        .bearer_auth(token)
        .header("if-match", "\"none\"");
    if let Some(body) = body {
        request = request.json(&body);
    }
    Answer::read(request.send().await.unwrap()).await
}

/// Every call of the admin API: method, path and the scopes of its token, any of which opens it; none if nobody's token may.
fn calls() -> Vec<(&'static str, String, Vec<&'static str>)> {
    let calls = rows().into_iter().filter_map(|(method, row)| match row.caller {
        Caller::Admin(_, scopes) if row.path.starts_with(API) => {
            let scopes = scopes.iter().map(|scope| scope.into_str());
            Some((method, row.path.replace(['{', '}'], ""), scopes.collect()))
        }
        _ => None,
    });
    calls.collect()
}

async fn a_call_takes_a_token_with_its_scope_and_no_other(store: Store) {
    let app = TestApp::on(store).without(&["login-address", "login-network"]).start().await;
    app.sign_in_admin("boss").await;
    let calls = calls();
    assert!(calls.len() > 12, "{calls:?}");
    let every: Vec<&str> = AdminScope::VARIANTS.iter().map(|scope| scope.into_str()).collect();
    for (method, path, scopes) in &calls {
        let others: Vec<&str> =
            every.iter().copied().filter(|scope| !scopes.contains(scope)).chain(["*"]).collect();
        let without = token(&app, &others).await;
        let refused = call(&app, &without, method, path, None).await;
        if scopes.is_empty() {
            assert_eq!(refused.status, 401, "{method} {path} is nobody's but a person's: {}", refused.text);
            continue;
        }
        assert_eq!(refused.problem(), "insufficient-scope", "{method} {path} {others:?}: {}", refused.text);
        for scope in scopes {
            let with = token(&app, &[scope]).await;
            let answer = call(&app, &with, method, path, None).await;
            let refused =
                ["insufficient-scope", "invalid-token", "csrf", "confirmation-required", "unauthenticated"];
            assert!(!refused.contains(&answer.problem()), "{method} {path} with {scope}: {}", answer.text);
        }
        let answer = call(&app, "ght_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", method, path, None).await;
        assert!(
            ["invalid-token", "throttled"].contains(&answer.problem()),
            "{method} {path}: {}",
            answer.text
        );
        let tokens = app.services.tokens.list().await.unwrap();
        let boss = app.services.accounts.find(&Username::parse("boss").unwrap()).await.unwrap().unwrap();
        for entry in tokens {
            app.services.tokens.revoke(entry.id, boss.id).await.unwrap();
        }
    }
}

async fn a_change_by_a_program_is_in_the_history_with_who_made_its_token(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    let token = token(&app, &["limits:write"]).await;
    let shown = call(&app, &token, "get", "/api/v1/admin/limits", None).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    let request = app.client().http.put(format!("{}/api/v1/admin/limits", app.url)).bearer_auth(&token);
    let body = json!({ "limits": { "sms-phone": { "rules": [] } }, "reason": "as planned" });
    let saved =
        Answer::read(request.header("if-match", shown.header("etag")).json(&body).send().await.unwrap())
            .await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    let history = boss.get("/api/v1/admin/limits/history").await;
    assert_eq!(history.body["changes"][0]["login"], "boss (token terraform)");
    // What may write limits restores limits, and no section that another scope or none is for.
    let restore = async |section: &str| {
        let request =
            app.client().http.post(format!("{}/api/v1/admin/limits/rollback", app.url)).bearer_auth(&token);
        let body = json!({ "change": history.body["changes"][0]["id"], "section": section, "reason": "r" });
        let request = request.header("if-match", saved.header("etag")).json(&body);
        Answer::read(request.send().await.unwrap()).await
    };
    for section in ["access", "apps", "factors", "brand", "login", "captcha", "sms"] {
        assert_eq!(restore(section).await.problem(), "insufficient-scope", "{section}");
    }
    assert_eq!(restore("limits").await.status, 200);
    let events = boss.get("/api/v1/admin/events?action=admin").await;
    let events = events.body["events"].as_array().unwrap().clone();
    let saving = events.iter().find(|event| event["name"] == "limits.save").unwrap();
    assert!(saving["detail"].as_str().unwrap().contains("terraform"), "{saving}");
    assert!(saving["actor"].is_string());
}

async fn no_token_touches_an_administrator(store: Store) {
    let app =
        TestApp::on(store).set("login.max_consecutive_failures", 1).without(&["login-device"]).start().await;
    app.sign_in_admin("boss").await;
    app.register("alice").await;
    for name in ["boss", "alice"] {
        assert_eq!(app.client().login(name, "a wrong password").await.status, 401);
    }
    let token = token(&app, &["subjects:clear", "accounts:write"]).await;
    for (path, alice) in [("subjects/login-account", 204), ("disabled-passwords", 204)] {
        let refused = call(&app, &token, "delete", &format!("/api/v1/admin/{path}/boss"), None).await;
        assert_eq!(refused.problem(), "insufficient-scope", "{path}: {}", refused.text);
        let done = call(&app, &token, "delete", &format!("/api/v1/admin/{path}/alice"), None).await;
        assert_eq!(done.status, alice, "{path}: {}", done.text);
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

/// Whoever made the token, and whether anything would change: one answer, as for what a token's scopes do not name.
async fn a_token_gets_one_refusal_for_whatever_it_would_do_to_administrators(store: Store) {
    let app = TestApp::start(store).await;
    app.sign_in_admin("boss").await;
    app.sign_in_admin("other").await;
    let token = token(&app, &["accounts:write"]).await;
    for name in ["boss", "other"] {
        let account = app.services.accounts.find(&Username::parse(name).unwrap()).await.unwrap().unwrap();
        for act in ["disable", "enable", "end-sessions", "require-new-password", "unmake-admin", "delete"] {
            let path = format!("/api/v1/admin/accounts/{}/{act}", account.id);
            let answer = call(&app, &token, "post", &path, Some(json!({ "reason": "a test" }))).await;
            let told = (answer.status, answer.problem());
            assert_eq!(told, (403, "insufficient-scope"), "{act} {name}: {}", answer.text);
        }
        let path = format!("/api/v1/admin/accounts/{}/groups", account.id);
        for groups in [json!([]), json!(["staff"])] {
            let body = json!({ "groups": groups, "reason": "a test" });
            let answer = call(&app, &token, "put", &path, Some(body)).await;
            let told = (answer.status, answer.problem());
            assert_eq!(told, (403, "insufficient-scope"), "{groups} for {name}: {}", answer.text);
        }
        let path = format!("/api/v1/admin/accounts/{}/profile", account.id);
        for body in [json!({}), json!({ "email": "eve@example.org", "email_verified": true })] {
            let answer = call(&app, &token, "put", &path, Some(body.clone())).await;
            let told = (answer.status, answer.problem());
            assert_eq!(told, (403, "insufficient-scope"), "{body} for {name}: {}", answer.text);
        }
    }
    app.register("alice").await;
    let alice = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    let (path, body) = (format!("/api/v1/admin/accounts/{}/profile", alice.id), json!({ "name": "Alice" }));
    assert_eq!(call(&app, &token, "put", &path, Some(body)).await.status, 204, "it may at others");
}

async fn a_token_is_as_good_as_who_made_it(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let alice = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    let scopes = TokenScopes::parse(["limits:read"]).unwrap();
    let new = NewToken { name: "hers".into(), scopes, expires_in: Some(DAY) };
    let token = app.services.tokens.create(&new, alice.id).await.unwrap().unwrap().0.expose();
    let answer = call(&app, &token, "get", "/api/v1/admin/limits", None).await;
    assert_eq!(answer.problem(), "invalid-token", "{}", answer.text);
}

#[tokio::test]
async fn a_token_for_the_admin_api_has_to_expire() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let make = async |expires_in: Value| {
        boss.call(
            "/admin/tokens",
            json!({ "name": "ci", "scopes": ["limits:read"], "expires_in": expires_in }),
        )
        .await
    };
    for endless in [Value::Null, json!(367 * 24 * 60 * 60)] {
        let refused = make(endless).await;
        assert_eq!(
            (refused.status, &refused.body["errors"][0]["field"]),
            (422, &json!("expires_in")),
            "{}",
            refused.text
        );
    }
    assert_eq!(make(json!(366 * 24 * 60 * 60)).await.status, 201);
    let fields = [("name", "ci"), ("scopes", "limits:read"), ("expires_days", "")];
    let page = boss.submit("/admin/tokens", "/admin/tokens", &fields).await;
    assert_eq!(page.status, 422);
    assert!(page.text.contains("has to expire"), "{}", page.text);
}
