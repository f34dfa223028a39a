//! Addresses of accounts: who gets one, what they open, and who is told.

use std::time::Duration;

use gatehouse::accounts::{AccountAct, Username};
use serde_json::json;

use super::flows::{
    self, NEW, ask, code_of, confirm, confirm_as, mails, newest_code, reset, until_mails, until_subject,
};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};
use crate::support::setup::max;

const ADA: &str = "ada@example.org";

async fn app_with_ada() -> (TestApp, Client) {
    let app = TestApp::on(Store::Memory).start().await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    confirm(&app, &owner, ADA).await;
    (app, owner)
}

#[tokio::test]
async fn a_confirmed_address_sets_a_new_password_in_any_of_its_spellings() {
    let (app, _) = app_with_ada().await;
    let stranger = app.client();
    assert_eq!(ask(&stranger, "ADA+lost@EXAMPLE.org").await.status, 202);
    let code = newest_code(&app, ADA, 2).await;
    let sent = mails(&app, ADA).await;
    assert!(sent.iter().all(|mail| mail["email"] == ADA), "to the address of the account: {sent:?}");
    assert_eq!(reset(&stranger, "Ada@example.org", &code).await.status, 204);
    assert_eq!(reset(&stranger, ADA, &code).await.problem(), "invalid-code", "a code is good once");
    assert_eq!(app.client().login("alice", NEW).await.status, 200);
    until_subject(&app, ADA, "password").await;
}

#[tokio::test]
async fn the_outbox_tells_mails_from_messages_and_the_answer_has_the_address() {
    let app = TestApp::on(Store::Memory).start().await;
    app.client().register("alice", PASSWORD).await;
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    owner.code("+8613800138000", "verify").await;
    let asked = owner.call("/email/codes", json!({ "email": "Ada@Example.ORG", "purpose": "verify" })).await;
    assert_eq!((asked.status, &asked.body["email"]), (202, &json!("A***@example.org")));
    let code = newest_code(&app, "Ada@example.org", 1).await;
    let outbox = app.client().get("/dev/outbox.json").await.body;
    assert!(outbox.as_array().unwrap().iter().any(|row| row["channel"] == "mail" && row["code"] == code[..]));
    let channels: Vec<_> = outbox.as_array().unwrap().iter().map(|row| row["channel"].clone()).collect();
    assert!(channels.contains(&json!("sms")) && channels.contains(&json!("mail")), "{outbox}");
    // The password is taken by either name.
    let body = json!({ "email": "Ada@Example.ORG", "code": code, "password": PASSWORD });
    let set = owner.call("/account/email", body).await;
    assert_eq!((set.status, set.body), (200, json!({ "email": "Ada@example.org" })), "{}", set.text);
    let removed = owner.delete("/api/v1/account/email", json!({ "password": PASSWORD })).await;
    assert_eq!(removed.status, 204, "{}", removed.text);
}

#[tokio::test]
async fn an_address_that_nobody_has_gets_the_same_answer_and_nothing() {
    let (app, _) = app_with_ada().await;
    let [known, unknown] = [ask(&app.client(), ADA).await, ask(&app.client(), "bob@example.org").await];
    let told = |answer: &crate::support::app::Answer| {
        (answer.status, answer.body["expires_in"].clone(), answer.body["resend_after"].clone())
    };
    assert_eq!(told(&known), told(&unknown));
    newest_code(&app, ADA, 2).await;
    // What is queued later has come, so whatever was queued for bob would have, too.
    app.advance(Duration::from_secs(61));
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    newest_code(&app, ADA, 3).await;
    assert!(mails(&app, "bob@example.org").await.is_empty());
    assert_eq!(reset(&app.client(), "bob@example.org", "012345").await.problem(), "invalid-code");
}

#[tokio::test]
async fn a_request_with_a_name_is_one_mail_however_often_it_comes() {
    let (app, _) = app_with_ada().await;
    let stranger = app.client();
    let named = async |key: &str| {
        let request =
            stranger.http.post(format!("{}/api/v1/email/codes", app.url)).header("idempotency-key", key);
        let body = json!({ "email": ADA, "purpose": "reset" });
        Answer::read(request.json(&body).send().await.unwrap()).await
    };
    for _ in 0..3 {
        assert_eq!(named("one").await.status, 202);
    }
    newest_code(&app, ADA, 2).await;
    assert_eq!(named("another").await.problem(), "throttled");
    assert_eq!(named("with a space").await.status, 422);
    app.advance(Duration::from_secs(61));
    assert_eq!(named("another").await.status, 202);
    newest_code(&app, ADA, 3).await;
    assert_eq!(flows::codes(&app, ADA).await, 3);
}

