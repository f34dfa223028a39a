//! The window arithmetic: pure functions that judge a rule from a log and a time. `lua/window.lua` does the
//! same in the store; a conformance suite compares the two.
//!
//! A rule is judged at the store's clock. If that steps back by some span, the hits ahead of it count for every
//! rule, so that a slot frees later than its hit is old, by at most that span: this can only refuse too much. A
//! hit is written at the clock or with its log's newest hit, whichever is later, so that it stays in its windows
//! long enough when the clock comes forward again. A hold ends by the clock, too, so that one whose owner died
//! takes its slot for longer by the same span.

use std::ops::Range;
use std::time::Duration;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};

use crate::clock::Micros;
use crate::limit::{CalendarUnit, Limit, LimitMode, Rule, RuleAction, RuleSpan};
use crate::store::{Bucket, LimitRoom, Refusal};

/// How long a hold may stay unsettled before it counts as a failure, because its owner must have died. Longer
/// than any verification of the application takes: at most 5 s behind others at the account, 5 s in the hashing
/// queue, and 4 s to answer. If a stalled database makes it longer still, the hold counts until it is settled.
pub const HOLD_LIFE: Duration = Duration::from_secs(15);

/// Added to a log's life beyond its longest window, so that the log still exists if the clock steps back by
/// less. A time server steps by far less at once.
const SLACK: Duration = Duration::from_secs(10);

/// A subject's log as the arithmetic sees it.
pub trait WindowLog {
    /// The time of the n-th newest kept hit, counted from 1.
    fn nth_newest(&self, n: u32) -> Option<Micros>;
    /// How many kept hits are newer than `start`.
    fn newer_than(&self, start: Micros) -> u32;
    /// How many of the newest kept hits are not forgiven; all older ones are.
    fn unforgiven(&self) -> u32 {
        u32::MAX
    }
    /// How many holds are in flight.
    fn holds(&self) -> u32;
}

/// A log of which the times are known, newest first, with as many holds in flight.
#[derive(Debug, Clone, Copy, Default)]
pub struct TimesLog<'a> {
    /// The times of the kept hits.
    pub times: &'a [Micros],
    /// How many are in flight.
    pub holds: u32,
}

impl WindowLog for TimesLog<'_> {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.times.get((n as usize).checked_sub(1)?).copied()
    }

    fn newer_than(&self, start: Micros) -> u32 {
        self.times.iter().take_while(|&&at| at > start).count() as u32
    }

    fn holds(&self) -> u32 {
        self.holds
    }
}

/// The state of one rule for a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleVerdict {
    /// This many more hits fit.
    Free(u32),
    /// Only holds in flight fill it: how they end decides whether a hit fits.
    Held,
    /// Kept hits alone fill it, until then.
    Full {
        /// When the next slot frees.
        frees_at: Micros,
    },
}

/// Evaluates one rule. A sliding window is open at its start: a hit exactly `window` old no longer counts. A
/// rule that asks for a challenge ignores forgiven hits; one that blocks counts them.
#[inline]
pub fn evaluate(rule: &Rule, log: &impl WindowLog, now: Micros) -> RuleVerdict {
    let start = start(&rule.span, now);
    let stands =
        |at: &Micros| *at > start && (rule.then == RuleAction::Block || rule.max <= log.unforgiven());
    if let Some(oldest) = log.nth_newest(rule.max).filter(stands) {
        return RuleVerdict::Full { frees_at: end(&rule.span, oldest, now) };
    }
    let taken = counted_since(rule, log, start).saturating_add(log.holds());
    if taken >= rule.max { RuleVerdict::Held } else { RuleVerdict::Free(rule.max - taken) }
}

/// How many kept hits a rule counts now.
pub fn counted(rule: &Rule, log: &impl WindowLog, now: Micros) -> u32 {
    counted_since(rule, log, start(&rule.span, now))
}

#[inline]
fn counted_since(rule: &Rule, log: &impl WindowLog, start: Micros) -> u32 {
    let newer = log.newer_than(start);
    match rule.then {
        RuleAction::Captcha if newer > 0 => newer.min(log.unforgiven()),
        RuleAction::Captcha | RuleAction::Block => newer,
    }
}

