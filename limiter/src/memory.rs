//! The in-process store: window logs in sharded maps, for one instance and for tests.

use std::collections::HashMap;

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};

use crate::clock::{Clock, Micros};
use crate::entry::{HoldTable, LogEntry, SubjectLog, peek};
use crate::store::*;
use crate::window::{self, GatheredVerdict, TimesLog, WindowLog};

/// Enough that two cores seldom meet at one. A power of two, so that bits of the key select one.
const SHARDS: usize = 64;
/// A shard smaller than this is not swept when it grows.
const SWEEP_FROM: usize = 64;

/// Window logs of this process. They are lost when it ends.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    /// Locks that spin for a moment before they sleep: the work under them takes less time than going to
    /// sleep.
    shards: Box<[Mutex<LogShard>]>,
    marks: Mutex<WindowMarks>,
}

#[derive(Debug, Default)]
struct LogShard {
    logs: HashTable<LogEntry>,
    holds: HoldTable,
    /// The number of logs at which expired ones are swept next: twice those that survived the last sweep, so
    /// that each write pays a bounded share of it.
    sweep_at: usize,
}

/// What is known of windows as a whole, by their name.
#[derive(Debug, Default)]
struct WindowMarks {
    /// The shape in which they are complete, and the rebuild that completed them.
    complete: HashMap<String, (String, HitId)>,
    /// The rebuild that began last.
    rebuilding: HashMap<String, HitId>,
}

impl MemoryStore {
    /// Says that windows may lack hits: the clock was set, and what it made look old was dropped. They are complete again
    /// after a rebuild.
    pub fn doubt(&self) {
        *self.marks.lock() = WindowMarks::default();
    }

    /// An empty store by that clock.
    pub fn new(clock: Clock) -> Self {
        Self { clock, shards: (0..SHARDS).map(|_| Mutex::default()).collect(), marks: Mutex::default() }
    }

