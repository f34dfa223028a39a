//! `[access]` by API: a save is checked, confirmed, in force when it is answered, and in the history.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ELSEWHERE, IN_AN_HOUR, THERE};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::tuning::rig::LIMITS;

on_both_stores!(
    a_save_is_in_force_at_once_and_undone_by_another,
    the_history_says_who_set_what_and_why_and_returning_to_limits_leaves_it_alone,
);

const ACCESS: &str = "/api/v1/admin/access";
const DOCUMENT: &str =
    "# Ours.\n[limits.login-account]\nrules = [{ max = 3, window = \"1m\", then = \"captcha\" }]\n";

async fn start(store: Store) -> TestApp {
    TestApp::on(store).behind_a_proxy().file(DOCUMENT).start().await
}

/// An administrator who comes from elsewhere.
async fn boss(app: &TestApp) -> Client {
    app.sign_in_admin_at("boss", ELSEWHERE).await
}

async fn version(client: &Client) -> String {
    let answer = client.get(ACCESS).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("etag"), format!("\"{}\"", answer.body["version"].as_str().unwrap()));
    answer.body["version"].as_str().unwrap().to_owned()
}

/// What is in force, without its version.
async fn shown(client: &Client) -> Value {
    let mut body = client.get(ACCESS).await.body;
    body.as_object_mut().unwrap().remove("version");
    body
}

fn denying(network: &str) -> Value {
    json!([{ "network": network, "until": IN_AN_HOUR, "reason": "a flood" }])
}

async fn a_save_is_in_force_at_once_and_undone_by_another(store: Store) {
    let app = start(store).await;
    let boss = boss(&app).await;
    let nothing = json!({ "deny": [], "allow": [], "challenge_everyone_until": "", "pause_sms": [] });
    assert_eq!(shown(&boss).await, nothing);
    let stranger = app.client_at(THERE);
    assert_eq!(stranger.get("/login").await.status, 200);
    let seen = version(&boss).await;
    let body = json!({ "deny": denying("203.0.113.0/24"), "reason": "they guess" });
    let saved = boss.put(ACCESS, &seen, body.clone()).await;
    assert_eq!((saved.status, &saved.body["changed"]), (200, &json!(true)), "{}", saved.text);
    assert_eq!(stranger.get("/login").await.status, 403);
    assert_eq!(shown(&boss).await["deny"], denying("203.0.113.0/24"));
    let text = std::fs::read_to_string(app.file()).unwrap();
    assert!(text.starts_with(DOCUMENT) && text.contains("[access]\ndeny = [\n"), "{text}");
    // Who has not seen it overwrites nothing.
    let stale =
        boss.put(ACCESS, &seen, json!({ "challenge_everyone_until": IN_AN_HOUR, "reason": "r" })).await;
    assert_eq!((stale.status, stale.problem()), (412, "precondition-failed"), "{}", stale.text);
    let diff = stale.body["diff"].as_str().unwrap();
    assert!(
        diff.contains("-    { network = \"203.0.113.0/24\"") && diff.contains("+challenge_everyone_until"),
        "{diff}"
    );
    let same = boss.put(ACCESS, &version(&boss).await, body).await;
    assert_eq!((same.status, &same.body["changed"]), (200, &json!(false)), "{}", same.text);
    let undone = boss.put(ACCESS, &version(&boss).await, json!({ "reason": "it is over" })).await;
    assert_eq!(undone.status, 200, "{}", undone.text);
    assert_eq!((stranger.get("/login").await.status, shown(&boss).await), (200, nothing));
}

