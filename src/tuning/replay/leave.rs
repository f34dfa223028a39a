//! What attempts leave in the logs, and what is taken out of them again.

use std::time::Duration;

use super::Belief;
use super::book::{self, COUNT, LOGIN_ACCOUNT, Lane, Lanes, OF_THE_ASKER};
use super::engine::{Engine, Flight, PATIENCE, What, hit};
use super::log::{GUESS, Log, MAY, MUST, Worlds};
use super::row::{
    self, Action, CROWDED, FORGIVING, NO_LIMIT, Outcome, PERHAPS_CROWDED, RESET, Row, UNFORGIVING,
};
use crate::clock::Micros;

impl Engine<'_> {
    /// What an attempt leaves in the logs, in the worlds where it was admitted.
    pub(super) fn take(&mut self, number: u32, now: Micros, worlds: Worlds, slack: bool, waited: bool) {
        let row = self.row(number);
        let ends = now.plus(row.until.since(row.at));
        if worlds.0[MAY] {
            self.note_anonymous(number, ends.plus(PATIENCE));
        }
        match row.action {
            Action::SignIn | Action::Known | Action::Guess | Action::GuessApart => {
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
            Action::Answer => self.each_log(number, now, |(_, capacity), log| {
                log.insert([Some(now); 3], hit(number, now), capacity);
            }),
            Action::Clear => {}
        }
    }

    /// It was verified.
    pub(super) fn settle(&mut self, flight: Flight, now: Micros, held: bool) {
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

    /// A right password: rules that ask for a challenge pass over the account's failures from before it came, if
    /// it came alone.
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

    pub(super) fn take_out(&mut self, number: u32, loose: bool, now: Micros) {
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

    pub(super) fn clear(&mut self, row: &Row) {
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
            log.clear(row.at);
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
        mut each: impl FnMut((usize, usize), &mut Log),
    ) {
        let row = self.row(number);
        let answer = row.action == Action::Answer;
        for lane in Lanes::of(row).iter().filter(|lane| lane.is_known()) {
            let book = &mut self.books[lane.limit];
            if !book.is_off() && (!answer || book::counts_answers(&book.limit)) {
                let capacity = book.capacity();
                each((lane.limit, capacity), book.open(lane.subject, now));
            }
        }
    }
}
