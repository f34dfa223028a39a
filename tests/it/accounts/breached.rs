//! Lost passwords: refused whichever way one is set, and told to whoever has one.

use std::path::{Path, PathBuf};

use gatehouse::audit::{Action, EventFilter};
use gatehouse::login::{BuildOptions, build_breached};
use serde_json::json;
use tokio::task::JoinSet;

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

/// Long and odd enough, but for the list.
const LOST: &str = "quiet lanterns drift above marble";
const OTHER: &str = "another one that is quite long";
const WHY: &str = "a published list of lost passwords";
const NUMBER: &str = "+8613812345678";

on_both_stores!(
    every_way_to_set_a_password_refuses_a_lost_one,
    a_lost_password_that_signs_in_is_told,
    of_many_sign_ins_at_once_with_a_lost_password_one_is_told,
    a_lost_password_has_to_be_changed_where_that_is_asked_for,
    a_file_that_cannot_be_read_changes_nothing_and_is_told,
    one_password_typed_on_two_keyboards_is_one_entry,
);

pub fn list(place: &Path, words: &[&str]) {
    let source = place.with_extension("txt");
    std::fs::write(&source, words.join("\n")).unwrap();
    build_breached(&[source], place, &BuildOptions { at_least: 1 }, |_| {}).unwrap();
}

/// An app, and where its list is to be: there is none yet.
async fn app(store: Store, more: &str) -> (TestApp, tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("lost.bin");
    let limits = ["login-address", "login-account", "register-address", "sms-phone", "sms-address"];
    let setup = TestApp::on(store).without(&limits);
    let toml = format!("[login]\nbreached = {:?}\n{more}\n", place.to_str().unwrap());
    (setup.file_more(&toml).start().await, folder, place)
}

fn follow(app: &TestApp) -> Option<String> {
    let list = app.services.hasher.breached();
    list.follow(&app.services.live.snapshot().login);
    list.refused()
}

async fn told(app: &TestApp) -> usize {
    app.services.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::PasswordBreached], ..EventFilter::default() };
    app.services.audit.log().page(&filter, None, 10).await.unwrap().entries.len()
}

fn refused(answer: &Answer, way: &str) {
    assert_eq!(answer.status, 422, "{way}: {}", answer.text);
    assert!(answer.text.contains(WHY) || answer.text.contains("password-breached"), "{way}: {}", answer.text);
    assert!(!answer.text.contains(LOST), "{way}");
}

async fn change(client: &Client, current: &str, new: &str) -> Answer {
    let fields = [("current_password", current), ("new_password", new)];
    client.submit("/account", "/account/password", &fields).await
}

