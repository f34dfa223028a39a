//! The windows that each program has of its own: looked up, cleared, rebuilt from the ledger, changed while they count.

use serde_json::{Value, json};

use super::PHONE;
use super::apart::{by, number, started};
use crate::support::app::{Store, TestApp, on_both_stores};
use crate::support::setup::max;
use crate::tuning::rig::{save, shown};

on_both_stores!(what_counts_in_a_program_is_looked_up_and_cleared_there);

async fn what_counts_in_a_program_is_looked_up_and_cleared_there(store: Store) {
    let one = || vec![max(1).per("1h")];
    let setup = TestApp::on(store)
        .limit("sms-phone", &[max(1).per("1h").captcha()])
        .limit("program-address", &one())
        .limit("program-network", &one())
        .limit("program-prefix", &one());
    let mut ways = started(setup).await;
    assert_eq!(ways.verify(PHONE, "203.0.113.7").await.status, 202);
    assert_eq!(ways.relay(&number(1), "203.0.113.7").await.status, 200);
    let logs = [
        ("program-address", "verify:shop:203.0.113.7"),
        ("program-network", "verify:shop:203.0.113.99"),
        ("program-prefix", "verify:shop:+861380013"),
        ("program-prefix", "verify:shop:+8613800138000"),
        ("sms-phone", "verify:shop:+8613800138000"),
        ("program-address", "relay:idp:203.0.113.7"),
        ("program-prefix", "relay:idp:+861380001"),
    ];
    for (limit, subject) in logs {
        assert_eq!(ways.hits(limit, subject).await, 1, "{limit} {subject}");
    }
    for (limit, subject) in
        [("program-address", "verify:idp:203.0.113.7"), ("program-address", "relay:shop:203.0.113.7")]
    {
        assert_eq!(ways.hits(limit, subject).await, 0, "{limit} {subject}");
    }
    let asked = ("asked", "verify:shop:203.0.113.7");
    assert_eq!(ways.boss.submit("/admin/lookup", "/admin/lookup", &[asked]).await.status, 303);
    let page = ways.boss.get("/admin/lookup?typed").await.text;
    assert!(page.contains("Messages for one address of a program") && page.contains("1 of 1 used"), "{page}");
    for (limit, subject) in &logs[..5] {
        assert_eq!(ways.boss.clear(limit, subject).await.status, 204);
        assert_eq!(ways.hits(limit, subject).await, 0, "{limit} {subject}");
    }
    assert_eq!(ways.hits("program-address", "relay:idp:203.0.113.7").await, 1, "only what it names");
    if store == Store::Redis {
        // Windows are rebuilt from the ledger: what was cleared stays so, and nothing else is forgotten.
        ways.app.restart_redis();
        let refused = loop {
            let answer = ways.relay(&number(2), "203.0.113.7").await;
            if answer.status != 503 {
                break answer;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(by(&refused), (429, json!("program-address")));
    }
    let again = loop {
        let answer = ways.verify(PHONE, "203.0.113.7").await;
        if answer.status != 503 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(again.status, 202, "{}", again.text);
}

#[tokio::test]
async fn a_store_that_forgets_forgets_no_window_of_a_program() {
    let setup = TestApp::on(Store::Redis)
        .limit("sms-phone", &[max(1).per("24h").captcha()])
        .limit("sms-total", &[max(20).per("24h")])
        .limit("program-address", &[max(3).per("1h")])
        .limit("program-network", &[max(4).per("1h")])
        .limit("program-prefix", &[max(2).per("1h")]);
    let ways = started(setup).await;
    let (block, address) = ("+861380013", "203.0.113.7");
    for n in 0..2 {
        assert_eq!(ways.verify(&format!("{block}000{n}"), address).await.status, 202);
        assert_eq!(ways.relay(&format!("{block}001{n}"), address).await.status, 200);
    }
    assert_eq!(ways.verify(&number(1), address).await.status, 202);
    assert_eq!(ways.verify(&number(2), "203.0.113.8").await.status, 202);
    assert_eq!(ways.page(&number(3), address).await.status, 202);
    let redis = ways.app.redis.as_ref().unwrap();
    redis::cmd("FLUSHALL").query::<()>(&mut redis.connection()).unwrap();
    let counted = [
        ("program-address", "verify:shop:203.0.113.7", 3),
        ("program-network", "verify:shop:203.0.113.7", 4),
        ("program-prefix", "verify:shop:+861380013", 2),
        ("sms-phone", "verify:shop:+8613800130000", 1),
        ("program-address", "relay:idp:203.0.113.7", 2),
        ("program-network", "relay:idp:203.0.113.7", 2),
        ("program-prefix", "relay:idp:+861380013", 2),
        ("verify-token", "verify:shop", 4),
        ("sms-address", "203.0.113.7", 1),
        ("sms-total", "everyone", 7),
    ];
    let refused = loop {
        let answer = ways.verify(&number(4), address).await;
        if answer.status != 503 {
            break answer;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(by(&refused), (429, json!("program-address")));
    for (limit, subject, count) in counted {
        assert_eq!(ways.hits(limit, subject).await, count, "{limit} {subject}");
    }
    assert_eq!(by(&ways.verify(&number(4), "203.0.113.9").await), (429, json!("program-network")));
    assert_eq!(by(&ways.relay(&format!("{block}0020"), "192.0.2.1").await), (429, json!("program-prefix")));
}

#[tokio::test]
async fn a_program_meets_changed_limits_at_once_and_keeps_what_was_counted() {
    let ways = started(TestApp::on(Store::Memory).without(&["sms-phone"])).await;
    for n in 0..2 {
        assert_eq!(ways.relay(&number(n), "203.0.113.7").await.status, 200);
    }
    let change = async |limit: &str, rules: Value| {
        let (version, _) = shown(&ways.boss).await;
        let saved = save(&ways.boss, &version, &json!({ limit: { "rules": rules } })).await;
        assert_eq!(saved.status, 200, "{}", saved.text);
    };
    change("program-address", json!([{ "max": 2, "window": "1h" }])).await;
    assert_eq!(by(&ways.relay(&number(2), "203.0.113.7").await), (429, json!("program-address")));
    change("program-address", json!([{ "max": 2, "window": "1h", "then": "captcha" }])).await;
    assert_eq!(ways.relay(&number(2), "203.0.113.7").await.status, 200, "nobody could solve it");
    change("program-address", json!([])).await;
    for n in 3..30 {
        assert_eq!(ways.relay(&number(n), "203.0.113.7").await.status, 200);
    }
}
