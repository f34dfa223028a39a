//! Creating an account.

use std::time::Duration;

use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    a_new_account_is_signed_in,
    a_taken_name_is_a_conflict_in_every_spelling,
    each_field_at_fault_is_named,
    registrations_of_one_address_are_limited,
    of_fifty_who_register_one_name_at_once_one_gets_it,
    the_page_registers_and_leads_on,
    every_mistake_is_told_at_once,
);

async fn a_new_account_is_signed_in(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let answer = client.register("Alice", PASSWORD).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    assert_eq!(answer.body["user"]["login"], "alice");
    assert_eq!(answer.body["user"]["roles"], serde_json::json!(["user"]));
    let session = client.get("/api/v1/session").await;
    assert_eq!((session.status, &session.body), (200, &answer.body));
    assert_eq!(app.client().login("alice", PASSWORD).await.body, answer.body);
}

async fn a_taken_name_is_a_conflict_in_every_spelling(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    for login in ["alice", "ALICE", "ａｌｉｃｅ"] {
        let client = app.client();
        let answer = client.register(login, PASSWORD).await;
        assert_eq!((answer.status, answer.problem()), (409, "login-taken"));
        assert!(answer.cookie("gh_session").is_none());
        assert_eq!(client.get("/api/v1/session").await.status, 401);
    }
}

async fn each_field_at_fault_is_named(store: Store) {
    let app = TestApp::start(store).await;
    for (login, password, fields) in [
        ("", PASSWORD, vec!["login"]),
        ("a b", PASSWORD, vec!["login"]),
        ("alice@example.com", PASSWORD, vec!["login"]),
        (&"a".repeat(65), PASSWORD, vec!["login"]),
        ("alice", "", vec!["password"]),
        ("alice", "short", vec!["password"]),
        ("alice", "passwordpassword", vec!["password"]),
        ("alice", "alicealicealicealice", vec!["password"]),
        ("alice", &"x".repeat(1025), vec!["password"]),
        ("", "", vec!["login", "password"]),
    ] {
        let answer = app.client().register(login, password).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{login:?}");
        let errors = answer.body["errors"].as_array().unwrap();
        let named: Vec<_> = errors.iter().map(|error| error["field"].as_str().unwrap()).collect();
        assert_eq!(named, fields);
        assert!(errors.iter().all(|error| error["message"].as_str().unwrap().len() > 10));
        assert!(password.len() < 10 || !answer.text.contains(password));
    }
    assert_eq!(app.client().login("alice", PASSWORD).await.status, 401, "none of them was made");
}

async fn registrations_of_one_address_are_limited(store: Store) {
    let app = TestApp::on(store)
        .limit("register-address", &[max(1).per("1m").captcha(), max(2).per("1h")])
        .start()
        .await;
    let client = app.client();
    assert_eq!(client.register("first", PASSWORD).await.status, 201);
    let refused = client.register("second", PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (403, "captcha-required"));
    let id = refused.body["captcha"]["id"].as_str().unwrap();
    let captcha = serde_json::json!({ "id": id, "answer": ANSWER });
    let body = serde_json::json!({ "login": "second", "password": PASSWORD, "captcha": captcha });
    assert_eq!(client.call("/register", body).await.status, 201);
    for login in ["third", "first"] {
        let refused = client.register(login, PASSWORD).await;
        assert_eq!(
            (refused.status, refused.problem()),
            (429, "throttled"),
            "a taken name is not told either"
        );
        assert_eq!(refused.body["limit"], "register-address");
        assert_eq!(refused.header("retry-after"), "3600");
    }
    app.advance(Duration::from_secs(3600));
    assert_eq!(client.register("third", PASSWORD).await.status, 201);
}

async fn of_fifty_who_register_one_name_at_once_one_gets_it(store: Store) {
    let app = TestApp::start(store).await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..50 {
        let client = app.client();
        // Half of them with another password: the winner's password opens the account.
        let password = format!("{PASSWORD} {}", number % 2);
        tasks.spawn(async move { (client.register("alice", &password).await, password) });
    }
    let answers = tasks.join_all().await;
    let won: Vec<_> = answers.iter().filter(|(answer, _)| answer.status == 201).collect();
    let lost = answers.iter().filter(|(answer, _)| answer.status == 409).count();
    assert_eq!((won.len(), lost), (1, 49));
    for number in 0..2 {
        let password = format!("{PASSWORD} {number}");
        let expected = if won[0].1 == password { 200 } else { 401 };
        assert_eq!(app.client().login("alice", &password).await.status, expected);
    }
}

async fn the_page_registers_and_leads_on(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let weak = [("login", "alice"), ("password", "too-short-9")];
    let refused = client.submit("/register", "/register", &weak).await;
    assert_eq!(refused.status, 422);
    assert!(refused.text.contains("value=\"alice\"") && !refused.text.contains("too-short-9"));
    let fields = [("login", "alice"), ("password", PASSWORD), ("next", "/account?tab=1")];
    let made = client.submit("/register", "/register", &fields).await;
    assert_eq!((made.status, made.header("location")), (303, "/account?tab=1"));
    assert_eq!(client.get("/account").await.status, 200);
    let taken = app.client().submit("/register", "/register", &fields).await;
    assert_eq!(taken.status, 409);
    assert!(!taken.text.contains(PASSWORD));
}

async fn every_mistake_is_told_at_once(store: Store) {
    let app = TestApp::start(store).await;
    let client = app.client();
    let named = |answer: &crate::support::app::Answer| {
        let errors = answer.body["errors"].as_array().unwrap().iter();
        errors.map(|error| error["field"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let body = serde_json::json!({ "login": "a b", "password": "short", "phone": "12", "code": "1" });
    let refused = client.call("/register", body).await;
    assert_eq!((refused.status, refused.problem()), (422, "invalid-input"), "{}", refused.text);
    assert_eq!(named(&refused), ["login", "phone", "code", "password"]);
    let body = serde_json::json!({ "login": "a b", "password": "short", "phone": "12" });
    assert_eq!(named(&client.call("/register", body).await), ["login", "phone", "code", "password"]);
    // A number alone is a problem of its own.
    let body = serde_json::json!({ "login": "ab", "password": PASSWORD, "phone": "12", "code": "123456" });
    assert_eq!(client.call("/register", body).await.problem(), "invalid-phone");
    // What only the hashing finds is told together with the name.
    app.register("taken").await;
    let both = client.register("taken", "passwordpassword").await;
    assert_eq!((both.status, named(&both)), (422, vec!["login".to_owned(), "password".to_owned()]));

    let good_until = (app.clock.now().seconds() + 300).to_string();
    let fields = [
        ("login", "a b"),
        ("password", "short"),
        ("phone", "12"),
        ("code", "1"),
        ("good_until", &good_until),
    ];
    let page = client.submit("/register", "/register", &fields).await;
    assert_eq!(page.status, 422);
    for field in ["login", "phone", "code", "password"] {
        assert!(page.text.contains(&format!("id=\"{field}-error\"")), "{field}: {}", page.text);
    }
    // A number is confirmed first; the password is asked for once, together with the code.
    let fields = [("login", "lin"), ("phone", "13800138000"), ("password", "")];
    let sent = client.submit("/register", "/register", &fields).await;
    assert!(sent.status == 200 && sent.text.contains("id=\"code\""), "{}", sent.text);
    let missing = client.submit("/register", "/register", &[("login", "lin"), ("password", "")]).await;
    assert!(missing.status == 422 && missing.text.contains("id=\"password-error\""));
}
