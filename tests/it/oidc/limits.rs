//! `oidc-address` and `oidc-repeat`: what is wrong has to wait, what is right never has to.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::*;
use crate::support::app::on_both_stores;
use crate::support::setup::max;
use crate::tuning::rig;

on_both_stores! {
    of_a_hundred_wrong_secrets_twenty_are_told_at_once_while_the_right_one_works,
    what_was_never_given_out_counts_wherever_it_is_sent,
    what_has_ended_is_told_so_however_often,
    a_change_of_the_rules_is_in_force_at_once,
    what_the_limit_only_notes_and_counts_is_shown,
}

const ADDRESS: &str = "203.0.113.7";
const NOT_BY_WIKI: Option<(&str, &str)> = Some(("wiki", "not the secret"));
const HOUR: Duration = Duration::from_secs(60 * 60);

/// From an address, as a client's server sends it.
async fn sent_from(
    app: &TestApp,
    address: &str,
    path: &str,
    secret: Option<(&str, &str)>,
    fields: &[(&str, &str)],
) -> Answer {
    let mut request = app.client_at(address).http.post(format!("{}{path}", app.url)).form(fields);
    if let Some((id, secret)) = secret {
        request = request.basic_auth(id, Some(secret));
    }
    Answer::read(request.send().await.unwrap()).await
}

async fn userinfo_from(app: &TestApp, address: &str, access: &str) -> Answer {
    let request = app.client_at(address).http.get(format!("{}/oauth/userinfo", app.url));
    Answer::read(request.bearer_auth(access).send().await.unwrap()).await
}

async fn refreshed_from(app: &TestApp, address: &str, token: &str) -> Answer {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
    sent_from(app, address, "/oauth/token", BY_WIKI, &fields).await
}

/// Another text of the same form.
fn forged(token: &str) -> String {
    let first = if token.starts_with('A') { 'B' } else { 'A' };
    format!("{first}{}", &token[1..])
}

fn by_status(answers: &[Answer]) -> BTreeMap<u16, usize> {
    let mut told = BTreeMap::new();
    for answer in answers {
        *told.entry(answer.status).or_default() += 1;
    }
    told
}

async fn of_a_hundred_wrong_secrets_twenty_are_told_at_once_while_the_right_one_works(store: Store) {
    let app = start(on(store).behind_a_proxy()).await;
    let (_, access, token) = granted(&app, "ada").await;
    let fields = [("grant_type", "refresh_token"), ("refresh_token", "x")];
    let wrong = join_all((0..100).map(|_| sent_from(&app, ADDRESS, "/oauth/token", NOT_BY_WIKI, &fields)));
    let right = async {
        let mut token = token.clone();
        for _ in 0..10 {
            token = tokens(&refreshed_from(&app, ADDRESS, &token).await).1;
        }
        token
    };
    let (answers, token) = tokio::join!(wrong, right);
    assert_eq!(by_status(&answers), [(401, 20), (429, 80)].into());
    for answer in &answers {
        assert_eq!(
            (&answer.body["error"], answer.header("cache-control")),
            (&"invalid_client".into(), "no-store")
        );
        assert!(answer.body["error_description"].is_string(), "{}", answer.text);
        let wait: Option<u64> = answer.header("retry-after").parse().ok();
        assert_eq!(wait.is_some_and(|wait| (1..=60).contains(&wait)), answer.status == 429);
    }
    let (_, token) = tokens(&refreshed_from(&app, ADDRESS, &token).await);
    assert_eq!(userinfo_from(&app, ADDRESS, &access).await.status, 200);
    let elsewhere = sent_from(&app, "203.0.113.8", "/oauth/token", NOT_BY_WIKI, &fields).await;
    assert_eq!(elsewhere.status, 401);
    app.advance(Duration::from_secs(61));
    assert_eq!(sent_from(&app, ADDRESS, "/oauth/token", NOT_BY_WIKI, &fields).await.status, 401);
    tokens(&refreshed_from(&app, ADDRESS, &token).await);
}

