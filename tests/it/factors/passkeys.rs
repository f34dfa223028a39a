//! Passkeys by the calls: what they open, and every answer that opens nothing.

use futures_util::future::join_all;
use gatehouse::accounts::{AccountAct, Username};
use gatehouse::audit::{Action, EventFilter};
use gatehouse::db::Db;
use sqlx::query_scalar;

use super::*;
use crate::support::app::{ANSWER, Store, on_both_stores};
use crate::support::authenticator::{Authenticator, Credential, encoded};
use crate::support::setup::max;

on_both_stores! {
    a_passkey_signs_in_without_a_name_or_a_second_step,
    a_passkey_is_a_second_step_and_a_confirmation,
    the_last_factor_takes_the_second_step_with_it,
    an_answer_is_right_once,
    a_challenge_is_for_one_browser_one_purpose_and_five_minutes,
    the_account_is_that_of_the_passkey_and_of_the_first_step,
    what_the_authenticator_did_not_verify_opens_nothing,
    every_byte_counts,
    wrong_answers_count_at_their_address_alone,
    wrong_answers_count_at_their_network_too,
    a_disabled_account_and_a_removed_passkey_open_nothing,
    no_passkey_is_added_twice_or_without_a_confirmation,
    an_authenticator_that_counts_back_may_be_a_copy,
    challenges_tell_nothing_of_who_has_a_passkey,
    administrators_see_and_clear_passkeys,
    passkeys_for_another_domain_are_told,
    from_a_refused_network_only_the_accounts_own_browser_signs_in,
    forms_take_what_the_script_puts_into_them,
}

async fn app_on(store: Store) -> TestApp {
    TestApp::on(store).at_localhost().start().await
}

/// Somebody without an app, in the browser in which they registered.
async fn member(app: &TestApp, login: &str) -> (Client, Credential) {
    let browser = app.client();
    assert_eq!(browser.register(login, PASSWORD).await.status, 201);
    let (passkey, _) = browser.add_passkey("Phone").await;
    (browser, passkey)
}

/// Challenges that are kept because they were answered.
async fn spent(app: &TestApp) -> i64 {
    const SQL: &str = "SELECT COUNT(*) FROM spent_challenges";
    match &Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => query_scalar(SQL).fetch_one(pools.reachable().unwrap()).await.unwrap(),
        Db::Postgres(pools) => query_scalar(SQL).fetch_one(pools.reachable().unwrap()).await.unwrap(),
    }
}

async fn sign_in(browser: &Client, shown: &serde_json::Value) -> Answer {
    browser.call("/passkeys/login", json!({ "passkey": shown })).await
}

async fn a_passkey_signs_in_without_a_name_or_a_second_step(store: Store) {
    let app = app_on(store).await;
    let browser = app.client();
    browser.register("alice", PASSWORD).await;
    let (passkey, added) = browser.add_passkey("  Key ring  ").await;
    assert_eq!(added.body["passkey"]["label"], "Key ring");
    assert_eq!(added.body["recovery_codes"].as_array().unwrap().len(), 10);
    app.advance(Duration::from_secs(1));
    let (second, added) = browser.add_passkey("Laptop").await;
    assert!(added.body.get("recovery_codes").is_none(), "those handed out are still good");

    let visitor = app.client();
    let answer = visitor.login_by_passkey(&passkey).await;
    assert_eq!((answer.status, &answer.body["user"]["login"]), (200, &json!("alice")), "{}", answer.text);
    assert!(answer.cookie("gh_session").is_some() && answer.cookie("gh_device").is_some());
    assert!(is_signed_in(&visitor).await);
    let listed = visitor.get("/api/v1/passkeys").await.body["passkeys"].clone();
    assert_eq!((&listed[0]["label"], &listed[1]["label"]), (&json!("Key ring"), &json!("Laptop")));
    assert!(listed[0]["last_used_at"].is_string() && listed[1].get("last_used_at").is_none());
    assert_eq!(listed[0]["rp_id"], "localhost");
    // It has proved a factor, so it may change them.
    let id = listed[1]["id"].as_str().unwrap();
    assert_eq!(delete(&visitor, &format!("/passkeys/{id}")).await.status, 204);
    assert_eq!(app.client().login_by_passkey(&second).await.problem(), "invalid-passkey");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "a passkey alone asks for nothing");
}

