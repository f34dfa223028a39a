//! The logs of one limit under the draft, by subject number.

use std::collections::HashMap;
use std::time::Duration;

use super::row::NOBODY;
use crate::clock::Micros;
use crate::throttle::{HitRing, Limit, window};

/// With fewer logs than this, expired ones are not swept.
const SWEEP_FROM: usize = 1024;

/// One subject's log.
#[derive(Debug, Default)]
pub struct AttemptLog {
    pub hits: HitRing,
    /// Attempts in flight.
    pub holds: u32,
    /// Until this time it may differ from the log when the attempts were recorded.
    differs_until: Option<Micros>,
}

impl window::WindowLog for AttemptLog {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.hits.nth_newest(n as usize)
    }

    fn newer_than(&self, start: Micros) -> u32 {
        (self.hits.len() - self.hits.not_newer(start, 1)) as u32
    }

    fn unforgiven(&self) -> u32 {
        self.hits.unforgiven() as u32
    }

    fn holds(&self) -> u32 {
        self.holds
    }
}

/// All logs of a limit.
#[derive(Debug)]
pub struct LimitLogs {
    pub limit: Limit,
    is_changed: bool,
    longest: Duration,
    logs: HashMap<u32, AttemptLog>,
    sweep_at: usize,
}

impl LimitLogs {
    pub fn new(in_force: &Limit, draft: &Limit) -> Self {
        Self {
            limit: draft.clone(),
            is_changed: in_force != draft,
            longest: draft.longest_window(),
            logs: HashMap::new(),
            sweep_at: SWEEP_FROM,
        }
    }

    /// Whether an attempt that the log counts may be decided differently from its record.
    pub fn differs(&self, subject: u32, now: Micros) -> bool {
        self.is_changed || self.get(subject).is_some_and(|log| log.differs_until > Some(now))
    }

    /// An attempt was decided differently, or at another time: the log differs as long as its hit counts.
    pub fn mark(&mut self, subject: u32, now: Micros, ended: Micros) {
        let until = ended.plus(self.longest);
        if !self.is_changed
            && let Some(log) = self.open(subject, now)
        {
            log.differs_until = log.differs_until.max(Some(until));
        }
    }

    pub fn get(&self, subject: u32) -> Option<&AttemptLog> {
        self.logs.get(&subject)
    }

    pub fn get_mut(&mut self, subject: u32) -> Option<&mut AttemptLog> {
        self.logs.get_mut(&subject)
    }

    /// The subject's log, created if there is none. None if there is no subject, or the limit has no rules.
    pub fn open(&mut self, subject: u32, now: Micros) -> Option<&mut AttemptLog> {
        if subject == NOBODY || self.limit.rules().is_empty() {
            return None;
        }
        if self.logs.len() >= self.sweep_at {
            let longest = self.longest;
            self.logs.retain(|_, log| !log.is_over(longest, now));
            self.sweep_at = SWEEP_FROM.max(2 * self.logs.len());
        }
        Some(self.logs.entry(subject).or_default())
    }
}

impl AttemptLog {
    /// No rule counts anything in it, and nothing is in flight.
    fn is_over(&self, longest: Duration, now: Micros) -> bool {
        let newest = self.hits.last().is_none_or(|last| last.plus(longest) <= now);
        newest && self.holds == 0 && self.differs_until <= Some(now)
    }
}
