//! One replay: the record in the order of time, under one set of limits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Belief;
use super::book::{self, Book, COUNT, Lane, Lanes};
use super::episode::Episodes;
use super::judge::{self, Full, Judged};
use super::lines::{Lines, Waiter};
use super::log::{GUESS, MAY, MUST, Worlds};
use super::row::{Action, Outcome, Recording, Row, SOLVED};
use super::tally::{Tally, Verdict};
use crate::clock::Micros;
use crate::config::Limits;
use crate::throttle::{Hit, HitId, Refusal};

/// How long an attempt waits for others in flight, at most: as the guard and the guesses have it.
pub const PATIENCE: Duration = Duration::from_secs(5);

pub struct Engine<'r> {
    pub(super) rows: &'r [Row],
    pub(super) books: [Book; COUNT],
    pub(super) tally: Tally,
    pub(super) episodes: Episodes,
    lines: Lines,
    due: BinaryHeap<Reverse<Due>>,
    numbered: u64,
    /// From here on the limits decide; before, what was decided did.
    pub(super) from: Micros,
    pub(super) belief: Belief,
}

/// Something that was begun, and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Micros,
    number: u64,
    what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Settle(Flight),
    /// A right one that may have had to wait holds its place no longer.
    Release(u32),
    /// The gateway would not have it.
    TakeOut {
        row: u32,
        loose: bool,
    },
    EndEpisode(u32),
}

/// An attempt that is being verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flight {
    pub row: u32,
    pub came: Micros,
    pub worlds: [bool; 3],
    /// It may have had to wait, so that all this may have been later.
    pub slack: bool,
    pub waited: bool,
}

impl<'r> Engine<'r> {
    pub fn new(recording: &'r Recording, limits: &Limits, from: Micros, belief: Belief) -> Self {
        let mut number = 0;
        let books = book::limits(limits).map(|limit| {
            number += 1;
            Book::new(limit, number - 1, &recording.subjects)
        });
        let tally = Tally::new(&books);
        Self {
            rows: &recording.rows,
            books,
            tally,
            episodes: Episodes::default(),
            lines: Lines::default(),
            due: BinaryHeap::new(),
            numbered: 0,
            from,
            belief,
        }
    }

    pub fn run(mut self) -> Tally {
        for number in 0..self.rows.len() as u32 {
            self.advance(self.row(number).at);
            self.arrive(number);
        }
        self.advance(Micros(i64::MAX));
        self.tally
    }