async fn a_passkey_is_a_second_step_and_a_confirmation(store: Store) {
    let app = app_on(store).await;
    let owner = owner(&app, "alice").await;
    let (passkey, added) = owner.browser.add_passkey("Phone").await;
    assert!(added.body.get("recovery_codes").is_none(), "those of the app are good for it");
    let browser = app.client();
    let first = browser.login("alice", PASSWORD).await;
    assert_eq!(first.body["methods"], json!(["passkey", "totp", "recovery"]));
    let shown = browser.assert_passkey("second-step", &passkey).await;
    let both = browser.call("/login/factor", json!({ "passkey": shown, "totp": WRONG_CODE })).await;
    assert_eq!(both.problem(), "invalid-input");
    let done = browser.call("/login/factor", json!({ "passkey": shown })).await;
    assert_eq!((done.status, &done.body["user"]["login"]), (200, &json!("alice")), "{}", done.text);
    assert_eq!(app.client().login_by_passkey(&passkey).await.status, 200, "and both at once");

    app.advance(Duration::from_secs(16 * 60));
    let refused = delete(&browser, "/totp").await;
    assert_eq!((refused.status, refused.problem()), (403, "step-up-required"));
    assert_eq!(refused.body["methods"][0], "passkey");
    let by_password = browser.call("/confirm", json!({ "password": PASSWORD })).await;
    assert_eq!(by_password.problem(), "step-up-required");
    let shown = browser.assert_passkey("confirm", &passkey).await;
    assert_eq!(browser.call("/confirm", json!({ "passkey": shown })).await.status, 204);
    assert_eq!(delete(&browser, "/totp").await.status, 204);
}

