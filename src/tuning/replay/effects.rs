//! What attempts write to the logs, what is removed again, and who is next in a queue then.

use std::time::Duration;

use super::attempt_log::AttemptLog;
use super::engine::{DueAction, ReplayAttempt, ReplayEngine, ReplayVerdict};
use super::logs_of::{KEPT_ON_FAILURE, LogRef, counts_answers, logs_of};
use super::row::ReplayDecision;
use super::row::{FORGAVE, HONEST, ReplayOutcome, ReplayRow};
use crate::clock::Micros;
use crate::config::LimitName;
use crate::throttle::{HitId, HitRing, LogHit};

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
