//! One subject's log in process: its kept hits, its holds, and what the window arithmetic asks of them.

use std::time::Duration;

use super::hits::{Hit, Hits};
use super::limit::Limit;
use super::store::{Ask, HitId, Kind, Peek, RulePeek};
use super::window::{self, HOLD_LIFE, Log, Standing};
use crate::clock::Micros;

#[derive(Debug)]
pub(super) struct Entry {
    pub kept: Hits,
    /// Boxed because there are none nearly always.
    #[expect(clippy::box_collection, reason = "one word a log instead of three; few logs have holds")]
    pub holds: Option<Box<Vec<Hit>>>,
    pub expires: Micros,
}

impl Entry {
    /// Without a hit: of a log that is about to get one.
    pub fn new(expires: Micros) -> Self {
        Self { kept: Hits::default(), holds: None, expires }
    }

    /// The time this log counts by: never older than its newest hit, whatever the clock says. Holds
    /// whose owner died become kept hits on the way.
    pub fn now(&mut self, clock: Micros) -> Micros {
        let newest = self.kept.last().map_or(clock, |at| at.max(clock));
        let Some(holds) = &mut self.holds else { return newest };
        let now = holds.iter().map(|hold| hold.at).fold(newest, Micros::max);
        let dead = now.minus(HOLD_LIFE);
        if holds.iter().any(|hold| hold.at <= dead) {
            for hold in holds.extract_if(.., |hold| hold.at <= dead) {
                self.kept.insert(hold, usize::MAX / 2);
            }
            if holds.is_empty() {
                self.holds = None;
            }
        }
        now
    }

    /// Notes what was asked for and admitted.
    pub fn take(&mut self, ask: &Ask<'_>, now: Micros, limit: &Limit) {
        let hit = Hit { at: now, id: ask.id };
        match ask.kind {
            Kind::Hit => self.keep(hit, limit),
            Kind::Hold => self.holds.get_or_insert_default().push(hit),
        }
        self.expires = now.plus(window::life(limit, now));
    }

    fn has(&self, id: HitId) -> bool {
        self.kept.contains(id) || self.holds.iter().flat_map(|holds| holds.iter()).any(|hold| hold.id == id)
    }

    fn keep(&mut self, hit: Hit, limit: &Limit) {
        self.insert(hit, limit.capacity() as usize);
    }

    /// Takes back a hit that was lost. Twice the capacity, because a log that has lost its hits may have
    /// admitted as many as it has room for: they are about to be refunded, and must not have pushed out
    /// what is written back.
    pub fn restore(&mut self, hit: Hit, limit: &Limit) {
        if !self.has(hit.id) {
            self.insert(hit, 2 * limit.capacity() as usize);
        }
    }

    fn insert(&mut self, hit: Hit, capacity: usize) {
        self.kept.insert(hit, capacity);
        self.kept.trim(capacity);
    }

    pub fn settle_kept(&mut self, id: HitId, clock: Micros, limit: &Limit) {
        let now = self.now(clock);
        let held = self.take_hold(id);
        if held || !self.kept.contains(id) {
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

    pub fn remove(&mut self, id: HitId) {
        if !self.take_hold(id) {
            self.kept.remove(id);
        }
    }
}

impl Log for Entry {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.kept.nth_newest(n as usize)
    }

    fn newer_than(&self, start: Micros) -> u32 {
        self.kept.newer_than(start) as u32
    }

    fn holds(&self) -> u32 {
        self.holds.as_ref().map_or(0, |holds| holds.len() as u32)
    }
}

/// A subject without a log.
pub(super) struct Empty;

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

pub(super) trait PeekLog: Log + Sized {
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
