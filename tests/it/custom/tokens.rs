//! Access: a valid token, for the limits that it names, and nothing else.

use std::time::Duration;

use serde_json::json;

use super::{Program, start};
use crate::admin::tokens::{make, revoke};
use crate::support::app::{Answer, Store};

const LIMITS: &str = "[server]\ntrusted_proxies = [\"127.0.0.1\"]\n\
    [limits.custom.reply]\nrules = [{ max = 1000, window = \"1m\" }]\n\
    [limits.custom.raffle]\nrules = [{ max = 1000, window = \"1m\" }]\n";

fn unknown(last: usize) -> String {
    format!("ght_{last:042}A")
}

#[tokio::test]
async fn a_token_is_good_for_the_limits_it_names() {
    let (app, boss, _) = start(Store::Memory, LIMITS).await;
    let program = Program { client: app.client(), token: make(&boss, &["reply"]).await };
    for verb in ["reserve", "peek"] {
        assert_eq!(program.call("reply", verb, json!({ "subject": "x" })).await.status, 200);
        for name in ["raffle", "nothing"] {
            let answer = program.call(name, verb, json!({ "subject": "x" })).await;
            assert_eq!((answer.status, answer.problem()), (403, "insufficient-scope"), "{name}");
            let challenge = "Bearer realm=\"gatehouse\", error=\"insufficient_scope\"";
            assert_eq!(answer.header("www-authenticate"), challenge);
        }
    }
}

#[tokio::test]
async fn without_a_good_token_nothing_is_told() {
    let (app, boss, program) = start(Store::Memory, LIMITS).await;
    let url = format!("{}/api/v1/limits/reply/reserve", app.url);
    let send = async |authorization: Option<&str>| {
        // The administrator's cookie is sent along, and has no effect.
        let request = boss.http.post(&url).json(&json!({ "subject": "x" }));
        let request =
            authorization.into_iter().fold(request, |request, it| request.header("authorization", it));
        Answer::read(request.send().await.unwrap()).await
    };
    let none = send(None).await;
    assert_eq!((none.status, none.problem()), (401, "invalid-token"));
    assert_eq!(none.header("www-authenticate"), "Bearer realm=\"gatehouse\"");
    let good = &program.token;
    let changed = format!("{}A", &good[..46]);
    for token in ["Bearer ", "Bearer x", &format!("Basic {good}"), &format!("Bearer {changed}x")] {
        assert_eq!(send(Some(token)).await.problem(), "invalid-token", "{token}");
    }
    let wrong = send(Some(&format!("Bearer {}", unknown(0)))).await;
    assert_eq!((wrong.status, wrong.problem()), (401, "invalid-token"));
    let challenge = "Bearer realm=\"gatehouse\", error=\"invalid_token\"";
    assert_eq!(wrong.header("www-authenticate"), challenge);
    let right = send(Some(&format!("bearer {good}"))).await;
    assert_eq!(right.status, 200, "the scheme's case does not matter");
    assert!(right.headers.get("set-cookie").is_none());
}

#[tokio::test]
async fn a_revoked_token_is_refused_at_once_and_an_expired_one_on_time() {
    let (app, boss, _) = start(Store::Memory, LIMITS).await;
    let wanted = json!({ "name": "x", "scopes": ["*"], "expires_in": 60 });
    let short = boss.call("/admin/tokens", wanted).await.body["token"].as_str().unwrap().to_owned();
    let short = Program { client: app.client(), token: short };
    let made = boss.call("/admin/tokens", json!({ "name": "y", "scopes": ["*"] })).await.body;
    let revoked = Program { client: app.client(), token: made["token"].as_str().unwrap().to_owned() };
    for program in [&short, &revoked] {
        assert_eq!(program.reserve("reply", "x").await.status, 200);
    }
    assert_eq!(revoke(&boss, made["id"].as_str().unwrap()).await.status, 204);
    assert_eq!(revoked.reserve("reply", "x").await.problem(), "invalid-token");
    app.advance(Duration::from_micros(59_999_999));
    assert_eq!(short.reserve("reply", "x").await.status, 200);
    app.advance(Duration::from_micros(1));
    assert_eq!(short.reserve("reply", "x").await.problem(), "invalid-token");
}

#[tokio::test]
async fn an_address_has_twenty_unknown_tokens_a_minute_and_any_good_one() {
    let (app, boss, program) = start(Store::Memory, LIMITS).await;
    let at = |address: &str, token: String| Program { client: app.client_at(address), token };
    assert_eq!(at("203.0.113.7", program.token.clone()).reserve("reply", "x").await.status, 200);
    let tries: Vec<_> = (0..50)
        .map(|n| {
            let guesser = at("203.0.113.7", unknown(n));
            tokio::spawn(async move { guesser.reserve("reply", "x").await })
        })
        .collect();
    let mut asked = 0;
    for answer in tries {
        let answer = answer.await.unwrap();
        match answer.status {
            401 => asked += 1,
            429 => assert_eq!(answer.body["limit"], "token-address"),
            other => panic!("{other}"),
        }
    }
    assert_eq!(asked, 20, "however many come at once");
    let known = at("203.0.113.7", program.token.clone());
    assert_eq!(known.reserve("reply", "x").await.status, 200, "a token that is known goes on");
    let first = at("203.0.113.7", make(&boss, &["*"]).await);
    assert_eq!(first.reserve("reply", "x").await.status, 200, "as does one that is shown for the first time");
    assert_eq!(at("203.0.113.8", unknown(0)).reserve("reply", "x").await.status, 401, "as do others");
    app.advance(Duration::from_secs(60));
    assert_eq!(at("203.0.113.7", unknown(0)).reserve("reply", "x").await.status, 401);
}

#[tokio::test]
async fn a_token_costs_an_address_nothing_however_often_it_is_shown() {
    let (app, boss, _) = start(Store::Memory, LIMITS).await;
    for _ in 0..25 {
        let program = Program { client: app.client(), token: make(&boss, &["*"]).await };
        assert_eq!(program.reserve("reply", "x").await.status, 200);
    }
}
