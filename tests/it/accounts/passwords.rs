//! Changing a password.

use std::time::Duration;

use gatehouse::accounts::{ShownBy, Username};
use gatehouse::clock::Clock;
use gatehouse::entropy::Entropy;
use gatehouse::login::{BreachedList, HashCaller, HashSettings, Password, PasswordHasher};
use gatehouse::secret::MasterKey;

use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const NEW: &str = "quiet lanterns drift above marble";

on_both_stores!(
    a_changed_password_ends_every_other_session,
    the_current_password_has_to_be_known,
    guesses_at_the_current_password_count_as_sign_ins,
    a_new_password_has_to_be_fit,
);

async fn change(client: &Client, current: &str, new: &str) -> Answer {
    let fields = [("current_password", current), ("new_password", new)];
    let answer = client.submit("/account", "/account/password", &fields).await;
    assert!(current.is_empty() || !answer.text.contains(current), "{}", answer.text);
    assert!(new.is_empty() || !answer.text.contains(new));
    answer
}

async fn signed_in(store: Store) -> (TestApp, Client) {
    let app = TestApp::start(store).await;
    let client = app.client();
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    (app, client)
}

async fn a_changed_password_ends_every_other_session(store: Store) {
    let (app, here) = signed_in(store).await;
    let there = app.client();
    there.login("alice", PASSWORD).await;
    let old_cookie = here.get("/account").await.headers;
    let done = change(&here, PASSWORD, NEW).await;
    assert_eq!((done.status, done.header("location")), (303, "/account"), "{}", done.text);
    assert!(done.cookie("gh_session").is_some(), "a new one: {old_cookie:?}");
    assert_eq!(there.get("/api/v1/session").await.status, 401);
    assert_eq!(here.get("/api/v1/session").await.status, 200);
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401);
    assert_eq!(app.client().login("alice", NEW).await.status, 200);
}

async fn the_current_password_has_to_be_known(store: Store) {
    let (app, client) = signed_in(store).await;
    for current in ["", "a wrong password", NEW] {
        assert_eq!(change(&client, current, "another one that is quite long").await.status, 422, "{current}");
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
}

async fn guesses_at_the_current_password_count_as_sign_ins(store: Store) {
    let app = TestApp::on(store).without(&["login-device"]).start().await;
    let client = app.client();
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    let other = app.client();
    assert_eq!(other.login("alice", "a wrong password").await.status, 401);
    for _ in 0..2 {
        assert_eq!(change(&client, "a wrong password", NEW).await.status, 422);
    }
    let before = app.hashes();
    let refused = change(&client, PASSWORD, NEW).await;
    assert_eq!(refused.status, 403);
    let id = refused.hidden("captcha_id").expect("a challenge");
    assert_eq!(other.login("alice", PASSWORD).await.problem(), "captcha-required", "one window counts both");
    assert_eq!(app.hashes(), before);
    // A challenge for signing in is invalid for this form.
    let for_login = client.challenge().await;
    for (id, status) in [(for_login, 403), (id, 303)] {
        let fields = [
            ("current_password", PASSWORD),
            ("new_password", NEW),
            ("captcha_id", &id),
            ("captcha_answer", ANSWER),
        ];
        assert_eq!(client.submit("/account", "/account/password", &fields).await.status, status);
    }
    assert_eq!(other.login("alice", NEW).await.status, 200);
}

async fn a_new_password_has_to_be_fit(store: Store) {
    let (app, client) = signed_in(store).await;
    for new in ["", "too short", "passwordpassword", "alicealicealice", PASSWORD, &"x".repeat(2000)] {
        assert_eq!(change(&client, PASSWORD, new).await.status, 422, "{new}");
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 200);
    assert_eq!(client.get("/api/v1/session").await.status, 200);
}

/// Nobody waits for it, so it happens a little later.
#[tokio::test]
async fn a_sign_in_renews_a_hash_of_other_parameters() {
    let (app, client) = signed_in(Store::Memory).await;
    let accounts = &app.services.accounts;
    let settings = HashSettings { memory_kib: 32, iterations: 2, ..HashSettings::default() };
    let old = PasswordHasher::new(
        settings,
        BreachedList::default(),
        &MasterKey::from_bytes([1; 32]),
        Clock::System,
        Entropy::Os,
    )
    .unwrap()
    .hash(&HashCaller::OPERATOR, &Password::attempt(PASSWORD).unwrap())
    .await;
    let (old, login) = (old.unwrap(), Username::parse("alice").unwrap());
    let account = accounts.find(&login).await.unwrap().unwrap();
    let shown = ShownBy::Password(account.password_version);
    assert!(accounts.set_password(account.id, &old, shown).await.unwrap().is_some());
    assert_eq!(client.login("alice", "a wrong password").await.status, 401);
    let hash = async || accounts.find(&login).await.unwrap().unwrap().password_hash.unwrap();
    assert_eq!(hash().await, old, "a wrong password renews nothing");
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
    for _ in 0..1000 {
        if hash().await != old {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await; // another thread hashes, which our clock does not move
    }
    assert!(hash().await.as_str().contains("m=64,t=1,p=1"));
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}
