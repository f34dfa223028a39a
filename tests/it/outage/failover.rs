//! Failovers: a replica becomes the master, and may lack what its predecessor accepted last. These tests stop
//! real processes and so run in real time.

use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse_limiter::*;

use crate::support::app::{Store, TestApp};
use crate::support::limits::{fresh_id, limit, limiter, sliding};
use crate::support::redis::{RedisServer, until};
use crate::support::redis_group::{RedisCluster, SentinelTrio};

const TIMEOUT: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

async fn over(url: &str) -> Limiter<RedisStore> {
    let servers = RedisUrl::parse(url).unwrap().servers(None).unwrap();
    let store = RedisStore::new(servers, TIMEOUT, "t", Clock::System);
    assert!(store.link().ready(PATIENCE).await);
    limiter(store)
}

/// Asks until the store answers again.
async fn generation_when_up(limiter: &Limiter<RedisStore>) -> Option<HitId> {
    let answered = async {
        loop {
            match limiter.store().rebuild_generation("it", "s").await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await, // servers fail over in real time
            }
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.expect("the store is back")
}

async fn complete(limiter: &Limiter<RedisStore>) {
    let by = limiter.fresh_id();
    limiter.store().begin_rebuild("it", by).await.unwrap();
    assert!(limiter.store().finish_rebuild("it", "s", by).await.unwrap());
    assert_eq!(limiter.store().rebuild_generation("it", "s").await.unwrap(), Some(by));
}

/// Four of five hits, which the replica has as well.
async fn four_hits(limiter: &Limiter<RedisStore>, replica: &RedisServer) {
    let five = limit("five", &[sliding(5, HOUR)]);
    for _ in 0..4 {
        let hit = limiter.reserve(&[limiter.bucket(&five, b"x")], false).await.unwrap();
        assert!(matches!(hit, HitDecision::Admitted(_)));
    }
    let key = limiter.store().key_name(limiter.bucket(&five, b"x"));
    let mut link = replica.connection();
    let _ = redis::cmd("READONLY").query::<()>(&mut link);
    until("the replica has the hits", || redis::cmd("ZCARD").arg(&key).query::<u32>(&mut link).unwrap() == 4);
}

/// A decision, as soon as there is one: servers that change their roles refuse for a moment more.
async fn decided(limiter: &Limiter<RedisStore>) -> HitDecision {
    let five = limit("five", &[sliding(5, HOUR)]);
    let decision = async {
        loop {
            match limiter.reserve_or_nothing(&[limiter.bucket(&five, b"x")], false).await {
                Ok(decision) => return decision,
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await, // as above
            }
        }
    };
    tokio::time::timeout(PATIENCE, decision).await.expect("the store decides again")
}

async fn one_is_left(limiter: &Limiter<RedisStore>) {
    assert!(matches!(decided(limiter).await, HitDecision::Admitted(_)));
    assert!(matches!(decided(limiter).await, HitDecision::Refused(_)));
}

#[tokio::test]
async fn a_master_that_died_is_replaced_and_the_windows_count_as_incomplete() {
    let mut trio = SentinelTrio::with(&[]);
    let limiter = over(&trio.url()).await;
    four_hits(&limiter, &trio.servers[1]).await;
    complete(&limiter).await;
    trio.servers[0].kill();
    // The mark itself is there: it was copied, too.
    assert_eq!(generation_when_up(&limiter).await, None);
    one_is_left(&limiter).await;
    complete(&limiter).await;
}

#[tokio::test]
async fn a_master_that_is_cut_off_is_left_for_the_one_that_the_sentinels_name() {
    let trio = SentinelTrio::with(&[]);
    let limiter = over(&trio.url()).await;
    four_hits(&limiter, &trio.servers[1]).await;
    complete(&limiter).await;
    // It answers us, but nobody else: as if the network between them were gone.
    for sentinel in &trio.sentinels {
        let mut command = redis::cmd("SENTINEL");
        command.arg("FAILOVER").arg(crate::support::redis_group::MASTER);
        if command.query::<()>(&mut sentinel.connection()).is_ok() {
            break;
        }
    }
    trio.until_replaced();
    let moved = async {
        while !matches!(limiter.store().rebuild_generation("it", "s").await, Ok(None)) {
            tokio::time::sleep(Duration::from_millis(10)).await; // the sentinels are asked each second
        }
    };
    tokio::time::timeout(PATIENCE, moved)
        .await
        .expect("another master is noticed, and its windows are incomplete");
    one_is_left(&limiter).await;
}

#[tokio::test]
async fn a_node_that_died_is_replaced_and_the_windows_count_as_incomplete() {
    let mut cluster = RedisCluster::failing_over(Duration::from_secs(1), &[]);
    let limiter = over(&cluster.url()).await;
    let five = limit("five", &[sliding(5, HOUR)]);
    let lost = cluster.master_of(&limiter.store().key_name(limiter.bucket(&five, b"x")));
    four_hits(&limiter, &cluster.nodes[lost + 3]).await;
    complete(&limiter).await;
    cluster.nodes[lost].kill();
    assert_eq!(generation_when_up(&limiter).await, None);
    one_is_left(&limiter).await;
}

#[tokio::test]
async fn a_stalled_node_fails_calls_at_once_and_is_replaced() {
    let cluster = RedisCluster::failing_over(Duration::from_secs(1), &[]);
    let limiter = over(&cluster.url()).await;
    cluster.nodes[1].signal("STOP");
    let noticed = async {
        while limiter.store().link().is_up() {
            tokio::time::sleep(Duration::from_millis(5)).await; // another process stalls in real time
        }
    };
    tokio::time::timeout(PATIENCE, noticed).await.expect("its silence is noticed");
    let (five, asked) = (limit("five", &[sliding(5, HOUR)]), tokio::time::Instant::now());
    let answer = limiter.reserve(&[limiter.bucket(&five, b"x")], false).await;
    eprintln!("{answer:?} after {:.1?}", asked.elapsed());
    generation_when_up(&limiter).await;
    cluster.nodes[1].signal("CONT");
    decided(&limiter).await;
}

#[tokio::test]
async fn a_restarted_server_counts_as_incomplete_although_it_kept_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let port = crate::support::ports::free_port();
    let kept = |command: &mut std::process::Command| {
        command.arg("--dir").arg(folder.path()).args(["--appendonly", "yes", "--appendfsync", "always"]);
    };
    let mut server = RedisServer::start_at(port, kept);
    let limiter = over(&server.url()).await;
    let five = limit("five", &[sliding(5, HOUR)]);
    limiter.reserve(&[limiter.bucket(&five, b"x")], false).await.unwrap();
    complete(&limiter).await;
    server.kill();
    let _server = RedisServer::start_at(port, kept);
    assert_eq!(generation_when_up(&limiter).await, None);
    assert_eq!(limiter.peek(limiter.bucket(&five, b"x")).await.unwrap().rules[0].count, 1);
}

