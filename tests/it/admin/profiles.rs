//! Names and e-mail addresses of accounts: who sets them, and where they show.

use gatehouse::accounts::{AccountId, Profile, Username};
use serde_json::{Value, json};

use super::acts;
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

on_both_stores!(
    a_profile_is_set_as_a_whole_and_ends_with_the_account,
    a_profile_that_no_application_could_be_told_is_refused,
    a_profile_is_set_on_the_page,
    an_owner_sees_the_profile_and_changes_it_nowhere,
);

async fn id(app: &TestApp, name: &str) -> AccountId {
    app.services.accounts.find(&Username::parse(name).unwrap()).await.unwrap().unwrap().id
}

async fn registered(app: &TestApp, name: &str) -> AccountId {
    app.register(name).await;
    id(app, name).await
}

async fn profile(app: &TestApp, id: AccountId) -> Profile {
    app.services.profiles.of(id).await.unwrap()
}

async fn put(boss: &Client, id: AccountId, body: Value) -> Answer {
    let path = format!("/api/v1/admin/accounts/{id}/profile");
    Answer::read(boss.http.put(format!("{}{path}", boss.url)).json(&body).send().await.unwrap()).await
}

async fn a_profile_is_set_as_a_whole_and_ends_with_the_account(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    let (alice, bea) = (registered(&app, "alice").await, registered(&app, "bea").await);
    let hers = app.client();
    assert_eq!(hers.login("alice", PASSWORD).await.status, 200);
    let whole = json!({ "email": "Ada@Example.org", "email_verified": true, "name": "王小明" });
    for account in [alice, bea] {
        let set = put(&boss, account, whole.clone()).await;
        assert_eq!(set.status, 204, "an address may be of two: {}", set.text);
    }
    assert_eq!(put(&boss, alice, whole.clone()).await.status, 204, "it is so already");
    assert_eq!(profile(&app, alice).await.email_text(), Some("Ada@Example.org"));
    let shown = boss.get(&format!("/api/v1/admin/accounts/{alice}")).await.body;
    for field in ["email", "email_verified", "name"] {
        assert_eq!(shown[field], whole[field], "{field}");
    }
    let listed = boss.get("/api/v1/admin/accounts").await;
    assert!(!listed.text.contains("mail") && !listed.text.contains("王"), "{}", listed.text);
    // What is not named goes.
    assert_eq!(put(&boss, alice, json!({ "name": "Ada", "email": null })).await.status, 204);
    let shown = boss.get(&format!("/api/v1/admin/accounts/{alice}")).await.body;
    assert_eq!(
        (&shown["name"], shown.get("email"), shown.get("email_verified")),
        (&json!("Ada"), None, None)
    );
    assert_eq!(put(&boss, alice, json!({})).await.status, 204);
    assert_eq!(profile(&app, alice).await, Profile::default());
    assert_eq!(profile(&app, bea).await.email_text(), Some("Ada@Example.org"));
    assert_eq!(hers.get("/api/v1/session").await.status, 200, "her session goes on");
    assert_eq!(put(&hers, alice, json!({ "email": "boss@example.org" })).await.problem(), "forbidden");
    let acts = acts(&app).await;
    let details: Vec<_> = acts
        .iter()
        .filter(|act| act.name.as_deref() == Some("account-profile"))
        .map(|act| act.detail.as_deref().unwrap())
        .collect();
    let (all, name) = (r#"{"fields":"email, email_verified, name"}"#, r#"{"fields":"name"}"#);
    assert_eq!(details, [name, all, all, all], "the fields, and not what they hold");
    let gone = json!({ "reason": "a test" });
    assert_eq!(boss.call(&format!("/admin/accounts/{bea}/delete"), gone).await.status, 204);
    assert_eq!(profile(&app, bea).await, Profile::default());
    assert_eq!(put(&boss, bea, whole).await.status, 404);
}

async fn a_profile_that_no_application_could_be_told_is_refused(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    let alice = registered(&app, "alice").await;
    for (body, field) in [
        (json!({ "email": "" }), "email"),
        (json!({ "email": "ada" }), "email"),
        (json!({ "email": " ada@example.org" }), "email"),
        (json!({ "email": "ada@example.org\r\nRemote-User: boss" }), "email"),
        (json!({ "email": "ada@example.org, eve@example.org" }), "email"),
        (json!({ "email": format!("{}@example.org", "a".repeat(243)) }), "email"),
        (json!({ "email_verified": true, "name": "Ada" }), "email_verified"),
        (json!({ "name": "" }), "name"),
        (json!({ "name": "Ada\nRemote-User: boss" }), "name"),
        (json!({ "name": "\u{202e}adA" }), "name"),
        (json!({ "name": "a".repeat(129) }), "name"),
    ] {
        let refused = put(&boss, alice, body.clone()).await;
        assert_eq!((refused.status, refused.problem()), (422, "invalid-input"), "{body}: {}", refused.text);
        assert_eq!(refused.body["errors"][0]["field"], field, "{body}");
    }
    for body in
        [json!({ "email": 7 }), json!({ "email_verified": "yes" }), json!({ "phone": "1" }), json!([])]
    {
        let refused = put(&boss, alice, body.clone()).await;
        assert!([400, 422].contains(&refused.status), "{body}: {}", refused.text);
    }
    assert_eq!(profile(&app, alice).await, Profile::default());
}

async fn a_profile_is_set_on_the_page(store: Store) {
    let app = TestApp::start(store).await;
    let boss = app.sign_in_admin("boss").await;
    let alice = registered(&app, "alice").await;
    let page = format!("/admin/accounts/{alice}");
    let target = format!("{page}/profile");
    let send = async |fields: &[(&str, &str)]| boss.submit(&page, &target, fields).await;
    for (fields, wrong) in [
        ([("email", "<b>@x"), ("name", "Ada"), ("reason", "a test")], "email-error"),
        ([("email", "a@b"), ("name", "A\u{202e}"), ("reason", "a test")], "name-error"),
        ([("email_verified", "on"), ("name", "Ada"), ("reason", "a test")], "email_verified-error"),
        ([("email", "a@b"), ("name", "Ada"), ("reason", " ")], "reason-profile-error"),
    ] {
        let refused = send(&fields).await;
        assert_eq!(refused.status, 422, "{wrong}: {}", refused.text);
        for error in ["email-error", "name-error", "email_verified-error", "reason-profile-error"] {
            let shows = refused.text.contains(&format!("id=\"{error}\""));
            assert_eq!(shows, error == wrong, "{error} for {wrong}: {}", refused.text);
        }
        let typed = if wrong == "email-error" { "value=\"&#60;b&#62;@x\"" } else { "name=\"email\"" };
        assert!(refused.text.contains(typed), "what was typed stays: {}", refused.text);
    }
    assert_eq!(profile(&app, alice).await, Profile::default());
    let fields =
        [("email", " ada@example.org "), ("email_verified", "on"), ("name", "Ada <L>"), ("reason", "a test")];
    let done = send(&fields).await;
    assert_eq!((done.status, done.header("location")), (303, &*format!("{page}#profile-of")));
    let whole = Profile::parse(Some("ada@example.org"), true, Some("Ada <L>")).unwrap();
    assert_eq!(profile(&app, alice).await, whole);
    let shown = boss.get(&page).await.text;
    assert!(shown.contains("<bdi>Ada &#60;L&#62;</bdi>") && shown.contains(">verified<"), "{shown}");
    assert!(shown.contains("value=\"ada@example.org\"") && shown.contains("value=\"on\" checked"), "{shown}");
    let acts = acts(&app).await;
    assert_eq!(
        acts[0].detail.as_deref(),
        Some(r#"{"fields":"email, email_verified, name","reason":"a test"}"#)
    );
    let events = boss.get("/admin/events?action=admin").await.text;
    assert!(events.contains("Name or e-mail address changed"), "{events}");
    let fields = [("name", "Eve"), ("reason", "x")];
    assert_eq!(app.client().post(&target, &fields).await.status, 303, "a stranger");
    assert_eq!(profile(&app, alice).await, whole);
    assert_eq!(send(&[("email", ""), ("name", " "), ("reason", "a test")]).await.status, 303);
    assert_eq!(profile(&app, alice).await, Profile::default());
}

async fn an_owner_sees_the_profile_and_changes_it_nowhere(store: Store) {
    let app = TestApp::start(store).await;
    let alice = registered(&app, "alice").await;
    let hers = app.client();
    assert_eq!(hers.login("alice", PASSWORD).await.status, 200);
    let said = "Administrators set your name";
    assert!(!hers.get("/account").await.text.contains(said));
    let whole = Profile::parse(Some("ada@example.org"), false, Some("Ada <L>")).unwrap();
    app.services.profiles.set(alice, &whole, false).await.unwrap();
    let page = hers.get("/account").await.text;
    assert!(
        page.contains("Ada &#60;L&#62;") && page.contains("ada@example.org") && page.contains(said),
        "{page}"
    );
    assert!(!page.contains("name=\"email\"") && !page.contains("name=\"name\""), "{page}");
    let file = hers.submit("/account/export", "/account/export", &[("current_password", PASSWORD)]).await;
    let account = &file.body["account"];
    assert_eq!(
        (&account["email"], &account["email_verified"], &account["name"]),
        (&json!("ada@example.org"), &json!(false), &json!("Ada <L>"))
    );
    let target = format!("/admin/accounts/{alice}/profile");
    let token = hers.get("/account").await.csrf_token();
    let fields = [("csrf_token", &*token), ("email", "boss@example.org"), ("reason", "x")];
    assert_eq!(hers.post(&target, &fields).await.status, 403);
    assert_eq!(profile(&app, alice).await, whole);
}
