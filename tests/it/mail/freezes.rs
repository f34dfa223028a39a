//! Freezing an account: whoever had its address before stops a thief, what lifts that, and what goes with it.

use std::time::Duration;

use gatehouse::accounts::{AccountFactors, RecipientSet};
use gatehouse::sms::Phone;
use serde_json::{Value, json};

use super::flows::{self, NEW, ask, confirm, confirm_signed_in, newest_code, reset};
use super::takeovers::{alice, change, freeze, freeze_code};
use crate::factors::{STEP, by_recovery, by_totp, delete, first_step, owner, set_up, totp};
use crate::sms::http::{NUMBER, enter, with_number};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const ADA: &str = "ada@example.org";

on_both_stores!(
    the_owner_ends_what_a_thief_has_begun,
    codes_by_mail_from_before_a_freeze_and_during_it_are_void,
    the_password_alone_lifts_no_freeze_where_the_number_can,
    a_number_of_a_thief_lifts_no_freeze_and_neither_does_his_password_then,
    factors_that_a_thief_adds_lift_no_freeze_and_end_with_it,
    the_password_alone_ends_what_came_since_and_leaves_the_code_good,
    no_freeze_leads_past_a_factor_however_new,
    the_present_address_is_told_of_a_freeze_that_takes_it_away,
    a_factor_that_a_thief_removes_or_replaces_leaves_the_password_nothing,
    a_password_of_a_thief_lifts_no_freeze,
    an_administrator_with_a_number_lifts_a_freeze_by_the_password,
    a_thief_who_freezes_keeps_nobody_out_who_has_the_number_or_the_password,
);

/// What a thief sets, who knows the password.
const HIS: &str = "quiet lanterns drift above marble";
const WEEK: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Alice has an address, and for a week a number. Somebody who knows her password is signed in.
async fn with_thief(app: &TestApp) -> Client {
    with_number(app, "alice", NUMBER).await;
    app.advance(WEEK);
    confirm(app, &app.client(), ADA).await;
    let thief = app.client();
    assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    thief
}

/// He changes the address to his own.
async fn taken_over(store: Store) -> (TestApp, Client) {
    let app = TestApp::start(store).await;
    let thief = with_thief(&app).await;
    change(&app, &thief, "thief@example.net").await;
    (app, thief)
}

/// Sets a new password by a code to the number.
async fn reset_by_number(client: &Client, phone: &str) -> Answer {
    let code = client.code(phone, "reset").await;
    client.call("/password/reset", json!({ "phone": phone, "code": code, "new_password": NEW })).await
}

async fn address_of_alice(app: &TestApp) -> Option<String> {
    app.services.emails.of(alice(app).await.id).await.unwrap().map(|address| address.as_str().to_owned())
}

async fn factors(app: &TestApp) -> AccountFactors {
    app.services.factor_verifier.factors().of(alice(app).await.id).await.unwrap()
}

async fn as_program(app: &TestApp, boss: &Client) -> Client {
    let body = json!({ "name": "script", "scopes": ["accounts:write"], "expires_in": 3600 });
    let made = boss.call("/admin/tokens", body).await;
    let token = made.body["token"].as_str().unwrap_or_else(|| panic!("{}", made.text));
    let header: &'static str = Box::leak(format!("Bearer {token}").into_boxed_str());
    app.client_that_says(&[("authorization", header)])
}

/// As an administrator does whom the owner asks. What keeps her out afterwards.
async fn unlock(app: &TestApp, boss: &Client) -> Value {
    let path = format!("/admin/accounts/{}/unlock", alice(app).await.id);
    let unlocked = boss.call(&path, json!({ "reason": "She called." })).await;
    assert_eq!(unlocked.status, 200, "{}", unlocked.text);
    unlocked.body["standing"].clone()
}

async fn the_owner_ends_what_a_thief_has_begun(store: Store) {
    let (app, thief) = taken_over(store).await;
    assert_eq!(thief.get("/account").await.status, 200);
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(thief.get("/account").await.status, 303, "his session has ended");
    let body = json!({ "email": "other@example.net", "purpose": "verify" });
    assert_eq!(thief.call("/email/codes", body).await.status, 401);
    let code = thief.code(NUMBER, "login").await;
    let by_number = enter(&thief, NUMBER, &code).await;
    assert_eq!(by_number.problem(), "account-frozen", "{}", by_number.text);
    assert_eq!(address_of_alice(&app).await.as_deref(), Some("thief@example.net"), "it restores nothing");
}

