//! Counts of decisions: in total, for each limit, and by rule.

use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::ComparisonSide;
use super::engine::{
    AttemptLog, COUNT, DueAction, KEPT_ON_FAILURE, LogPart, LogRef, ReplayAttempt, ReplayEngine,
    ReplayVerdict, counts_answers, is_replayed, logs_of,
};
use super::read::{FORGAVE, HONEST, ReplayAction, ReplayDecision, ReplayOutcome, ReplayRow};
use crate::clock::Micros;
use crate::config::LimitName;
use crate::throttle::{HitId, HitRing, Limit, LimitMode, LogHit, RuleAction};

/// The counts of attempts, for one limit or in total.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = PreviewCounts)]
pub struct AttemptCounts {
    pub attempts: u64,
    pub admitted: u64,
    /// A challenge was required: by this limit, or by any.
    pub challenged: u64,
    pub throttled: u64,
    /// Refused for another reason than a limit, as recorded.
    pub undecided: u64,
    /// Refused, although they were right, or a right one came soon after from the same address.
    pub bothered: u64,
    /// Wrong passwords and codes that were compared.
    pub guesses_verified: u64,
    /// Those that were compared when recorded, and now are not.
    pub guesses_stopped: u64,
    /// Messages handed to the gateway.
    pub messages_sent: u64,
    pub messages_stopped: u64,
    /// For how many attempts the record does not show the end: refused then and admitted now, asked for a
    /// challenge only now, or recorded without the subject that the limit counts.
    pub unknown: u64,
}

/// What one limit did: admitted are the attempts that every limit admitted; the other numbers are what this one
/// refused or, in monitor mode, noted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = PreviewLimit)]
pub struct LimitCounts {
    pub name: String,
    /// `enforce` or `monitor`.
    pub mode: &'static str,
    /// Admitted are those that every limit admitted; refused are those that this one refused.
    #[serde(flatten)]
    pub counts: AttemptCounts,
    /// Admitted, because the limit is in monitor mode.
    pub noted: u64,
    /// What each rule refused, in order.
    pub rules: Vec<RuleCounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, ToSchema)]
#[schema(as = PreviewRule)]
pub struct RuleCounts {
    pub max: u32,
    /// `captcha` or `block`.
    pub then: &'static str,
    pub refused: u64,
}

#[derive(Debug)]
pub struct ReplayTally {
    all: AttemptCounts,
    limits: [LimitCounts; COUNT],
}

impl ReplayTally {
    pub fn new(limits: [&Limit; COUNT]) -> Self {
        let rules = |limit: &Limit| {
            let rules = limit.rules().iter();
            rules.map(|rule| RuleCounts { max: rule.max, then: rule.then.as_str(), refused: 0 }).collect()
        };
        let limits = limits.map(|limit| LimitCounts {
            name: limit.name().to_owned(),
            mode: match limit.mode() {
                LimitMode::Enforce => "enforce",
                LimitMode::Monitor => "monitor",
            },
            rules: rules(limit),
            ..LimitCounts::default()
        });
        Self { all: AttemptCounts::default(), limits }
    }

    /// Counts `n` attempts of a row in the logs of such an action; `unknown` if the record cannot know how
    /// they would have ended.
    pub fn count(
        &mut self,
        row: &ReplayRow,
        action: ReplayAction,
        n: u32,
        decision: ReplayDecision,
        unknown: bool,
    ) {
        let n = u64::from(n);
        let unknown = if unknown { n } else { 0 };
        self.all.add(row, n, decision, None);
        self.all.unknown += unknown;
        for log in logs_of(action, row).filter(|log| log.part != LogPart::Challenges) {
            let counts = &mut self.limits[log.limit as usize].counts;
            counts.add(row, n, decision, Some(log.limit));
            counts.unknown += unknown;
        }
        match decision {
            ReplayDecision::Admitted { noted: Some(limit) } => self.limits[limit as usize].noted += n,
            ReplayDecision::Refused { limit, rule, then } => {
                // The rules may differ from those that the record names by number.
                let rule =
                    self.limits[limit as usize].rules.get_mut(rule).filter(|rule| rule.then == then.as_str());
                if let Some(rule) = rule {
                    rule.refused += n;
                }
            }
            ReplayDecision::Admitted { noted: None } | ReplayDecision::Undecided => {}
        }
    }

    pub fn finish(self) -> ComparisonSide {
        let replayed = LimitName::ALL.iter().zip(self.limits).filter(|(name, _)| is_replayed(**name));
        ComparisonSide { all: self.all, limits: replayed.map(|(_, counts)| counts).collect() }
    }
}

impl AttemptCounts {
    /// With a limit: only what it refused itself.
    fn add(&mut self, row: &ReplayRow, n: u64, decision: ReplayDecision, of: Option<LimitName>) {
        self.attempts += n;
        let (mut admitted, mut refused) = (0, 0);
        match decision {
            ReplayDecision::Undecided => self.undecided += n,
            ReplayDecision::Admitted { .. } => admitted = n,
            ReplayDecision::Refused { limit, .. } if of.is_some_and(|of| of != limit) => {}
            ReplayDecision::Refused { then, .. } => {
                refused = n;
                *match then {
                    RuleAction::Captcha => &mut self.challenged,
                    RuleAction::Block => &mut self.throttled,
                } += n;
            }
        }
        self.admitted += admitted;
        if row.has(HONEST) {
            self.bothered += refused;
        }
        if row.action.is_send() {
            self.messages_sent += admitted;
            self.messages_stopped += refused;
        }
        if row.action.is_compared() && row.outcome == ReplayOutcome::Wrong {
            self.guesses_verified += admitted;
            self.guesses_stopped += refused;
        } else if row.action.is_compared() && row.is_refused() && !row.has(HONEST) {
            self.guesses_verified += admitted;
        }
    }
}