#[tokio::test]
async fn what_may_not_be_saved_is_told_at_its_field_and_changes_nothing() {
    let app = start(Store::Memory).await;
    let boss = boss(&app).await;
    let seen = version(&boss).await;
    let network = |network: &str, until: &str| json!([{ "network": network, "until": until, "reason": "r" }]);
    let wrong = [
        (json!({ "deny": network("198.51.100.0/24", IN_AN_HOUR) }), "deny[0].network"),
        (json!({ "deny": network("127.0.0.0/8", IN_AN_HOUR) }), "deny[0].network"),
        (json!({ "allow": network("127.0.0.1", IN_AN_HOUR) }), "allow[0].network"),
        (json!({ "deny": network("0.0.0.0/0", IN_AN_HOUR) }), "deny[0].network"),
        (json!({ "deny": network("::/18", IN_AN_HOUR) }), "deny[0].network"),
        (json!({ "deny": network("203.0.113.0/24", "2026-03-01T12:00:00Z") }), "deny[0].until"),
        (json!({ "challenge_everyone_until": "2026-03-01T11:59:59Z" }), "challenge_everyone_until"),
        (
            json!({ "pause_sms": [{ "prefix": "138", "until": IN_AN_HOUR, "reason": "r" }] }),
            "pause_sms[0].prefix",
        ),
        (json!({ "deny": "everybody" }), "deny"),
    ];
    for (mut body, field) in wrong {
        body["reason"] = json!("r");
        let answer = boss.put(ACCESS, &seen, body.clone()).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{body}: {}", answer.text);
        assert_eq!(answer.body["errors"][0]["field"], field, "{body}: {}", answer.text);
    }
    for reason in [json!(""), json!(" "), json!("x".repeat(501))] {
        let answer = boss.put(ACCESS, &seen, json!({ "reason": reason })).await;
        assert_eq!(
            (answer.status, &answer.body["errors"][0]["field"]),
            (422, &json!("reason")).clone(),
            "{}",
            answer.text
        );
    }
    assert_eq!(boss.put(ACCESS, &seen, json!({ "denyy": [], "reason": "r" })).await.status, 422);
    let bare = boss.http.put(format!("{}{ACCESS}", app.url)).json(&json!({ "reason": "r" }));
    assert_eq!(Answer::read(bare.send().await.unwrap()).await.problem(), "precondition-required");
    assert_eq!(version(&boss).await, seen);
    app.advance(Duration::from_secs(16 * 60));
    let answer =
        boss.put(ACCESS, &seen, json!({ "challenge_everyone_until": IN_AN_HOUR, "reason": "r" })).await;
    assert_eq!(answer.problem(), "confirmation-required", "the password was entered too long ago");
    let confirmed = boss.call("/admin/confirm", json!({ "password": PASSWORD })).await;
    assert_eq!(confirmed.status, 204, "{}", confirmed.text);
    let answer =
        boss.put(ACCESS, &seen, json!({ "challenge_everyone_until": IN_AN_HOUR, "reason": "r" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

async fn the_history_says_who_set_what_and_why_and_returning_to_limits_leaves_it_alone(store: Store) {
    let app = start(store).await;
    let boss = boss(&app).await;
    app.services.tuning.sync_once().await;
    let body = json!({ "deny": denying("203.0.113.0/24"), "reason": "they guess" });
    assert_eq!(boss.put(ACCESS, &version(&boss).await, body).await.status, 200);
    app.advance(Duration::from_secs(60));
    let more = json!({
        "deny": denying("203.0.113.0/24"), "challenge_everyone_until": IN_AN_HOUR, "reason": "from everywhere",
    });
    assert_eq!(boss.put(ACCESS, &version(&boss).await, more).await.status, 200);
    let changes = boss.get(&format!("{LIMITS}/history")).await.body["changes"].clone();
    assert_eq!(changes.as_array().unwrap().len(), 3, "{changes}");
    assert_eq!((&changes[0]["login"], &changes[0]["reason"]), (&json!("boss"), &json!("from everywhere")));
    assert!(changes[0]["access"].as_str().unwrap().contains("challenge_everyone_until"), "{changes}");
    assert_eq!(changes[2].get("access"), None, "{changes}");
    let lines = app.services.live.snapshot().access.settings().deny[0].line();
    let origin = app.services.tuning.access_origins(&[lines]).await.unwrap().remove(0).unwrap();
    assert_eq!((origin.login.as_deref(), origin.reason.as_deref()), (Some("boss"), Some("they guess")));
    assert!(app.clock.now().since(origin.at) > Duration::from_secs(59), "when it was first there");
    let tried = boss.call("/admin/limits/preview", json!({ "limits": {}, "span": "1h" })).await;
    assert_eq!(tried.status, 200, "{}", tried.text);
    assert!(!tried.text.contains("limits-changed"), "the limits are what they were: {}", tried.text);
    // Earlier limits come back without what was in force beside them.
    let seen = version(&boss).await;
    let back = json!({ "change": changes[2]["id"], "reason": "back" });
    let request = boss.http.post(format!("{}{LIMITS}/rollback", app.url)).json(&back);
    let answer = Answer::read(request.header("if-match", format!("\"{seen}\"")).send().await.unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(app.client_at(THERE).get("/login").await.status, 403);
    assert_eq!(shown(&boss).await["challenge_everyone_until"], IN_AN_HOUR);
}

#[tokio::test]
async fn what_has_ended_is_neither_shown_nor_kept() {
    let file = format!("[access]\n{}", super::list("allow", &["203.0.113.0/24"]));
    let app = TestApp::on(Store::Memory).behind_a_proxy().file(&file).start().await;
    app.advance(Duration::from_secs(3600));
    let boss = boss(&app).await;
    assert_eq!(shown(&boss).await["allow"], json!([]));
    let stood = json!([{ "network": "203.0.113.0/24", "until": IN_AN_HOUR, "reason": "a test" }]);
    let saved =
        boss.put(ACCESS, &version(&boss).await, json!({ "allow": stood, "reason": "unchanged" })).await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    assert!(!std::fs::read_to_string(app.file()).unwrap().contains("203.0.113"));
}
