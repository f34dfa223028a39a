//! Challenges at sign-in: one answer, from one client, for one form, once.

use std::time::Duration;

use super::challenged;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";

on_both_stores!(
    an_answer_is_good_once,
    of_fifty_parallel_uses_of_one_answer_one_gets_past,
    an_answer_is_good_for_its_address_only,
    an_answer_is_good_for_its_browser_only,
    an_answer_is_good_for_its_form_only,
    a_wrong_answer_uses_the_challenge_up,
    a_challenge_expires,
    garbage_for_a_challenge_is_refused,
    images_are_drawn_at_a_limited_rate,
    a_pages_challenge_gets_its_form_past,
);

fn assert_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.problem()), (403, "captcha-invalid"), "{}", answer.text);
    assert!(answer.body["captcha"]["id"].is_string(), "with a fresh challenge");
}

async fn with_captcha(client: &Client, id: &str) -> Answer {
    client.login_with("alice", PASSWORD, id, ANSWER).await
}

async fn an_answer_is_good_once(store: Store) {
    let app = challenged(TestApp::on(store)).await;
    let client = app.client();
    let id = client.challenge().await;
    assert_eq!(client.login_with("alice", WRONG, &id, ANSWER).await.status, 401);
    let before = app.hashes();
    assert_refused(&with_captcha(&client, &id).await);
    assert_eq!(app.hashes(), before);
    let id = client.challenge().await;
    assert_eq!(with_captcha(&client, &id).await.status, 200);
    assert_refused(&with_captcha(&client, &id).await);
}

async fn of_fifty_parallel_uses_of_one_answer_one_gets_past(store: Store) {
    let app = challenged(TestApp::on(store)).await;
    let id = app.client().challenge().await;
    let before = app.hashes();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (client, id) = (app.client(), id.clone());
        tasks.spawn(async move { with_captcha(&client, &id).await });
    }
    let answers = tasks.join_all().await;
    let past = answers.iter().filter(|answer| answer.status == 200).count();
    let refused = answers.iter().filter(|answer| answer.problem() == "captcha-invalid").count();
    assert_eq!((past, refused), (1, 49));
    assert_eq!(app.hashes() - before, 1);
}

async fn an_answer_is_good_for_its_address_only(store: Store) {
    let app = challenged(TestApp::on(store).behind_a_proxy()).await;
    let (owner, thief) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.8"));
    let id = owner.challenge().await;
    let before = app.hashes();
    assert_refused(&with_captcha(&thief, &id).await);
    assert_eq!(app.hashes(), before);
    assert_eq!(with_captcha(&owner, &id).await.status, 200, "who saw it could not use it up either");
}

async fn an_answer_is_good_for_its_browser_only(store: Store) {
    let app = challenged(TestApp::on(store)).await;
    let (owner, thief, bare) = (app.client(), app.client(), app.client());
    for browser in [&owner, &thief] {
        assert_eq!(browser.get("/login").await.status, 200);
    }
    let id = owner.challenge().await;
    assert_refused(&with_captcha(&thief, &id).await);
    assert_refused(&with_captcha(&bare, &id).await);
    assert_eq!(with_captcha(&owner, &id).await.status, 200);
}

async fn an_answer_is_good_for_its_form_only(store: Store) {
    let rules = "[limits.register-address]\nrules = [{ max = 1, window = \"1h\", then = \"captcha\" }]";
    let app = challenged(TestApp::on(store).file(rules)).await;
    let client = app.client();
    let for_registration = client.call("/captcha", serde_json::json!({ "for": "register" })).await;
    let for_registration = for_registration.body["id"].as_str().unwrap();
    let for_login = client.challenge().await;
    assert_refused(&with_captcha(&client, for_registration).await);
    let register = |id: &str| {
        let captcha = serde_json::json!({ "id": id, "answer": ANSWER });
        serde_json::json!({ "login": "bob", "password": PASSWORD, "captcha": captcha })
    };
    assert_eq!(client.register("bob", PASSWORD).await.problem(), "captcha-required");
    assert_refused(&client.call("/register", register(&for_login)).await);
    assert_eq!(client.call("/register", register(for_registration)).await.status, 201);
    // It signed this client in, in its own browser; the other challenge is still valid for its owner.
    assert_eq!(with_captcha(&client, &for_login).await.status, 200);
}

