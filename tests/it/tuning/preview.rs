//! A draft tried on recorded traffic through the API: the replay uses the records of real attempts.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{shown, with_max};
use crate::factors;
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const PREVIEW: &str = "/admin/limits/preview";
const WRONG: &str = "a wrong password";
const NUMBER: &str = "+8613800138000";
const SECOND: Duration = Duration::from_secs(1);

on_both_stores!(
    the_record_is_shown_as_it_is_and_a_draft_decides_otherwise,
    a_replay_clears_the_log_that_an_administrator_cleared,
    a_replay_clears_no_log_for_a_subject_that_it_has_none_of,
    a_new_password_by_code_forgives_in_a_replay_and_is_no_sign_in,
    a_known_device_has_its_own_log_and_its_own_figures_in_a_replay,
    codes_of_an_app_are_replayed_for_the_account_and_for_each_known_device,
);

async fn preview(boss: &Client, body: Value) -> Answer {
    boss.call(PREVIEW, body).await
}

/// Attempts at `login`, a second apart; how each ended.
async fn attempts(app: &TestApp, login: &str, passwords: &[&str]) -> Vec<u16> {
    let mut told = Vec::new();
    for password in passwords {
        app.advance(SECOND);
        told.push(app.client().login(login, password).await.status);
    }
    told
}

/// What was decided: of all attempts, how many were admitted, challenged and throttled. A draft without
/// changes decides the same.
async fn assert_current(app: &TestApp, boss: &Client, decided: [u64; 3]) {
    app.advance(SECOND);
    let (_, limits) = shown(boss).await;
    let answer = preview(boss, json!({ "limits": limits })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for side in ["current", "draft"] {
        let all = &answer.body[side]["all"];
        let told = ["admitted", "challenged", "throttled"].map(|ended| all[ended].clone());
        assert_eq!(told, decided.map(|count| json!(count)), "{side}: {all:#}");
    }
    assert_eq!(answer.body["draft"], answer.body["current"]);
}

async fn the_record_is_shown_as_it_is_and_a_draft_decides_otherwise(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    assert_eq!(attempts(&app, "alice", &[WRONG; 5]).await, [401, 401, 401, 403, 403]);
    // Of the boss, of the registration, of alice.
    assert_current(&app, &boss, [1 + 1 + 3, 2, 0]).await;
    let (_, limits) = shown(&boss).await;
    let answer = preview(&boss, json!({ "limits": with_max(&limits, 2), "span": "1h" })).await;
    let draft = &answer.body["draft"]["all"];
    assert_eq!((&draft["admitted"], &draft["challenged"]), (&json!(4), &json!(3)), "{}", answer.text);
    assert_eq!(draft["unknown"], 1, "who would have solved the challenge that only the draft asks for");
    assert_eq!(answer.body["current"]["all"]["challenged"], 2);
    let answer = preview(&boss, json!({ "limits": with_max(&limits, 4), "span": "1h" })).await;
    let draft = &answer.body["draft"]["all"];
    assert_eq!((&draft["admitted"], &draft["challenged"]), (&json!(6), &json!(1)), "{}", answer.text);
    assert_eq!(draft["unknown"], 1, "nobody compared the password that was refused");
}

async fn a_replay_clears_the_log_that_an_administrator_cleared(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    assert_eq!(attempts(&app, "boss", &[WRONG; 3]).await, [401; 3]);
    assert_eq!(attempts(&app, "alice", &[WRONG; 4]).await, [401, 401, 401, 403]);
    app.advance(SECOND);
    assert_eq!(boss.clear("login-account", "alice").await.status, 204);
    assert_eq!(attempts(&app, "alice", &[WRONG; 4]).await, [401, 401, 401, 403]);
    assert_eq!(attempts(&app, "boss", &[WRONG]).await, [403], "their own failures stay");
    assert_current(&app, &boss, [1 + 1 + 3 + 6, 3, 0]).await;
}

async fn a_replay_clears_no_log_for_a_subject_that_it_has_none_of(store: Store) {
    let app = TestApp::on(store).limit("custom.reply", &[max(2).per("1h")]).start().await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(attempts(&app, "nobody", &[WRONG; 3]).await, [401; 3]);
    app.advance(SECOND);
    let others = [
        ("custom.reply", "nobody"),
        ("captcha-total", "everyone"),
        ("captcha-address", "127.0.0.1"),
        ("login-address", "127.0.0.1"),
        ("sms-network", "127.0.0.1"),
        ("sms-prefix", NUMBER),
        ("sms-phone", NUMBER),
        ("login-account", "boss"),
    ];
    for (limit, subject) in others {
        assert_eq!(boss.clear(limit, subject).await.status, 204, "{limit}");
    }
    assert_eq!(attempts(&app, "nobody", &[WRONG; 2]).await, [403; 2]);
    assert_current(&app, &boss, [1 + 3, 2, 0]).await;
}

async fn a_new_password_by_code_forgives_in_a_replay_and_is_no_sign_in(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    let user = app.client();
    let code = user.code(NUMBER, "register").await;
    let made = json!({ "login": "alice", "password": PASSWORD, "phone": NUMBER, "code": code });
    assert_eq!(user.call("/register", made).await.status, 201);
    assert_eq!(attempts(&app, "alice", &[WRONG; 4]).await, [401, 401, 401, 403]);
    app.advance(Duration::from_secs(30));
    assert_eq!(app.client().login("alice", WRONG).await.status, 403);
    app.advance(Duration::from_secs(31));
    assert_eq!(attempts(&app, "alice", &[WRONG; 3]).await, [401; 3]);
    let code = user.code(NUMBER, "reset").await;
    let new = json!({ "phone": NUMBER, "code": code, "new_password": "another long password" });
    assert_eq!(user.call("/password/reset", new).await.status, 204);
    assert_eq!(attempts(&app, "alice", &[WRONG; 4]).await, [401, 401, 401, 403], "forgiven");
    app.advance(SECOND);
    let (_, limits) = shown(&boss).await;
    let answer = preview(&boss, json!({ "limits": limits })).await;
    let all = &answer.body["current"]["all"];
    // The boss, two messages, two codes, a registration, nine wrong passwords.
    assert_eq!((&all["admitted"], &all["challenged"]), (&json!(1 + 2 + 2 + 1 + 9), &json!(3)), "{all:#}");
    let events = boss.get("/api/v1/admin/events?action=sign-in&outcome=ok").await;
    assert_eq!(events.body["events"].as_array().unwrap().len(), 1, "{}", events.text);
    let resets = boss.get("/api/v1/admin/events?action=reset").await;
    assert_eq!(resets.body["events"].as_array().unwrap().len(), 1, "{}", resets.text);
}

#[tokio::test]
async fn a_bad_draft_is_refused_at_its_field() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    let (_, limits) = shown(&boss).await;
    let told = async |body: Value| {
        let answer = preview(&boss, body).await;
        assert_eq!(answer.status, 422, "{}", answer.text);
        answer.body["errors"][0]["field"].as_str().unwrap().to_owned()
    };
    let field = "limits.login-account.rules[0].max";
    assert_eq!(told(json!({ "limits": with_max(&limits, 0) })).await, field);
    assert_eq!(told(json!({ "limits": limits, "span": "a while" })).await, "span");
    assert_eq!(told(json!({ "limits": limits, "span": "1s" })).await, "span");
    assert_eq!(told(json!({ "limits": limits, "toml": "" })).await, "toml");
    assert_eq!(told(json!({})).await, "limits");
}

