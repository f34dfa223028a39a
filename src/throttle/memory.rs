//! The in-process store: window logs in sharded maps, for one instance and for tests.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::limit::Limit;
use super::store::*;
use super::window::{self, Gathered, HOLD_LIFE, Log, Standing};
use crate::clock::{Clock, Micros};

/// Enough that two cores seldom meet at one; a power of two, so that a key's bits choose.
const SHARDS: usize = 64;
/// A shard smaller than this is not worth sweeping when it grows.
const SWEEP_FROM: usize = 64;

/// Window logs of this process. They are lost with it.
#[derive(Debug)]
pub struct MemoryStore {
    clock: Clock,
    shards: Box<[Mutex<Shard>]>,
    /// What was written back whole, and by which writing back.
    whole: Mutex<HashMap<String, HitId>>,
}

#[derive(Debug, Default)]
struct Shard {
    logs: HashMap<Key, Entry, BuildHasherDefault<KeyHasher>>,
    /// The number of logs at which the expired ones are looked for again: twice those that lived
    /// through the last sweep, so that a write pays for a bounded share of it.
    sweep_at: usize,
}

#[derive(Debug)]
struct Entry {
    /// Oldest first.
    kept: VecDeque<Hit>,
    /// Boxed because there are none nearly always.
    #[expect(clippy::box_collection, reason = "one word a log instead of three; few logs have holds")]
    holds: Option<Box<Vec<Hit>>>,
    expires: Micros,
}

#[derive(Debug, Clone, Copy)]
struct Hit {
    at: Micros,
    id: HitId,
}

impl MemoryStore {
    pub fn new(clock: Clock) -> Self {
        Self { clock, shards: (0..SHARDS).map(|_| Mutex::default()).collect(), whole: Mutex::default() }
    }

