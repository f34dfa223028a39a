//! The store that the configuration chose: one type for the rest of the program.

use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::store::*;
use crate::clock::Micros;

pub enum AnyStore {
    Memory(MemoryStore),
    Redis(RedisStore),
}

impl WindowStore for AnyStore {
    async fn reserve(&self, ask: &Ask<'_>) -> Result<Verdict, StoreError> {
        match self {
            Self::Memory(store) => store.reserve(ask).await,
            Self::Redis(store) => store.reserve(ask).await,
        }
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[Outcome],
    ) -> Result<Micros, StoreError> {
        match self {
            Self::Memory(store) => store.settle(buckets, id, outcomes).await,
            Self::Redis(store) => store.settle(buckets, id, outcomes).await,
        }
    }

    async fn peek(&self, bucket: Bucket<'_>) -> Result<Peek, StoreError> {
        match self {
            Self::Memory(store) => store.peek(bucket).await,
            Self::Redis(store) => store.peek(bucket).await,
        }
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<Reading, StoreError> {
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

    async fn restore(&self, hits: &[(Bucket<'_>, Kept)]) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.restore(hits).await,
            Self::Redis(store) => store.restore(hits).await,
        }
    }

    async fn whole_by(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        match self {
            Self::Memory(store) => store.whole_by(name, shape).await,
            Self::Redis(store) => store.whole_by(name, shape).await,
        }
    }

    async fn begin_whole(&self, name: &str, by: HitId) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.begin_whole(name, by).await,
            Self::Redis(store) => store.begin_whole(name, by).await,
        }
    }

    async fn set_whole(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        match self {
            Self::Memory(store) => store.set_whole(name, shape, by).await,
            Self::Redis(store) => store.set_whole(name, shape, by).await,
        }
    }
}
