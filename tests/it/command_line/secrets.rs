//! What must stand in no log line and in no key, whatever people type and wherever.

use crate::support::process::{Home, Running};
use crate::support::redis::RedisServer;

/// Everything a person types, and where they type it, put through every call there is.
async fn visit(running: &Running, address: &str, login: &str, password: &str) {
    let client = running.client();
    let call = |path: &'static str, body: serde_json::Value| {
        let request = client.http.post(format!("{}/api/v1{path}", client.url)).json(&body);
        request.header("x-forwarded-for", address).send()
    };
    let credentials = serde_json::json!({ "login": login, "password": password });
    assert_eq!(call("/register", credentials.clone()).await.unwrap().status(), 201);
    for round in 0..12 {
        let wrong = serde_json::json!({ "login": login, "password": format!("{password} {round}") });
        call("/login", wrong).await.unwrap();
    }
    let challenge: serde_json::Value =
        call("/captcha", serde_json::json!({})).await.unwrap().json().await.unwrap();
    for answer in ["not-it-unmistakably", "unmistakable"] {
        let captcha = serde_json::json!({ "id": challenge["id"], "answer": answer });
        let body = serde_json::json!({ "login": login, "password": password, "captcha": captcha });
        call("/login", body).await.unwrap();
    }
    let odd = serde_json::json!({ "login": [login], "password": { "of": password }, "unknown": password });
    call("/login", odd).await.unwrap();
    let form =
        [("login", login), ("password", password), ("csrf_token", "x"), ("captcha_answer", "unmistakable")];
    let page = client.http.post(format!("{}/login", client.url)).header("x-forwarded-for", address);
    page.form(&form).send().await.unwrap();
}

#[tokio::test]
async fn nothing_that_is_secret_is_in_the_log_or_on_redis() {
    let redis = RedisServer::start();
    let mut home = Home::new();
    home.set("RUST_LOG", "gatehouse=trace,actix_web=debug,sqlx=debug,redis=trace,info");
    home.set("GATEHOUSE__SERVER__TRUSTED_PROXIES", "[\"127.0.0.0/8\"]");
    home.set("GATEHOUSE__CAPTCHA__PROVIDER", "fixed");
    home.set("GATEHOUSE__CAPTCHA__FIXED_ANSWER", "unmistakable");
    home.set("GATEHOUSE__STORE__URL", redis.url());
    let mut running = home.start(&["serve"]).await;
    visit(&running, "203.0.113.77", "zaphod-the-first", "beeblebrox heart of gold").await;
    let names: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connection()).unwrap();
    assert!(names.iter().any(|name| name.starts_with("gh:login-account:")), "{names:?}");
    // And through an outage, which is what the log is read for.
    drop(redis);
    visit(&running, "203.0.113.78", "zaphod-the-second", "beeblebrox heart of gold").await;
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
    let (log, stdout) = (running.stderr(), running.stdout());
    assert!(log.contains("redis is out of service"), "{log}");
    let key = std::fs::read(home.path("data/secret.key")).unwrap();
    assert!(!log.contains(&String::from_utf8_lossy(&key).into_owned()));
    for secret in ["203.0.113", "zaphod", "beeblebrox", "unmistakabl"] {
        for (place, text) in [("the log", &log), ("stdout", &stdout), ("Redis", &names.join("\n"))] {
            let found: Vec<_> = text.lines().filter(|line| line.to_lowercase().contains(secret)).collect();
            assert!(found.is_empty(), "{secret} is in {place}: {found:#?}");
        }
    }
}
