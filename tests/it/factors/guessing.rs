//! Guesses at codes: each counts before it is compared, strangers spend nothing of the owner's, and a code is right once.

use std::time::Duration;

use futures_util::future::join_all;
use gatehouse::web::console::figures::LimitUse;

use super::*;
use crate::support::app::{Store, on_both_stores};
use crate::support::authenticator::{Credential, encoded};
use crate::support::setup::{Rule, max};

on_both_stores! {
    five_of_two_hundred_wrong_codes_at_once_are_compared,
    while_a_stranger_guesses_the_owners_browser_signs_in,
    a_code_is_right_once_whoever_else_sends_it,
    a_code_is_right_a_step_early_and_late_and_not_twice,
    a_recovery_code_is_right_once_and_counts_for_nobody_else,
    guesses_at_three_instances_share_one_window,
    a_hundred_wrong_codes_in_a_row_disable_the_app_for_strangers,
    a_known_browser_has_five_guesses_whatever_strangers_have,
    browsers_that_know_the_password_alone_guess_as_one_stranger,
    strangers_at_its_address_stop_no_factor_on_the_owners_device,
    wrong_ones_of_a_known_device_count_there_and_then_at_the_address,
    while_the_store_is_out_the_database_decides,
    the_limits_say_what_they_counted,
}

/// How many codes were compared: each wrong one that is not refused was.
fn compared(answers: &[Answer]) -> usize {
    answers.iter().filter(|answer| answer.problem() == "invalid-factor").count()
}

async fn five_of_two_hundred_wrong_codes_at_once_are_compared(store: Store) {
    let app = TestApp::start(store).await;
    owner(&app, "alice").await;
    let thief = app.client_at("198.51.100.7");
    first_step(&thief, "alice").await;
    let answers = join_all((0..200).map(|_| by_totp(&thief, WRONG_CODE))).await;
    assert_eq!(compared(&answers), 5);
    for refused in answers.iter().filter(|answer| answer.problem() != "invalid-factor") {
        assert!(["throttled", "busy"].contains(&refused.problem()), "{}", refused.text);
    }
    assert_eq!(by_totp(&thief, WRONG_CODE).await.body["limit"], "factor-account");
    app.advance(Duration::from_secs(600));
    first_step(&thief, "alice").await;
    assert_eq!(by_totp(&thief, WRONG_CODE).await.problem(), "invalid-factor", "after the window");
}

