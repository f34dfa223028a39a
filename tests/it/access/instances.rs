//! Two instances on one document in Redis: an answer that one saves is in force on the other, and so is its end.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use super::{ELSEWHERE, THERE};
use crate::support::app::{Client, Store, TestApp};
use crate::support::setup::Setup;

/// The bound is a second; loaded machines get more.
const GENEROUS: Duration = Duration::from_secs(60);

fn on_redis() -> Setup {
    TestApp::on(Store::Redis).behind_a_proxy().set("live.backend", "redis").set("live.poll", "200ms")
}

async fn becomes(client: &Client, status: u16) {
    let start = Instant::now();
    while client.get("/login").await.status != status {
        assert!(start.elapsed() < GENEROUS, "{status} is not answered");
        tokio::time::sleep(Duration::from_millis(5)).await; // the other instance has no clock to advance
    }
}

async fn put(client: &Client, body: serde_json::Value) {
    let path = "/api/v1/admin/access";
    let shown = client.get(path).await.body;
    let answer = client.put(path, shown["version"].as_str().unwrap(), body).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn what_one_instance_saves_is_in_force_on_the_other() {
    let one = on_redis().start().await;
    let other = one.beside(on_redis()).await;
    let boss = one.sign_in_admin_at("boss", ELSEWHERE).await;
    let stranger = other.client_at(THERE);
    assert_eq!(stranger.get("/login").await.status, 200);
    let entry = json!([{ "network": "203.0.113.0/24", "until": super::IN_AN_HOUR, "reason": "a flood" }]);
    put(&boss, json!({ "deny": entry, "reason": "they guess" })).await;
    assert_eq!(one.client_at(THERE).get("/login").await.status, 403);
    becomes(&stranger, 403).await;
    put(&boss, json!({ "reason": "it is over" })).await;
    becomes(&stranger, 200).await;
}
