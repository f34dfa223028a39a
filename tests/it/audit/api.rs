//! `GET /api/v1/admin/events`.

use std::time::Duration;

use crate::support::app::{Client, PASSWORD, Store, TestApp};

const EVENTS: &str = "/api/v1/admin/events";
const WRONG: &str = "a wrong password";

async fn told(boss: &Client, query: &str) -> Vec<String> {
    let answer = boss.get(&format!("{EVENTS}?{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let events = answer.body["events"].as_array().unwrap().iter();
    let word = |event: &serde_json::Value, field: &str| event[field].as_str().unwrap_or("-").to_owned();
    events.map(|event| format!("{} {}", word(event, "action"), word(event, "outcome"))).collect()
}

#[tokio::test]
async fn events_are_for_administrators() {
    let app = TestApp::start(Store::Memory).await;
    let user = app.client();
    user.register("alice", PASSWORD).await;
    assert_eq!(app.client().get(EVENTS).await.problem(), "unauthenticated");
    assert_eq!(user.get(EVENTS).await.problem(), "forbidden");
    assert_eq!(app.sign_in_admin("boss").await.get(EVENTS).await.status, 200);
}

#[tokio::test]
async fn events_are_found_by_what_they_are_about() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    app.advance(Duration::from_secs(1));
    for login in ["alice", "nobody", "nobody"] {
        app.advance(Duration::from_secs(1));
        app.client().login(login, WRONG).await;
    }
    assert_eq!(
        told(&boss, "").await,
        ["sign-in wrong", "sign-in wrong", "sign-in wrong", "register ok", "sign-in ok"],
        "what happened just now is there, newest first"
    );
    assert_eq!(told(&boss, "action=register").await, ["register ok"]);
    assert_eq!(told(&boss, "outcome=wrong&account=nobody").await.len(), 2);
    assert_eq!(told(&boss, "account=ALICE").await, ["sign-in wrong", "register ok"]);
    assert_eq!(told(&boss, "address=127.0.0.1").await.len(), 5);
    assert_eq!(told(&boss, "address=203.0.113.1").await.len(), 0);
    assert_eq!(told(&boss, "since=2026-03-01T12:00:03Z&until=2026-03-01T12:00:04Z").await.len(), 1);
    assert_eq!(told(&boss, "noted=true").await.len(), 0);
    assert_eq!(told(&boss, "limited_by=login-account").await.len(), 0);
    let newest = boss.get(&format!("{EVENTS}?limit=1")).await;
    let key = newest.body["events"][0]["account"]["key"].as_str().unwrap();
    assert_eq!(told(&boss, &format!("account={key}")).await.len(), 2);
    let next = newest.body["next"].as_str().unwrap();
    assert_eq!(told(&boss, &format!("limit=9&after={next}")).await.len(), 4);
    assert!(!newest.text.contains("nobody") && !newest.text.contains("127.0.0.1"), "{}", newest.text);
}

#[tokio::test]
async fn a_filter_that_cannot_be_read_is_refused_with_its_name() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    for (query, field) in [
        ("action=login", "action"),
        ("outcome=bad", "outcome"),
        ("account=%00", "account"),
        ("account=key:1", "account"),
        ("address=here", "address"),
        ("phone=1", "phone"),
        ("since=yesterday", "since"),
        ("until=12", "until"),
        ("noted=perhaps", "noted"),
        ("after=1", "after"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=many", "limit"),
        ("acton=send", "query"),
    ] {
        let answer = boss.get(&format!("{EVENTS}?{query}")).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{query}: {}", answer.text);
        assert_eq!(answer.header("content-type"), "application/problem+json");
        assert_eq!(answer.body["errors"][0]["field"], field, "{query}");
    }
}

#[tokio::test]
async fn a_lifted_brake_is_an_event_of_who_lifted_it() {
    let app = TestApp::on(Store::Memory).set("sms.brake.min_sent", 1).without(&["sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    for _ in 0..2 {
        boss.ask_code("13800138000", "login").await;
    }
    let request = boss.http.delete(format!("{}/api/v1/admin/brakes/%2B861380013", app.url));
    assert_eq!(request.send().await.unwrap().status(), 204);
    let answer = boss.get(&format!("{EVENTS}?action=admin")).await;
    let event = &answer.body["events"][0];
    assert_eq!((&event["name"], &event["outcome"]), (&"brake.lift".into(), &"ok".into()), "{}", answer.text);
    assert!(event["detail"].as_str().unwrap().contains("+861380013"), "{}", answer.text);
    assert_eq!(event["address"]["mask"], "127.0.0.0/24");
    assert_eq!(event["account"]["mask"], "b…");
    assert_eq!(told(&boss, "limited_by=sms-brake").await, ["send challenged"]);
}
