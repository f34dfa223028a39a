//! Sessions: started, renewed, shown, ended.

use std::time::Duration;

use crate::support::app::{PASSWORD, Store, TestApp};

async fn start() -> TestApp {
    let app = TestApp::start(Store::Memory).await;
    app.register("alice").await;
    app
}

/// The value of the session cookie that an answer sets.
fn token(answer: &crate::support::app::Answer) -> String {
    let line = answer.cookie("gh_session").expect("a session cookie");
    line.split(['=', ';']).nth(1).unwrap().to_owned()
}

async fn session_of(app: &TestApp, token: &str) -> u16 {
    let cookie = format!("gh_session={token}");
    app.client_that_says(&[("cookie", &cookie)]).get("/api/v1/session").await.status
}

#[tokio::test]
async fn a_sign_in_renews_the_session() {
    let app = start().await;
    let client = app.client();
    let first = token(&client.login("alice", PASSWORD).await);
    let second = token(&client.login("alice", PASSWORD).await);
    assert_ne!(first, second);
    assert_eq!((session_of(&app, &first).await, session_of(&app, &second).await), (401, 200));
    // Another account in the same browser, too.
    app.register("bob").await;
    token(&client.login("bob", PASSWORD).await);
    assert_eq!(session_of(&app, &second).await, 401);
}

#[tokio::test]
async fn a_token_that_a_browser_brought_is_never_taken_over() {
    let app = start().await;
    let planted = "A".repeat(43);
    let cookie = format!("gh_session={planted}");
    let client = app.client_that_says(&[("cookie", &cookie)]);
    assert_ne!(token(&client.login("alice", PASSWORD).await), planted);
    assert_eq!(session_of(&app, &planted).await, 401);
}

#[tokio::test]
async fn a_failed_sign_in_starts_and_ends_nothing() {
    let app = start().await;
    let client = app.client();
    let first = token(&client.login("alice", PASSWORD).await);
    let failed = client.login("alice", "a wrong password").await;
    assert!(failed.cookie("gh_session").is_none());
    assert_eq!(session_of(&app, &first).await, 200);
}

#[tokio::test]
async fn only_a_session_in_force_is_told() {
    let app = start().await;
    let nobody = app.client().get("/api/v1/session").await;
    assert_eq!((nobody.status, nobody.problem()), (401, "unauthenticated"));
    assert!(!nobody.header("www-authenticate").is_empty());
    let huge = "A".repeat(6_000);
    for cookie in
        ["gh_session=", "gh_session=x", "gh_session=%00", "gh_session=\"\"", &format!("gh_session={huge}")]
    {
        let client = app.client_that_says(&[("cookie", cookie)]);
        assert_eq!(client.get("/api/v1/session").await.status, 401);
        assert_eq!(client.get("/account").await.status, 303);
    }
}

#[tokio::test]
async fn signing_out_ends_the_session() {
    let app = start().await;
    let client = app.client();
    let by_api = token(&client.login("alice", PASSWORD).await);
    let out = client.http.post(format!("{}/api/v1/logout", app.url)).send().await.unwrap();
    assert_eq!(out.status(), 204);
    assert_eq!(session_of(&app, &by_api).await, 401);
    let again = client.http.post(format!("{}/api/v1/logout", app.url)).send().await.unwrap();
    assert_eq!(again.status(), 204, "nobody is signed in, as asked for");
    let by_page = token(&client.login("alice", PASSWORD).await);
    let out = client.submit("/account", "/logout", &[]).await;
    assert_eq!((out.status, out.header("location")), (303, "/login"));
    assert!(out.cookie("gh_session").unwrap().contains("Max-Age=0"));
    assert_eq!(session_of(&app, &by_page).await, 401);
}

#[tokio::test]
async fn an_idle_session_ends() {
    let app = start().await;
    let client = app.client();
    client.login("alice", PASSWORD).await;
    app.advance(Duration::from_secs(400 * 24 * 3600));
    assert_eq!(client.get("/api/v1/session").await.status, 401);
    assert_eq!(client.get("/account").await.header("location"), "/login?next=/account");
}

#[tokio::test]
async fn the_account_page_is_for_who_is_signed_in() {
    let app = start().await;
    let client = app.client();
    let away = client.get("/account").await;
    assert_eq!((away.status, away.header("location")), (303, "/login?next=/account"));
    for path in ["/account/password", "/account/sessions/revoke", "/account/sessions/revoke-others"] {
        assert_eq!(client.submit("/login", path, &[]).await.header("location"), "/login?next=/account");
    }
    client.login("alice", PASSWORD).await;
    let page = client.get("/account").await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("alice") && page.text.contains("127.0.0.0/24"));
    assert!(!page.text.contains("127.0.0.1"), "a network, not an address");
    assert_eq!(client.get("/login").await.header("location"), "/account");
}