async fn the_last_factor_takes_the_second_step_with_it(store: Store) {
    let app = app_on(store).await;
    let Owner { browser, recovery, .. } = owner(&app, "alice").await;
    browser.add_passkey("Phone").await;
    assert_eq!(delete(&browser, "/totp").await.status, 204);
    let visitor = app.client();
    let asked = visitor.login("alice", PASSWORD).await;
    assert_eq!(
        (asked.problem(), &asked.body["methods"]),
        ("factor-required", &json!(["passkey", "recovery"]))
    );
    assert_eq!(by_recovery(&visitor, &recovery[0]).await.status, 200);
    let id = browser.get("/api/v1/passkeys").await.body["passkeys"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(delete(&browser, &format!("/passkeys/{id}")).await.status, 204);
    assert_eq!(delete(&browser, &format!("/passkeys/{id}")).await.status, 404);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    let fresh = app.client();
    fresh.login("alice", PASSWORD).await;
    let (_, added) = fresh.add_passkey("Another").await;
    assert_eq!(added.body["recovery_codes"].as_array().unwrap().len(), 10, "the old ones went with it");
}

async fn an_answer_is_right_once(store: Store) {
    let app = app_on(store).await;
    let (_, passkey) = member(&app, "alice").await;
    let browser = app.client();
    let shown = browser.assert_passkey("sign-in", &passkey).await;
    let answers = join_all((0..64).map(|_| sign_in(&browser, &shown))).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
    for other in answers.iter().filter(|answer| answer.status != 200) {
        assert!(["invalid-passkey", "captcha-required"].contains(&other.problem()), "{}", other.text);
    }
    assert_eq!(spent(&app).await, 2, "that of the new passkey, too");
    app.advance(Duration::from_secs(3600));
    app.services.factor_verifier.passkeys().purge(500).await.unwrap();
    assert_eq!(spent(&app).await, 0);
    assert_eq!(sign_in(&browser, &shown).await.problem(), "invalid-passkey");
    assert_eq!(browser.login_by_passkey(&passkey).await.status, 200);
    let options = browser.passkey_options("add").await;
    let (made, _) = Authenticator::of(&browser).create(&options);
    assert_eq!(browser.call("/passkeys", json!({ "passkey": made })).await.status, 201);
    let again = browser.call("/passkeys", json!({ "passkey": made })).await;
    assert_eq!((again.status, again.problem()), (422, "invalid-input"));
}

async fn a_challenge_is_for_one_browser_one_purpose_and_five_minutes(store: Store) {
    let app = app_on(store).await;
    let (browser, passkey) = member(&app, "alice").await;
    let visitor = app.client();
    let shown = visitor.assert_passkey("sign-in", &passkey).await;
    app.client().passkey_options("sign-in").await;
    let thief = app.client();
    assert_eq!(sign_in(&thief, &shown).await.problem(), "invalid-passkey", "without the browser's name");
    thief.passkey_options("sign-in").await;
    assert_eq!(sign_in(&thief, &shown).await.problem(), "invalid-passkey", "another browser");
    for purpose in ["second-step", "confirm"] {
        let other = visitor.assert_passkey(purpose, &passkey).await;
        assert_eq!(sign_in(&visitor, &other).await.problem(), "invalid-passkey", "{purpose}");
    }
    let to_sign_in = browser.assert_passkey("sign-in", &passkey).await;
    let confirmed = browser.call("/confirm", json!({ "passkey": to_sign_in })).await;
    assert_eq!(confirmed.problem(), "invalid-factor");
    let late = visitor.assert_passkey("sign-in", &passkey).await;
    app.advance(Duration::from_secs(300));
    assert_eq!(sign_in(&visitor, &late).await.problem(), "invalid-passkey", "five minutes later");
    let mut other = visitor.passkey_options("sign-in").await;
    other["challenge"] = json!(encoded(&[7; 40]));
    let made_up = Authenticator::of(&visitor).get(&other, &passkey);
    assert_eq!(sign_in(&visitor, &made_up).await.problem(), "invalid-passkey", "none of ours");
    let fresh = visitor.login_by_passkey(&passkey).await;
    assert_eq!(fresh.status, 200, "{}", fresh.text);
}

async fn the_account_is_that_of_the_passkey_and_of_the_first_step(store: Store) {
    let app = app_on(store).await;
    let owner = owner(&app, "alice").await;
    let (of_alice, _) = owner.browser.add_passkey("Phone").await;
    let (_, mut of_mallory) = member(&app, "mallory").await;
    let thief = app.client();
    first_step(&thief, "alice").await;
    let shown = thief.assert_passkey("second-step", &of_mallory).await;
    let answer = thief.call("/login/factor", json!({ "passkey": shown })).await;
    assert_eq!((answer.status, answer.problem()), (401, "invalid-factor"));
    of_mallory.user = of_alice.user.clone();
    for purpose in ["second-step", "sign-in"] {
        let shown = thief.assert_passkey(purpose, &of_mallory).await;
        let answer = match purpose {
            "sign-in" => sign_in(&thief, &shown).await,
            _ => thief.call("/login/factor", json!({ "passkey": shown })).await,
        };
        assert_eq!(answer.status, 401, "{purpose}: {}", answer.text);
    }
    assert!(!is_signed_in(&thief).await);
    let shown = thief.assert_passkey("second-step", &of_alice).await;
    assert_eq!(thief.call("/login/factor", json!({ "passkey": shown })).await.status, 200);
}

async fn what_the_authenticator_did_not_verify_opens_nothing(store: Store) {
    let app = app_on(store).await;
    let (browser, passkey) = member(&app, "alice").await;
    let visitor = app.client();
    let lax = Authenticator { verifies_user: false, ..Authenticator::of(&visitor) };
    let shown = lax.get(&visitor.passkey_options("sign-in").await, &passkey);
    assert_eq!(sign_in(&visitor, &shown).await.problem(), "invalid-passkey");
    let foreign =
        Authenticator { origin: "https://localhost.example".to_owned(), ..Authenticator::of(&visitor) };
    let shown = foreign.get(&visitor.passkey_options("sign-in").await, &passkey);
    assert_eq!(sign_in(&visitor, &shown).await.problem(), "invalid-passkey");
    let (made, _) = lax.create(&browser.passkey_options("add").await);
    let answer = browser.call("/passkeys", json!({ "passkey": made })).await;
    assert_eq!(answer.problem(), "invalid-input");
    assert_eq!(
        answer.body["errors"][0]["message"],
        "Not accepted: the authenticator did not verify its user."
    );
}

async fn every_byte_counts(store: Store) {
    let app = TestApp::on(store).at_localhost().without(&["login-address", "login-network"]).start().await;
    let (_, passkey) = member(&app, "alice").await;
    let visitor = app.client();
    let shown = visitor.assert_passkey("sign-in", &passkey).await;
    for field in ["clientDataJSON", "authenticatorData", "signature", "userHandle"] {
        let bytes = crate::support::authenticator::decoded(&shown["response"][field]);
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 0x20;
            let mut sent = shown.clone();
            sent["response"][field] = json!(encoded(&bent));
            let answer = sign_in(&visitor, &sent).await;
            assert_eq!(answer.problem(), "invalid-passkey", "{field} at {at}: {}", answer.text);
        }
    }
    assert_eq!(sign_in(&visitor, &shown).await.status, 200, "nothing was written for those");
}