#[tokio::test]
async fn a_form_is_answered_with_a_page_whether_or_not_a_script_asked_for_its_progress() {
    let app = TestApp::start(Store::Memory).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    assert_eq!(attempts(&app, "alice", &[WRONG; 5]).await, [401, 401, 401, 403, 403]);
    app.advance(SECOND);
    let at = "/admin/limits/edit/login-account";
    let rule = [("span-0", "window"), ("window-0", "1m"), ("then-0", "captcha")];
    for progress in ["", "1"] {
        let tried = async |max| {
            let form = [&rule[..], &[("max-0", max), ("progress", progress)]].concat();
            boss.submit(at, at, &form).await
        };
        let page = tried("2").await;
        assert_eq!((page.status, page.text.matches("</html>").count()), (200, 1), "{}", page.text);
        assert!(page.text.contains("about 3"), "{}", page.text);
        let mistaken = tried("none").await;
        assert_eq!(mistaken.text.matches("</html>").count(), 1, "{}", mistaken.text);
        assert!(mistaken.text.contains("id=\"max-0-error\""), "{}", mistaken.text);
        // What has begun to tell its progress has said 200.
        assert!(mistaken.status == 422 || !progress.is_empty(), "{}", mistaken.status);
    }
}

#[tokio::test]
async fn drafts_are_tried_by_administrators_only() {
    let app = TestApp::start(Store::Memory).await;
    let user = app.client();
    user.register("alice", PASSWORD).await;
    assert_eq!(preview(&app.client(), json!({ "limits": {} })).await.problem(), "unauthenticated");
    assert_eq!(preview(&user, json!({ "limits": {} })).await.problem(), "forbidden");
}