/// A reservation that is refused by its last log leaves nothing in those before.
#[tokio::test]
async fn a_refusal_in_one_slot_takes_back_what_was_taken_in_others() {
    let cluster = RedisCluster::failing_over(Duration::from_secs(60), &[]);
    let limiter = over(&cluster.url()).await;
    let (many, few) = (limit("many", &[sliding(1000, HOUR)]), limit("few", &[sliding(10, HOUR)]));
    let buckets: Vec<_> = [b"a", b"b", b"c"].map(|subject| limiter.bucket(&many, subject)).into();
    let all = [&buckets[..], &[limiter.bucket(&few, b"everyone")]].concat();
    // All at once, so that most find room at the last log when they look, and none when they take it.
    let decisions = futures_util::future::join_all((0..100).map(|_| limiter.reserve(&all, false))).await;
    let admitted = decisions.iter().filter(|it| matches!(it, Ok(HitDecision::Admitted(_)))).count();
    assert!((1..=10).contains(&admitted), "{admitted} admitted");
    for bucket in &buckets {
        let peek = limiter.peek(*bucket).await.unwrap();
        assert_eq!((peek.holds, peek.rules[0].count), (0, admitted as u32));
    }
}

/// A call that was cut short leaves holds, which count once they are as old as a hold may be: never an admission
/// too many.
#[tokio::test]
async fn a_hold_whose_other_slot_is_gone_is_taken_back_or_counts() {
    let cluster = RedisCluster::failing_over(Duration::from_secs(60), &[]);
    let limiter = over(&cluster.url()).await;
    let five = limit("five", &[sliding(5, HOUR)]);
    let on = |master: usize| {
        (0_u32..).map(u32::to_be_bytes).find(|subject| {
            cluster.master_of(&limiter.store().key_name(limiter.bucket(&five, subject))) == master
        })
    };
    let (here, there) = (on(0).unwrap(), on(1).unwrap());
    cluster.nodes[1].signal("STOP");
    let buckets = [limiter.bucket(&five, &here), limiter.bucket(&five, &there)];
    let ask = ReserveRequest {
        buckets: &buckets,
        id: fresh_id(),
        kind: ReserveKind::Hit,
        solved: false,
        complete: None,
    };
    assert!(limiter.store().reserve(&ask).await.is_err());
    cluster.nodes[1].signal("CONT");
    generation_when_up(&limiter).await;
    for bucket in buckets {
        let peek = limiter.peek(bucket).await.unwrap();
        assert!(peek.holds + peek.rules[0].count <= 1);
    }
}

#[tokio::test]
async fn people_sign_in_over_sentinels_and_clusters() {
    let (trio, cluster) = (SentinelTrio::with(&[]), RedisCluster::failing_over(Duration::from_secs(60), &[]));
    for url in [trio.url(), cluster.url()] {
        let rules = "[limits.login-account]\nrules = [{ max = 3, window = '1m', then = 'captcha' }]";
        let app = TestApp::on(Store::Memory)
            .by_real_clocks()
            .set("store.url", &url)
            .set("store.timeout", "500ms")
            .file(rules);
        let app = app.start().await;
        app.register("alice").await;
        let client = app.client();
        for _ in 0..3 {
            assert_eq!(client.login("alice", "a wrong password").await.status, 401, "{url}");
        }
        let fourth = client.login("alice", "a wrong password").await;
        assert_eq!((fourth.status, fourth.problem()), (403, "captcha-required"), "{url}: {}", fourth.text);
        // A challenge counts once for every instance: its mark is in the store.
        let id = client.challenge().await;
        let solved = client.login_with("alice", "a wrong password", &id, crate::support::app::ANSWER).await;
        assert_eq!(solved.status, 401);
        let again = client.login_with("alice", "a wrong password", &id, crate::support::app::ANSWER).await;
        assert_eq!((again.status, again.problem()), (403, "captcha-invalid"), "{url}");
        assert_eq!(client.get("/readyz").await.body["store"], "up");
    }
}