/// The longest that an attempt waits for others in flight, as in the guard and for guesses.
const PATIENCE: Duration = Duration::from_secs(5);

impl ReplayEngine<'_> {
    /// Writes an admitted attempt to the logs.
    pub(super) fn admit(&mut self, attempt: ReplayAttempt, now: Micros) {
        let row = self.row(attempt.row);
        let attempt = ReplayAttempt { at: now, ..attempt };
        if !row.action.is_compared() {
            self.each_log(&attempt, now, |_, log, capacity| log.hits.keep(hit(&attempt), capacity));
            if row.outcome == ReplayOutcome::Failed {
                self.schedule(now.plus(row.lasts()), DueAction::TakeBack(attempt));
            }
            return;
        }
        self.each_log(&attempt, now, |_, log, _| log.holds += 1);
        if row.is_refused() || row.lasts().is_zero() {
            self.settle(&attempt, now);
        } else {
            self.schedule(now.plus(row.lasts()), DueAction::Settle(attempt));
        }
    }

    /// It was verified.
    pub(super) fn settle(&mut self, attempt: &ReplayAttempt, now: Micros) {
        let row = self.row(attempt.row);
        let right = row.outcome == ReplayOutcome::Ok || row.is_refused() && row.has(HONEST);
        self.each_log(attempt, now, |_, log, capacity| {
            log.holds -= 1;
            if !right {
                log.hits.keep(LogHit { at: now, ..hit(attempt) }, capacity);
            }
        });
        if right && row.action.is_password() {
            self.forgive(attempt, row);
        }
    }

    /// A right password: rules that ask for a challenge ignore the account's or the device's failures from
    /// before it came, if it came alone.
    fn forgive(&mut self, attempt: &ReplayAttempt, row: &ReplayRow) {
        let own = logs_of(attempt.action, row).next().expect("a password has a log");
        if let Some(log) = self.logs[own.limit as usize].get_mut(own.subject)
            && row.has(FORGAVE)
            && !attempt.waited
            && log.holds == 0
        {
            log.hits.forgive(attempt.at);
        }
    }

    pub(super) fn take_back(&mut self, attempt: &ReplayAttempt, now: Micros) {
        self.each_log(attempt, now, |limit, log, _| {
            if !KEPT_ON_FAILURE.contains(&limit) {
                log.hits.take_out(hit(attempt));
            }
        });
    }

    /// The record does not say which device's log was cleared, so it keeps its hits.
    pub(super) fn clear(&mut self, row: &ReplayRow) {
        let log = row.limit.map(|limit| LogRef::new(limit, row));
        if let Some(log) = log.and_then(|log| self.logs[log.limit as usize].get_mut(log.subject)) {
            log.hits = HitRing::default();
        }
    }

    /// An attempt in flight has ended, so its slots are free.
    pub(super) fn wake_at(&mut self, attempt: &ReplayAttempt, now: Micros) {
        for log in logs_of(attempt.action, self.row(attempt.row)) {
            self.wake(log, false, now);
            self.wake(log, true, now);
        }
    }

    fn wake(&mut self, log: LogRef, solved: bool, now: Micros) {
        let Some(mut queue) = self.queues.remove(&(log, solved)) else { return };
        while let Some(mut attempt) = queue.pop_front() {
            if now > attempt.at.plus(PATIENCE) {
                self.count(&attempt, ReplayDecision::Undecided, now);
                continue;
            }
            match self.judge(&mut attempt, now) {
                ReplayVerdict::Held(same) if same == log => {
                    queue.push_front(attempt);
                    break;
                }
                verdict => self.conclude(attempt, verdict, now),
            }
        }
        if !queue.is_empty() {
            self.queues.insert((log, solved), queue);
        }
    }

    /// The logs that an attempt writes to, each with its limit and its capacity.
    fn each_log(
        &mut self,
        attempt: &ReplayAttempt,
        now: Micros,
        mut each: impl FnMut(LimitName, &mut AttemptLog, usize),
    ) {
        let row = self.row(attempt.row);
        for log in logs_of(attempt.action, row) {
            let logs = &mut self.logs[log.limit as usize];
            if !row.action.is_answer() || counts_answers(&logs.limit) {
                let capacity = logs.limit.capacity() as usize;
                if let Some(hits) = logs.open(log.subject, now) {
                    each(log.limit, hits, capacity);
                }
            }
        }
    }
}

/// Identified by the number of its row.
fn hit(attempt: &ReplayAttempt) -> LogHit {
    let [first, second, third, fourth] = attempt.row.to_le_bytes();
    LogHit { at: attempt.at, id: HitId([first, second, third, fourth, 0, 0]) }
}