    /// Drops the logs that no rule can count any more. Writes do a part of this as they come; this is for
    /// times without writes.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.sweep(now);
            let roomy = shard.sweep_at;
            shard.logs.shrink_to(roomy, |entry| spread(entry.key));
        }
    }

    /// How many logs there are, including expired ones that were not swept yet.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().logs.len()).sum()
    }

    /// Whether it holds no log.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many hits and holds a log has, inside and outside its windows.
    // Hidden: for the suite of every store, and benchmarks.
    #[doc(hidden)]
    pub fn members(&self, key: SubjectKey) -> usize {
        self.lock_one(key).find(key).map_or(0, |log| log.entry.kept.len() + log.holds() as usize)
    }

    /// The answer without a future: nothing here waits except for a short lock.
    // Hidden: for benchmarks; a program takes a limiter.
    #[doc(hidden)]
    pub fn reserve_now(&self, ask: &ReserveRequest<'_>) -> StoreVerdict {
        let clock = self.clock.now();
        match ask.buckets {
            [only] => Self::decide_one(ask, clock, *only, &mut self.lock_one(only.key)),
            buckets => Self::decide(ask, clock, &mut self.lock(buckets)),
        }
    }

    /// The case of one bucket, which is found once, then judged and written.
    fn decide_one(
        ask: &ReserveRequest<'_>,
        clock: Micros,
        bucket: Bucket<'_>,
        shard: &mut LogShard,
    ) -> StoreVerdict {
        let mut gathered = GatheredVerdict::default();
        let Some(mut log) = shard.find(bucket.key) else {
            gathered.add(0, bucket.limit, &TimesLog::default(), clock, ask.solved);
            return refused(&gathered, clock).unwrap_or_else(|| {
                if bucket.limit.capacity() > 0 {
                    shard.open(bucket.key, clock).take(ask, clock, bucket.limit);
                }
                admitted(ask, &gathered, clock)
            });
        };
        log.settle_dead(clock);
        gathered.add(0, bucket.limit, &log, clock, ask.solved);
        refused(&gathered, clock).unwrap_or_else(|| {
            let at = log.next_time(clock);
            if bucket.limit.capacity() > 0 {
                log.take(ask, at, bucket.limit);
            }
            admitted(ask, &gathered, at)
        })
    }

    fn decide(ask: &ReserveRequest<'_>, clock: Micros, shards: &mut LockedShards<'_>) -> StoreVerdict {
        let mut gathered = GatheredVerdict::default();
        let mut at = clock;
        for (index, bucket) in ask.buckets.iter().enumerate() {
            let shard = shards.of(bucket.key);
            match shard.find(bucket.key) {
                Some(mut log) => {
                    log.settle_dead(clock);
                    gathered.add(index, bucket.limit, &log, clock, ask.solved);
                    at = at.max(log.next_time(clock));
                }
                None => gathered.add(index, bucket.limit, &TimesLog::default(), clock, ask.solved),
            }
        }
        refused(&gathered, clock).unwrap_or_else(|| {
            for bucket in ask.buckets.iter().filter(|bucket| bucket.limit.capacity() > 0) {
                let mut log = shards.of(bucket.key).open(bucket.key, clock);
                let at = log.next_time(clock);
                log.take(ask, at, bucket.limit);
            }
            admitted(ask, &gathered, at)
        })
    }

    fn settle_now(&self, buckets: &[Bucket<'_>], id: HitId, outcomes: &[HoldOutcome]) -> Micros {
        let clock = self.clock.now();
        let mut counts_from = None;
        let mut shards = self.lock(buckets);
        for (bucket, outcome) in buckets.iter().zip(outcomes) {
            if bucket.limit.capacity() == 0 {
                continue;
            }
            let shard = shards.of(bucket.key);
            match outcome {
                HoldOutcome::Keep => {
                    let at = shard.open(bucket.key, clock).settle_kept(id, clock, bucket.limit);
                    counts_from = counts_from.max(Some(at));
                }
                HoldOutcome::Refund | HoldOutcome::Forgive { .. } => {
                    let Some(mut log) = shard.find(bucket.key) else { continue };
                    log.settle_dead(clock);
                    log.remove(id);
                    if let (HoldOutcome::Forgive { up_to }, 0) = (outcome, log.holds())
                        && bucket.limit.challenges()
                    {
                        log.entry.kept.forgive(*up_to);
                    }
                    if log.is_empty() {
                        shard.remove(bucket.key);
                    }
                }
            }
        }
        counts_from.unwrap_or(clock)
    }

    fn lock_one(&self, key: SubjectKey) -> MutexGuard<'_, LogShard> {
        self.shards[shard_of(key)].lock()
    }

    /// Locks the shards of these buckets, lowest first, so that two callers never deadlock.
    fn lock(&self, buckets: &[Bucket<'_>]) -> LockedShards<'_> {
        let mut wanted = 0u64;
        for bucket in buckets {
            wanted |= 1 << shard_of(bucket.key);
        }
        let mut locked = LockedShards { shards: Default::default() };
        for place in &mut locked.shards {
            if wanted == 0 {
                break;
            }
            let index = wanted.trailing_zeros() as usize;
            wanted &= wanted - 1;
            *place = Some((index, self.shards[index].lock()));
        }
        locked
    }
}

struct LockedShards<'a> {
    shards: [Option<(usize, MutexGuard<'a, LogShard>)>; MOST_BUCKETS],
}

/// Why the gathered rules refuse; None if they admit.
fn refused(gathered: &GatheredVerdict, clock: Micros) -> Option<StoreVerdict> {
    if let Some(refusal) = gathered.refused() {
        return Some(StoreVerdict::Refused { refusal });
    }
    gathered.held.map(|bucket| StoreVerdict::Held { at: clock, bucket })
}

/// `at` is when the latest of its hits counts.
fn admitted(ask: &ReserveRequest<'_>, gathered: &GatheredVerdict, at: Micros) -> StoreVerdict {
    StoreVerdict::Admitted { at, room: gathered.room(ask.buckets, at), noted: gathered.noted() }
}

impl LockedShards<'_> {
    fn of(&mut self, key: SubjectKey) -> &mut LogShard {
        let wanted = shard_of(key);
        let found = self.shards.iter_mut().flatten().find(|(index, _)| *index == wanted);
        &mut found.expect("locked before, for every bucket").1
    }
}

/// Uses the first half of the key, like [`spread`]: the hash has it well before the second half, so the
/// processor can continue. The table itself uses the lowest and the highest bits of that half.
fn shard_of(key: SubjectKey) -> usize {
    usize::from(key.0[6]) % SHARDS
}

impl LogShard {
    fn find(&mut self, key: SubjectKey) -> Option<SubjectLog<'_>> {
        let entry = self.logs.find_mut(spread(key), |entry| entry.key == key)?;
        Some(SubjectLog { entry, holds: &mut self.holds })
    }

    fn open(&mut self, key: SubjectKey, now: Micros) -> SubjectLog<'_> {
        if self.logs.len() >= self.sweep_at.max(SWEEP_FROM) && self.find(key).is_none() {
            self.sweep(now);
        }
        let place = self.logs.entry(spread(key), |entry| entry.key == key, |entry| spread(entry.key));
        let entry = place.or_insert_with(|| LogEntry::new(key, now)).into_mut();
        SubjectLog { entry, holds: &mut self.holds }
    }

    fn remove(&mut self, key: SubjectKey) {
        if let Ok(entry) = self.logs.find_entry(spread(key), |entry| entry.key == key) {
            entry.remove();
        }
        self.holds.remove(&key);
    }

    fn sweep(&mut self, now: Micros) {
        self.logs.retain(|entry| {
            let expired = entry.is_expired(now);
            if expired {
                self.holds.remove(&entry.key);
            }
            !expired
        });
        self.sweep_at = self.logs.len() * 2;
    }
}