/// The last moment that does not count any more.
#[inline]
pub fn start(span: &RuleSpan, now: Micros) -> Micros {
    match span {
        RuleSpan::Sliding(window) => now.minus(*window),
        RuleSpan::Calendar { unit, zone } => Micros(stretch(*unit, zone, now).start.0 - 1),
    }
}

/// Nothing at or before this time counts for any of the rules any more.
pub fn horizon<'a>(rules: impl IntoIterator<Item = &'a Rule>, now: Micros) -> Micros {
    rules.into_iter().map(|rule| start(&rule.span, now)).min().unwrap_or(now)
}

/// When the hit at `oldest` stops counting.
#[inline]
fn end(span: &RuleSpan, oldest: Micros, now: Micros) -> Micros {
    match span {
        RuleSpan::Sliding(window) => oldest.plus(*window),
        RuleSpan::Calendar { unit, zone } => stretch(*unit, zone, now).end,
    }
}

/// The oldest kept hit that a rule counts.
#[inline]
fn oldest(rule: &Rule, log: &impl WindowLog, now: Micros) -> Option<Micros> {
    match counted(rule, log, now) {
        0 => None,
        hits => log.nth_newest(hits),
    }
}

/// What a rule leaves after a hit at `at`, if `oldest` is the oldest before that it counts.
pub(crate) fn room(
    bucket: usize,
    place: usize,
    rule: &Rule,
    remaining: u32,
    oldest: Option<Micros>,
    at: Micros,
) -> LimitRoom {
    let more_after = end(&rule.span, oldest.unwrap_or(at), at).since(at);
    LimitRoom { bucket, rule: place, remaining, more_after, reset_after: reset_after(rule, at) }
}

/// How long until a rule's whole quota is free again, given a hit now.
#[inline]
pub(crate) fn reset_after(rule: &Rule, now: Micros) -> Duration {
    match &rule.span {
        RuleSpan::Sliding(window) => *window,
        RuleSpan::Calendar { unit, zone } => stretch(*unit, zone, now).end.since(now),
    }
}

/// The calendar unit that contains `at`. If a clock change removes midnight, the unit starts at the first
/// moment that exists. Beyond the calendar's last year it is one span without an end, which errs towards refusing.
pub(crate) fn stretch(unit: CalendarUnit, zone: &TimeZone, at: Micros) -> Range<Micros> {
    let timestamp = Timestamp::from_microsecond(at.0).unwrap_or(Timestamp::UNIX_EPOCH);
    let bounds = match unit {
        CalendarUnit::Minute => Ok(clock_unit(zone, timestamp, Duration::from_secs(60))),
        CalendarUnit::Hour => Ok(clock_unit(zone, timestamp, Duration::from_secs(3600))),
        CalendarUnit::Day | CalendarUnit::Week | CalendarUnit::Month | CalendarUnit::Year => {
            date_unit(unit, &timestamp.to_zoned(zone.clone()))
        }
    };
    bounds.unwrap_or(Micros(0)..Micros(i64::MAX))
}

/// The minute or hour of a clock on the wall. Setting the clock ends one and begins another, so that those of a zone that
/// goes back by half an hour do not overlap.
fn clock_unit(zone: &TimeZone, at: Timestamp, unit: Duration) -> Range<Micros> {
    let (now, unit) = (at.as_microsecond(), unit.as_micros() as i64);
    let offset = |micros| {
        let moment = Timestamp::from_microsecond(micros).unwrap_or(at);
        i64::from(zone.to_offset(moment).seconds()) * 1_000_000
    };
    let ahead = offset(now);
    let start = (now + ahead).div_euclid(unit) * unit - ahead;
    let (mut start, mut end) = (start, start + unit);
    if offset(start) != ahead {
        let set = zone.preceding(at.saturating_add(1.microsecond()).unwrap_or(at)).next();
        start = set.map_or(start, |set| set.timestamp().as_microsecond());
    }
    if offset(end - 1) != ahead {
        let set = zone.following(at).next();
        end = set.map_or(end, |set| set.timestamp().as_microsecond());
    }
    Micros(start)..Micros(end)
}

