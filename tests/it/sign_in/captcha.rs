//! Challenges at sign-in: one answer, for one client and one form, once.

use std::time::Duration;

use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const WRONG: &str = "a wrong password";
const BEHIND_A_PROXY: &str = "[server]\ntrusted_proxies = [\"127.0.0.1/32\"]\n";

on_both_stores!(
    an_answer_is_good_once,
    of_fifty_parallel_uses_of_one_answer_one_gets_past,
    an_answer_is_good_for_its_address_only,
    an_answer_is_good_for_its_browser_only,
    an_answer_is_good_for_its_form_only,
    a_wrong_answer_uses_the_challenge_up,
    a_challenge_expires,
    garbage_for_a_challenge_is_refused,
    challenges_are_handed_out_at_a_limited_rate,
    a_pages_challenge_gets_its_form_past,
);

/// An account that asks for a CAPTCHA.
async fn challenged(store: Store, toml: &str) -> TestApp {
    let app = TestApp::with(store, toml).await;
    app.register("alice").await;
    for _ in 0..3 {
        assert_eq!(app.client().login("alice", WRONG).await.status, 401);
    }
    app
}

fn assert_refused(answer: &Answer) {
    assert_eq!((answer.status, answer.problem()), (403, "captcha-invalid"), "{}", answer.text);
    assert!(answer.body["captcha"]["id"].is_string(), "with a fresh challenge");
}

async fn with_captcha(client: &Client, id: &str) -> Answer {
    client.login_with("alice", PASSWORD, id, ANSWER).await
}

async fn an_answer_is_good_once(store: Store) {
    let app = challenged(store, "").await;
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
    let app = challenged(store, "").await;
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
    let app = challenged(store, BEHIND_A_PROXY).await;
    let (owner, thief) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.8"));
    let id = owner.challenge().await;
    let before = app.hashes();
    assert_refused(&with_captcha(&thief, &id).await);
    assert_eq!(app.hashes(), before);
    assert_eq!(with_captcha(&owner, &id).await.status, 200, "who saw it could not use it up either");
}

async fn an_answer_is_good_for_its_browser_only(store: Store) {
    let app = challenged(store, "").await;
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
    let app = challenged(store, rules).await;
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
    // It signed this client in, in a browser of its own; the other challenge is still good where it belongs.
    assert_eq!(with_captcha(&client, &for_login).await.status, 200);
}

async fn a_wrong_answer_uses_the_challenge_up(store: Store) {
    let app = challenged(store, "").await;
    let client = app.client();
    let id = client.challenge().await;
    let before = app.hashes();
    assert_refused(&client.login_with("alice", PASSWORD, &id, "wrong").await);
    assert_refused(&with_captcha(&client, &id).await);
    assert_eq!(app.hashes(), before);
}

async fn a_challenge_expires(store: Store) {
    let rules = "[limits.login-account]\nrules = [{ max = 3, window = \"1h\", then = \"captcha\" }]";
    let app = challenged(store, rules).await;
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
    let app = challenged(store, "").await;
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
    // Bodies that are no such object.
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

async fn challenges_are_handed_out_at_a_limited_rate(store: Store) {
    let app = challenged(store, "[limits.captcha-address]\nrules = [{ max = 2, window = \"1m\" }]").await;
    let client = app.client();
    let id = client.challenge().await;
    assert!(client.login("alice", PASSWORD).await.body["captcha"].is_object());
    let refused = client.call("/captcha", serde_json::json!({})).await;
    assert_eq!((refused.status, refused.problem()), (429, "throttled"));
    assert_eq!((&refused.body["limit"], refused.header("retry-after")), (&"captcha-address".into(), "60"));
    let refused = client.login("alice", PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (403, "captcha-required"));
    assert!(refused.body.get("captcha").is_none(), "{}", refused.text);
    let page = client.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await;
    assert_eq!((page.status, page.hidden("captcha_id")), (403, None));
    // The one in hand is still good.
    assert_eq!(with_captcha(&client, &id).await.status, 200);
}

async fn a_pages_challenge_gets_its_form_past(store: Store) {
    let app = challenged(store, "").await;
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
    let app = TestApp::with(Store::Memory, "[captcha]\nprovider = \"image\"\n").await;
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
    use base64::Engine;
    let told = base64::engine::general_purpose::STANDARD.encode(&images[0]);
    assert_eq!(issued.body["image"], format!("data:image/png;base64,{told}"));
    for id in ["x", "%ff%fe", "%00", "..%2f..%2fx", &"A".repeat(55), &"A".repeat(5_000)] {
        assert_eq!(client.get(&format!("/captcha/{id}.png")).await.status, 404, "{id}");
    }
}
