//! The cookie of a known device: who gets one, its form, and what else reveals the device.

use std::time::Duration;

use gatehouse::audit::EventEntry;
use serde_json::{Value, json};

use super::throttling::{fail_solved, fail_until_blocked};
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores, subject_path};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const NUMBER: &str = "+8613800138000";
const NEW: &str = "quiet lanterns drift above marble";

on_both_stores!(an_administrator_finds_a_device_and_lets_it_in_again);

#[tokio::test]
async fn whoever_proves_that_an_account_is_theirs_gets_the_cookie() {
    let app = TestApp::on(Store::Memory).without(&["sms-phone"]).start().await;
    let client = app.client();
    let mut given = vec![client.register("alice", PASSWORD).await, client.login("alice", PASSWORD).await];
    let fields = [("login", "alice"), ("password", PASSWORD)];
    given.push(app.client().submit("/login", "/login", &fields).await);
    let fields = [("login", "bella"), ("password", PASSWORD)];
    given.push(app.client().submit("/register", "/register", &fields).await);
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    given.push(client.submit("/account", "/account/password", &fields).await);
    let code = client.code(NUMBER, "login").await;
    given.push(client.call("/sms/login", json!({ "phone": NUMBER, "code": code })).await);
    let code = client.code(NUMBER, "reset").await;
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": NEW });
    given.push(client.call("/password/reset", reset).await);
    for answer in given {
        let line = answer.cookie("gh_device").unwrap_or_else(|| panic!("none in {answer:?}"));
        assert!(line.ends_with("; HttpOnly; SameSite=Lax; Path=/; Max-Age=15552000"), "{line}");
    }
}

#[tokio::test]
async fn nobody_else_does() {
    let app = TestApp::on(Store::Memory).without(&["sms-phone"]).start().await;
    let client = app.client();
    client.register("alice", PASSWORD).await;
    let code = client.code(NUMBER, "login").await;
    let wrong = if code == "000000" { "000001" } else { "000000" };
    for answer in [
        client.login("alice", WRONG).await,
        client.register("alice", PASSWORD).await,
        client.call("/sms/login", json!({ "phone": NUMBER, "code": wrong })).await,
        client.get("/account").await,
        client.call("/logout", json!({})).await,
        client.submit("/login", "/login", &[("login", "alice"), ("password", WRONG)]).await,
    ] {
        assert_eq!(answer.cookie("gh_device"), None, "{}: {}", answer.status, answer.text);
    }
}

#[tokio::test]
async fn on_https_no_other_site_can_plant_it() {
    let app = TestApp::on(Store::Memory).set("server.public_url", "https://id.example").start().await;
    let answer = app.client().register("alice", PASSWORD).await;
    let line = answer.cookie("__Host-gh_device").expect("a device");
    assert!(line.contains("; HttpOnly; SameSite=Lax; Secure; Path=/;"), "{line}");
}

/// An owner with a new password is let in at once, whatever happens at the account.
#[tokio::test]
async fn a_new_password_by_code_makes_the_device_known() {
    let app = TestApp::on(Store::Memory).without(&["sms-phone"]).start().await;
    let client = app.client();
    let code = client.code(NUMBER, "register").await;
    let body = json!({ "login": "alice", "password": PASSWORD, "phone": NUMBER, "code": code });
    assert_eq!(app.client().call("/register", body).await.status, 201);
    let code = client.code(NUMBER, "reset").await;
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": NEW });
    assert_eq!(client.call("/password/reset", reset).await.status, 204);
    fail_until_blocked(&app.client(), "alice").await;
    // Another limit counts this many failures from one address.
    app.advance(Duration::from_secs(60));
    assert_eq!(app.client().login("alice", NEW).await.status, 429);
    assert_eq!(client.login("alice", NEW).await.status, 200);
}

#[tokio::test]
async fn two_accounts_in_one_browser_are_both_known() {
    let app = TestApp::start(Store::Memory).await;
    let client = app.client();
    client.register("alice", PASSWORD).await;
    client.register("bella", PASSWORD).await;
    fail_until_blocked(&app.client(), "alice").await;
    app.advance(Duration::from_secs(60));
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
    assert_eq!(client.login("bella", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn in_an_outage_a_device_has_as_many_guesses_as_ever_and_each_with_a_captcha() {
    let mut app = TestApp::on(Store::Redis)
        .set("store.timeout", "100ms")
        .limit("login-account", &[max(6).per("1h")])
        .start()
        .await;
    let owner = app.client();
    owner.register("alice", PASSWORD).await;
    app.redis.as_mut().unwrap().kill();
    assert_eq!(owner.login("alice", PASSWORD).await.problem(), "captcha-required");
    let stranger = app.client();
    for (client, own) in [(&stranger, 6), (&owner, 10)] {
        for _ in 0..own {
            assert_eq!(fail_solved(client, "alice").await.status, 401, "of {own}, and none of the other's");
        }
        assert_eq!(fail_solved(client, "alice").await.status, 429);
    }
    app.advance(Duration::from_secs(3600));
    let id = owner.challenge().await;
    assert_eq!(owner.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
}

async fn events(app: &TestApp) -> Vec<EventEntry> {
    let sign_ins = crate::audit::events(app).await.into_iter();
    sign_ins.filter(|entry| entry.name.as_deref() == Some("device")).collect()
}

async fn an_administrator_finds_a_device_and_lets_it_in_again(store: Store) {
    let app = TestApp::start(store).await;
    let (boss, owner) = (app.sign_in_admin("boss").await, app.client());
    owner.register("alice", PASSWORD).await;
    for _ in 0..3 {
        assert_eq!(owner.login("alice", WRONG).await.status, 401);
    }
    assert_eq!(owner.login("alice", PASSWORD).await.problem(), "captcha-required");
    let events = events(&app).await;
    let told: Vec<String> = events.iter().map(crate::audit::told).collect();
    let wrong = "sign-in wrong (device)";
    assert_eq!(told, [wrong, wrong, wrong, "sign-in challenged by login-device/0 (device)"]);
    let details: Vec<Value> =
        events.iter().map(|entry| serde_json::from_str(entry.detail.as_deref().unwrap()).unwrap()).collect();
    assert!(details.iter().all(|detail| *detail == details[0]), "one and the same: {details:?}");
    let device = details[0]["device"].as_str().unwrap();
    let name = format!("alice@{device}");
    let look_up = async |subject: &str| boss.get(&subject_path("login-device", subject)).await;
    let log = look_up(&name).await;
    assert_eq!((log.status, &log.body["rules"][0]["count"]), (200, &json!(3)), "{}", log.text);
    assert_eq!(log.body["account"]["login"], "alice");
    assert_eq!(boss.clear("login-device", &name).await.status, 204);
    assert_eq!(look_up(&name).await.body["hits"], json!([]));
    assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
    for none in ["alice", device, "alice@example.com", &format!("{name}0")] {
        assert_eq!(look_up(none).await.problem(), "unknown-subject", "{none}");
    }
}