async fn wrong_answers_count_at_their_address_alone(store: Store) {
    let setup = TestApp::on(store).at_localhost().behind_a_proxy();
    let app = setup.limit("login-address", &[max(3).per("1m").captcha()]).start().await;
    let browser = app.client_at("203.0.113.9");
    browser.register("alice", PASSWORD).await;
    let (passkey, _) = browser.add_passkey("Phone").await;
    let thief = app.client_at("198.51.100.7");
    let mut answers = Vec::new();
    for known in [true, false, true] {
        let mut shown = thief.assert_passkey("sign-in", &passkey).await;
        shown["response"]["signature"] = json!(encoded(&[0x30, 6, 2, 1, 1, 2, 1, 1]));
        if !known {
            shown["id"] = json!(encoded(&[9; 16]));
        }
        let answer = sign_in(&thief, &shown).await;
        answers.push((answer.status, answer.text));
    }
    assert!(answers.iter().all(|answer| *answer == answers[0]), "known or not: {answers:?}");
    assert!(answers[0].1.contains("invalid-passkey"));
    let shown = thief.assert_passkey("sign-in", &passkey).await;
    let asked = sign_in(&thief, &shown).await;
    assert_eq!((asked.status, asked.problem()), (403, "captcha-required"), "{}", asked.text);
    let captcha = json!({ "id": asked.body["captcha"]["id"], "answer": ANSWER });
    let solved = thief.call("/passkeys/login", json!({ "passkey": shown, "captcha": captcha })).await;
    assert_eq!(solved.status, 200, "the same answer, with a challenge solved: {}", solved.text);
    assert_eq!(browser.login_by_passkey(&passkey).await.status, 200, "elsewhere nobody is asked");
    app.services.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::FactorFailed], ..Default::default() };
    let told = app.services.audit.log().page(&filter, None, 10).await.unwrap().entries;
    assert!(!told.is_empty() && told.iter().all(|entry| entry.name.as_deref() == Some("passkey")));
    assert!(told.iter().all(|entry| entry.account.is_none()), "nothing is proved of an account");
}