fn date_unit(unit: CalendarUnit, at: &Zoned) -> Result<Range<Micros>, jiff::Error> {
    let (start, length) = match unit {
        CalendarUnit::Minute | CalendarUnit::Hour | CalendarUnit::Day => (at.start_of_day()?, 1.day()),
        CalendarUnit::Week => {
            let past = i64::from(at.weekday().to_monday_zero_offset());
            (at.start_of_day()?.checked_sub(past.days())?.start_of_day()?, 7.days())
        }
        CalendarUnit::Month => (at.first_of_month()?.start_of_day()?, 1.month()),
        CalendarUnit::Year => (at.first_of_year()?.start_of_day()?, 1.year()),
    };
    let end = start.checked_add(length)?.start_of_day()?;
    // Set back over midnight, as in Goose Bay at 00:01 until 2011: a date that has begun goes on.
    if end <= *at {
        return date_unit(unit, &end);
    }
    let micros = |moment: &Zoned| Micros(moment.timestamp().as_microsecond());
    Ok(micros(&start)..micros(&end))
}

/// How long a log must be kept after a hit: no rule of the limit can count the hit for longer.
#[inline]
pub(crate) fn life(limit: &Limit, now: Micros) -> Duration {
    let longest = || limit.rules().iter().map(|rule| reset_after(rule, now)).max().unwrap_or(Duration::ZERO);
    limit.sight().unwrap_or_else(longest).max(HOLD_LIFE) + SLACK
}

/// At least as long, for a hit at any time: the server's clock, not ours, says in which calendar unit it is.
#[cfg(feature = "redis")]
pub(crate) fn longest_life(limit: &Limit) -> Duration {
    // A leap year in which a zone goes back is longer than 366 days.
    let odd = if limit.sight().is_some() { Duration::ZERO } else { Duration::from_secs(3600) };
    limit.longest_window().max(HOLD_LIFE) + odd + SLACK
}

/// What all rules of a decision say together, gathered one rule at a time. It stores indexes and builds
/// answers only at the end, because few rules are reported.
#[derive(Debug, Default)]
pub struct GatheredVerdict {
    refused: Option<FullRule>,
    /// The first bucket that is filled only by holds in flight.
    pub held: Option<usize>,
    room: Option<FreeRule>,
    noted: Option<FullRule>,
}

/// A rule that is full, and when it was judged.
#[derive(Debug, Clone, Copy)]
struct FullRule {
    bucket: u32,
    rule: u32,
    then: RuleAction,
    judged: Micros,
    frees_at: Micros,
}

/// A rule with room for this hit, and for `remaining` more.
#[derive(Debug, Clone, Copy)]
struct FreeRule {
    bucket: u32,
    rule: u32,
    remaining: u32,
    /// The oldest hit that it counts.
    oldest: Option<Micros>,
}

impl GatheredVerdict {
    /// `solved`: a challenge was solved with this attempt, so `captcha` rules let it pass.
    // Inlined: as a call it costs a decision a tenth of its time, because the gathered state would pass
    // through memory.
    #[inline(always)]
    pub fn add(&mut self, bucket: usize, limit: &Limit, log: &impl WindowLog, now: Micros, solved: bool) {
        for (index, rule) in limit.rules().iter().enumerate() {
            if limit.spares(rule, solved) {
                continue;
            }
            let (place, index) = (bucket as u32, index as u32);
            match (evaluate(rule, log, now), limit.mode()) {
                (RuleVerdict::Full { frees_at }, mode) => {
                    let full =
                        FullRule { bucket: place, rule: index, then: rule.then, judged: now, frees_at };
                    let strictest = match mode {
                        LimitMode::Enforce => &mut self.refused,
                        LimitMode::Monitor => &mut self.noted,
                    };
                    stricter(strictest, full);
                }
                (RuleVerdict::Held, LimitMode::Enforce) => {
                    self.held.get_or_insert(bucket);
                }
                (RuleVerdict::Free(free), LimitMode::Enforce)
                    if self.room.is_none_or(|other| free - 1 < other.remaining) =>
                {
                    let oldest = oldest(rule, log, now);
                    self.room = Some(FreeRule { bucket: place, rule: index, remaining: free - 1, oldest });
                }
                (RuleVerdict::Held | RuleVerdict::Free(_), _) => {}
            }
        }
    }

    /// The strictest rule that is full and enforced.
    pub fn refused(&self) -> Option<Refusal> {
        self.refused.map(FullRule::refusal)
    }

