//! The same wrong password again: it asks for a challenge, and blocks nobody.

use std::collections::HashMap;

use gatehouse::accounts::{ImportFile, Username};
use gatehouse::db::Db;
use gatehouse::sms::Phone;
use serde_json::json;
use sqlx::query_scalar;

use super::bursts::burst;
use super::throttling::comparable;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::{Setup, max};

/// What somebody's phone still sends.
const OLD: &str = "the password of last year";

on_both_stores!(
    three_wrong_in_a_minute_ask_for_a_challenge_whatever_was_typed,
    the_hundredth_time_that_an_old_password_comes_its_owner_is_not_blocked,
    twenty_different_ones_block,
    of_many_different_at_once_as_many_are_compared_as_the_rule_allows,
    many_of_the_same_at_once_are_one_guess,
    the_last_three_of_a_source_are_remembered,
    the_same_from_elsewhere_is_a_guess_there,
    a_right_password_is_remembered_nowhere,
    a_name_that_nobody_has_is_answered_alike,
    a_new_password_makes_the_old_guesses_new,
    an_administrator_clears_both_logs,
    a_disabled_password_remembers_what_was_tried_before,
    two_spellings_of_one_password_are_one_guess,
    what_bcrypt_does_not_read_makes_no_other_guess,
);

fn blocks(store: Store, most: u32) -> Setup {
    TestApp::on(store).limit("login-account", &[max(most).per("1h")]).without(&["login-address"])
}

async fn failed(client: &Client, login: &str, password: &str) -> Answer {
    let id = client.challenge().await;
    client.login_with(login, password, &id, ANSWER).await
}

async fn in_a_row(app: &TestApp, login: &str) -> i64 {
    let login = Username::parse(login).unwrap();
    app.services.accounts.find(&login).await.unwrap().unwrap().password_failures
}

async fn three_wrong_in_a_minute_ask_for_a_challenge_whatever_was_typed(store: Store) {
    let app = TestApp::on(store).without(&["login-address"]).start().await;
    app.register("known").await;
    for login in ["known", "nobody"] {
        let client = app.client();
        for required in [false, false, true] {
            let answer = client.login(login, OLD).await;
            assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &json!(required)), "{login}");
        }
        assert_eq!(client.login(login, OLD).await.problem(), "captcha-required");
        assert_eq!(client.login(login, PASSWORD).await.problem(), "captcha-required");
    }
}

async fn the_hundredth_time_that_an_old_password_comes_its_owner_is_not_blocked(store: Store) {
    let app = TestApp::on(store).without(&["login-address", "login-network"]).start().await;
    app.register("known").await;
    let phone = app.client();
    for _ in 0..100 {
        assert_eq!(failed(&phone, "known", OLD).await.status, 401);
    }
    assert_eq!(in_a_row(&app, "known").await, 1, "nor is it one of a hundred");
    assert_eq!(failed(&phone, "known", PASSWORD).await.status, 200);
}

async fn twenty_different_ones_block(store: Store) {
    let app = TestApp::on(store).without(&["login-address", "login-network"]).start().await;
    app.register("known").await;
    for login in ["known", "nobody"] {
        let client = app.client();
        for n in 0..20 {
            let answer = failed(&client, login, &format!("guess number {n}")).await;
            assert_eq!(answer.status, 401, "{login}, {n}: {}", answer.text);
        }
        assert_eq!(failed(&client, login, OLD).await.problem(), "throttled", "{login}");
        assert_eq!(
            failed(&client, login, "guess number 19").await.problem(),
            "throttled",
            "nothing is compared"
        );
    }
}

async fn of_many_different_at_once_as_many_are_compared_as_the_rule_allows(store: Store) {
    let app = blocks(store, 5).start().await;
    app.register("known").await;
    let guesses: Vec<&'static str> = (0..64).map(|n| &*format!("guess number {n}").leak()).collect();
    let before = app.hashes();
    let answers = burst(&app, "known", guesses, 64).await;
    let wrong = answers.iter().filter(|(_, answer)| answer.status == 401).count();
    assert_eq!((wrong, app.hashes() - before), (5, 5));
}