async fn codes_by_mail_from_before_a_freeze_and_during_it_are_void(store: Store) {
    let app = TestApp::start(store).await;
    assert_eq!(app.client().register("alice", PASSWORD).await.status, 201);
    let thief = app.client();
    confirm(&app, &thief, ADA).await;
    change(&app, &thief, "thief@example.net").await;
    assert_eq!(ask(&thief, "thief@example.net").await.status, 202);
    let mailed = newest_code(&app, "thief@example.net", 2).await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(reset(&thief, "thief@example.net", &mailed).await.problem(), "invalid-code");
    app.advance(Duration::from_secs(61));
    let [frozen, unknown] = [ask(&thief, "thief@example.net").await, ask(&thief, "bob@example.net").await];
    let told = |answer: &Answer| (answer.status, answer.body["expires_in"].clone());
    assert_eq!((frozen.status, told(&frozen)), (202, told(&unknown)), "{}", frozen.text);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "there is nothing else");
    assert_eq!(reset(&thief, "thief@example.net", &mailed).await.problem(), "invalid-code");
    let codes = flows::codes(&app, "thief@example.net").await;
    assert_eq!(codes, 2, "none was sent while it was frozen");
}

/// He changes the address twice, and the password. So he has a code that freezes, too.
async fn the_password_alone_lifts_no_freeze_where_the_number_can(store: Store) {
    let (app, thief) = taken_over(store).await;
    change(&app, &thief, "thief@example.com").await;
    let fields = [("current_password", PASSWORD), ("new_password", HIS)];
    assert_eq!(thief.submit("/account", "/account/password", &fields).await.status, 303);
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(freeze(&app, &freeze_code(&app, "thief@example.net").await).await, 204, "once more");
    let thief = app.client();
    assert_eq!(thief.login("alice", HIS).await.problem(), "account-frozen");
    assert_eq!(thief.login("alice", PASSWORD).await.problem(), "invalid-credentials");
    let page = thief.submit("/login", "/login", &[("login", "alice"), ("password", HIS)]).await;
    assert!(page.status == 403 && page.text.contains("a code to that"), "{}", page.text);
    assert_eq!(thief.get("/account").await.status, 303, "nobody is signed in");
    let reset = reset_by_number(&app.client(), NUMBER).await;
    assert_eq!(reset.status, 204, "{}", reset.text);
    assert_eq!(app.client().login("alice", NEW).await.status, 200, "the freeze is lifted");
    assert_eq!(thief.login("alice", HIS).await.problem(), "invalid-credentials");
    assert_eq!(address_of_alice(&app).await, None, "nor does he get a code by mail");
}

/// Before he changes the address, after that, or by removing it.
async fn a_number_of_a_thief_lifts_no_freeze_and_neither_does_his_password_then(store: Store) {
    const HIS_NUMBER: &str = "+8613800138009";
    for when in ["before", "after", "removed"] {
        let app = TestApp::start(store).await;
        let thief = with_thief(&app).await;
        let number = async || {
            let code = thief.code(HIS_NUMBER, "verify").await;
            let body = json!({ "phone": HIS_NUMBER, "code": code, "current_password": PASSWORD });
            assert_eq!(thief.call("/account/phone", body).await.status, 204);
            app.advance(Duration::from_secs(61));
        };
        if when == "before" {
            number().await;
        }
        change(&app, &thief, "thief@example.net").await;
        match when {
            "after" => number().await,
            "removed" => {
                let body = json!({ "current_password": PASSWORD });
                assert_eq!(thief.delete("/api/v1/account/phone", body).await.status, 204);
            }
            _ => {}
        }
        assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
        assert_eq!(app.client().login("alice", PASSWORD).await.problem(), "account-frozen", "{when}");
        if when != "removed" {
            let reset = reset_by_number(&app.client(), HIS_NUMBER).await;
            assert_eq!(reset.problem(), "account-frozen", "{when}: {}", reset.text);
        }
    }
}

/// Before he changes the address, and after that.
async fn factors_that_a_thief_adds_lift_no_freeze_and_end_with_it(store: Store) {
    let app = TestApp::on(store).at_localhost().start().await;
    let thief = with_thief(&app).await;
    let (secret, recovery) = set_up(&app, &thief).await;
    change(&app, &thief, "thief@example.net").await;
    let (passkey, _) = thief.add_passkey("His").await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    let his = app.client().login_by_passkey(&passkey).await;
    assert_eq!(his.problem(), "account-frozen", "{}", his.text);
    let by_password = app.client().login("alice", PASSWORD).await;
    assert_eq!(by_password.problem(), "account-frozen", "no second step: {}", by_password.text);
    let reset = reset_by_number(&app.client(), NUMBER).await;
    assert_eq!(reset.status, 204, "his factors are not asked for: {}", reset.text);
    assert_eq!(app.client().login_by_passkey(&passkey).await.problem(), "invalid-passkey");
    let owner = app.client();
    assert_eq!(owner.login("alice", NEW).await.status, 200);
    assert_eq!(factors(&app).await, AccountFactors::default(), "his recovery codes are gone, too");
    drop((secret, recovery));
}

