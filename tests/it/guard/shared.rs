//! Several instances, a store that goes away, and answers to an attack.

use std::time::Duration;

use serde_json::json;
use tokio::task::JoinSet;

use super::{start, started};
use crate::support::app::{Store, TestApp};

#[tokio::test]
async fn two_instances_admit_three_together_and_settle_for_each_other() {
    let (app, _, here) = start(Store::Redis).await;
    let other = app.beside(TestApp::on(Store::Redis)).await;
    let there = here.at(&other);
    let mut asking = JoinSet::new();
    for n in 0..40 {
        let (one, two) =
            if n % 2 == 0 { (here.clone(), there.clone()) } else { (there.clone(), here.clone()) };
        asking.spawn(async move {
            let decision = one.ask("ada").await;
            if let Some(attempt) = decision["attempt"].as_str() {
                assert_eq!(two.tell(attempt, "failure").await.status, 200);
                assert_eq!(one.tell(attempt, "failure").await.status, 200, "again, where it came from");
                assert_eq!(one.tell(attempt, "success").await.status, 409);
            }
            decision["decision"] == "go"
        });
    }
    assert_eq!(asking.join_all().await.into_iter().filter(|went| *went).count(), 3);
    // Told elsewhere in time: it does not lapse here.
    let attempt = here.go("bob").await;
    assert_eq!(there.tell(&attempt, "success").await.status, 200);
    app.advance(Duration::from_secs(15));
    app.services.attempts.lapse(&app.services.live.snapshot()).await;
    for _ in 0..3 {
        here.fail("bob").await;
    }
}

#[tokio::test]
async fn failures_outlive_the_store() {
    let (mut app, _, shop) = start(Store::Redis).await;
    for _ in 0..2 {
        shop.fail("ada").await;
    }
    let lapsing = shop.go("ada").await;
    app.advance(Duration::from_secs(15));
    app.services.attempts.lapse(&app.services.live.snapshot()).await;
    app.restart_redis();
    let asked = loop {
        let asked = shop.ask("bob").await;
        if asked["decision"] == "go" {
            break shop.ask("ada").await;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(asked["decision"], "challenge", "{asked}");
    assert_eq!(shop.tell(&lapsing, "success").await.status, 410);
}

#[tokio::test]
async fn an_answer_to_an_attack_holds_for_stated_addresses() {
    let until = "2099-01-01T00:00:00Z";
    let toml = format!(
        "[access]\ndeny = [{{ network = \"203.0.113.0/24\", until = \"{until}\", reason = \"flood\" }}]\n"
    );
    let (app, boss, shop) = started(TestApp::on(Store::Memory).file(&toml)).await;
    let from = |address: &str| json!({ "login": "ada", "address": address });
    let denied = shop.call("", from("203.0.113.7")).await;
    assert_eq!((denied.status, denied.problem()), (403, "denied"));
    assert_eq!(shop.ask_with(from("198.51.100.7")).await["decision"], "go");
    let mapped = shop.call("", from("::ffff:203.0.113.7")).await;
    assert_eq!(mapped.status, 403, "the same address in other clothes");
    drop((app, boss));
}
