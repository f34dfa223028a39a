//! Every route that makes a session or opens an account asks for the second step, and half of a sign-in opens nothing
//! else.

use gatehouse::accounts::{AccountAct, AccountChange, Username};
use gatehouse::audit::{Action, EventFilter};
use gatehouse::db::Db;

use sqlx::query;

use super::*;
use crate::support::app::{Store, on_both_stores};

const PHONE: &str = "+8613800138000";

on_both_stores! {
    an_app_that_another_session_proposed_is_nobodys,
    every_route_that_makes_a_session_asks_for_the_second_step,
    a_new_password_by_code_waits_for_the_second_step,
    a_new_password_by_code_takes_a_factor_that_sign_ins_are_not_asked_for,
    half_a_sign_in_opens_nothing_but_the_second_step,
    half_a_sign_in_ends_with_the_password_and_after_five_minutes,
    factors_are_changed_by_who_proved_one_lately,
    a_new_password_keeps_the_second_step_proved,
    a_session_that_was_made_without_the_second_step_opens_nothing,
    without_its_factors_an_account_signs_in_as_before,
    an_administrator_with_an_app_confirms_by_a_code,
}

async fn owner_with_phone(app: &TestApp) -> Owner {
    let browser = app.client();
    let code = browser.code(PHONE, "register").await;
    let body = json!({ "login": "alice", "password": PASSWORD, "phone": PHONE, "code": code });
    let made = browser.call("/register", body).await;
    assert_eq!(made.status, 201, "{}", made.text);
    let (secret, recovery) = set_up(app, &browser).await;
    app.advance(Duration::from_secs(60));
    Owner { browser, secret, recovery }
}

async fn every_route_that_makes_a_session_asks_for_the_second_step(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner_with_phone(&app).await;
    let browser = app.client();
    first_step(&browser, "alice").await;
    let page = browser.submit("/login", "/login", &[("login", "alice"), ("password", PASSWORD)]).await;
    assert_eq!((page.status, page.header("location")), (303, "/login/factor"));
    assert!(page.cookie("gh_session").is_none());
    let code = browser.code(PHONE, "login").await;
    let by_code = browser.call("/sms/login", json!({ "phone": PHONE, "code": code })).await;
    assert_eq!((by_code.status, by_code.problem()), (403, "factor-required"), "{}", by_code.text);
    assert_eq!(by_code.body["methods"], json!(["totp", "recovery"]));
    assert_eq!(by_code.body["expires_in"], 300);
    assert!(!is_signed_in(&browser).await);
    let done = by_totp(&browser, &totp(&app, &owner.secret)).await;
    assert_eq!((done.status, &done.body["user"]["login"]), (200, &json!("alice")), "{}", done.text);
    assert!(done.cookie("gh_session").is_some() && done.cookie("gh_device").is_some());
    assert!(is_signed_in(&browser).await);
}

async fn a_new_password_by_code_waits_for_the_second_step(store: Store) {
    const NEW: &str = "another horse battery staple";
    let app = TestApp::start(store).await;
    let owner = owner_with_phone(&app).await;
    let browser = app.client();
    let code = browser.code(PHONE, "reset").await;
    let reset = json!({ "phone": PHONE, "code": code, "new_password": NEW });
    let answer = browser.call("/password/reset", reset).await;
    assert_eq!((answer.status, answer.problem()), (403, "factor-required"), "{}", answer.text);
    first_step(&app.client(), "alice").await;
    let wrong = by_totp(&browser, WRONG_CODE).await;
    assert_eq!(wrong.problem(), "invalid-factor");
    let done = by_totp(&browser, &totp(&app, &owner.secret)).await;
    assert_eq!(done.status, 204, "{}", done.text);
    app.services.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Reset], ..EventFilter::default() };
    let told = app.services.audit.log().page(&filter, None, 10).await.unwrap().entries;
    assert_eq!(told.len(), 1, "the reset is an event");
    assert!(!is_signed_in(&browser).await && !is_signed_in(&owner.browser).await, "every session has ended");
    let old = app.client().login("alice", PASSWORD).await;
    assert_eq!(old.problem(), "invalid-credentials");
    let new = app.client().login("alice", NEW).await;
    assert_eq!(new.problem(), "factor-required", "the app is kept");
}

