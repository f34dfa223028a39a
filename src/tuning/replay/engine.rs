//! One replay: the record in the order of time, and what a draft of the limits decides on each attempt.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use super::Comparison;
use super::attempt_log::LimitLogs;
use super::logs_of::{COUNT, LogRef, counts_devices, limits, logs_of};
use super::row::ReplayDecision;
use super::row::{HONEST, NOBODY, Recording, ReplayAction, ReplayRow, ReplayedLogin, SOLVED};
use super::tally::ReplayTally;
use crate::clock::Micros;
use crate::config::Limits;
use crate::throttle::window::GatheredVerdict;
use crate::throttle::{Refusal, RuleAction};

/// This many attempts of one row are tried one by one; the rest get the result of the last one.
const MOST_TRIED: u32 = 10_000;

/// One attempt and its state in the replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReplayAttempt {
    pub row: u32,
    /// How many attempts of its row it stands for.
    pub n: u32,
    /// The action that it counts as.
    pub action: ReplayAction,
    /// When it came; once admitted, when that was.
    pub at: Micros,
    pub waited: bool,
}

/// An action at a later time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DueAction {
    /// An attempt was verified.
    Settle(ReplayAttempt),
    /// The gateway refused a message.
    TakeBack(ReplayAttempt),
    /// The next attempt of a row, after this many.
    Retry { row: u32, tried: u32 },
}

/// The draft's decision on an attempt.
#[derive(Clone, Copy)]
pub enum ReplayVerdict {
    Decided {
        decision: ReplayDecision,
        retry_after: Duration,
    },
    /// Only attempts in flight are in its way: it waits for this log.
    Held(LogRef),
}

/// How known devices are counted at a login.
struct DevicesCounted {
    /// The draft counts them separately from strangers.
    apart: bool,
    /// Only one of the draft and the limits in force does.
    changed: bool,
}

pub struct ReplayEngine<'r> {
    rows: &'r [ReplayRow],
    from: Micros,
    pub(super) logs: [LimitLogs; COUNT],
    own_devices: DevicesCounted,
    realm_devices: DevicesCounted,
    /// Attempts that wait for others in flight, in the order of arrival. Each log has two queues, as in the
    /// limiter: one for those with a solved challenge.
    pub(super) queues: HashMap<(LogRef, bool), VecDeque<ReplayAttempt>>,
    /// By time, then in the order in which they were scheduled.
    due: BinaryHeap<Reverse<(Micros, u64, DueAction)>>,
    scheduled: u64,
    recorded: ReplayTally,
    draft: ReplayTally,
}

impl<'r> ReplayEngine<'r> {
    pub fn new(recording: &'r Recording, in_force: &Limits, draft: &Limits, from: Micros) -> Self {
        let (old, new) = (limits(in_force), limits(draft));
        let devices = |login| {
            let apart = counts_devices(draft, login);
            DevicesCounted { apart, changed: apart != counts_devices(in_force, login) }
        };
        Self {
            rows: &recording.rows,
            from,
            logs: std::array::from_fn(|number| LimitLogs::new(old[number], new[number])),
            own_devices: devices(ReplayedLogin::Own),
            realm_devices: devices(ReplayedLogin::Realm),
            queues: HashMap::new(),
            due: BinaryHeap::new(),
            scheduled: 0,
            recorded: ReplayTally::new(old),
            draft: ReplayTally::new(new),
        }
    }

    pub fn run(mut self) -> Comparison {
        for number in 0..self.rows.len() as u32 {
            self.advance(self.row(number).at);
            self.arrive(number);
        }
        self.advance(Micros(i64::MAX));
        Comparison { recorded: self.recorded.finish(), draft: self.draft.finish() }
    }