async fn what_was_never_given_out_counts_wherever_it_is_sent(store: Store) {
    let app = start(on(store).behind_a_proxy()).await;
    let (browser, access, token) = granted(&app, "ada").await;
    let (right_code, forged_token) = (code(&browser, &[]).await, forged(&token));
    let of_code = |code| {
        [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", WIKI),
            ("code_verifier", VERIFIER),
        ]
    };
    let forged_code = forged(&right_code);
    for (address, fields) in [
        ("2001:db8::1", of_code("nonsense").to_vec()),
        ("203.0.113.2", of_code(&forged_code).to_vec()),
        ("203.0.113.3", vec![("grant_type", "refresh_token"), ("refresh_token", "nonsense")]),
        ("203.0.113.4", vec![("grant_type", "refresh_token"), ("refresh_token", &forged_token)]),
    ] {
        let wrong = (0..25).map(|_| sent_from(&app, address, "/oauth/token", BY_WIKI, &fields));
        let answers = join_all(wrong).await;
        assert_eq!(by_status(&answers), [(400, 20), (429, 5)].into(), "{fields:?}");
        assert!(answers.iter().all(|answer| answer.body["error"] == "invalid_grant"), "{fields:?}");
    }
    // The same /64.
    let fields = of_code("nonsense");
    assert_eq!(sent_from(&app, "2001:db8::2", "/oauth/token", BY_WIKI, &fields).await.status, 429);
    let forged_access = forged(&access);
    let answers = join_all((0..25).map(|_| userinfo_from(&app, "203.0.113.5", &forged_access))).await;
    assert_eq!(by_status(&answers), [(401, 20), (429, 5)].into());
    let waits = answers.iter().find(|answer| answer.status == 429).unwrap();
    assert_eq!(waits.body["error"], "invalid_token");
    // A wrong token is no error there (RFC 7009, 7662), and counts.
    for (address, path) in [("203.0.113.6", "/oauth/introspect"), ("203.0.113.9", "/oauth/revoke")] {
        let fields = [("token", "nonsense")];
        let wrong = (0..25).map(|_| sent_from(&app, address, path, BY_WIKI, &fields));
        assert_eq!(by_status(&join_all(wrong).await), [(200, 25)].into(), "{path}");
        assert_eq!(sent_from(&app, address, path, NOT_BY_WIKI, &fields).await.status, 429, "{path}");
    }
    // At each of them, what is right.
    let fields = [("token", &*access)];
    let known = sent_from(&app, "203.0.113.6", "/oauth/introspect", BY_WIKI, &fields).await;
    assert_eq!(known.body["active"], true, "{}", known.text);
    assert_eq!(userinfo_from(&app, "203.0.113.5", &access).await.status, 200);
    tokens(&refreshed_from(&app, "203.0.113.4", &token).await);
    let exchanged = sent_from(&app, "203.0.113.2", "/oauth/token", BY_WIKI, &of_code(&right_code)).await;
    let (access, _) = tokens(&exchanged);
    assert_eq!(
        sent_from(&app, "203.0.113.9", "/oauth/revoke", BY_WIKI, &[("token", &access)]).await.status,
        200
    );
    assert_eq!(userinfo_from(&app, "203.0.113.5", &access).await.status, 401, "it was revoked");
}

/// Of many users behind one server of a client, whose sessions end at once, each is told.
async fn what_has_ended_is_told_so_however_often(store: Store) {
    let app = start(on(store).behind_a_proxy()).await;
    let (browser, access, token) = granted(&app, "ada").await;
    assert_eq!(browser.submit("/account", "/logout", &[]).await.status, 303);
    for _ in 0..25 {
        let refused = refreshed_from(&app, ADDRESS, &token).await;
        assert_eq!((refused.status, &refused.body["error"]), (400, &"invalid_grant".into()));
        assert_eq!(userinfo_from(&app, ADDRESS, &access).await.status, 401);
    }
    assert_eq!(refreshed_from(&app, ADDRESS, "nonsense").await.status, 400, "nothing was counted");
}

