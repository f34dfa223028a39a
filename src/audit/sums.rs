//! Sums of events, and the steps of time that they are of.

use std::time::Duration;

use super::event::{
    Action, COUNTED_AT_ADDRESS, DEVICE_FIRST, EventEntry, FROM_DEVICE, Fate, Outcome,
    UNCOUNTED_REGISTRATIONS, is_counted_by,
};
use crate::clock::Micros;
use crate::config::LimitName;

pub const MINUTE: Duration = Duration::from_secs(60);
/// Sums of quarters of an hour are kept, too: a chart of a week reads a tenth as many.
pub const QUARTER: Duration = Duration::from_secs(15 * 60);

/// The number of a step, and the sum of everything that tells events apart here.
pub(super) type SumRow = (i64, Action, String, Outcome, String, i64, i64);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventCount {
    pub action: Action,
    /// The realm of an attempt at another program's login; empty for everything else.
    pub realm: String,
    pub outcome: Outcome,
    /// The one that decided, or noted; of what was admitted, one that counts it and no other of its kind. Otherwise
    /// empty.
    pub limit: String,
    /// The limit that counts it, except for what a limit only noted.
    pub counted_by: String,
    pub noted: bool,
    pub count: i64,
}

impl EventCount {
    pub const fn fate(&self) -> Fate {
        self.outcome.fate(self.noted)
    }

    /// Whether its rows name the limit: what is only counted by it names none.
    pub fn names(&self, limit: &str) -> bool {
        let decided = self.noted || matches!(self.fate(), Fate::Challenged | Fate::Refused);
        self.limit == limit && (decided || self.action == Action::Admin || !is_counted_by(limit))
    }
}

/// The limit by which the sum of an admitted event is found; empty if those of its kind count it. What comes from a
/// known device is counted by the device's limit, a program's message by its token's, a wrong answer to a challenge
/// where wrong passwords are, and a registration only if its name was looked up.
pub(super) fn counted_by(row: &EventEntry) -> &'static str {
    let (name, detail) = (row.name.as_deref().unwrap_or_default(), row.detail.as_deref().unwrap_or_default());
    let limit = match row.action {
        Action::SignIn if name == FROM_DEVICE => LimitName::LoginDevice,
        Action::Attempt if detail.starts_with(DEVICE_FIRST) => LimitName::GuardDevice,
        Action::FactorFailed if detail.starts_with(DEVICE_FIRST) => LimitName::FactorDevice,
        Action::FactorFailed if COUNTED_AT_ADDRESS.contains(&name) => LimitName::LoginAddress,
        Action::Register
            if matches!(row.outcome, Outcome::Ok | Outcome::Failed)
                && !UNCOUNTED_REGISTRATIONS.contains(&name) =>
        {
            LimitName::RegisterAddress
        }
        Action::Send if name.starts_with("verify:") => LimitName::VerifyToken,
        Action::Send if name.starts_with("relay:") => LimitName::RelayToken,
        // At a realm's login it says which.
        Action::Captcha if row.outcome == Outcome::Wrong && name == "attempt" => LimitName::GuardAddress,
        Action::Captcha if row.outcome == Outcome::Wrong => LimitName::LoginAddress,
        _ => return "",
    };
    limit.as_str()
}

/// The row as a part of the sums.
pub(super) fn summed(row: &EventEntry) -> EventCount {
    let decided = row.limit.as_deref().filter(|_| !row.noted);
    EventCount {
        action: row.action,
        realm: row.name.clone().filter(|_| row.action == Action::Attempt).unwrap_or_default(),
        outcome: row.outcome,
        limit: row.limit.as_deref().unwrap_or_else(|| counted_by(row)).to_owned(),
        counted_by: decided.unwrap_or_else(|| counted_by(row)).to_owned(),
        noted: row.noted,
        count: row.count,
    }
}

/// A time in steps of one length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSpan {
    pub start: Micros,
    pub step: Duration,
    pub steps: usize,
}

impl StepSpan {
    /// The current step is the last one.
    pub fn ending(now: Micros, step: Duration, steps: usize) -> Self {
        Self { start: floor(now, step).minus(step * (steps as u32 - 1)), step, steps }
    }

    pub fn at(&self, step: usize) -> Micros {
        self.start.plus(self.step * step as u32)
    }

    pub fn end(&self) -> Micros {
        self.at(self.steps)
    }

    pub fn place(&self, at: Micros) -> Option<usize> {
        let place = (at.0 - self.start.0).div_euclid(self.step.as_micros() as i64);
        usize::try_from(place).ok().filter(|place| *place < self.steps)
    }

    /// The sums of each step; of one without events none.
    pub(super) fn filled(&self, rows: Vec<SumRow>) -> Vec<Vec<EventCount>> {
        let mut steps = vec![Vec::new(); self.steps];
        for (step, action, realm, outcome, limit, noted, count) in rows {
            let by = if noted == 0 { limit.as_str() } else { "" };
            let (limit, by) = limit.split_once(' ').unwrap_or((&limit, by));
            let (limit, counted_by) = (limit.to_owned(), by.to_owned());
            let sum = EventCount { action, realm, outcome, limit, counted_by, noted: noted != 0, count };
            steps[step as usize].push(sum);
        }
        steps
    }
}

/// The beginning of its step.
pub fn floor(at: Micros, step: Duration) -> Micros {
    Micros(at.0 - at.0.rem_euclid(step.as_micros() as i64))
}