/// A /48 is 65,536 addresses as they are counted.
async fn wrong_answers_count_at_their_network_too(store: Store) {
    let setup = TestApp::on(store).at_localhost().behind_a_proxy();
    let app = setup.limit("login-network", &[max(3).per("1h").captcha()]).start().await;
    owner(&app, "alice").await;
    let (_, passkey) = member(&app, "boris").await;
    let thief = |number: u32| app.client_at(&format!("2001:db8:42:{number:x}::7"));
    let halves = [thief(1), thief(2)];
    for half in &halves {
        first_step(half, "alice").await;
    }
    let by_passkey = async |number: u32| {
        let thief = thief(number);
        let mut shown = thief.assert_passkey("sign-in", &passkey).await;
        shown["response"]["signature"] = json!(encoded(&[0x30, 6, 2, 1, 1, 2, 1, 1]));
        sign_in(&thief, &shown).await.problem().to_owned()
    };
    let guess = "aaaa-bbbb-cccc-dddd";
    assert_eq!(by_passkey(3).await, "invalid-passkey");
    assert_eq!(by_recovery(&halves[0], guess).await.problem(), "invalid-factor");
    assert_eq!(by_passkey(4).await, "invalid-passkey");
    for half in &halves {
        assert_eq!(by_recovery(half, guess).await.problem(), "captcha-required");
    }
    for number in 5..105 {
        assert_eq!(by_passkey(number).await, "captcha-required");
    }
    // What is refused is few rows, from however many addresses it comes.
    app.services.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::FactorFailed], ..Default::default() };
    let told = app.services.audit.log().page(&filter, None, 500).await.unwrap().entries;
    assert_eq!(told.iter().map(|entry| entry.count).sum::<i64>(), 105);
    assert!(told.len() <= 3 + 2 + 65, "{} rows", told.len());
    assert!(told.iter().all(|entry| entry.network.is_some()));
}

async fn a_disabled_account_and_a_removed_passkey_open_nothing(store: Store) {
    let app = app_on(store).await;
    let (_, passkey) = member(&app, "alice").await;
    let account = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(account.id, AccountAct::Disable, false).await.unwrap();
    assert_eq!(app.client().login_by_passkey(&passkey).await.problem(), "invalid-passkey");
    app.services.accounts.change(account.id, AccountAct::Enable, false).await.unwrap();
    assert_eq!(app.client().login_by_passkey(&passkey).await.status, 200);
    app.services.accounts.change(account.id, AccountAct::Delete, false).await.unwrap();
    assert_eq!(app.client().login_by_passkey(&passkey).await.problem(), "invalid-passkey");
}

async fn no_passkey_is_added_twice_or_without_a_confirmation(store: Store) {
    let app = app_on(store).await;
    let (browser, passkey) = member(&app, "alice").await;
    let options = browser.passkey_options("add").await;
    assert_eq!(options["excludeCredentials"][0]["id"], encoded(&passkey.id));
    assert_eq!(options["authenticatorSelection"]["residentKey"], "required");
    assert_eq!(options["authenticatorSelection"]["userVerification"], "required");
    let again = Authenticator::of(&browser).attest(&options, &passkey);
    let answer = browser.call("/passkeys", json!({ "passkey": again })).await;
    assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{}", answer.text);
    for label in ["", " ", "a\u{7}b", &"x".repeat(65)] {
        let refused = browser.call("/passkeys", json!({ "passkey": again, "label": label })).await;
        assert_eq!(refused.body["errors"][0]["field"], "label", "{label:?}");
    }
    for number in 1..20 {
        browser.add_passkey(&format!("Key {number}")).await;
    }
    let (made, _) = Authenticator::of(&browser).create(&browser.passkey_options("add").await);
    let answer = browser.call("/passkeys", json!({ "passkey": made })).await;
    assert!(answer.text.contains("at most 20"), "{}", answer.text);
    app.advance(Duration::from_secs(16 * 60));
    for answer in [
        browser.call("/passkeys/challenge", json!({ "for": "add" })).await,
        browser.call("/passkeys", json!({ "passkey": made })).await,
        delete(&browser, "/passkeys/00000000000000000000000000000000").await,
    ] {
        assert_eq!((answer.status, answer.problem()), (403, "step-up-required"));
    }
    let stranger = app.client().call("/passkeys/challenge", json!({ "for": "add" })).await;
    assert_eq!(stranger.problem(), "unauthenticated");
}

