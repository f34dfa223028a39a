//! For tests: a store in memory, behind a line on which calls fail as a test wants.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::yield_now;

use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;
use crate::key::SubKey;
use crate::limit::{Limit, LimitMode, Rule, RuleAction};
use crate::limiter::Limiter;
use crate::memory::MemoryStore;
use crate::store::*;

pub struct FaultyStore {
    pub memory: MemoryStore,
    /// What each call about these logs fails with.
    pub faults: Mutex<HashMap<SubjectKey, StoreError>>,
    /// The last reservation that failed.
    pub late: Mutex<Option<(Vec<OwnedBucket>, HitId)>>,
    /// The hits that were settled, or that failed to be.
    pub settled: Mutex<Vec<HitId>>,
    /// It loses its windows as soon as they are complete, as a store that evicts what is written to it.
    pub loses_all: AtomicBool,
}

/// A limiter over one, and a limit of three in a minute.
pub fn limiter() -> (Limiter<FaultyStore>, Limit) {
    let (entropy, clock) = (Entropy::seeded(1), Clock::manual(Micros(1_000_000)));
    let store = FaultyStore {
        memory: MemoryStore::new(clock),
        faults: Mutex::default(),
        late: Mutex::default(),
        settled: Mutex::default(),
        loses_all: AtomicBool::new(false),
    };
    let rule = Rule::sliding(3, Duration::from_secs(60), RuleAction::Block);
    let limit = Limit::new("test", vec![rule], LimitMode::Enforce).unwrap();
    (Limiter::new(store, SubKey::random(&entropy), &entropy), limit)
}

impl FaultyStore {
    pub fn fail(&self, bucket: Bucket<'_>, error: StoreError) {
        self.faults.lock().insert(bucket.key, error);
    }

    pub fn repair(&self) {
        self.faults.lock().clear();
    }

    /// The last reservation that failed arrives after all.
    pub async fn let_late_call_arrive(&self) {
        let (buckets, id) = self.late.lock().take().expect("one failed");
        let buckets: Vec<Bucket<'_>> = buckets.iter().map(OwnedBucket::borrow).collect();
        let ask =
            ReserveRequest { buckets: &buckets, id, kind: ReserveKind::Hold, solved: false, complete: None };
        assert!(matches!(self.memory.reserve(&ask).await, Ok(StoreVerdict::Admitted { .. })));
    }

    async fn line(&self, buckets: &[Bucket<'_>]) -> Result<(), StoreError> {
        check_buckets(buckets).expect("a limiter asks nothing else");
        yield_now().await;
        let faults = self.faults.lock();
        let fault = buckets.iter().find_map(|bucket| faults.get(&bucket.key));
        fault.map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl WindowStore for FaultyStore {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        if let Err(error) = self.line(ask.buckets).await {
            let buckets = ask.buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
            *self.late.lock() = Some((buckets, ask.id));
            return Err(error);
        }
        self.memory.reserve(ask).await
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let line = self.line(buckets).await;
        self.settled.lock().push(id);
        line?;
        self.memory.settle(buckets, id, outcomes, peek).await
    }

    async fn peek(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        check_buckets(buckets).expect("a limiter asks nothing else");
        self.memory.peek(buckets).await
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        self.memory.read(bucket).await
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        self.memory.clear(bucket).await
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        self.memory.restore(hits).await
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        self.memory.rebuild_generation(name, shape).await
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<Micros, StoreError> {
        self.memory.begin_rebuild(name, by).await
    }

    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        let finished = self.memory.finish_rebuild(name, shape, by).await;
        if self.loses_all.load(Ordering::SeqCst) {
            self.memory.doubt();
        }
        finished
    }
}
