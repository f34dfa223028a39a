//! A store and its clock, controlled by a test.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gatehouse::clock::{Clock, Micros};
use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use gatehouse::throttle::*;

use crate::support::redis::RedisServer;
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

pub fn limiter<S: WindowStore + 'static>(store: S) -> Limiter<S> {
    Limiter::new(store, MasterKey::from_bytes([1; 32]).derive("test.subject"), &Entropy::Os)
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

/// Each case becomes a test on each store.
macro_rules! on_stores {
    ($($case:ident)*) => {
        mod memory {
            $(#[tokio::test] async fn $case() { super::$case(&super::MemoryRig::new().await).await; })*
        }
        mod redis {
            $(#[tokio::test] async fn $case() { super::$case(&super::RedisRig::new().await).await; })*
        }
        mod redis_remembering {
            $(#[tokio::test] async fn $case() { super::$case(&super::RedisRig::remembering().await).await; })*
        }
    };
}
pub(crate) use on_stores;