/// An account with only a passkey, one whose owner has turned the question off, and one without a factor.
async fn a_new_password_by_code_takes_a_factor_that_sign_ins_are_not_asked_for(store: Store) {
    const NEW: &str = "another horse battery staple";
    const PAGE: &str = "/password/reset";
    let app = TestApp::on(store).at_localhost().start().await;
    for (number, has) in [(0, "passkey"), (1, "app"), (2, "nothing")] {
        let (login, phone) = (format!("user-{number}"), format!("+861380013800{number}"));
        let owner = app.client();
        let code = owner.code(&phone, "register").await;
        let body = json!({ "login": login, "password": PASSWORD, "phone": phone, "code": code });
        assert_eq!(owner.call("/register", body).await.status, 201);
        let (mut secret, mut recovery) = (String::new(), Vec::new());
        match has {
            "passkey" => {
                let (_, added) = owner.add_passkey("Phone").await;
                let codes = added.body["recovery_codes"].as_array().unwrap();
                recovery.extend(codes.iter().map(|code| code.as_str().unwrap().to_owned()));
            }
            "app" => {
                (secret, recovery) = set_up(&app, &owner).await;
                assert_eq!(put(&owner, "/factors", json!({ "ask": false })).await.status, 204);
            }
            _ => {}
        }
        app.advance(Duration::from_secs(60));
        assert_eq!(app.client().login(&login, PASSWORD).await.status, 200, "{has}: nothing is asked");
        let thief = app.client();
        let code = thief.code(&phone, "reset").await;
        let reset = json!({ "phone": phone, "code": code, "new_password": NEW });
        let answer = thief.call(PAGE, reset).await;
        if has == "nothing" {
            assert_eq!(answer.status, 204, "{}", answer.text);
            continue;
        }
        assert_eq!((answer.status, answer.problem()), (403, "factor-required"), "{has}: {}", answer.text);
        assert_eq!(
            answer.body["methods"],
            json!([if has == "app" { "totp" } else { "passkey" }, "recovery"])
        );
        assert!(is_signed_in(&owner).await, "{has}: nothing has changed");
        assert_eq!(app.client().login(&login, PASSWORD).await.status, 200, "{has}");
        app.advance(Duration::from_secs(60));
        let page = app.client();
        let code = page.code(&phone, "reset").await;
        let fields = [("phone", &*phone), ("code", &code), ("new_password", NEW)];
        let answer = page.submit(PAGE, PAGE, &fields).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (303, "/login/factor"),
            "{has}: {}",
            answer.text
        );
        let asked = page.get("/login/factor").await;
        assert!(asked.text.contains("ask an administrator"), "what to do without any: {}", asked.text);
        let done = by_recovery(&page, &recovery[0]).await;
        assert_eq!(done.status, 204, "{has} {secret}: {}", done.text);
        assert!(!is_signed_in(&owner).await, "every session has ended");
        assert_eq!(app.client().login(&login, NEW).await.status, 200, "{has}");
    }
}