#[tokio::test]
async fn whoever_only_types_an_address_keeps_nobody_from_having_it() {
    let (app, _) = app_with_ada().await;
    app.client().register("mallory", PASSWORD).await;
    let mallory = app.client();
    mallory.login("mallory", PASSWORD).await;
    let body = json!({ "email": "bob@example.org", "purpose": "verify" });
    assert_eq!(mallory.call("/email/codes", body).await.status, 202);
    let code = newest_code(&app, "bob@example.org", 1).await;
    // Another account's owner has the mailbox and its code.
    app.client().register("bob", PASSWORD).await;
    let bob = app.client();
    bob.login("bob", PASSWORD).await;
    assert_eq!(flows::set(&bob, "bob@example.org", &code).await.status, 200);
    // The one who typed first learns who has it by the code alone.
    let wrong = flows::set(&mallory, "bob@example.org", &code).await;
    assert_eq!(wrong.problem(), "invalid-code", "{}", wrong.text);
}

#[tokio::test]
async fn the_address_before_is_told_of_another_and_of_its_removal() {
    let (app, owner) = app_with_ada().await;
    let body = json!({ "email": "ada@example.net", "purpose": "verify" });
    assert_eq!(owner.call("/email/codes", body).await.status, 202);
    let code = newest_code(&app, "ada@example.net", 1).await;
    assert_eq!(flows::set(&owner, "ada@example.net", &code).await.status, 200);
    let told = until_subject(&app, ADA, "address").await;
    assert!(!told["text"].as_str().unwrap().contains("alice"), "no text of users: {told}");
    until_mails(&app, "ada@example.net", 2).await;
    let gone = owner.delete("/api/v1/account/email", json!({ "current_password": PASSWORD })).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    until_mails(&app, "ada@example.net", 3).await;
    app.advance(Duration::from_secs(61));
    assert_eq!(ask(&app.client(), "ada@example.net").await.status, 202);
}

#[tokio::test]
async fn a_newer_code_ends_the_one_before_it() {
    let (app, _) = app_with_ada().await;
    let first = {
        ask(&app.client(), ADA).await;
        newest_code(&app, ADA, 2).await
    };
    assert_eq!(ask(&app.client(), ADA).await.problem(), "throttled", "one a minute");
    assert_eq!(reset(&app.client(), ADA, &first).await.status, 204);
    let subjects: Vec<_> =
        mails(&app, ADA).await.iter().filter(|mail| flows::has_code(mail)).map(code_of).collect();
    assert_eq!(subjects.len(), 2);
}

#[tokio::test]
async fn what_is_no_address_is_told_so() {
    let (_app, owner) = app_with_ada().await;
    for typed in
        ["", "ada", "ada@", "ada@localhost", "Ada <ada@example.org>", "ada@[127.0.0.1]", "a\r\nb@example.org"]
    {
        let body = json!({ "email": typed, "purpose": "verify" });
        assert_eq!(owner.call("/email/codes", body).await.problem(), "invalid-email", "{typed:?}");
    }
}

#[tokio::test]
async fn owners_are_told_of_new_devices_and_of_what_opens_their_account() {
    let (app, owner) = app_with_ada().await;
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    until_subject(&app, ADA, "new browser").await;
    let number = "+8613800138000";
    let code = owner.code(number, "verify").await;
    let body = json!({ "phone": number, "code": code, "current_password": PASSWORD });
    assert_eq!(owner.call("/account/phone", body).await.status, 204);
    until_subject(&app, ADA, "number").await;
    let body = json!({ "current_password": PASSWORD });
    assert_eq!(owner.delete("/api/v1/account/phone", body).await.status, 204);
    until_subject(&app, ADA, "removed").await;
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    assert_eq!(owner.submit("/account", "/account/password", &fields).await.status, 303);
    until_subject(&app, ADA, "assword changed").await;
}

