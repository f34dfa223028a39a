//! The store of windows that the configuration selects, and the limiter over it. All else of the limiter is imported
//! from its own crate.

use gatehouse_limiter::{
    Bucket, HitId, HoldOutcome, KeptHit, LogPeek, LogReading, MemoryStore, RedisStore, ReserveRequest,
    StoreError, StoreVerdict, WindowStore,
};

use crate::clock::Micros;

pub enum Store {
    Memory(MemoryStore),
    Redis(RedisStore),
}

pub type Limiter = gatehouse_limiter::Limiter<Store>;
pub type Hold = gatehouse_limiter::Hold<Store>;
pub type HoldDecision = gatehouse_limiter::HoldDecision<Store>;
pub type WindowRebuild = gatehouse_limiter::WindowRebuild<Store>;

impl WindowStore for Store {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        match self {
            Self::Memory(store) => store.reserve(ask).await,
            Self::Redis(store) => store.reserve(ask).await,
        }
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
    ) -> Result<Micros, StoreError> {
        match self {
            Self::Memory(store) => store.settle(buckets, id, outcomes).await,
            Self::Redis(store) => store.settle(buckets, id, outcomes).await,
        }
    }

    async fn peek(&self, bucket: Bucket<'_>) -> Result<LogPeek, StoreError> {
        match self {
            Self::Memory(store) => store.peek(bucket).await,
            Self::Redis(store) => store.peek(bucket).await,
        }
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        match self {
            Self::Memory(store) => store.read(bucket).await,
            Self::Redis(store) => store.read(bucket).await,
        }
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.clear(bucket).await,
            Self::Redis(store) => store.clear(bucket).await,
        }
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.restore(hits).await,
            Self::Redis(store) => store.restore(hits).await,
        }
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        match self {
            Self::Memory(store) => store.rebuild_generation(name, shape).await,
            Self::Redis(store) => store.rebuild_generation(name, shape).await,
        }
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.begin_rebuild(name, by).await,
            Self::Redis(store) => store.begin_rebuild(name, by).await,
        }
    }

    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => store.finish_rebuild(name, shape, by).await,
            Self::Redis(store) => store.finish_rebuild(name, shape, by).await,
        }
    }
}