async fn a_change_of_the_rules_is_in_force_at_once(store: Store) {
    let app = start(on(store).behind_a_proxy()).await;
    let boss = app.sign_in_admin("boss").await;
    let change = async |name: &str, limit: serde_json::Value| {
        let (version, mut limits) = rig::shown(&boss).await;
        limits[name] = limit;
        let saved = rig::save(&boss, &version, &limits).await;
        assert_eq!(saved.status, 200, "{}", saved.text);
    };
    let rules = |max: u32| json!({ "rules": [{ "max": max, "window": "24h" }] });
    change("oidc-address", rules(2)).await;
    let statuses = async || {
        let mut told = Vec::new();
        for _ in 0..3 {
            told.push(refreshed_from(&app, ADDRESS, "nonsense").await.status);
        }
        told
    };
    assert_eq!(statuses().await, [400, 400, 429]);
    assert_eq!(boss.clear("oidc-address", ADDRESS).await.status, 204);
    assert_eq!(statuses().await, [400, 400, 429]);
    change("oidc-address", json!({ "rules": [] })).await;
    assert_eq!(statuses().await, [400; 3]);
    let asks = json!({ "rules": [{ "max": 2, "window": "1m", "then": "captcha" }] });
    let (version, mut limits) = rig::shown(&boss).await;
    limits["oidc-repeat"] = asks;
    let refused = rig::save(&boss, &version, &limits).await;
    assert_eq!(refused.status, 422, "{}", refused.text);

    // Late repeats, of one grant each.
    let late = async |login: &str, times: usize| {
        let (_, _, first) = granted(&app, login).await;
        let (_, second) = tokens(&refresh(&app, &first).await);
        let mut told = Vec::new();
        for _ in 0..times {
            app.advance(Duration::from_secs(61));
            told.push(refresh(&app, &first).await.status);
        }
        (told, refresh(&app, &second).await.status)
    };
    assert_eq!(late("ada", 4).await, (vec![200, 200, 200, 400], 400));
    change("oidc-repeat", rules(1)).await;
    assert_eq!(late("boris", 2).await, (vec![200, 400], 400));
    change("oidc-repeat", rules(5)).await;
    assert_eq!(late("carol", 5).await, (vec![200; 5], 200));
    let watching = json!({ "mode": "monitor", "rules": [{ "max": 1, "window": "24h" }] });
    change("oidc-repeat", watching).await;
    assert_eq!(late("dora", 3).await, (vec![200; 3], 200));
    change("oidc-repeat", json!({ "rules": [] })).await;
    assert_eq!(late("emil", 8).await, (vec![200; 8], 200));
}

