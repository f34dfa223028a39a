//! Logto's HTTP SMS connector: by token.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::{BARE, Logto, PHONE, id_of, refused};
use crate::support::app::{Client, Store, TestApp, on_both_stores};
use crate::support::setup::{Setup, max};

const MINUTE: Duration = Duration::from_secs(60);

async fn started(setup: Setup) -> (TestApp, Client, Logto) {
    let app = setup.start().await;
    let boss = app.sign_in_admin("boss").await;
    let logto = Logto::of(&app, &boss, "relay:idp").await;
    (app, boss, logto)
}

on_both_stores!(
    the_same_body_is_one_message_for_ten_minutes,
    a_relay_has_a_budget_of_its_own_beside_the_numbers_and_the_prefixes,
);

async fn the_same_body_is_one_message_for_ten_minutes(store: Store) {
    let (app, _, logto) = started(TestApp::on(store).without(&["sms-phone"])).await;
    let mut sending = JoinSet::new();
    for _ in 0..8 {
        let logto = logto.clone();
        sending.spawn(async move { id_of(&logto.send(BARE, "012345").await) });
    }
    let ids = sending.join_all().await;
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    app.advance(10 * MINUTE - Duration::from_micros(1));
    assert_eq!(id_of(&logto.send(BARE, "012345").await), ids[0]);
    assert_eq!(app.client().codes(PHONE).await, ["012345"]);
    assert_ne!(id_of(&logto.send(BARE, "543210").await), ids[0]);
    app.advance(Duration::from_micros(1));
    assert_ne!(id_of(&logto.send(BARE, "012345").await), ids[0]);
    assert_eq!(app.client().codes(PHONE).await.len(), 3);
}

async fn a_relay_has_a_budget_of_its_own_beside_the_numbers_and_the_prefixes(store: Store) {
    let setup = TestApp::on(store)
        .limit("relay-token", &[max(4).per("1h")])
        .limit("sms-phone", &[max(1).per("1h").captcha(), max(2).per("1h")])
        .limit("program-prefix", &[max(1).per("1h").captcha(), max(2).per("1h")]);
    let (app, boss, logto) = started(setup).await;
    assert_eq!(logto.send(BARE, "1111").await.status, 200);
    assert_eq!(app.client().ask_code(PHONE, "login").await.status, 403, "all that the number gets");
    // Nobody who waits at a provider's page can be shown a challenge, so none is asked for.
    assert_eq!(logto.send(PHONE, "2222").await.status, 200);
    let number = logto.send(PHONE, "3333").await;
    assert_eq!((refused(&number), &number.body["limit"]), ((429, "throttled"), &json!("sms-phone")));
    let prefix = logto.send("8613800138001", "3333").await;
    assert_eq!((refused(&prefix), &prefix.body["limit"]), ((429, "throttled"), &json!("program-prefix")));
    for number in ["8613900139001", "8613700137002"] {
        assert_eq!(logto.send(number, "4444").await.status, 200);
    }
    let relay = logto.send("8613600136003", "5555").await;
    assert_eq!((refused(&relay), &relay.body["limit"]), ((429, "throttled"), &json!("relay-token")));
    let other = Logto::of(&app, &boss, "relay:other").await;
    let body = |to: &str| json!({ "to": to, "payload": { "code": "6666" } });
    for number in ["8613800138003", "8613800138004"] {
        assert_eq!(other.call("logto/other", &body(number)).await.status, 200, "it has windows of its own");
    }
}