async fn while_a_stranger_guesses_the_owners_browser_signs_in(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let thief = app.client_at("198.51.100.7");
    first_step(&thief, "alice").await;
    for _ in 0..10 {
        join_all((0..20).map(|_| by_totp(&thief, WRONG_CODE))).await;
        first_step(&owner.browser, "alice").await;
        let answer = by_totp(&owner.browser, &totp(&app, &owner.secret)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        app.advance(STEP);
    }
    app.services.audit.flush().await;
    let told = owner.browser.get("/account").await.text;
    assert!(told.contains("Wrong codes of your app, after your password: 5."), "{told}");
}

async fn browsers_that_know_the_password_alone_guess_as_one_stranger(store: Store) {
    let app = TestApp::start(store).await;
    let browser = app.client();
    browser.register("alice", PASSWORD).await;
    // The cookie of a known browser, for each time that the password is entered before there is an app.
    let thieves: Vec<_> = (0..10).map(|_| app.client_at("198.51.100.7")).collect();
    for thief in &thieves {
        assert_eq!(thief.login("alice", PASSWORD).await.status, 200);
    }
    let (secret, _) = set_up(&app, &browser).await;
    let mut wrong = 0;
    for thief in &thieves {
        first_step(thief, "alice").await;
        wrong += compared(&join_all((0..5).map(|_| by_totp(thief, WRONG_CODE))).await);
    }
    assert_eq!(wrong, 5);
    first_step(&browser, "alice").await;
    assert_eq!(by_totp(&browser, &totp(&app, &secret)).await.status, 200, "the owner's has its own");
    // From now on this one is the owner's, too.
    app.advance(Duration::from_secs(24 * 60 * 60));
    let another = &thieves[0];
    first_step(another, "alice").await;
    assert_eq!(by_totp(another, &totp(&app, &secret)).await.status, 200);
    first_step(another, "alice").await;
    let stranger = app.client_at("203.0.113.9");
    first_step(&stranger, "alice").await;
    join_all((0..20).map(|_| by_totp(&stranger, WRONG_CODE))).await;
    app.advance(STEP);
    assert_eq!(by_totp(another, &totp(&app, &secret)).await.status, 200);
}

async fn a_code_is_right_once_whoever_else_sends_it(store: Store) {
    let app = TestApp::with(store, "[limits.factor-account]\nrules = []").await;
    let owner = owner(&app, "alice").await;
    let browsers: Vec<_> = (0..64).map(|_| app.client_at("198.51.100.7")).collect();
    for browser in &browsers {
        first_step(browser, "alice").await;
    }
    let code = totp(&app, &owner.secret);
    let answers = join_all(browsers.iter().map(|browser| by_totp(browser, &code))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    assert_eq!(compared(&answers), 63, "the others are told that it is wrong");
}

async fn a_code_is_right_a_step_early_and_late_and_not_twice(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let code = totp(&app, &owner.secret);
    let browser = app.client();
    app.advance(STEP);
    first_step(&browser, "alice").await;
    assert_eq!(by_totp(&browser, &code).await.status, 200, "the step before");
    first_step(&browser, "alice").await;
    assert_eq!(by_totp(&browser, &code).await.problem(), "invalid-factor", "used");
    let late = totp(&app, &owner.secret);
    app.advance(2 * STEP);
    assert_eq!(by_totp(&browser, &late).await.problem(), "invalid-factor", "two steps before");
    assert_eq!(by_totp(&browser, &totp(&app, &owner.secret)).await.status, 200);
}

async fn a_recovery_code_is_right_once_and_counts_for_nobody_else(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let owner = owner(&app, "alice").await;
    assert_eq!(owner.recovery.len(), 10);
    let thief = app.client_at("198.51.100.7");
    first_step(&thief, "alice").await;
    for _ in 0..8 {
        assert_eq!(by_recovery(&thief, "aaaa-bbbb-cccc-dddd").await.problem(), "invalid-factor");
        assert!(["invalid-factor", "throttled"].contains(&by_totp(&thief, WRONG_CODE).await.problem()));
    }
    let elsewhere = app.client_at("203.0.113.9");
    first_step(&elsewhere, "alice").await;
    let typed = owner.recovery[3].replace('-', " ").to_uppercase();
    let answers = join_all((0..16).map(|_| by_recovery(&elsewhere, &typed))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "in any case, once");
    first_step(&elsewhere, "alice").await;
    assert_eq!(by_recovery(&elsewhere, &typed).await.problem(), "invalid-factor");
    assert_eq!(by_recovery(&elsewhere, &owner.recovery[4]).await.status, 200, "the others are right");
}

async fn guesses_at_three_instances_share_one_window(store: Store) {
    if store == Store::Memory {
        return;
    }
    let app = TestApp::start(store).await;
    owner(&app, "alice").await;
    let (second, third) = (app.beside(TestApp::on(store)).await, app.beside(TestApp::on(store)).await);
    let thief = app.client_at("198.51.100.7");
    first_step(&thief, "alice").await;
    let at = |instance: &TestApp| Client { url: instance.url.clone(), ..thief.clone() };
    let thieves = [at(&app), at(&second), at(&third)];
    let answers = join_all((0..60).map(|index| by_totp(&thieves[index % 3], WRONG_CODE))).await;
    assert_eq!(compared(&answers), 5);
}

async fn a_hundred_wrong_codes_in_a_row_disable_the_app_for_strangers(store: Store) {
    let app = TestApp::with(store, "[limits.factor-account]\nrules = []").await;
    let owner = owner(&app, "alice").await;
    let thief = app.client_at("198.51.100.7");
    first_step(&thief, "alice").await;
    let answers = join_all((0..130).map(|_| by_totp(&thief, WRONG_CODE))).await;
    assert!(answers.iter().all(|answer| answer.problem() == "invalid-factor"));
    assert_eq!(
        by_totp(&thief, &totp(&app, &owner.secret)).await.problem(),
        "invalid-factor",
        "also the right one"
    );
    assert_eq!(by_recovery(&thief, &owner.recovery[0]).await.status, 200, "a recovery code remains");
    first_step(&owner.browser, "alice").await;
    assert_eq!(
        by_totp(&owner.browser, &totp(&app, &owner.secret)).await.status,
        200,
        "and the known browser"
    );
    app.services.audit.flush().await;
    let filter = gatehouse::audit::EventFilter {
        actions: vec![gatehouse::audit::Action::TotpDisabled],
        ..Default::default()
    };
    let told = app.services.audit.log().page(&filter, None, 10).await.unwrap().entries;
    assert_eq!(told.len(), 1);
}

async fn a_known_browser_has_five_guesses_whatever_strangers_have(store: Store) {
    let app = TestApp::with(store, "[limits.factor-account]\nrules = []").await;
    let owner = owner(&app, "alice").await;
    first_step(&owner.browser, "alice").await;
    let answers = join_all((0..50).map(|_| by_totp(&owner.browser, WRONG_CODE))).await;
    assert_eq!(compared(&answers), 5);
    assert_eq!(by_totp(&owner.browser, WRONG_CODE).await.body["limit"], "factor-device");
}

/// Where strangers have spent what the address and its network have.
async fn crowded(store: Store, then: impl Fn(Rule) -> Rule) -> (TestApp, Client, Owner, Credential) {
    const SHARED: &str = "198.51.100.7";
    let mut setup = TestApp::on(store).at_localhost().behind_a_proxy();
    for name in ["login-address", "login-network"] {
        setup = setup.limit(name, &[then(max(3).per("1h"))]);
    }
    let app = setup.start().await;
    let browser = app.client_at(SHARED);
    assert_eq!(browser.register("alice", PASSWORD).await.status, 201);
    let (secret, recovery) = set_up(&app, &browser).await;
    let (passkey, _) = browser.add_passkey("Phone").await;
    let stranger = app.client_at(SHARED);
    for number in 0..3 {
        let wrong = stranger.login(&format!("nobody-{number}"), PASSWORD).await;
        assert_eq!(wrong.problem(), "invalid-credentials");
    }
    (app, stranger, Owner { browser, secret, recovery }, passkey)
}

async fn strangers_at_its_address_stop_no_factor_on_the_owners_device(store: Store) {
    for refusal in ["captcha-required", "throttled"] {
        let asks = refusal == "captcha-required";
        let then: fn(Rule) -> Rule = if asks { Rule::captcha } else { |rule| rule };
        let (app, stranger, owner, passkey) = crowded(store, then).await;
        assert_eq!(stranger.login_by_passkey(&passkey).await.problem(), refusal);
        let Owner { browser, secret, recovery } = &owner;
        let by_passkey = browser.login_by_passkey(&passkey).await;
        assert_eq!(by_passkey.status, 200, "{refusal}: {}", by_passkey.text);
        first_step(browser, "alice").await;
        let by_recovery = by_recovery(browser, &recovery[0]).await;
        assert_eq!(by_recovery.status, 200, "{refusal}: {}", by_recovery.text);
        first_step(browser, "alice").await;
        let shown = browser.assert_passkey("second-step", &passkey).await;
        let second = browser.call("/login/factor", json!({ "passkey": shown })).await;
        assert_eq!(second.status, 200, "{refusal}: {}", second.text);
        let shown = browser.assert_passkey("confirm", &passkey).await;
        for shown in [
            json!({ "passkey": shown }),
            json!({ "recovery": recovery[1] }),
            json!({ "totp": totp(&app, secret) }),
        ] {
            let confirmed = browser.call("/confirm", shown).await;
            assert_eq!(confirmed.status, 204, "{refusal}: {}", confirmed.text);
        }
        assert_eq!(stranger.login_by_passkey(&passkey).await.problem(), refusal, "still");
    }
}

async fn wrong_ones_of_a_known_device_count_there_and_then_at_the_address(store: Store) {
    let (app, stranger, owner, mut passkey) = crowded(store, Rule::captcha).await;
    let Owner { browser, recovery, .. } = &owner;
    let wrong = async |passkey: &Credential| {
        let mut shown = browser.assert_passkey("sign-in", passkey).await;
        shown["id"] = json!(encoded(&[9; 16]));
        browser.call("/passkeys/login", json!({ "passkey": shown })).await
    };
    first_step(browser, "alice").await;
    for _ in 0..2 {
        assert_eq!(by_recovery(browser, "aaaa-bbbb-cccc-dddd").await.problem(), "invalid-factor");
    }
    for _ in 0..2 {
        assert_eq!(wrong(&passkey).await.problem(), "invalid-passkey");
    }
    // A passkey of somebody else is no guess of this account.
    let of_alice = std::mem::replace(&mut passkey.user, vec![7; 16]);
    assert_eq!(wrong(&passkey).await.problem(), "captcha-required");
    passkey.user = of_alice;
    assert_eq!(
        browser.call("/confirm", json!({ "recovery": "aaaa-bbbb-cccc-dddd" })).await.problem(),
        "invalid-factor"
    );
    for _ in 0..2 {
        assert_eq!(wrong(&passkey).await.problem(), "captcha-required", "as a stranger");
        assert_eq!(by_recovery(browser, &recovery[0]).await.problem(), "captcha-required");
    }
    app.advance(Duration::from_secs(600));
    assert_eq!(browser.login_by_passkey(&passkey).await.status, 200, "after the window");
    app.services.audit.flush().await;
    let (now, log) = (app.clock.now(), app.services.audit.log());
    let sums =
        log.totals(now.minus(Duration::from_secs(3600)), now.plus(Duration::from_secs(60))).await.unwrap();
    let counted = |name: &str| LimitUse::of(name, &sums).counted;
    assert_eq!(counted("factor-device"), Some(5));
    assert_eq!(counted("login-address"), Some(3), "what strangers did");
    drop(stranger);
}

async fn while_the_store_is_out_the_database_decides(store: Store) {
    if store == Store::Memory {
        return;
    }
    let mut app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let thief = app.client_at("198.51.100.7");
    first_step(&thief, "alice").await;
    assert_eq!(by_totp(&thief, WRONG_CODE).await.problem(), "invalid-factor");
    drop(app.redis.take());
    let answers = join_all((0..20).map(|_| by_totp(&thief, WRONG_CODE))).await;
    assert_eq!(compared(&answers), 4, "and one before");
    let code = totp(&app, &owner.secret);
    assert_eq!(by_totp(&thief, &code).await.problem(), "throttled", "not even the right one");
    assert_eq!(by_recovery(&thief, &owner.recovery[0]).await.status, 200);
}

async fn the_limits_say_what_they_counted(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let thief = app.client();
    for (browser, wrong) in [(&thief, 3), (&owner.browser, 2)] {
        first_step(browser, "alice").await;
        for _ in 0..wrong {
            assert_eq!(by_totp(browser, WRONG_CODE).await.problem(), "invalid-factor");
        }
    }
    assert_eq!(by_recovery(&thief, "aaaa-bbbb-cccc-dddd").await.problem(), "invalid-factor");
    app.services.audit.flush().await;
    let (now, log) = (app.clock.now(), app.services.audit.log());
    let sums =
        log.totals(now.minus(Duration::from_secs(3600)), now.plus(Duration::from_secs(60))).await.unwrap();
    let counted = |name: &str| LimitUse::of(name, &sums).counted;
    assert_eq!(counted("factor-account"), Some(3));
    assert_eq!(counted("factor-device"), Some(2));
    assert_eq!(counted("login-address"), Some(1), "the recovery code");
}
