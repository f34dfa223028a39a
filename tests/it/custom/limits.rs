//! What the calls return: hits, refunds, peeks, and what none of them does.

use std::time::Duration;

use gatehouse::audit::{Action, EventFilter};
use serde_json::json;

use super::{start, started};
use crate::support::app::{Answer, Store, TestApp, on_both_stores};

const REPLY: &str = "[limits.custom.reply]\nrules = [{ max = 2, window = \"1m\" }]\n";

on_both_stores!(
    a_hundred_at_once_are_admitted_exactly_max,
    a_refund_gives_the_place_back_once_and_only_its_own,
    a_monitored_limit_admits_everything_and_says_what_it_would_have_done,
    a_limit_without_rules_admits_everything_and_keeps_nothing,
    every_answer_carries_the_rate_limit_fields,
    the_fields_name_the_rule_that_binds_and_when_there_is_more,
);

async fn a_hundred_at_once_are_admitted_exactly_max(store: Store) {
    let (_app, _, program) =
        start(store, "[limits.custom.x]\nrules = [{ max = 17, window = \"1h\" }]\n").await;
    assert_eq!(program.admitted_at_once("x", "one", 100).await, 17);
    assert_eq!(program.peek("x", "one").await["count"], 17);
}

async fn a_refund_gives_the_place_back_once_and_only_its_own(store: Store) {
    let toml = format!("{REPLY}[limits.custom.other]\nrules = [{{ max = 2, window = \"1m\" }}]\n");
    let (_app, _, program) = start(store, &toml).await;
    let hit = async |limit: &str, subject: &str| {
        let answer = program.reserve(limit, subject).await;
        answer.body["hit"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
    };
    let (first, second) = (hit("reply", "a").await, hit("reply", "a").await);
    assert_ne!(first, second);
    assert_eq!(first.len(), 12);
    let count = async |limit: &str, subject: &str| program.peek(limit, subject).await["count"].clone();
    let elsewhere = (hit("reply", "b").await, hit("other", "a").await);
    for (limit, subject, hit) in [
        ("reply", "b", &first),
        ("other", "a", &first),
        ("reply", "a", &elsewhere.0),
        ("reply", "a", &elsewhere.1),
    ] {
        assert_eq!(program.refund(limit, subject, hit).await, 204);
        assert_eq!(count("reply", "a").await, 2, "{limit} {subject}");
    }
    assert_eq!((count("reply", "b").await, count("other", "a").await), (1.into(), 1.into()));
    for _ in 0..2 {
        assert_eq!(program.refund("reply", "a", &first).await, 204);
        assert_eq!(count("reply", "a").await, 1);
    }
    hit("reply", "a").await;
    assert_eq!(program.reserve("reply", "a").await.status, 429);
    assert_eq!(program.refund("reply", "a", &first).await, 204, "long given back");
    assert_eq!(program.reserve("reply", "a").await.status, 429);
}

async fn a_monitored_limit_admits_everything_and_says_what_it_would_have_done(store: Store) {
    let toml = "[limits.custom.watch]\nmode = \"monitor\"\nrules = [{ max = 2, window = \"1m\" }]\n";
    let (app, _, program) = start(store, toml).await;
    for would_refuse in [false, false, true, true] {
        let answer = program.reserve("watch", "a").await;
        assert_eq!((answer.status, &answer.body["would_refuse"]), (200, &would_refuse.into()));
        assert_eq!(answer.body["remaining"], json!(null));
    }
    let peek = program.peek("watch", "a").await;
    assert_eq!(
        (&peek["allowed"], &peek["would_refuse"], &peek["count"]),
        (&true.into(), &true.into(), &2.into())
    );
    let audit = &app.services.audit;
    audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Custom], ..EventFilter::default() };
    let noted = audit.log().page(&filter, None, 10).await.unwrap().entries;
    assert!(!noted.is_empty() && noted.iter().all(|entry| entry.noted), "{noted:#?}");
}

async fn a_limit_without_rules_admits_everything_and_keeps_nothing(store: Store) {
    let (_app, _, program) = start(store, "[limits.custom.off]\nrules = []\n").await;
    for _ in 0..5 {
        let answer = program.reserve("off", "a").await;
        assert_eq!((answer.status, &answer.body["remaining"]), (200, &json!(null)), "{}", answer.text);
        assert_eq!(program.refund("off", "a", answer.body["hit"].as_str().unwrap()).await, 204);
    }
    let expected =
        json!({ "allowed": true, "count": 0, "remaining": null, "retry_after_ms": 0, "rules": [] });
    assert_eq!(program.peek("off", "a").await, expected);
}

