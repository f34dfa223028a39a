//! What every address answers to every kind of request.

use gatehouse::db::Db;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};

async fn start() -> (TestApp, Client) {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    (app, client)
}

async fn request(client: &Client, method: &str, path: &str) -> Answer {
    let method = method.parse().unwrap();
    Answer::read(client.http.request(method, format!("{}{path}", client.url)).send().await.unwrap()).await
}

fn assert_fenced(answer: &Answer, what: &str) {
    assert_eq!(answer.header("x-content-type-options"), "nosniff", "{what}");
    let policy = answer.header("content-security-policy");
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"), "{what}");
    assert!(!answer.header("cache-control").is_empty(), "{what}");
    assert_eq!(answer.header("cross-origin-resource-policy"), "same-origin", "{what}");
    if answer.header("content-type").starts_with("text/html") {
        assert_eq!(answer.header("x-frame-options"), "DENY", "{what}");
        assert_eq!(answer.header("referrer-policy"), "same-origin", "{what}");
        assert_eq!(answer.header("cache-control"), "no-store", "{what}");
        assert!(policy.contains("form-action 'self'") && !policy.contains("unsafe"), "{what}");
    }
}

#[tokio::test]
async fn every_kind_of_answer_carries_the_security_headers() {
    let (app, client) = start().await;
    app.register("alice").await;
    for (method, path, status) in [
        ("GET", "/login", 200),
        ("GET", "/register", 200),
        ("GET", "/", 303),
        ("GET", "/account", 303),
        ("GET", "/problems/throttled", 200),
        ("GET", "/api", 200),
        ("GET", "/openapi.json", 200),
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 200),
        ("GET", "/favicon.ico", 200),
        ("GET", "/nothing", 404),
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v1/session", 401),
        ("GET", "/captcha/x.png", 404),
        ("GET", "/static/nothing.css", 404),
        ("GET", "/problems/nothing", 404),
        ("DELETE", "/login", 405),
        ("DELETE", "/api/v1/login", 405),
        ("OPTIONS", "/api/v1/login", 204),
        ("POST", "/api/v1/login", 415),
        ("POST", "/login", 415),
    ] {
        let answer = request(&client, method, path).await;
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        assert_fenced(&answer, path);
    }
    for answer in [
        client.call("/login", serde_json::json!({})).await,
        client.login("alice", "a wrong password").await,
        client.login("alice", PASSWORD).await,
        client.call("/captcha", serde_json::json!({})).await,
        client.get("/account").await,
        client.call("/captcha", serde_json::json!({ "x": "y".repeat(20_000) })).await,
    ] {
        assert_fenced(&answer, &answer.text);
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones() {
    let (_app, client) = start().await;
    for (path, allow) in [
        ("/", "GET, HEAD"),
        ("/login", "GET, HEAD, POST"),
        ("/register", "GET, HEAD, POST"),
        ("/logout", "POST"),
        ("/account", "GET, HEAD"),
        ("/.well-known/change-password", "GET, HEAD"),
        ("/account/password", "POST"),
        ("/account/sessions/revoke", "POST"),
        ("/account/sessions/revoke-others", "POST"),
        ("/captcha/x.png", "GET, HEAD"),
        ("/healthz", "GET, HEAD"),
        ("/api", "GET, HEAD"),
        ("/openapi.json", "GET, HEAD"),
        ("/api/v1/login", "POST"),
        ("/api/v1/logout", "POST"),
        ("/api/v1/register", "POST"),
        ("/api/v1/captcha", "POST"),
        ("/api/v1/session", "GET, HEAD"),
    ] {
        let allowed: Vec<_> = allow.split(", ").collect();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"] {
            if allowed.contains(&method) {
                continue;
            }
            let answer = request(&client, method, path).await;
            assert_eq!((answer.status, answer.header("allow")), (405, allow), "{method} {path}");
            let api = path.starts_with("/api/");
            let kind = if api { "application/problem+json" } else { "text/html; charset=utf-8" };
            assert_eq!(answer.header("content-type"), kind, "{method} {path}");
        }
        let options = request(&client, "OPTIONS", path).await;
        assert_eq!((options.status, options.header("allow")), (204, allow), "{path}");
    }
}