    pub(super) fn row(&self, number: u32) -> &'r Row {
        &self.rows[number as usize]
    }

    fn advance(&mut self, to: Micros) {
        while let Some(Reverse(due)) = self.due.peek().copied()
            && due.at <= to
        {
            self.due.pop();
            match due.what {
                What::Settle(flight) => self.settle(flight, due.at, true),
                What::Release(row) => {
                    self.each_log(row, due.at, |_, log| log.holds[MAY] -= 1);
                }
                What::TakeOut { row, loose } => self.take_out(row, loose, due.at),
                What::EndEpisode(episode) => self.end_episode(episode, due.at),
            }
        }
    }

    pub(super) fn schedule(&mut self, at: Micros, what: What) {
        self.numbered += 1;
        self.due.push(Reverse(Due { at, number: self.numbered, what }));
    }

    fn arrive(&mut self, number: u32) {
        let row = self.row(number);
        match row.action {
            Action::Clear => return self.clear(row),
            Action::Answer => return self.take(number, row.at, Worlds::ALL, false, false),
            _ => {}
        }
        let counts = row.at >= self.from;
        match row.outcome {
            Outcome::Undecided if counts => self.tally.undecided(row, &Lanes::of(row)),
            Outcome::Challenged | Outcome::Throttled if counts => self.refused(number),
            Outcome::Undecided | Outcome::Challenged | Outcome::Throttled => {}
            Outcome::Ok | Outcome::Wrong | Outcome::Failed => {
                if !counts {
                    self.take(number, row.at, Worlds::ALL, false, false);
                } else {
                    let solved = row.has(SOLVED);
                    let standing = self.lines.standing_at(&Lanes::of(row), solved);
                    if let Some(lane) = standing.or_else(|| self.admit(number, row.at, false)) {
                        self.join(lane, Waiter { row: number, solved, came: row.at });
                    }
                }
            }
        }
    }

    /// One attempt whose outcome is known. Where only others in flight stand in its way for certain: in
    /// whose line it has to wait.
    fn admit(&mut self, number: u32, now: Micros, waited: bool) -> Option<Lane> {
        let row = self.row(number);
        let (lanes, solved) = (Lanes::of(row), row.has(SOLVED));
        let crowded = self.until(&lanes, |log| log.crowded_until) > now;
        match judge::judge(&mut self.books, &lanes, now, solved) {
            Judged::One(said) if crowded => self.admit_perhaps(number, now, said.refused(), true, waited),
            Judged::One(said) => {
                if let Some(refusal) = said.refused() {
                    self.count_refused(row, &lanes, &[full(&refusal, now)], Some(refusal));
                } else if let Some(lane) = said.held {
                    return Some(lanes[lane]);
                } else {
                    self.count_admitted(row, &lanes, now);
                    self.take(number, now, Worlds::ALL, false, waited);
                }
            }
            Judged::Split { guess, .. } if crowded => {
                self.admit_perhaps(number, now, guess.refused(), true, waited);
            }
            Judged::Split { must, guess, may, unknown } => {
                if must.refused().is_some() {
                    let winners = self.winners(&lanes, now, solved, true, false);
                    self.count_refused(row, &lanes, &winners, guess.refused());
                } else if !unknown && may.refused().is_none() && may.held.is_none() {
                    self.count_admitted(row, &lanes, now);
                    self.take(number, now, Worlds::ALL, false, waited);
                } else {
                    let slack = unknown || may.held.is_some();
                    self.admit_perhaps(number, now, guess.refused(), slack, waited);
                }
            }
        }
        None
    }

    /// It may be admitted, or refused; and with `slack` it may have to wait before it is either.
    fn admit_perhaps(&mut self, number: u32, now: Micros, guess: Option<Refusal>, slack: bool, waited: bool) {
        let row = self.row(number);
        let (lanes, solved) = (Lanes::of(row), row.has(SOLVED));
        let winners = self.winners(&lanes, now, solved, false, slack);
        let n = u64::from(row.count);
        let verdict = Verdict {
            n,
            can_admit: true,
            guess_admitted: if guess.is_none() { n } else { 0 },
            winners: &winners,
            guess: guess.map(|refusal| (refusal.bucket, refusal.rule)),
            noted: self.noted(&lanes, now, solved),
        };
        self.tally.count(row, &lanes, &verdict);
        if slack {
            self.crowd(number, now, now.plus(PATIENCE));
        }
        self.take(number, now, Worlds::open(guess.is_none()), slack, waited);
    }

    /// It may be waiting at any of its logs until then.
    pub(super) fn crowd(&mut self, number: u32, now: Micros, until: Micros) {
        self.each_log(number, now, |_, log| log.crowded_until = log.crowded_until.max(until));
    }

    fn join(&mut self, lane: Lane, waiter: Waiter) {
        if let Some(log) = self.books[lane.limit].existing(lane.subject) {
            log.lined_until = log.lined_until.max(waiter.came.plus(PATIENCE));
        }
        self.lines.join(lane, waiter);
    }

    /// The latest of these moments of an attempt's logs.
    pub(super) fn until(&mut self, lanes: &Lanes, of: impl Fn(&super::log::Log) -> Micros) -> Micros {
        let logs = lanes.iter().map(|lane| {
            self.books[lane.limit].existing(lane.subject).map_or(Micros(i64::MIN), |log| of(log))
        });
        logs.max().unwrap_or(Micros(i64::MIN))
    }

    fn winners(&self, lanes: &Lanes, now: Micros, solved: bool, refused: bool, slack: bool) -> Vec<Full> {
        let certain = if refused { judge::full(&self.books, lanes, now, solved, MUST) } else { Vec::new() };
        let mut possible = judge::full(&self.books, lanes, now, solved, MAY);
        possible.extend(judge::unknown(&self.books, lanes, now, solved, slack));
        judge::winners(&certain, &possible)
    }

    fn count_refused(&mut self, row: &Row, lanes: &Lanes, winners: &[Full], guess: Option<Refusal>) {
        let guess = guess.map(|refusal| (refusal.bucket, refusal.rule));
        let n = u64::from(row.count);
        let guess = guess.or_else(|| winners.first().map(|full| (full.lane, full.rule)));
        self.tally.count(row, lanes, &Verdict { n, winners, guess, ..Verdict::default() });
    }

    fn count_admitted(&mut self, row: &Row, lanes: &Lanes, now: Micros) {
        let n = u64::from(row.count);
        let noted = self.noted(lanes, now, row.has(SOLVED));
        let verdict = Verdict { n, can_admit: true, guess_admitted: n, noted, ..Verdict::default() };
        self.tally.count(row, lanes, &verdict);
    }

    pub(super) fn noted(&self, lanes: &Lanes, now: Micros, solved: bool) -> [[bool; 3]; 5] {
        let mut noted = [[false; 3]; 5];
        for (noted, lane) in noted.iter_mut().zip(lanes.iter()) {
            *noted = [MUST, GUESS, MAY].map(|world| judge::notes(&self.books, *lane, now, solved, world));
        }
        noted
    }

    /// Somebody's place has become free.
    pub(super) fn wake(&mut self, number: u32, now: Micros) {
        if self.lines.is_empty() {
            return;
        }
        let lanes = Lanes::of(self.row(number));
        for (lane, solved) in lanes.iter().flat_map(|lane| [(lane, false), (lane, true)]) {
            while let Some(waiter) = self.lines.first(*lane, solved) {
                let row = self.row(waiter.row);
                if now > waiter.came.plus(PATIENCE) {
                    self.tally.undecided(row, &Lanes::of(row));
                } else if let Some(other) = self.admit(waiter.row, now, true)
                    && self.lines.stay(*lane, other, waiter)
                {
                    break;
                }
            }
        }
    }
}

pub(super) fn full(refusal: &Refusal, now: Micros) -> Full {
    let frees_at = now.plus(refusal.retry_after);
    Full { lane: refusal.bucket, rule: refusal.rule, then: refusal.then, frees_at }
}

/// Known by the number of its row.
pub(super) fn hit(number: u32, at: Micros) -> Hit {
    let [first, second, third, fourth] = number.to_le_bytes();
    Hit { at, id: HitId([first, second, third, fourth, 0, 0]) }
}
