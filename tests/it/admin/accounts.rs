//! What administrators do to accounts, and what it ends.

use gatehouse::accounts::{Account, Username};
use serde_json::json;

use super::acts;
use crate::sms::http::{NUMBER, enter};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    a_disabled_account_is_opened_by_nothing_until_it_is_enabled,
    a_disabled_account_answers_like_a_wrong_password,
    ending_sessions_makes_every_browser_unknown,
    a_new_password_is_required_once,
    the_last_administrator_stays,
    a_session_by_code_becomes_no_administrators,
    a_number_that_was_on_its_way_does_not_survive_a_change,
    a_deleted_account_leaves_only_its_name,
    an_account_is_found_by_the_beginning_of_its_name_and_by_its_number,
    the_page_does_what_it_says_with_a_reason,
    an_account_is_deleted_on_the_page_only_by_its_name,
    groups_are_given_as_a_whole_and_end_with_the_account,
    groups_are_given_on_the_page,
);

async fn account(app: &TestApp, name: &str) -> Account {
    app.services.accounts.find(&Username::parse(name).unwrap()).await.unwrap().unwrap()
}

async fn act(app: &TestApp, boss: &Client, name: &str, act: &str) -> Answer {
    let id = account(app, name).await.id;
    boss.call(&format!("/admin/accounts/{id}/{act}"), json!({ "reason": "a test" })).await
}

async fn signed_in(app: &TestApp, name: &str) -> Client {
    let client = app.client();
    assert_eq!(client.login(name, PASSWORD).await.status, 200);
    client
}

/// Alice's browser, in which she registered with a number.
async fn alice_with_a_number(app: &TestApp) -> Client {
    let client = app.client();
    let code = client.code(NUMBER, "register").await;
    let body = json!({ "login": "alice", "password": PASSWORD, "phone": NUMBER, "code": code });
    assert_eq!(client.call("/register", body).await.status, 201);
    client
}

