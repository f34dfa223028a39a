//! Decisions while Redis is stalled, killed or cut off. These tests stop real processes and so run in real
//! time; they print their measurements, and only assert bounds that a loaded machine keeps.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatehouse::clock::{Clock, Micros};
use gatehouse_limiter::*;
use tokio::time::Instant;

use super::proxy::{Proxy, Way};
use crate::support::limits::{NOON, limit, limiter, sliding};
use crate::support::redis::RedisServer;

const TIMEOUT: Duration = Duration::from_millis(100);
/// The goal is 150 ms for a failure and 300 ms for the recovery; a loaded machine needs more.
const GENEROUS: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

async fn over(url: &str) -> Limiter<RedisStore> {
    let client = redis::Client::open(url).unwrap();
    let store = RedisStore::new(client, TIMEOUT, "t", Clock::manual(NOON));
    assert!(store.link().ready(Duration::from_secs(60)).await);
    limiter(store)
}

struct Timed {
    answered: Instant,
    took: Duration,
    failed: bool,
}

/// Asks for a decision every 20 ms until it is stopped; the calls do not wait for each other.
struct Asking {
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<Timed>>,
}

impl Asking {
    fn start(limiter: &Limiter<RedisStore>) -> Self {
        let (stop, limiter) = (Arc::new(AtomicBool::new(false)), limiter.clone());
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut decisions = tokio::task::JoinSet::new();
            let mut beat = tokio::time::interval(Duration::from_millis(20));
            while !stopped.load(Ordering::SeqCst) {
                beat.tick().await;
                let limiter = limiter.clone();
                decisions.spawn(async move {
                    let limit = limit("a", &[sliding(1_000_000, MINUTE)]);
                    let asked = Instant::now();
                    let failed = limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await.is_err();
                    Timed { answered: Instant::now(), took: asked.elapsed(), failed }
                });
            }
            decisions.join_all().await
        });
        Self { stop, task }
    }

    /// Prints and bounds the longest failure, and the first success after that moment.
    async fn judge(self, what: &str, back: Instant) {
        // The server comes back in real time.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        self.stop.store(true, Ordering::SeqCst);
        let decisions = self.task.await.unwrap();
        let failures: Vec<_> = decisions.iter().filter(|decision| decision.failed).collect();
        let longest = failures.iter().map(|decision| decision.took).max().expect("an outage");
        let first = decisions.iter().filter(|decision| !decision.failed && decision.answered > back);
        let first = first.map(|decision| decision.answered - back).min().expect("a recovery");
        eprintln!(
            "{what}: {} of {} failed, the longest took {longest:.1?}; first success {first:.1?} after its end",
            failures.len(),
            decisions.len()
        );
        assert!(longest < GENEROUS, "a failing decision took {longest:?}");
        assert!(first < GENEROUS, "the first success came after {first:?}");
        let last_failure = failures.iter().map(|decision| decision.answered).max().unwrap();
        assert!(last_failure < back + GENEROUS, "failures went on after the recovery");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_server_costs_a_time_out_and_is_found_again() {
    let server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let asking = Asking::start(&limiter);
    // Another process: it answers for a while first.
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.signal("STOP");
    // The duration of a real outage: our clock does not move a stopped server.
    tokio::time::sleep(Duration::from_secs(2)).await;
    server.signal("CONT");
    asking.judge("stalled for 2 s", Instant::now()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_is_found_again_when_it_is_back_and_empty() {
    let mut server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let asking = Asking::start(&limiter);
    // Another process: it answers for a while first.
    tokio::time::sleep(Duration::from_millis(200)).await;
    server.kill();
    // The duration of a real outage: our clock does not move a stopped server.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let port = server.port;
    let back = tokio::task::spawn_blocking(move || (RedisServer::start_at(port, |_| {}), Instant::now()));
    let (_server, back) = back.await.unwrap();
    asking.judge("killed for 2 s", back).await;
}

#[tokio::test]
async fn an_outage_is_seen_without_a_call() {
    let mut server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let link = limiter.store().link();
    server.kill();
    // The bound is a second plus the timeout of the check. Six times that is asserted.
    let seen = tokio::time::timeout(Duration::from_secs(6), async {
        while link.is_up() {
            // Another process: checked again in real time.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(seen.await.is_ok(), "nobody called, and the link still says that it is up");
}

#[tokio::test]
async fn one_slow_call_leaves_the_connection_to_the_others() {
    let server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let connected = || -> u64 {
        let stats: String = redis::cmd("INFO").arg("stats").query(&mut server.connection()).unwrap();
        let line = stats.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse().unwrap()
    };
    let before = connected();
    let limit = limit("a", &[sliding(1_000_000, MINUTE)]);
    let stalled = Instant::now();
    server.signal("STOP");
    assert!(limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await.is_err());
    // The stopped server must not answer meanwhile.
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.signal("CONT");
    let stalled = stalled.elapsed();
    assert!(limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await.is_ok() || stalled > TIMEOUT * 2);
    // Each look at the figure is a connection, too.
    let fresh = connected() - before - 1;
    eprintln!("stalled for {stalled:.1?}: {fresh} new connections");
    // The bound: within the timeout of the next check, the connection is kept.
    assert!(fresh == 0 || stalled > Duration::from_millis(180), "{fresh} new connections");
    assert!(limiter.store().link().ready(Duration::from_secs(60)).await);
}

#[tokio::test]
async fn a_script_that_was_flushed_is_loaded_again() {
    let server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let limit = limit("a", &[sliding(2, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    for admitted in [true, true, false] {
        redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut server.connection()).unwrap();
        let decision = limiter.reserve(&[bucket], false).await.unwrap();
        assert_eq!(matches!(decision, HitDecision::Admitted(_)), admitted, "{decision:?}");
    }
}

/// A record without entries.
struct NothingRecorded;

impl WindowRecord for NothingRecorded {
    type Error = std::convert::Infallible;

    async fn now(&self) -> Result<Micros, Self::Error> {
        Ok(Clock::System.now())
    }

    async fn restore(&self, _: StoreState) -> Result<usize, RebuildError<Self::Error>> {
        Ok(0)
    }
}

#[tokio::test]
async fn a_store_that_refused_writes_for_long_is_rebuilt_a_second_after_it_accepts_them() {
    let server = RedisServer::start();
    let clock = Clock::manual(NOON);
    let store = RedisStore::new(server.client(), TIMEOUT, "t", clock.clone());
    assert!(store.link().ready(Duration::from_secs(60)).await);
    let rebuild = WindowRebuild::new(limiter(store), "it", clock.clone());
    let replicas_wanted = |count: &str| {
        let mut set = redis::cmd("CONFIG");
        set.arg("SET").arg("min-replicas-to-write").arg(count).query::<()>(&mut server.connection()).unwrap();
    };
    replicas_wanted("1");
    let first = rebuild.run("s", &NothingRecorded).await;
    assert!(matches!(first, Err(RebuildError::Store(StoreError::Broken(_)))), "{first:?}");
    // More than two minutes; each refusal but the first is known, and not told again.
    for _ in 0..150 {
        clock.advance(Duration::from_secs(1));
        let again = rebuild.run("s", &NothingRecorded).await;
        assert!(matches!(again, Err(RebuildError::FailedLately)), "{again:?}");
    }
    replicas_wanted("0");
    clock.advance(Duration::from_secs(1));
    assert!(rebuild.run("s", &NothingRecorded).await.is_ok());
}

/// Waits for the link; the proxy was set to pass just before.
async fn recovered(limiter: &Limiter<RedisStore>) {
    let link = limiter.store().link();
    let again = async {
        let nothing = limit("probe", &[sliding(1, MINUTE)]);
        while limiter.peek(limiter.bucket(&nothing, b"")).await.is_err() {
            // Another process: checked again in real time.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        link.ready(Duration::from_secs(60)).await
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(20), again).await, Ok(true));
}

#[tokio::test]
async fn a_reservation_whose_answer_got_lost_counts_at_most_once() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port).await;
    let limiter = over(&proxy.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    proxy.set(Way::Mute);
    assert!(limiter.reserve(&[bucket], false).await.is_err());
    proxy.set(Way::Clear);
    recovered(&limiter).await;
    assert_eq!(limiter.peek(bucket).await.unwrap().rules[0].count, 1, "it was executed");
    let mut admitted = 0;
    for _ in 0..5 {
        let decision = limiter.reserve(&[bucket], false).await.unwrap();
        admitted += usize::from(matches!(decision, HitDecision::Admitted(_)));
    }
    assert_eq!(admitted, 2, "with the one that was executed, 3");
}

#[tokio::test]
async fn what_is_not_done_unless_admitted_is_given_back_where_the_answer_got_lost() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port).await;
    let limiter = over(&proxy.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    proxy.set(Way::Mute);
    assert!(limiter.reserve_or_nothing(&[bucket], false).await.is_err());
    // Its refund follows directly; the server executes both, although nobody receives the answers.
    let given_back = async {
        while server.calls("zadd") == 0 || server.calls("zrem") == 0 {
            // Another process: checked again in real time.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), given_back).await.expect("a hit, and its refund");
    proxy.set(Way::Clear);
    recovered(&limiter).await;
    assert_eq!(limiter.peek(bucket).await.unwrap().rules[0].count, 0);
}

#[tokio::test]
async fn a_hold_whose_answer_got_lost_is_given_back() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port).await;
    let limiter = over(&proxy.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    proxy.set(Way::Mute);
    assert!(limiter.hold(&[bucket], false, Duration::from_secs(1)).await.is_err());
    proxy.set(Way::Clear);
    recovered(&limiter).await;
    // Its refund follows directly, by itself.
    let given_back = async {
        while limiter.peek(bucket).await.unwrap().holds > 0 {
            // Another process: checked again in real time.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), given_back).await.expect("nobody owns the slot");
    assert_eq!(limiter.peek(bucket).await.unwrap().rules[0].count, 0);
    for _ in 0..3 {
        let attempt = limiter.hold(&[bucket], false, Duration::from_millis(300)).await.unwrap();
        let HoldDecision::Held(hold) = attempt else { panic!("a slot is free") };
        hold.keep().await.unwrap();
    }
    let attempt = limiter.hold(&[bucket], false, Duration::from_millis(300)).await.unwrap();
    assert!(matches!(attempt, HoldDecision::OutOfPatience | HoldDecision::Refused(_)), "a fourth slot");
}

/// What the log holds once the limiter has taken back what it owes; fails if it does not, before the hold lapses.
async fn until_nothing_is_held(limiter: &Limiter<RedisStore>, bucket: Bucket<'_>) {
    let taken_back = async {
        while limiter.peek(bucket).await.map_or(1, |peek| peek.holds + peek.rules[0].count) > 0 {
            // Another process: checked again in real time.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), taken_back).await.expect("it is taken back");
}

#[tokio::test]
async fn what_was_reserved_on_a_connection_that_broke_is_given_back_on_the_next() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port).await;
    let limiter = over(&proxy.url()).await;
    let direct = over(&server.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    let hold = async || limiter.hold(&[bucket], false, Duration::from_secs(1)).await.is_err();
    let hit = async || limiter.reserve_or_nothing(&[bucket], false).await.is_err();
    for held in [true, false] {
        proxy.set(Way::CutAfterOneScript);
        limiter.peek(bucket).await.unwrap();
        assert!(if held { hold().await } else { hit().await });
        let peek = direct.peek(bucket).await.unwrap();
        assert_eq!(peek.holds + peek.rules[0].count, 1, "it was executed");
        proxy.set(Way::Clear);
        until_nothing_is_held(&direct, bucket).await;
        recovered(&limiter).await;
    }
}

#[tokio::test]
async fn what_could_not_be_settled_is_given_back_when_the_server_answers_again() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port).await;
    let limiter = over(&proxy.url()).await;
    let direct = over(&server.url()).await;
    let challenges = Rule::sliding(3, MINUTE, RuleAction::Captcha);
    let (own, shared) = (limit("own", &[challenges]), limit("shared", &[sliding(3, MINUTE)]));
    let buckets = [limiter.bucket(&own, b"x"), limiter.bucket(&shared, b"x")];
    for succeeds in [true, false] {
        assert!(matches!(limiter.reserve(&buckets[..1], false).await, Ok(HitDecision::Admitted(_))));
        let attempt = limiter.hold(&buckets, false, Duration::from_secs(1)).await.unwrap();
        let HoldDecision::Held(hold) = attempt else { panic!("a slot is free") };
        proxy.set(Way::LoseAfterOneScript);
        limiter.peek(buckets[0]).await.unwrap();
        // A success forgives what was before; of a failure, one log takes the slot back.
        let settled = match succeeds {
            true => hold.succeed(|_| true).await.map(drop),
            false => hold.keep_in(|bucket| bucket == 0).await.map(drop),
        };
        assert!(settled.is_err());
        proxy.set(Way::Clear);
        until_nothing_is_held(&direct, buckets[1]).await;
        if succeeds {
            until_nothing_is_held(&direct, buckets[0]).await;
        }
        recovered(&limiter).await;
    }
    assert_eq!(direct.peek(buckets[0]).await.unwrap().holds, 1, "a failure counts by itself, in a while");
}

/// As a program makes it before its runtime.
#[test]
fn a_store_that_is_made_outside_of_a_runtime_connects_at_its_first_call() {
    let server = RedisServer::start();
    let store = RedisStore::new(server.client(), Duration::from_secs(10), "t", Clock::manual(NOON));
    assert!(!store.link().is_up());
    let limiter = limiter(store);
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let asked = async {
        // On a thread that is not of the runtime's own.
        let decision = limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await;
        (matches!(decision, Ok(HitDecision::Admitted(_))), limiter.store().link().is_up())
    };
    assert_eq!(tokio::runtime::Runtime::new().unwrap().block_on(asked), (true, true));
}

#[tokio::test]
async fn a_first_call_waits_for_the_connection() {
    let server = RedisServer::start();
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let first = async |servers: redis::Client| {
        let store = RedisStore::new(servers, Duration::from_secs(10), "t", Clock::manual(NOON));
        let limiter = limiter(store);
        limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await
    };
    assert!(matches!(first(server.client()).await, Ok(HitDecision::Admitted(_))));
    let nobody = redis::Client::open("redis://127.0.0.1:1/").unwrap();
    assert!(matches!(first(nobody).await, Err(StoreError::Down)), "nobody is there to wait for");
}

#[tokio::test]
async fn garbage_on_the_line_is_an_outage_and_ends_with_it() {
    let server = RedisServer::start();
    let proxy = Proxy::to(server.port).await;
    let limiter = over(&proxy.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    proxy.set(Way::Garbage);
    for _ in 0..20 {
        assert!(limiter.reserve(&[bucket], false).await.is_err());
    }
    assert!(!limiter.store().link().is_up());
    proxy.set(Way::Clear);
    recovered(&limiter).await;
}

/// A server that refuses writes: the link must not report itself as up, and must recover by itself.
#[tokio::test]
async fn a_server_that_refuses_writes_is_no_store() {
    let server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    let set = |memory: &str| {
        let mut config = redis::cmd("CONFIG");
        config.arg("SET").arg("maxmemory").arg(memory).query::<()>(&mut server.connection()).unwrap();
    };
    set("1");
    let refused = limiter.reserve(&[bucket], false).await;
    assert!(matches!(refused, Err(StoreError::Broken(_))), "{refused:?}");
    assert!(!limiter.store().link().is_up());
    set("0");
    assert!(limiter.store().link().ready(Duration::from_secs(60)).await);
    assert!(limiter.reserve(&[bucket], false).await.is_ok());
}

#[tokio::test]
async fn a_primary_that_became_a_replica_is_left() {
    let server = RedisServer::start();
    let limiter = over(&server.url()).await;
    let limit = limit("a", &[sliding(3, MINUTE)]);
    let bucket = limiter.bucket(&limit, b"x");
    let mut admin = server.connection();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(1).query::<()>(&mut admin).unwrap();
    let refused = limiter.reserve(&[bucket], false).await;
    assert!(matches!(refused, Err(StoreError::Down)), "{refused:?}");
    for _ in 0..20 {
        assert!(limiter.reserve(&[bucket], false).await.is_err());
        assert!(!limiter.store().link().is_up(), "it takes no writes, whatever connections it takes");
        // Another process: checked again in real time.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").query::<()>(&mut admin).unwrap();
    recovered(&limiter).await;
    assert!(limiter.reserve(&[bucket], false).await.is_ok());
}