async fn every_way_to_set_a_password_refuses_a_lost_one(store: Store) {
    let (app, _folder, place) = app(store, "").await;
    list(&place, &[LOST, "something else"]);
    assert_eq!(follow(&app), None);
    let client = app.client();
    refused(&client.register("alice", LOST).await, "POST /api/v1/register");
    let form = [("login", "alice"), ("password", LOST)];
    refused(&client.submit("/register", "/register", &form).await, "POST /register");
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    refused(&change(&client, PASSWORD, LOST).await, "POST /account/password");
    // By an invitation, and by a code to the number of its account.
    let boss = app.sign_in_admin("boss").await;
    let made = boss.call("/admin/accounts", json!({ "login": "bob", "phone": NUMBER })).await;
    let token = made.body["link"].as_str().unwrap().split_once("/welcome/").unwrap().1.to_owned();
    let guest = app.client();
    let welcome = json!({ "token": token, "new_password": LOST });
    refused(&guest.call("/welcome", welcome).await, "POST /api/v1/welcome");
    let path = format!("/welcome/{token}");
    refused(&guest.submit(&path, &path, &[("password", LOST)]).await, "POST /welcome/{token}");
    let code = guest.code(NUMBER, "reset").await;
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": LOST });
    refused(&guest.call("/password/reset", reset).await, "POST /api/v1/password/reset");
    // Nothing was used up by that.
    let reset = json!({ "phone": NUMBER, "code": code, "new_password": PASSWORD });
    assert_eq!(guest.call("/password/reset", reset).await.status, 204);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

async fn a_lost_password_that_signs_in_is_told(store: Store) {
    let (app, _folder, place) = app(store, "").await;
    assert_eq!(app.client().register("alice", LOST).await.status, 201, "there is no list yet");
    app.register("bob").await;
    list(&place, &[LOST]);
    assert_eq!(follow(&app), None);
    let client = app.client();
    let user = |answer: Answer| answer.body["user"].clone();
    let wrong = client.login("bob", LOST).await;
    assert_eq!((wrong.status, told(&app).await), (401, 0), "a wrong one is not looked for");
    let hers = user(client.login("alice", LOST).await);
    assert_eq!((&hers["password_breached"], &hers["must_change_password"]), (&json!(true), &json!(null)));
    assert!(client.get("/account").await.text.contains(WHY));
    assert_eq!(user(client.get("/api/v1/session").await)["password_breached"], true);
    assert_eq!(told(&app).await, 1);
    client.login("alice", LOST).await;
    assert_eq!(told(&app).await, 1, "once");
    assert!(user(app.client().login("bob", PASSWORD).await)["password_breached"].is_null());
    let boss = app.sign_in_admin("boss").await;
    let found = boss.get("/api/v1/admin/accounts?login=alice").await;
    assert_eq!(found.body["accounts"][0]["password_breached"], true, "{}", found.text);
    assert_eq!(change(&client, LOST, OTHER).await.status, 303);
    assert!(!client.get("/account").await.text.contains(WHY));
    list(&place, &[OTHER]);
    follow(&app);
    assert_eq!(user(client.login("alice", OTHER).await)["password_breached"], true);
    // What was lost stays so, whatever the next list has.
    list(&place, &["something else"]);
    follow(&app);
    assert_eq!(user(client.login("alice", OTHER).await)["password_breached"], true);
}

async fn of_many_sign_ins_at_once_with_a_lost_password_one_is_told(store: Store) {
    let (app, _folder, place) = app(store, "").await;
    assert_eq!(app.client().register("alice", LOST).await.status, 201);
    list(&place, &[LOST]);
    follow(&app);
    let mut tasks = JoinSet::new();
    for client in std::iter::repeat_with(|| app.client()).take(8) {
        tasks.spawn(async move { client.login("alice", LOST).await });
    }
    for answer in tasks.join_all().await {
        assert_eq!(answer.body["user"]["password_breached"], true, "{}", answer.text);
    }
    assert_eq!(told(&app).await, 1);
}

async fn a_lost_password_has_to_be_changed_where_that_is_asked_for(store: Store) {
    let (app, _folder, place) = app(store, "breached_then = \"change\"").await;
    assert_eq!(app.client().register("alice", LOST).await.status, 201);
    list(&place, &[LOST]);
    follow(&app);
    let client = app.client();
    assert_eq!(client.login("alice", LOST).await.body["user"]["must_change_password"], true);
    let others = client.get("/account/factors").await;
    assert_eq!((others.status, others.header("location")), (303, "/account?next=/account/factors"));
    let page = client.get("/account").await.text;
    assert!(page.contains(WHY) && page.contains("Change it below to go on."), "{page}");
    assert!(!page.contains("one-time password"));
    refused(&change(&client, LOST, LOST).await, "the same one again");
    assert_eq!(change(&client, LOST, OTHER).await.status, 303);
    assert!(client.login("alice", OTHER).await.body["user"]["must_change_password"].is_null());
}

async fn a_file_that_cannot_be_read_changes_nothing_and_is_told(store: Store) {
    let (app, _folder, place) = app(store, "").await;
    let boss = app.sign_in_admin("boss").await;
    let warned = "The list of lost passwords cannot be read";
    assert!(follow(&app).unwrap().contains("lost.bin"));
    assert!(boss.get("/admin").await.text.contains(warned));
    list(&place, &[LOST]);
    assert_eq!(follow(&app), None);
    assert!(!boss.get("/admin").await.text.contains(warned));
    let whole = std::fs::read(&place).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for bad in [&whole[..whole.len() - 1], b"", b"no filter at all", &flipped] {
        std::fs::write(&place, bad).unwrap();
        assert!(follow(&app).is_some());
        assert!(boss.get("/admin").await.text.contains(warned));
        refused(&app.client().register("alice", LOST).await, "what was read before");
    }
    std::fs::remove_file(&place).unwrap();
    assert!(follow(&app).is_some());
    refused(&app.client().register("alice", LOST).await, "what was read before");
}

async fn one_password_typed_on_two_keyboards_is_one_entry(store: Store) {
    let (app, _folder, place) = app(store, "").await;
    list(&place, &["café au lait noir et sans sucre"]);
    follow(&app);
    for typed in ["cafe\u{301} au lait noir et sans sucre", "café\u{3000}au lait noir et sans sucre"] {
        let answer = app.client().register("alice", typed).await;
        assert_eq!(answer.status, 422, "{typed}: {}", answer.text);
    }
}
