//! One subject's log in process: its kept hits, its holds, and what the window arithmetic asks of them.

use std::collections::VecDeque;
use std::time::Duration;

use super::limit::Limit;
use super::store::{HitId, Peek, RulePeek};
use super::window::{self, HOLD_LIFE, Log, Standing};
use crate::clock::Micros;

#[derive(Debug)]
pub(super) struct Entry {
    /// Oldest first.
    pub kept: VecDeque<Hit>,
    /// Boxed because there are none nearly always.
    #[expect(clippy::box_collection, reason = "one word a log instead of three; few logs have holds")]
    pub holds: Option<Box<Vec<Hit>>>,
    pub expires: Micros,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub at: Micros,
    pub id: HitId,
}

impl Entry {
    /// Without a hit: of a log that is about to get one.
    pub fn new(expires: Micros) -> Self {
        Self { kept: VecDeque::new(), holds: None, expires }
    }

    /// The time this log counts by: never older than its newest hit, whatever the clock says. Holds
    /// whose owner died become kept hits on the way.
    pub fn now(&mut self, clock: Micros) -> Micros {
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

    pub fn keep(&mut self, hit: Hit, limit: &Limit) {
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

    pub fn settle_kept(&mut self, id: HitId, clock: Micros, limit: &Limit) {
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

    pub fn remove(&mut self, id: HitId) {
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
