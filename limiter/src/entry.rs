//! One subject's log in this process: its kept hits, its holds, and the view of it that the window arithmetic
//! needs.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use crate::clock::Micros;
use crate::hits::HitRing;
use crate::limit::Limit;
use crate::store::{HitId, KeptHit, LogPeek, ReserveKind, ReserveRequest, RulePeek, SubjectKey};
use crate::window::{self, HOLD_LIFE, RuleVerdict, WindowLog};

/// What every decision about a subject reads, and almost every refusal needs nothing else. It fits in one
/// cache line: with many subjects, waiting for memory is most of the cost of a decision.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct LogEntry {
    pub key: SubjectKey,
    pub kept: HitRing,
    /// How many hits were not newer than the last start that was asked about. The next answer is close to it.
    past: Cell<u32>,
    expires: CoarseTime,
}

const _: () = assert!(size_of::<LogEntry>() == 64);

impl LogEntry {
    /// An entry without a hit, for a log that is about to get one.
    pub fn new(key: SubjectKey, expires: Micros) -> Self {
        Self { key, kept: HitRing::default(), past: Cell::new(0), expires: moment(expires) }
    }

    pub fn live_until(&mut self, expires: Micros) {
        self.expires = self.expires.max(moment(expires));
    }

    pub fn is_expired(&self, now: Micros) -> bool {
        self.expires < moment(now)
    }
}

/// In units of a little more than a second (2^20 µs) since the epoch, so that no division is needed.
type CoarseTime = u32;

/// The largest value is reached in 2112; such an entry never expires.
fn moment(at: Micros) -> CoarseTime {
    (at.0 >> 20).clamp(0, CoarseTime::MAX.into()) as CoarseTime
}

/// Attempts in flight, by subject. Few subjects have any.
pub(crate) type HoldTable = HashMap<SubjectKey, Vec<KeptHit>, BuildHasherDefault<KeyHasher>>;

pub(crate) struct SubjectLog<'s> {
    pub entry: &'s mut LogEntry,
    pub holds: &'s mut HoldTable,
}

impl SubjectLog<'_> {
    /// Turns the holds whose owner died into kept hits.
    #[inline]
    pub fn settle_dead(&mut self, clock: Micros) {
        let Some(holds) = self.holds.get_mut(&self.entry.key) else { return };
        let dead = clock.minus(HOLD_LIFE);
        if holds.iter().any(|hold| hold.at <= dead) {
            for hold in holds.extract_if(.., |hold| hold.at <= dead) {
                self.entry.kept.insert(hold, usize::MAX / 2);
            }
            if holds.is_empty() {
                self.holds.remove(&self.entry.key);
            }
        }
    }

    /// When a hit of now is written: at the clock, but never before the newest hit of the log. If the clock
    /// stepped back and comes forward again, what was written in between must not leave its windows early.
    #[inline]
    pub fn next_time(&self, clock: Micros) -> Micros {
        let newest = self.entry.kept.last().map_or(clock, |at| at.max(clock));
        self.in_flight().iter().map(|hold| hold.at).fold(newest, Micros::max)
    }

    // A function of its own, so that refusals, which come in floods, run through little code.
    #[inline(never)]
    pub fn take(&mut self, ask: &ReserveRequest<'_>, now: Micros, limit: &Limit) {
        let hit = KeptHit { at: now, id: ask.id };
        match ask.kind {
            ReserveKind::Hit => self.keep(hit, limit),
            ReserveKind::Hold => self.holds.entry(self.entry.key).or_default().push(hit),
        }
        self.entry.live_until(now.plus(window::life(limit, now)));
    }

    fn in_flight(&self) -> &[KeptHit] {
        self.holds.get(&self.entry.key).map_or(&[], Vec::as_slice)
    }

    pub fn is_empty(&self) -> bool {
        self.entry.kept.is_empty() && self.in_flight().is_empty()
    }

    fn has(&self, id: HitId) -> bool {
        self.entry.kept.time_of(id).is_some() || self.in_flight().iter().any(|hold| hold.id == id)
    }

    fn keep(&mut self, hit: KeptHit, limit: &Limit) {
        self.entry.kept.keep(hit, limit.capacity() as usize);
    }

    /// Writes back a hit that was lost. The log may hold twice its capacity: a log that lost its hits may
    /// have admitted as many as it has room for, and those are about to be refunded. They must not push out
    /// the hits that are written back.
    pub fn restore(&mut self, hit: KeptHit, limit: &Limit) {
        if !self.has(hit.id) {
            self.entry.kept.keep(hit, 2 * limit.capacity() as usize);
        }
    }

    /// Returns the time from which it counts.
    pub fn settle_kept(&mut self, id: HitId, clock: Micros, limit: &Limit) -> Micros {
        self.settle_dead(clock);
        let now = self.next_time(clock);
        let held = self.take_hold(id);
        self.entry.live_until(now.plus(window::life(limit, now)));
        if let (false, Some(at)) = (held, self.entry.kept.time_of(id)) {
            return at;
        }
        self.keep(KeptHit { at: now, id }, limit);
        now
    }

    fn take_hold(&mut self, id: HitId) -> bool {
        let Some(holds) = self.holds.get_mut(&self.entry.key) else { return false };
        let before = holds.len();
        holds.retain(|hold| hold.id != id);
        let taken = holds.len() < before;
        if holds.is_empty() {
            self.holds.remove(&self.entry.key);
        }
        taken
    }

    pub fn remove(&mut self, id: HitId) {
        if !self.take_hold(id) {
            self.entry.kept.remove(id);
        }
    }
}

impl WindowLog for SubjectLog<'_> {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.entry.kept.nth_newest(n as usize)
    }

    fn newer_than(&self, start: Micros) -> u32 {
        let past = self.entry.kept.not_newer(start, self.entry.past.get() as usize);
        self.entry.past.set(past as u32);
        (self.entry.kept.len() - past) as u32
    }

    fn unforgiven(&self) -> u32 {
        self.entry.kept.unforgiven() as u32
    }

    fn holds(&self) -> u32 {
        self.in_flight().len() as u32
    }
}

/// The state of a log, rule by rule.
pub(crate) fn peek(log: &impl WindowLog, limit: &Limit, now: Micros) -> LogPeek {
    let rule = |rule| {
        let retry_after = match window::evaluate(rule, log, now) {
            RuleVerdict::Full { frees_at } => frees_at.since(now),
            RuleVerdict::Free(_) | RuleVerdict::Held => Duration::ZERO,
        };
        RulePeek { count: window::counted(rule, log, now).min(rule.max), retry_after }
    };
    LogPeek { at: now, holds: log.holds(), rules: limit.rules().iter().map(rule).collect() }
}

/// Keys are keyed hashes already, so their own bits are spread well enough.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }

    /// The length before an array, which is the same for every key.
    fn write_usize(&mut self, _: usize) {}
}
