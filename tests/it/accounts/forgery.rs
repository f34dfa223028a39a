//! Requests by a foreign page with a reader's cookies are refused, and nothing happens.

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};

const NEW: &str = "quiet lanterns drift above marble";

/// Headers that identify a request from a foreign page.
const FOREIGN: [(&str, &str); 8] = [
    ("sec-fetch-site", "cross-site"),
    ("sec-fetch-site", "same-site"),
    ("sec-fetch-site", "none"),
    ("origin", "https://evil.example"),
    ("origin", "null"),
    ("origin", "http://127.0.0.1:1"),
    ("referer", "https://evil.example/127.0.0.1"),
    ("referer", "garbage"),
];

async fn signed_in() -> (TestApp, Client) {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    (app, client)
}

async fn send(client: &Client, path: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Answer {
    let request = client.http.post(format!("{}{path}", client.url)).form(fields);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    Answer::read(request.send().await.unwrap()).await
}

/// Every form, filled in so that it would work.
fn forms() -> Vec<(&'static str, Vec<(&'static str, &'static str)>)> {
    vec![
        ("/logout", vec![]),
        ("/account/password", vec![("current_password", PASSWORD), ("new_password", NEW)]),
        ("/account/sessions/revoke-others", vec![]),
        ("/account/sessions/revoke", vec![("session_id", "00000000000000000000000000000000")]),
        ("/login", vec![("login", "alice"), ("password", PASSWORD)]),
        ("/register", vec![("login", "bob"), ("password", PASSWORD)]),
    ]
}

#[tokio::test]
async fn a_form_from_elsewhere_does_nothing() {
    let (app, client) = signed_in().await;
    let other = app.client();
    other.login("alice", PASSWORD).await;
    let token = client.get("/account").await.csrf_token();
    let stranger = app.client();
    let strangers = stranger.get("/login").await.csrf_token();
    let before = app.hashes();
    for (path, fields) in forms() {
        for header in FOREIGN {
            let with_token = [&fields[..], &[("csrf_token", &token)]].concat();
            let answer = send(&client, path, &[header], &with_token).await;
            assert_eq!(answer.status, 403, "{path} {header:?}");
        }
        let origin = ("origin", app.url.as_str());
        for token in ["", "x", &strangers, &"A".repeat(43), &"A".repeat(9_000)] {
            let with_token = [&fields[..], &[("csrf_token", token)]].concat();
            for headers in [&[][..], &[origin]] {
                let answer = send(&client, path, headers, &with_token).await;
                assert_eq!(answer.status, 403, "{path} {token}");
                assert!(answer.cookie("gh_session").is_none());
                assert!(!answer.text.contains(PASSWORD));
            }
        }
        assert_eq!(send(&client, path, &[origin], &fields).await.status, 403, "{path} without a token");
    }
    assert_eq!(app.hashes(), before, "nothing was tried");
    assert_eq!(client.get("/api/v1/session").await.status, 200);
    assert_eq!(other.get("/api/v1/session").await.status, 200);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    assert_eq!(app.client().login("bob", PASSWORD).await.status, 401);
}

#[tokio::test]
async fn a_form_of_ours_passes_with_or_without_an_origin() {
    let (app, _) = signed_in().await;
    let upper = app.url.to_uppercase();
    let referer = format!("{}/login", app.url);
    for headers in [
        vec![],
        vec![("origin", app.url.as_str())],
        vec![("origin", upper.as_str())],
        vec![("referer", referer.as_str())],
        vec![("sec-fetch-site", "same-origin"), ("origin", app.url.as_str())],
    ] {
        let client = app.client();
        let token = client.get("/login").await.csrf_token();
        let fields = [("login", "alice"), ("password", PASSWORD), ("csrf_token", &token)];
        assert_eq!(send(&client, "/login", &headers, &fields).await.status, 303, "{headers:?}");
    }
}

#[tokio::test]
async fn a_call_from_elsewhere_does_nothing() {
    let (app, client) = signed_in().await;
    let before = app.hashes();
    for (path, body) in [
        ("/logout", serde_json::json!({})),
        ("/login", serde_json::json!({ "login": "alice", "password": PASSWORD })),
        ("/register", serde_json::json!({ "login": "bob", "password": PASSWORD })),
        ("/captcha", serde_json::json!({})),
    ] {
        for (name, value) in FOREIGN {
            let request = client.http.post(format!("{}/api/v1{path}", app.url)).header(name, value);
            let answer = Answer::read(request.json(&body).send().await.unwrap()).await;
            assert_eq!((answer.status, answer.problem()), (403, "csrf"), "{path} {name}: {value}");
            assert!(answer.cookie("gh_session").is_none());
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
    }
    // What a form can send is not an API call, with or without an Origin.
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let request = client.http.post(format!("{}/api/v1/logout", app.url)).header("content-type", kind);
        assert_eq!(request.body("{}").send().await.unwrap().status(), 403, "{kind}");
    }
    assert_eq!(app.hashes(), before);
    assert_eq!(client.get("/api/v1/session").await.status, 200);
    assert_eq!(app.client().login("bob", PASSWORD).await.status, 401);
}

#[tokio::test]
async fn signing_in_leads_nowhere_else() {
    let (app, _) = signed_in().await;
    for (next, expected) in [
        ("/account?tab=2", "/account?tab=2"),
        ("//evil.example", "/account"),
        ("https://evil.example/", "/account"),
        ("/\\evil.example", "/account"),
        ("/%2f/evil.example", "/account"),
        ("/\tevil.example", "/account"),
        ("/a\r\nSet-Cookie: x=y", "/account"),
        ("javascript:alert(1)", "/account"),
        ("/logout", "/account"),
        ("", "/account"),
    ] {
        let client = app.client();
        let fields = [("login", "alice"), ("password", PASSWORD), ("next", next)];
        let answer = client.submit("/login", "/login", &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, expected), "{next:?}");
        assert!(answer.cookie("x").is_none());
        let query: String = url::form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let answer = client.get(&format!("/login?next={query}")).await;
        assert_eq!((answer.status, answer.header("location")), (303, expected), "{next:?}");
        let page = app.client().get(&format!("/login?next={query}")).await;
        assert_eq!(page.hidden("next").is_some(), expected == next, "{next:?}");
        assert!(!page.text.contains("evil.example"));
    }
}
