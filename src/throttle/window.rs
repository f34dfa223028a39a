//! The window arithmetic: pure functions from a log and a time to what a rule says of them.
//! `lua/window.lua` says the same in the store's language; a conformance suite holds the two together.

use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Unit, Zoned};

use super::limit::{CalendarUnit, Limit, Mode, Rule, Span, Stretch, Then};
use super::store::{Refusal, Room};
use crate::clock::Micros;

/// How long a hold may stay unresolved before it counts as a failure: its owner has died. Longer than
/// any verification waits and runs (5 s in line, 5 s in the hashing queue, well under 1 s of hashing).
pub const HOLD_LIFE: Duration = Duration::from_secs(15);

/// What is added to a log's life beyond its longest window, so that a clock that steps back by less
/// does not find the log gone that it still counts by. A time server steps by far less at once.
const SLACK: Duration = Duration::from_secs(10);

/// A subject's log as the arithmetic sees it.
pub trait Log {
    /// When the n-th newest kept hit was, from 1.
    fn nth_newest(&self, n: u32) -> Option<Micros>;
    /// How many kept hits are newer than `start`.
    fn newer_than(&self, start: Micros) -> u32;
    /// How many holds are in flight.
    fn holds(&self) -> u32;
}

/// What one rule says of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// This many more hits fit.
    Free(u32),
    /// Only holds in flight fill it: whether a hit fits depends on how they end.
    Held,
    /// Kept hits alone fill it, until then.
    Full { frees_at: Micros },
}

/// Judges one rule. A sliding window is open at its start: a hit exactly `window` old has left.
pub fn judge(rule: &Rule, log: &impl Log, now: Micros) -> Standing {
    let start = start(&rule.span, now);
    let holds = log.holds();
    if let Some(oldest) = log.nth_newest(rule.max).filter(|&at| at > start) {
        return Standing::Full { frees_at: end(&rule.span, oldest, now) };
    }
    let taken = log.newer_than(start).saturating_add(holds);
    if taken >= rule.max { Standing::Held } else { Standing::Free(rule.max - taken) }
}

/// The last moment that no longer counts.
pub fn start(span: &Span, now: Micros) -> Micros {
    match span {
        Span::Sliding(window) => now.minus(*window),
        Span::Calendar { unit, zone } => Micros(stretch(*unit, zone, now).start.0 - 1),
    }
}

/// When the hit at `oldest` stops counting.
fn end(span: &Span, oldest: Micros, now: Micros) -> Micros {
    match span {
        Span::Sliding(window) => oldest.plus(*window),
        Span::Calendar { unit, zone } => stretch(*unit, zone, now).end,
    }
}

/// How long until a rule's whole quota is free again, given a hit now.
pub fn reset_after(rule: &Rule, now: Micros) -> Duration {
    match &rule.span {
        Span::Sliding(window) => *window,
        Span::Calendar { unit, zone } => stretch(*unit, zone, now).end.since(now),
    }
}

/// The calendar unit that `at` falls into. Where a clock change makes a midnight that does not exist,
/// the unit starts at the first moment that does.
pub fn stretch(unit: CalendarUnit, zone: &TimeZone, at: Micros) -> Stretch {
    let moment = Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH).to_zoned(zone.clone());
    let whole = |start: Option<Zoned>, end: Option<Zoned>| match (start, end) {
        (Some(start), Some(end)) => Stretch {
            start: Micros(start.timestamp().as_microsecond()),
            end: Micros(end.timestamp().as_microsecond()),
        },
        // Beyond the calendar's last year: one stretch without an end, which errs towards refusing.
        _ => Stretch { start: Micros(0), end: Micros(i64::MAX) },
    };
    let midnight = moment.start_of_day().ok();
    match unit {
        CalendarUnit::Minute | CalendarUnit::Hour => {
            let (round, step) = if unit == CalendarUnit::Minute {
                (Unit::Minute, 1.minute())
            } else {
                (Unit::Hour, 1.hour())
            };
            let floor = jiff::ZonedRound::new().smallest(round).mode(jiff::RoundMode::Floor);
            let start = moment.round(floor).ok();
            let end = start.as_ref().and_then(|start| start.checked_add(step).ok());
            whole(start, end)
        }
        CalendarUnit::Day => {
            let end = moment.tomorrow().and_then(|next| next.start_of_day()).ok();
            whole(midnight, end)
        }
        CalendarUnit::Week => {
            let past = i64::from(moment.weekday().to_monday_zero_offset());
            let start = midnight
                .and_then(|day| day.checked_sub(past.days()).ok())
                .and_then(|day| day.start_of_day().ok());
            let end = start
                .as_ref()
                .and_then(|day| day.checked_add(7.days()).ok())
                .and_then(|day| day.start_of_day().ok());
            whole(start, end)
        }
        CalendarUnit::Month => {
            let start = moment.first_of_month().and_then(|day| day.start_of_day()).ok();
            let end = start
                .as_ref()
                .and_then(|day| day.checked_add(1.month()).ok())
                .and_then(|day| day.start_of_day().ok());
            whole(start, end)
        }
        CalendarUnit::Year => {
            let start = moment.first_of_year().and_then(|day| day.start_of_day()).ok();
            let end = start
                .as_ref()
                .and_then(|day| day.checked_add(1.year()).ok())
                .and_then(|day| day.start_of_day().ok());
            whole(start, end)
        }
    }
}

/// How long a log is worth keeping after a hit: no rule of the limit can see it for longer.
pub fn life(limit: &Limit, now: Micros) -> Duration {
    let longest = limit.rules().iter().map(|rule| reset_after(rule, now)).max().unwrap_or(Duration::ZERO);
    longest.max(HOLD_LIFE) + SLACK
}

/// What all rules of a decision say together, gathered one rule at a time.
#[derive(Debug, Default)]
pub struct Gathered {
    pub refused: Option<Refusal>,
    /// The first bucket that only holds in flight fill.
    pub held: Option<usize>,
    pub room: Option<Room>,
    /// What a monitored limit would have refused.
    pub noted: Option<Refusal>,
}

impl Gathered {
    /// `solved`: a challenge was solved with this attempt, so that `captcha` rules let it pass.
    pub fn add(&mut self, bucket: usize, limit: &Limit, log: &impl Log, now: Micros, solved: bool) {
        for (index, rule) in limit.rules().iter().enumerate() {
            let waived = solved && rule.then == Then::Captcha;
            let standing = judge(rule, log, now);
            match (standing, limit.mode()) {
                (Standing::Full { frees_at }, mode) if !waived => {
                    let retry_after = frees_at.since(now);
                    let refusal = Refusal { bucket, rule: index, then: rule.then, retry_after, frees_at };
                    let place = if mode == Mode::Monitor { &mut self.noted } else { &mut self.refused };
                    stricter(place, refusal);
                }
                (Standing::Held, Mode::Enforce) if !waived => {
                    self.held.get_or_insert(bucket);
                }
                (Standing::Free(free), Mode::Enforce) if !waived => {
                    let room = Room {
                        bucket,
                        rule: index,
                        remaining: free - 1,
                        reset_after: reset_after(rule, now),
                    };
                    if self.room.is_none_or(|other| room.remaining < other.remaining) {
                        self.room = Some(room);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The strictest refusal stands; among equals the one that lasts longest, so that the wait is true.
fn stricter(place: &mut Option<Refusal>, refusal: Refusal) {
    let beats = |other: &Refusal| (refusal.then, refusal.retry_after) > (other.then, other.retry_after);
    if place.as_ref().is_none_or(beats) {
        *place = Some(refusal);
    }
}