    /// Drops the logs that no rule can see any more. Writes do a share of it as they come; this is for
    /// the time when none come.
    pub fn sweep(&self) {
        let now = self.clock.now();
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            shard.sweep(now);
            let roomy = shard.sweep_at;
            shard.logs.shrink_to(roomy);
        }
    }

    /// How many logs there are, expired ones that were not swept yet included.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).logs.len()).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many hits and holds a log holds, in and out of its windows.
    pub fn members(&self, key: Key) -> usize {
        self.lock_one(key).logs.get(&key).map_or(0, |entry| entry.kept.len() + entry.holds() as usize)
    }

    /// The answer itself: nothing here waits for anything but a short lock.
    pub fn reserve_now(&self, ask: &Ask<'_>) -> Verdict {
        let clock = self.clock.now();
        match ask.buckets {
            [only] => Self::decide(ask, clock, self.lock_one(only.key)),
            buckets => Self::decide(ask, clock, self.lock(buckets)),
        }
    }

    fn decide(ask: &Ask<'_>, clock: Micros, mut shards: impl Shards) -> Verdict {
        let mut gathered = Gathered::default();
        let mut at = clock;
        for (index, bucket) in ask.buckets.iter().enumerate() {
            let shard = shards.of(bucket.key);
            let now = match shard.logs.get_mut(&bucket.key) {
                Some(entry) => {
                    let now = entry.now(clock);
                    gathered.add(index, bucket.limit, entry, now, ask.solved);
                    now
                }
                None => {
                    gathered.add(index, bucket.limit, &Empty, clock, ask.solved);
                    clock
                }
            };
            at = at.max(now);
        }
        if let Some(refusal) = gathered.refused {
            return Verdict::Refused { at, refusal };
        }
        if let Some(bucket) = gathered.held {
            return Verdict::Held { at, bucket };
        }
        for bucket in ask.buckets.iter().filter(|bucket| bucket.limit.capacity() > 0) {
            let entry = shards.of(bucket.key).open(bucket.key, clock);
            let hit = Hit { at: entry.now(clock), id: ask.id };
            match ask.kind {
                Kind::Hit => entry.keep(hit, bucket.limit),
                Kind::Hold => entry.holds.get_or_insert_default().push(hit),
            }
            entry.expires = hit.at.plus(window::life(bucket.limit, hit.at));
        }
        Verdict::Admitted { at, room: gathered.room, noted: gathered.noted }
    }

    fn settle_now(&self, buckets: &[Bucket<'_>], id: HitId, outcomes: &[Outcome]) {
        let clock = self.clock.now();
        let mut shards = self.lock(buckets);
        for (bucket, outcome) in buckets.iter().zip(outcomes) {
            if bucket.limit.capacity() == 0 {
                continue;
            }
            let shard = shards.of(bucket.key);
            match outcome {
                Outcome::Keep => shard.open(bucket.key, clock).settle_kept(id, clock, bucket.limit),
                Outcome::Refund | Outcome::Forgive { .. } => {
                    let Some(entry) = shard.logs.get_mut(&bucket.key) else { continue };
                    entry.now(clock);
                    entry.remove(id);
                    if let (Outcome::Forgive { up_to }, None) = (outcome, &entry.holds) {
                        entry.kept.retain(|hit| hit.at > *up_to);
                    }
                    if entry.kept.is_empty() && entry.holds.is_none() {
                        shard.logs.remove(&bucket.key);
                    }
                }
            }
        }
    }

    fn peek_now(&self, bucket: Bucket<'_>) -> Peek {
        let clock = self.clock.now();
        match self.lock_one(bucket.key).logs.get_mut(&bucket.key) {
            Some(entry) => {
                let now = entry.now(clock);
                entry.peek(bucket.limit, now)
            }
            None => Empty.peek(bucket.limit, clock),
        }
    }

    fn restore_one(&self, bucket: Bucket<'_>, hit: Hit, clock: Micros) {
        let expires = hit.at.plus(window::life(bucket.limit, hit.at));
        if bucket.limit.capacity() == 0 || expires <= clock {
            return;
        }
        let mut shard = self.lock_one(bucket.key);
        let entry = shard.open(bucket.key, clock);
        if !entry.has(hit.id) {
            entry.keep(hit, bucket.limit);
        }
        entry.expires = entry.expires.max(expires);
    }

    fn lock_one(&self, key: Key) -> MutexGuard<'_, Shard> {
        self.shards[shard_of(key)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the shards of these buckets, lowest first, so that two callers never wait in a circle.
    fn lock(&self, buckets: &[Bucket<'_>]) -> Locked<'_> {
        let mut wanted = 0u64;
        for bucket in buckets {
            wanted |= 1 << shard_of(bucket.key);
        }
        let mut locked = Locked { shards: Default::default() };
        for place in &mut locked.shards {
            if wanted == 0 {
                break;
            }
            let index = wanted.trailing_zeros() as usize;
            wanted &= wanted - 1;
            *place = Some((index, self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)));
        }
        locked
    }
}

/// The shards that one decision holds locked.
struct Locked<'a> {
    shards: [Option<(usize, MutexGuard<'a, Shard>)>; MOST_BUCKETS],
}

/// Where the logs of a decision are, locked.
trait Shards {
    fn of(&mut self, key: Key) -> &mut Shard;
}

impl Shards for MutexGuard<'_, Shard> {
    fn of(&mut self, _: Key) -> &mut Shard {
        self
    }
}

impl Shards for Locked<'_> {
    fn of(&mut self, key: Key) -> &mut Shard {
        let wanted = shard_of(key);
        let found = self.shards.iter_mut().flatten().find(|(index, _)| *index == wanted);
        &mut found.expect("locked before, for every bucket").1
    }
}

fn shard_of(key: Key) -> usize {
    usize::from(key.0[15]) % SHARDS
}

impl Shard {
    fn open(&mut self, key: Key, now: Micros) -> &mut Entry {
        if self.logs.len() >= self.sweep_at.max(SWEEP_FROM) && !self.logs.contains_key(&key) {
            self.sweep(now);
        }
        self.logs.entry(key).or_insert_with(|| Entry { kept: VecDeque::new(), holds: None, expires: now })
    }

    fn sweep(&mut self, now: Micros) {
        self.logs.retain(|_, entry| entry.expires >= now);
        self.sweep_at = self.logs.len() * 2;
    }
}

impl Entry {
    /// The time this log counts by: never older than its newest hit, whatever the clock says. Holds
    /// whose owner died become kept hits on the way.
    fn now(&mut self, clock: Micros) -> Micros {
        let newest = self.kept.back().map_or(clock, |hit| hit.at.max(clock));
        let Some(holds) = &mut self.holds else { return newest };
        let now = holds.iter().map(|hold| hold.at).fold(newest, Micros::max);
        let dead = now.minus(HOLD_LIFE);
        if holds.iter().any(|hold| hold.at <= dead) {
            let (kept, alive) = holds.iter().partition(|hold| hold.at <= dead);
            let kept: Vec<Hit> = kept;
            self.kept.extend(kept);
            self.kept.make_contiguous().sort_by_key(|hit| (hit.at, hit.id.0));
            self.set_holds(alive);
        }
        now
    }

    fn has(&self, id: HitId) -> bool {
        self.kept.iter().chain(self.holds.iter().flat_map(|holds| holds.iter())).any(|hit| hit.id == id)
    }

    fn set_holds(&mut self, alive: Vec<Hit>) {
        self.holds = (!alive.is_empty()).then(|| Box::new(alive));
    }

    fn keep(&mut self, hit: Hit, limit: &Limit) {
        let capacity = limit.capacity() as usize;
        if self.kept.len() == self.kept.capacity() {
            // By half, for most logs stay short; but not past what the limit can ever fill.
            let wanted = (self.kept.len() + self.kept.len() / 2).clamp(2, capacity + 1);
            self.kept.reserve_exact(wanted.saturating_sub(self.kept.len()));
        }
        // Equal times stand in the order of their ids, as in a sorted set.
        let behind =
            self.kept.iter().rev().take_while(|other| (other.at, other.id.0) > (hit.at, hit.id.0)).count();
        self.kept.insert(self.kept.len() - behind, hit);
        while self.kept.len() > capacity {
            self.kept.pop_front();
        }
    }

    fn settle_kept(&mut self, id: HitId, clock: Micros, limit: &Limit) {
        let now = self.now(clock);
        let held = self.take_hold(id);
        if held || !self.kept.iter().any(|hit| hit.id == id) {
            self.keep(Hit { at: now, id }, limit);
        }
        self.expires = now.plus(window::life(limit, now));
    }

    fn take_hold(&mut self, id: HitId) -> bool {
        let Some(holds) = &mut self.holds else { return false };
        let before = holds.len();
        holds.retain(|hold| hold.id != id);
        let taken = holds.len() < before;
        if holds.is_empty() {
            self.holds = None;
        }
        taken
    }

    fn remove(&mut self, id: HitId) {
        if !self.take_hold(id)
            && let Some(index) = self.kept.iter().rposition(|hit| hit.id == id)
        {
            self.kept.remove(index);
        }
    }
}

impl Log for Entry {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        let index = self.kept.len().checked_sub(n as usize)?;
        self.kept.get(index).map(|hit| hit.at)
    }

    fn newer_than(&self, start: Micros) -> u32 {
        // Nearly always few are; they lie beside the newest, which has just been read.
        let few = self.kept.iter().rev().take(8).take_while(|hit| hit.at > start).count();
        if few < 8 {
            return few as u32;
        }
        (self.kept.len() - self.kept.partition_point(|hit| hit.at <= start)) as u32
    }

    fn holds(&self) -> u32 {
        self.holds.as_ref().map_or(0, |holds| holds.len() as u32)
    }
}

