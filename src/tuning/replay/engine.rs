//! One replay: the record in the order of time, under one set of limits.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use super::Belief;
use super::book::{self, Book, COUNT, LOGIN_ACCOUNT, Lane, Lanes, OF_THE_ASKER};
use super::episode::Episodes;
use super::judge::{self, Full, Judged};
use super::lines::{Lines, Waiter};
use super::log::{GUESS, MAY, MUST, Worlds};
use super::row::{
    self, Action, CROWDED, FORGIVING, NO_LIMIT, Outcome, PERHAPS_CROWDED, RESET, Recording, Row, SOLVED,
    UNFORGIVING,
};
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
    from: Micros,
    belief: Belief,
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
    row: u32,
    came: Micros,
    worlds: [bool; 3],
    /// It may have had to wait, so that all this may have been later.
    slack: bool,
    waited: bool,
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
        if row.action == Action::Clear {
            return self.clear(row);
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
                    let standing = self.lines.standing_at(&Lanes::of(row));
                    if let Some(lane) = standing.or_else(|| self.admit(number, row.at, false)) {
                        self.join(lane, Waiter { row: number, came: row.at });
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
            Judged::One(said) if crowded => self.admit_perhaps(number, now, said.refused, true, waited),
            Judged::One(said) => {
                if let Some(refusal) = said.refused {
                    self.count_refused(row, &lanes, &[full(&refusal, now)], Some(refusal));
                } else if let Some(lane) = said.held {
                    return Some(lanes[lane]);
                } else {
                    self.count_admitted(row, &lanes, now);
                    self.take(number, now, Worlds::ALL, false, waited);
                }
            }
            Judged::Split { guess, .. } if crowded => {
                self.admit_perhaps(number, now, guess.refused, true, waited);
            }
            Judged::Split { must, guess, may, unknown } => {
                if must.refused.is_some() {
                    let winners = self.winners(&lanes, now, solved, true, false);
                    self.count_refused(row, &lanes, &winners, guess.refused);
                } else if !unknown && may.refused.is_none() && may.held.is_none() {
                    self.count_admitted(row, &lanes, now);
                    self.take(number, now, Worlds::ALL, false, waited);
                } else {
                    let slack = unknown || may.held.is_some();
                    self.admit_perhaps(number, now, guess.refused, slack, waited);
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

    /// What an attempt leaves in the logs, in the worlds where it was admitted.
    fn take(&mut self, number: u32, now: Micros, worlds: Worlds, slack: bool, waited: bool) {
        let row = self.row(number);
        let ends = now.plus(row.until.since(row.at));
        if worlds.0[MAY] {
            self.note_anonymous(number, ends.plus(PATIENCE));
        }
        match row.action {
            Action::SignIn | Action::Guess => {
                let flight = Flight { row: number, came: now, worlds: worlds.0, slack, waited };
                if ends <= now {
                    return self.settle(flight, now, false);
                }
                self.each_log(number, now, |_, log| {
                    for (holds, takes) in log.holds.iter_mut().zip(worlds.0) {
                        *holds += u32::from(takes);
                    }
                });
                self.schedule(ends, What::Settle(flight));
            }
            Action::Send | Action::Register => {
                let failed = row.outcome == Outcome::Failed && row.action == Action::Send;
                let loose = failed && !worlds.is_certain();
                let at = worlds.0.map(|takes| takes.then_some(now));
                self.each_log(number, now, |(limit, capacity), log| {
                    if loose && !OF_THE_ASKER.contains(&limit) {
                        log.insert_loose(worlds, hit(number, now), capacity);
                    } else {
                        log.insert(at, hit(number, now), capacity);
                    }
                });
                if failed && ends <= now {
                    self.take_out(number, loose, now);
                } else if failed {
                    self.schedule(ends, What::TakeOut { row: number, loose });
                }
            }
            Action::Clear => {}
        }
    }

    /// It was verified.
    fn settle(&mut self, flight: Flight, now: Micros, held: bool) {
        let row = self.row(flight.row);
        let wrong = row.outcome != Outcome::Ok;
        let [must, guess, may] = flight.worlds.map(|takes| takes.then_some(now));
        let later = if flight.slack { PATIENCE } else { Duration::ZERO };
        let at = [must, guess, may.map(|at| at.plus(later))];
        let stays = flight.slack && held && !wrong;
        if !held && !wrong {
            if row.action == Action::SignIn {
                self.forgive(row, flight, now);
            }
            return;
        }
        self.each_log(flight.row, now, |(_, capacity), log| {
            for (holds, took) in log.holds.iter_mut().zip(flight.worlds).filter(|_| held) {
                *holds -= u32::from(took);
            }
            log.holds[MAY] += u32::from(stays);
            if wrong {
                log.insert(at, hit(flight.row, now), capacity);
            }
        });
        if stays {
            self.schedule(now.plus(PATIENCE), What::Release(flight.row));
        }
        if !wrong && row.action == Action::SignIn {
            self.forgive(row, flight, now);
        }
        if held {
            self.wake(flight.row, now);
        }
    }

    /// A right password: the failures of the account from before it came are forgiven, if it came alone.
    fn forgive(&mut self, row: &Row, flight: Flight, now: Micros) {
        let lane = Lanes::of(row)[0];
        let Some(log) = self.books[LOGIN_ACCOUNT].existing(lane.subject) else { return };
        let held = log.holds;
        // Whether others came meanwhile is the same whatever the limits; whether it had to wait is not.
        let recorded = self.belief == Belief::Recorded || row.at < self.from;
        let crowded =
            flight.waited || row.has(CROWDED) && !row.has(FORGIVING) || row.has(UNFORGIVING) && recorded;
        let perhaps = flight.slack || row.has(UNFORGIVING) || row.has(PERHAPS_CROWDED) && !row.has(FORGIVING);
        let own = u32::from(flight.slack);
        let may_have = !crowded && held[MUST] == 0;
        let certain = Worlds(flight.worlds).is_certain() && may_have && !perhaps && held[MAY] <= own;
        let guess = flight.worlds[GUESS] && !crowded && held[GUESS] == 0;
        let worlds = if certain { Worlds::ALL } else { Worlds([may_have, guess, false]) };
        if log.forgive(worlds, flight.came) {
            self.recheck(lane, now);
        }
    }

    fn take_out(&mut self, number: u32, loose: bool, now: Micros) {
        let at = self.row(number).at;
        self.each_log(number, now, |(limit, _), log| {
            if !OF_THE_ASKER.contains(&limit) {
                log.take_out(hit(number, at), loose);
            }
        });
        for lane in Lanes::of(self.row(number)).iter() {
            self.recheck(*lane, now);
        }
    }

    /// Somebody's place has become free.
    fn wake(&mut self, number: u32, now: Micros) {
        if self.lines.is_empty() {
            return;
        }
        for lane in Lanes::of(self.row(number)).iter() {
            while let Some(waiter) = self.lines.first(*lane) {
                let row = self.row(waiter.row);
                if now > waiter.came.plus(PATIENCE) {
                    self.tally.undecided(row, &Lanes::of(row));
                } else if let Some(other) = self.admit(waiter.row, now, true) {
                    if self.lines.stay(*lane, other, waiter) {
                        break;
                    }
                }
            }
        }
    }

    /// What was certain to stand in a log may be forgiven at any moment up to then.
    pub(super) fn void(&mut self, lane: Lane, up_to: Micros, now: Micros) {
        if lane.is_known() {
            if let Some(log) = self.books[lane.limit].existing(lane.subject)
                && log.void_up_to(up_to)
            {
                self.recheck(lane, now);
            }
        } else {
            self.books[lane.limit].void_all(up_to);
            self.recheck_all(now);
        }
    }

    fn clear(&mut self, row: &Row) {
        let limit = usize::from(row.limit);
        if row.limit == NO_LIMIT {
            for limit in 0..COUNT {
                self.void(Lane { limit, subject: row::NOBODY }, row.at, row.at);
            }
            return;
        }
        let subject = row.subjects.get(book::kind_of(limit)).copied().unwrap_or(0);
        let lane = Lane { limit, subject };
        // A code that set a new password might not have been compared under other limits.
        let perhaps = row.has(RESET) && row.at >= self.from && self.belief == Belief::Draft;
        if !lane.is_known() || perhaps {
            self.void(lane, row.at, row.at);
        } else if let Some(log) = self.books[limit].existing(subject) {
            log.forgive(Worlds::ALL, row.at);
            self.recheck(lane, row.at);
        }
    }

    /// An attempt may have left hits at subjects that the record does not name.
    pub(super) fn note_anonymous(&mut self, number: u32, until: Micros) {
        for lane in Lanes::of(self.row(number)).iter().filter(|lane| !lane.is_known()) {
            let book = &mut self.books[lane.limit];
            book.anyone_until = book.anyone_until.max(until.plus(book.longest));
        }
    }

    /// The logs that an attempt writes to, each with the number of its limit and how much it keeps.
    pub(super) fn each_log(
        &mut self,
        number: u32,
        now: Micros,
        mut each: impl FnMut((usize, usize), &mut super::log::Log),
    ) {
        for lane in Lanes::of(self.row(number)).iter().filter(|lane| lane.is_known()) {
            let book = &mut self.books[lane.limit];
            if !book.is_off() {
                let capacity = book.capacity();
                each((lane.limit, capacity), book.open(lane.subject, now));
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
