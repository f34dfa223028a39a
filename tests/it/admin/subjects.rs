//! Why somebody is refused, and how to let them in again.

use std::task::Poll;
use std::time::Duration;

use gatehouse::audit::{EventEntry, EventSubject, Outcome, SubjectKind};
use gatehouse::clock::Micros;
use gatehouse::lookup::LookupActor;
use serde_json::{Value, json};

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores, subject_path};
use crate::support::setup::{Setup, max};

const NUMBER: &str = "+8613800138000";
/// Only the number's own limits; no brake.
fn sms(store: Store) -> Setup {
    TestApp::on(store).set("sms.brake.enabled", false).limit("sms-phone", &[max(2).per("1h")])
}

on_both_stores!(
    an_account_is_shown_with_its_failures_and_let_in_again,
    a_name_without_an_account_is_let_in_again_like_one_with,
    a_number_is_sent_messages_again_though_the_ledger_remembers_them,
    wrong_codes_are_forgiven_on_the_code_itself_too,
    subjects_of_every_kind_are_found_and_let_in_again,
);

async fn log(boss: &Client, limit: &str, subject: &str) -> Value {
    let answer = boss.get(&subject_path(limit, subject)).await;
    assert_eq!(answer.status, 200, "{limit} {subject}: {}", answer.text);
    answer.body
}

async fn an_account_is_shown_with_its_failures_and_let_in_again(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    for _ in 0..3 {
        app.client().login("alice", "wrong").await;
        app.advance(Duration::from_secs(1));
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.problem(), "captcha-required");
    let log = log(&boss, "login-account", " ALICE".trim()).await;
    let noon = |seconds: u32| json!(format!("2026-03-01T12:00:{seconds:02}.000000Z"));
    assert_eq!(log["hits"], json!([noon(2), noon(1), noon(0)]));
    assert_eq!((&log["at"], &log["holds"], &log["account"]["login"]), (&noon(3), &json!(0), &json!("alice")));
    let minute = json!({ "max": 3, "window_ms": 60_000, "then": "captcha", "count": 3, "frees_at": "2026-03-01T12:01:00.000000Z" });
    assert_eq!(log["rules"][0], minute);
    assert_eq!(log["rules"][1], json!({ "max": 20, "window_ms": 3_600_000, "then": "block", "count": 3 }));
    assert_eq!(boss.clear("login-account", "alice").await.status, 204);
    assert_eq!(super::subjects::log(&boss, "login-account", "alice").await["hits"], json!([]));
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "at once, without a CAPTCHA");
}

async fn a_name_without_an_account_is_let_in_again_like_one_with(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    for _ in 0..3 {
        app.client().login("nobody", "wrong").await;
    }
    assert_eq!(app.client().login("nobody", "wrong").await.problem(), "captcha-required");
    let log = log(&boss, "login-account", "nobody").await;
    assert_eq!((log["hits"].as_array().unwrap().len(), log.get("account")), (3, None));
    assert_eq!(boss.clear("login-account", "nobody").await.status, 204);
    assert_eq!(app.client().login("nobody", "wrong").await.problem(), "invalid-credentials");
}

async fn a_number_is_sent_messages_again_though_the_ledger_remembers_them(store: Store) {
    let app = sms(store).start().await;
    let (boss, user) = (app.sign_in_admin("boss").await, app.client());
    let send = async || user.ask_code(NUMBER, "login").await.status;
    assert_eq!((send().await, send().await, send().await), (202, 202, 429));
    assert_eq!(log(&boss, "sms-phone", "138 0013 8000").await["rules"][0]["count"], 2);
    app.advance(Duration::from_secs(1));
    assert_eq!(boss.clear("sms-phone", NUMBER).await.status, 204);
    app.advance(Duration::from_secs(1));
    let again = user.ask_code(NUMBER, "login").await;
    assert_eq!((again.status, &again.body["resend_after"]), (202, &json!(0)), "{}", again.text);
    // A rebuild after a loss leaves out what was cleared, and nothing else.
    if let Some(redis) = &app.redis {
        redis::cmd("FLUSHALL").exec(&mut redis.connection()).unwrap();
    }
    assert_eq!((send().await, send().await), (202, 429), "two since then");
    assert_eq!(log(&boss, "sms-prefix", NUMBER).await["rules"][0]["count"], 4, "the prefix counts them all");
}

async fn wrong_codes_are_forgiven_on_the_code_itself_too(store: Store) {
    let app = sms(store).start().await;
    let (boss, user) = (app.sign_in_admin("boss").await, app.client());
    user.call("/sms/login", json!({ "phone": NUMBER, "code": "000000" })).await;
    let code = user.code(NUMBER, "login").await;
    let wrong = if code == "111111" { "222222" } else { "111111" };
    let enter = async |code: &str| {
        app.client().call("/sms/login", json!({ "phone": NUMBER, "code": code })).await.status
    };
    for _ in 0..4 {
        assert_eq!(enter(wrong).await, 401);
    }
    assert_eq!(boss.clear("sms-guess", NUMBER).await.status, 204);
    for _ in 0..4 {
        assert_eq!(enter(wrong).await, 401, "they begin anew");
    }
    assert_eq!(boss.clear("sms-guess", NUMBER).await.status, 204);
    assert_eq!(enter(&code).await, 200);
}