    /// What a monitored limit would have refused.
    pub fn noted(&self) -> Option<Refusal> {
        self.noted.map(FullRule::refusal)
    }

    /// What the tightest enforced rule leaves after a hit at `at`; `buckets` are those that were asked for.
    pub fn room(&self, buckets: &[Bucket<'_>], at: Micros) -> Option<LimitRoom> {
        self.room.map(|FreeRule { bucket, rule, remaining, oldest }| {
            let (bucket, rule) = (bucket as usize, rule as usize);
            room(bucket, rule, &buckets[bucket].limit.rules()[rule], remaining, oldest, at)
        })
    }
}

impl FullRule {
    fn wait(&self) -> i64 {
        self.frees_at.0 - self.judged.0
    }

    fn refusal(self) -> Refusal {
        Refusal {
            bucket: self.bucket as usize,
            rule: self.rule as usize,
            then: self.then,
            retry_after: self.frees_at.since(self.judged),
            frees_at: self.frees_at,
        }
    }
}

/// Keeps the strictest refusal; among equals the one that lasts longest, so that the wait is correct.
#[inline]
fn stricter(place: &mut Option<FullRule>, full: FullRule) {
    let beats = |other: &FullRule| (full.then, full.wait()) > (other.then, other.wait());
    if place.as_ref().is_none_or(beats) {
        *place = Some(full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_clock_goes_back_by_half_an_hour_an_hour_begins_with_it() {
        let zone = TimeZone::get("Australia/Lord_Howe").unwrap();
        let unit = |text: &str| {
            let at: Timestamp = text.parse().unwrap();
            let Range { start, end } = stretch(CalendarUnit::Hour, &zone, Micros(at.as_microsecond()));
            [start, end].map(|it| Timestamp::from_microsecond(it.0).unwrap().to_string())
        };
        for (at, start, end) in [
            ("2026-04-04T14:59:59Z", "2026-04-04T14:00:00Z", "2026-04-04T15:00:00Z"),
            ("2026-04-04T15:14:50Z", "2026-04-04T15:00:00Z", "2026-04-04T15:30:00Z"),
            ("2026-04-04T15:30:00Z", "2026-04-04T15:30:00Z", "2026-04-04T16:30:00Z"),
            ("2026-10-03T15:29:59Z", "2026-10-03T14:30:00Z", "2026-10-03T15:30:00Z"),
            ("2026-10-03T15:30:00Z", "2026-10-03T15:30:00Z", "2026-10-03T16:00:00Z"),
        ] {
            assert_eq!(unit(at), [start, end], "{at}");
        }
    }

    /// No moment is in two units, and none is in no unit, wherever and whenever a clock was set.
    #[test]
    fn the_units_of_every_zone_follow_one_another() {
        const UNITS: [(CalendarUnit, u64); 6] = [
            (CalendarUnit::Minute, 60),
            (CalendarUnit::Hour, 3_600),
            (CalendarUnit::Day, 49 * 3_600),
            (CalendarUnit::Week, 8 * 86_400),
            (CalendarUnit::Month, 32 * 86_400),
            (CalendarUnit::Year, 367 * 86_400),
        ];
        let from: Timestamp = "2005-01-01T00:00:00Z".parse().unwrap();
        let mut seen = 0;
        for name in jiff::tz::db().available() {
            let zone = TimeZone::get(name.as_str()).unwrap();
            for set in zone.following(from).take(6) {
                let set = set.timestamp().as_microsecond();
                for (minutes, (unit, longest)) in [-90, -31, -1, 0, 14, 29, 59]
                    .into_iter()
                    .flat_map(|it| UNITS.iter().map(move |unit| (it, unit)))
                {
                    let at = Micros(set + minutes * 60_000_000);
                    let found = stretch(*unit, &zone, at);
                    let told =
                        format!("{unit:?} {} {}", name.as_str(), Timestamp::from_microsecond(at.0).unwrap());
                    assert!(found.contains(&at), "{told}");
                    assert!(found.end.since(found.start) <= Duration::from_secs(*longest), "{told}");
                    assert_eq!(stretch(*unit, &zone, found.start), found, "{told}");
                    assert_eq!(stretch(*unit, &zone, found.end).start, found.end, "{told}");
                    seen += 1;
                }
            }
        }
        assert!(seen > 10_000);
    }
}
