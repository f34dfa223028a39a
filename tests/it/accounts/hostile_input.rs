//! Malformed bodies: each is refused with the reason, and none causes a server error.

use serde_json::json;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};

async fn raw(client: &Client, path: &str, kind: &str, body: impl Into<reqwest::Body>) -> Answer {
    let request = client.http.post(format!("{}{path}", client.url)).header("content-type", kind);
    Answer::read(request.header("origin", &client.url).body(body).send().await.unwrap()).await
}

async fn start() -> (TestApp, Client) {
    let app = TestApp::start(Store::Memory).await;
    app.register("alice").await;
    let client = app.client();
    (app, client)
}

const CALLS: [&str; 3] = ["/api/v1/login", "/api/v1/register", "/api/v1/captcha"];
const FORMS: [&str; 3] = ["/login", "/register", "/logout"];
const FORM: &str = "application/x-www-form-urlencoded";

#[tokio::test]
async fn a_huge_body_is_too_large() {
    let (_app, client) = start().await;
    for size in [17 * 1024, 4 << 20] {
        for path in CALLS {
            let body = format!("{{\"login\":\"{}\"}}", "a".repeat(size));
            let answer = raw(&client, path, "application/json", body).await;
            assert_eq!((answer.status, answer.problem()), (413, "payload-too-large"), "{path} {size}");
        }
        for path in FORMS {
            let answer = raw(&client, path, FORM, format!("login={}", "a".repeat(size))).await;
            assert_eq!(answer.status, 413, "{path} {size}");
        }
    }
}

#[tokio::test]
async fn a_body_of_another_type_is_told_so() {
    let (_app, client) = start().await;
    let body = json!({ "login": "alice", "password": PASSWORD }).to_string();
    for path in CALLS {
        for kind in ["text/plain", FORM, "application/xml", "multipart/form-data; boundary=x", "nonsense", ""]
        {
            let answer = raw(&client, path, kind, body.clone()).await;
            assert_eq!((answer.status, answer.problem()), (415, "unsupported-media-type"), "{path} {kind}");
        }
        let answer = raw(&client, path, "application/json; charset=utf-8", "{").await;
        assert_eq!(answer.status, 400, "{path}");
    }
    for path in FORMS {
        for kind in ["text/plain", "application/json", "multipart/form-data; boundary=x"] {
            assert_eq!(raw(&client, path, kind, body.clone()).await.status, 415, "{path} {kind}");
        }
    }
}

#[tokio::test]
async fn what_is_no_json_is_malformed() {
    let (_app, client) = start().await;
    for body in [
        "",
        "{",
        "{\"login\":}",
        "login=alice",
        "{\"login\":\"\\ud800\",\"password\":\"x\"}",
        "{\"login\":\"\\udc00\\ud800\",\"password\":\"x\"}",
        "\u{feff}{}",
        "{'login':1}",
        "{\"login\":\"a\nb\",\"password\":\"x\"}",
        "NaN",
    ] {
        for path in ["/api/v1/login", "/api/v1/register"] {
            let answer = raw(&client, path, "application/json", body.to_owned()).await;
            let shown = &body[..body.len().min(40)];
            assert_eq!((answer.status, answer.problem()), (400, "malformed-json"), "{path} {shown}");
        }
    }
    for body in [&b"{\"login\":\"\xff\",\"password\":\"x\"}"[..], b"\xff\xfe", b"\0"] {
        let answer = raw(&client, "/api/v1/login", "application/json", body).await;
        assert_eq!((answer.status, answer.problem()), (400, "malformed-json"));
    }
}

#[tokio::test]
async fn a_field_at_fault_is_named() {
    let (_app, client) = start().await;
    for (body, field) in [
        (json!({ "login": "alice", "password": PASSWORD, "colour": 1 }), "colour"),
        (json!({ "login": "alice" }), "password"),
        (json!({ "password": PASSWORD }), "login"),
        (json!({ "login": 5, "password": PASSWORD }), "body"),
        (json!({ "login": null, "password": PASSWORD }), "body"),
        (json!([]), "body"),
        (json!("x"), "body"),
        (
            json!({ "login": "alice", "password": PASSWORD, "captcha": { "id": "x", "answer": "y", "z": 1 } }),
            "z",
        ),
    ] {
        for path in ["/login", "/register"] {
            let answer = client.call(path, body.clone()).await;
            assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{path} {body}");
            assert_eq!(answer.body["errors"][0]["field"], field, "{path} {body}");
            assert!(!answer.text.contains(PASSWORD));
        }
    }
    let twice = format!("{{\"login\":\"alice\",\"login\":\"bob\",\"password\":\"{PASSWORD}\"}}");
    let answer = raw(&client, "/api/v1/login", "application/json", twice).await;
    assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &"login".into()));
    let deep = raw(&client, "/api/v1/login", "application/json", "[".repeat(10_000)).await;
    assert_eq!((deep.status, deep.problem()), (422, "invalid-input"), "is no object, however it goes on");
    let answer = client.call("/captcha", json!({ "for": "everything" })).await;
    assert_eq!(answer.status, 422);
}

