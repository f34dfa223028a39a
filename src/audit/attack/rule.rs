//! What is unusual. Pure.
//!
//! An hour is unusual from the moment when the last five minutes hold at least as many attempts as the floor
//! of their kind, and at least five times what is usual. Usual is the median of the last seven days, each with
//! the hour around the same time of day.
//!
//! Five times, because the busiest five minutes of an office morning hold three to four times the average of
//! their hour. The median of seven days, so that neither a weekend nor one earlier attack decides what is
//! usual. A floor, so that a quiet night does not need much: 50 failed sign-ins in five minutes are more than
//! 600 people make in a morning rush, and 30 messages, mails or registrations are six a minute.

use std::collections::BTreeSet;
use std::time::Duration;

use strum::VariantArray;

use super::AttackEntry;
use crate::audit::{AttackKind, EventCount, MINUTE, StepSpan};
use crate::clock::Micros;

/// Minutes that are compared with the usual, the current one included.
const RECENT_MINUTES: usize = 5;
/// How often they go into an hour.
const AN_HOUR: u64 = 12;
/// From this many times the usual on.
const TIMES: u64 = 5;
pub const USUAL_DAYS: u32 = 7;
/// An attack is over when nothing unusual was seen for so long.
pub const QUIET_TIME: Duration = Duration::from_secs(10 * 60);
/// How far back its beginning is looked for: it is noticed within minutes, unless no instance ran.
pub const BEGINNING_MINUTES: usize = 60;

pub const MINUTE_MICROS: i64 = MINUTE.as_micros() as i64;

/// The minutes in which a beginning is looked for.
pub fn lately(now: Micros) -> StepSpan {
    StepSpan::ending(now, MINUTE, BEGINNING_MINUTES + RECENT_MINUTES)
}

/// How much of the recent minutes is over: the last one is not whole yet.
pub fn recent_length(now: Micros) -> Duration {
    now.since(StepSpan::ending(now, MINUTE, RECENT_MINUTES).start)
}

/// Attempts of one kind in those minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteCounts {
    pub span: StepSpan,
    pub counts: Vec<u64>,
}

impl MinuteCounts {
    pub fn recent(&self) -> u64 {
        self.counts.iter().rev().take(RECENT_MINUTES).sum()
    }

    /// The start of the first minute of those that are all busy for their share: a tenth of the floor, the same
    /// number of times the usual, and a tenth of the busiest of the last five, so that what was tried now and then
    /// before an attack is not taken for its beginning.
    pub fn began(&self, kind: AttackKind, usual: u64) -> Micros {
        let recent = self.counts.len() - RECENT_MINUTES;
        let busiest = self.counts.iter().skip(recent).copied().max().unwrap_or(0);
        let busy =
            |count: &u64| is_busy(kind, *count) && count * 60 >= TIMES * usual && count * 10 >= busiest;
        let first = self.counts.iter().skip(recent).position(busy).unwrap_or(0) + recent;
        let before = self.counts.iter().take(first).rev().take_while(|count| busy(count)).count();
        self.span.at(first - before)
    }
}

/// Whether a minute has half of its share of the floor: an attack has ups and downs.
pub const fn is_busy(kind: AttackKind, minute: u64) -> bool {
    minute * 10 >= kind.floor()
}

/// The first attempt of an attack, from those of the minute in which it began, oldest first: that of the first ten
/// seconds with a tenth of the busiest ten.
pub fn first_of(minute: Micros, attempts: &[(Micros, u64)]) -> Micros {
    const SLICE: i64 = 10_000_000;
    let slice = |at: Micros| (at.0 - minute.0).div_euclid(SLICE);
    let count =
        |of: i64| attempts.iter().filter(|(at, _)| slice(*at) == of).map(|(_, count)| count).sum::<u64>();
    let counts: Vec<u64> = (0..MINUTE_MICROS / SLICE).map(count).collect();
    let busiest = counts.iter().copied().max().unwrap_or(0);
    let first = counts.iter().position(|count| *count > 0 && count * 10 >= busiest);
    let of_slice = |first: usize| attempts.iter().find(|(at, _)| slice(*at) == first as i64);
    first.and_then(of_slice).map_or(minute, |(at, _)| *at)
}

/// The rule. `usual` is that of an hour.
pub const fn is_unusual(kind: AttackKind, recent: u64, usual: u64) -> bool {
    recent >= kind.floor() && recent * AN_HOUR >= TIMES * usual
}

pub fn usual_hour(now: Micros, days_ago: u32) -> (Micros, Micros) {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const HALF: Duration = Duration::from_secs(30 * 60);
    let then = now.minus(DAY * days_ago);
    (then.minus(HALF), then.plus(HALF))
}

/// The usual of an hour, from those of the last days: the median, in which a day without a record counts as
/// one without attempts.
pub fn usual(mut hours: Vec<u64>) -> u64 {
    hours.sort_unstable();
    hours.get(hours.len() / 2).copied().unwrap_or(0)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchedTraffic {
    pub kind: AttackKind,
    /// Empty if it is here.
    pub realm: String,
}

impl WatchedTraffic {
    /// All that there is: each kind, each realm in which something was tried lately, and what an attack goes on at.
    pub fn all(lately: &[Vec<EventCount>], going_on: &[AttackEntry]) -> BTreeSet<Self> {
        let here = AttackKind::VARIANTS.iter().copied().filter(|kind| *kind != AttackKind::Attempts);
        let here = here.map(|kind| Self { kind, realm: String::new() });
        let sums = lately.iter().flatten().filter(|sum| !sum.realm.is_empty());
        let realms = sums.map(|sum| Self { kind: AttackKind::Attempts, realm: sum.realm.clone() });
        here.chain(realms).chain(going_on.iter().map(Self::of)).collect()
    }

    pub fn of(attack: &AttackEntry) -> Self {
        Self { kind: attack.kind, realm: attack.realm.clone() }
    }

    pub fn counted(&self, sums: &[EventCount]) -> u64 {
        let counts = |sum: &&EventCount| sum.realm == self.realm && self.kind.counts(sum.action, sum.outcome);
        sums.iter().filter(counts).map(|sum| u64::try_from(sum.count).unwrap_or(0)).sum()
    }

    pub fn minutes(&self, span: StepSpan, lately: &[Vec<EventCount>]) -> MinuteCounts {
        MinuteCounts { span, counts: lately.iter().map(|sums| self.counted(sums)).collect() }
    }

    /// The usual in an hour, from the sums of the same hour on earlier days.
    pub fn usual(&self, days: &[Vec<EventCount>]) -> u64 {
        usual(days.iter().map(|sums| self.counted(sums)).collect())
    }
}
