//! The list of events: an attack is one line, filters by several things at once, and files.

use std::time::Duration;

use gatehouse::audit::{Action, AuditEvent, EventSubject, Outcome};

use super::{events, told};
use crate::support::app::{Client, Store, TestApp, on_both_stores};

const API: &str = "/api/v1/admin/events";
const WRONG: &str = "a wrong password";

on_both_stores!(
    an_attack_is_one_line_that_leads_to_its_events,
    events_are_filtered_by_several_things_and_by_time,
    the_record_is_exported_whole_and_that_is_recorded,
    a_file_is_cut_off_nowhere_but_at_its_end,
);

/// The rows of a list.
fn rows(page: &str) -> usize {
    let (_, list) = page.split_once("<ul class=\"rows events\">").unwrap_or_default();
    list.split("</ul>").next().unwrap().matches("<li>").count()
}

async fn an_attack_is_one_line_that_leads_to_its_events(store: Store) {
    let app = TestApp::on(store)
        .behind_a_proxy()
        .without(&["sms-phone", "sms-address", "sms-network", "sms-prefix", "sms-total"])
        .set("sms.brake.enabled", false)
        .start()
        .await;
    let boss = app.sign_in_admin("boss").await;
    app.client().login("before", WRONG).await;
    app.advance(Duration::from_secs(600));
    for number in 0..40 {
        let sent = app.client_at("203.0.113.7").ask_code(&format!("+8613800138{number:03}"), "login").await;
        assert_eq!(sent.status, 202, "{}", sent.text);
        app.advance(Duration::from_secs(3));
    }
    boss.get("/admin").await;
    app.advance(Duration::from_secs(600));
    app.client_at("203.0.113.7").ask_code("+8613900139000", "login").await;
    app.advance(Duration::from_secs(600));
    boss.get("/admin").await;
    let page = boss.get("/admin/events").await.text;
    assert!(page.contains("Attack: codes requested"), "{page}");
    assert!(page.contains("× 40"), "{page}");
    // The administrator's sign-in, the attempt before, the attack, and the message after it.
    assert_eq!(rows(&page), 4, "{page}");
    let lead = page.split("<a href=\"/admin/events?action=send").nth(1).unwrap().split('"').next().unwrap();
    let each = boss.get(&format!("/admin/events?action=send{}", lead.replace("&#38;", "&"))).await.text;
    assert_eq!(rows(&each), 40, "{each}");
    let all = boss.get("/admin/events?each=1").await.text;
    assert_eq!(rows(&all), 45, "and that it began and ended: {all}");
    let sends = boss.get("/admin/events?action=send").await.text;
    assert_eq!((rows(&sends), sends.contains("× 40")), (2, true));
    let sign_ins = boss.get("/admin/events?action=sign-in").await.text;
    assert_eq!((rows(&sign_ins), sign_ins.contains("× 40")), (2, false));
    let refused = boss.get("/admin/events?outcome=ok&action=send").await.text;
    assert_eq!(rows(&refused), 41, "who asks for some of its events gets them");
}

async fn events_are_filtered_by_several_things_and_by_time(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    for minute in 0..3 {
        app.advance(Duration::from_secs(60));
        app.client().login(if minute == 1 { "alice" } else { "nobody" }, WRONG).await;
    }
    let listed = async |query: &str| rows(&boss.get(&format!("/admin/events?{query}")).await.text);
    assert_eq!(listed("").await, 5);
    assert_eq!(listed("action=register&action=sign-in&outcome=ok").await, 2);
    assert_eq!(listed("action=register,sign-in&outcome=ok,wrong").await, 5);
    assert_eq!(listed("since=2026-03-01T12:01&until=2026-03-01T12:03").await, 2);
    assert_eq!(listed("since=2026-03-01T12:01:00Z&outcome=wrong&action=sign-in").await, 3);
    assert_eq!(listed("span=1h").await, 5);
    app.advance(Duration::from_secs(3600));
    assert_eq!(listed("span=1h").await, 1, "an hour after the last but one");
    assert_eq!(listed("span=24h&since=2026-03-01T12:02").await, 2, "a beginning wins over a span");
    let page = boss.get("/admin/events?action=sign-in&span=24h").await.text;
    assert!(
        page.contains("id=\"events-chart\"") && page.contains("<option value=\"24h\" selected>"),
        "{page}"
    );
    assert!(page.contains("wrong or failed 3"), "the chart counts them: {page}");
    let of_one = page.split("/admin/lookup?account=").nth(1).unwrap().split('"').next().unwrap();
    let page = boss.get(&format!("/admin/events?account={of_one}")).await.text;
    assert!(page.contains("wrong or failed 2"), "also those of one subject: {page}");
    let answer = boss.get(&format!("{API}?action=register,sign-in&outcome=ok")).await;
    assert_eq!(answer.body["events"].as_array().unwrap().len(), 2, "{}", answer.text);
    for (query, field) in [("action=sign-in,login", "action"), ("outcome=ok,", "outcome")] {
        let answer = boss.get(&format!("{API}?{query}")).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &field.into()), "{query}");
    }
}

