//! A relay under attack: replays, headers that are sent twice, odd numbers, and a ledger that hangs.

use std::time::Duration;

use gatehouse::audit::{Action, EventFilter, Outcome};
use serde_json::json;
use sqlx::Connection;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::supabase::{call, hook, now, post, relay};
use super::{BARE, Logto, PHONE, Secret, id_of, refused};
use crate::access::IN_AN_HOUR;
use crate::support::app::{Answer, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    a_call_cannot_be_replayed_when_its_message_is_forgotten,
    the_same_body_of_two_relays_is_two_messages,
    a_refusal_names_neither_the_number_nor_the_code,
);

async fn a_call_cannot_be_replayed_when_its_message_is_forgotten(store: Store) {
    let secret = Secret::of(1);
    let app = relay(store, &[&secret]).without(&["sms-phone"]).start().await;
    let body = hook("012345");
    // As far ahead as a clock may be.
    let at = now(&app) + 299;
    let (signature, at) = (secret.sign("x", at, &body), at.to_string());
    let replay = async || post(&app, "main", ["x", &at, &signature], &body).await;
    let first = id_of(&replay().await);
    app.advance(Duration::from_secs(599));
    assert_eq!(id_of(&replay().await), first);
    for _ in 0..3 {
        app.advance(Duration::from_secs(1));
        assert_eq!(refused(&replay().await), (401, "invalid-signature"));
    }
    assert_eq!(app.client().codes(PHONE).await, ["012345"]);
    let (at, signature) = ((now(&app) + 300).to_string(), secret.sign("x", now(&app) + 300, &body));
    assert_eq!(post(&app, "main", ["x", &at, &signature], &body).await.status, 401);
}

async fn the_same_body_of_two_relays_is_two_messages(store: Store) {
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let (one, two) = (Logto::of(&app, &boss, "relay:one").await, Logto::of(&app, &boss, "relay:two").await);
    let body = json!({ "to": BARE, "payload": { "code": "012345" } });
    let ids = [
        id_of(&one.call("logto/one", &body).await),
        id_of(&two.call("logto/two", &body).await),
        id_of(&one.call("logto/one", &body).await),
    ];
    assert!(ids[0] == ids[2] && ids[0] != ids[1], "{ids:?}");
    assert_eq!(app.client().codes(PHONE).await.len(), 2);
    // Nor does a code of our own with the same name for its request.
    let named = blake3::hash(&serde_json::to_vec(&body).unwrap()).to_hex().to_string();
    let ours = app.client().http.post(format!("{}/api/v1/sms/codes", app.url));
    let ours = ours.header("idempotency-key", &named).json(&json!({ "phone": PHONE, "purpose": "login" }));
    assert_eq!(ours.send().await.unwrap().status(), 202);
    assert_eq!(app.client().codes(PHONE).await.len(), 3);
}