/// A subject without a log.
struct Empty;

impl Log for Empty {
    fn nth_newest(&self, _: u32) -> Option<Micros> {
        None
    }

    fn newer_than(&self, _: Micros) -> u32 {
        0
    }

    fn holds(&self) -> u32 {
        0
    }
}

trait PeekLog: Log + Sized {
    fn peek(&self, limit: &Limit, now: Micros) -> Peek {
        let rule = |rule| {
            let retry_after = match window::judge(rule, self, now) {
                Standing::Full { frees_at } => frees_at.since(now),
                Standing::Free(_) | Standing::Held => Duration::ZERO,
            };
            RulePeek { count: self.newer_than(window::start(&rule.span, now)).min(rule.max), retry_after }
        };
        Peek { at: now, holds: self.holds(), rules: limit.rules().iter().map(rule).collect() }
    }
}

impl<L: Log> PeekLog for L {}

impl WindowStore for MemoryStore {
    async fn reserve(&self, ask: &Ask<'_>) -> Result<Verdict, StoreError> {
        Ok(self.reserve_now(ask))
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[Outcome],
    ) -> Result<(), StoreError> {
        self.settle_now(buckets, id, outcomes);
        Ok(())
    }

    async fn peek(&self, bucket: Bucket<'_>) -> Result<Peek, StoreError> {
        Ok(self.peek_now(bucket))
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        self.lock_one(bucket.key).logs.remove(&bucket.key);
        Ok(())
    }

    async fn restore(&self, hits: &[(Bucket<'_>, Kept)]) -> Result<(), StoreError> {
        let clock = self.clock.now();
        for (bucket, Kept { at, id }) in hits {
            self.restore_one(*bucket, Hit { at: *at, id: *id }, clock);
        }
        Ok(())
    }

    async fn whole_by(&self, name: &str) -> Result<Option<HitId>, StoreError> {
        Ok(self.whole.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied())
    }

    /// Nothing is lost here but with the process, and the mark with it.
    async fn begin_whole(&self, _: &str, _: HitId) -> Result<(), StoreError> {
        Ok(())
    }

    async fn set_whole(&self, name: &str, by: HitId) -> Result<bool, StoreError> {
        self.whole.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), by);
        Ok(true)
    }
}

/// Keys are keyed hashes already, so their own bits spread them.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length before an array: the same for every key.
    fn write_usize(&mut self, _: usize) {}
}