async fn many_of_the_same_at_once_are_one_guess(store: Store) {
    let app = blocks(store, 5).start().await;
    app.register("known").await;
    assert_eq!(app.client().login("known", OLD).await.status, 401);
    let answers = burst(&app, "known", vec![OLD; 64], 64).await;
    for (_, answer) in answers {
        assert_eq!(answer.status, 401, "{}", answer.text);
    }
    assert_eq!(in_a_row(&app, "known").await, 1);
    for n in 0..4 {
        assert_eq!(app.client().login("known", &format!("guess number {n}")).await.status, 401);
    }
    assert_eq!(app.client().login("known", "guess number 4").await.problem(), "throttled", "the sixth guess");
}

async fn the_last_three_of_a_source_are_remembered(store: Store) {
    let app = blocks(store, 20).start().await;
    app.register("known").await;
    let client = app.client();
    let count = async |typed: &[&str]| {
        for password in typed {
            assert_eq!(client.login("known", password).await.status, 401);
        }
        in_a_row(&app, "known").await
    };
    assert_eq!(count(&["a", "b", "c"]).await, 3);
    assert_eq!(count(&["a", "b", "c", "c", "a"]).await, 3);
    assert_eq!(count(&["d"]).await, 4);
    assert_eq!(count(&["b", "c", "d"]).await, 4);
    assert_eq!(count(&["a"]).await, 5, "the fourth before it is forgotten");
    app.advance(std::time::Duration::from_secs(30 * 24 * 60 * 60));
    assert_eq!(count(&["a"]).await, 6, "and all after thirty days");
}

async fn the_same_from_elsewhere_is_a_guess_there(store: Store) {
    let app = blocks(store, 20).behind_a_proxy().start().await;
    let at = |address: &str| app.client_at(address);
    at("203.0.113.1").register("known", PASSWORD).await;
    for (address, failures) in
        [("203.0.113.2", 1), ("203.0.113.2", 1), ("203.0.113.3", 2), ("203.0.113.3", 2)]
    {
        assert_eq!(at(address).login("known", OLD).await.status, 401);
        assert_eq!(in_a_row(&app, "known").await, failures, "{address}");
    }
    // Browsers behind one address are told apart by their cookie.
    for failures in [3, 4] {
        let browser = at("203.0.113.3");
        browser.submit("/login", "/login", &[("login", "known"), ("password", OLD)]).await;
        browser.submit("/login", "/login", &[("login", "known"), ("password", OLD)]).await;
        assert_eq!(in_a_row(&app, "known").await, failures);
    }
}

async fn guesses(app: &TestApp) -> i64 {
    const SQL: &str = "SELECT COUNT(*) FROM guesses";
    match Db::connect(&app.database).await.unwrap() {
        Db::Sqlite(pools) => query_scalar(SQL).fetch_one(&pools.all).await.unwrap(),
        Db::Postgres(pools) => query_scalar(SQL).fetch_one(pools.reachable().unwrap()).await.unwrap(),
    }
}

async fn a_right_password_is_remembered_nowhere(store: Store) {
    let app = blocks(store, 20).start().await;
    app.register("known").await;
    for _ in 0..3 {
        assert_eq!(app.client().login("known", PASSWORD).await.status, 200);
    }
    assert_eq!(guesses(&app).await, 0);
    assert_eq!(app.client().login("known", OLD).await.status, 401);
    assert_eq!(app.client().login("nobody", OLD).await.status, 401);
    assert_eq!(guesses(&app).await, 2);
}

