//! Limits that a service keeps: what is in force while it is out, says nonsense, or has lost everything.

use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{LIMITS, max, save, shown, with_max};
use crate::support::app::{Client, PASSWORD, Store, TestApp};
use crate::support::ports::free_port;
use crate::support::process::Home;
use crate::support::redis::RedisServer;
use crate::support::redis_group::{RedisCluster, SentinelTrio};
use crate::support::until;

pub(super) fn document(max: u32) -> String {
    format!("[limits.login-account]\nrules = [{{ max = {max}, window = \"10m\", then = \"captcha\" }}]\n")
}

async fn on(port: u16) -> TestApp {
    let live =
        format!("[live]\nbackend = \"redis\"\nurl = \"redis://127.0.0.1:{port}/\"\npoll = \"100ms\"\n");
    TestApp::with(
        Store::Memory,
        &format!("{live}[sms]\ntimeout = \"4s\"\ncode_ttl = \"4m\"\n{}", document(50)),
    )
    .await
}

pub(super) async fn ready(client: &Client) -> Value {
    client.get("/readyz").await.body["limits"].clone()
}

fn set(redis: &RedisServer, text: &str) {
    redis::cmd("SET").arg("gh:live").arg(text).exec(&mut redis.connection()).unwrap();
}

fn get(redis: &RedisServer) -> Option<String> {
    redis::cmd("GET").arg("gh:live").query(&mut redis.connection()).unwrap()
}

#[tokio::test]
async fn an_empty_backend_is_filled_with_the_live_part_of_the_file_alone() {
    let redis = RedisServer::start();
    let app = on(redis.port).await;
    assert_eq!(get(&redis).unwrap(), format!("[sms]\ncode_ttl = \"4m\"\n{}", document(50)));
    assert_eq!(app.services.live.snapshot().sms.code_ttl, Duration::from_secs(240));
    set(&redis, "[sms]\ncode_ttl = \"2m\"\n");
    until("it is followed", async || max(&app) == 3).await;
    assert_eq!(app.services.live.snapshot().sms.code_ttl, Duration::from_secs(120));
    assert_eq!(ready(&app.client()).await, json!({ "version": 2, "refused": false, "backend": "up" }));
    drop(app);
    let next = on(redis.port).await;
    assert_eq!(
        (max(&next), get(&redis).unwrap().as_str()),
        (3, "[sms]\ncode_ttl = \"2m\"\n"),
        "what stands there stays"
    );
}

#[tokio::test]
async fn what_disables_a_password_is_followed_there_too() {
    let redis = RedisServer::start();
    let app = on(redis.port).await;
    let most = || app.services.live.snapshot().login.max_consecutive_failures;
    assert_eq!(most(), 100);
    set(&redis, "[login]\nmax_consecutive_failures = 7\n");
    until("it is followed", async || most() == 7).await;
}

#[tokio::test]
async fn nonsense_changes_nothing_and_is_told() {
    let redis = RedisServer::start();
    let app = on(redis.port).await;
    let boss = app.sign_in_admin("boss").await;
    let nonsense = [
        ("[limits", "is not TOML"),
        ("", "is empty"),
        ("[limits.login-account]\nrules = 3\n", "limits.login-account.rules"),
        ("[server]\nworkers = 3\n", "server: is not live"),
        ("[sms]\ngateway = \"outbox\"\n", "sms.gateway: is not live"),
    ];
    let told = async |reason: &str| {
        let body = boss.get(LIMITS).await.body;
        body["refused"]["reason"].as_str().is_some_and(|told| told.contains(reason))
    };
    for (text, reason) in nonsense {
        set(&redis, text);
        until(&format!("{text:?} is refused with {reason:?}"), async || told(reason).await).await;
        assert_eq!(ready(&boss).await, json!({ "version": 1, "refused": true, "backend": "up" }));
        assert_eq!(
            (max(&app), get(&redis).as_deref()),
            (50, Some(text)),
            "it is left to whoever put it there"
        );
        let (version, limits) = shown(&boss).await;
        let status = if text.is_empty() { 409 } else { 412 };
        assert_eq!(save(&boss, &version, &with_max(&limits, 9)).await.status, status, "nobody has seen it");
    }
    let mut connection = redis.connection();
    // In one step, or the document that is in force is put back in between.
    redis::pipe().atomic().del("gh:live").lpush("gh:live", "x").exec(&mut connection).unwrap();
    until("a list is refused", async || told("is not a string").await).await;
    redis::cmd("DEL").arg("gh:live").exec(&mut connection).unwrap();
    until("what is in force is put back", async || ready(&boss).await["refused"] == json!(false)).await;
    assert!(get(&redis).unwrap().ends_with(&document(50)));
    let (version, limits) = shown(&boss).await;
    assert_eq!(save(&boss, &version, &with_max(&limits, 9)).await.status, 200);
    assert_eq!(max(&app), 9);
    assert!(get(&redis).unwrap().ends_with(&document(9)));
}

