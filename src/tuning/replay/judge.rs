//! What the limits say of an attempt, in each world: through the arithmetic that enforces.

use super::book::{Book, COUNT, Lane, Lanes};
use super::log::{GUESS, MAY, MUST};
use crate::clock::Micros;
use crate::throttle::window::{self, Gathered, Standing};
use crate::throttle::{Mode, Rule, Then};

/// What may be said of an attempt.
#[expect(clippy::large_enum_variant, reason = "it lives for one decision, and on the stack")]
pub enum Judged {
    /// There is but one world.
    One(Gathered),
    Split {
        must: Gathered,
        guess: Gathered,
        may: Gathered,
        /// Some log may be fuller than what is known of it.
        unknown: bool,
    },
}

/// A rule that is full, and may be what refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full {
    /// Which of the attempt's limits, and which of its rules.
    pub lane: usize,
    pub rule: usize,
    pub then: Then,
    pub frees_at: Micros,
}

impl Full {
    /// Whether the refusal is this one's wherever both are full: the stricter, the longer, the first.
    fn beats(&self, other: &Self) -> bool {
        let order = |full: &Self| (full.then, full.frees_at);
        let first = (self.lane, self.rule) < (other.lane, other.rule);
        order(self) > order(other) || order(self) == order(other) && first
    }
}

pub fn judge(books: &mut [Book; COUNT], lanes: &Lanes, now: Micros, solved: bool) -> Judged {
    let (mut one, mut unknown) = (true, false);
    for lane in lanes.iter() {
        let book = &mut books[lane.limit];
        if book.is_off() {
            continue;
        }
        one &= lane.is_known() && book.touch(lane.subject, now);
        if !lane.is_known() || book.anyone_until > now {
            (one, unknown) = (false, true);
        }
    }
    if one {
        return Judged::One(gather(books, lanes, now, solved, MAY));
    }
    let [must, guess, may] = [MUST, GUESS, MAY].map(|world| gather(books, lanes, now, solved, world));
    Judged::Split { must, guess, may, unknown }
}

/// What one world says. A limit whose subject is not known says nothing.
pub fn gather(books: &[Book; COUNT], lanes: &Lanes, now: Micros, solved: bool, world: usize) -> Gathered {
    let mut gathered = Gathered::default();
    for (index, lane) in lanes.iter().enumerate().filter(|(_, lane)| lane.is_known()) {
        let book = &books[lane.limit];
        gathered.add(index, &book.limit, &book.view(lane.subject, world), now, solved);
    }
    gathered
}

/// Every rule that is full and enforced.
pub fn full(books: &[Book; COUNT], lanes: &Lanes, now: Micros, solved: bool, world: usize) -> Vec<Full> {
    let mut found = Vec::new();
    for (index, lane) in lanes.iter().enumerate().filter(|(_, lane)| lane.is_known()) {
        let view = books[lane.limit].view(lane.subject, world);
        for (number, rule) in enforced(&books[lane.limit], solved) {
            if let Standing::Full { frees_at } = window::judge(rule, &view, now) {
                found.push(Full { lane: index, rule: number, then: rule.then, frees_at });
            }
        }
    }
    found
}

/// Every enforced rule of the limits whose logs may be fuller than is known; with `all`, of all of them.
pub fn unknown(books: &[Book; COUNT], lanes: &Lanes, now: Micros, solved: bool, all: bool) -> Vec<Full> {
    let in_doubt = |lane: &Lane| all || !lane.is_known() || books[lane.limit].anyone_until > now;
    let rules = lanes.iter().enumerate().filter(|(_, lane)| in_doubt(lane)).flat_map(|(index, lane)| {
        enforced(&books[lane.limit], solved).map(move |(number, rule)| Full {
            lane: index,
            rule: number,
            then: rule.then,
            frees_at: Micros(i64::MAX),
        })
    });
    rules.collect()
}

fn enforced(book: &Book, solved: bool) -> impl Iterator<Item = (usize, &Rule)> {
    let enforced = book.limit.mode() == Mode::Enforce;
    let rules = book.limit.rules().iter().enumerate().filter(move |_| enforced);
    rules.filter(move |(_, rule)| !(solved && rule.then == Then::Captcha))
}

/// The rules that may be what refuses, where those of `certain` are full in any case.
pub fn winners(certain: &[Full], possible: &[Full]) -> Vec<Full> {
    let same = |a: &Full, b: &Full| (a.lane, a.rule) == (b.lane, b.rule);
    let loses = |full: &Full| certain.iter().any(|other| !same(full, other) && other.beats(full));
    let mut found: Vec<Full> = Vec::new();
    for full in certain.iter().chain(possible).filter(|full| !loses(full)) {
        if !found.iter().any(|other| same(full, other)) {
            found.push(*full);
        }
    }
    found
}

/// The rule that refuses everything from now to `last`, for certain; the strictest of several.
pub fn certificate(
    books: &[Book; COUNT],
    lanes: &Lanes,
    now: Micros,
    last: Micros,
    solved: bool,
) -> Option<Full> {
    let through = full(books, lanes, now, solved, MUST).into_iter().filter(|full| full.frees_at > last);
    through.reduce(|best, other| if other.beats(&best) { other } else { best })
}

/// Whether a limit that only watches would have refused.
pub fn notes(books: &[Book; COUNT], lane: Lane, now: Micros, solved: bool, world: usize) -> bool {
    let limit = &books[lane.limit].limit;
    if limit.mode() != Mode::Monitor || !lane.is_known() {
        return false;
    }
    let view = books[lane.limit].view(lane.subject, world);
    let waived = |rule: &Rule| solved && rule.then == Then::Captcha;
    let full = |rule: &Rule| matches!(window::judge(rule, &view, now), Standing::Full { .. });
    limit.rules().iter().any(|rule| !waived(rule) && full(rule))
}
