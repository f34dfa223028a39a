//! One replay: the record in the order of time, what a draft of the limits decides on each attempt, and what attempts
//! write to the logs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use gatehouse_limiter::window::{self, GatheredVerdict};
use gatehouse_limiter::{HitId, HitRing, KeptHit, Limit, Refusal, RuleAction};
use rustc_hash::FxHashMap;

use super::Comparison;
use super::row::{
    COUNT, KEPT_ON_FAILURE, LogRef, NOBODY, ReplayAction, ReplayDecision, ReplayOutcome, ReplayRow,
    ReplayedLogin, counts_answers, counts_devices, logs_of, replayed_limits,
};
use super::tally::ReplayTally;
use crate::clock::Micros;
use crate::config::{LimitName, Limits};

/// This many attempts of one row are tried one by one; the rest get the result of the last one.
const MOST_TRIED: u32 = 10_000;

/// How many steps are taken before somebody may stop it: some 10 ms of work.
const AT_ONCE: usize = 20_000;

/// The longest that an attempt waits for others in flight, as in the guard and for guesses.
const PATIENCE: Duration = Duration::from_secs(5);

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
    next: u32,
    from: Micros,
    logs: [LimitLogs; COUNT],
    /// How devices are counted, by [`ReplayedLogin`].
    devices: [DevicesCounted; 3],
    /// Attempts that wait for others in flight, in the order of arrival. Each log has two queues, as in the
    /// limiter: one for those with a solved challenge.
    queues: FxHashMap<(LogRef, bool), VecDeque<ReplayAttempt>>,
    /// What is due, by time, then in the order in which they were scheduled.
    due: BinaryHeap<Reverse<(Micros, u64, DueAction)>>,
    scheduled: u64,
    recorded: ReplayTally,
    draft: ReplayTally,
}

impl<'r> ReplayEngine<'r> {
    pub fn new(rows: &'r [ReplayRow], in_force: &Limits, draft: &Limits, from: Micros) -> Self {
        let (old, new) = (replayed_limits(in_force), replayed_limits(draft));
        let devices = |login| {
            let apart = counts_devices(draft, login);
            DevicesCounted { apart, changed: apart != counts_devices(in_force, login) }
        };
        Self {
            rows,
            next: 0,
            from,
            logs: std::array::from_fn(|number| LimitLogs::new(old[number], new[number])),
            devices: [ReplayedLogin::Own, ReplayedLogin::Realm, ReplayedLogin::Factor].map(devices),
            queues: FxHashMap::default(),
            due: BinaryHeap::new(),
            scheduled: 0,
            recorded: ReplayTally::new(old),
            draft: ReplayTally::new(new),
        }
    }

    /// Goes on for some steps, each the next row or what is due before it; how many rows have come so far, until all of
    /// them have and nothing is due.
    pub fn go_on(&mut self) -> Option<usize> {
        for _ in 0..AT_ONCE {
            let next = self.rows.get(self.next as usize);
            let next_at = next.map_or(Micros(i64::MAX), ReplayRow::at);
            if let Some(Reverse((at, _, due))) = self.due.peek().copied()
                && at <= next_at
            {
                self.due.pop();
                self.act(due, at);
            } else if next.is_some() {
                self.arrive(self.next);
                self.next += 1;
            } else {
                return None;
            }
        }
        Some(self.next as usize)
    }

    pub fn finish(self) -> Comparison {
        Comparison { recorded: self.recorded.finish(), draft: self.draft.finish() }
    }

