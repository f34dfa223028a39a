//! What failures lead to, step by step: a CAPTCHA, a wait, and how each ends.

use std::time::Duration;

use super::slot_in_flight;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const MINUTE: Duration = Duration::from_secs(60);

on_both_stores!(
    fourth_failure_asks_for_captcha,
    a_minute_later_no_captcha_is_asked_for,
    a_solved_captcha_does_not_lift_a_block,
    retrying_while_blocked_does_not_prolong_it,
    many_accounts_from_one_address_meet_a_captcha,
    an_address_is_blocked_whatever_it_solves,
    success_clears_the_failures_of_the_account,
    an_attackers_own_account_does_not_wipe_its_address,
    success_does_not_forgive_failures_told_beside_it,
    an_unknown_account_is_treated_like_a_known_one,
    an_unknown_account_looks_like_a_known_one_on_the_page,
    spellings_of_a_login_are_one_subject,
    a_monitored_limit_never_refuses,
    a_limit_without_rules_is_off,
    a_calendar_rule_frees_at_midnight_of_its_zone,
    failures_before_a_name_is_registered_do_not_burden_its_owner,
    nothing_is_counted_of_what_cannot_be_a_login,
);

/// One wrong password with a solved challenge.
pub async fn fail_solved(client: &Client, login: &str) -> Answer {
    let id = client.challenge().await;
    client.login_with(login, WRONG, &id, ANSWER).await
}

/// Twenty failures of one account, the last ones past the CAPTCHA.
pub async fn fail_until_blocked(client: &Client, login: &str) {
    for _ in 0..3 {
        assert_eq!(client.login(login, WRONG).await.status, 401);
    }
    for _ in 3..20 {
        assert_eq!(fail_solved(client, login).await.status, 401);
    }
}

pub fn assert_throttled(answer: &Answer, limit: &str, seconds: u64) {
    assert_eq!((answer.status, answer.problem()), (429, "throttled"), "{}", answer.text);
    assert_eq!(answer.body["limit"], limit);
    assert_eq!(answer.body["retry_after"], seconds);
    assert_eq!(answer.header("retry-after"), seconds.to_string());
    assert_eq!(answer.header("content-type"), "application/problem+json");
}

async fn fourth_failure_asks_for_captcha(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    for required in [false, false, true] {
        let answer = client.login("alice", WRONG).await;
        assert_eq!((answer.status, answer.problem()), (401, "invalid-credentials"));
        assert_eq!(answer.body["captcha_required"], required);
    }
    let before = app.hashes();
    for password in [WRONG, PASSWORD] {
        let answer = client.login("alice", password).await;
        assert_eq!((answer.status, answer.problem()), (403, "captcha-required"));
        let captcha = &answer.body["captcha"];
        assert_eq!(captcha["image"], format!("/captcha/{}.png", captcha["id"].as_str().unwrap()));
        assert_eq!(answer.header("ratelimit"), "\"login-account\";r=0;t=60");
    }
    assert_eq!(app.hashes(), before, "nothing is verified before the CAPTCHA is solved");
    // The challenge in the refusal works like one that was requested.
    let refused = client.login("alice", PASSWORD).await;
    let id = refused.body["captcha"]["id"].as_str().unwrap();
    let answer = client.login_with("alice", PASSWORD, id, ANSWER).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(app.hashes(), before + 1);
}