#[tokio::test]
async fn another_browser_can_be_signed_out() {
    let app = start().await;
    let (here, there) = (app.client(), app.client());
    there.login("alice", PASSWORD).await;
    here.login("alice", PASSWORD).await;
    // Those of its registration, `there` and `here`: two are others.
    let page = here.get("/account").await;
    assert_eq!(page.text.matches("name=\"session_id\"").count(), 2);
    let mut ids: Vec<String> = Vec::new();
    for part in page.text.split("name=\"session_id\" value=\"").skip(1) {
        ids.push(part.split('"').next().unwrap().to_owned());
    }
    for id in &ids {
        let revoked = here.submit("/account", "/account/sessions/revoke", &[("session_id", id)]).await;
        assert_eq!((revoked.status, revoked.header("location")), (303, "/account"));
    }
    assert_eq!(there.get("/api/v1/session").await.status, 401);
    assert_eq!(here.get("/api/v1/session").await.status, 200);
}

#[tokio::test]
async fn somebody_elses_session_cannot_be_revoked() {
    let app = start().await;
    let (alice, alice_too, mallory) = (app.client(), app.client(), app.client());
    alice.login("alice", PASSWORD).await;
    alice_too.login("alice", PASSWORD).await;
    mallory.register("mallory", PASSWORD).await;
    let id = alice.get("/account").await.hidden("session_id").expect("the other one");
    for id in [id.as_str(), "x", "", "' OR 1=1 --"] {
        let answer = mallory.submit("/account", "/account/sessions/revoke", &[("session_id", id)]).await;
        assert_eq!(answer.status, 303, "and is not told that it is one");
    }
    mallory.submit("/account", "/account/sessions/revoke-others", &[]).await;
    assert_eq!(alice.get("/api/v1/session").await.status, 200);
    assert_eq!(alice_too.get("/api/v1/session").await.status, 200);
}

#[tokio::test]
async fn all_others_can_be_signed_out_at_once() {
    let app = start().await;
    let (here, one, two) = (app.client(), app.client(), app.client());
    for browser in [&one, &two, &here] {
        browser.login("alice", PASSWORD).await;
    }
    assert_eq!(here.submit("/account", "/account/sessions/revoke-others", &[]).await.status, 303);
    assert_eq!(one.get("/api/v1/session").await.status, 401);
    assert_eq!(two.get("/api/v1/session").await.status, 401);
    assert_eq!(here.get("/api/v1/session").await.status, 200);
}

#[tokio::test]
async fn cookies_are_fenced_in() {
    let app = start().await;
    let line = app.client().login("alice", PASSWORD).await.cookie("gh_session").unwrap().to_owned();
    assert!(line.contains("; HttpOnly") && line.contains("; SameSite=Lax") && line.contains("; Path=/"));
    assert!(!line.contains("; Secure"), "plain http would lose it: {line}");
    let page = app.client().get("/login?lang=zh-CN").await;
    for name in ["gh_browser", "gh_lang"] {
        let line = page.cookie(name).unwrap();
        assert!(line.contains("; HttpOnly") && line.contains("; SameSite=Lax"), "{line}");
    }
}

#[tokio::test]
async fn on_https_cookies_are_secure_and_bound_to_the_host() {
    let app = TestApp::on(Store::Memory).set("server.public_url", "https://id.example").start().await;
    let client = app.client();
    let made = client.register("alice", PASSWORD).await;
    let line = made.cookie("__Host-gh_session").expect("a __Host- cookie");
    for fence in ["; HttpOnly", "; SameSite=Lax", "; Secure", "; Path=/"] {
        assert!(line.contains(fence) && !line.contains("Domain"), "{line}");
    }
    assert!(made.header("strict-transport-security").contains("max-age="));
    assert!(app.client().get("/login").await.cookie("__Host-gh_browser").unwrap().contains("; Secure"));
    // The plain name is ignored there.
    let value = line.split(['=', ';']).nth(1).unwrap();
    for (name, status) in [("__Host-gh_session", 200), ("gh_session", 401)] {
        let cookie = format!("{name}={value}");
        assert_eq!(app.client_that_says(&[("cookie", &cookie)]).get("/api/v1/session").await.status, status);
    }
}
