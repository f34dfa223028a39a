//! The store of windows that the configuration selects, and the limiter over it. All else of the limiter is imported
//! from its own crate.

use gatehouse_limiter::{
    Bucket, CompleteWindows, HitId, HoldOutcome, KeptHit, LogPeek, LogReading, MemoryStore, RedisStore,
    ReserveRequest, Settlement, StoreError, StoreVerdict, WindowStore,
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

/// Makes a call on whichever store it is.
macro_rules! on_store {
    ($either:expr, $store:ident => $call:expr) => {
        match $either {
            Self::Memory($store) => $call.await,
            Self::Redis($store) => $call.await,
        }
    };
}

impl WindowStore for Store {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        on_store!(self, store => store.reserve(ask))
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        on_store!(self, store => store.settle(buckets, id, outcomes, peek))
    }

    async fn peek(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        on_store!(self, store => store.peek(buckets))
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        on_store!(self, store => store.read(bucket))
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        on_store!(self, store => store.clear(bucket))
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        on_store!(self, store => store.restore(hits))
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        on_store!(self, store => store.rebuild_generation(name, shape))
    }

    async fn are_complete(&self, windows: CompleteWindows<'_>) -> Result<bool, StoreError> {
        on_store!(self, store => store.are_complete(windows))
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<Micros, StoreError> {
        on_store!(self, store => store.begin_rebuild(name, by))
    }

    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        on_store!(self, store => store.finish_rebuild(name, shape, by))
    }
}