#[tokio::test]
async fn an_outage_changes_nothing_but_that_nothing_can_be_saved() {
    let mut redis = RedisServer::start();
    let app = on(redis.port).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    let saved = save(&boss, &version, &with_max(&limits, 8)).await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    redis.kill();
    until("the outage is seen", async || ready(&boss).await["backend"] == "down").await;
    let version = saved.body["version"].as_str().unwrap();
    assert_eq!((max(&app), shown(&boss).await.0.as_str()), (8, version));
    assert!(boss.get(LIMITS).await.body["backend_down"].is_string());
    assert_eq!(app.client().login("boss", PASSWORD).await.status, 200, "a sign-in asks nothing of it");
    let answer = save(&boss, version, &with_max(&limits, 9)).await;
    assert_eq!((answer.status, answer.problem(), max(&app)), (409, "not-saved", 8), "{}", answer.text);
    // It comes back empty.
    let redis = RedisServer::start_at(redis.port, |_| {});
    until("it is seen again", async || ready(&boss).await["backend"] == "up").await;
    assert!(get(&redis).unwrap().ends_with(&document(8)), "what was in force, and not what the file says");
    assert_eq!(save(&boss, version, &with_max(&limits, 9)).await.status, 200);
    assert_eq!(max(&app), 9);
}

#[tokio::test]
async fn without_it_a_start_goes_by_the_file_and_says_so() {
    let port = free_port();
    let app = on(port).await;
    assert_eq!(max(&app), 50);
    assert_eq!(ready(&app.client()).await, json!({ "version": 1, "refused": false, "backend": "down" }));
    let redis = RedisServer::start_at(port, |_| {});
    until("it is filled", async || get(&redis).is_some()).await;
    set(&redis, &document(6));
    until("it is followed", async || max(&app) == 6).await;
    assert_eq!(ready(&app.client()).await["backend"], "up");
}

#[test]
fn limits_on_redis_need_a_redis() {
    let mut home = Home::new();
    home.write("gatehouse.toml", "[live]\nbackend = \"redis\"\n");
    let ended = home.run(&["check-config"]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.stderr.starts_with("gatehouse.toml:2: live.backend: is \"redis\", but store.url is memory"),
        "{}",
        ended.stderr
    );
    home.set("GATEHOUSE__LIVE__URL", "redis://127.0.0.1:1/");
    assert_eq!(home.run(&["check-config"]).code, Some(0));
    let told = home.run(&["limits", "show"]);
    assert!(told.stdout.starts_with("backend: redis, key gh:live\nversion: unknown"), "{}", told.stdout);
}

#[tokio::test]
async fn it_may_stand_on_sentinels_or_a_cluster() {
    let (trio, cluster) = (SentinelTrio::with(&[]), RedisCluster::failing_over(Duration::from_secs(60), &[]));
    for url in [trio.url(), cluster.url()] {
        // Announcements alone bring the change to the other instance.
        let live = format!("[live]\nbackend = \"redis\"\nurl = \"{url}\"\npoll = \"1h\"\n{}", document(50));
        let (app, other) =
            (TestApp::with(Store::Memory, &live).await, TestApp::with(Store::Memory, &live).await);
        let boss = app.sign_in_admin("boss").await;
        assert_eq!(ready(&boss).await, json!({ "version": 1, "refused": false, "backend": "up" }));
        let (version, limits) = shown(&boss).await;
        // The other instance listens by now; a change before that would be found by reading.
        let saved = save(&boss, &version, &with_max(&limits, 7)).await;
        assert_eq!(saved.status, 200, "{}", saved.text);
        assert_eq!(max(&app), 7);
        until("the other instance follows", async || max(&other) == 7).await;
    }
}
