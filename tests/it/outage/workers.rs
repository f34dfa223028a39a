//! Threads with their own runtime, like a web server's workers, and their connections to Redis.

use std::time::Duration;

use gatehouse::clock::Clock;
use gatehouse_limiter::*;

use crate::support::limits::{NOON, limit, limiter, sliding};
use crate::support::redis::RedisServer;

const MINUTE: Duration = Duration::from_secs(60);
/// Longer than opening all the connections among which a test looks for its own.
const PATIENCE: Duration = Duration::from_secs(60);

async fn over(server: &RedisServer) -> Limiter<RedisStore> {
    let store = RedisStore::new(server.client(), Duration::from_millis(500), "t", Clock::manual(NOON));
    assert!(store.link().ready(PATIENCE).await);
    limiter(store)
}

/// Runs a worker on a thread with its own runtime.
async fn on_a_worker<T: Send + 'static>(work: impl AsyncFnOnce() -> T + Send + 'static) -> T {
    let worker = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work())
    };
    tokio::task::spawn_blocking(worker).await.unwrap()
}

/// The server's clients except the one that asks, oldest first: id and last command.
fn clients(connection: &mut redis::Connection) -> Vec<(u64, String)> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query(connection).unwrap();
    let field = |line: &str, name: &str| {
        line.split(' ').find_map(|field| field.strip_prefix(name)).expect("a field of CLIENT LIST").to_owned()
    };
    let ours = list.lines().map(|line| (field(line, "id=").parse().unwrap(), field(line, "cmd=")));
    ours.filter(|(_, command)| !command.starts_with("client")).collect()
}

async fn admitted(limiter: &Limiter<RedisStore>, times: u32) -> u32 {
    let limit = limit("a", &[sliding(times, MINUTE)]);
    let mut admitted = 0;
    for _ in 0..times {
        let decision = limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await;
        admitted += u32::from(matches!(decision, Ok(HitDecision::Admitted(_))));
    }
    admitted
}

/// Asks until a second connection has carried a decision.
async fn own_connection(limiter: &Limiter<RedisStore>, server: &mut redis::Connection) -> u64 {
    let limit = limit("warming", &[sliding(1_000_000, MINUTE)]);
    let found = async {
        loop {
            limiter.reserve(&[limiter.bucket(&limit, b"x")], false).await.unwrap();
            let clients = clients(server);
            if let [_, (own, command)] = &clients[..]
                && command.starts_with("evalsha")
            {
                return *own;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("a worker gets a connection of its own")
}

#[tokio::test]
async fn a_worker_asks_over_a_connection_of_its_own_and_meanwhile_over_the_common_one() {
    let server = RedisServer::start();
    let limiter = over(&server).await;
    let mut asking = server.connection();
    assert_eq!(admitted(&limiter, 5).await, 5);
    assert_eq!(clients(&mut asking).len(), 1, "the runtime that opened the store needs no other");
    on_a_worker(async move || {
        assert_eq!(admitted(&limiter, 1_000).await, 995, "from the first call on, and by the same windows");
        own_connection(&limiter, &mut asking).await;
    })
    .await;
}

#[tokio::test]
async fn a_worker_that_loses_its_connection_goes_on_by_the_common_one_and_gets_another() {
    let server = RedisServer::start();
    let limiter = over(&server).await;
    let mut asking = server.connection();
    on_a_worker(async move || {
        let own = own_connection(&limiter, &mut asking).await;
        let killed: u64 = redis::cmd("CLIENT").arg("KILL").arg("ID").arg(own).query(&mut asking).unwrap();
        assert_eq!(killed, 1);
        assert!(admitted(&limiter, 100).await >= 99, "one call at the most was on its way");
        assert!(own_connection(&limiter, &mut asking).await > own);
    })
    .await;
}

#[tokio::test]
async fn connections_of_workers_end_with_the_store() {
    let server = RedisServer::start();
    let limiter = over(&server).await;
    let mut asking = server.connection();
    on_a_worker(async move || {
        own_connection(&limiter, &mut asking).await;
        drop(limiter);
        let gone = async {
            while !clients(&mut asking).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("both connections are closed");
    })
    .await;
}

/// A thread that reuses the slot of an earlier one, with another runtime.
#[tokio::test]
async fn a_worker_that_follows_another_gets_a_connection_that_is_driven() {
    let server = RedisServer::start();
    let limiter = over(&server).await;
    let mut owns = Vec::new();
    for _ in 0..2 {
        let (limiter, mut asking) = (limiter.clone(), server.connection());
        owns.push(on_a_worker(async move || own_connection(&limiter, &mut asking).await).await);
    }
    assert!(owns[0] < owns[1]);
}