async fn subjects_of_every_kind_are_found_and_let_in_again(store: Store) {
    let app = sms(store).behind_a_proxy().limit("custom.reply", &[max(2).per("1h")]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let token = super::tokens::make(&boss, &["*"]).await;
    let asker = app.client_at("2001:db8:0:42::7");
    asker.login("nobody", "wrong").await;
    assert_eq!(asker.image(&asker.challenge().await).await.status, 200);
    assert_eq!(asker.ask_code(NUMBER, "login").await.status, 202);
    asker.register("alice", PASSWORD).await;
    let program = crate::custom::Program { client: app.client(), token };
    let odd = "a/b%2F ?é";
    program.reserve("reply", odd).await;
    for (limit, subject) in [
        ("login-address", "2001:db8:0:42:ffff::1"),
        ("login-network", "2001:db8:0:ffff::1"),
        ("register-address", "2001:db8:0:42::7"),
        ("captcha-address", "2001:db8:0:42::7"),
        ("captcha-network", "2001:db8:0:ffff::1"),
        ("captcha-total", "everyone"),
        ("sms-address", "2001:db8:0:42::7"),
        ("sms-network", "2001:db8:0:ffff::1"),
        ("sms-prefix", "+861380013"),
        ("sms-total", "everyone"),
        ("custom.reply", odd),
    ] {
        assert_eq!(log(&boss, limit, subject).await["rules"][0]["count"], 1, "{limit}");
        assert_eq!(boss.clear(limit, subject).await.status, 204);
        assert_eq!(log(&boss, limit, subject).await["rules"][0]["count"], 0, "{limit}");
    }
}

#[tokio::test]
async fn what_no_limit_counts_is_said_to_be_none() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    for (limit, subject, problem) in [
        ("nothing", "x", "unknown-limit"),
        ("custom.nothing", "x", "unknown-limit"),
        ("reply", "x", "unknown-limit"),
        ("login-account", "+8613800138000", "unknown-subject"),
        ("sms-phone", "alice", "unknown-subject"),
        ("login-address", "203.0.113.300", "unknown-subject"),
        ("sms-total", "alice", "unknown-subject"),
    ] {
        for answer in [boss.get(&subject_path(limit, subject)).await, boss.clear(limit, subject).await] {
            assert_eq!((answer.status, answer.problem()), (404, problem), "{limit} {subject}");
        }
    }
    let long = format!("{}?reason={}", subject_path("login-account", "alice"), "x".repeat(501));
    let request = boss.http.delete(format!("{}{long}", app.url));
    assert_eq!(request.send().await.unwrap().status(), 422);
}

#[tokio::test]
async fn one_text_finds_every_limit_that_counts_it_and_what_was_tried() {
    let app = sms(Store::Memory).start().await;
    let (live, lookup) = (app.services.live.snapshot(), &app.services.lookup);
    let user = app.client();
    assert_eq!(user.ask_code(NUMBER, "login").await.status, 202);
    app.client().login("nobody", "wrong").await;
    for (text, expected) in [
        ("nobody", &["login-account", "factor-account"][..]),
        ("138 0013 8000", &["sms-phone", "sms-prefix", "sms-guess"]),
        (
            "127.0.0.1",
            &[
                "login-address",
                "login-network",
                "oidc-address",
                "register-address",
                "captcha-address",
                "captcha-network",
                "sms-address",
                "sms-network",
                "mail-address",
                "mail-network",
            ],
        ),
    ] {
        let subject = gatehouse::web::console::lookup::subject::read(text, &live).unwrap();
        let all = lookup.all(&live, &subject).await.unwrap();
        let names: Vec<_> = all.iter().map(|standing| standing.limit.name()).collect();
        assert_eq!(names, expected, "{text}");
        assert!(all.iter().any(|standing| standing.rules[0].count == 1), "{text}");
        let recorded = lookup.recorded(&subject).await.unwrap().unwrap();
        assert!(!lookup.events_of(recorded, Micros(0), 10).await.unwrap().is_empty(), "{text}");
    }
}

#[tokio::test]
async fn whoever_looks_a_subject_up_sees_who_let_it_in_and_why() {
    let app = sms(Store::Memory).start().await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(boss.clear("sms-phone", NUMBER).await.status, 204);
    let audit = &app.services.audit;
    audit.flush().await;
    let key = audit.subject(&EventSubject::Phone(NUMBER));
    let events = audit.log().by_subject(SubjectKind::Phone, key, Micros(0), 10).await.unwrap();
    let [event] = events.as_slice() else { panic!("{events:#?}") };
    assert_eq!(event.name.as_deref(), Some("subject.clear"));
    let detail: Value = serde_json::from_str(event.detail.as_deref().unwrap()).unwrap();
    assert_eq!((event.limit.as_deref(), event.rule), (Some("sms-phone"), None));
    assert_eq!(detail, json!({ "reason": "called us" }));
    assert!(event.actor.is_some() && !format!("{event:?}").contains(NUMBER), "{event:?}");
}