async fn a_name_that_nobody_has_is_answered_alike(store: Store) {
    let app = TestApp::on(store).without(&["login-address", "login-network"]).start().await;
    app.register("known").await;
    let mut answers: HashMap<&str, Vec<_>> = HashMap::new();
    for login in ["known", "nobody"] {
        let client = app.client();
        for n in 0..30 {
            // Every third is a new guess: the twentieth of those is not reached, the thirtieth attempt is.
            let password = format!("guess number {}", n / 3);
            answers.entry(login).or_default().push(comparable(failed(&client, login, &password).await));
        }
        for n in 10..25 {
            let answer = failed(&client, login, &format!("guess number {n}")).await;
            answers.entry(login).or_default().push(comparable(answer));
        }
    }
    assert_eq!(answers["known"], answers["nobody"]);
    assert_eq!(answers["known"].iter().filter(|(status, ..)| *status == 401).count(), 40, "twenty guesses");
}

async fn a_new_password_makes_the_old_guesses_new(store: Store) {
    let app = blocks(store, 20).start().await;
    let owner = app.client();
    owner.register("known", PASSWORD).await;
    let stranger = app.client();
    for _ in 0..2 {
        stranger.login("known", OLD).await;
    }
    let fields = [("current_password", PASSWORD), ("new_password", "another one that is quite long")];
    assert_eq!(owner.submit("/account", "/account/password", &fields).await.status, 303);
    for _ in 0..2 {
        assert_eq!(stranger.login("known", OLD).await.status, 401);
    }
    assert_eq!(in_a_row(&app, "known").await, 1, "it is compared with another one");
    for _ in 0..2 {
        assert_eq!(stranger.login("known", PASSWORD).await.status, 401);
    }
    assert_eq!(in_a_row(&app, "known").await, 2, "what was the right one is a guess now");
}

async fn an_administrator_clears_both_logs(store: Store) {
    let app = TestApp::on(store).without(&["login-address"]).start().await;
    app.register("known").await;
    let boss = app.sign_in_admin("boss").await;
    for _ in 0..3 {
        assert_eq!(app.client().login("known", OLD).await.status, 401);
    }
    assert_eq!(app.client().login("known", OLD).await.problem(), "captcha-required");
    let path = "/api/v1/admin/subjects/login-account/known";
    let rules = boss.get(path).await.body["rules"].clone();
    let counts: Vec<_> =
        rules.as_array().unwrap().iter().map(|rule| rule["count"].as_i64().unwrap()).collect();
    assert_eq!(counts, [3, 1], "three failures, one guess");
    assert_eq!(boss.clear("login-account", "known").await.status, 204);
    assert_eq!(app.client().login("known", OLD).await.status, 401);
}

/// Otherwise it would show that there is an account.
async fn a_disabled_password_remembers_what_was_tried_before(store: Store) {
    let app = blocks(store, 3).set("login.max_consecutive_failures", 2).start().await;
    app.register("known").await;
    for login in ["known", "nobody"] {
        let client = app.client();
        for typed in ["a", "b", "a", "b", "c"] {
            assert_eq!(client.login(login, typed).await.status, 401, "{login}, {typed}");
        }
        assert_eq!(client.login(login, "a").await.problem(), "throttled", "{login}");
    }
}

async fn two_spellings_of_one_password_are_one_guess(store: Store) {
    let app = blocks(store, 20).start().await;
    app.register("known").await;
    for (typed, failures) in [("café au lait", 1), ("cafe\u{301} au\u{3000}lait", 1), ("cafe au lait", 2)] {
        assert_eq!(app.client().login("known", typed).await.status, 401);
        assert_eq!(in_a_row(&app, "known").await, failures, "{typed}");
    }
}

/// Nothing new was compared.
async fn what_bcrypt_does_not_read_makes_no_other_guess(store: Store) {
    let row =
        r#"{"login":"known","password_hash":"$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6"}"#;
    let app = blocks(store, 20).start().await;
    let file = ImportFile::read(row.as_bytes(), |phone| Phone::parse(phone, "CN")).unwrap();
    app.services.accounts.import(&file.rows, app.services.factor_verifier.factors(), false).await.unwrap();
    let read = "72 bytes".repeat(9);
    for (typed, failures) in [(read.clone(), 1), (format!("{read} and more"), 1), (read[1..].to_owned(), 2)] {
        assert_eq!(app.client().login("known", &typed).await.status, 401);
        assert_eq!(in_a_row(&app, "known").await, failures, "{typed}");
    }
}
