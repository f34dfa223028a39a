//! A store and its clock, controlled by a test.

use std::time::Duration;

use gatehouse_limiter::clock::{Clock, Micros};
use gatehouse_limiter::entropy::Entropy;
use gatehouse_limiter::*;

pub use crate::support::limits::*;
use crate::support::redis::RedisServer;
use crate::support::redis_group::{NEVER_MS, RedisCluster, SentinelTrio};
use crate::support::steered::SteeredClock;

pub trait Rig {
    type Store: WindowStore + 'static;
    fn limiter(&self) -> &Limiter<Self::Store>;
    fn set(&self, to: Micros);
    fn now(&self) -> Micros;
    /// How many hits and holds the log has, inside and outside its windows.
    fn members(&self, bucket: Bucket<'_>) -> usize;

    fn advance(&self, span: Duration) {
        self.set(self.now().plus(span));
    }

    fn store(&self) -> &Self::Store {
        self.limiter().store()
    }
}

pub struct MemoryRig {
    clock: Clock,
    limiter: Limiter<MemoryStore>,
}

impl MemoryRig {
    pub async fn new() -> Self {
        let clock = Clock::manual(NOON);
        Self { limiter: limiter(MemoryStore::new(clock.clone())), clock }
    }
}

impl Rig for MemoryRig {
    type Store = MemoryStore;

    fn limiter(&self) -> &Limiter<MemoryStore> {
        &self.limiter
    }

    fn set(&self, to: Micros) {
        self.clock.set(to);
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn members(&self, bucket: Bucket<'_>) -> usize {
        self.store().members(bucket.key)
    }
}

/// Redis of one kind.
pub trait Servers {
    fn url(&self) -> String;
    /// Of whichever server has the key.
    fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T;

    fn flush(&self) {
        self.ask::<()>(&redis::cmd("FLUSHALL"));
    }
}

impl Servers for RedisServer {
    fn url(&self) -> String {
        self.url()
    }

    fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        command.query(&mut self.connection()).unwrap()
    }
}

impl Servers for RedisCluster {
    fn url(&self) -> String {
        self.url()
    }

    fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        let nodes = self.nodes.iter().map(RedisServer::url);
        let client = redis::cluster::ClusterClient::new(nodes).unwrap();
        command.query(&mut client.get_connection().unwrap()).unwrap()
    }

    fn flush(&self) {
        for node in &self.nodes {
            let mut link = node.connection();
            if node.replication("role") == "master" {
                redis::cmd("FLUSHALL").query::<()>(&mut link).unwrap();
            }
        }
    }
}

/// Whose master Sentinels name.
impl Servers for SentinelTrio {
    fn url(&self) -> String {
        self.url()
    }

    fn ask<T: redis::FromRedisValue>(&self, command: &redis::Cmd) -> T {
        self.servers[0].ask(command)
    }
}

pub struct RedisRig<S = RedisServer> {
    clock: SteeredClock,
    /// The caller's clock, which moves with the servers' here.
    own: Clock,
    pub server: S,
    limiter: Limiter<RedisStore>,
}

impl RedisRig {
    pub async fn new() -> Self {
        let clock = SteeredClock::at(NOON);
        Self::of(RedisServer::steered(&clock), clock).await
    }

    /// Refusals are remembered for a moment.
    pub async fn remembering() -> Self {
        let rig = Self::new().await;
        let store = connected(&rig.server.url(), &rig.own).await.remembering_refusals();
        Self { limiter: limiter(store), ..rig }
    }
}

impl RedisRig<RedisCluster> {
    /// Six nodes.
    pub async fn cluster() -> Self {
        // A cluster waits for two seconds of its clock before it accepts writes.
        let clock = SteeredClock::at(NOON.minus(Duration::from_secs(3600)));
        let cluster = RedisCluster::start(Some(&clock), NEVER_MS, &[], None);
        clock.set(NOON);
        Self::of(cluster, clock).await
    }
}

impl RedisRig<SentinelTrio> {
    pub async fn sentinels() -> Self {
        let clock = SteeredClock::at(NOON);
        Self::of(SentinelTrio::start(Some(&clock), &[], None), clock).await
    }
}

impl<S: Servers> RedisRig<S> {
    async fn of(server: S, clock: SteeredClock) -> Self {
        let own = Clock::manual(NOON);
        Self { limiter: limiter(connected(&server.url(), &own).await), server, clock, own }
    }

    /// The servers' clock, apart from the caller's.
    pub fn set_server(&self, to: Micros) {
        self.clock.set(to);
    }

    /// As new: no data, at noon, and a limiter that nobody has used.
    pub async fn reset(&mut self) {
        self.server.flush();
        self.set(NOON);
        self.limiter = limiter_apart(connected(&self.server.url(), &self.own).await);
    }
}

impl<S: Servers> Rig for RedisRig<S> {
    type Store = RedisStore;

    fn limiter(&self) -> &Limiter<RedisStore> {
        &self.limiter
    }

    fn set(&self, to: Micros) {
        self.clock.set(to);
        self.own.set(to);
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }

    fn members(&self, bucket: Bucket<'_>) -> usize {
        self.server.ask(redis::cmd("ZCARD").arg(self.store().key_name(bucket)))
    }
}

/// A store at that address, once it is connected.
pub async fn connected(url: &str, clock: &Clock) -> RedisStore {
    let servers = RedisUrl::parse(url).unwrap().servers(None).unwrap();
    let store = RedisStore::new(servers, Duration::from_secs(5), "t", clock.clone());
    assert!(store.link().ready(Duration::from_secs(60)).await);
    store
}

/// A limiter whose logs no other has: what another case still has in flight writes to its own.
fn limiter_apart<S: WindowStore + 'static>(store: S) -> Limiter<S> {
    Limiter::new(store, SubKey::random(&Entropy::Os), &Entropy::Os)
}

/// Each case becomes a test on each store in this process or on one server; the groups of servers run all cases
/// in one test.
macro_rules! on_stores {
    ($($case:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $case() { super::$case(&super::MemoryRig::new().await).await; })*
        }
        mod redis {
            $(#[tokio::test] async fn $case() { super::$case(&super::RedisRig::new().await).await; })*
        }
        // One group of servers for all cases, because starting it takes longer than they do.
        #[tokio::test]
        async fn on_a_cluster() {
            let mut rig = crate::throttle::rig::RedisRig::cluster().await;
            $(
                eprintln!("{}", stringify!($case));
                rig.reset().await;
                $case(&rig).await;
            )*
        }
        #[tokio::test]
        async fn under_sentinels() {
            let mut rig = crate::throttle::rig::RedisRig::sentinels().await;
            $(
                eprintln!("{}", stringify!($case));
                rig.reset().await;
                $case(&rig).await;
            )*
        }
        mod redis_remembering {
            $(#[tokio::test] async fn $case() { super::$case(&super::RedisRig::remembering().await).await; })*
        }
    };
}
pub(crate) use on_stores;
