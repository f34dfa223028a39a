//! The ways to re-enable a disabled password, and to lift a freeze on the server.

use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::audit::Outcome;
use serde_json::{Value, json};

use super::acts;
use crate::mail::flows::{code_of, freeze_code, has_code};
use crate::sms::flows::{NEW, ask, send_on};
use crate::sms::http::{NUMBER, enter, with_number};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};
use crate::support::process::Home;

const WRONG: &str = "a wrong password";

async fn app() -> TestApp {
    // Without a device cookie, somebody who is signed in counts as a stranger.
    TestApp::on(Store::Memory)
        .without(&["login-device", "sms-phone", "sms-address"])
        .set("login.max_consecutive_failures", 2)
        .start()
        .await
}

async fn disable(app: &TestApp, login: &str) {
    for _ in 0..2 {
        assert_eq!(app.client().login(login, WRONG).await.status, 401);
    }
    let login = Username::parse(login).unwrap();
    assert!(app.services.accounts.find(&login).await.unwrap().unwrap().password_disabled_at.is_some());
    // Outside the window that asks for a CAPTCHA.
    app.advance(std::time::Duration::from_secs(60));
}

async fn enable(boss: &Client, login: &str) -> Answer {
    let path = format!("/api/v1/admin/disabled-passwords/{login}");
    boss.delete(&path, json!({ "reason": "called us" })).await
}

#[tokio::test]
async fn a_code_signs_in_says_what_is_wrong_and_sets_a_password_that_is_good() {
    let app = app().await;
    with_number(&app, "alice", NUMBER).await;
    disable(&app, "alice").await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    let signed_in = enter(&client, NUMBER, &code).await;
    let since = &signed_in.body["user"]["password_disabled_since"];
    assert_eq!((signed_in.status, since), (200, &json!("2026-03-01T12:00:00Z")));
    let page = client.get("/account").await;
    for told in ["Your password is disabled in new browsers", "2026-03-01 12:00", "href=\"/password/reset\""]
    {
        assert!(page.text.contains(told), "{told} is not in {}", page.text);
    }
    assert!(!page.text.contains("name=\"current_password\"") && !page.text.contains("/account/phone"));
    for path in ["/account/phone", "/account/phone/remove"] {
        assert_eq!(client.get(path).await.header("location"), "/account");
    }
    let second = ask(&client, "/password/reset", NUMBER).await;
    let code = client.codes(NUMBER).await.remove(0);
    let done = send_on(&client, "/password/reset", &second, &[("code", &code), ("new_password", NEW)]).await;
    assert_eq!((done.status, done.header("location")), (303, "/login"), "{}", done.text);
    assert_eq!(client.login("alice", PASSWORD).await.status, 401);
    let back = client.login("alice", NEW).await;
    assert_eq!((back.status, &back.body["user"]["password_disabled_since"]), (200, &Value::Null));
    assert!(client.get("/account").await.text.contains("name=\"current_password\""));
}

#[tokio::test]
async fn an_account_without_a_number_is_sent_to_whoever_runs_the_site() {
    let app = app().await;
    let (alice, boss) = (app.client(), app.sign_in_admin("boss").await);
    assert_eq!(alice.register("alice", PASSWORD).await.status, 201);
    disable(&app, "alice").await;
    disable(&app, "boss").await;
    let page = alice.get("/account").await.text;
    assert!(page.contains("Ask an administrator") && !page.contains("/password/reset"), "{page}");
    assert!(boss.get("/account").await.text.contains("gatehouse admin enable"));
}

#[tokio::test]
async fn an_administrator_sees_it_and_enables_it_again_by_api() {
    let app = app().await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let alice = async || boss.get("/api/v1/admin/subjects/login-account/alice").await.body["account"].clone();
    assert_eq!(app.client().login("alice", WRONG).await.status, 401);
    assert_eq!(
        (&alice().await["password_failures"], alice().await.get("password_disabled_since")),
        (&json!(1), None)
    );
    assert_eq!(enable(&boss, "alice").await.problem(), "not-found", "it is not disabled");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    disable(&app, "alice").await;
    assert_eq!(alice().await["password_disabled_since"], "2026-03-01T12:00:00.000000Z");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401);
    assert_eq!(enable(&boss, "ALICE").await.status, 204);
    assert_eq!(alice().await["password_failures"], 0);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    for nobody in ["alice", "nobody", "+8613800138000"] {
        assert_eq!(enable(&boss, nobody).await.problem(), "not-found", "{nobody}");
    }
    let acts = acts(&app).await;
    let [act] = acts.as_slice() else { panic!("{acts:#?}") };
    assert_eq!((act.name.as_deref(), act.outcome), (Some("password.enable"), Outcome::Ok));
    assert_eq!(act.detail.as_deref(), Some(r#"{"reason":"called us"}"#));
    assert!(act.actor.is_some() && act.account.as_ref().unwrap().mask == "al…", "{act:?}");
}

#[tokio::test]
async fn an_administrator_enables_it_again_in_the_console_with_a_reason_and_the_password() {
    let app = app().await;
    with_number(&app, "alice", NUMBER).await;
    disable(&app, "alice").await;
    let boss = app.sign_in_admin("boss").await;
    assert!(boss.get("/admin").await.text.contains("Passwords disabled in 24 hours: 1"));
    let look = async |asked: &str| {
        boss.submit("/admin/lookup", "/admin/lookup", &[("asked", asked)]).await;
        boss.get("/admin/lookup?typed").await
    };
    let page = look("alice").await;
    assert!(
        page.text.contains("Password disabled") && page.text.contains("/admin/lookup/enable"),
        "{}",
        page.text
    );
    let send =
        async |fields: &[(&str, &str)]| boss.submit("/admin/lookup", "/admin/lookup/enable", fields).await;
    let missing = send(&[("asked", "alice"), ("reason", " ")]).await;
    assert!(missing.status == 422 && missing.text.contains("reason-enable-error"), "{}", missing.text);
    app.advance(std::time::Duration::from_secs(15 * 60));
    let wish = [("asked", NUMBER), ("reason", "She called")];
    let asked = send(&wish).await;
    assert!(
        asked.text.contains("action=\"/admin/lookup/enable\""),
        "it carries the form along: {}",
        asked.text
    );
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401, "nothing is done before that");
    let done = send(&[wish[0], wish[1], ("password", PASSWORD)]).await;
    assert_eq!((done.status, done.header("location")), (303, "/admin/lookup?typed"), "{}", done.text);
    let page = boss.get("/admin/lookup?typed").await.text;
    assert!(page.contains("Unlocked: the password works again.") && page.contains("She called"), "{page}");
    assert!(!page.contains("/admin/lookup/enable"));
    // From an old page, as another administrator may have open.
    assert_eq!(send(&[wish[0], wish[1], ("password", PASSWORD)]).await.status, 303);
    assert!(boss.get("/admin/lookup?typed").await.text.contains("the password is not disabled"));
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    assert_eq!(app.client().login("alice", WRONG).await.status, 401);
    assert!(look("alice").await.text.contains("Wrong passwords in a row from unknown devices: 1. At 2"));
}

