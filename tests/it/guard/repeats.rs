//! Programs that say which guess it is: the same one again blocks nobody, and who lies about it spoils its own count.

use std::time::Duration;

use serde_json::{Value, json};

use super::mail_server::{HOME, MailServer, from};
use super::{Program, start, started};
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    a_hundred_times_the_same_guess_blocks_nobody,
    without_one_each_failure_is_a_guess,
    the_same_guess_from_elsewhere_or_at_another_name_is_one_there,
    a_program_that_lies_spoils_its_own_count_alone,
    a_mail_client_that_sends_an_old_password_blocks_nobody,
);

fn attempt(login: &str, address: &str, guess: &str) -> Value {
    json!({ "login": login, "address": address, "guess": guess })
}

/// One failure, by a challenge if that is asked for; false if it has to wait.
async fn fails(program: &Program, mut body: Value) -> bool {
    let mut decision = program.ask_with(body.clone()).await;
    if decision["decision"] == "challenge" {
        body["captcha"] = json!({ "id": decision["captcha"]["id"], "answer": ANSWER });
        decision = program.ask_with(body).await;
    }
    let Some(attempt) = decision["attempt"].as_str() else { return false };
    assert_eq!(program.tell(attempt, "failure").await.status, 200);
    true
}

async fn how_often(program: &Program, most: usize, body: impl Fn(usize) -> Value) -> usize {
    for n in 0..most {
        if !fails(program, body(n)).await {
            return n;
        }
    }
    most
}

async fn a_hundred_times_the_same_guess_blocks_nobody(store: Store) {
    let (_app, _, shop) = start(store).await;
    let same = |_| attempt("ada", "203.0.113.7", "the old one");
    for _ in 0..3 {
        let decision = shop.ask_with(same(0)).await;
        assert_eq!(decision["decision"], "go");
        assert_eq!(shop.tell(decision["attempt"].as_str().unwrap(), "failure").await.status, 200);
    }
    assert_eq!(shop.ask_with(same(0)).await["decision"], "challenge", "whatever was typed");
    assert_eq!(how_often(&shop, 60, same).await, 60);
    let other = |n: usize| attempt("ada", "203.0.113.7", &n.to_string());
    assert_eq!(how_often(&shop, 60, other).await, 19, "twenty guesses, of which the old one was the first");
}

async fn without_one_each_failure_is_a_guess(store: Store) {
    let (_app, _, shop) = start(store).await;
    let nothing_said = |_| json!({ "login": "ada", "address": "203.0.113.7" });
    assert_eq!(how_often(&shop, 60, nothing_said).await, 20);
}

async fn the_same_guess_from_elsewhere_or_at_another_name_is_one_there(store: Store) {
    let (_app, _, shop) = started(TestApp::on(store).without(&["guard-network"])).await;
    let elsewhere = |n: usize| attempt("ada", &format!("10.0.{n}.7"), "the same");
    assert_eq!(how_often(&shop, 60, elsewhere).await, 20);
    assert!(fails(&shop, attempt("bob", "10.0.0.7", "the same")).await);
}

async fn a_program_that_lies_spoils_its_own_count_alone(store: Store) {
    let (app, boss, shop) = start(store).await;
    let honest = Program::of(&app, &boss, "guard:wiki").await;
    app.register("ada").await;
    let same = |_| attempt("ada", "203.0.113.7", "always the same");
    assert_eq!(how_often(&shop, 60, same).await, 60, "it lets them try as many as they like");
    let other = |n: usize| attempt("ada", "203.0.113.7", &n.to_string());
    assert_eq!(how_often(&honest, 60, other).await, 20, "another realm");
    for n in 0..3 {
        assert_eq!(app.client().login("ada", &format!("guess number {n}")).await.status, 401);
    }
    assert_eq!(app.client().login("ada", PASSWORD).await.problem(), "captcha-required", "our own sign-in");
}

/// It can be shown no challenge, so it waits a minute after each three; the twenty of an hour never come.
async fn a_mail_client_that_sends_an_old_password_blocks_nobody(store: Store) {
    let setup = TestApp::on(store)
        .limit("guard-account", &[max(3).per("1m").captcha(), max(20).per("1h")])
        .without(&["guard-address"]);
    let (app, boss, _) = started(setup).await;
    let mail = MailServer::of(&app, &boss).await;
    let comes = async |hash: &dyn Fn(usize) -> String| {
        for n in 0..40 {
            let hash = hash(n);
            let session = format!("s{n}");
            let attempt = from(HOME, &session, &hash);
            if mail.allow(attempt).await != 0 {
                return n;
            }
            mail.tell(attempt, false, false).await;
            app.advance(Duration::from_secs(31));
        }
        40
    };
    assert_eq!(comes(&|_| "0a1".to_owned()).await, 40);
    assert_eq!(comes(&|n| format!("{n:03x}")).await, 19);
}
