//! Counts of what would have happened: at least, by our best guess, at most.

use serde::Serialize;

use super::book::{Book, COUNT, Lanes};
use super::judge::Full;
use super::row::{Action, HONEST, Outcome, Row};
use crate::throttle::{Mode, Then};

/// A number that is known to lie between two, and what it probably is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Bounds {
    pub low: u64,
    pub estimate: u64,
    pub high: u64,
}

impl Bounds {
    pub const fn exactly(count: u64) -> Self {
        Self { low: count, estimate: count, high: count }
    }

    pub const fn is_exact(self) -> bool {
        self.low == self.high
    }

    pub const fn contains(self, count: u64) -> bool {
        self.low <= count && count <= self.high
    }

    /// Of `n` attempts: all of them where it is certain, none where it cannot be.
    fn add(&mut self, n: u64, certain: bool, guess: u64, possible: bool) {
        self.low += if certain { n } else { 0 };
        self.high += if possible { n } else { 0 };
        self.estimate += match (certain, possible) {
            (true, _) => n,
            (false, true) => guess.min(n),
            (false, false) => 0,
        };
    }
}

/// What became of the attempts, of one limit or of all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    pub attempts: u64,
    pub admitted: Bounds,
    /// A challenge was asked for: by this limit, or by any.
    pub challenged: Bounds,
    pub throttled: Bounds,
    /// Refused for another reason than a limit, as they were.
    pub undecided: u64,
    /// Refused, though they were right, or the right thing came soon after from the same address.
    pub bothered: Bounds,
    /// Wrong passwords and codes that were compared.
    pub guesses_verified: Bounds,
    /// Those that were compared when they were recorded, and now are not.
    pub guesses_stopped: Bounds,
    /// Messages handed to the gateway.
    pub messages_sent: Bounds,
    pub messages_stopped: Bounds,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct LimitCounts {
    pub name: String,
    pub mode: &'static str,
    #[serde(flatten)]
    pub counts: Counts,
    /// Admitted, because the limit only watches.
    pub noted: Bounds,
    /// What each rule refused, in their order.
    pub rules: Vec<RuleCounts>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct RuleCounts {
    pub max: u32,
    pub then: &'static str,
    pub refused: Bounds,
}

/// What became of some attempts of one kind.
#[derive(Debug, Clone, Copy, Default)]
pub struct Verdict<'a> {
    pub n: u64,
    pub can_admit: bool,
    pub guess_admitted: u64,
    /// What may refuse them.
    pub winners: &'a [Full],
    /// What probably refuses the rest: which limit, which rule.
    pub guess: Option<(usize, usize)>,
    /// Whether a limit that only watches notes them: in each world, and each limit.
    pub noted: [[bool; 3]; 5],
}

#[cfg(test)]
pub type Seen = (usize, bool, Vec<(usize, usize)>);

#[derive(Debug)]
pub struct Tally {
    pub all: Counts,
    pub limits: [LimitCounts; COUNT],
    /// Every verdict by the address of its row: whether it may be admitted, and what may refuse it.
    #[cfg(test)]
    pub seen: Vec<Seen>,
}

impl Tally {
    pub fn new(books: &[Book; COUNT]) -> Self {
        let limits = books.each_ref().map(|book| LimitCounts {
            name: book.limit.name().to_owned(),
            mode: match book.limit.mode() {
                Mode::Enforce => "enforce",
                Mode::Monitor => "monitor",
            },
            rules: book
                .limit
                .rules()
                .iter()
                .map(|rule| RuleCounts {
                    max: rule.max,
                    then: rule.then.as_str(),
                    refused: Bounds::default(),
                })
                .collect(),
            ..LimitCounts::default()
        });
        Self {
            all: Counts::default(),
            limits,
            #[cfg(test)]
            seen: Vec::new(),
        }
    }