#[tokio::test]
async fn a_code_goes_into_our_text_and_no_other_text_is_sent() {
    let texts = "[relay.idp]\nprogram = 'Example'\ntexts = { de = 'Ihr Code bei {program}: {code}' }\n";
    let (app, boss, logto) = started(TestApp::on(Store::Memory).file(texts).without(&["sms-phone"])).await;
    let text = async |payload| {
        let body = json!({ "to": BARE, "type": "Generic", "payload": payload, "text": "Buy now" });
        let answer = logto.call("logto/idp", &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        app.client().get("/dev/outbox.json").await.body[0]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        text(json!({ "code": "Ab12", "link": "https://evil.example", "locale": "fr" })).await,
        "Example: your code is Ab12. Do not share it. Not you? Ignore it."
    );
    assert_eq!(
        text(json!({ "code": "0123456789", "locale": "de-CH" })).await,
        "Ihr Code bei Example: 0123456789"
    );
    assert!(text(json!({ "code": "Ab13", "locale": "zh-CN" })).await.starts_with("【Example】验证码 Ab13。"));
    assert!(text(json!({ "code": "Ab14", "locale": "no language" })).await.starts_with("Example: your code"));
    let other = Logto::of(&app, &boss, "relay:other").await;
    assert_eq!(
        other.call("logto/other", &json!({ "to": BARE, "payload": { "code": "99999" } })).await.status,
        200
    );
    let newest = app.client().get("/dev/outbox.json").await;
    assert!(newest.body[0]["text"].as_str().unwrap().starts_with("other: your code is 99999."));
    for code in ["123", "12345678901", "12 345", "https", "go.to", "{code}", "１２３４", "1234\n"] {
        let wrong = logto.send(BARE, code).await;
        assert_eq!(wrong.status, if code == "https" { 200 } else { 422 }, "{code}");
    }
    let link =
        json!({ "to": BARE, "type": "OrganizationInvitation", "payload": { "link": "https://x.example" } });
    assert_eq!(refused(&logto.call("logto/idp", &link).await), (422, "invalid-input"));
}

#[tokio::test]
async fn a_number_may_lack_its_plus_and_keeps_its_country() {
    let (app, _, logto) = started(TestApp::on(Store::Memory).set("sms.default_region", "CN")).await;
    for (number, canonical) in [
        (BARE, PHONE),
        ("+86 139 0013 8000", "+8613900138000"),
        ("447400123456", "+447400123456"),
        ("15012345678", "+15012345678"),
    ] {
        assert_eq!(logto.send(number, "012345").await.status, 200, "{number}");
        assert_eq!(app.client().codes(canonical).await, ["012345"], "{canonical}");
    }
    for wrong in ["", "x", "12", "02012345678"] {
        assert_eq!(refused(&logto.send(wrong, "012345").await), (422, "invalid-phone"), "{wrong}");
    }
}

#[tokio::test]
async fn who_signs_in_there_is_counted_if_the_provider_says_from_where() {
    let access =
        "[access]\ndeny = [{ network = '203.0.113.0/24', until = '2096-01-01T00:00:00Z', reason = 'x' }]\n";
    let setup = TestApp::on(Store::Memory).file(access).without(&["sms-phone"]);
    let (_app, _, logto) = started(setup.limit("program-address", &[max(1).per("1h")])).await;
    let mut number = 0;
    let mut from = async |ip: serde_json::Value| {
        number += 1;
        let to = format!("86138001380{number:02}");
        let answer =
            logto.call("logto/idp", &json!({ "to": to, "payload": { "code": "012345" }, "ip": ip })).await;
        refused(&answer);
        answer.status
    };
    assert_eq!((from("192.0.2.1".into()).await, from("192.0.2.1".into()).await), (200, 429));
    assert_eq!((from("[2001:db8::1]:443".into()).await, from("2001:db8::2".into()).await), (200, 429));
    assert_eq!(from("203.0.113.7".into()).await, 403);
    for unknown in [json!(null), json!(""), json!("unknown"), json!(null)] {
        assert_eq!(from(unknown.clone()).await, 200, "{unknown}: nobody's address");
    }
}

#[tokio::test]
async fn only_the_relays_own_token_sends_and_tells_outcomes() {
    let (app, boss, logto) = started(TestApp::on(Store::Memory).without(&["sms-phone"])).await;
    let body = json!({ "to": BARE, "payload": { "code": "012345" } });
    let id = id_of(&logto.call("logto/idp", &body).await);
    let other = Logto::of(&app, &boss, "relay:other").await;
    assert_eq!(refused(&other.call("logto/idp", &body).await), (403, "insufficient-scope"));
    for scope in ["*", "verify:idp", "guard:idp"] {
        let program = Logto::of(&app, &boss, scope).await;
        assert_eq!(refused(&program.call("logto/idp", &body).await), (403, "insufficient-scope"), "{scope}");
        assert_eq!(program.tell(&id, "used").await, 403, "{scope}");
    }
    let nobody = Logto { client: app.client(), token: "ght_x".to_owned() };
    assert_eq!(
        (refused(&nobody.call("logto/idp", &body).await), nobody.tell(&id, "used").await),
        ((401, "invalid-token"), 401)
    );
    assert_eq!((other.tell(&id, "used").await, logto.tell("x", "used").await), (404, 404));
    for outcome in ["used", "used", "failed"] {
        assert_eq!(logto.tell(&id, outcome).await, 204);
    }
    assert_eq!(logto.tell(&id, "lost").await, 422);
    let page = app.services.codes.ledger().page(&Default::default(), None, 10).await.unwrap();
    assert!(page.entries[0].entered_at.is_some(), "it was used, whatever is told later");
    // Nor is it a verification of a program of that name, and it opens nothing here.
    let idp = Logto::of(&app, &boss, "verify:idp").await;
    assert_eq!(
        idp.call(&format!("../verifications/{id}/check"), &json!({ "code": "012345" })).await.status,
        404
    );
    let login = json!({ "phone": PHONE, "code": "012345" });
    assert_eq!(app.client().call("/sms/login", login).await.status, 401);
    for odd in ["", "{", "[]", "null", r#"{"to": 1}"#, r#"{"to": "8613800138000"}"#] {
        let url = format!("{}/api/v1/relay/logto/idp", app.url);
        let request = app.client().http.post(url).bearer_auth(&logto.token).body(odd);
        let answer = crate::support::app::Answer::read(request.send().await.unwrap()).await;
        assert!([400, 422].contains(&refused(&answer).0), "{odd}: {}", answer.text);
    }
}