/// Keys are keyed hashes already, so their own bits are spread well enough.
fn spread(key: SubjectKey) -> u64 {
    u64::from_le_bytes(*key.0.first_chunk().expect("16 bytes hold 8"))
}

impl WindowStore for MemoryStore {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        if let Some(windows) = ask.complete
            && !self.are_complete(windows).await?
        {
            return Err(StoreError::Incomplete);
        }
        Ok(self.reserve_now(ask))
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let at = self.settle_now(buckets, id, outcomes);
        let states = if peek { Some(self.peek(buckets).await?) } else { None };
        Ok(Settlement { at, states })
    }

    async fn peek(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        let clock = self.clock.now();
        let state = |bucket: &Bucket<'_>| match self.lock_one(bucket.key).find(bucket.key) {
            Some(mut log) => {
                log.settle_dead(clock);
                peek(&log, bucket.limit, clock)
            }
            None => peek(&TimesLog::default(), bucket.limit, clock),
        };
        Ok(buckets.iter().map(state).collect())
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        let at = self.clock.now();
        Ok(match self.lock_one(bucket.key).find(bucket.key) {
            Some(mut log) => {
                log.settle_dead(at);
                LogReading { at, holds: log.holds(), hits: log.entry.kept.newest(MOST_READ) }
            }
            None => LogReading { at, holds: 0, hits: Vec::new() },
        })
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        self.lock_one(bucket.key).remove(bucket.key);
        Ok(())
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        let clock = self.clock.now();
        for (bucket, hit) in hits {
            let expires = hit.at.plus(window::life(bucket.limit, hit.at));
            if bucket.limit.capacity() == 0 || expires <= clock {
                continue;
            }
            let mut shard = self.lock_one(bucket.key);
            let mut log = shard.open(bucket.key, clock);
            log.restore(*hit, bucket.limit);
            log.entry.live_until(expires);
        }
        Ok(())
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        let marks = self.marks.lock();
        Ok(marks.complete.get(name).filter(|(of, _)| of == shape).map(|(_, by)| *by))
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<Micros, StoreError> {
        self.marks.lock().rebuilding.insert(name.to_owned(), by);
        Ok(self.clock.now())
    }

    /// Unless it was doubted meanwhile: what the rebuild wrote may have looked old.
    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        let mut marks = self.marks.lock();
        let is_believed = marks.rebuilding.get(name) == Some(&by);
        if is_believed {
            marks.rebuilding.remove(name);
            marks.complete.insert(name.to_owned(), (shape.to_owned(), by));
        }
        Ok(is_believed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_rebuild_that_was_doubted_meanwhile_completes_nothing() {
        let store = MemoryStore::new(Clock::manual(Micros(1_000_000)));
        for is_doubted in [true, false] {
            let by = HitId([u8::from(is_doubted); 6]);
            store.begin_rebuild("all", by).await.unwrap();
            if is_doubted {
                store.doubt();
            }
            assert_eq!(store.finish_rebuild("all", "shape", by).await.unwrap(), !is_doubted);
            let generation = store.rebuild_generation("all", "shape").await.unwrap();
            assert_eq!(generation, (!is_doubted).then_some(by));
        }
    }
}
