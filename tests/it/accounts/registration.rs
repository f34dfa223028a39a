//! Creating an account.

use std::time::Duration;

use serde_json::json;

use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    a_new_account_is_signed_in,
    a_taken_name_is_a_conflict_in_every_spelling,
    a_greek_name_is_one_with_either_sigma,
    each_field_at_fault_is_named,
    registrations_of_one_address_are_limited,
    two_hundred_at_once_have_their_neighbour_challenged_and_not_refused,
    a_form_with_a_weak_password_counts_nothing_and_tells_nothing_of_its_name,
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

async fn a_greek_name_is_one_with_either_sigma(store: Store) {
    let app = TestApp::start(store).await;
    app.register("σίσυφος").await;
    for login in ["σίσυφος", "ΣΊΣΥΦΟΣ", "σίσυφοσ"] {
        assert_eq!(app.client().register(login, PASSWORD).await.problem(), "login-taken", "{login}");
        let signed_in = app.client().login(login, PASSWORD).await;
        assert_eq!((signed_in.status, &signed_in.body["user"]["login"]), (200, &"σίσυφος".into()), "{login}");
    }
    // A name that nobody has is counted in the same way, so that the count tells nothing.
    for [first, other] in [["σίσυφος", "ΣΊΣΥΦΟΣ"], ["οδυσσεύς", "ΟΔΥΣΣΕΎΣ"]] {
        for login in [first, other, first] {
            assert_eq!(app.client().login(login, "a wrong password").await.status, 401, "{login}");
        }
        assert_eq!(
            app.client().login(other, "a wrong password").await.problem(),
            "captcha-required",
            "{other}"
        );
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

/// With the limits as they come.
async fn two_hundred_at_once_have_their_neighbour_challenged_and_not_refused(store: Store) {
    const FREE: usize = 10;
    let app = TestApp::start(store).await;
    let attack = async |round: usize| {
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..200 {
            let client = app.client();
            // Every other name is taken once the first one has it.
            let login = if number % 2 == 0 { "mallory".to_owned() } else { format!("m{round}-{number}") };
            tasks.spawn(async move { client.register(&login, PASSWORD).await });
        }
        tasks.join_all().await
    };
    let mut admitted = 0;
    for round in 0..3 {
        for answer in attack(round).await {
            match (answer.status, answer.problem()) {
                (201, _) | (409, "login-taken") => admitted += 1,
                refused => assert_eq!(refused, (403, "captcha-required"), "{}", answer.text),
            }
        }
        app.advance(Duration::from_secs(60));
    }
    assert_eq!(admitted, FREE);
    for number in 0..2 * FREE {
        let neighbour = app.client();
        let refused = neighbour.register(&format!("n{number}"), PASSWORD).await;
        assert_eq!((refused.status, refused.problem()), (403, "captcha-required"));
        let captcha = json!({ "id": refused.body["captcha"]["id"], "answer": ANSWER });
        let body = json!({ "login": format!("n{number}"), "password": PASSWORD, "captcha": captcha });
        assert_eq!(neighbour.call("/register", body).await.status, 201, "neighbour {number}");
    }
}

/// With the limits as they come.
async fn a_form_with_a_weak_password_counts_nothing_and_tells_nothing_of_its_name(store: Store) {
    const WEAK: &str = "passwordpassword";
    let app = TestApp::start(store).await;
    app.register("taken").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let client = app.client();
        let login = ["taken", "admin", "TAKEN", "free"][number % 4];
        tasks.spawn(async move { client.register(login, WEAK).await });
    }
    let answers = tasks.join_all().await;
    let of_nobody = app.client().register("nobody", WEAK).await;
    assert_eq!(of_nobody.status, 422);
    for answer in answers {
        // While ten are in flight the others are challenged.
        match answer.status {
            403 => assert_eq!(answer.problem(), "captcha-required"),
            _ => assert_eq!((answer.status, &answer.body), (422, &of_nobody.body)),
        }
    }
    for _ in 0..30 {
        assert_eq!(app.client().register("taken", WEAK).await.body, of_nobody.body);
    }
    let page = app.client();
    for login in ["taken", "free"] {
        let shown = page.submit("/register", "/register", &[("login", login), ("password", WEAK)]).await;
        assert_eq!((shown.status, shown.text.contains("is taken")), (422, false), "{login}");
    }
    for number in 1..10 {
        assert_eq!(app.client().register(&format!("n{number}"), PASSWORD).await.status, 201, "{number}");
    }
    assert_eq!(app.client().register("n10", PASSWORD).await.problem(), "captcha-required");
}

async fn of_fifty_who_register_one_name_at_once_one_gets_it(store: Store) {
    let app = TestApp::on(store).without(&["register-address"]).start().await;
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
