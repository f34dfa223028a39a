//! What Redis forgets in silence while it goes on answering: keys that it evicts because its memory is full, and those that
//! expire because its clock was set forward. Both are losses, and buy nobody a guess.

use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse_limiter::*;

use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::limits::{limit, limiter, sliding};
use crate::support::process::Home;
use crate::support::redis::RedisServer;
use crate::support::redis_group::RedisCluster;
use crate::support::setup::Setup;
use crate::support::until;

const WRONG: &str = "a wrong password";
const HOUR: Duration = Duration::from_secs(3600);
const POLICIES: [&str; 4] = ["volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-random"];

/// All guesses come from one address, which these tests do not limit.
fn setup() -> Setup {
    TestApp::on(Store::Redis).set("store.timeout", "1s").without(&["login-address", "captcha-address"])
}

/// How many of so many wrong passwords, each with a solved challenge, were compared.
async fn compared(app: &TestApp, count: usize) -> usize {
    let (client, mut compared) = (app.client(), 0);
    for _ in 0..count {
        let answer = client.login_solved("known", WRONG).await;
        assert!(matches!(answer.status, 401 | 403 | 429 | 503), "{}", answer.text);
        compared += usize::from(answer.status == 401);
    }
    compared
}

async fn until_store(app: &TestApp, state: &str) -> serde_json::Value {
    let waiting = async {
        loop {
            let ready = app.client().get("/readyz").await.body;
            if ready["store"] == state {
                return ready;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // each server is looked at once a second
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("the policy is noticed")
}

async fn whatever_it_evicts_by(policy: &str) {
    let app = setup().set("store.allow_eviction", true).start().await;
    app.register("known").await;
    assert_eq!(compared(&app, 20).await, 20);
    app.redis.as_ref().unwrap().evict(policy);
    assert_eq!(compared(&app, 20).await, 0, "{policy}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_redis_evicts_buys_no_guesses() {
    for policy in POLICIES {
        whatever_it_evicts_by(policy).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_set_to_evict_is_not_used_until_it_keeps_what_it_is_told() {
    let app = setup().start().await;
    app.register("known").await;
    let admin = app.sign_in_admin("ada").await;
    assert_eq!(compared(&app, 10).await, 10);
    let server = app.redis.as_ref().unwrap();
    server.set("maxmemory", "100mb");
    server.set("maxmemory-policy", "allkeys-lru");
    let ready = until_store(&app, "down").await;
    assert_eq!(ready["eviction"], "maxmemory-policy allkeys-lru with maxmemory 104857600");
    let page = admin.get("/admin").await;
    assert!(page.text.contains("Redis forgets what is counted when its memory is full"), "{}", page.text);
    server.evict("allkeys-lru");
    assert_eq!(compared(&app, 20).await, 10, "by the record");
    server.set("maxmemory-policy", "noeviction");
    let ready = until_store(&app, "up").await;
    assert!(ready.get("eviction").is_none());
    assert_eq!(compared(&app, 5).await, 0, "the windows are rebuilt first");
}

#[tokio::test]
async fn a_start_ends_and_check_config_fails_at_a_redis_that_evicts_unless_that_is_allowed() {
    let (server, mut home) = (RedisServer::start(), Home::new());
    home.set("GATEHOUSE__STORE__URL", server.url());
    home.write("gatehouse.toml", "");
    let told = "maxmemory-policy volatile-lru with maxmemory 104857600";
    server.set("maxmemory-policy", "volatile-lru");
    let ended = home.run(&["check-config"]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "gatehouse.toml: ok\n"), "nothing is full");
    server.set("maxmemory", "100mb");
    for (command, code) in [("check-config", 2), ("serve", 1)] {
        let ended = home.run(&[command]);
        assert_eq!(ended.code, Some(code), "{command}: {}", ended.stderr);
        assert!(ended.stderr.contains(told) && ended.stderr.contains("allow_eviction"), "{}", ended.stderr);
    }
    home.set("GATEHOUSE__STORE__ALLOW_EVICTION", "true");
    let ended = home.run(&["check-config"]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stdout.contains("warning: store.url: ") && ended.stdout.contains(told), "{}", ended.stdout);
    let mut running = home.start(&["serve"]).await;
    running.until("it is logged", |running| running.stderr().contains(told)).await;
    assert_eq!(running.client().get("/readyz").await.body["eviction"], told);
    drop(running);
    drop(server);
    home.set("GATEHOUSE__STORE__ALLOW_EVICTION", "false");
    assert_eq!(home.run(&["check-config"]).code, Some(0), "a Redis that is away cannot be asked");
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().get("/readyz").await.body["store"], "down");
}

/// While the clock is ahead, every window is over; afterwards, what was counted has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_of_redis_that_runs_two_hours_ahead_for_a_moment_buys_no_guesses() {
    let app = setup().by_real_clocks().start().await;
    app.register("known").await;
    app.register("other").await;
    assert_eq!(compared(&app, 20).await, 20);
    let (clock, right) = (app.clock_of_redis(), app.clock_of_redis().now());
    clock.advance(2 * HOUR);
    assert_eq!(compared(&app, 20).await, 0, "while it is ahead");
    until("it is told", async || {
        app.client().get("/readyz").await.body["store_clock_ahead"].as_u64() >= Some(7_100)
    })
    .await;
    clock.set(right.plus(Duration::from_secs(3)));
    assert_eq!(compared(&app, 20).await, 0, "afterwards");
    let normal = async {
        while app.client().login("other", PASSWORD).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await; // it is asked again each second
        }
    };
    tokio::time::timeout(Duration::from_secs(60), normal).await.expect("Redis decides again");
    assert_eq!(compared(&app, 20).await, 0, "the windows are rebuilt");
    assert!(app.client().get("/readyz").await.body.get("store_clock_ahead").is_none());
}

#[tokio::test]
async fn an_eviction_on_any_master_of_a_cluster_is_a_loss_of_all_windows() {
    let cluster = RedisCluster::failing_over(Duration::from_secs(60), &[]);
    let servers = RedisUrl::parse(&cluster.url()).unwrap().servers(None).unwrap();
    let store = RedisStore::allowing_eviction(servers, Duration::from_secs(5), "t", Clock::System);
    assert!(store.link().ready(Duration::from_secs(60)).await);
    let limiter = limiter(store);
    let five = limit("five", &[sliding(5, HOUR)]);
    for node in 0..3 {
        let generation = limiter.fresh_id();
        limiter.store().begin_rebuild("it", generation).await.unwrap();
        assert!(limiter.store().finish_rebuild("it", "s", generation).await.unwrap());
        let complete = CompleteWindows { name: "it", shape: "s", generation };
        let buckets = [limiter.bucket(&five, b"x")];
        let hold = async || limiter.hold_if_complete(complete, &buckets, false, Duration::ZERO).await;
        assert!(matches!(hold().await, Ok(HoldDecision::Held(_))));
        let key = (0..).map(|number| format!("key-{number}")).find(|key| cluster.master_of(key) == node);
        let server = &cluster.nodes[node];
        redis::cmd("SET").arg(key).arg(1).arg("EX").arg(60).query::<()>(&mut server.connection()).unwrap();
        server.evict("volatile-ttl");
        assert!(matches!(hold().await, Err(StoreError::Incomplete)), "node {node}");
        assert_eq!(limiter.store().rebuild_generation("it", "s").await.unwrap(), None);
    }
}
