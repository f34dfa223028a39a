//! One password at many names: the next attempt with it is asked for a challenge, and nobody learns why.

use gatehouse::audit::{Action, EventFilter};
use serde_json::json;

use crate::support::app::{ANSWER, Answer, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::Setup;

/// What is tried everywhere.
const COMMON: &str = "quiet lanterns drift above marble";

on_both_stores!(
    the_next_attempt_with_it_is_challenged_before_it_is_compared,
    whoever_has_it_gets_in_and_is_told,
    popular_passwords_that_are_framed_cost_their_owners_a_challenge,
    spellings_of_one_password_are_one,
    one_network_one_name_and_right_passwords_are_no_spray,
    in_monitor_mode_it_is_told_and_asks_nobody,
    switched_off_it_sees_nothing,
    a_known_device_whose_limit_only_monitors_is_no_stranger,
);

fn setup(store: Store) -> Setup {
    TestApp::on(store).behind_a_proxy().without(&["login-address", "login-network", "login-account"])
}

fn network(n: usize) -> String {
    format!("198.51.{n}.7")
}

async fn spray(app: &TestApp, names: usize) -> Vec<Answer> {
    spray_of(app, names, |_| COMMON).await
}

async fn spray_of(app: &TestApp, names: usize, typed: impl Fn(usize) -> &'static str) -> Vec<Answer> {
    let mut answers = Vec::new();
    for n in 0..names {
        answers.push(app.client_at(&network(n)).login(&format!("name{n}"), typed(n)).await);
    }
    answers
}

async fn told(app: &TestApp) -> Vec<serde_json::Value> {
    app.services.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Spray], ..EventFilter::default() };
    let page = app.services.audit.log().page(&filter, None, 10).await.unwrap();
    page.entries.iter().map(|entry| serde_json::from_str(entry.detail.as_deref().unwrap()).unwrap()).collect()
}

async fn the_next_attempt_with_it_is_challenged_before_it_is_compared(store: Store) {
    let app = setup(store).start().await;
    let answers = spray(&app, 40).await;
    let first = answers.iter().position(|answer| answer.status == 403).expect("it is noticed");
    assert!((4..16).contains(&first), "after {first} names");
    assert!(answers[first..].iter().all(|answer| answer.problem() == "captcha-required"));
    assert_eq!(answers[first].header("ratelimit"), "", "no limit is named");
    let before = app.hashes();
    let stranger = app.client_at("203.0.113.7");
    assert_eq!(stranger.login("nobody", COMMON).await.problem(), "captcha-required");
    assert_eq!(app.hashes(), before);
    assert_eq!(stranger.login("nobody", "another password entirely").await.status, 401);
    let id = stranger.challenge().await;
    assert_eq!(stranger.login_with("nobody", COMMON, &id, ANSWER).await.status, 401, "it is compared");
    let told = told(&app).await;
    assert_eq!(told.len(), 1);
    assert!(
        told[0]["names"].as_u64().unwrap() >= 4 && told[0]["networks"].as_u64().unwrap() > 2,
        "{}",
        told[0]
    );
    let boss = app.sign_in_admin("boss").await;
    assert!(boss.get("/admin").await.text.contains("One password is being tried at"));
    app.advance(std::time::Duration::from_secs(3 * 60 * 60));
    assert_eq!(stranger.login("nobody", COMMON).await.status, 401, "it is over");
}

async fn whoever_has_it_gets_in_and_is_told(store: Store) {
    let app = setup(store).start().await;
    let owner = app.client_at("203.0.113.7");
    assert_eq!(owner.register("alice", COMMON).await.status, 201);
    spray(&app, 40).await;
    assert_eq!(owner.login("alice", COMMON).await.status, 200, "a known device");
    let elsewhere = app.client_at("203.0.113.8");
    assert_eq!(elsewhere.login("alice", COMMON).await.problem(), "captcha-required");
    let id = elsewhere.challenge().await;
    let answer = elsewhere.login_with("alice", COMMON, &id, ANSWER).await;
    assert_eq!((answer.status, &answer.body["user"]["password_breached"]), (200, &json!(true)));
    assert!(answer.body["user"]["must_change_password"].is_null(), "anybody can make it look so");
    assert!(elsewhere.get("/account").await.text.contains("Others know your password"));
}

