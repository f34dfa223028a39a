//! Supabase's Send SMS hook: signed by its own library.

use std::time::Duration;

use serde_json::json;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{BARE, PHONE, Secret, id_of, refused};
use crate::support::app::{Answer, Store, TestApp, on_both_stores};
use crate::support::setup::{Setup, max};

on_both_stores!(
    a_hook_that_is_retried_under_another_id_is_one_message,
    a_hook_is_believed_by_its_signature_and_for_five_minutes,
);

/// The relay, with one secret or two.
pub fn relay(store: Store, secrets: &[&Secret]) -> Setup {
    let secrets: Vec<_> = secrets.iter().map(|secret| secret.reference()).collect();
    TestApp::on(store).file(&format!("[relay.main]\nsecret = [{}]\n", secrets.join(", ")))
}

pub fn hook(otp: &str) -> String {
    json!({
        "metadata": { "uuid": "f0f4", "time": "2026-11-22T10:00:00Z", "name": "send-sms", "ip_address": "192.0.2.1" },
        "user": { "id": "6481", "aud": "authenticated", "phone": BARE, "user_metadata": {}, "identities": [] },
        "sms": { "otp": otp, "sms_type": "sms" },
    })
    .to_string()
}

pub fn now(app: &TestApp) -> i64 {
    app.clock.now().seconds()
}

pub async fn post(app: &TestApp, name: &str, [id, timestamp, signature]: [&str; 3], body: &str) -> Answer {
    let request = app.client().http.post(format!("{}/api/v1/relay/supabase/{name}", app.url));
    let request = request
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature);
    Answer::read(request.body(body.to_owned()).send().await.unwrap()).await
}

/// Signed now.
pub async fn call(app: &TestApp, secret: &Secret, id: &str, body: &str) -> Answer {
    let (at, signature) = (now(app).to_string(), secret.sign(id, now(app), body));
    post(app, "main", [id, &at, &signature], body).await
}

async fn a_hook_that_is_retried_under_another_id_is_one_message(store: Store) {
    let secret = Secret::of(1);
    let app = relay(store, &[&secret]).start().await;
    let body = hook("012345");
    let first = id_of(&call(&app, &secret, "one", &body).await);
    for id in ["two", "three"] {
        app.advance(Duration::from_secs(2));
        assert_eq!(id_of(&call(&app, &secret, id, &body).await), first);
    }
    assert_eq!(app.client().codes(PHONE).await, ["012345"]);
    // Another code is another message, for which the number has no room in this minute.
    assert_eq!(refused(&call(&app, &secret, "four", &hook("543210")).await), (429, "throttled"));
}

async fn a_hook_is_believed_by_its_signature_and_for_five_minutes(store: Store) {
    let (old, new, other) = (Secret::of(1), Secret::of(2), Secret::of(3));
    let app = relay(store, &[&old, &new]).without(&["sms-phone"]).start().await;
    for (secret, otp) in [(&old, "1111"), (&new, "2222")] {
        id_of(&call(&app, secret, "x", &hook(otp)).await);
    }
    let (body, at) = (hook("3333"), now(&app).to_string());
    let [good, bad] = [new.sign("x", now(&app), &body), other.sign("x", now(&app), &body)];
    let unsigned = async |headers: [&str; 3], body: &str| {
        let answer = post(&app, "main", headers, body).await;
        assert_eq!(refused(&answer), (401, "invalid-signature"), "{headers:?}");
    };
    unsigned(["x", &at, &bad], &body).await;
    unsigned(["y", &at, &good], &body).await;
    unsigned(["x", &at, &good], &hook("4444")).await;
    unsigned(["x", &at, &good], &format!("{body} ")).await;
    unsigned(["x", &at, ""], &body).await;
    unsigned(["x", "", &good], &body).await;
    for seconds in [-301, 301, -86_400] {
        let at = now(&app) + seconds;
        let (signature, at) = (new.sign("x", at, &body), at.to_string());
        unsigned(["x", &at, &signature], &body).await;
    }
    for name in ["none", "MAIN", "ma%2fin"] {
        let answer = post(&app, name, ["x", &at, &good], &body).await;
        assert_eq!(refused(&answer), (401, "invalid-signature"), "{name}");
    }
    assert_eq!(app.client().codes(PHONE).await.len(), 2);
    // Both ways of writing several.
    id_of(&post(&app, "main", ["x", &at, &format!("{bad}, {good}")], &body).await);
    id_of(&post(&app, "main", ["x", &at, &format!("{bad} {good}")], &body).await);
    assert_eq!(app.client().codes(PHONE).await.len(), 3);
}