/// RFC 9110 §9.3.2: like GET, without the body.
#[tokio::test]
async fn head_is_answered_like_get() {
    let (_app, client) = start().await;
    for path in [
        "/",
        "/login",
        "/register",
        "/account",
        "/healthz",
        "/readyz",
        "/api",
        "/openapi.json",
        "/favicon.ico",
        "/api/v1/session",
        "/nothing",
        "/captcha/x.png",
    ] {
        let (get, head) = (request(&client, "GET", path).await, request(&client, "HEAD", path).await);
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.header("content-type"), get.header("content-type"), "{path}");
        assert_eq!(head.text, "", "{path}");
    }
    for path in ["/logout", "/api/v1/login"] {
        assert_eq!(request(&client, "HEAD", path).await.status, 405, "{path}");
    }
}

#[tokio::test]
async fn unknown_paths_are_not_found_in_the_callers_tongue() {
    let (_app, client) = start().await;
    for path in ["/nothing", "/login/", "/LOGIN", "/account/../login2", "/%ff", "/a%00b", "/.git/config"] {
        let answer = client.get(path).await;
        assert_eq!(
            (answer.status, answer.header("content-type")),
            (404, "text/html; charset=utf-8"),
            "{path}"
        );
        assert!(!answer.text.contains(".git"), "the path is not repeated");
    }
    for path in ["/api/v1/nothing", "/api/", "/api/v2/login"] {
        let answer = client.get(path).await;
        assert_eq!((answer.status, answer.problem()), (404, "not-found"), "{path}");
    }
}

#[tokio::test]
async fn what_is_broken_is_told_with_when_to_come_back() {
    let (app, client) = start().await;
    app.register("alice").await;
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
    const LOSE: &str = "ALTER TABLE sessions RENAME TO mislaid";
    match Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => sqlx::query(LOSE).execute(&pools.all).await.map(drop).unwrap(),
        Db::Postgres(pools) => sqlx::query(LOSE).execute(&pools.all).await.map(drop).unwrap(),
    }
    for path in ["/account", "/api/v1/session"] {
        let answer = client.get(path).await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, "5"), "{path}");
        assert!(!answer.text.contains("mislaid") && !answer.text.contains("sessions"), "{path}");
    }
}

#[tokio::test]
async fn what_is_public_is_compressed_and_no_page_ever_is() {
    let (app, client) = start().await;
    let get = async |path: &str| {
        let request = client.http.get(format!("{}{path}", app.url));
        let response = request.header("accept-encoding", "gzip, br, zstd").send().await.unwrap();
        let headers = response.headers().clone();
        let header = |name: &str| headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (
            header("content-encoding"),
            header("vary"),
            header("cache-control"),
            header("etag"),
            response.bytes().await.unwrap().len(),
        )
    };
    let page = client.get("/login").await;
    let asset = |ending: &str| {
        let end = page.text.find(ending).unwrap() + ending.len();
        page.text[page.text[..end].rfind("/static/").unwrap()..end].to_owned()
    };
    for (path, caching) in [
        (asset(".css"), "public, max-age=31536000, immutable"),
        (asset(".js"), "public, max-age=31536000, immutable"),
        ("/openapi.json".to_owned(), "no-cache"),
    ] {
        let plain = client.get(&path).await.text.len();
        let (encoding, vary, cached, tag, length) = get(&path).await;
        eprintln!("{path}: {plain} bytes, {length} compressed");
        assert_eq!((encoding.as_str(), vary.as_str(), cached.as_str()), ("gzip", "accept-encoding", caching));
        assert!(length * 2 < plain, "{path}: {length} of {plain}");
        let request = client.http.get(format!("{}{path}", app.url)).header("accept-encoding", "gzip");
        assert_eq!(request.header("if-none-match", tag).send().await.unwrap().status(), 304, "{path}");
    }
    for path in
        ["/login", "/register", "/account", "/api/v1/session", "/problems/throttled", "/nothing", "/api"]
    {
        assert_eq!(get(path).await.0, "", "{path}");
    }
}
