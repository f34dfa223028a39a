//! What is lost or short while a program has codes sent and checked: the store, its data, the gateway, the budgets.

use std::time::Duration;

use gatehouse::codes::MessageState;
use serde_json::json;
use wiremock::matchers::method;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::{PHONE, Program, id_of, start, started};
use crate::support::app::{Answer, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    a_store_that_forgets_gives_a_number_no_new_guesses,
    the_last_fifth_of_a_budget_is_not_for_programs,
    a_brake_asks_programs_for_challenges_first,
    a_message_that_the_gateway_refuses_frees_the_number_and_its_key,
);

/// The first check that is answered after the store came back.
async fn answered(shop: &Program, id: &str, code: &str) -> Answer {
    loop {
        let answer = shop.check(id, code).await;
        if answer.status != 503 {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // a server that comes back in real time
    }
}

/// The store starts empty: another process in its place, or an emptied Redis. The first answer is waited for.
async fn forget(app: &TestApp, shop: &mut Program) -> Option<TestApp> {
    let Some(redis) = &app.redis else {
        let after = app.beside(TestApp::on(Store::Memory).without(&["sms-phone"])).await;
        shop.client = after.client();
        return Some(after);
    };
    redis::cmd("FLUSHALL").query::<()>(&mut redis.connection()).unwrap();
    None
}

async fn a_store_that_forgets_gives_a_number_no_new_guesses(store: Store) {
    let (app, boss, mut shop) = start(store).await;
    let from = async |shop: &Program, address: &str| loop {
        let sent = shop.call("", json!({ "to": PHONE, "address": address })).await;
        if sent.status != 503 {
            return (id_of(&sent), shop.client.codes(PHONE).await.remove(0));
        }
        tokio::time::sleep(Duration::from_millis(10)).await; // windows are rebuilt from the ledger
    };
    let mut after = Vec::new();
    // The address that asked first has guesses of its own; all others share theirs.
    for address in ["203.0.113.7", "198.51.100.1"] {
        // Of two that asked at the same microsecond nobody knows which was first.
        app.advance(Duration::from_micros(1));
        let (id, code) = from(&shop, address).await;
        for _ in 0..5 {
            shop.guess(&id, &code).await;
        }
        // Neither does letting the number in again at our own sign-in.
        assert_eq!(boss.clear("sms-guess", PHONE).await.status, 204);
        after.extend(forget(&app, &mut shop).await);
        let sixth = answered(&shop, &id, &code).await;
        assert_eq!((sixth.status, &sixth.body["limit"]), (429, &json!("sms-guess")), "{}", sixth.text);
        after.extend(forget(&app, &mut shop).await);
        for _ in 0..2 {
            let (id, code) = from(&shop, address).await;
            assert_eq!(answered(&shop, &id, &code).await.status, 429, "a newer code has no new guesses");
        }
    }
    // What was let in again at the program stays so.
    let (id, _) = from(&shop, "203.0.113.7").await;
    assert_eq!(boss.clear("sms-guess", &format!("verify:shop:{PHONE}")).await.status, 204);
    after.extend(forget(&app, &mut shop).await);
    let (newer, code) = from(&shop, "203.0.113.7").await;
    assert_eq!(answered(&shop, &newer, &super::other_than(&code)).await.status, 401);
    shop.approve(&id, &code).await;
}

#[tokio::test]
async fn a_store_that_is_out_compares_nothing_and_counts_nothing() {
    let (mut app, _, shop) =
        started(TestApp::on(Store::Redis).without(&["sms-phone"]).set("store.timeout", "500ms")).await;
    let (id, code) = shop.sent(PHONE).await;
    app.redis.as_mut().unwrap().kill();
    for code in [&code, &super::other_than(&code)] {
        let out = shop.check(&id, code).await;
        assert_eq!((out.status, out.problem()), (503, "unavailable"), "{}", out.text);
        assert!(!out.header("retry-after").is_empty());
    }
    app.restart_redis();
    let right = answered(&shop, &id, &code).await;
    assert_eq!((right.status, &right.body), (200, &json!({ "status": "approved" })), "{}", right.text);
}

async fn the_last_fifth_of_a_budget_is_not_for_programs(store: Store) {
    let setup = TestApp::on(store).limit("sms-total", &[max(5).per("1h")]).without(&["sms-phone"]);
    let (_app, _, shop) = started(setup).await;
    for _ in 0..4 {
        id_of(&shop.send(PHONE).await);
    }
    let refused = shop.send(PHONE).await;
    assert_eq!((refused.status, refused.problem()), (429, "throttled"), "{}", refused.text);
    assert_eq!(refused.body["limit"], "sms-total");
}

async fn a_brake_asks_programs_for_challenges_first(store: Store) {
    let setup = TestApp::on(store).file("[sms.brake]\nmin_sent = 10\n");
    let setup = setup.without(&["sms-phone", "program-address", "program-network", "program-prefix"]);
    let (_app, _, shop) = started(setup).await;
    let mut sent = 0;
    let challenged = loop {
        // Of networks of their own: those of one count for little.
        let body = json!({ "to": format!("+861380013{sent:04}"), "address": format!("10.0.{sent}.1") });
        let answer = shop.call("", body).await;
        if answer.status != 202 {
            break answer;
        }
        sent += 1;
    };
    assert_eq!(
        (sent, challenged.status, challenged.problem()),
        (5, 403, "captcha-required"),
        "{}",
        challenged.text
    );
    // Where they are entered, none is put on.
    for n in 0..15 {
        let (id, code) = shop.sent(&format!("+861370013{n:04}")).await;
        shop.approve(&id, &code).await;
    }
}

async fn a_message_that_the_gateway_refuses_frees_the_number_and_its_key(store: Store) {
    let gateway = MockServer::start().await;
    let refusing = Mock::given(method("POST")).respond_with(ResponseTemplate::new(400)).up_to_n_times(1);
    refusing.mount(&gateway).await;
    Mock::given(method("POST")).respond_with(ResponseTemplate::new(200)).mount(&gateway).await;
    let setup = TestApp::on(store).set("sms.gateway", "http").limit("sms-phone", &[max(1).per("1h")]);
    let setup = setup.set("sms.http.url", format!("{}/send", gateway.uri()));
    let (app, _, shop) = started(setup.limit("verify-token", &[max(2).per("1h")])).await;
    let body = json!({ "to": PHONE, "address": "203.0.113.7" });
    let refused = shop.call_once("", body.clone(), Some("order-7")).await;
    assert_eq!((refused.status, refused.problem()), (503, "unavailable"), "{}", refused.text);
    assert!(!refused.header("retry-after").is_empty());
    let sent = shop.call_once("", body, Some("order-7")).await;
    assert_eq!((sent.status, &sent.body["delivery"]), (202, &json!("accepted")), "{}", sent.text);
    let page = app.services.codes.ledger().page(&Default::default(), None, 10).await.unwrap();
    let in_state = |state| page.entries.iter().filter(|entry| entry.state == state).count();
    assert_eq!((in_state(MessageState::Accepted), in_state(MessageState::Refused)), (1, 1));
    let third = shop.send("+8613800138001").await;
    assert_eq!(
        (third.status, &third.body["limit"]),
        (429, &json!("verify-token")),
        "it counts for the program"
    );
}