    fn row(&self, number: u32) -> &'r ReplayRow {
        &self.rows[number as usize]
    }

    fn act(&mut self, due: DueAction, now: Micros) {
        match due {
            DueAction::Settle(attempt) => {
                self.settle(&attempt, now);
                self.wake_at(&attempt, now);
            }
            DueAction::TakeBack(attempt) => self.take_back(&attempt, now),
            DueAction::Retry { row, tried } => self.retry(row, tried, now),
        }
    }

    fn schedule(&mut self, at: Micros, due: DueAction) {
        self.scheduled += 1;
        self.due.push(Reverse((at, self.scheduled, due)));
    }

    fn arrive(&mut self, number: u32) {
        let row = self.row(number);
        let attempt =
            ReplayAttempt { row: number, n: row.count, action: row.action, at: row.at(), waited: false };
        match row.action {
            ReplayAction::Clear => return self.clear(row),
            action if action.is_answer() => return self.count_answer(attempt),
            _ => {}
        }
        let (decision, reported) = (row.decision(), row.at() >= self.from);
        let differs = reported && decision != ReplayDecision::Undecided && self.differs(row);
        if reported {
            self.recorded.count(row, row.action, row.count, decision, false);
        }
        if differs && !is_nameless(row) {
            return self.retry(number, 0, row.at());
        }
        if reported {
            self.draft.count(row, row.action, row.count, decision, differs);
        }
        if let ReplayDecision::Admitted { .. } = decision {
            self.admit(attempt, row.at());
        }
    }

    /// A wrong answer counts only where nothing is refused.
    fn count_answer(&mut self, answer: ReplayAttempt) {
        let verdict = self.evaluate_by(&answer, answer.at);
        match verdict {
            ReplayVerdict::Decided { decision: ReplayDecision::Admitted { noted: None }, .. } => {
                self.admit(answer, answer.at);
            }
            _ => {
                for log in logs_of(answer.action, self.row(answer.row)) {
                    self.logs[log.limit as usize].mark(log.subject, answer.at, answer.at);
                }
            }
        }
    }

    /// Whether the draft may decide differently from the record.
    fn differs(&self, row: &ReplayRow) -> bool {
        row.action.from_device().is_some_and(|(login, _)| self.devices[login as usize].changed)
            || logs_of(row.action, row)
                .any(|log| self.logs[log.limit as usize].differs(log.subject, row.at()))
    }

    /// Tries one of a row's attempts, and then those after it.
    fn retry(&mut self, number: u32, tried: u32, now: Micros) {
        let row = self.row(number);
        let action = match row.action.from_device() {
            Some((login, stranger)) if !self.devices[login as usize].apart => stranger,
            _ => row.action,
        };
        let left = row.count.saturating_sub(tried).max(1);
        let step = row.lasts().as_micros() as u32 / row.count.saturating_sub(1).max(1);
        let mut attempt = ReplayAttempt { row: number, n: 1, action, at: now, waited: false };
        let verdict = self.evaluate_in_turn(&mut attempt, now);
        attempt.n = match verdict {
            _ if tried >= MOST_TRIED => left,
            ReplayVerdict::Decided { decision: ReplayDecision::Refused { .. }, retry_after } if step > 0 => {
                let skipped = retry_after.as_micros().div_ceil(u128::from(step));
                u32::try_from(skipped).unwrap_or(left).clamp(1, left)
            }
            ReplayVerdict::Decided { decision: ReplayDecision::Refused { .. }, .. } => left,
            // The right person has signed in, and stops trying.
            ReplayVerdict::Decided { .. } if row.honest() && action.is_compared() => left,
            ReplayVerdict::Decided { .. } | ReplayVerdict::Held(_) => 1,
        };
        self.conclude(attempt, verdict, now);
        let tried = tried + attempt.n;
        if tried < row.count {
            let next = Duration::from_micros(u64::from(step) * u64::from(tried));
            self.schedule(row.at().plus(next), DueAction::Retry { row: number, tried });
        }
    }

    /// An attempt that comes while others wait for the same log waits behind them.
    fn evaluate_in_turn(&self, attempt: &mut ReplayAttempt, now: Micros) -> ReplayVerdict {
        let row = self.row(attempt.row);
        let queue = |log: &LogRef| self.queues.contains_key(&(*log, row.solved()));
        match logs_of(attempt.action, row).find(queue) {
            Some(log) => ReplayVerdict::Held(log),
            None => self.evaluate(attempt, now),
        }
    }

    /// The draft's decision on an attempt. Once a known device's log blocks, its passwords count as a stranger's; of
    /// two refusals it gets the milder.
    fn evaluate(&self, attempt: &mut ReplayAttempt, now: Micros) -> ReplayVerdict {
        let own = self.evaluate_by(attempt, now);
        let (
            ReplayVerdict::Decided {
                decision: ReplayDecision::Refused { then: RuleAction::Block, .. },
                retry_after,
            },
            Some((ReplayedLogin::Own | ReplayedLogin::Realm, as_stranger)),
        ) = (own, attempt.action.from_device())
        else {
            return own;
        };
        let mut stranger = ReplayAttempt { action: as_stranger, ..*attempt };
        match self.evaluate_in_turn(&mut stranger, now) {
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

    fn evaluate_by(&self, attempt: &ReplayAttempt, now: Micros) -> ReplayVerdict {
        let (row, mut gathered) = (self.row(attempt.row), GatheredVerdict::default());
        for (index, log) in logs_of(attempt.action, row).enumerate() {
            let logs = &self.logs[log.limit as usize];
            if let Some(hits) = logs.subjects.get(&log.subject)
                && logs.counts(row.action)
            {
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
    fn conclude(&mut self, attempt: ReplayAttempt, verdict: ReplayVerdict, now: Micros) {
        match verdict {
            ReplayVerdict::Held(log) => {
                let solved = self.row(attempt.row).solved();
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
    fn count(&mut self, attempt: &ReplayAttempt, decision: ReplayDecision, now: Micros) {
        let row = self.row(attempt.row);
        self.draft.count(row, attempt.action, attempt.n, decision, row.is_unknown_if(decision));
        let as_recorded = match decision {
            ReplayDecision::Admitted { .. } => {
                !row.is_refused() && now == row.at() && attempt.action == row.action
            }
            ReplayDecision::Refused { .. } | ReplayDecision::Undecided => row.is_refused(),
        };
        if !as_recorded {
            for log in logs_of(row.action, row).chain(logs_of(attempt.action, row)) {
                self.logs[log.limit as usize].mark(log.subject, now, now.plus(row.lasts()));
            }
        }
    }

    /// Writes an admitted attempt to the logs.
    fn admit(&mut self, attempt: ReplayAttempt, now: Micros) {
        let row = self.row(attempt.row);
        let attempt = ReplayAttempt { at: now, ..attempt };
        if !row.action.is_compared() {
            self.each_log(&attempt, now, |_, log, capacity| log.hits.keep(hit(&attempt), capacity));
            if row.outcome == ReplayOutcome::Failed {
                // Registrations that count nowhere are recorded together: each was taken back at once.
                let counts = if row.action == ReplayAction::Register { Duration::ZERO } else { row.lasts() };
                self.schedule(now.plus(counts), DueAction::TakeBack(attempt));
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
    fn settle(&mut self, attempt: &ReplayAttempt, now: Micros) {
        let row = self.row(attempt.row);
        let right = row.outcome == ReplayOutcome::Ok || row.is_refused() && row.honest();
        self.each_log(attempt, now, |_, log, capacity| {
            log.holds -= 1;
            if !right {
                log.hits.keep(KeptHit { at: now, ..hit(attempt) }, capacity);
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
        if let Some(log) = self.logs[own.limit as usize].subjects.get_mut(&own.subject)
            && row.forgave()
            && !attempt.waited
            && log.holds == 0
        {
            log.hits.forgive(attempt.at);
        }
    }

    fn take_back(&mut self, attempt: &ReplayAttempt, now: Micros) {
        self.each_log(attempt, now, |limit, log, _| {
            if !KEPT_ON_FAILURE.contains(&limit) {
                log.hits.take_out(hit(attempt));
            }
        });
    }

    /// The record does not say which device's log was cleared, so it keeps its hits.
    fn clear(&mut self, row: &ReplayRow) {
        let log = row.limit.map(|limit| LogRef::new(limit, row));
        if let Some(log) = log.and_then(|log| self.logs[log.limit as usize].subjects.get_mut(&log.subject)) {
            log.hits = HitRing::default();
        }
    }

    /// An attempt in flight has ended, so its slots are free.
    fn wake_at(&mut self, attempt: &ReplayAttempt, now: Micros) {
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
            match self.evaluate(&mut attempt, now) {
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
            if logs.counts(row.action) {
                let capacity = logs.limit.capacity() as usize;
                if let Some(hits) = logs.open(log.subject, now) {
                    each(log.limit, hits, capacity);
                }
            }
        }
    }
}

/// Identified by the number of its row.
fn hit(attempt: &ReplayAttempt) -> KeptHit {
    let [first, second, third, fourth] = attempt.row.to_le_bytes();
    KeptHit { at: attempt.at, id: HitId([first, second, third, fourth, 0, 0]) }
}

/// Whether it was refused by a log that the record does not name.
fn is_nameless(row: &ReplayRow) -> bool {
    let mut logs = logs_of(row.action, row);
    row.is_refused() && logs.any(|log| Some(log.limit) == row.limit && log.subject == NOBODY)
}

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
    pub subjects: FxHashMap<u32, AttemptLog>,
    sweep_at: usize,
}

impl LimitLogs {
    fn counts(&self, action: ReplayAction) -> bool {
        !action.is_answer() || counts_answers(&self.limit)
    }

    pub fn new(in_force: &Limit, draft: &Limit) -> Self {
        Self {
            limit: draft.clone(),
            is_changed: in_force != draft,
            longest: draft.longest_window(),
            subjects: FxHashMap::default(),
            sweep_at: SWEEP_FROM,
        }
    }

    /// Whether an attempt that the log counts may be decided differently from its record.
    pub fn differs(&self, subject: u32, now: Micros) -> bool {
        self.is_changed || self.subjects.get(&subject).is_some_and(|log| log.differs_until > Some(now))
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

    /// The subject's log, created if there is none. None if there is no subject, or the limit has no rules.
    pub fn open(&mut self, subject: u32, now: Micros) -> Option<&mut AttemptLog> {
        if subject == NOBODY || self.limit.rules().is_empty() {
            return None;
        }
        if self.subjects.len() >= self.sweep_at {
            let longest = self.longest;
            self.subjects.retain(|_, log| !log.is_over(longest, now));
            self.sweep_at = SWEEP_FROM.max(2 * self.subjects.len());
        }
        Some(self.subjects.entry(subject).or_default())
    }
}

impl AttemptLog {
    /// No rule counts anything in it, and nothing is in flight.
    fn is_over(&self, longest: Duration, now: Micros) -> bool {
        let newest = self.hits.last().is_none_or(|last| last.plus(longest) <= now);
        newest && self.holds == 0 && self.differs_until <= Some(now)
    }
}
