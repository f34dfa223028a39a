//! A store and its clock, controlled by a test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gatehouse::clock::{Clock, Micros};
use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use gatehouse_limiter::*;

use crate::support::redis::RedisServer;
use crate::support::redis_group::{RedisCluster, SentinelTrio};
use crate::support::steered::SteeredClock;

/// 2026-03-01 12:00:00 UTC, an even second.
pub const NOON: Micros = Micros(1_772_366_400_000_000);

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

pub struct RedisRig {
    clock: SteeredClock,
    /// The caller's clock, which moves with the server's here.
    own: Clock,
    pub server: RedisServer,
    limiter: Limiter<RedisStore>,
}

impl RedisRig {
    pub async fn new() -> Self {
        let clock = SteeredClock::at(NOON);
        let server = RedisServer::steered(&clock);
        let own = Clock::manual(NOON);
        let store = RedisStore::new(server.client(), Duration::from_secs(5), "t", own.clone());
        assert!(store.link().ready(Duration::from_secs(60)).await);
        Self { limiter: limiter(store), server, clock, own }
    }

    /// The server's clock, apart from the caller's.
    pub fn set_server(&self, to: Micros) {
        self.clock.set(to);
    }

    /// An operator's mistake.
    pub fn flush(&self) {
        redis::cmd("FLUSHALL").query::<()>(&mut self.server.connection()).unwrap();
    }

    /// Refusals are remembered for a moment.
    pub async fn remembering() -> Self {
        let Self { clock, server, limiter: _, own } = Self::new().await;
        let store = RedisStore::new(server.client(), Duration::from_secs(5), "t", own.clone());
        let store = store.remembering_refusals();
        assert!(store.link().ready(Duration::from_secs(60)).await);
        Self { limiter: limiter(store), server, clock, own }
    }
}

impl Rig for RedisRig {
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
        let key = self.store().key_name(bucket);
        redis::cmd("ZCARD").arg(key).query(&mut self.server.connection()).unwrap()
    }
}

/// The limiter on a cluster of six nodes.
pub struct ClusterRig {
    clock: SteeredClock,
    own: Clock,
    pub cluster: RedisCluster,
    limiter: Limiter<RedisStore>,
}

impl ClusterRig {
    pub async fn new() -> Self {
        // A cluster waits for two seconds of its clock before it accepts writes.
        let clock = SteeredClock::at(NOON.minus(Duration::from_secs(3600)));
        let cluster = RedisCluster::steered(&clock);
        clock.set(NOON);
        let own = Clock::manual(NOON);
        let limiter = limiter(connected(&cluster.url(), &own).await);
        Self { clock, own, cluster, limiter }
    }

    /// As new: no data, at noon, and a limiter that nobody has used.
    pub async fn reset(&mut self) {
        self.cluster.flush();
        self.set(NOON);
        self.limiter = limiter_apart(connected(&self.cluster.url(), &self.own).await);
    }
}

impl Rig for ClusterRig {
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
        let key = self.store().key_name(bucket);
        redis::cmd("ZCARD").arg(key).query(&mut self.cluster.connection()).unwrap()
    }
}

/// The limiter on the master that Sentinels name.
pub struct SentinelRig {
    clock: SteeredClock,
    own: Clock,
    trio: SentinelTrio,
    limiter: Limiter<RedisStore>,
}

impl SentinelRig {
    pub async fn new() -> Self {
        let (clock, own) = (SteeredClock::at(NOON), Clock::manual(NOON));
        let trio = SentinelTrio::steered(&clock);
        let limiter = limiter(connected(&trio.url(), &own).await);
        Self { clock, own, trio, limiter }
    }

    /// As new: no data, at noon, and a limiter that nobody has used.
    pub async fn reset(&mut self) {
        redis::cmd("FLUSHALL").query::<()>(&mut self.trio.servers[0].connection()).unwrap();
        self.set(NOON);
        self.limiter = limiter_apart(connected(&self.trio.url(), &self.own).await);
    }
}

impl Rig for SentinelRig {
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
        let key = self.store().key_name(bucket);
        redis::cmd("ZCARD").arg(key).query(&mut self.trio.servers[0].connection()).unwrap()
    }
}

/// A store at that address, once it is connected.
pub async fn connected(url: &str, clock: &Clock) -> RedisStore {
    let servers = RedisUrl::parse(url).unwrap().servers(None).unwrap();
    let store = RedisStore::new(servers, Duration::from_secs(5), "t", clock.clone());
    assert!(store.link().ready(Duration::from_secs(60)).await);
    store
}

pub fn limiter<S: WindowStore + 'static>(store: S) -> Limiter<S> {
    Limiter::new(store, MasterKey::from_bytes([1; 32]).derive("test.subject"), &Entropy::Os)
}

/// A limiter whose logs no other has: what another case still has in flight writes to its own.
fn limiter_apart<S: WindowStore + 'static>(store: S) -> Limiter<S> {
    Limiter::new(store, MasterKey::from_bytes(Entropy::Os.bytes()).derive("test.subject"), &Entropy::Os)
}

/// For cases in which the id of a hit does not matter, as long as it is new. Ids increase, so that of two
/// hits in one microsecond every store treats the first as the older.
pub fn fresh_id() -> HitId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let [_, _, id @ ..] = NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes();
    HitId(id)
}

pub fn sliding(max: u32, window: Duration) -> Rule {
    Rule::sliding(max, window, RuleAction::Block)
}

pub fn limit(name: &str, rules: &[Rule]) -> Limit {
    Limit::new(name, rules.to_vec(), LimitMode::Enforce).unwrap()
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
            let mut rig = crate::throttle::rig::ClusterRig::new().await;
            $(
                eprintln!("{}", stringify!($case));
                rig.reset().await;
                $case(&rig).await;
            )*
        }
        #[tokio::test]
        async fn under_sentinels() {
            let mut rig = crate::throttle::rig::SentinelRig::new().await;
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
