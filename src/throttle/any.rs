//! The store that the configuration chose: one type for the rest of the program.

use super::memory::MemoryStore;
use super::redis::RedisStore;
use super::store::*;

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
    ) -> Result<(), StoreError> {
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

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.clear(bucket).await,
            Self::Redis(store) => store.clear(bucket).await,
        }
    }
}