#[tokio::test]
async fn many_notices_of_a_kind_are_folded_and_hide_no_change() {
    let app = TestApp::on(Store::Memory).limit("mail-notice", &[max(2).per("24h")]).start().await;
    app.client().register("alice", PASSWORD).await;
    confirm(&app, &app.client(), ADA).await;
    for _ in 0..12 {
        assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
        app.advance(Duration::from_secs(2));
    }
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    let fields = [("current_password", PASSWORD), ("new_password", NEW)];
    assert_eq!(owner.submit("/account", "/account/password", &fields).await.status, 303);
    until_subject(&app, ADA, "assword changed").await;
    let of_devices = |mails: &[serde_json::Value]| {
        mails.iter().filter(|mail| mail["subject"].as_str().unwrap().contains("new browser")).count()
    };
    assert!(of_devices(&mails(&app, ADA).await) <= 2);
    app.advance(Duration::from_secs(25 * 60 * 60));
    let folded = |mail: &&serde_json::Value| mail["text"].as_str().unwrap().contains(" times.");
    let told = flows::until(&app, ADA, |mails| mails.iter().find(folded).cloned()).await;
    assert!(told["subject"].as_str().unwrap().contains("new browser"), "{told}");
    assert!(of_devices(&mails(&app, ADA).await) <= 3);
}

#[tokio::test]
async fn a_reset_by_mail_obeys_its_rule_and_opens_no_administrator() {
    let app = TestApp::on(Store::Memory).set("mail.reset", "\"no\"").start().await;
    app.client().register("alice", PASSWORD).await;
    confirm(&app, &app.client(), ADA).await;
    let before = mails(&app, ADA).await.len();
    assert_eq!(ask(&app.client(), ADA).await.status, 202, "the same answer");
    app.client().register("bob", PASSWORD).await;
    // What is queued after it has come, so that nothing else was before.
    app.advance(Duration::from_secs(61));
    confirm_as(&app, "bob", "bob@example.org").await;
    assert_eq!(flows::codes(&app, ADA).await, 1, "{before}");
    let app = TestApp::on(Store::Memory).start().await;
    app.administrator("alice").await;
    confirm(&app, &app.client(), ADA).await;
    assert_eq!(ask(&app.client(), ADA).await.status, 202);
    let code = newest_code(&app, ADA, 2).await;
    assert_eq!(reset(&app.client(), ADA, &code).await.problem(), "password-required");
}

/// Changes the account's address, and reads the code that its earlier one gets.
async fn freeze_code(app: &TestApp, owner: &Client) -> String {
    let body = json!({ "email": "ada@example.net", "purpose": "verify" });
    assert_eq!(owner.call("/email/codes", body).await.status, 202);
    let code = newest_code(app, "ada@example.net", 1).await;
    let set = flows::set(owner, "ada@example.net", &code).await;
    assert_eq!(set.status, 200, "{}", set.text);
    let told = until_subject(app, ADA, "address changed").await;
    flows::freeze_code(&told).unwrap_or_else(|| panic!("{told}"))
}

#[tokio::test]
async fn the_earlier_address_freezes_the_account_and_the_password_lifts_that() {
    let (app, owner) = app_with_ada().await;
    let freeze = freeze_code(&app, &owner).await;
    let stranger = app.client();
    for wrong in ["", "7K3M", "AAAA-AAAA-AAAA-AAAA"] {
        assert_ne!(stranger.call("/freeze", json!({ "code": wrong })).await.status, 204, "{wrong}");
    }
    assert_eq!(owner.get("/account").await.status, 200);
    let page = stranger.submit("/freeze", "/freeze", &[("code", &freeze.to_lowercase())]).await;
    assert_eq!(page.status, 303, "{}", page.text);
    assert_eq!(owner.get("/account").await.status, 303, "every session has ended");
    app.advance(Duration::from_secs(61));
    assert_eq!(ask(&stranger, "ada@example.net").await.status, 202, "the same answer, and no mail");
    let back = app.client();
    assert_eq!(back.login("alice", PASSWORD).await.status, 200);
    flows::confirm_signed_in(&app, &back, "ada@example.com").await;
    assert_eq!(flows::codes(&app, "ada@example.net").await, 1);
}