/// A password, a week old, and an address. Somebody who knows the password is signed in.
async fn with_password_alone(app: &TestApp) -> Client {
    app.register("alice").await;
    app.advance(WEEK);
    confirm(app, &app.client(), ADA).await;
    let thief = app.client();
    assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    thief
}

/// The thief knows it, too, and may be first.
async fn the_password_alone_ends_what_came_since_and_leaves_the_code_good(store: Store) {
    let app = TestApp::start(store).await;
    let thief = with_password_alone(&app).await;
    change(&app, &thief, "thief@example.net").await;
    change(&app, &thief, "thief@example.com").await;
    let code = freeze_code(&app, ADA).await;
    assert_eq!((freeze(&app, &code).await, freeze(&app, &code).await), (204, 204), "twice is once");
    let thief = app.client();
    assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    assert_eq!(address_of_alice(&app).await, None);
    // The codes of the addresses that he set freeze nothing any more.
    assert_ne!(freeze(&app, &freeze_code(&app, "thief@example.net").await).await, 204);
    assert_eq!(ask(&thief, "thief@example.com").await.status, 202, "the answer is the same");
    let fields = [("current_password", PASSWORD), ("new_password", HIS)];
    assert_eq!(thief.submit("/account", "/account/password", &fields).await.status, 303);
    assert_eq!(thief.login("alice", HIS).await.status, 200);
    assert_eq!(freeze(&app, &code).await, 204, "once more");
    assert_eq!(thief.get("/account").await.status, 303);
    assert_eq!(thief.login("alice", HIS).await.problem(), "account-frozen");
    assert_eq!(flows::codes(&app, "thief@example.com").await, 1, "nor was another code sent there");
    let boss = app.sign_in_admin("boss").await;
    unlock(&app, &boss).await;
    assert_ne!(freeze(&app, &code).await, 204, "it is used up");
}

/// Whoever has the password and the earlier mailbox, and freezes for that.
async fn no_freeze_leads_past_a_factor_however_new(store: Store) {
    let app = TestApp::start(store).await;
    let owner = with_password_alone(&app).await;
    let (secret, _) = set_up(&app, &owner).await;
    change(&app, &owner, "ada@example.net").await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    let by_password = app.client().login("alice", PASSWORD).await;
    assert_eq!(by_password.problem(), "account-frozen", "{}", by_password.text);
    assert!(factors(&app).await.totp_since.is_some() && !secret.is_empty());
    assert_eq!(address_of_alice(&app).await.as_deref(), Some("ada@example.net"));
}

/// Of a freeze that ends in the same moment.
async fn the_present_address_is_told_of_a_freeze_that_takes_it_away(store: Store) {
    let app = TestApp::start(store).await;
    let owner = with_password_alone(&app).await;
    change(&app, &owner, "ada@example.net").await;
    let code = freeze_code(&app, ADA).await;
    let (somebody, freezing) = (app.client(), app.client());
    assert_eq!(freezing.call("/freeze", json!({ "code": code })).await.status, 204);
    assert_eq!(somebody.login("alice", PASSWORD).await.status, 200);
    assert_eq!(address_of_alice(&app).await, None);
    flows::until_subject(&app, "ada@example.net", "frozen").await;
}

/// He has proved the factor once, as he has to.
async fn a_factor_that_a_thief_removes_or_replaces_leaves_the_password_nothing(store: Store) {
    for act in ["removed before", "removed after", "replaced", "renewed"] {
        let app = TestApp::start(store).await;
        let owner = owner(&app, "alice").await;
        app.advance(WEEK);
        let thief = app.client();
        first_step(&thief, "alice").await;
        assert_eq!(by_totp(&thief, &totp(&app, &owner.secret)).await.status, 200);
        confirm_signed_in(&app, &thief, ADA).await;
        if act == "removed before" {
            assert_eq!(delete(&thief, "/totp").await.status, 204);
        }
        change(&app, &thief, "thief@example.net").await;
        let mut his = (String::new(), Vec::new());
        match act {
            "removed after" => assert_eq!(delete(&thief, "/totp").await.status, 204),
            "replaced" => his = set_up(&app, &thief).await,
            "renewed" => {
                let renewed = thief.call("/recovery-codes", json!({})).await;
                let codes = renewed.body["recovery_codes"].as_array().unwrap();
                his.1 = codes.iter().map(|code| code.as_str().unwrap().to_owned()).collect();
            }
            _ => {}
        }
        assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
        let signs_in = app.client();
        let by_password = signs_in.login("alice", PASSWORD).await;
        if act != "renewed" {
            assert_eq!(by_password.problem(), "account-frozen", "{act}: {}", by_password.text);
            let boss = app.sign_in_admin("boss").await;
            assert_eq!(unlock(&app, &boss).await[0]["kind"], "never-entered", "{act}");
            assert_eq!(app.client().login("alice", PASSWORD).await.problem(), "invalid-credentials", "{act}");
            assert_eq!(factors(&app).await, AccountFactors::default(), "{act}");
            continue;
        }
        assert_eq!(by_password.problem(), "factor-required", "{}", by_password.text);
        let by_his = by_recovery(&signs_in, &his.1[0]).await;
        assert_eq!(by_his.problem(), "account-frozen", "{}", by_his.text);
        app.advance(STEP);
        let hers = app.client();
        first_step(&hers, "alice").await;
        let by_app = by_totp(&hers, &totp(&app, &owner.secret)).await;
        assert_eq!(by_app.status, 200, "{}", by_app.text);
        let left = factors(&app).await;
        assert!(left.totp_since.is_some() && left.recovery_left == 0, "his are gone: {left:?}");
        assert_eq!(address_of_alice(&app).await, None);
    }
}