async fn half_a_sign_in_opens_nothing_but_the_second_step(store: Store) {
    let app = TestApp::start(store).await;
    owner(&app, "alice").await;
    let thief = app.client();
    let answer = thief.login("alice", PASSWORD).await;
    let half = answer.cookie("gh_half").unwrap().split([';', '=']).nth(1).unwrap().to_owned();
    for path in
        ["/account", "/account/factors", "/account/phone", "/account/export", "/admin", "/admin/events"]
    {
        let page = thief.get(path).await;
        assert!(
            page.status == 303 && page.header("location").starts_with("/login"),
            "{path}: {}",
            page.status
        );
    }
    for (path, body) in [
        ("/totp", json!({})),
        ("/recovery-codes", json!({})),
        ("/confirm", json!({ "password": PASSWORD })),
        ("/admin/confirm", json!({ "password": PASSWORD })),
    ] {
        assert_eq!(thief.call(path, body).await.status, 401, "{path}");
    }
    assert_eq!(thief.get("/api/v1/session").await.status, 401);
    // Nor is its token one of a session, wherever it is put.
    let forged = app.client_that_says(&[("cookie", &format!("gh_session={half}"))]);
    assert_eq!(forged.get("/api/v1/session").await.status, 401);
}

async fn half_a_sign_in_ends_with_the_password_and_after_five_minutes(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let late = app.client();
    first_step(&late, "alice").await;
    app.advance(Duration::from_secs(300));
    let answer = by_totp(&late, &totp(&app, &owner.secret)).await;
    assert_eq!((answer.status, answer.problem()), (410, "lapsed"));
    let page = late.get("/login/factor").await;
    assert_eq!((page.status, page.header("location")), (303, "/login"));
    let before = app.client();
    first_step(&before, "alice").await;
    let fields = [("current_password", PASSWORD), ("new_password", "another horse battery staple")];
    let changed = owner.browser.submit("/account", "/account/password", &fields).await;
    assert_eq!(changed.status, 303, "{}", changed.text);
    assert_eq!(by_totp(&before, &totp(&app, &owner.secret)).await.problem(), "lapsed");
}