/// As many at once as the detector sees in its first hours.
async fn popular_passwords_that_are_framed_cost_their_owners_a_challenge(store: Store) {
    let app = setup(store).start().await;
    const FRAMED: [&str; 5] = [
        COMMON,
        "another one that is quite long",
        "correct horse battery staple",
        "seven grey herons at the weir",
        "my sister plays the old cello",
    ];
    let mut owners = Vec::new();
    for (n, password) in FRAMED.into_iter().enumerate() {
        let owner = app.client_at(&format!("203.0.113.{n}"));
        assert_eq!(owner.register(&format!("owner{n}"), password).await.status, 201);
        owners.push(owner);
    }
    spray_of(&app, 200, |n| FRAMED[n % 5]).await;
    for (n, (password, owner)) in FRAMED.into_iter().zip(owners).enumerate() {
        let login = format!("owner{n}");
        assert_eq!(owner.login(&login, password).await.status, 200, "{login}, a known device");
        let elsewhere = app.client_at(&format!("192.0.2.{n}"));
        assert_eq!(elsewhere.login(&login, password).await.problem(), "captcha-required", "{login}");
        let id = elsewhere.challenge().await;
        assert_eq!(elsewhere.login_with(&login, password, &id, ANSWER).await.status, 200, "{login}");
    }
}

async fn spellings_of_one_password_are_one(store: Store) {
    let app = setup(store).start().await;
    let spelt = ["une tasse de café noir", "une tasse de cafe\u{301} noir", "une tasse de\u{3000}café noir"];
    let answers = spray_of(&app, 40, |n| spelt[n % 3]).await;
    assert!(answers.iter().any(|answer| answer.status == 403));
    assert_eq!(told(&app).await.len(), 1);
}

async fn one_network_one_name_and_right_passwords_are_no_spray(store: Store) {
    let app = setup(store).start().await;
    for n in 0..20 {
        assert_eq!(app.client_at("203.0.113.7").login(&format!("name{n}"), COMMON).await.status, 401);
        let elsewhere = app.client_at(&network(n));
        assert_eq!(elsewhere.login("alice", "another one that is quite long").await.status, 401);
        assert_eq!(elsewhere.register(&format!("has{n}"), PASSWORD).await.status, 201);
        assert_eq!(app.client_at(&network(n + 50)).login(&format!("has{n}"), PASSWORD).await.status, 200);
    }
    assert_eq!(told(&app).await, Vec::<serde_json::Value>::new());
}

async fn in_monitor_mode_it_is_told_and_asks_nobody(store: Store) {
    let mode = "[limits.login-guess]\nmode = 'monitor'\nrules = [{ max = 5, window = '1h' }]\n";
    let app = setup(store).file_more(mode).start().await;
    assert!(spray(&app, 40).await.iter().all(|answer| answer.status == 401));
    assert_eq!(told(&app).await.len(), 1);
}

async fn switched_off_it_sees_nothing(store: Store) {
    let app = setup(store).without(&["login-guess"]).start().await;
    assert!(spray(&app, 40).await.iter().all(|answer| answer.status == 401));
    assert_eq!(told(&app).await.len(), 0);
}

async fn a_known_device_whose_limit_only_monitors_is_no_stranger(store: Store) {
    let mode = "[limits.login-device]\nmode = 'monitor'\nrules = [{ max = 10, window = '1h' }]\n";
    let app = setup(store).file_more(mode).start().await;
    let owner = app.client_at("203.0.113.7");
    assert_eq!(owner.register("alice", COMMON).await.status, 201);
    spray(&app, 40).await;
    assert_eq!(owner.login("alice", COMMON).await.status, 200);
}