async fn a_refusal_names_neither_the_number_nor_the_code(store: Store) {
    let secret = Secret::of(1);
    let app = relay(store, &[&secret]).set("sms.countries", "['CN']").start().await;
    id_of(&call(&app, &secret, "x", &hook("73921")).await);
    let to = |number: &str| json!({ "user": { "phone": number }, "sms": { "otp": "73922" } }).to_string();
    for (body, problem) in [
        (hook("73922"), "throttled"),
        (to("15012345678"), "country-not-allowed"),
        (to("861391234800073922"), "invalid-phone"),
        (hook("73922-"), "invalid-input"),
        (format!("{} {}", to("8613912348001"), "73922"), "malformed-json"),
        (r#"{"user":{"phone":8613912348000},"sms":{"otp":"73922"}}"#.to_owned(), "invalid-input"),
        (
            r#"{"user":{"phone":"8613912348001"},"sms":{"otp":"73922","otp":"73923"}}"#.to_owned(),
            "invalid-input",
        ),
    ] {
        let answer = call(&app, &secret, "x", &body).await;
        assert_eq!(refused(&answer).1, problem, "{body}");
        for told in ["7392", "1391234", "5012345"] {
            assert!(!answer.text.contains(told), "{}", answer.text);
        }
    }
    assert_eq!(app.client().codes(PHONE).await, ["73921"]);
}

/// Each header line by itself.
async fn post_lines(app: &TestApp, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request = app.client().http.post(format!("{}/api/v1/relay/supabase/main", app.url));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::read(request.body(body.to_owned()).send().await.unwrap()).await
}

#[tokio::test]
async fn several_lines_of_a_header_are_one_list() {
    let (secret, other) = (Secret::of(1), Secret::of(2));
    let app = relay(Store::Memory, &[&secret]).start().await;
    let (body, at) = (hook("012345"), now(&app).to_string());
    let [good, bad] = [&secret, &other].map(|secret| secret.sign("x", now(&app), &body));
    let (id, at, good, bad) = (("webhook-id", "x"), ("webhook-timestamp", &at[..]), &good[..], &bad[..]);
    let signed = |by| ("webhook-signature", by);
    for twice in
        [&[id, id, at, signed(good)][..], &[id, at, at, signed(good)], &[id, at, signed(bad), signed(bad)]]
    {
        assert_eq!(refused(&post_lines(&app, twice, &body).await), (401, "invalid-signature"), "{twice:?}");
    }
    for fine in [&[id, at, signed(bad), signed(good)][..], &[signed(good), at, signed(bad), id]] {
        id_of(&post_lines(&app, fine, &body).await);
    }
    assert_eq!(app.client().codes(PHONE).await, ["012345"]);
}

#[tokio::test]
async fn a_number_is_never_one_of_our_own_region() {
    let app =
        TestApp::on(Store::Memory).set("sms.default_region", "CN").without(&["sms-phone"]).start().await;
    let logto = Logto::of(&app, &app.sign_in_admin("boss").await, "relay:idp").await;
    // With 86 before it, each would be a mobile number of China.
    let spellings = [
        "15012345678",
        " 1 501-234-5678 ",
        "１５０１２３４５６７８",
        "\u{200e}15012345678",
        "(1) 501 234 5678",
        "(+1) 501 234 5678",
        "0015012345678",
    ];
    for (sent, spelling) in spellings.iter().enumerate() {
        let answer = logto.send(spelling, &format!("0123{sent}")).await;
        assert_eq!(answer.status, 200, "{spelling}: {}", answer.text);
        assert_eq!(app.client().codes("+15012345678").await.len(), sent + 1, "{spelling}");
    }
    for wrong in ["015012345678", "+", "++15012345678", "1501+2345678", "15012345678 ext 1", "15012345678;86"]
    {
        assert_eq!(refused(&logto.send(wrong, "01234").await), (422, "invalid-phone"), "{wrong}");
    }
    for code in ["12\u{200b}34", "𝟙𝟚𝟛𝟜", "١٢٣٤", "12\u{202e}34", "\u{ff41}bcd", "1234\u{0}"] {
        assert_eq!(refused(&logto.send("8613800138000", code).await), (422, "invalid-input"), "{code:?}");
    }
    assert_eq!(app.client().codes("+8615012345678").await.len(), 0);
}

#[tokio::test]
async fn a_message_that_was_answered_with_503_is_not_sent_later() {
    let secret = Secret::of(1);
    let app = relay(Store::Memory, &[&secret]).start().await;
    let body = hook("012345");
    let mut held = sqlx::SqliteConnection::connect(&app.database).await.unwrap();
    sqlx::query("BEGIN IMMEDIATE").execute(&mut held).await.unwrap();
    assert_eq!(refused(&call(&app, &secret, "one", &body).await), (503, "unavailable"));
    sqlx::query("ROLLBACK").execute(&mut held).await.unwrap();
    app.services.codes.drain().await;
    assert_eq!(app.client().codes(PHONE).await.len(), 0, "the provider has forgotten the code");
    // It has used nothing up.
    let again = loop {
        let answer = call(&app, &secret, "two", &body).await;
        if answer.status != 503 {
            break answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // whether the database answers is checked in real time
    };
    id_of(&again);
    assert_eq!(app.client().codes(PHONE).await, ["012345"]);
}

#[tokio::test]
async fn a_message_in_flight_at_another_instance_is_answered_in_time_and_sent_once() {
    let gateway = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(9));
    Mock::given(method("POST")).respond_with(slow).mount(&gateway).await;
    let secret = Secret::of(1);
    let setup = || {
        let setup = relay(Store::Redis, &[&secret]).set("sms.gateway", "http").set("sms.timeout", "10s");
        setup.set("sms.http.url", format!("{}/send", gateway.uri()))
    };
    let app = setup().start().await;
    let other = app.beside(setup()).await;
    let body = hook("012345");
    let (one, two) = tokio::join!(call(&app, &secret, "one", &body), call(&other, &secret, "two", &body));
    assert_eq!(id_of(&one), id_of(&two));
    assert_eq!(gateway.received_requests().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_relay_that_is_no_longer_configured_is_one_that_never_was() {
    let secret = Secret::of(1);
    let app = relay(Store::Memory, &[&secret]).without(&["sms-phone"]).start().await;
    let token = Logto::of(&app, &app.sign_in_admin("boss").await, "relay:main").await;
    let id = id_of(&call(&app, &secret, "x", &hook("012345")).await);
    let without = app.beside(TestApp::on(Store::Memory).without(&["sms-phone"])).await;
    assert_eq!(refused(&call(&without, &secret, "x", &hook("54321")).await), (401, "invalid-signature"));
    // What it has sent is still its own.
    let told = Logto { client: without.client(), token: token.token };
    assert_eq!(told.tell(&id, "used").await, 204);
}

#[tokio::test]
async fn a_body_is_as_deep_as_its_bytes_allow() {
    let secret = Secret::of(1);
    let app = relay(Store::Memory, &[&secret]).without(&["sms-phone"]).start().await;
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"user":{{"phone":"{BARE}"}},"sms":{{"otp":"012345"}},"x":{open}{close}}}"#)
    };
    for depth in [100, 60_000] {
        id_of(&call(&app, &secret, "x", &deep(depth)).await);
    }
    assert_eq!(app.client().codes(PHONE).await.len(), 2);
}