async fn factors_are_changed_by_who_proved_one_lately(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    app.advance(Duration::from_secs(16 * 60));
    let refused = delete(&owner.browser, "/totp").await;
    assert_eq!((refused.status, refused.problem()), (403, "step-up-required"));
    assert_eq!(refused.body["methods"], json!(["totp", "recovery"]));
    for (path, body) in [("/totp", json!({})), ("/recovery-codes", json!({}))] {
        assert_eq!(owner.browser.call(path, body).await.problem(), "step-up-required", "{path}");
    }
    // The password is not enough any more.
    let by_password = owner.browser.call("/confirm", json!({ "password": PASSWORD })).await;
    assert_eq!(by_password.problem(), "step-up-required");
    let wrong = owner.browser.call("/confirm", json!({ "totp": WRONG_CODE })).await;
    assert_eq!(wrong.problem(), "invalid-factor");
    let right = owner.browser.call("/confirm", json!({ "totp": totp(&app, &owner.secret) })).await;
    assert_eq!(right.status, 204, "{}", right.text);
    let renewed = owner.browser.call("/recovery-codes", json!({})).await;
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    let other = app.client();
    first_step(&other, "alice").await;
    assert_eq!(by_recovery(&other, &owner.recovery[0]).await.problem(), "invalid-factor", "void");
    assert_eq!(delete(&owner.browser, "/totp").await.status, 204);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

async fn a_new_password_keeps_the_second_step_proved(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let fields = [("current_password", PASSWORD), ("new_password", "another horse battery staple")];
    let changed = owner.browser.submit("/account", "/account/password", &fields).await;
    assert_eq!((changed.status, changed.header("location")), (303, "/account"), "{}", changed.text);
    assert!(is_signed_in(&owner.browser).await);
}

async fn a_session_that_was_made_without_the_second_step_opens_nothing(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    first_step(&app.client(), "alice").await;
    let earlier = app.client();
    earlier.register("bob", PASSWORD).await;
    set_up(&app, &owner.browser).await;
    assert!(is_signed_in(&earlier).await);
    // As an instance writes it that knows no factors.
    let db = Db::connect(&app.database).await.unwrap();
    let forget = "DELETE FROM session_proofs";
    let older = "UPDATE sessions SET created_at = created_at + 60000000";
    for sql in [forget, older] {
        match &db {
            Db::Sqlite(pools) => drop(query(sql).execute(pools.reachable().unwrap()).await.unwrap()),
            Db::Postgres(pools) => drop(query(sql).execute(pools.reachable().unwrap()).await.unwrap()),
        }
    }
    assert!(!is_signed_in(&owner.browser).await, "alice asks for a second step");
    assert!(is_signed_in(&earlier).await, "bob does not");
}

async fn without_its_factors_an_account_signs_in_as_before(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let account = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    let clear =
        async || app.services.accounts.change(account.id, AccountAct::ClearFactors, false).await.unwrap();
    assert_eq!(clear().await, AccountChange::Done);
    assert!(!is_signed_in(&owner.browser).await, "whoever took it over is signed out");
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

async fn an_administrator_with_an_app_confirms_by_a_code(store: Store) {
    let app = TestApp::start(store).await;
    let owner = owner(&app, "alice").await;
    let bob = app.client();
    bob.register("bob", PASSWORD).await;
    let find = async |login: &str| {
        app.services.accounts.find(&Username::parse(login).unwrap()).await.unwrap().unwrap()
    };
    let (alice, other) = (find("alice").await.id, find("bob").await.id);
    app.services.accounts.change(alice, AccountAct::MakeAdmin, false).await.unwrap();
    let admin = &owner.browser;
    first_step(admin, "alice").await;
    assert_eq!(by_totp(admin, &totp(&app, &owner.secret)).await.status, 200);
    app.advance(Duration::from_secs(16 * 60));
    let (page, change) = (format!("/admin/accounts/{other}"), format!("/admin/accounts/{other}/disable"));
    let asked = admin.submit(&page, &change, &[("reason", "gone")]).await;
    assert!(
        asked.text.contains("name=\"code\"") && !asked.text.contains("name=\"password\""),
        "{}",
        asked.text
    );
    let by_password = admin.call("/admin/confirm", json!({ "password": PASSWORD })).await;
    assert_eq!(by_password.problem(), "step-up-required");
    let code = totp(&app, &owner.secret);
    let done = admin.submit(&page, &change, &[("reason", "gone"), ("code", &code)]).await;
    assert_eq!(done.status, 303, "{}", done.text);
    assert_eq!(bob.get("/api/v1/session").await.status, 401);
    let (secret, _) = set_up(&app, &admin.clone()).await;
    let path = format!("/api/v1/admin/accounts/{alice}/factors");
    let cleared = admin.delete(&path, json!({ "reason": "another phone" })).await;
    assert_eq!(cleared.status, 204, "{}", cleared.text);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200, "without {secret}");
}

async fn an_app_that_another_session_proposed_is_nobodys(store: Store) {
    let app = TestApp::start(store).await;
    let thief = app.client();
    thief.register("alice", PASSWORD).await;
    let proposed = thief.call("/totp", json!({})).await;
    let secret = proposed.body["secret"].as_str().unwrap().to_owned();
    assert!(
        thief.get("/account/factors").await.text.contains("class=\"secret\""),
        "it is shown where it was proposed"
    );
    let owner = app.client();
    owner.login("alice", PASSWORD).await;
    let page = owner.get("/account/factors").await;
    assert!(page.status == 200 && !page.text.contains("class=\"secret\""), "{}", page.text);
    let code = totp(&app, &secret);
    let used = put(&owner, "/totp", json!({ "code": code })).await;
    assert_eq!((used.status, used.problem()), (401, "invalid-factor"), "{}", used.text);
    let (owners, _) = set_up(&app, &owner).await;
    assert_ne!(owners, secret);
    let late = put(&thief, "/totp", json!({ "code": totp(&app, &secret) })).await;
    assert!(
        ["step-up-required", "invalid-factor", "unauthenticated"].contains(&late.problem()),
        "{}",
        late.text
    );
}