async fn codes_of_an_app_are_replayed_for_the_account_and_for_each_known_device(store: Store) {
    let app = TestApp::start(store).await;
    let (boss, owner) = (app.sign_in_admin("boss").await, factors::owner(&app, "alice").await);
    let thief = app.client();
    for (browser, guesses) in [(&thief, 7), (&owner.browser, 3)] {
        factors::first_step(browser, "alice").await;
        for guess in 0..guesses {
            app.advance(SECOND);
            let answer = factors::by_totp(browser, factors::WRONG_CODE).await;
            let refused = if guess < 5 { "invalid-factor" } else { "throttled" };
            assert_eq!(answer.problem(), refused, "{guess}");
        }
    }
    for _ in 0..2 {
        app.advance(SECOND);
        assert_eq!(factors::by_recovery(&thief, "aaaa-bbbb-cccc-dddd").await.problem(), "invalid-factor");
    }
    app.advance(SECOND);
    app.services.audit.flush().await;
    let (_, limits) = shown(&boss).await;
    let tried = async |limit: &str, rules: Value| {
        let mut draft = limits.clone();
        draft[limit]["rules"] = rules;
        preview(&boss, json!({ "limits": draft })).await.body
    };
    let of = |report: &Value, side: &str, name: &str| {
        let limits = report[side]["limits"].as_array().unwrap();
        let limit = limits.iter().find(|limit| limit["name"] == name).unwrap_or_else(|| panic!("{report:#}"));
        ["attempts", "admitted", "challenged", "throttled"].map(|figure| limit[figure].as_u64().unwrap())
    };
    let same = preview(&boss, json!({ "limits": limits })).await.body;
    assert_eq!(same["draft"], same["current"]);
    assert_eq!(of(&same, "current", "factor-account"), [7, 5, 0, 2]);
    assert_eq!(of(&same, "current", "factor-device"), [3, 3, 0, 0]);
    let untried = same["not_replayed"].as_array().unwrap();
    assert!(untried.iter().all(|name| !name.as_str().unwrap().starts_with("factor-")), "{untried:?}");
    assert!(["oidc-address", "oidc-repeat"].iter().all(|name| untried.contains(&json!(name))), "{untried:?}");
    let rule = |max: u32| json!([{ "max": max, "window": "1h", "then": "block" }]);
    let stricter = tried("factor-account", rule(3)).await;
    assert_eq!(of(&stricter, "draft", "factor-account"), [7, 3, 0, 4]);
    assert_eq!(
        of(&stricter, "draft", "factor-device"),
        [3, 3, 0, 0],
        "a stranger's guesses count for no device"
    );
    let looser = tried("factor-account", rule(7)).await;
    assert_eq!(of(&looser, "draft", "factor-account"), [7, 7, 0, 0]);
    assert_eq!(looser["draft"]["all"]["unknown"], 2, "what was refused might have been right");
    // Without a limit of its own, a device is a stranger.
    let strangers = tried("factor-device", json!([])).await;
    assert_eq!(of(&strangers, "draft", "factor-account"), [10, 5, 0, 5]);
    // Recovery codes count for their address.
    let once = json!([{ "max": 1, "window": "1h", "then": "captcha" }]);
    assert_eq!(of(&same, "current", "login-address")[2], 0);
    assert_eq!(of(&tried("login-address", once).await, "draft", "login-address")[2], 1);
}

async fn a_known_device_has_its_own_log_and_its_own_figures_in_a_replay(store: Store) {
    let app = TestApp::start(store).await;
    let (boss, owner) = (app.sign_in_admin("boss").await, app.client());
    assert_eq!(owner.register("alice", PASSWORD).await.status, 201);
    for (password, status) in [(WRONG, 401), (PASSWORD, 200), (WRONG, 401), (WRONG, 401)] {
        app.advance(SECOND);
        assert_eq!(owner.login("alice", password).await.status, status);
    }
    assert_eq!(attempts(&app, "alice", &[WRONG; 4]).await, [401, 401, 401, 403], "a stranger's");
    app.advance(SECOND);
    let third = owner.login("alice", WRONG).await;
    assert_eq!(third.status, 401, "{}", third.text);
    app.advance(SECOND);
    assert_eq!(owner.login("alice", WRONG).await.status, 403, "by the limit of devices");
    // Of the boss, of the registration, of the owner, of the stranger.
    assert_current(&app, &boss, [1 + 1 + 5 + 3, 2, 0]).await;
    let (_, limits) = shown(&boss).await;
    let answer = preview(&boss, json!({ "limits": with_max(&limits, 2) })).await;
    let draft = &answer.body["draft"]["all"];
    assert_eq!((&draft["admitted"], &draft["challenged"]), (&json!(1 + 1 + 5 + 2), &json!(3)), "{draft:#}");
    assert_eq!((&draft["undecided"], &draft["guesses_verified"]), (&json!(0), &json!(4 + 2)), "{draft:#}");
    let mut stricter = limits.clone();
    stricter["login-device"]["rules"][0]["max"] = json!(2);
    let answer = preview(&boss, json!({ "limits": stricter })).await;
    let of_devices = |side: &str| {
        let limits = answer.body[side]["limits"].as_array().unwrap();
        let limit = limits.iter().find(|limit| limit["name"] == "login-device").unwrap();
        ["attempts", "admitted", "challenged"].map(|figure| limit[figure].as_u64().unwrap())
    };
    assert_eq!((of_devices("current"), of_devices("draft")), ([6, 5, 1], [6, 4, 2]), "{}", answer.text);
    assert!(!answer.body["not_replayed"].as_array().unwrap().contains(&json!("login-device")));
}