/// The owner has no number and no factor.
async fn a_password_of_a_thief_lifts_no_freeze(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    app.advance(WEEK);
    let thief = app.client();
    confirm(&app, &thief, ADA).await;
    change(&app, &thief, "thief@example.net").await;
    let fields = [("current_password", PASSWORD), ("new_password", HIS)];
    assert_eq!(thief.submit("/account", "/account/password", &fields).await.status, 303);
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(app.client().login("alice", HIS).await.problem(), "account-frozen");
    assert!(!app.services.accounts.enable_password(alice(&app).await.id).await.unwrap(), "another act");
    let boss = app.sign_in_admin("boss").await;
    let program = as_program(&app, &boss).await;
    assert_eq!(unlock(&app, &program).await[0]["kind"], "frozen", "no program lifts it");
    assert_eq!(unlock(&app, &boss).await[0]["kind"], "never-entered", "she needs a link");
    assert_eq!(app.client().login("alice", HIS).await.problem(), "invalid-credentials");
    assert_eq!((alice(&app).await.password_hash, address_of_alice(&app).await), (None, None));
    let path = format!("/admin/accounts/{}/invite", alice(&app).await.id);
    let by_program = program.call(&path, json!({ "reason": "She called." })).await;
    assert_eq!(by_program.status, 409, "it was used: {}", by_program.text);
    let invited = boss.call(&path, json!({ "reason": "She called." })).await;
    let token =
        invited.body["link"].as_str().unwrap_or_else(|| panic!("{}", invited.text)).rsplit('/').next();
    let set = app.client().call("/welcome", json!({ "token": token, "new_password": NEW })).await;
    assert_eq!(set.status, 200, "{}", set.text);
    assert_eq!(app.client().login("alice", NEW).await.status, 200);
    let events = boss.get("/api/v1/admin/events").await;
    assert!(events.text.contains("account.unfreeze"), "{}", events.text);
}

/// No code opens an administrator's account, so a number of one is no other way in.
async fn an_administrator_with_a_number_lifts_a_freeze_by_the_password(store: Store) {
    let app = TestApp::start(store).await;
    app.administrator("alice").await;
    let set = app.services.accounts.set_phone(&alice(&app).await, &Phone::stored(NUMBER.to_owned())).await;
    assert_eq!(set.unwrap(), RecipientSet::Done);
    app.advance(WEEK);
    let owner = app.client();
    confirm(&app, &owner, ADA).await;
    change(&app, &owner, "ada@example.net").await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    let by_password = app.client().login("alice", PASSWORD).await;
    assert_eq!(by_password.status, 200, "{}", by_password.text);
}

/// He has nothing but the mailbox that was hers.
async fn a_thief_who_freezes_keeps_nobody_out_who_has_the_number_or_the_password(store: Store) {
    let (app, owner) = taken_over(store).await;
    assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
    assert_eq!(reset_by_number(&owner, NUMBER).await.status, 204, "the number");
    for number in [true, false] {
        let app = TestApp::start(store).await;
        match number {
            true => drop(with_number(&app, "alice", NUMBER).await),
            false => assert_eq!(app.client().register("alice", PASSWORD).await.status, 201),
        }
        let owner = app.client();
        confirm(&app, &owner, ADA).await;
        change(&app, &owner, "ada@example.net").await;
        assert_eq!(freeze(&app, &freeze_code(&app, ADA).await).await, 204);
        // What a new account has at its beginning needs no week.
        match number {
            true => assert_eq!(reset_by_number(&app.client(), NUMBER).await.status, 204),
            false => assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "the password"),
        }
        assert_eq!(address_of_alice(&app).await, None, "she has to confirm it again");
    }
}
