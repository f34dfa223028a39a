//! Redis over TLS with a company's own authority, and with an account that may do only what is needed.

use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse_limiter::*;

use crate::support::app::{ANSWER, Client, PASSWORD, Store, TestApp};
use crate::support::authority::Authority;
use crate::support::ports::free_port;
use crate::support::redis::RedisServer;
use crate::support::redis_group::{RedisCluster, SentinelTrio};

/// A server that speaks TLS at a second port.
fn with_tls(authority: &Authority, name: &str) -> (RedisServer, u16) {
    let (port, tls) = (free_port(), authority.redis(name));
    (RedisServer::start_at(free_port(), |command| tls.prepare(port, command)), port)
}

async fn link(url: &str, authority: Option<&Authority>) -> RedisStore {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let roots = authority.map(|authority| std::fs::read(authority.file.path()).unwrap());
    let servers = RedisUrl::parse(url).unwrap().servers(roots).unwrap();
    RedisStore::new(servers, Duration::from_secs(5), "t", Clock::System)
}

#[tokio::test]
async fn only_a_certificate_of_a_trusted_authority_is_accepted() {
    let authority = Authority::new();
    let (_server, port) = with_tls(&authority, "127.0.0.1");
    let url = format!("rediss://127.0.0.1:{port}/");
    assert!(link(&url, Some(&authority)).await.link().ready(Duration::from_secs(60)).await);
    let (unknown, other) = (link(&url, None).await, link(&url, Some(&Authority::new())).await);
    let (_elsewhere, port) = with_tls(&authority, "redis.example");
    let elsewhere = link(&format!("rediss://127.0.0.1:{port}/"), Some(&authority)).await;
    for (store, what) in [(unknown, "no authority"), (other, "another one"), (elsewhere, "another name")] {
        assert!(!store.link().ready(Duration::from_millis(500)).await, "{what}");
    }
}

#[tokio::test]
async fn a_site_runs_over_tls_with_the_rights_that_the_manual_names() {
    let authority = Authority::new();
    let (server, port) = with_tls(&authority, "127.0.0.1");
    restrict(&server);
    let app = TestApp::on(Store::Memory)
        .by_real_clocks()
        .set("store.url", format!("rediss://gatehouse:of-the-manual@127.0.0.1:{port}/"))
        .set("store.ca_file", authority.file.path().to_str().unwrap())
        .set("store.timeout", "2s")
        .set("live.backend", "redis")
        .start()
        .await;
    everything_works(&app).await;
    let denied: String = redis::cmd("INFO").arg("errorstats").query(&mut server.connection()).unwrap();
    assert!(!denied.contains("NOPERM"), "{denied}");
}

#[tokio::test]
async fn the_same_rights_are_enough_on_a_cluster() {
    let cluster = RedisCluster::failing_over(Duration::from_secs(60), &[]);
    cluster.nodes.iter().for_each(restrict);
    let hosts: Vec<_> = cluster.nodes.iter().map(|node| format!("127.0.0.1:{}", node.port)).collect();
    let url = format!("redis-cluster://gatehouse:of-the-manual@{}", hosts.join(","));
    let app = TestApp::on(Store::Memory).by_real_clocks().set("store.url", &url).set("store.timeout", "2s");
    let app = app.set("live.backend", "redis").start().await;
    everything_works(&app).await;
    for node in &cluster.nodes {
        let denied: String = redis::cmd("INFO").arg("errorstats").query(&mut node.connection()).unwrap();
        assert!(!denied.contains("NOPERM"), "{denied}");
    }
}

/// The servers speak TLS among themselves, too.
#[tokio::test]
async fn a_cluster_and_sentinels_are_reached_over_tls() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let tls = authority.redis("127.0.0.1");
    let (cluster, trio) = (RedisCluster::secured(&tls), SentinelTrio::secured(&tls));
    for url in [cluster.tls_url(), trio.tls_url()] {
        let store = link(&url, Some(&stranger)).await;
        assert!(!store.link().ready(Duration::from_millis(500)).await, "{url}: of another authority");
        let app = TestApp::on(Store::Memory)
            .by_real_clocks()
            .set("store.url", &url)
            .set("store.ca_file", authority.file.path().to_str().unwrap())
            .set("store.timeout", "2s")
            .set("live.backend", "redis");
        everything_works(&app.start().await).await;
    }
}

/// The account of docs/operations.md.
fn restrict(server: &RedisServer) {
    let manual = include_str!("../../../docs/operations.md");
    let rule =
        manual.lines().find_map(|line| line.strip_prefix("ACL SETUSER gatehouse ")).expect("the account");
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("gatehouse");
    rule.split_whitespace().for_each(|word| {
        command.arg(word.replace("a-long-password", "of-the-manual"));
    });
    command.query::<()>(&mut server.connection()).unwrap();
}

async fn everything_works(app: &TestApp) {
    app.register("alice").await;
    let client: Client = app.client();
    assert_eq!(client.login("alice", "a wrong password").await.status, 401);
    let id = client.challenge().await;
    assert_eq!(client.login_with("alice", PASSWORD, &id, ANSWER).await.status, 200);
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
    let ready = client.get("/readyz").await.body;
    assert_eq!((&ready["store"], &ready["limits"]["backend"]), (&"up".into(), &"up".into()), "{ready}");
}