async fn what_the_limit_only_notes_and_counts_is_shown(store: Store) {
    let app = start(
        on(store)
            .behind_a_proxy()
            .limit("oidc-address", &[max(2).per("1m")])
            .limit("oidc-repeat", &[max(1).per("48h")]),
    )
    .await;
    let boss = app.sign_in_admin("boss").await;
    for _ in 0..5 {
        refreshed_from(&app, ADDRESS, "nonsense").await;
    }
    let events = boss.get("/api/v1/admin/events?action=client-call").await;
    let told: BTreeMap<_, _> = events.body["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| {
            assert_eq!(
                (&event["name"], &event["address"]["mask"]),
                (&"refresh-token".into(), &"203.0.113.0/24".into())
            );
            (event["outcome"].as_str().unwrap(), (event["count"].as_i64().unwrap(), event["limit"].clone()))
        })
        .collect();
    assert_eq!(told, [("wrong", (2, json!(null))), ("throttled", (3, json!("oidc-address")))].into());
    let limits = boss.get("/admin/limits").await.text;
    assert!(limits.contains("Wrong secrets and tokens from one address"), "{limits}");

    // Its rows outlast the day that the rule of generations counts.
    let (_, _, first) = granted(&app, "ada").await;
    let (_, second) = tokens(&refresh(&app, &first).await);
    app.advance(HOUR);
    assert_eq!(tokens(&refresh(&app, &first).await).1, second);
    app.advance(25 * HOUR);
    assert_eq!(refresh(&app, &first).await.status, 400);
    let events = boss.get("/api/v1/admin/events?action=token-reuse").await;
    let of = |event: &Value| (event["outcome"].clone(), event["limit"].clone(), event["name"].clone());
    let told: Vec<_> = events.body["events"].as_array().unwrap().iter().map(of).collect();
    let (wiki, repeat) = (json!("wiki"), json!("oidc-repeat"));
    assert_eq!(told, [(json!("refused"), repeat, wiki.clone()), (json!("ok"), json!(null), wiki)]);
    let unnamed = boss.get("/api/v1/admin/subjects/oidc-repeat/ada").await;
    assert_eq!(unnamed.status, 404, "{}", unnamed.text);
}

/// What was never given out asks no database, and a store that is out refuses nothing.
#[tokio::test]
async fn an_outage_lets_nobody_wait_for_what_is_wrong() {
    let mut app = start(on(Store::Redis).own_postgres().behind_a_proxy()).await;
    let (_, access, token) = granted(&app, "ada").await;
    app.postgres.as_mut().unwrap().stop();
    let answers = join_all((0..25).map(|_| refreshed_from(&app, ADDRESS, "nonsense"))).await;
    assert_eq!(by_status(&answers), [(400, 20), (429, 5)].into());
    assert_eq!(userinfo_from(&app, ADDRESS, &forged(&access)).await.status, 429);
    assert_eq!(refreshed_from(&app, ADDRESS, &token).await.status, 503, "what is right asks the database");
    drop(app.redis.take());
    for _ in 0..25 {
        let wrong = refreshed_from(&app, "203.0.113.8", "nonsense").await;
        assert_eq!((wrong.status, wrong.header("retry-after")), (400, ""));
    }
    assert_eq!(userinfo_from(&app, "203.0.113.8", &forged(&access)).await.status, 401);
}

#[tokio::test]
async fn a_consent_is_an_event() {
    let app = start(on(Store::Memory).behind_a_proxy()).await;
    let boss = app.sign_in_admin("boss").await;
    let browser = app.client_at(ADDRESS);
    assert_eq!(browser.register("ada", PASSWORD).await.status, 201);
    let spa = request(&[("client_id", "spa"), ("redirect_uri", SPA)]);
    agree(&browser, &spa).await;
    assert!(sent(&browser.get(&spa).await)("code").is_some(), "that is none");
    agree(&browser, &request(&[("client_id", "cli"), ("redirect_uri", "http://127.0.0.1:5123/callback")]))
        .await;
    let events = boss.get("/api/v1/admin/events?action=consent-given").await;
    let events = events.body["events"].as_array().unwrap();
    let told: Vec<_> = events.iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(told, ["cli", "spa"]);
    for event in events {
        assert_eq!((&event["outcome"], &event["account"]["mask"]), (&json!("ok"), &json!("a…")));
        assert_eq!(event["address"]["mask"], "203.0.113.0/24");
    }
}

/// To what the page of a request asks.
pub async fn agree(browser: &Client, request: &str) {
    let account = browser.get(request).await.hidden("account").expect("a question");
    let (_, query) = request.split_once('?').unwrap();
    let fields = [("request", query), ("account", &*account), ("agree", "yes")];
    let agreed = browser.submit(request, "/oauth/consent", &fields).await;
    assert!(agreed.text.contains("code="), "{}", agreed.text);
}
