//! What keeps somebody out now, as administrators see it, and that it ends at one stroke.

use std::time::Duration;

use serde_json::{Value, json};

use crate::sms::http::{NUMBER, enter, with_number};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    whoever_is_refused_is_seen_and_unlocked,
    a_disabled_password_is_seen_and_unlocked,
    wrong_codes_of_the_number_are_seen_and_unlocked,
    what_a_number_shares_is_neither_told_nor_unlocked,
    what_an_administrator_disabled_stays_so,
    a_limit_that_only_counts_keeps_nobody_out,
    no_token_unlocks_an_administrator,
    who_has_not_come_in_yet_is_seen,
);

const WRONG: &str = "a wrong password";

async fn id_of(boss: &Client, name: &str) -> String {
    let found = boss.get(&format!("/api/v1/admin/accounts?login={name}")).await;
    found.body["accounts"][0]["id"].as_str().unwrap_or_else(|| panic!("{}", found.text)).to_owned()
}

async fn standing(boss: &Client, name: &str) -> Value {
    let shown = boss.get(&format!("/api/v1/admin/accounts/{}", id_of(boss, name).await)).await;
    shown.body["standing"].clone()
}

fn kinds(standing: &Value) -> Vec<&str> {
    standing.as_array().unwrap().iter().map(|it| it["kind"].as_str().unwrap()).collect()
}

async fn unlock(boss: &Client, name: &str) -> Answer {
    let path = format!("/admin/accounts/{}/unlock", id_of(boss, name).await);
    boss.call(&path, json!({ "reason": "She called." })).await
}

async fn whoever_is_refused_is_seen_and_unlocked(store: Store) {
    let rules = [max(2).per("1m").captcha(), max(3).per("1h")];
    let app = TestApp::on(store).limit("login-account", &rules).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    assert_eq!(standing(&boss, "alice").await, json!([]));
    let page = format!("/admin/accounts/{}", id_of(&boss, "alice").await);
    assert!(!boss.get(&page).await.text.contains("id=\"standing\""));
    for _ in 0..2 {
        app.client().login("alice", WRONG).await;
    }
    let asked = standing(&boss, "alice").await;
    assert_eq!((kinds(&asked), &asked[0]["limit"]), (vec!["captcha"], &json!("login-account")));
    app.client().login_solved("alice", WRONG).await;
    let refused = standing(&boss, "alice").await;
    assert_eq!(kinds(&refused), ["refused"], "the stricter of two rules is told");
    assert!(
        refused[0]["until"].is_string() && refused[0]["text"].as_str().unwrap().contains("3 "),
        "{refused}"
    );
    assert_eq!(app.client().login_solved("alice", PASSWORD).await.problem(), "throttled");
    let shown = boss.get(&page).await;
    assert!(shown.text.contains("Kept out now") && shown.text.contains("/unlock"), "{}", shown.text);
    let list = boss.get("/admin/accounts").await;
    assert!(list.text.contains(">Refused</span>"), "{}", list.text);
    // The look-up says the same.
    boss.submit("/admin/lookup", "/admin/lookup", &[("asked", "alice")]).await;
    let looked_up = boss.get("/admin/lookup?typed").await;
    let sentence = refused[0]["text"].as_str().unwrap();
    assert!(looked_up.text.contains(sentence) && shown.text.contains(sentence), "{sentence}");
    let no_reason = boss.submit(&page, &format!("{page}/unlock"), &[]).await;
    assert!(no_reason.status == 422 && no_reason.text.contains("reason-unlock-error"), "{}", no_reason.text);
    let unlocked = unlock(&boss, "alice").await;
    assert_eq!((unlocked.status, &unlocked.body["standing"]), (200, &json!([])), "{}", unlocked.text);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    let acts = super::acts(&app).await;
    assert!(acts.iter().any(|act| act.name.as_deref() == Some("subject.clear")));
    assert_eq!(unlock(&boss, "alice").await.status, 200, "it is so already");
    let done = boss.submit(&page, &format!("{page}/unlock"), &[("reason", "She called.")]).await;
    assert_eq!(done.status, 303);
    assert!(boss.get(&page).await.text.contains("nothing that can be unlocked"));
}