async fn a_disabled_account_is_opened_by_nothing_until_it_is_enabled(store: Store) {
    let app = TestApp::on(store).without(&["login-account", "login-device", "sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let client = alice_with_a_number(&app).await;
    assert_eq!(act(&app, &boss, "alice", "disable").await.status, 204);
    assert_eq!(client.get("/api/v1/session").await.status, 401, "it is signed out");
    assert_eq!(client.login("alice", PASSWORD).await.status, 401, "also from a known device");
    let code = app.client().code(NUMBER, "login").await;
    assert_eq!(enter(&app.client(), NUMBER, &code).await.problem(), "account-disabled");
    let code = app.client().code(NUMBER, "reset").await;
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": "another horse battery staple" });
    assert_eq!(app.client().call("/password/reset", reset).await.problem(), "account-disabled");
    assert_eq!(act(&app, &boss, "alice", "enable").await.status, 204);
    assert_eq!(act(&app, &boss, "alice", "enable").await.status, 204, "it is so already");
    signed_in(&app, "alice").await;
    let acts: Vec<_> = acts(&app).await.into_iter().map(|act| act.name.unwrap()).collect();
    assert_eq!(acts, ["account-enable", "account-disable"]);
}

async fn a_disabled_account_answers_like_a_wrong_password(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    assert_eq!(act(&app, &boss, "alice", "disable").await.status, 204);
    let (right, unknown) = (app.client(), app.client());
    for _ in 0..4 {
        let (one, other) = (right.login("alice", PASSWORD).await, unknown.login("nobody", PASSWORD).await);
        assert_eq!((one.status, one.problem()), (other.status, other.problem()));
        assert_eq!(one.body["captcha_required"], other.body["captcha_required"]);
    }
}

async fn ending_sessions_makes_every_browser_unknown(store: Store) {
    let app =
        TestApp::on(store).limit("login-account", &[crate::support::setup::max(1).per("1h")]).start().await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let hers = signed_in(&app, "alice").await;
    assert_eq!(act(&app, &boss, "alice", "end-sessions").await.status, 204);
    assert_eq!(hers.get("/api/v1/session").await.status, 401);
    assert_eq!(app.client().login("alice", "a wrong password").await.status, 401);
    assert_eq!(hers.login("alice", PASSWORD).await.problem(), "throttled", "as for every stranger");
}

async fn a_new_password_is_required_once(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let hers = signed_in(&app, "alice").await;
    assert_eq!(act(&app, &boss, "alice", "require-new-password").await.status, 204);
    assert_eq!(hers.get("/api/v1/session").await.status, 401);
    let hers = app.client();
    assert_eq!(hers.login("alice", PASSWORD).await.body["user"]["must_change_password"], true);
    let fields = [("current_password", PASSWORD), ("new_password", "another horse battery staple")];
    assert_eq!(hers.submit("/account", "/account/password", &fields).await.status, 303);
    let again = app.client().login("alice", "another horse battery staple").await;
    assert!(again.body["user"]["must_change_password"].is_null(), "{}", again.text);
}

async fn the_last_administrator_stays(store: Store) {
    let app = TestApp::start(store).await;
    let (boss, other) = (app.sign_in_admin("boss").await, app.sign_in_admin("other").await);
    for shut in ["disable", "delete"] {
        assert_eq!(act(&app, &boss, "boss", shut).await.problem(), "last-administrator", "{shut}: their own");
    }
    // Of two that unmake each other at once, one succeeds.
    let (one, two) =
        tokio::join!(act(&app, &boss, "other", "unmake-admin"), act(&app, &other, "boss", "unmake-admin"));
    let mut answers = [one.status, two.status];
    answers.sort_unstable();
    assert!([[204, 403], [204, 409]].contains(&answers), "{answers:?}");
    let left = ["boss", "other"];
    let mut admins = 0;
    for name in left {
        admins += u32::from(account(&app, name).await.roles.admin);
    }
    assert_eq!(admins, 1);
    let (name, client) = if one.status == 204 { ("boss", &boss) } else { ("other", &other) };
    assert_eq!(act(&app, client, name, "unmake-admin").await.problem(), "last-administrator");
}

async fn a_deleted_account_leaves_only_its_name(store: Store) {
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    let client = alice_with_a_number(&app).await;
    assert_eq!(act(&app, &boss, "alice", "delete").await.status, 204);
    assert_eq!(act(&app, &boss, "alice", "enable").await.problem(), "not-found");
    let gone = account(&app, "alice").await;
    assert!(gone.password_hash.is_none() && gone.phone.is_none() && gone.deleted_at.is_some());
    assert_eq!(app.services.accounts.last_sign_ins(gone.id).await.unwrap(), []);
    assert_eq!(client.get("/api/v1/session").await.status, 401);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401);
    assert_eq!(app.client().register("alice", PASSWORD).await.problem(), "login-taken");
    let code = app.client().code(NUMBER, "login").await;
    let fresh = enter(&app.client(), NUMBER, &code).await;
    assert_ne!(fresh.body["user"]["id"], gone.id.to_string(), "the number is free again");
    assert_eq!(fresh.status, 200);
}

async fn an_account_is_found_by_the_beginning_of_its_name_and_by_its_number(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    for name in ["adam", "adele", "bea"] {
        app.register(name).await;
    }
    let code = app.client().code(NUMBER, "login").await;
    let numbered = enter(&app.client(), NUMBER, &code).await.body["user"]["login"].clone();
    let found = async |query: &str| {
        let answer = boss.get(&format!("/api/v1/admin/accounts?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        let accounts = answer.body["accounts"].as_array().unwrap();
        let mut names: Vec<_> =
            accounts.iter().map(|account| account["login"].as_str().unwrap().to_owned()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(found("login=ad").await, ["adam", "adele"]);
    assert_eq!(found("login=%25").await, Vec::<String>::new());
    assert_eq!(found("phone=138%200013%208000").await, [numbered.as_str().unwrap()]);
    let first = boss.get("/api/v1/admin/accounts?limit=2").await;
    let next = first.body["next"].as_str().unwrap().to_owned();
    let second = boss.get(&format!("/api/v1/admin/accounts?limit=200&after={next}")).await;
    assert_eq!(second.body["accounts"].as_array().unwrap().len(), 3);
    let page = boss.submit("/admin/accounts", "/admin/accounts", &[("asked", "AD")]).await;
    assert_eq!(page.status, 200);
    assert!(page.text.contains("adam") && page.text.contains("adele") && !page.text.contains(">bea<"));
    let filtered = [("asked", "ad"), ("role", "admin")];
    let page = boss.submit("/admin/accounts", "/admin/accounts", &filtered).await;
    assert!(!page.text.contains(">adam<"), "a name among those that the filters leave");
    let listed = boss.submit("/admin/accounts", "/admin/accounts", &[("asked", ""), ("role", "admin")]).await;
    assert_eq!((listed.status, listed.header("location")), (303, "/admin/accounts?role=admin"));
}

async fn the_page_does_what_it_says_with_a_reason(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let page = format!("/admin/accounts/{}", account(&app, "alice").await.id);
    let target = format!("{page}/disable");
    let refused = boss.submit(&page, &target, &[("reason", " ")]).await;
    assert_eq!(refused.status, 422, "{}", refused.text);
    assert!(account(&app, "alice").await.disabled_at.is_none());
    let done = boss.submit(&page, &target, &[("reason", "left the company")]).await;
    assert_eq!((done.status, done.header("location")), (303, page.as_str()));
    assert!(account(&app, "alice").await.disabled_at.is_some());
    let acts = acts(&app).await;
    assert_eq!(acts[0].detail.as_deref(), Some(r#"{"reason":"left the company"}"#));
    assert!(boss.get(&page).await.text.contains("Disabled"));
    assert_eq!(boss.get("/admin/accounts/0123").await.status, 404);
}

async fn an_account_is_deleted_on_the_page_only_by_its_name(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let page = format!("/admin/accounts/{}", account(&app, "alice").await.id);
    let target = format!("{page}/delete");
    let shown = boss.get(&page).await.text;
    assert!(shown.contains("To delete it, type its name: alice"), "{shown}");
    assert_eq!(shown.matches("name=\"account_name\"").count(), 1, "only what cannot be undone asks for it");
    for wrong in ["", " ", "alic", "boss", "alice alice", "<b>"] {
        let refused = boss.submit(&page, &target, &[("reason", "left"), ("account_name", wrong)]).await;
        assert_eq!(refused.status, 422, "{wrong}: {}", refused.text);
        assert!(
            refused.text.contains("This is not the name") || refused.text.contains("this is not the name")
        );
    }
    assert_eq!(boss.submit(&page, &target, &[("reason", "left")]).await.status, 422);
    assert!(account(&app, "alice").await.deleted_at.is_none());
    let fields = [("reason", "left"), ("account_name", " Alice ")];
    let done = boss.submit(&page, &target, &fields).await;
    assert_eq!((done.status, done.header("location")), (303, "/admin/accounts"), "{}", done.text);
    assert!(account(&app, "alice").await.deleted_at.is_some());
}

async fn a_session_by_code_becomes_no_administrators(store: Store) {
    let app = TestApp::on(store).without(&["sms-phone"]).start().await;
    let boss = app.sign_in_admin("boss").await;
    alice_with_a_number(&app).await;
    let by_code = app.client();
    let code = by_code.code(NUMBER, "login").await;
    assert_eq!(enter(&by_code, NUMBER, &code).await.status, 200);
    assert_eq!(act(&app, &boss, "alice", "make-admin").await.status, 204);
    assert_eq!(by_code.get("/api/v1/admin/accounts").await.status, 401);
    assert_eq!(signed_in(&app, "alice").await.get("/api/v1/admin/accounts").await.status, 200);
}

async fn a_number_that_was_on_its_way_does_not_survive_a_change(store: Store) {
    use gatehouse::accounts::{AccountAct, RecipientSet};
    let app = TestApp::start(store).await;
    let accounts = &app.services.accounts;
    let phone = gatehouse::sms::Phone::parse(NUMBER, "CN").unwrap();
    for (name, change) in [("alice", AccountAct::RequireNewPassword), ("bob", AccountAct::Delete)] {
        app.register(name).await;
        let verified = account(&app, name).await;
        accounts.change(verified.id, change, false).await.unwrap();
        assert_eq!(accounts.set_phone(&verified, &phone).await.unwrap(), RecipientSet::Gone, "{name}");
        assert_eq!(account(&app, name).await.phone, None);
    }
}

async fn groups_of(app: &TestApp, name: &str) -> String {
    let id = account(app, name).await.id;
    app.services.accounts.groups(id).await.unwrap().to_string()
}

async fn groups_are_given_as_a_whole_and_end_with_the_account(store: Store) {
    let app = TestApp::start(store).await;
    let (boss, id) = (app.sign_in_admin("boss").await, {
        app.register("alice").await;
        account(&app, "alice").await.id
    });
    let hers = signed_in(&app, "alice").await;
    let path = format!("/api/v1/admin/accounts/{id}/groups");
    let put = async |groups: serde_json::Value| {
        let body = json!({ "groups": groups, "reason": "a test" });
        let request = boss.http.put(format!("{}{path}", boss.url)).json(&body);
        Answer::read(request.send().await.unwrap()).await
    };
    assert_eq!(put(json!(["staff", "on-call", "staff"])).await.status, 204);
    assert_eq!(boss.get(&path).await.body, json!({ "groups": ["on-call", "staff"] }));
    assert_eq!(put(json!(["on-call", "2026"])).await.status, 204);
    assert_eq!(groups_of(&app, "alice").await, "2026,on-call");
    for wrong in [json!(["Staff"]), json!(["on-call", "a,b"]), json!(vec!["x".repeat(65)]), json!([""])] {
        let answer = put(wrong.clone()).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{wrong}");
        assert_eq!(answer.body["errors"][0]["field"], "groups");
    }
    assert_eq!(groups_of(&app, "alice").await, "2026,on-call", "all or none");
    assert_eq!(hers.get("/api/v1/session").await.status, 200, "her session goes on");
    assert_eq!(hers.get(&path).await.status, 403, "she does not read it");
    assert_eq!(
        acts(&app).await.iter().filter(|act| act.name.as_deref() == Some("account-groups")).count(),
        2
    );
    assert_eq!(act(&app, &boss, "alice", "delete").await.status, 204);
    assert_eq!(app.services.accounts.groups(id).await.unwrap().to_string(), "");
    assert_eq!(put(json!(["staff"])).await.status, 404);
}

async fn groups_are_given_on_the_page(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    app.register("alice").await;
    let page = format!("/admin/accounts/{}", account(&app, "alice").await.id);
    let target = format!("{page}/groups");
    let wrong = boss.submit(&page, &target, &[("groups", "staff <b>Ops"), ("reason", "a test")]).await;
    assert_eq!(wrong.status, 422);
    assert!(wrong.text.contains("&#60;b&#62;Ops is not the name of a group"), "{}", wrong.text);
    assert!(wrong.text.contains("value=\"staff &#60;b&#62;Ops\""), "what was typed stays");
    let missing = boss.submit(&page, &target, &[("groups", "staff"), ("reason", " ")]).await;
    assert_eq!((missing.status, missing.text.contains("reason-groups-error")), (422, true));
    let done =
        boss.submit(&page, &target, &[("groups", "staff, on-call  staff"), ("reason", "a test")]).await;
    assert_eq!(done.status, 303);
    assert_eq!(groups_of(&app, "alice").await, "on-call,staff");
    assert!(boss.get(&page).await.text.contains("value=\"on-call staff\""));
    assert_eq!(
        app.client().post(&target, &[("groups", "staff"), ("reason", "x")]).await.status,
        303,
        "a stranger"
    );
    assert_eq!(groups_of(&app, "alice").await, "on-call,staff");
}