#[tokio::test]
async fn a_freeze_is_lifted_by_a_factor_of_before_which_is_asked_for_whatever_its_switch_says() {
    for shown in ["passkey", "recovery", "sign-in"] {
        let app = TestApp::on(Store::Memory).at_localhost().start().await;
        app.client().register("alice", PASSWORD).await;
        let owner = app.client();
        confirm(&app, &owner, ADA).await;
        let (passkey, added) = owner.add_passkey("Phone").await;
        assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "sign-ins are not asked for it");
        app.advance(Duration::from_secs(1));
        let freeze = freeze_code(&app, &owner).await;
        app.advance(Duration::from_secs(1));
        let (newer, _) = owner.add_passkey("Newer").await;
        assert_eq!(app.client().call("/freeze", json!({ "code": freeze })).await.status, 204);
        let browser = app.client();
        assert_eq!(browser.login_by_passkey(&newer).await.problem(), "account-frozen");
        assert_eq!(browser.login("alice", PASSWORD).await.problem(), "factor-required");
        let newer = browser.assert_passkey("second-step", &newer).await;
        let refused = browser.call("/login/factor", json!({ "passkey": newer })).await;
        assert_eq!(refused.problem(), "account-frozen", "{}", refused.text);
        browser.login("alice", PASSWORD).await;
        let lifted = match shown {
            "passkey" => {
                let shown = browser.assert_passkey("second-step", &passkey).await;
                browser.call("/login/factor", json!({ "passkey": shown })).await
            }
            "recovery" => {
                let code = &added.body["recovery_codes"][0];
                browser.call("/login/factor", json!({ "recovery": code })).await
            }
            _ => browser.login_by_passkey(&passkey).await,
        };
        assert_eq!(lifted.status, 200, "{shown}: {}", lifted.text);
        assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "as before");
    }
}

#[tokio::test]
async fn an_administrator_lifts_a_freeze() {
    let (app, owner) = app_with_ada().await;
    let boss = app.sign_in_admin("boss").await;
    let freeze = freeze_code(&app, &owner).await;
    assert_eq!(app.client().call("/freeze", json!({ "code": freeze })).await.status, 204);
    let found = boss.get("/api/v1/admin/accounts?login=alice").await;
    let id = found.body["accounts"][0]["id"].as_str().unwrap();
    let shown = boss.get(&format!("/api/v1/admin/accounts/{id}")).await;
    assert_eq!(shown.body["standing"][0]["kind"], "frozen", "{}", shown.text);
    let unlock = format!("/admin/accounts/{id}/unlock");
    let unlocked = boss.call(&unlock, json!({ "reason": "She called." })).await;
    assert_eq!((unlocked.status, &unlocked.body["standing"]), (200, &json!([])), "{}", unlocked.text);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn an_account_that_is_disabled_is_frozen_all_the_same() {
    let (app, owner) = app_with_ada().await;
    let accounts = &app.services.accounts;
    let freeze = freeze_code(&app, &owner).await;
    let alice = accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    accounts.change(alice.id, AccountAct::Disable, false).await.unwrap();
    assert_eq!(app.client().call("/freeze", json!({ "code": freeze })).await.status, 204);
    accounts.change(alice.id, AccountAct::Enable, false).await.unwrap();
    assert!(accounts.by_id(alice.id).await.unwrap().unwrap().frozen_at.is_some());
}

#[tokio::test]
async fn a_code_confirms_the_spelling_that_it_was_sent_to() {
    let (app, owner) = app_with_ada().await;
    let body = json!({ "email": "bob+shop@example.org", "purpose": "verify" });
    assert_eq!(owner.call("/email/codes", body).await.status, 202);
    let code = newest_code(&app, "bob+shop@example.org", 1).await;
    let other = flows::set(&owner, "bob@example.org", &code).await;
    assert_eq!(other.problem(), "invalid-code", "{}", other.text);
    assert_eq!(flows::set(&owner, "bob+shop@example.org", &code).await.status, 200);
}

#[tokio::test]
async fn a_code_that_was_sent_before_the_mailbox_was_an_accounts_opens_it_not() {
    let app = TestApp::start(Store::Memory).await;
    let (thief, owner) = (app.client(), app.client());
    thief.register("mallory", PASSWORD).await;
    owner.register("alice", PASSWORD).await;
    // Of a server that keeps the two spellings apart.
    confirm_as(&app, "mallory", "ada+x@example.org").await;
    assert_eq!(ask(&app.client(), "ada+x@example.org").await.status, 202);
    let code = newest_code(&app, ADA, 2).await;
    thief.login("mallory", PASSWORD).await;
    let gone = thief.delete("/api/v1/account/email", json!({ "current_password": PASSWORD })).await;
    assert_eq!(gone.status, 204, "{}", gone.text);
    app.advance(Duration::from_secs(61));
    owner.login("alice", PASSWORD).await;
    assert_eq!(owner.call("/email/codes", json!({ "email": ADA, "purpose": "verify" })).await.status, 202);
    let confirming = newest_code(&app, ADA, 3).await;
    assert_eq!(flows::set(&owner, ADA, &confirming).await.status, 200);
    assert_eq!(reset(&app.client(), ADA, &code).await.problem(), "invalid-code");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}