    pub(super) fn row(&self, number: u32) -> &'r ReplayRow {
        &self.rows[number as usize]
    }

    fn advance(&mut self, to: Micros) {
        while let Some(Reverse((at, _, due))) = self.due.peek().copied()
            && at <= to
        {
            self.due.pop();
            match due {
                DueAction::Settle(attempt) => {
                    self.settle(&attempt, at);
                    self.wake_at(&attempt, at);
                }
                DueAction::TakeBack(attempt) => self.take_back(&attempt, at),
                DueAction::Retry { row, tried } => self.retry(row, tried, at),
            }
        }
    }

    pub(super) fn schedule(&mut self, at: Micros, due: DueAction) {
        self.scheduled += 1;
        self.due.push(Reverse((at, self.scheduled, due)));
    }

    fn arrive(&mut self, number: u32) {
        let row = self.row(number);
        let attempt =
            ReplayAttempt { row: number, n: row.count, action: row.action, at: row.at, waited: false };
        match row.action {
            ReplayAction::Clear => return self.clear(row),
            action if action.is_answer() => return self.admit(attempt, row.at),
            _ => {}
        }
        let (decision, reported) = (row.decision(), row.at >= self.from);
        let differs = reported && decision != ReplayDecision::Undecided && self.differs(row);
        if reported {
            self.recorded.count(row, row.action, row.count, decision, false);
        }
        if differs && !is_nameless(row) {
            return self.retry(number, 0, row.at);
        }
        if reported {
            self.draft.count(row, row.action, row.count, decision, differs);
        }
        if let ReplayDecision::Admitted { .. } = decision {
            self.admit(attempt, row.at);
        }
    }

    /// Whether the draft may decide differently from the record.
    fn differs(&self, row: &ReplayRow) -> bool {
        row.action.from_device().is_some_and(|(login, _)| self.devices(login).changed)
            || logs_of(row.action, row).any(|log| self.logs[log.limit as usize].differs(log.subject, row.at))
    }

    const fn devices(&self, login: ReplayedLogin) -> &DevicesCounted {
        match login {
            ReplayedLogin::Own => &self.own_devices,
            ReplayedLogin::Realm => &self.realm_devices,
        }
    }

    /// Tries one of a row's attempts, and then those after it.
    fn retry(&mut self, number: u32, tried: u32, now: Micros) {
        let row = self.row(number);
        let action = match row.action.from_device() {
            Some((login, stranger)) if !self.devices(login).apart => stranger,
            _ => row.action,
        };
        let left = row.count.saturating_sub(tried).max(1);
        let step = row.lasts().as_micros() as u32 / row.count.saturating_sub(1).max(1);
        let mut attempt = ReplayAttempt { row: number, n: 1, action, at: now, waited: false };
        let verdict = self.judge_in_turn(&mut attempt, now);
        attempt.n = match verdict {
            _ if tried >= MOST_TRIED => left,
            ReplayVerdict::Decided { decision: ReplayDecision::Refused { .. }, retry_after } if step > 0 => {
                let skipped = retry_after.as_micros().div_ceil(u128::from(step));
                u32::try_from(skipped).unwrap_or(left).clamp(1, left)
            }
            ReplayVerdict::Decided { decision: ReplayDecision::Refused { .. }, .. } => left,
            // The right person has signed in, and stops trying.
            ReplayVerdict::Decided { .. } if row.has(HONEST) && action.is_compared() => left,
            ReplayVerdict::Decided { .. } | ReplayVerdict::Held(_) => 1,
        };
        self.conclude(attempt, verdict, now);
        let tried = tried + attempt.n;
        if tried < row.count {
            let next = Duration::from_micros(u64::from(step) * u64::from(tried));
            self.schedule(row.at.plus(next), DueAction::Retry { row: number, tried });
        }
    }

    /// An attempt that comes while others wait for the same log waits behind them.
    fn judge_in_turn(&self, attempt: &mut ReplayAttempt, now: Micros) -> ReplayVerdict {
        let row = self.row(attempt.row);
        let queue = |log: &LogRef| self.queues.contains_key(&(*log, row.has(SOLVED)));
        match logs_of(attempt.action, row).find(queue) {
            Some(log) => ReplayVerdict::Held(log),
            None => self.judge(attempt, now),
        }
    }

    /// The draft's decision on an attempt. Once a known device's log blocks, it counts as a stranger's; of
    /// two refusals it gets the milder.
    pub(super) fn judge(&self, attempt: &mut ReplayAttempt, now: Micros) -> ReplayVerdict {
        let own = self.judge_by(attempt, now);
        let (
            ReplayVerdict::Decided {
                decision: ReplayDecision::Refused { then: RuleAction::Block, .. },
                retry_after,
            },
            Some((_, as_stranger)),
        ) = (own, attempt.action.from_device())
        else {
            return own;
        };
        let mut stranger = ReplayAttempt { action: as_stranger, ..*attempt };
        match self.judge_in_turn(&mut stranger, now) {
            ReplayVerdict::Decided {
                decision: ReplayDecision::Refused { then: RuleAction::Block, .. },
                retry_after: longer,
            } if longer > retry_after => own,
            other => {
                *attempt = stranger;
                other
            }
        }
    }

    fn judge_by(&self, attempt: &ReplayAttempt, now: Micros) -> ReplayVerdict {
        let (row, mut gathered) = (self.row(attempt.row), GatheredVerdict::default());
        for (index, log) in logs_of(attempt.action, row).enumerate() {
            let logs = &self.logs[log.limit as usize];
            if let Some(hits) = logs.get(log.subject) {
                gathered.add(index, &logs.limit, hits, now, log.spares(row));
            }
        }
        let log = |bucket| logs_of(attempt.action, row).nth(bucket).expect("it was gathered");
        let decided = |decision, retry_after| ReplayVerdict::Decided { decision, retry_after };
        match (gathered.refused(), gathered.held) {
            (Some(Refusal { bucket, rule, then, retry_after, .. }), _) => {
                decided(ReplayDecision::Refused { limit: log(bucket).limit, rule, then }, retry_after)
            }
            (None, Some(bucket)) => ReplayVerdict::Held(log(bucket)),
            (None, None) => {
                let noted = gathered.noted().map(|refusal| log(refusal.bucket).limit);
                decided(ReplayDecision::Admitted { noted }, Duration::ZERO)
            }
        }
    }

    /// Counts a decision and applies its effects.
    pub(super) fn conclude(&mut self, attempt: ReplayAttempt, verdict: ReplayVerdict, now: Micros) {
        match verdict {
            ReplayVerdict::Held(log) => {
                let solved = self.row(attempt.row).has(SOLVED);
                let queue = self.queues.entry((log, solved)).or_default();
                queue.push_back(ReplayAttempt { waited: true, ..attempt });
            }
            ReplayVerdict::Decided { decision, .. } => {
                self.count(&attempt, decision, now);
                if let ReplayDecision::Admitted { .. } = decision {
                    self.admit(attempt, now);
                }
            }
        }
    }

    /// If it was decided differently from the record, or at another time, its logs differ as long as its hit
    /// counts.
    pub(super) fn count(&mut self, attempt: &ReplayAttempt, decision: ReplayDecision, now: Micros) {
        let row = self.row(attempt.row);
        self.draft.count(row, attempt.action, attempt.n, decision, row.is_unknown_if(decision));
        let as_recorded = match decision {
            ReplayDecision::Admitted { .. } => {
                !row.is_refused() && now == row.at && attempt.action == row.action
            }
            ReplayDecision::Refused { .. } | ReplayDecision::Undecided => row.is_refused(),
        };
        if !as_recorded {
            for log in logs_of(row.action, row).chain(logs_of(attempt.action, row)) {
                self.logs[log.limit as usize].mark(log.subject, now, now.plus(row.lasts()));
            }
        }
    }
}

/// Whether it was refused by a log that the record does not name.
fn is_nameless(row: &ReplayRow) -> bool {
    let mut logs = logs_of(row.action, row);
    row.is_refused() && logs.any(|log| Some(log.limit) == row.limit && log.subject == NOBODY)
}