async fn every_answer_carries_the_rate_limit_fields(store: Store) {
    let toml = "[limits.custom.two]\nrules = [{ max = 2, window = \"1m\" }, { max = 9, window = \"1h\" }]\n";
    let (_app, _, program) = start(store, toml).await;
    let fields = |answer: &Answer| {
        assert_eq!(answer.header("ratelimit-policy"), "\"two\";q=2;w=60, \"two-2\";q=9;w=3600");
        answer.header("ratelimit").to_owned()
    };
    assert_eq!(fields(&program.reserve("two", "a").await), "\"two\";r=1;t=60");
    assert_eq!(fields(&program.call("two", "peek", json!({ "subject": "a" })).await), "\"two\";r=1");
    assert_eq!(fields(&program.reserve("two", "a").await), "\"two\";r=0;t=60");
    let refused = program.reserve("two", "a").await;
    assert_eq!(fields(&refused), "\"two\";r=0;t=60");
    assert_eq!((refused.problem(), &refused.body["limit"]), ("throttled", &json!("two")));
    assert_eq!((refused.header("retry-after"), &refused.body["retry_after"]), ("60", &json!(60)));
}

async fn the_fields_name_the_rule_that_binds_and_when_there_is_more(store: Store) {
    let toml = "[limits.custom.two]\nrules = [{ max = 2, window = \"1m\" }, { max = 3, window = \"1h\" }]\n";
    let (app, _, program) = start(store, toml).await;
    let mut told = Vec::new();
    for wait in [0, 10, 60, 1] {
        app.advance(Duration::from_secs(wait));
        let answer = program.reserve("two", "a").await;
        let peeked = program.call("two", "peek", json!({ "subject": "a" })).await;
        told.push([answer, peeked].map(|answer| answer.header("ratelimit").to_owned()));
    }
    let full = "\"two-2\";r=0;t=3530";
    let expected = [
        ["\"two\";r=1;t=60", "\"two\";r=1"],
        ["\"two\";r=0;t=50", "\"two\";r=0;t=50"],
        [full, full],
        ["\"two-2\";r=0;t=3529"; 2],
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn what_is_no_subject_no_hit_and_no_limit_is_said_to_be_none() {
    let (_app, _, program) = start(Store::Memory, REPLY).await;
    let longest = "é".repeat(128);
    for subject in ["x", "用户 7", "\n\0\u{202e}", &longest] {
        assert_eq!(program.reserve("reply", subject).await.status, 200, "{subject:?}");
    }
    for subject in ["", &format!("{longest}x")] {
        let answer = program.reserve("reply", subject).await;
        assert_eq!((answer.status, &answer.body["errors"][0]["field"]), (422, &json!("subject")));
        assert!(subject.is_empty() || !answer.text.contains(subject), "not repeated");
    }
    for hit in ["", "12345678901", "1234567890123", "12345678901G", "12345678901A"] {
        assert_eq!(program.refund("reply", "x", hit).await, 422, "{hit}");
    }
    let more = program.call("reply", "reserve", json!({ "subject": "x", "n": 2 })).await;
    assert_eq!(more.body["errors"][0]["field"], "n");
    for verb in ["reserve", "peek"] {
        for name in ["nothing", "custom.reply", "login-account"] {
            let answer = program.call(name, verb, json!({ "subject": "x" })).await;
            assert_eq!((answer.status, answer.problem()), (404, "unknown-limit"), "{name}");
        }
    }
}

#[tokio::test]
async fn a_flood_of_refusals_is_one_row_of_what_happened_without_its_subject() {
    let (app, _, program) = start(Store::Memory, REPLY).await;
    for _ in 0..50 {
        program.reserve("reply", "carol@example.com").await;
    }
    let audit = &app.services.audit;
    audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Custom], ..EventFilter::default() };
    let rows = audit.log().page(&filter, None, 10).await.unwrap().entries;
    let [row] = rows.as_slice() else { panic!("{rows:#?}") };
    assert_eq!(
        (row.count, row.name.as_deref(), row.limit.as_deref()),
        (48, Some("reply"), Some("custom.reply"))
    );
    assert!(!format!("{row:?}").contains("carol@"), "{row:?}");
}

#[tokio::test]
async fn nothing_is_admitted_while_the_store_is_out() {
    let setup = TestApp::on(Store::Redis).set("store.timeout", "100ms").file(REPLY);
    let (mut app, _, program) = started(setup).await;
    let hit = program.reserve("reply", "a").await.body["hit"].as_str().unwrap().to_owned();
    app.redis.as_mut().unwrap().kill();
    for (verb, body) in [
        ("reserve", json!({ "subject": "a" })),
        ("peek", json!({ "subject": "a" })),
        ("refund", json!({ "subject": "a", "hit": hit })),
    ] {
        let answer = program.call("reply", verb, body).await;
        assert_eq!((answer.status, answer.problem()), (503, "unavailable"), "{verb}");
        assert_eq!(answer.header("retry-after"), "1");
    }
    app.restart_redis();
    recovered(&app).await;
    assert_eq!(program.reserve("reply", "a").await.status, 200, "no restart of ours is needed");
}

/// Waits until the store is reachable again.
async fn recovered(app: &TestApp) {
    let found = async {
        while app.client().get("/readyz").await.body["store"] != "up" {
            // Another process, which comes back in real time.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), found).await.is_ok(), "it does not recover");
}
