//! Attempts that were refused when they were recorded: their outcome is not known, and of several only when
//! the first and the last of them came.

use std::collections::HashMap;

use super::book::{LOGIN_ACCOUNT, Lane, Lanes};
use super::engine::{Engine, PATIENCE, What, hit};
use super::judge::{self, Full, Judged};
use super::log::{GUESS, MAY, Worlds};
use super::row::{Action, HONEST, SOLVED};
use super::tally::Verdict;
use crate::clock::Micros;

/// So many of an episode are tried one by one; what the first ones got, the rest get.
const MOST_TRIED: u64 = 10_000;

/// Episodes that have begun and not ended.
#[derive(Debug, Default)]
pub struct Episodes {
    under_way: HashMap<u32, Episode>,
    /// Which of them rely on a log's being full.
    relying: HashMap<(usize, u32), Vec<u32>>,
    next: u32,
}

#[derive(Debug, Clone, Copy)]
struct Episode {
    row: u32,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    /// That rule refuses all of it. What is certain of its log may have changed since: then another may be the
    /// one that is named.
    Refused { by: Full, shaken: bool },
    /// Some of it may be admitted; by our guess so many, and the rest refused by that rule.
    Open { admitted: u64, guess: Option<(usize, usize)> },
}

impl Engine<'_> {
    /// An episode begins.
    pub(super) fn refused(&mut self, number: u32) {
        let row = self.row(number);
        let (lanes, solved) = (Lanes::of(row), row.has(SOLVED));
        let judged = judge::judge(&mut self.books, &lanes, row.at, solved);
        let certain = match judged {
            _ if self.is_crowded(&lanes, row.at) => None,
            Judged::One(said) if row.until == row.at => {
                said.refused().map(|refusal| super::engine::full(&refusal, row.at))
            }
            _ => judge::certificate(&self.books, &lanes, row.at, row.until, solved),
        };
        let state = match certain {
            Some(by) => State::Refused { by, shaken: false },
            None => self.open(number, row.at),
        };
        let id = self.episodes.next;
        self.episodes.next = id.wrapping_add(1);
        self.episodes.under_way.insert(id, Episode { row: number, state });
        if row.until == row.at {
            return self.end_episode(id, row.at);
        }
        if let State::Refused { by, .. } = state {
            let lane = lanes[by.lane];
            self.episodes.relying.entry((lane.limit, lane.subject)).or_default().push(id);
        }
        self.schedule(row.until, What::EndEpisode(id));
    }

    /// Whether any that came then, or later, may have had to wait behind others.
    fn is_crowded(&mut self, lanes: &Lanes, then: Micros) -> bool {
        self.until(lanes, |log| log.crowded_until.max(log.lined_until)) > then
    }

    /// From this moment on nothing is certain of an episode: what it may leave in the logs.
    fn open(&mut self, number: u32, now: Micros) -> State {
        let row = self.row(number);
        let lanes = Lanes::of(row);
        let (admitted, guess) = self.try_by_guess(number, now);
        let mut slack = row.until > now || self.is_crowded(&lanes, row.at);
        for lane in lanes.iter() {
            slack |= self.books[lane.limit].existing(lane.subject).is_some_and(|log| log.holds[MAY] > 0);
        }
        let held = matches!(row.action, Action::SignIn | Action::Known | Action::Guess | Action::GuessApart);
        let latest = if held && slack { row.until.plus(PATIENCE) } else { row.until };
        self.note_anonymous(number, latest);
        if held && slack {
            self.crowd(number, now, latest);
        }
        // The last one of them comes when the episode ends.
        let count = (row.count as usize).max(1);
        self.each_log(number, now, |(_, capacity), log| {
            for _ in 0..(count - 1).min(capacity) {
                log.insert([None, None, Some(latest)], hit(number, latest), capacity);
            }
            if !held && count > 1 {
                log.spare_one(capacity);
            }
        });
        if row.action == Action::SignIn {
            self.void(lanes[0], row.until, now);
        }
        State::Open { admitted, guess }
    }

    /// Our guess: evenly spaced, and wrong unless the right one came soon after from the same place. How many
    /// are admitted, and what refuses the rest.
    fn try_by_guess(&mut self, number: u32, now: Micros) -> (u64, Option<(usize, usize)>) {
        let row = self.row(number);
        let (lanes, solved, n) = (Lanes::of(row), row.has(SOLVED), u64::from(row.count));
        let step = row.until.since(now).as_micros() as i64 / (n as i64 - 1).max(1);
        let right = row.has(HONEST) && row.action != Action::Send;
        let (mut tried, mut admitted, mut refused_by) = (0, 0, None);
        while tried < n.min(MOST_TRIED) {
            let at = Micros(now.0 + step * tried as i64);
            let said = judge::gather(&self.books, &lanes, at, solved, GUESS);
            if let Some(refusal) = said.refused() {
                refused_by = Some((refusal.bucket, refusal.rule));
                let wait = refusal.retry_after.as_micros() as i64;
                let skipped = if step == 0 { i64::MAX } else { (wait + step - 1) / step };
                tried = tried.saturating_add(skipped.max(1) as u64);
                continue;
            }
            if right {
                if row.action == Action::SignIn
                    && let Some(log) = self.books[LOGIN_ACCOUNT].existing(lanes[0].subject)
                {
                    log.forgive(Worlds([false, true, false]), at);
                }
                return (admitted + n - tried, refused_by);
            }
            self.each_log(number, at, |(_, capacity), log| {
                log.insert([None, Some(at), None], hit(number, at), capacity);
            });
            (tried, admitted) = (tried + 1, admitted + 1);
        }
        let rest = if refused_by.is_none() { n.saturating_sub(tried) } else { 0 };
        (admitted + rest, refused_by)
    }

    /// A log has lost what was certain: those that rely on it look again.
    pub(super) fn recheck(&mut self, lane: Lane, now: Micros) {
        let Some(relying) = self.episodes.relying.get(&(lane.limit, lane.subject)) else { return };
        for id in relying.clone() {
            self.recheck_one(id, now);
        }
    }

    /// The same, where any log may have lost something.
    pub(super) fn recheck_all(&mut self, now: Micros) {
        let all: Vec<u32> = self.episodes.relying.values().flatten().copied().collect();
        for id in all {
            self.recheck_one(id, now);
        }
    }

    fn recheck_one(&mut self, id: u32, now: Micros) {
        let Some(Episode { row: number, state: State::Refused { .. } }) =
            self.episodes.under_way.get(&id).copied()
        else {
            return;
        };
        let row = self.row(number);
        if row.until <= now {
            return;
        }
        let lanes = Lanes::of(row);
        judge::judge(&mut self.books, &lanes, now, row.has(SOLVED));
        let still = judge::certificate(&self.books, &lanes, now, row.until, row.has(SOLVED));
        let state = match still {
            Some(by) => State::Refused { by, shaken: true },
            None => self.open(number, now),
        };
        if let Some(by) = still {
            let lane = lanes[by.lane];
            let relying = self.episodes.relying.entry((lane.limit, lane.subject)).or_default();
            if !relying.contains(&id) {
                relying.push(id);
            }
        }
        if let Some(episode) = self.episodes.under_way.get_mut(&id) {
            episode.state = state;
        }
    }

    /// All of an episode has come: what it came to is counted.
    pub(super) fn end_episode(&mut self, id: u32, now: Micros) {
        let Some(Episode { row: number, state }) = self.episodes.under_way.remove(&id) else { return };
        let row = self.row(number);
        let (lanes, solved) = (Lanes::of(row), row.has(SOLVED));
        for lane in lanes.iter() {
            let key = (lane.limit, lane.subject);
            if let Some(relying) = self.episodes.relying.get_mut(&key) {
                relying.retain(|other| *other != id);
                if relying.is_empty() {
                    self.episodes.relying.remove(&key);
                }
            }
        }
        let mut state = state;
        // Who had to wait behind others was refused later than now, if at all.
        let crowded = self.is_crowded(&lanes, row.at);
        if crowded && matches!(state, State::Refused { .. }) {
            state = self.open(number, now);
        }
        // With all that came up to the last moment, looked at from the first: what is full at any between.
        let mut possible = judge::full(&self.books, &lanes, row.at, solved, MAY);
        let held = |lane: &Lane| {
            let books = &self.books[lane.limit];
            !books.is_off() && crate::throttle::window::Log::holds(&books.view(lane.subject, MAY)) > 0
        };
        let anyhow = match state {
            State::Refused { shaken, .. } => shaken,
            State::Open { .. } => crowded || lanes.iter().any(held),
        };
        possible.extend(judge::unknown(&self.books, &lanes, row.at, solved, anyhow));
        let noted = self.noted(&lanes, now, solved);
        let n = u64::from(row.count);
        let (winners, verdict);
        match state {
            State::Refused { by, .. } => {
                winners = judge::winners(&[by], &possible);
                let guess = Some((by.lane, by.rule));
                verdict = Verdict { n, winners: &winners, guess, ..Verdict::default() };
            }
            State::Open { admitted, guess } => {
                winners = judge::winners(&[], &possible);
                verdict =
                    Verdict { n, can_admit: true, guess_admitted: admitted, winners: &winners, guess, noted };
            }
        }
        self.tally.count(row, &lanes, &verdict);
        if let State::Open { .. } = state {
            self.leave_last(number, now, anyhow);
        }
    }

    /// What the last of an episode may leave.
    fn leave_last(&mut self, number: u32, now: Micros, held: bool) {
        let row = self.row(number);
        let holds = matches!(row.action, Action::SignIn | Action::Guess);
        let slack = holds && (held || row.until > row.at);
        let latest = if slack { now.plus(PATIENCE) } else { now };
        self.each_log(number, now, |(_, capacity), log| {
            log.insert([None, None, Some(latest)], hit(number, latest), capacity);
            if !holds {
                log.spare_one(capacity);
            }
        });
    }
}