async fn an_authenticator_that_counts_back_may_be_a_copy(store: Store) {
    let app = app_on(store).await;
    let (_, passkey) = member(&app, "alice").await;
    let visitor = app.client();
    for (count, status) in [(7, 200), (8, 200), (8, 401), (3, 401), (0, 401), (9, 200)] {
        let counting = Authenticator { count, ..Authenticator::of(&visitor) };
        let shown = counting.get(&visitor.passkey_options("sign-in").await, &passkey);
        let answer = sign_in(&visitor, &shown).await;
        assert_eq!(answer.status, status, "{count}: {}", answer.text);
    }
    app.services.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::FactorFailed], ..Default::default() };
    let told = app.services.audit.log().page(&filter, None, 10).await.unwrap().entries;
    let cause = |detail: &str| serde_json::from_str::<serde_json::Value>(detail).unwrap()["cause"].clone();
    assert!(told.iter().all(|entry| entry.detail.as_deref().is_some_and(|told| cause(told) == "sign-count")));
    assert!(told.iter().all(|entry| entry.account.is_some()) && !told.is_empty());
}

async fn challenges_tell_nothing_of_who_has_a_passkey(store: Store) {
    let app = app_on(store).await;
    owner(&app, "alice").await;
    member(&app, "bob").await;
    let (nobody, halfway) = (app.client(), app.client());
    first_step(&halfway, "alice").await;
    let shape = |mut options: serde_json::Value| {
        assert_eq!(options["challenge"].as_str().unwrap().len(), 54);
        options["challenge"] = json!("");
        options
    };
    let plain = shape(nobody.passkey_options("sign-in").await);
    assert_eq!(plain["allowCredentials"], json!([]));
    assert_eq!(plain["userVerification"], "required");
    for client in [&nobody, &halfway] {
        for purpose in ["sign-in", "second-step", "confirm"] {
            assert_eq!(shape(client.passkey_options(purpose).await), plain);
        }
    }
    assert_eq!(nobody.call("/passkeys/challenge", json!({})).await.status, 200);
    let elsewhere = TestApp::start(Store::Memory).await;
    let answer = elsewhere.client().call("/passkeys/challenge", json!({})).await;
    assert_eq!(answer.problem(), "not-found", "at an address");
}

async fn administrators_see_and_clear_passkeys(store: Store) {
    let app = app_on(store).await;
    let (browser, passkey) = member(&app, "alice").await;
    let admin = app.client();
    admin.register("warden", PASSWORD).await;
    let find = async |login: &str| {
        app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap().id
    };
    let (alice, root) = (find("alice").await, find("warden").await);
    app.services.accounts.change(root, AccountAct::MakeAdmin, false).await.unwrap();
    admin.login("warden", PASSWORD).await;
    let shown = admin.get(&format!("/api/v1/admin/accounts/{alice}")).await;
    assert_eq!(shown.body["passkeys"], 1, "{}", shown.text);
    let page = admin.get(&format!("/admin/accounts/{alice}")).await;
    assert!(page.text.contains("clear-factors"), "{}", page.text);
    let path = format!("/api/v1/admin/accounts/{alice}/factors");
    let cleared = admin.delete(&path, json!({ "reason": "lost" })).await;
    assert_eq!(cleared.status, 204, "{}", cleared.text);
    assert!(!is_signed_in(&browser).await);
    assert_eq!(app.client().login_by_passkey(&passkey).await.problem(), "invalid-passkey");
}