async fn a_wrong_answer_uses_the_challenge_up(store: Store) {
    let app = challenged(TestApp::on(store)).await;
    let client = app.client();
    let id = client.challenge().await;
    let before = app.hashes();
    assert_refused(&client.login_with("alice", PASSWORD, &id, "wrong").await);
    assert_refused(&with_captcha(&client, &id).await);
    assert_eq!(app.hashes(), before);
}

async fn a_challenge_expires(store: Store) {
    let rules = "[limits.login-account]\nrules = [{ max = 3, window = \"1h\", then = \"captcha\" }]";
    let app = challenged(TestApp::on(store).file(rules)).await;
    let client = app.client();
    let (early, late) = (client.challenge().await, client.challenge().await);
    app.advance(Duration::from_secs(179));
    assert_eq!(client.get(&format!("/captcha/{late}.png")).await.status, 200);
    assert_eq!(with_captcha(&client, &early).await.status, 200);
    app.advance(Duration::from_secs(1));
    assert_refused(&with_captcha(&client, &late).await);
    assert_eq!(client.get(&format!("/captcha/{late}.png")).await.status, 404);
}

async fn garbage_for_a_challenge_is_refused(store: Store) {
    let app = challenged(TestApp::on(store)).await;
    let client = app.client();
    let real = client.challenge().await;
    let mut forged = real.clone().into_bytes();
    forged[3] = if forged[3] == b'A' { b'B' } else { b'A' };
    let forged = String::from_utf8(forged).unwrap();
    let before = app.hashes();
    let huge = "A".repeat(12_000);
    for id in ["x", "", "\0", "😀", "../../etc/passwd", &forged, &format!("{real}="), &huge] {
        assert_refused(&client.login_with("alice", PASSWORD, id, ANSWER).await);
    }
    for answer in ["", "\0", "\u{202e}", &"s".repeat(12_000)] {
        let id = client.challenge().await;
        assert_refused(&client.login_with("alice", PASSWORD, &id, answer).await);
    }
    // Bodies that are not such an object.
    for captcha in [
        serde_json::json!("solo"),
        serde_json::json!([]),
        serde_json::json!({ "id": 5, "answer": "solo" }),
        serde_json::json!({ "id": real }),
    ] {
        let body = serde_json::json!({ "login": "alice", "password": PASSWORD, "captcha": captcha });
        assert_eq!(client.call("/login", body).await.status, 422);
    }
    assert_refused(&client.login_with("alice", PASSWORD, "", "").await);
    assert_eq!(app.hashes(), before);
    assert_eq!(with_captcha(&client, &real).await.status, 200);
}

async fn images_are_drawn_at_a_limited_rate(store: Store) {
    let app = challenged(TestApp::on(store).limit("captcha-address", &[max(2).per("1m")])).await;
    let client = app.client();
    let (id, other, third) = (client.challenge().await, client.challenge().await, client.challenge().await);
    for id in [&id, &other, &id] {
        assert_eq!(client.image(id).await.status, 200, "what is kept is not drawn again");
    }
    let refused = client.image(&third).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, "60"));
    let refused = client.call("/captcha", serde_json::json!({})).await;
    assert_eq!((refused.status, refused.problem()), (429, "throttled"));
    assert_eq!((&refused.body["limit"], refused.header("retry-after")), (&"captcha-address".into(), "60"));
    let refused = client.login("alice", PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (403, "captcha-required"));
    assert_eq!(refused.body["captcha"], serde_json::json!({ "retry_after": 60 }));
    let page = client.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await;
    assert_eq!((page.status, page.hidden("captcha_id")), (403, None));
    assert!(page.text.contains("Or use a browser in which you have signed in before"));
    // The one in hand is still valid.
    assert_eq!(with_captcha(&client, &id).await.status, 200);
}