/// The cells of a line without quotes.
fn cells(line: &str) -> Vec<&str> {
    line.split(',').collect()
}

async fn the_record_is_exported_whole_and_that_is_recorded(store: Store) {
    let app = TestApp::on(store).set("sms.brake.enabled", false).start().await;
    let (boss, user) = (app.sign_in_admin("boss").await, app.client());
    user.register("alice", "correct horse battery staple").await;
    user.ask_code("+8613800138000", "login").await;
    app.client().login("=cmd|calc", WRONG).await;
    app.client().login("nobody", WRONG).await;
    app.services.audit.act(
        "limits.save",
        Outcome::Ok,
        gatehouse::audit::ConsoleActor::default(),
        Some("=HYPERLINK(\"http://evil.example\",\"go\")".into()),
    );
    let csv = boss.get("/admin/events.csv?action=sign-in,send,admin&each=1").await;
    assert_eq!(csv.status, 200);
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8; header=present");
    assert_eq!(csv.header("content-disposition"), "attachment; filename=\"gatehouse-events.csv\"");
    assert!(csv.header("cache-control").contains("no-store"), "{:?}", csv.headers);
    let lines: Vec<&str> = csv.text.split_terminator("\r\n").collect();
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
    let head = cells(lines[0]);
    assert_eq!((head[0], head[3], head.len()), ("at", "action", 20));
    let column = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let sent = lines.iter().map(|line| cells(line)).find(|cells| cells[column("action")] == "send").unwrap();
    assert_eq!(sent[column("phone")], "'+861380013****", "no formula");
    assert!(csv.text.contains(r#","'=HYPERLINK(""http://evil.example"",""go"")","#), "{}", csv.text);
    assert!(!csv.text.contains("nobody") && !csv.text.contains("127.0.0.1") && !csv.text.contains("cmd|"));
    let json = boss.get("/admin/events.json?action=sign-in&outcome=wrong").await;
    assert_eq!(json.header("content-type"), "application/json");
    let listed = boss.get(&format!("{API}?action=sign-in&outcome=wrong")).await;
    assert_eq!((&json.body["events"], &json.body["cut"]), (&listed.body["events"], &false.into()));
    let none = boss.get("/admin/events.json?action=reload").await;
    assert_eq!(none.body["events"], serde_json::json!([]), "{}", none.text);
    let all = events(&app).await;
    let exports: Vec<_> = all.iter().filter(|event| told(event) == "admin ok (events.export)").collect();
    assert_eq!(exports.len(), 3);
    assert!(exports[0].actor.is_some());
    let detail = exports[1].detail.as_deref().unwrap();
    assert!(detail.contains("json") && detail.contains("action=sign-in"), "{detail}");
    for (client, status) in [(app.client(), 303), (user, 403)] {
        for path in ["/admin/events.csv", "/admin/events.json"] {
            assert_eq!(client.get(path).await.status, status, "{path}");
        }
    }
    assert_eq!(boss.get("/admin/events").await.text.matches("Events exported").count(), 3);
}

/// More than several pages of the database.
async fn a_file_is_cut_off_nowhere_but_at_its_end(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    for name in 0..3_456 {
        let login = format!("somebody-{name}");
        app.services.audit.record(AuditEvent {
            account: Some(EventSubject::Login(&login)),
            ..AuditEvent::new(app.clock.now(), Action::Register, Outcome::Failed)
        });
    }
    let file = async |path: &str| Client::get(&boss, path).await;
    let csv = file("/admin/events.csv?action=register").await.text;
    assert_eq!(csv.split_terminator("\r\n").count(), 3_457);
    let keys: std::collections::BTreeSet<_> = csv.split("\r\n").skip(1).map(str::to_owned).collect();
    assert!(keys.len() > 3_456, "each once, and the end: {}", keys.len());
    let json = file("/admin/events.json?action=register").await.body;
    assert_eq!(json["events"].as_array().unwrap().len(), 3_456);
}
