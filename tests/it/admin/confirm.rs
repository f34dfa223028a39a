//! A change in the console requires a recently entered password.

use std::time::Duration;

use serde_json::json;

use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp};

const QUARTER: Duration = Duration::from_secs(15 * 60);
const MICRO: Duration = Duration::from_micros(1);

/// A change that has no effect once it is allowed.
async fn change(client: &Client) -> Answer {
    let request = client.http.delete(format!("{}/api/v1/admin/brakes/+861380013", client.url));
    Answer::read(request.send().await.unwrap()).await
}

async fn confirm(client: &Client, password: &str) -> Answer {
    client.call("/admin/confirm", json!({ "password": password })).await
}

#[tokio::test]
async fn a_change_takes_a_password_shown_within_the_quarter() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(change(&boss).await.problem(), "not-found", "a sign-in by password shows it");
    app.advance(QUARTER - MICRO);
    assert_eq!(change(&boss).await.problem(), "not-found");
    app.advance(MICRO);
    let late = change(&boss).await;
    assert_eq!((late.status, late.problem()), (403, "confirmation-required"));
    assert_eq!(boss.get("/api/v1/admin/brakes").await.status, 200, "to look takes none");
    assert_eq!(confirm(&boss, "not the password").await.problem(), "invalid-credentials");
    assert_eq!(change(&boss).await.problem(), "confirmation-required");
    assert_eq!(confirm(&boss, PASSWORD).await.status, 204);
    assert_eq!(change(&boss).await.problem(), "not-found");
    app.advance(QUARTER);
    assert_eq!(change(&boss).await.problem(), "confirmation-required");
}

#[tokio::test]
async fn how_long_it_counts_is_the_owners_to_say() {
    let app = TestApp::on(Store::Memory).set("session.confirm", "1m").start().await;
    let boss = app.sign_in_admin("boss").await;
    app.advance(Duration::from_secs(60) - MICRO);
    assert_eq!(change(&boss).await.problem(), "not-found");
    app.advance(MICRO);
    assert_eq!(change(&boss).await.problem(), "confirmation-required");
}

#[tokio::test]
async fn the_password_shown_gives_the_session_a_new_token_and_no_other_session_the_right() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let elsewhere = app.client();
    assert_eq!(elsewhere.login("boss", PASSWORD).await.status, 200);
    app.advance(QUARTER);
    let before = app.client();
    let signed_in = before.login("boss", PASSWORD).await;
    let old = signed_in.cookie("gh_session").unwrap().split(';').next().unwrap().to_owned();
    app.advance(QUARTER);
    let confirmed = confirm(&before, PASSWORD).await;
    let new = confirmed.cookie("gh_session").unwrap().split(';').next().unwrap().to_owned();
    assert_ne!(old, new);
    let with = async |cookie: &str| {
        let request = app.client().http.get(format!("{}/api/v1/session", app.url)).header("cookie", cookie);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((with(&old).await, with(&new).await), (401, 200));
    assert_eq!(change(&before).await.problem(), "not-found");
    assert_eq!(change(&elsewhere).await.problem(), "confirmation-required");
    assert_eq!(change(&boss).await.problem(), "confirmation-required");
}

#[tokio::test]
async fn the_password_is_tried_like_at_sign_in() {
    let app = TestApp::on(Store::Memory).without(&["login-device"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.advance(QUARTER);
    for _ in 0..2 {
        assert_eq!(confirm(&boss, "wrong").await.body["captcha_required"], false);
    }
    assert_eq!(confirm(&boss, "wrong").await.body["captcha_required"], true);
    let hashes = app.hashes();
    let refused = confirm(&boss, PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (403, "captcha-required"));
    assert_eq!(app.client().login("boss", PASSWORD).await.problem(), "captcha-required", "one window");
    assert_eq!(app.hashes(), hashes, "nothing is tried");
    let id = refused.body["captcha"]["id"].as_str().unwrap();
    let body = json!({ "password": PASSWORD, "captcha": { "id": id, "answer": ANSWER } });
    assert_eq!(boss.call("/admin/confirm", body).await.status, 204);
    assert_eq!(change(&boss).await.problem(), "not-found");
}

#[tokio::test]
async fn the_page_leads_to_the_password_and_back() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(boss.get("/admin/confirm?next=/admin/messages").await.header("location"), "/admin/messages");
    app.advance(QUARTER);
    let sent = boss.submit("/admin/tokens", "/admin/tokens/revoke", &[("id", "0")]).await;
    assert_eq!((sent.status, sent.header("location")), (303, "/admin/confirm?next=/admin/tokens"));
    let page = boss.get(sent.header("location")).await;
    assert_eq!((page.status, page.hidden("next").as_deref()), (200, Some("/admin/tokens")));
    let token = page.csrf_token();
    let fields = [("csrf_token", token.as_str()), ("next", "/admin/messages?state=refused")];
    let wrong = boss.post("/admin/confirm", &[&fields[..], &[("password", "wrong")]].concat()).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text.contains("id=\"password-error\""), "{}", wrong.text);
    let right = boss.post("/admin/confirm", &[&fields[..], &[("password", PASSWORD)]].concat()).await;
    assert_eq!((right.status, right.header("location")), (303, "/admin/messages?state=refused"));
    let sent = boss.submit("/admin/tokens", "/admin/tokens/revoke", &[("id", "0")]).await;
    assert_eq!((sent.status, sent.header("location")), (303, "/admin/tokens"));
}

#[tokio::test]
async fn showing_the_password_leads_nowhere_else() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    for next in ["https://evil.example", "//evil.example", "/admin/confirm", "/admin/confirm?next=/account"] {
        app.advance(QUARTER);
        let fields = [("password", PASSWORD), ("next", next)];
        let answer = boss.submit("/admin/confirm", "/admin/confirm", &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, "/admin"), "{next}");
    }
}

#[tokio::test]
async fn signing_in_leads_back_to_the_page_with_its_query() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let stranger = app.client();
    let asked = "/admin/messages?state=refused&prefix=%2B861380013";
    let answer = stranger.get(asked).await;
    let place = "/login?next=/admin/messages%3Fstate%3Drefused%26prefix%3D%252B861380013";
    assert_eq!((answer.status, answer.header("location")), (303, place));
    let page = stranger.get(place).await;
    let next = page.hidden("next").unwrap().replace("&#38;", "&");
    assert_eq!(next, asked);
    let fields = [("login", "boss"), ("password", PASSWORD), ("next", &next)];
    let signed_in = stranger.submit("/login", "/login", &fields).await;
    assert_eq!(signed_in.header("location"), asked);
    drop(boss);
}