async fn a_disabled_password_is_seen_and_unlocked(store: Store) {
    let app = TestApp::on(store)
        .set("login.max_consecutive_failures", 3)
        .without(&["login-account", "login-address"])
        .start()
        .await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    for _ in 0..3 {
        app.client().login("alice", WRONG).await;
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401);
    let shut = standing(&boss, "alice").await;
    assert_eq!(kinds(&shut), ["password-disabled"]);
    assert!(shut[0]["since"].is_string());
    assert_eq!(unlock(&boss, "alice").await.body["standing"], json!([]));
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

async fn wrong_codes_of_the_number_are_seen_and_unlocked(store: Store) {
    let app =
        TestApp::on(store).limit("sms-guess", &[max(3).per("1h")]).without(&["sms-phone"]).start().await;
    with_number(&app, "alice", NUMBER).await;
    let boss = app.sign_in_admin("boss").await;
    let client = app.client();
    let code = client.code(NUMBER, "login").await;
    let wrong = if code == "000000" { "000001" } else { "000000" };
    for _ in 0..4 {
        enter(&app.client(), NUMBER, wrong).await;
    }
    let kept = standing(&boss, "alice").await;
    assert_eq!((kinds(&kept), &kept[0]["limit"]), (vec!["codes"], &json!("sms-guess")), "{kept}");
    assert_eq!(unlock(&boss, "alice").await.body["standing"], json!([]));
    app.advance(Duration::from_secs(60));
}

/// The budget of a prefix is that of thousands, and the pause between two codes is ordinary.
async fn what_a_number_shares_is_neither_told_nor_unlocked(store: Store) {
    let app =
        TestApp::on(store).limit("sms-prefix", &[max(2).per("24h")]).without(&["sms-address"]).start().await;
    with_number(&app, "alice", NUMBER).await;
    let boss = app.sign_in_admin("boss").await;
    app.client().ask_code("+8613800138009", "register").await;
    let spent = async || {
        boss.get("/api/v1/admin/subjects/sms-prefix/%2B861380013").await.body["rules"][0]["count"].clone()
    };
    let before = spent().await;
    assert_eq!(standing(&boss, "alice").await, json!([]), "{before}");
    boss.submit("/admin/lookup", "/admin/lookup", &[("asked", NUMBER)]).await;
    let looked_up = boss.get("/admin/lookup?typed").await;
    assert!(!looked_up.text.contains("Kept out now"), "nor by the look-up: {}", looked_up.text);
    assert_eq!(unlock(&boss, "alice").await.status, 200);
    assert_eq!(spent().await, before);
}

async fn what_an_administrator_disabled_stays_so(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let path = format!("/admin/accounts/{}/disable", id_of(&boss, "alice").await);
    assert_eq!(boss.call(&path, json!({ "reason": "a test" })).await.status, 204);
    assert_eq!(kinds(&standing(&boss, "alice").await), ["disabled"]);
    let unlocked = unlock(&boss, "alice").await;
    assert_eq!(kinds(&unlocked.body["standing"]), ["disabled"]);
    let page = boss.get(&format!("/admin/accounts/{}", id_of(&boss, "alice").await)).await;
    assert!(page.text.contains("Kept out now") && !page.text.contains("/unlock"), "nothing to unlock");
}

async fn a_limit_that_only_counts_keeps_nobody_out(store: Store) {
    let watching = "[limits.login-account]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1h\" }]\n";
    let app = TestApp::with(store, watching).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    for _ in 0..3 {
        app.client().login("alice", WRONG).await;
    }
    assert_eq!(standing(&boss, "alice").await, json!([]));
}

async fn no_token_unlocks_an_administrator(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let with = async |scope: &str| {
        let body = json!({ "name": "script", "scopes": [scope], "expires_in": 3600 });
        let token = boss.call("/admin/tokens", body).await.body["token"].as_str().unwrap().to_owned();
        let header: &'static str = Box::leak(format!("Bearer {token}").into_boxed_str());
        app.client_that_says(&[("authorization", header)])
    };
    let (may, may_not) = (with("accounts:write").await, with("subjects:clear").await);
    let id = id_of(&boss, "boss").await;
    let refused = may.call(&format!("/admin/accounts/{id}/unlock"), json!({ "reason": "x" })).await;
    assert_eq!((refused.status, refused.problem()), (403, "insufficient-scope"));
    let path = format!("/admin/accounts/{}/unlock", id_of(&boss, "alice").await);
    assert_eq!(may.call(&path, json!({ "reason": "x" })).await.status, 200);
    assert_eq!(may_not.call(&path, json!({ "reason": "x" })).await.problem(), "insufficient-scope");
}

async fn who_has_not_come_in_yet_is_seen(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    assert_eq!(boss.call("/admin/accounts", json!({ "login": "alice" })).await.status, 201);
    assert_eq!(kinds(&standing(&boss, "alice").await), ["never-entered"]);
}