async fn a_pages_challenge_gets_its_form_past(store: Store) {
    let app = challenged(TestApp::on(store)).await;
    let client = app.client();
    let fields = [("login", "alice"), ("password", PASSWORD)];
    let refused = client.submit("/login", "/login", &fields).await;
    assert_eq!(refused.status, 403);
    let (id, token) = (refused.hidden("captcha_id").unwrap(), refused.csrf_token());
    assert_eq!(client.get(&format!("/captcha/{id}.png")).await.header("content-type"), "image/png");
    let fields = [&fields[..], &[("captcha_id", &id), ("captcha_answer", "wrong"), ("csrf_token", &token)]];
    let refused = client.post("/login", &fields.concat()).await;
    assert_eq!(refused.status, 403);
    let second = refused.hidden("captcha_id").unwrap();
    assert_ne!(second, id);
    let fields = [fields[0], &[("captcha_id", &second), ("captcha_answer", ANSWER), ("csrf_token", &token)]];
    assert_eq!(client.post("/login", &fields.concat()).await.status, 303);
}

#[tokio::test]
async fn an_image_is_the_same_whenever_it_is_asked_for() {
    let app = TestApp::on(Store::Memory).set("captcha.provider", "image").start().await;
    let client = app.client();
    let issued = client.call("/captcha", serde_json::json!({})).await;
    assert_eq!((issued.status, &issued.body["expires_in"]), (201, &180.into()));
    let id = issued.body["id"].as_str().unwrap();
    let url = format!("{}/captcha/{id}.png", app.url);
    let mut images = Vec::new();
    for _ in 0..2 {
        let response = client.http.get(&url).send().await.unwrap();
        assert_eq!(
            (response.status(), &response.headers()["content-type"]),
            (200.try_into().unwrap(), &"image/png".parse().unwrap())
        );
        images.push(response.bytes().await.unwrap());
    }
    assert_eq!(images[0], images[1]);
    assert!(images[0].starts_with(b"\x89PNG\r\n\x1a\n") && images[0].len() < 64 * 1024);
    assert_eq!(issued.body["image"], format!("/captcha/{id}.png"));
    for id in ["x", "%ff%fe", "%00", "..%2f..%2fx", &"A".repeat(55), &"A".repeat(5_000)] {
        assert_eq!(client.get(&format!("/captcha/{id}.png")).await.status, 404, "{id}");
    }
}

#[tokio::test]
async fn challenges_that_nobody_looks_at_cost_nobody_an_image() {
    let setup = TestApp::on(Store::Memory).behind_a_proxy().limit("captcha-total", &[max(5).per("1h")]);
    let app = challenged(setup).await;
    let flood = app.client_at("2001:db8::1");
    for _ in 0..20 {
        flood.challenge().await;
        assert!(flood.login("alice", WRONG).await.body["captcha"]["image"].is_string());
        assert_eq!(flood.image(&"A".repeat(55)).await.status, 404);
    }
    let client = app.client_at("203.0.113.7");
    assert_eq!(client.image(&client.challenge().await).await.status, 200);
}

#[tokio::test]
async fn an_image_in_a_foreign_page_is_not_drawn_at_its_readers_cost() {
    let app = TestApp::on(Store::Memory).limit("captcha-address", &[max(1).per("1h")]).start().await;
    for site in ["cross-site", "same-site"] {
        let reader = app.client_that_says(&[("sec-fetch-site", site)]);
        assert_eq!(reader.image(&app.client().challenge().await).await.status, 403);
    }
    for site in ["none", "same-origin"] {
        let reader = app.client_that_says(&[("sec-fetch-site", site)]);
        let id = app.client().challenge().await;
        assert_eq!(reader.image(&id).await.status, 200);
        app.advance(Duration::from_secs(3600));
    }
}

/// Twenty /64s of one /48 fetch as many images as they get: others still get images at once.
#[tokio::test]
async fn one_network_cannot_take_every_image() {
    let app = TestApp::on(Store::Memory)
        .behind_a_proxy()
        .limit("captcha-total", &[max(400).per("1m")])
        .start()
        .await;
    let mut drawn = 0;
    for subnet in 0..20 {
        let client = app.client_at(&format!("2001:db8:0:{subnet:x}::1"));
        for _ in 0..20 {
            let answer = client.call("/captcha", serde_json::json!({})).await;
            let Some(id) = answer.body["id"].as_str() else { break };
            drawn += u32::from(client.image(id).await.status == 200);
        }
    }
    assert_eq!(drawn, 98, "a quarter");
    let client = app.client_at("203.0.113.7");
    assert_eq!(client.image(&client.challenge().await).await.status, 200);
}
