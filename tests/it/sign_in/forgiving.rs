//! An owner signs in again and again while a stranger guesses: this gives the stranger nothing.

use std::time::Duration;

use super::throttling::{assert_throttled, fail_solved};
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const WRONG: &str = "a wrong password";

on_both_stores!(
    an_owner_who_signs_in_every_two_seconds_buys_nobody_a_guess,
    success_forgives_the_challenge_and_not_the_block,
);

/// Signs in, solving every challenge.
async fn sign_in(client: &Client, login: &str, password: &str) -> Answer {
    let answer = client.login(login, password).await;
    if answer.problem() != "captcha-required" {
        return answer;
    }
    client.login_with(login, password, &client.challenge().await, ANSWER).await
}

/// Twenty an hour is twenty an hour. The owner comes from browsers without a cookie, and needs at most a
/// challenge until the account itself is blocked; in a known browser, not even that.
async fn an_owner_who_signs_in_every_two_seconds_buys_nobody_a_guess(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    app.register("alice").await;
    let home = app.client_at("198.51.100.7");
    assert_eq!(home.login("alice", PASSWORD).await.status, 200);
    let (mut compared, mut let_in) = (0, 0);
    for round in 0..30 {
        // As fast as the stranger can, each time from another address.
        for guess in 0..5 {
            let stranger = app.client_at(&format!("203.0.{round}.{guess}"));
            compared += u32::from(sign_in(&stranger, "alice", WRONG).await.status == 401);
        }
        let owner = sign_in(&app.client_at(&format!("192.0.2.{round}")), "alice", PASSWORD).await;
        match owner.status {
            200 => let_in += 1,
            _ => assert_eq!((owner.problem(), compared), ("throttled", 20), "{}", owner.text),
        }
        assert_eq!(home.login("alice", PASSWORD).await.status, 200, "a known device in round {round}");
        app.advance(Duration::from_secs(2));
    }
    assert_eq!((compared, let_in), (20, 3), "three rounds of five, and then the block");
    app.advance(Duration::from_secs(3600));
    assert_eq!(app.client_at("192.0.2.77").login("alice", PASSWORD).await.status, 200);
}

async fn success_forgives_the_challenge_and_not_the_block(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    for _ in 0..6 {
        for required in [false, false, true] {
            let answer = app.client().login("alice", WRONG).await;
            assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &required.into()));
        }
        let id = client.challenge().await;
        assert_eq!(app.client().login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
        app.advance(Duration::from_secs(60));
    }
    for _ in 0..2 {
        assert_eq!(fail_solved(&client, "alice").await.status, 401);
    }
    assert_throttled(&client.login("alice", PASSWORD).await, "login-account", 3600 - 6 * 60);
}
