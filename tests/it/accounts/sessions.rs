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
async fn who_was_signed_out_is_told_so_once_and_comes_back() {
    const ENDED: &str = "You were signed out";
    const LOST: &str = "was not saved";
    let app = start().await;
    let (here, there) = (app.client(), app.client());
    for client in [&here, &there] {
        client.login("alice", PASSWORD).await;
    }
    let token = here.get("/account").await.csrf_token();
    there.submit("/account", "/account/sessions/revoke-others", &[]).await;

    let away = here.get("/account/phone?lang=en").await;
    assert_eq!((away.status, away.header("location")), (303, "/login?next=/account/phone%3Flang%3Den"));
    let page = here.get(away.header("location")).await;
    assert!(page.text.contains(ENDED) && !page.text.contains(LOST), "{}", page.text);
    assert!(!here.get("/login").await.text.contains(ENDED), "it is said once");

    let fields = [("current_password", PASSWORD), ("new_password", "x"), ("csrf_token", token.as_str())];
    let away = here.post("/account/password", &fields).await;
    assert_eq!((away.status, away.header("location")), (303, "/login?next=/account"));
    assert!(here.get(away.header("location")).await.text.contains(LOST));

    // Somebody who is signed in by then does not read that they are not.
    here.get("/account").await;
    assert_eq!(here.login("alice", PASSWORD).await.status, 200);
    let page = here.get("/account").await;
    assert!(page.status == 200 && !page.text.contains(ENDED));
    // Nor does somebody who never was.
    let stranger = app.client();
    let away = stranger.get("/account").await;
    assert!(away.cookie("gh_flash").is_none());
    assert!(!stranger.get(away.header("location")).await.text.contains(ENDED));
}

#[tokio::test]
async fn a_session_that_was_idle_too_long_is_told_in_the_console_too() {
    let app = start().await;
    let boss = app.sign_in_admin("boss").await;
    let token = boss.get("/admin/tokens").await.csrf_token();
    app.advance(Duration::from_secs(400 * 24 * 3600));
    let away = boss.get("/admin/events?action=sign-in").await;
    assert_eq!(away.header("location"), "/login?next=/admin/events%3Faction%3Dsign-in");
    assert!(boss.get(away.header("location")).await.text.contains("You were signed out"));
    let away = boss.post("/admin/tokens", &[("name", "x"), ("csrf_token", &token)]).await;
    assert_eq!((away.status, away.header("location")), (303, "/login?next=/admin/tokens"));
    assert!(boss.get(away.header("location")).await.text.contains("was not saved"));
}

/// The paths come from requests, so they are as hostile as a `next` from a link.
#[tokio::test]
async fn nobody_is_led_off_this_site_by_a_path_that_needs_a_session() {
    let app = start().await;
    for path in ["/account?next=//evil.example", "/admin/events?x=https://evil.example", "/account//evil"] {
        let client = app.client_that_says(&[("cookie", &format!("gh_session={}", "A".repeat(43)))]);
        let away = client.get(path).await.header("location").to_owned();
        assert!(away.is_empty() || away.starts_with("/login?next=/a"), "{path}: {away}");
    }
}

#[tokio::test]
async fn the_account_page_leads_administrators_to_the_console_and_nobody_else() {
    let app = start().await;
    let client = app.client();
    let fields = [("login", "alice"), ("password", PASSWORD)];
    assert_eq!(client.submit("/login", "/login", &fields).await.header("location"), "/account");
    let page = client.get("/account").await;
    assert!(!page.text.contains("href=\"/admin\"") && !page.text.contains("id=\"goto\""));
    let boss = app.sign_in_admin("boss").await;
    let page = boss.get("/account").await;
    let at = |what: &str| page.text.find(what).unwrap_or_else(|| panic!("{what}: {}", page.text));
    assert!(at("href=\"/admin\"") < at("id=\"profile\""), "before the profile");
    assert_eq!(page.text.matches("href=\"/admin\"").count(), 1);
}

#[tokio::test]
async fn password_managers_find_the_form_that_changes_a_password() {
    let app = start().await;
    let client = app.client();
    client.login("alice", PASSWORD).await;
    for who in [&client, &app.client()] {
        let led = who.get("/.well-known/change-password").await;
        assert_eq!((led.status, led.header("location")), (303, "/account#password"));
    }
    let page = client.get("/account").await;
    assert!(page.text.contains("id=\"password\"") && page.text.contains("action=\"/account/password\""));
}

#[tokio::test]
async fn a_title_says_first_that_something_was_wrong() {
    let app = start().await;
    let title = |page: &crate::support::app::Answer| {
        page.text.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_owned()
    };
    let client = app.client();
    assert_eq!(title(&client.get("/login").await), "Sign in · Gatehouse");
    let wrong = [("login", "alice"), ("password", "not it")];
    assert_eq!(title(&client.submit("/login", "/login", &wrong).await), "Error: Sign in · Gatehouse");
    let missing = client.submit("/register?lang=zh-CN", "/register", &[("login", "")]).await;
    assert_eq!(title(&missing), "错误：注册账号 · Gatehouse");
    let boss = app.sign_in_admin("boss").await;
    let wrong = boss.submit("/admin/tokens", "/admin/tokens", &[("name", "")]).await;
    assert!(title(&wrong).starts_with("Error: "), "{}", title(&wrong));
    let unreadable = boss.submit("/admin/lookup", "/admin/lookup", &[("asked", "1/2")]).await;
    let unreadable =
        if unreadable.status == 303 { boss.get("/admin/lookup?typed").await } else { unreadable };
    assert!(title(&unreadable).starts_with("Error: "), "{}", title(&unreadable));
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