async fn forms_take_what_the_script_puts_into_them(store: Store) {
    let app = app_on(store).await;
    let (_, passkey) = member(&app, "alice").await;
    let visitor = app.client();
    let page = visitor.get("/login").await;
    assert!(page.text.contains("data-passkey=\"sign-in\""), "{}", page.text);
    let post = async |shown: &serde_json::Value| {
        let fields = [("passkey", &*shown.to_string()), ("next", "/account/export")];
        visitor.submit("/login", "/login", &fields).await
    };
    let lax = Authenticator { verifies_user: false, ..Authenticator::of(&visitor) };
    let unverified = post(&lax.get(&visitor.passkey_options("sign-in").await, &passkey)).await;
    assert!(unverified.status == 422 && unverified.text.contains("Set a PIN"), "{}", unverified.text);
    let mut wrong = visitor.assert_passkey("sign-in", &passkey).await;
    wrong["id"] = json!(encoded(&[9; 16]));
    let refused = post(&wrong).await;
    assert!(refused.status == 401 && refused.text.contains("not accepted"), "{}", refused.text);
    let right = post(&visitor.assert_passkey("sign-in", &passkey).await).await;
    assert_eq!((right.status, right.header("location")), (303, "/account/export"));
    assert!(is_signed_in(&visitor).await);
    let factors = visitor.get("/account/factors").await;
    assert!(
        factors.text.contains("Phone") && factors.text.contains("data-passkey=\"add\""),
        "{}",
        factors.text
    );
    let id = visitor.get("/api/v1/passkeys").await.body["passkeys"][0]["id"].as_str().unwrap().to_owned();
    let fields = [("act", "remove-passkey"), ("passkey_id", &*id)];
    let removed = visitor.submit("/account/factors", "/account/factors", &fields).await;
    assert_eq!(removed.status, 303, "{}", removed.text);
    assert_eq!(visitor.get("/api/v1/passkeys").await.body["passkeys"], json!([]));
}

async fn passkeys_for_another_domain_are_told(store: Store) {
    let app = app_on(store).await;
    member(&app, "alice").await;
    let moved = app.beside(TestApp::on(store)).await;
    let count = async |app: &TestApp| app.services.factor_verifier.passkeys().count_foreign().await.unwrap();
    assert_eq!((count(&app).await, count(&moved).await), (0, 1));
    let browser = moved.client();
    browser.login("alice", PASSWORD).await;
    let asked = browser.get("/account/factors").await.text;
    assert!(asked.contains("A recovery code") && !asked.contains("data-passkey"), "{asked}");
}

async fn from_a_refused_network_only_the_accounts_own_browser_signs_in(store: Store) {
    let until = "2099-01-01T00:00:00Z";
    let deny =
        format!("[access]\ndeny = [{{ network = '203.0.113.0/24', until = '{until}', reason = 'test' }}]");
    let app = TestApp::on(store).at_localhost().behind_a_proxy().file(&deny).start().await;
    let (alice, of_alice) = member(&app, "alice").await;
    let (_, of_mallory) = member(&app, "mallory").await;
    let known = alice.login_by_passkey(&of_alice).await;
    let cookies = format!(
        "{}; gh_browser=AAAAAAAAAAAAAAAAAAAAAA",
        known.cookie("gh_device").unwrap().split(';').next().unwrap()
    );
    let there = app.client_that_says(&[("x-forwarded-for", "203.0.113.9"), ("cookie", &cookies)]);
    assert_eq!(app.client_at("203.0.113.9").call("/passkeys/challenge", json!({})).await.problem(), "denied");
    assert_eq!(there.login_by_passkey(&of_mallory).await.problem(), "denied");
    assert_eq!(there.login_by_passkey(&of_alice).await.status, 200);
}