async fn a_minute_later_no_captcha_is_asked_for(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    for _ in 0..3 {
        client.login("alice", WRONG).await;
    }
    app.advance(MINUTE - Duration::from_micros(1));
    assert_eq!(client.login("alice", PASSWORD).await.status, 403);
    app.advance(Duration::from_micros(1));
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

async fn a_solved_captcha_does_not_lift_a_block(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    fail_until_blocked(&client, "alice").await;
    let before = app.hashes();
    assert_throttled(&client.login("alice", PASSWORD).await, "login-account", 3600);
    app.advance(Duration::from_millis(1500));
    let id = client.challenge().await;
    let answer = client.login_with("alice", PASSWORD, &id, ANSWER).await;
    assert_throttled(&answer, "login-account", 3599);
    assert_eq!(answer.header("ratelimit"), "\"login-account-2\";r=0;t=3599", "the policy that binds");
    assert_eq!(app.hashes(), before);
}

async fn retrying_while_blocked_does_not_prolong_it(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    fail_until_blocked(&client, "alice").await;
    for minute in 0..60 {
        assert_throttled(&client.login("alice", WRONG).await, "login-account", 3600 - minute * 60);
        let id = client.challenge().await;
        let answer = client.login_with("alice", WRONG, &id, ANSWER).await;
        assert_throttled(&answer, "login-account", 3600 - minute * 60);
        app.advance(MINUTE);
    }
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

async fn many_accounts_from_one_address_meet_a_captcha(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    app.register("alice").await;
    let client = app.client_at("203.0.113.7");
    for account in 0..20 {
        let answer = client.login(&format!("guess{account}"), WRONG).await;
        assert_eq!(answer.status, 401);
        assert_eq!(answer.body["captcha_required"], account == 19);
    }
    let before = app.hashes();
    let refused = client.login("alice", PASSWORD).await;
    assert_eq!((refused.status, refused.problem()), (403, "captcha-required"));
    assert_eq!(refused.header("ratelimit"), "\"login-address\";r=0;t=60", "it names the limit that is full");
    assert_eq!(app.hashes(), before);
    assert_eq!(app.client_at("203.0.113.8").login("alice", PASSWORD).await.status, 200);
    let id = client.challenge().await;
    assert_eq!(client.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
    app.advance(MINUTE);
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

async fn an_address_is_blocked_whatever_it_solves(store: Store) {
    let app = TestApp::on(store).limit("login-address", &[max(5).per("1h")]).start().await;
    app.register("alice").await;
    let client = app.client();
    for account in 0..5 {
        assert_eq!(client.login(&format!("guess{account}"), WRONG).await.status, 401);
    }
    let before = app.hashes();
    assert_throttled(&client.login("alice", PASSWORD).await, "login-address", 3600);
    let id = client.challenge().await;
    let answer = client.login_with("alice", PASSWORD, &id, ANSWER).await;
    assert_throttled(&answer, "login-address", 3600);
    assert_eq!(app.hashes(), before);
}

async fn success_clears_the_failures_of_the_account(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    for round in 0..4 {
        for _ in 0..2 {
            let answer = client.login("alice", WRONG).await;
            assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &false.into()), "{round}");
        }
        assert_eq!(client.login("alice", PASSWORD).await.status, 200);
    }
}

async fn an_attackers_own_account_does_not_wipe_its_address(store: Store) {
    let app = TestApp::start(store).await;
    app.register("mallory").await;
    app.register("alice").await;
    let client = app.client();
    for account in 0..20 {
        assert_eq!(client.login(&format!("guess{account}"), WRONG).await.status, 401);
        if account < 19 {
            assert_eq!(client.login("mallory", PASSWORD).await.status, 200);
        }
    }
    assert_eq!(client.login("alice", PASSWORD).await.problem(), "captcha-required");
    let id = client.challenge().await;
    assert_eq!(client.login_with("mallory", PASSWORD, &id, ANSWER).await.status, 200);
    assert_eq!(client.login("alice", PASSWORD).await.problem(), "captcha-required");
}

async fn success_does_not_forgive_failures_told_beside_it(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    assert_eq!(client.login("alice", WRONG).await.status, 401, "before it");
    app.advance(Duration::from_secs(1));
    // A right password whose hash takes time.
    let slot = slot_in_flight(&app, &[4, 192, 0, 2, 1]).await;
    app.advance(Duration::from_secs(1));
    assert_eq!(client.login("alice", WRONG).await.status, 401, "while it is verified: stays");
    slot.succeed().await;
    let third = client.login("alice", WRONG).await;
    assert_eq!(third.body["captcha_required"], true, "a success that did not come alone forgives nothing");
}

/// The answer without the time, the request id and what is random in every answer.
pub fn comparable(mut answer: Answer) -> (u16, Vec<(String, String)>, serde_json::Value) {
    let mut headers: Vec<(String, String)> = answer
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .filter(|(name, _)| name != "date" && name != "x-request-id")
        .filter(|(name, _)| name != "content-length" || answer.body["captcha"].is_null())
        .collect();
    headers.sort();
    if let Some(captcha) = answer.body.get_mut("captcha").and_then(|captcha| captcha.as_object_mut()) {
        let lengths = ["id"].map(|field| captcha[field].as_str().unwrap().len());
        captcha.insert("id".into(), lengths[0].into());
        captcha.insert("image".into(), "…".into());
    }
    (answer.status, headers, answer.body)
}

async fn an_unknown_account_is_treated_like_a_known_one(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    app.register("known").await;
    let (at_known, at_unknown) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.8"));
    for step in 0..26 {
        let mut told = Vec::new();
        let mut costs = Vec::new();
        for (client, login) in [(&at_known, "known"), (&at_unknown, "nobody")] {
            let before = app.hashes();
            let answer = match step {
                0..5 | 23 | 25 => client.login(login, WRONG).await,
                5 => client.login_with(login, WRONG, &client.challenge().await, "wrong").await,
                _ => fail_solved(client, login).await,
            };
            costs.push(app.hashes() - before);
            told.push(comparable(answer));
        }
        assert_eq!(told[0], told[1], "step {step}");
        assert_eq!(costs[0], costs[1], "step {step}");
        let expected = match step {
            0..3 => 401,
            3..6 => 403,
            6..23 => 401,
            _ => 429,
        };
        assert_eq!(told[0].0, expected, "step {step}");
        if step == 24 {
            app.advance(Duration::from_millis(2300));
        }
    }
}

async fn an_unknown_account_looks_like_a_known_one_on_the_page(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    app.register("known").await;
    let (at_known, at_unknown) = (app.client_at("203.0.113.7"), app.client_at("203.0.113.8"));
    for step in 0..24 {
        let mut told = Vec::new();
        // Names of the same length, so that the pages have the same length.
        for (client, login) in [(&at_known, "known"), (&at_unknown, "nowon")] {
            let captcha = client.challenge().await;
            let mut fields = vec![("login", login), ("password", WRONG)];
            if step >= 5 {
                fields.extend([("captcha_id", captcha.as_str()), ("captcha_answer", ANSWER)]);
            }
            let answer = client.submit("/login", "/login", &fields).await;
            assert!(!answer.text.contains(WRONG));
            let mut text = answer.text.replace(&answer.csrf_token(), "TOKEN").replace(login, "LOGIN");
            if let Some(id) = answer.hidden("captcha_id") {
                text = text.replace(&id, "CAPTCHA");
            }
            told.push((answer.status, answer.header("retry-after").to_owned(), text));
        }
        assert_eq!(told[0], told[1], "step {step}");
        let expected = match step {
            0..3 => 401,
            3..5 => 403,
            5..22 => 401,
            _ => 429,
        };
        assert_eq!(told[0].0, expected, "step {step}: {}", told[0].2);
    }
}

async fn spellings_of_a_login_are_one_subject(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    for (known, unknown) in [("Alice", "Nobody"), ("ALICE", "NOBODY"), ("ａｌｉｃｅ", "ＮＯＢＯＤＹ")]
    {
        assert_eq!(client.login(known, WRONG).await.status, 401);
        assert_eq!(client.login(unknown, WRONG).await.status, 401);
    }
    for login in ["alice", "aLICe", "ＡＬＩＣＥ", "nobody", "nｏbody"] {
        assert_eq!(client.login(login, PASSWORD).await.problem(), "captcha-required", "{login}");
    }
}

async fn a_monitored_limit_never_refuses(store: Store) {
    let app = TestApp::with(
        store,
        "[limits.login-account]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1m\", then = \"captcha\" }, \
         { max = 2, window = \"1h\" }]\n\
         [limits.login-address]\nmode = \"monitor\"\nrules = [{ max = 1, window = \"1m\" }]\n",
    )
    .await;
    app.register("alice").await;
    let client = app.client();
    for _ in 0..10 {
        let answer = client.login("alice", WRONG).await;
        assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &false.into()));
    }
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

async fn a_limit_without_rules_is_off(store: Store) {
    let app = TestApp::on(store).without(&["login-account", "login-address", "login-network"]).start().await;
    app.register("alice").await;
    let client = app.client();
    for _ in 0..30 {
        let answer = client.login("alice", WRONG).await;
        assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &false.into()));
        assert_eq!(answer.header("ratelimit-policy"), "");
    }
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