    pub fn undecided(&mut self, row: &Row, lanes: &Lanes) {
        let n = u64::from(row.count);
        let limits = lanes.iter().map(|lane| lane.limit);
        self.all.leave(n);
        limits.for_each(|limit| self.limits[limit].counts.leave(n));
    }

    pub fn count(&mut self, row: &Row, lanes: &Lanes, verdict: &Verdict<'_>) {
        #[cfg(test)]
        self.seen.push((
            std::ptr::from_ref(row) as usize,
            verdict.can_admit,
            verdict.winners.iter().map(|full| (lanes[full.lane].limit, full.rule)).collect(),
        ));
        self.all.count(row, verdict, None);
        let certain_admit = verdict.winners.is_empty();
        for (index, lane) in lanes.iter().enumerate() {
            let limit = &mut self.limits[lane.limit];
            limit.counts.count(row, verdict, Some(index));
            let [must, guess, may] = verdict.noted[index];
            let guess = if guess { verdict.guess_admitted } else { 0 };
            limit.noted.add(verdict.n, must && certain_admit, guess, may && verdict.can_admit);
        }
        let guess_refused = verdict.n - verdict.guess_admitted.min(verdict.n);
        for full in verdict.winners {
            let rule = &mut self.limits[lanes[full.lane].limit].rules[full.rule];
            let certain = !verdict.can_admit && verdict.winners.len() == 1;
            let guess = if verdict.guess == Some((full.lane, full.rule)) { guess_refused } else { 0 };
            rule.refused.add(verdict.n, certain, guess, true);
        }
    }
}

impl Counts {
    fn leave(&mut self, n: u64) {
        self.attempts += n;
        self.undecided += n;
    }

    /// With a limit: what it refused itself; admitted are those that every limit admitted.
    fn count(&mut self, row: &Row, verdict: &Verdict<'_>, of: Option<usize>) {
        let Verdict { n, can_admit, winners, .. } = *verdict;
        let admitted = verdict.guess_admitted.min(n);
        let guessed = |then: Option<Then>| match verdict.guess {
            Some((lane, rule)) if of.is_none_or(|of| of == lane) => {
                let winner = winners.iter().find(|full| (full.lane, full.rule) == (lane, rule));
                let fits = winner.is_some_and(|full| then.is_none_or(|then| full.then == then));
                if fits { n - admitted } else { 0 }
            }
            _ => 0,
        };
        let mine = |full: &Full| of.is_none_or(|of| of == full.lane);
        let refused = |then: Option<Then>| {
            let fits = |full: &Full| mine(full) && then.is_none_or(|then| full.then == then);
            (!can_admit && winners.iter().all(fits), guessed(then), winners.iter().any(fits))
        };
        let mut add = |bounds: fn(&mut Self) -> &mut Bounds, (certain, guess, possible)| {
            bounds(self).add(n, certain, guess, possible);
        };
        let admits = (winners.is_empty(), admitted, can_admit);
        add(|counts| &mut counts.admitted, admits);
        add(|counts| &mut counts.challenged, refused(Some(Then::Captcha)));
        add(|counts| &mut counts.throttled, refused(Some(Then::Block)));
        let stopped = refused(None);
        if row.has(HONEST) {
            add(|counts| &mut counts.bothered, stopped);
        }
        match (row.action, row.outcome) {
            (Action::SignIn | Action::Known | Action::Guess | Action::GuessApart, Outcome::Wrong) => {
                add(|counts| &mut counts.guesses_verified, admits);
                add(|counts| &mut counts.guesses_stopped, stopped);
            }
            (
                Action::SignIn | Action::Known | Action::Guess | Action::GuessApart,
                Outcome::Challenged | Outcome::Throttled,
            ) => {
                let guess = if row.has(HONEST) { 0 } else { admitted };
                add(|counts| &mut counts.guesses_verified, (false, guess, can_admit));
            }
            (Action::Send, _) => {
                add(|counts| &mut counts.messages_sent, admits);
                add(|counts| &mut counts.messages_stopped, stopped);
            }
            _ => {}
        }
        self.attempts += n;
    }
}
