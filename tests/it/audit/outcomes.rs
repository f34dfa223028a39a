//! Each outcome is recorded once, with its times, its subjects and what refused it; nothing is in clear.

use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::audit::{EventEntry, EventFilter, EventSubject, SubjectKind};
use serde_json::json;

use super::{events, told};
use crate::sign_in::slot_in_flight;
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::limits::NOON;
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const SECOND: Duration = Duration::from_secs(1);
/// 203.0.113.77 in the form that limits count.
const THERE: &[u8] = &[4, 203, 0, 113, 77];
const NUMBER: &str = "13800138000";
const E164: &str = "+8613800138000";

on_both_stores!(
    every_outcome_of_a_sign_in_is_an_event,
    a_failure_has_the_time_it_was_tried_and_the_time_it_counts_from,
    every_outcome_of_a_send_and_a_guess_is_an_event,
    every_registration_is_an_event,
    what_a_watching_limit_would_refuse_is_noted,
);

/// Except challenges, which other tests check.
fn attempts(events: &[EventEntry]) -> Vec<String> {
    events.iter().map(told).filter(|text| !text.starts_with("captcha")).collect()
}

fn key(app: &TestApp, subject: EventSubject<'_>) -> i64 {
    app.services.audit.subject(&subject)
}

async fn account_key(app: &TestApp, login: &str) -> i64 {
    let account = app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap();
    key(app, EventSubject::Account { id: account.id.as_bytes(), login })
}

async fn every_outcome_of_a_sign_in_is_an_event(store: Store) {
    let setup = TestApp::on(store).behind_a_proxy().without(&["login-device"]);
    let rules = [max(2).per("1m").captcha(), max(3).per("1h")];
    let app = setup.limit("login-account", &rules).start().await;
    app.register("alice").await;
    let client = app.client_at("203.0.113.77");
    for (login, password) in [("alice", PASSWORD), ("alice", WRONG), ("alice", WRONG), ("nobody", WRONG)] {
        app.advance(SECOND);
        client.login(login, password).await;
    }
    for _ in 0..3 {
        app.advance(SECOND);
        assert_eq!(client.login("alice", PASSWORD).await.problem(), "captcha-required");
    }
    app.advance(SECOND);
    let id = client.challenge().await;
    assert_eq!(client.login_with("alice", WRONG, &id, ANSWER).await.status, 401);
    for _ in 0..2 {
        app.advance(SECOND);
        assert_eq!(client.login("alice", PASSWORD).await.status, 429);
    }
    let events = events(&app).await;
    assert_eq!(
        attempts(&events),
        [
            "register ok",
            "sign-in ok",
            "sign-in wrong",
            "sign-in wrong",
            "sign-in wrong",
            "sign-in challenged x3 by login-account/0",
            "sign-in wrong solved",
            "sign-in throttled x2 by login-account/1",
        ]
    );
    let (alice, nobody) = (account_key(&app, "alice").await, key(&app, EventSubject::Login("nobody")));
    let there = key(&app, EventSubject::Address(THERE));
    for entry in events.iter().filter(|entry| entry.action.into_str() == "sign-in") {
        let account = entry.account.as_ref().unwrap();
        assert!(
            account.key == alice && account.mask == "al…" || account.key == nobody && account.mask == "no…"
        );
        let address = entry.address.as_ref().unwrap();
        assert_eq!((address.key, address.mask.as_str()), (there, "203.0.113.0/24"));
    }
    let challenged = events.iter().find(|entry| entry.count == 3).unwrap();
    assert_eq!((challenged.at, challenged.until), (NOON.plus(5 * SECOND), NOON.plus(7 * SECOND)));
    let subjects = [(SubjectKind::Account, nobody)].into();
    let filter = EventFilter { subjects, ..EventFilter::default() };
    let found = app.services.audit.log().page(&filter, None, 9).await.unwrap();
    assert_eq!(found.entries.len(), 1);
    nothing_is_in_clear(&events, &["alice", "nobody", "203.0.113.77", PASSWORD, WRONG]);
}

fn nothing_is_in_clear(events: &[EventEntry], secrets: &[&str]) {
    let text = format!("{events:?}");
    for secret in secrets {
        assert!(!text.contains(secret), "{secret} stands in {text}");
    }
}

async fn a_failure_has_the_time_it_was_tried_and_the_time_it_counts_from(store: Store) {
    let app = TestApp::start(store).await;
    let slot = slot_in_flight(&app, THERE).await;
    let taken = slot.taken().at;
    app.advance(SECOND);
    assert_eq!((taken, slot.keep(None).await.unwrap().0), (NOON, Some(NOON.plus(SECOND))));
}