/// It is noon in UTC: eight in the evening in Shanghai.
async fn a_calendar_rule_frees_at_midnight_of_its_zone(store: Store) {
    let app = TestApp::with(
        store,
        "[limits.login-account]\nrules = [{ max = 2, per = \"day\", timezone = \"Asia/Shanghai\" }]\n",
    )
    .await;
    app.register("alice").await;
    let client = app.client();
    for _ in 0..2 {
        assert_eq!(client.login("alice", WRONG).await.status, 401);
    }
    assert_throttled(&client.login("alice", PASSWORD).await, "login-account", 4 * 3600);
    app.advance(Duration::from_secs(4 * 3600) - Duration::from_millis(1));
    assert_throttled(&client.login("alice", PASSWORD).await, "login-account", 1);
    app.advance(Duration::from_millis(1));
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

/// Nobody can block a name by failing at it before it exists.
async fn failures_before_a_name_is_registered_do_not_burden_its_owner(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    fail_until_blocked(&app.client_at("203.0.113.7"), "alice").await;
    app.register("alice").await;
    let answer = app.client_at("203.0.113.8").login("alice", PASSWORD).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Promise 7: nothing fails open.
#[tokio::test]
async fn without_its_store_everyone_is_asked_for_a_captcha() {
    let mut app = TestApp::start(Store::Redis).await;
    app.register("alice").await;
    app.redis.as_mut().unwrap().kill();
    let client = app.client();
    let before = app.hashes();
    assert_eq!(client.login("alice", PASSWORD).await.problem(), "captcha-required");
    assert_eq!(app.hashes(), before);
    let id = client.challenge().await;
    assert_eq!(client.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
}

async fn nothing_is_counted_of_what_cannot_be_a_login(store: Store) {
    let app = TestApp::start(store).await;
    app.register("alice").await;
    let client = app.client();
    let before = app.hashes();
    for login in ["", " ", "a b", "alice@b@example.com", "13800138000", "alice\u{202e}", &"a".repeat(65)] {
        for _ in 0..5 {
            let answer = client.login(login, WRONG).await;
            assert_eq!((answer.status, answer.problem()), (422, "invalid-input"));
            assert_eq!(answer.body["errors"][0]["field"], "login");
        }
    }
    assert_eq!(app.hashes(), before);
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}