/// Without another administrator.
#[tokio::test]
async fn the_last_administrator_gets_in_by_the_command_line() {
    let mut home = Home::new();
    for limit in ["ACCOUNT", "ADDRESS"] {
        home.set(&format!("GATEHOUSE__LIMITS__LOGIN_{limit}__RULES"), "[]");
    }
    home.set("GATEHOUSE__LOGIN__MAX_CONSECUTIVE_FAILURES", "2");
    let made = home.run_with_input(&["admin", "create", "boss", "--password-stdin"], PASSWORD);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let running = home.start(&["serve"]).await;
    let client = running.client();
    for _ in 0..2 {
        assert_eq!(client.login("boss", WRONG).await.status, 401);
    }
    assert_eq!(client.login("boss", PASSWORD).await.status, 401);
    let unknown = home.run(&["admin", "enable", "bos"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("no account bos"), "{}", unknown.stderr);
    let enabled = home.run(&["admin", "enable", "Boss"]);
    assert_eq!((enabled.code, enabled.stdout.as_str()), (Some(0), "Password sign-in re-enabled for boss.\n"));
    let again = home.run(&["admin", "enable", "boss"]);
    assert!(again.code == Some(0) && again.stdout.contains("is not disabled"), "{}", again.stdout);
    let back = client.login("boss", PASSWORD).await;
    assert_eq!(back.status, 200, "{}", back.text);
    let events = client.get("/api/v1/admin/events?action=admin").await;
    assert_eq!(events.body["events"][0]["name"], "password.enable", "{}", events.text);

    // Whoever had its address before freezes it.
    for address in ["boss@example.org", "boss@example.net"] {
        let asked = client.call("/email/codes", json!({ "email": address, "purpose": "verify" })).await;
        assert_eq!(asked.status, 202, "{}", asked.text);
        let code = mailed(&client, address, |mail| has_code(mail).then(|| code_of(mail))).await;
        let body = json!({ "email": address, "code": code, "current_password": PASSWORD });
        let set = client.call("/account/email", body).await;
        assert_eq!(set.status, 200, "{}", set.text);
    }
    let code = mailed(&client, "boss@example.org", freeze_code).await;
    assert_eq!(running.client().call("/freeze", json!({ "code": code })).await.status, 204);
    let enabled = home.run(&["admin", "enable", "boss"]);
    assert!(enabled.stdout.contains("gatehouse admin unfreeze boss"), "{}", enabled.stdout);
    let unknown = home.run(&["admin", "unfreeze", "bos"]);
    assert!(unknown.code == Some(2) && unknown.stderr.contains("no account bos"), "{}", unknown.stderr);
    let lifted = home.run(&["admin", "unfreeze", "Boss"]);
    assert!(
        lifted.code == Some(0) && lifted.stdout.starts_with("boss is no longer frozen."),
        "{}",
        lifted.stderr
    );
    let again = home.run(&["admin", "unfreeze", "boss"]);
    assert!(again.code == Some(0) && again.stdout.contains("is not frozen"), "{}", again.stdout);
    assert_eq!(client.login("boss", PASSWORD).await.status, 200);
    let events = client.get("/api/v1/admin/events?action=admin").await;
    assert_eq!(events.body["events"][0]["name"], "account.unfreeze", "{}", events.text);
}

/// What is found in a mail to somebody, once it has come.
async fn mailed<T>(client: &Client, to: &str, find: impl Fn(&Value) -> Option<T>) -> T {
    for _ in 0..1_500 {
        let outbox = client.get(&format!("/dev/outbox.json?email={to}")).await;
        if let Some(found) = outbox.body.as_array().into_iter().flatten().find_map(&find) {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // mails are handed over in real time
    }
    panic!("nothing has come to {to}")
}