#[tokio::test]
async fn a_client_that_access_denies_leaves_an_event_in_both() {
    let access =
        "[access]\ndeny = [{ network = '203.0.113.0/24', until = '2096-01-01T00:00:00Z', reason = 'x' }]\n";
    let app = TestApp::on(Store::Memory).file(access).start().await;
    let boss = app.sign_in_admin("boss").await;
    let idp = Logto::of(&app, &boss, "relay:idp").await;
    let body = json!({ "to": BARE, "payload": { "code": "012345" }, "ip": "203.0.113.7" });
    for _ in 0..3 {
        assert_eq!(refused(&idp.call("logto/idp", &body).await), (403, "denied"));
    }
    let shop = Logto::of(&app, &boss, "verify:shop").await;
    let body = json!({ "to": PHONE, "address": "203.0.113.7" });
    assert_eq!(shop.call("../verifications", &body).await.status, 403);
    app.services.audit.flush().await;
    let page = app.services.audit.log().page(&EventFilter::default(), None, 100).await.unwrap();
    let denied: Vec<_> = page
        .entries
        .iter()
        .filter(|event| (event.action, event.outcome) == (Action::Send, Outcome::Refused))
        .collect();
    let masks = denied.iter().map(|event| event.address.as_ref().unwrap().mask.as_str());
    assert_eq!(masks.collect::<Vec<_>>(), ["203.0.113.0/24"; 2]);
    assert!(denied.iter().all(|event| event.limit.as_deref() == Some("access")), "{denied:?}");
    let mut counts: Vec<_> =
        denied.iter().map(|event| (event.name.as_deref().unwrap(), event.count)).collect();
    counts.sort_unstable();
    assert_eq!(counts, [("relay:idp", 3), ("verify:shop:default", 1)], "a flood is one row");
}

#[tokio::test]
async fn what_the_gateway_refuses_still_counts_for_the_relay() {
    let setup =
        TestApp::on(Store::Memory).set("sms.gateway", "http").limit("relay-token", &[max(2).per("1h")]);
    let app = setup.set("sms.http.url", "http://127.0.0.1:9/").start().await;
    let logto = Logto::of(&app, &app.sign_in_admin("boss").await, "relay:idp").await;
    // Without an address nothing else would count it.
    for _ in 0..2 {
        assert_eq!(refused(&logto.send(BARE, "012345").await), (503, "unavailable"));
    }
    let full = logto.send(BARE, "012345").await;
    assert_eq!((refused(&full), &full.body["limit"]), ((429, "throttled"), &json!("relay-token")));
}

#[tokio::test]
async fn answers_to_an_attack_hold_for_relays() {
    let access = format!(
        "[access]\nchallenge_everyone_until = '{IN_AN_HOUR}'\n\
        pause_sms = [{{ prefix = '+86139', until = '{IN_AN_HOUR}', reason = 'x' }}]\n"
    );
    let before = TestApp::start(Store::Memory).await;
    let token = Logto::of(&before, &before.sign_in_admin("boss").await, "relay:idp").await.token;
    let app = before.beside(TestApp::on(Store::Memory).file(&access)).await;
    let logto = Logto { client: app.client(), token };
    let challenged = logto.send(BARE, "012345").await;
    assert_eq!((refused(&challenged), &challenged.body["limit"]), ((429, "throttled"), &json!("access")));
    assert_eq!(refused(&logto.send("8613900138000", "012345").await), (503, "unavailable"));
    assert_eq!(app.client().get("/dev/outbox.json").await.body, json!([]));
}