/// The newest events of the number, newest first.
async fn events(app: &TestApp) -> Vec<EventEntry> {
    let audit = &app.services.audit;
    audit.flush().await;
    let key = audit.subject(&EventSubject::Phone(NUMBER));
    audit.log().by_subject(SubjectKind::Phone, key, Micros(0), 10).await.unwrap()
}

#[tokio::test]
async fn letting_in_that_fails_half_way_is_recorded_as_such() {
    let mut app = sms(Store::Redis).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.redis.as_mut().unwrap().kill();
    assert_eq!(boss.clear("sms-phone", NUMBER).await.status, 503);
    let events = events(&app).await;
    let [event] = events.as_slice() else { panic!("{events:#?}") };
    assert_eq!((event.name.as_deref(), event.outcome), (Some("subject.clear"), Outcome::Refused));
    let detail: Value = serde_json::from_str(event.detail.as_deref().unwrap()).unwrap();
    assert_eq!(detail, json!({ "reason": "called us", "why": "failed" }));
}

#[tokio::test]
async fn letting_in_is_done_and_recorded_whoever_hangs_up() {
    let app = sms(Store::Memory).start().await;
    app.sign_in_admin("boss").await;
    let services = &app.services;
    let name = gatehouse::accounts::Username::parse("boss").unwrap();
    let account = services.accounts.find(&name).await.unwrap().unwrap();
    let live = services.live.snapshot();
    let by = LookupActor {
        actor: "somebody".into(),
        account,
        token: None,
        address: vec![4, 127, 0, 0, 1],
        reason: "called us".into(),
    };
    {
        let phone = gatehouse::web::console::lookup::subject::read(NUMBER, &live).unwrap();
        let clearing = services.lookup.clear(&live, "sms-phone", &phone, by);
        let mut clearing = std::pin::pin!(clearing);
        let poll = std::future::poll_fn(|context| Poll::Ready(clearing.as_mut().poll(context)));
        assert!(poll.await.is_pending());
    }
    // Each iteration waits for the database, as work without its caller does.
    for _ in 0..1000 {
        if let [event] = events(&app).await.as_slice() {
            return assert_eq!((event.name.as_deref(), event.outcome), (Some("subject.clear"), Outcome::Ok));
        }
    }
    panic!("it was not recorded");
}

#[tokio::test]
async fn whom_somebody_looked_up_does_not_outlive_their_session() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let asked = boss.submit("/admin/lookup", "/admin/lookup", &[("asked", NUMBER)]).await;
    assert!(asked.cookie("gh_lookup").is_some_and(|cookie| cookie.len() > "gh_lookup=; ".len()));
    let left = boss.submit("/account", "/logout", &[]).await;
    assert_eq!(left.status, 303);
    assert!(
        left.cookie("gh_lookup").is_some_and(|cookie| cookie.contains("Max-Age=0")),
        "{:?}",
        left.cookie("gh_lookup")
    );
    assert!(boss.call("/logout", json!({})).await.cookie("gh_lookup").is_some());
}

/// A detail that was cut is not JSON any more, and its reason cannot be read.
#[tokio::test]
async fn what_is_recorded_of_a_refused_save_is_bounded_by_us_and_not_by_where_it_is_cut() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let long = "x".repeat(9000);
    let back = json!({ "change": long, "reason": "because" });
    let request = boss.http.post(format!("{}/api/v1/admin/limits/rollback", boss.url)).json(&back);
    let answer = Answer::read(request.header("if-match", format!("\"{long}\"")).send().await.unwrap()).await;
    assert_eq!(answer.status, 422, "{}", answer.text);
    let events = boss.get("/api/v1/admin/events?action=admin&outcome=refused").await;
    let detail: Value = serde_json::from_str(events.body["events"][0]["detail"].as_str().unwrap()).unwrap();
    assert_eq!((&detail["reason"], &detail["why"]), (&json!("because"), &json!("invalid")));
}

/// PostgreSQL accepts no NUL in a text: a request with one gets "not found".
#[tokio::test]
async fn what_no_name_can_hold_is_not_there() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let events = boss.get("/api/v1/admin/events?limited_by=%00").await;
    assert_eq!((events.status, &events.body["events"]), (200, &json!([])), "{}", events.text);
    assert_eq!(boss.get("/admin/limits/history/%00").await.status, 404);
    assert_eq!(boss.get("/api/v1/admin/messages?prefix=%00").await.status, 200);
    assert_eq!(boss.delete("/api/v1/admin/brakes/%00", json!({})).await.status, 404);
}
