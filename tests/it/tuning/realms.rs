//! A draft of the limits on the logins of other programs, tried on what was recorded there.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::shown;
use crate::audit::{events, told};
use crate::guard::mail_server::{HOME, from, mail};
use crate::guard::{Program, start};
use crate::support::app::{Client, Store, TestApp, on_both_stores};

on_both_stores!(
    attempts_of_realms_are_tried_each_realm_for_itself,
    a_device_of_a_realm_has_its_own_log_in_a_replay,
    what_was_forgiven_or_cleared_in_a_realm_is_so_in_a_replay,
    an_attempt_at_a_mail_server_is_one_event_and_is_tried_once,
);

const SECOND: Duration = Duration::from_secs(1);

/// What would have been decided with another first rule of this limit.
async fn with_max(boss: &Client, limit: &str, max: u32) -> Value {
    let (_, mut limits) = shown(boss).await;
    limits[limit]["rules"][0]["max"] = json!(max);
    preview(boss, limits).await
}

async fn preview(boss: &Client, limits: Value) -> Value {
    let answer = boss.call("/admin/limits/preview", json!({ "limits": limits })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

/// Attempts that this limit counts, those that every limit admitted, and those that this one challenged.
fn figures(report: &Value, side: &str, limit: &str) -> [u64; 3] {
    let limits = report[side]["limits"].as_array().unwrap();
    let limit = limits.iter().find(|it| it["name"] == limit).expect("it is replayed");
    ["attempts", "admitted", "challenged"].map(|figure| limit[figure].as_u64().unwrap())
}

/// A draft without changes decides what was decided.
async fn assert_current(app: &TestApp, boss: &Client, limit: &str, decided: [u64; 3]) {
    app.advance(SECOND);
    let (_, limits) = shown(boss).await;
    let report = preview(boss, limits).await;
    assert_eq!(figures(&report, "current", limit), decided, "{report:#}");
    assert_eq!(report["draft"], report["current"]);
    let untried = report["not_replayed"].as_array().unwrap();
    assert!(!untried.iter().any(|name| name.as_str().unwrap().starts_with("guard-")), "{untried:?}");
}

async fn fail(app: &TestApp, program: &Program, login: &str, times: u32) {
    for _ in 0..times {
        app.advance(SECOND);
        program.fail(login).await;
    }
}

async fn attempts_of_realms_are_tried_each_realm_for_itself(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "guard:mail").await;
    fail(&app, &shop, "ada", 3).await;
    app.advance(SECOND);
    let asked = shop.ask("ada").await;
    assert_eq!(asked["decision"], "challenge");
    app.advance(SECOND);
    let captcha = json!({ "id": asked["captcha"]["id"], "answer": "wrong" });
    let wrong = json!({ "login": "ada", "address": "203.0.113.7", "captcha": captcha });
    assert_eq!(shop.ask_with(wrong).await["decision"], "challenge");
    fail(&app, &shop, "bob", 1).await;
    fail(&app, &mail, "ada", 2).await;
    assert_current(&app, &boss, "guard-account", [7, 6, 1]).await;
    let report = with_max(&boss, "guard-account", 2).await;
    assert_eq!(figures(&report, "draft", "guard-account"), [7, 5, 2], "two more at the name in one realm");
    // Four in one realm, one of them a wrong answer; two more in the other.
    let report = with_max(&boss, "guard-address", 4).await;
    assert_eq!(figures(&report, "draft", "guard-address"), [7, 5, 1], "{report:#}");
    let report = with_max(&boss, "guard-address", 5).await;
    assert_eq!(
        figures(&report, "draft", "guard-address"),
        [7, 6, 0],
        "of six from the address, four are here"
    );
    let report = with_max(&boss, "guard-network", 4).await;
    assert_eq!(figures(&report, "draft", "guard-network"), [7, 5, 1], "{report:#}");
    // Our own sign-in has its own: the administrator's.
    let report = with_max(&boss, "login-address", 1).await;
    assert_eq!(figures(&report, "draft", "login-address"), [1, 1, 0], "{report:#}");
}

async fn a_device_of_a_realm_has_its_own_log_in_a_replay(store: Store) {
    let (app, boss, shop) = start(store).await;
    let device = shop.succeed("ada").await;
    fail(&app, &shop, "ada", 3).await;
    for _ in 0..2 {
        app.advance(SECOND);
        let attempt = json!({ "login": "ada", "address": "203.0.113.7", "device": device });
        let known = shop.ask_with(attempt).await;
        assert_eq!(known["decision"], "go", "{known}");
        assert_eq!(shop.tell(known["attempt"].as_str().unwrap(), "failure").await.status, 200);
    }
    assert_current(&app, &boss, "guard-device", [2, 2, 0]).await;
    assert_current(&app, &boss, "guard-account", [4, 4, 0]).await;
    let report = with_max(&boss, "guard-device", 1).await;
    assert_eq!(figures(&report, "draft", "guard-device"), [2, 1, 1], "{report:#}");
    let report = with_max(&boss, "guard-account", 2).await;
    assert_eq!(figures(&report, "draft", "guard-device"), [2, 2, 0], "strangers are not in its way");
    // Without a limit of their own they are strangers.
    let (_, mut limits) = shown(&boss).await;
    limits["guard-device"]["rules"] = json!([]);
    let report = preview(&boss, limits).await;
    assert_eq!(figures(&report, "draft", "guard-account"), [6, 4, 2], "{report:#}");
}

async fn what_was_forgiven_or_cleared_in_a_realm_is_so_in_a_replay(store: Store) {
    let (app, boss, shop) = start(store).await;
    fail(&app, &shop, "ada", 3).await;
    app.advance(SECOND);
    let forgiven = shop.call("/forgive", json!({ "login": "ADA" })).await;
    assert_eq!(forgiven.status, 204, "{}", forgiven.text);
    fail(&app, &shop, "ada", 3).await;
    app.advance(SECOND);
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    app.advance(SECOND);
    assert_eq!(boss.clear("guard-account", "guard:shop:ada").await.status, 204);
    fail(&app, &shop, "ada", 1).await;
    assert_current(&app, &boss, "guard-account", [8, 7, 1]).await;
    let report = with_max(&boss, "guard-account", 2).await;
    assert_eq!(figures(&report, "draft", "guard-account"), [8, 2 + 2 + 1, 3], "{report:#}");
}

/// What knows the owner's address has been used up: it is asked for again as a stranger's.
async fn an_attempt_at_a_mail_server_is_one_event_and_is_tried_once(store: Store) {
    let (app, boss, mail) = mail(store).await;
    mail.succeed(from(HOME, "first", "000")).await;
    for n in ["1", "2", "3", "4"] {
        app.advance(SECOND);
        mail.fail(from(HOME, n, n)).await;
    }
    let events = events(&app).await;
    let attempts: Vec<_> = events.iter().map(told).filter(|text| text.starts_with("attempt")).collect();
    assert_eq!(attempts[0], "attempt ok (mail)");
    assert_eq!(attempts[1..], ["attempt wrong (mail)"; 4]);
    assert_current(&app, &boss, "guard-device", [3, 3, 0]).await;
    assert_current(&app, &boss, "guard-account", [2, 2, 0]).await;
    let report = with_max(&boss, "guard-device", 2).await;
    assert_eq!(figures(&report, "draft", "guard-device"), [3, 2, 1], "{report:#}");
}