async fn every_outcome_of_a_send_and_a_guess_is_an_event(store: Store) {
    let setup = TestApp::on(store).behind_a_proxy().limit("sms-phone", &[max(1).per("1m")]);
    let app = setup.limit("sms-guess", &[max(1).per("10m")]).start().await;
    let client = app.client_at("203.0.113.77");
    assert_eq!(client.ask_code(NUMBER, "login").await.status, 202);
    let code = app.client().codes(NUMBER).await.remove(0);
    for _ in 0..2 {
        assert_eq!(client.ask_code(NUMBER, "login").await.status, 429);
    }
    let wrong = if code == "123456" { "654321" } else { "123456" };
    let enter = |code: &str| json!({ "phone": NUMBER, "code": code });
    app.advance(SECOND);
    assert_eq!(client.call("/sms/login", enter(&code)).await.status, 200);
    app.advance(SECOND);
    assert_eq!(client.call("/sms/login", enter(wrong)).await.status, 401);
    app.advance(SECOND);
    assert_eq!(client.call("/sms/login", enter(wrong)).await.status, 429);
    let events = events(&app).await;
    let mut told = attempts(&events);
    told.sort();
    assert_eq!(
        told,
        [
            "guess ok (login)",
            "guess throttled by sms-guess/0 (login)",
            "guess wrong (login)",
            "send ok (login)",
            "send throttled x2 by sms-phone/0 (login)",
            "sign-in ok (code)",
        ]
    );
    let (phone, there) = (key(&app, EventSubject::Phone(E164)), key(&app, EventSubject::Address(THERE)));
    let (block, network) =
        (key(&app, EventSubject::Prefix("+861380013")), key(&app, EventSubject::Network(&THERE[..4])));
    for entry in &events {
        let shown = entry.phone.as_ref().unwrap();
        assert_eq!((shown.key, shown.mask.as_str()), (phone, "+861380013****"));
        assert_eq!(entry.prefix.as_ref().unwrap().key, block);
        assert_eq!(entry.address.as_ref().unwrap().key, there);
        if entry.action.into_str() == "send" {
            assert_eq!(entry.network.as_ref().unwrap().key, network);
        }
    }
    nothing_is_in_clear(&events, &[E164, NUMBER, &code, "203.0.113.77"]);
}

async fn every_registration_is_an_event(store: Store) {
    let setup = TestApp::on(store).behind_a_proxy().limit("register-address", &[max(3).per("1h")]);
    let app = setup.start().await;
    let client = app.client_at("203.0.113.77");
    for (login, password) in [
        ("alice", PASSWORD),
        ("alice", PASSWORD),
        ("bernhard", "passwordpassword"),
        ("bernhard", PASSWORD),
        ("carla", PASSWORD),
    ] {
        app.advance(SECOND);
        client.register(login, password).await;
    }
    let events = events(&app).await;
    assert_eq!(
        attempts(&events),
        [
            "register ok",
            "register failed (login-taken)",
            "register failed (unfit-password)",
            "register ok",
            "register throttled by register-address/0",
        ]
    );
    assert_eq!(events[0].account.as_ref().unwrap().key, account_key(&app, "alice").await);
    assert_eq!(events[2].account.as_ref().unwrap().mask, "be…");
    nothing_is_in_clear(&events, &["alice", "bernhard", "203.0.113.77", PASSWORD]);
}

async fn what_a_watching_limit_would_refuse_is_noted(store: Store) {
    let rules = "[limits.login-account]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1h\" }]\n";
    let app = TestApp::with(store, rules).await;
    for _ in 0..2 {
        app.advance(SECOND);
        assert_eq!(app.client().login("alice", WRONG).await.status, 401);
    }
    let told = attempts(&events(&app).await);
    assert_eq!(told, ["sign-in wrong", "sign-in wrong by login-account/0 noted"]);
}

#[tokio::test]
async fn challenges_are_counted_where_they_were_drawn_and_answered() {
    let app = TestApp::on(Store::Memory)
        .behind_a_proxy()
        .limit("captcha-address", &[max(3).per("1m")])
        .start()
        .await;
    let client = app.client_at("203.0.113.77");
    let ids = [client.challenge().await, client.challenge().await];
    for (id, answer) in ids.iter().zip([ANSWER, "no"]) {
        assert_eq!(client.image(id).await.status, 200);
        client.login_with("alice", WRONG, id, answer).await;
    }
    assert_eq!(client.image(&client.challenge().await).await.status, 200);
    // A flood of these is one row.
    for junk in ["junk", "more"] {
        client.login_with("alice", WRONG, junk, ANSWER).await;
    }
    for _ in 0..2 {
        assert_eq!(client.call("/captcha", json!({})).await.status, 429);
    }
    let events = events(&app).await;
    let mut captchas: Vec<_> = events.iter().map(told).filter(|text| text.starts_with("captcha")).collect();
    captchas.sort();
    assert_eq!(
        captchas,
        [
            "captcha asked x3 (login)",
            "captcha failed x2 (login)",
            "captcha ok (login)",
            "captcha throttled x4 by captcha-address/0 (login)",
            "captcha wrong (login)",
        ],
        "a challenge that was not fetched counts nowhere, as the one that came with the wrong answer's refusal"
    );
}
