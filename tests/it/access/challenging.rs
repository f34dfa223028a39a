//! `[access] challenge_everyone_until`: everybody but known devices solves a CAPTCHA.

use std::time::Duration;

use serde_json::json;

use super::{ELSEWHERE, IN_AN_HOUR, THERE, WRONG, with_cookies};
use crate::sms::http::NUMBER;
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    until_its_end_strangers_solve_a_captcha_and_known_devices_do_not,
    a_known_device_past_its_own_guesses_is_challenged_as_a_stranger,
);

const HOUR: Duration = Duration::from_secs(3600);

fn challenged() -> String {
    format!("[access]\nchallenge_everyone_until = \"{IN_AN_HOUR}\"\n")
}

/// Registers with a solved CAPTCHA; answers the device's cookie.
async fn owner(app: &TestApp, login: &str) -> String {
    let client = app.client_at(ELSEWHERE);
    let id = client.call("/captcha", json!({ "for": "register" })).await.body["id"].clone();
    let body = json!({ "login": login, "password": PASSWORD, "captcha": { "id": id, "answer": ANSWER } });
    let answer = client.call("/register", body).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    super::pair(answer.cookie("gh_device").unwrap())
}

async fn until_its_end_strangers_solve_a_captcha_and_known_devices_do_not(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().file(&challenged()).start().await;
    let stranger = app.client_at(THERE);
    let refused = stranger.register("alice", PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (403, "captcha-required"), "{}", refused.text);
    let device = owner(&app, "alice").await;
    let before = app.hashes();
    let mut told = Vec::new();
    for name in ["alice", "nobody-in-particular"] {
        let mut answer = stranger.login(name, PASSWORD).await;
        assert_eq!((answer.status, answer.problem()), (403, "captcha-required"), "{}", answer.text);
        assert!(answer.body["captcha"].take()["id"].is_string());
        assert_eq!(answer.header("ratelimit"), "", "no limit is full");
        told.push(answer.body);
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(app.hashes(), before);
    let id = stranger.challenge().await;
    let wrong = stranger.login_with("alice", WRONG, &id, ANSWER).await;
    assert_eq!((wrong.status, &wrong.body["captcha_required"]), (401, &json!(true)), "{}", wrong.text);
    let id = stranger.challenge().await;
    assert_eq!(stranger.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
    // Codes and new passwords.
    for purpose in ["login", "register", "reset"] {
        assert_eq!(stranger.ask_code(NUMBER, purpose).await.problem(), "captcha-required", "{purpose}");
    }
    let reset = json!({ "phone": NUMBER, "code": "012345", "new_password": PASSWORD });
    assert_eq!(stranger.call("/password/reset", reset).await.problem(), "captcha-required");
    let id = stranger.call("/captcha", json!({ "for": "sms" })).await.body["id"].clone();
    let solved = json!({ "phone": NUMBER, "purpose": "login", "captcha": { "id": id, "answer": ANSWER } });
    assert_eq!(stranger.call("/sms/codes", solved).await.status, 202);
    // The page shows it at once, except where the browser is known.
    let page = app.client_at(THERE).get("/login").await;
    assert!(page.status == 200 && page.text.contains("name=\"captcha_answer\""), "{}", page.text);
    let known = with_cookies(&app, THERE, &device);
    assert!(!known.get("/login").await.text.contains("captcha_answer"));
    assert_eq!(known.login("alice", PASSWORD).await.status, 200);
    assert_eq!(known.login("nobody-in-particular", PASSWORD).await.problem(), "captcha-required");
    app.advance(HOUR);
    assert!(!app.client_at(THERE).get("/login").await.text.contains("captcha_answer"));
    assert_eq!(app.client_at(THERE).login("alice", PASSWORD).await.status, 200, "it ends at its time");
    assert_eq!(app.client_at(THERE).register("bea", PASSWORD).await.status, 201);
}

async fn a_known_device_past_its_own_guesses_is_challenged_as_a_stranger(store: Store) {
    let device = "[limits.login-device]\nrules = [{ max = 2, window = \"1h\", then = \"block\" }]\n";
    let app = TestApp::on(store).behind_a_proxy().file(&format!("{}{device}", challenged())).start().await;
    let known = with_cookies(&app, THERE, &owner(&app, "alice").await);
    for _ in 0..2 {
        assert_eq!(known.login("alice", WRONG).await.problem(), "invalid-credentials");
    }
    let before = app.hashes();
    assert_eq!(known.login("alice", PASSWORD).await.problem(), "captcha-required");
    assert_eq!(app.hashes(), before);
    let id = known.challenge().await;
    assert_eq!(known.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
}

#[tokio::test]
async fn an_outage_of_the_store_lifts_nothing() {
    let file = format!(
        "[access]\nchallenge_everyone_until = \"{IN_AN_HOUR}\"\n{}",
        super::list("deny", &["203.0.113.0/24"])
    );
    let mut app = TestApp::on(Store::Redis).behind_a_proxy().file(&file).start().await;
    drop(app.redis.take());
    assert_eq!(app.client_at(THERE).login("alice", PASSWORD).await.problem(), "denied");
    assert_eq!(app.client_at(ELSEWHERE).login("alice", PASSWORD).await.problem(), "captcha-required");
}