/// Odd input from people and programs.
fn oddities() -> Vec<String> {
    let mut odd: Vec<String> = [
        "\0",
        "a\0b",
        "\u{1}",
        "\u{7f}",
        "\u{202e}evil",
        "דוד abc",
        "😀",
        "👨‍👩‍👧‍👦",
        "\u{feff}",
        "\u{fffd}",
        "\u{fffe}",
        "\u{10ffff}",
        "e\u{301}",
        "ﷺ",
        "' OR 1=1 --",
        "<script>alert(1)</script>",
        "${7*7}",
        "{{7*7}}",
        "%00",
        "../../etc/passwd",
        "a\r\nb: c",
        "\u{2028}",
        "null",
        "-1",
        "１３８００１３８０００",
        "\\",
        "\"",
    ]
    .map(str::to_owned)
    .into();
    odd.push("x".repeat(10_000));
    odd.push("é".repeat(5_000));
    odd.push("ﷺ".repeat(3_000));
    odd.push(format!("a{}", "\u{301}".repeat(4_000)));
    odd
}

#[tokio::test]
async fn odd_unicode_in_any_field_of_a_call_is_the_callers_mistake() {
    // Two hundred failures from one address are not the subject of this test.
    let app = TestApp::on(Store::Memory).without(&["login-address", "register-address"]).start().await;
    let client = app.client();
    for odd in oddities() {
        let shown: String = odd.chars().take(20).collect();
        for (path, body) in [
            ("/login", json!({ "login": odd, "password": PASSWORD })),
            ("/login", json!({ "login": "nobody", "password": odd })),
            (
                "/login",
                json!({ "login": "nobody", "password": PASSWORD, "captcha": { "id": odd, "answer": "a" } }),
            ),
            (
                "/login",
                json!({ "login": "nobody", "password": PASSWORD, "captcha": { "id": "a", "answer": odd } }),
            ),
            ("/login", json!({ "login": "nobody", "password": PASSWORD, odd.as_str(): 1 })),
            ("/captcha", json!({ "for": odd })),
        ] {
            let answer = client.call(path, body).await;
            assert!(
                (400..500).contains(&answer.status),
                "{path} {shown:?}: {} {}",
                answer.status,
                answer.text
            );
            assert!(!answer.problem().is_empty());
        }
        // Some of them are names, and some are passwords.
        for (login, password) in [(odd.as_str(), PASSWORD), ("carol", &odd)] {
            let answer = client.register(login, password).await;
            assert!(matches!(answer.status, 201 | 409 | 413 | 422), "{shown:?}: {}", answer.status);
        }
    }
}

#[tokio::test]
async fn odd_unicode_in_any_field_of_a_form_is_the_callers_mistake() {
    let app = TestApp::on(Store::Memory).without(&["login-address", "register-address"]).start().await;
    app.register("alice").await;
    let (client, alice) = (app.client(), app.client());
    alice.login("alice", PASSWORD).await;
    let token = client.get("/login").await.csrf_token();
    let alices = alice.get("/account").await.csrf_token();
    for odd in oddities() {
        let shown: String = odd.chars().take(20).collect();
        let odd = odd.as_str();
        let sent = [
            (&client, "/login", vec![("login", odd), ("password", PASSWORD), ("csrf_token", &token)]),
            (&client, "/login", vec![("login", "nobody"), ("password", odd), ("csrf_token", &token)]),
            (&client, "/login", vec![("login", "nobody"), ("password", "x"), ("csrf_token", odd)]),
            (
                &client,
                "/login",
                vec![("login", "nobody"), ("password", "x"), ("next", odd), ("csrf_token", &token)],
            ),
            (
                &client,
                "/login",
                vec![
                    ("login", "nobody"),
                    ("password", "x"),
                    ("captcha_id", odd),
                    ("captcha_answer", odd),
                    ("csrf_token", &token),
                ],
            ),
            (&client, "/register", vec![("login", odd), ("password", "short"), ("csrf_token", &token)]),
            (
                &alice,
                "/account/password",
                vec![
                    ("current_password", PASSWORD),
                    ("new_password", "short"),
                    ("captcha_id", odd),
                    ("csrf_token", &alices),
                ],
            ),
            (&alice, "/account/sessions/revoke", vec![("session_id", odd), ("csrf_token", "")]),
        ];
        for (client, path, fields) in sent {
            let answer = client.post(path, &fields).await;
            assert!((400..500).contains(&answer.status), "{path} {shown:?}: {}", answer.status);
            assert!(!answer.text.contains("<script>alert"), "escaped where it is shown");
            assert!(!answer.text.contains(PASSWORD));
        }
    }
    for body in ["login=%ff&password=%fe", "%", "&&&==", "login", "login=%u0041", "login=a&login=b"] {
        let answer = raw(&client, "/login", FORM, body).await;
        assert!((400..500).contains(&answer.status), "{body}: {}", answer.status);
    }
}

#[tokio::test]
async fn odd_headers_are_survived() {
    let (app, _) = start().await;
    for (name, value) in [
        ("user-agent", "\u{e9}\u{202e}".to_owned()),
        ("user-agent", "x".repeat(8_000)),
        ("accept-language", ";q=,,;q=9,zh;q=abc,".to_owned()),
        ("accept-language", "en,".repeat(2_000)),
        ("cookie", "=;;=;gh_session;gh_browser=\u{e9}; gh_flash=x.y; gh_lang=xx".to_owned()),
        ("cookie", "gh_browser=AAAA; gh_browser=".to_owned()),
        ("x-forwarded-for", "\u{e9},,,".to_owned()),
    ] {
        let client = app.client_that_says(&[(name, &value)]);
        assert_eq!(client.login("alice", PASSWORD).await.status, 200, "{name}: {value}");
        assert_eq!(
            app.client_that_says(&[(name, &value)]).get("/login").await.status,
            200,
            "{name}: {value}"
        );
    }
    let client = app.client_that_says(&[("user-agent", "<script>alert(1)</script>")]);
    client.login("alice", PASSWORD).await;
    assert!(!client.get("/account").await.text.contains("<script>alert"));
}