#[tokio::test]
async fn odd_bodies_are_refused_and_send_nothing() {
    let secret = Secret::of(1);
    let app = relay(Store::Memory, &[&secret]).without(&["sms-phone"]).start().await;
    let odd = [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        (r#"{"user":{},"sms":{"otp":"012345"}}"#, 422),
        (r#"{"user":{"phone":"8613800138000"},"sms":{}}"#, 422),
        (r#"{"user":{"phone":"8613800138000"},"sms":{"otp":12345}}"#, 422),
        (r#"{"user":{"phone":"8613800138000"},"sms":{"otp":"https://x.example"}}"#, 422),
        (r#"{"user":{"phone":"8613800138000; 8613800138001"},"sms":{"otp":"012345"}}"#, 422),
    ];
    for (body, status) in odd {
        assert_eq!(refused(&call(&app, &secret, "x", body).await).0, status, "{body}");
    }
    let long = format!("{}{}", hook("012345"), " ".repeat(128 * 1024));
    assert_eq!(refused(&call(&app, &secret, "x", &long).await).0, 413);
    assert_eq!(app.client().get("/dev/outbox.json").await.body, json!([]));
    // A number that is being changed is where the code goes.
    let change = r#"{"user":{"phone":"8613800138000","new_phone":"8613800138001"},"sms":{"otp":"012345","phone":"8613800138001"}}"#;
    id_of(&call(&app, &secret, "x", change).await);
    assert_eq!(app.client().codes("+8613800138001").await, ["012345"]);
    let large = json!({ "user": { "phone": BARE, "user_metadata": { "x": "y".repeat(60_000) } }, "sms": { "otp": "54321" } });
    id_of(&call(&app, &secret, "x", &large.to_string()).await);
}

#[tokio::test]
async fn a_slow_gateway_is_not_waited_for_and_its_message_not_sent_again() {
    let gateway = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(9));
    Mock::given(method("POST")).respond_with(slow).mount(&gateway).await;
    let secret = Secret::of(1);
    let setup = relay(Store::Memory, &[&secret]).set("sms.gateway", "http").set("sms.timeout", "10s");
    let app = setup.set("sms.http.url", format!("{}/send", gateway.uri())).start().await;
    let body = hook("012345");
    let first = id_of(&call(&app, &secret, "one", &body).await);
    let state = async || app.services.codes.ledger().page(&Default::default(), None, 2).await.unwrap();
    assert_eq!(
        state().await.entries[0].state,
        gatehouse::codes::MessageState::Pending,
        "answered before the gateway did"
    );
    assert_eq!(id_of(&call(&app, &secret, "two", &body).await), first);
    assert_eq!((state().await.entries.len(), gateway.received_requests().await.unwrap().len()), (1, 1));
}

#[tokio::test]
async fn what_is_refused_says_no_time_to_come_back() {
    let secret = Secret::of(1);
    let setup = relay(Store::Memory, &[&secret])
        .set("sms.gateway", "http")
        .set("sms.http.url", "http://127.0.0.1:9/");
    let app = setup.limit("program-address", &[max(2).per("1h")]).start().await;
    for _ in 0..2 {
        assert_eq!(refused(&call(&app, &secret, "x", &hook("012345")).await), (503, "unavailable"));
    }
    // What no gateway takes still counts for who asks.
    assert_eq!(refused(&call(&app, &secret, "x", &hook("543210")).await), (429, "throttled"));
}
