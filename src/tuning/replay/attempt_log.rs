//! The logs of one limit under the draft, by the number of the subject.

use std::collections::HashMap;
use std::time::Duration;

use super::row::NOBODY;
use crate::clock::Micros;
use crate::throttle::{HitRing, Limit, window};

/// Fewer logs than this are not worth looking through for those that are over.
const SWEEP_FROM: usize = 1024;

/// One subject's log.
#[derive(Debug, Default)]
pub struct AttemptLog {
    pub hits: HitRing,
    /// Attempts in flight.
    pub holds: u32,
    /// Until then it may differ from the log as it was when the attempts were recorded.
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
            longest: longest(draft),
            logs: HashMap::new(),
            sweep_at: SWEEP_FROM,
        }
    }

    /// Whether an attempt that the log counts may be decided otherwise than it was recorded.
    pub fn differs(&self, subject: u32, now: Micros) -> bool {
        self.is_changed || self.get(subject).is_some_and(|log| log.differs_until > Some(now))
    }

    /// An attempt was decided otherwise, or at another time: as long as its hit is in sight the log differs.
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

    /// The subject's log, made if there is none. None if nobody is named, or the limit has no rules.
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
    /// No rule sees anything in it, and nothing is in flight.
    fn is_over(&self, longest: Duration, now: Micros) -> bool {
        let newest = self.hits.last().is_none_or(|last| last.plus(longest) <= now);
        newest && self.holds == 0 && self.differs_until <= Some(now)
    }
}

/// How far back any rule of the limit looks.
pub fn longest(limit: &Limit) -> Duration {
    limit.rules().iter().map(|rule| rule.span.longest()).max().unwrap_or_default()
}
