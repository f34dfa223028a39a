//! The rule on made-up weeks, and attacks in the record of several instances.

mod record;

use std::collections::{HashMap, HashSet};

use super::counts::{self, FigureRow, turned};
use super::rule::{self, MinuteCounts};
use super::{AttackFigures, AttackState};
use crate::audit::{AttackKind, Outcome};
use crate::clock::Micros;

const MINUTE: i64 = 60_000_000;
const A_DAY: i64 = 24 * 60;
/// A Monday, 2026-03-02 00:00:00 UTC.
const MONDAY: i64 = 1_772_409_600_000_000;
/// Of the second week, so that there is a first one to compare with.
const TUESDAY: i64 = 8;
const NINE: i64 = 9 * 60;

/// Attempts of one kind by the minute.
#[derive(Default)]
struct MadeUpTraffic(HashMap<i64, u64>);

impl MadeUpTraffic {
    /// Two weeks of an office: so many mistyped passwords within the hour around `peak` on each working day,
    /// most of them in the middle of it, and a tenth of that in each hour until the evening.
    fn office(failures: u64, peak: impl Fn(i64) -> i64) -> Self {
        let mut traffic = Self::default();
        for day in (0..14).filter(|day| day % 7 < 5) {
            let peak = peak(day);
            let mut told = 0;
            for minute in 0..60 {
                // Those who came up to then: a triangle.
                let (m, half) = (minute + 1, 30);
                let came = if m <= half { m * m } else { 2 * half * half - (60 - m) * (60 - m) };
                let due = failures * came as u64 / (2 * half * half) as u64;
                traffic.add(day, peak - 30 + minute, 1, due - told);
                told = due;
            }
            traffic.add(day, peak + 30, 8 * 60, failures / 600);
        }
        traffic
    }

    fn add(&mut self, day: i64, minute: i64, minutes: i64, each: u64) {
        for minute in minute..minute + minutes {
            *self.0.entry(day * A_DAY + minute).or_default() += each;
        }
    }

    fn also(mut self, day: i64, minute: i64, minutes: i64, each: u64) -> Self {
        self.add(day, minute, minutes, each);
        self
    }

    fn sum(&self, from: Micros, until: Micros) -> u64 {
        let minute = |at: Micros| (at.0 - MONDAY).div_euclid(MINUTE);
        (minute(from)..minute(until)).filter_map(|minute| self.0.get(&minute)).sum()
    }

    /// The minutes of the day at whose end it is unusual, and when that began.
    fn alarms(&self, kind: AttackKind, day: i64) -> Vec<(i64, i64)> {
        let mut alarms = Vec::new();
        for minute in 0..A_DAY {
            let now = Micros(MONDAY + (day * A_DAY + minute) * MINUTE + 59_000_000);
            let counts = minutes_until(now, |minute| self.0.get(&minute).copied().unwrap_or(0));
            let hours = (1..=rule::USUAL_DAYS).map(|ago| {
                let (from, until) = rule::usual_hour(now, ago);
                self.sum(from, until)
            });
            let usual = rule::usual(hours.collect());
            if rule::is_unusual(kind, counts.recent(), usual) {
                let began = (counts.began(kind, usual).0 - MONDAY) / MINUTE - day * A_DAY;
                alarms.push((minute, began));
            }
        }
        alarms
    }
}

/// `count` is given the minutes since Monday.
fn minutes_until(now: Micros, count: impl Fn(i64) -> u64) -> MinuteCounts {
    let span = rule::lately(now);
    let minute = |step| (span.at(step).0 - MONDAY) / MINUTE;
    MinuteCounts { span, counts: (0..span.steps).map(|step| count(minute(step))).collect() }
}

fn at_nine(_: i64) -> i64 {
    NINE
}

#[test]
fn office_mornings_and_quiet_nights_are_usual() {
    for failures in [40, 400, 4_000] {
        let office = MadeUpTraffic::office(failures, at_nine);
        for day in 7..14 {
            assert_eq!(office.alarms(AttackKind::SignIns, day), [], "{failures} on day {day}");
        }
    }
}

#[test]
fn a_spray_is_unusual_from_its_first_minute_until_five_minutes_after_its_last() {
    let spray = MadeUpTraffic::office(400, at_nine).also(TUESDAY, 3 * 60, 30, 500);
    let alarms = spray.alarms(AttackKind::SignIns, TUESDAY);
    assert_eq!((alarms[0], alarms.len()), ((180, 180), 34));
    assert_eq!(alarms.last(), Some(&(213, 180)), "and is known to have begun then");
}

#[test]
fn one_address_at_260_names_is_unusual() {
    let single = MadeUpTraffic::office(400, at_nine).also(TUESDAY, 14 * 60, 3, 87);
    assert_eq!(single.alarms(AttackKind::SignIns, TUESDAY)[0], (840, 840));
}

#[test]
fn a_campaign_by_sms_is_unusual_and_so_is_pumping() {
    let shop = || {
        let mut shop = MadeUpTraffic::default();
        for day in 0..14 {
            shop.add(day, 8 * 60, 14 * 60, 1);
        }
        shop
    };
    for day in 7..14 {
        assert_eq!(shop().alarms(AttackKind::Messages, day), []);
    }
    // Whether codes are entered tells which of the two it is.
    let campaign = shop().also(TUESDAY, 12 * 60, 20, 60);
    assert_eq!(campaign.alarms(AttackKind::Messages, TUESDAY)[0], (720, 720));
    let pumping = shop().also(TUESDAY, 2 * 60, 60, 7);
    assert_eq!(pumping.alarms(AttackKind::Messages, TUESDAY)[0], (124, 120), "six a minute are enough");
}

#[test]
fn an_attack_of_yesterday_does_not_make_todays_usual() {
    let twice = MadeUpTraffic::office(400, at_nine).also(7, 180, 60, 500).also(TUESDAY, 180, 60, 500);
    assert_eq!(twice.alarms(AttackKind::SignIns, TUESDAY)[0], (180, 180));
}

/// What the rule misses, as the documentation says.
#[test]
fn a_slow_spray_and_one_that_hides_in_the_morning_rush_are_missed() {
    let slow = MadeUpTraffic::office(400, at_nine).also(TUESDAY, 60, 5 * 60, 9);
    assert_eq!(slow.alarms(AttackKind::SignIns, TUESDAY), [], "45 in five minutes");
    let hidden = MadeUpTraffic::office(4_000, at_nine).also(TUESDAY, NINE - 30, 60, 100);
    assert_eq!(hidden.alarms(AttackKind::SignIns, TUESDAY), [], "a hundred a minute, in the rush only");
    let longer = MadeUpTraffic::office(4_000, at_nine).also(TUESDAY, NINE - 30, 180, 100);
    let first = longer.alarms(AttackKind::SignIns, TUESDAY)[0].0;
    assert!((NINE..NINE + 90).contains(&first), "seen after the rush: {first}");
}

/// What is no attack, as the documentation says.
#[test]
fn a_large_office_whose_clocks_changed_and_the_first_days_of_a_record_are_false_alarms() {
    let changed = MadeUpTraffic::office(4_000, |day| if day < 7 { NINE } else { NINE - 60 });
    let alarms = |day| changed.alarms(AttackKind::SignIns, day).len();
    assert!(alarms(7) > 0 && alarms(8) > 0, "on the first mornings, at another hour by UTC");
    assert_eq!(alarms(11), 0, "by Friday the median knows");
    let fresh = MadeUpTraffic::office(4_000, at_nine);
    let alarms = |day| fresh.alarms(AttackKind::SignIns, day).len();
    assert!(alarms(0) > 0 && alarms(3) > 0, "as long as most of the seven days have no record");
    assert_eq!(alarms(4), 0);
}

#[test]
fn the_beginning_is_the_first_of_the_busy_minutes() {
    let now = Micros(MONDAY + 100 * MINUTE);
    let began = |busy: &[i64]| {
        let counts = minutes_until(now, |minute| if busy.contains(&minute) { 50 } else { 0 });
        (counts.began(AttackKind::SignIns, 0).0 - MONDAY) / MINUTE
    };
    assert_eq!(began(&[98]), 98);
    assert_eq!(began(&[90, 95, 96, 97]), 95, "a pause of four minutes parts two");
    assert_eq!(began(&(0..=100).collect::<Vec<_>>()), 36, "an hour is searched");
    let busy = [(96, 6), (97, 9), (98, 4), (99, 12_000), (100, 3_000)];
    let counts = minutes_until(now, |minute| busy.iter().find(|it| it.0 == minute).map_or(0, |it| it.1));
    let began = (counts.began(AttackKind::SignIns, 0).0 - MONDAY) / MINUTE;
    assert_eq!(began, 99, "a few before it are not its beginning");
}

#[test]
fn the_first_attempt_is_that_of_the_first_busy_ten_seconds() {
    let at = |second: i64| Micros(MONDAY + second * 1_000_000);
    let noise = [(at(3), 1), (at(14), 2)];
    let rush = (300..600).map(|tenth| (Micros(MONDAY + tenth * 100_000), 20));
    let all: Vec<_> = noise.into_iter().chain(rush).collect();
    assert_eq!(rule::first_of(Micros(MONDAY), &all), at(30));
    assert_eq!(rule::first_of(Micros(MONDAY), &all[..1]), at(3));
    assert_eq!(rule::first_of(Micros(MONDAY), &[]), Micros(MONDAY), "nothing more is known");
}

/// Wrong passwords: so many a minute, each from the network that `from` says, at a name of its own.
fn minutes(range: std::ops::Range<i64>, each: i64, from: impl Fn(i64) -> i64) -> Vec<FigureRow> {
    let row = |number: i64| FigureRow {
        place: (MONDAY + range.start * MINUTE + number * (MINUTE / each), number),
        count: 1,
        outcome: Outcome::Wrong,
        from_device: false,
        by_answer: false,
        account: Some(1_000_000 + number),
        address: None,
        network: Some(from(number)),
        phone: None,
        prefix: None,
    };
    (0..(range.end - range.start) * each).map(row).collect()
}

#[test]
fn an_attack_of_another_shape_is_another_one_from_its_first_attempt_on() {
    let turned = |parts: [Vec<FigureRow>; 2]| {
        let mut rows = parts.concat();
        rows.sort_by_key(|row| std::cmp::Reverse(row.place));
        turned(AttackKind::SignIns, &rows).map(|at| (at.0 - MONDAY) as f64 / MINUTE as f64)
    };
    let spray = |range| minutes(range, 100, |number| number % 70);
    let mostly_one = |range| minutes(range, 100, |number| if number % 4 == 0 { number % 70 } else { 7_000 });
    let one = |network: i64| move |range| minutes(range, 60, move |_| network);
    assert_eq!(turned([spray(0..5), Vec::new()]), None, "one goes on");
    assert_eq!(turned([mostly_one(0..9), Vec::new()]), None);
    let found = turned([spray(0..5), mostly_one(5..8)]).unwrap();
    assert!((5.0..5.03).contains(&found), "its first attempt from there: {found}");
    let found = turned([mostly_one(0..5), spray(5..8)]).unwrap();
    assert!((5.0..5.03).contains(&found), "{found}");
    assert_eq!(turned([one(1)(0..5), one(2)(5..7)]), Some(5.0));
    assert_eq!(turned([one(1)(0..5), one(2)(9..11)]), Some(9.0), "after a pause");
    assert_eq!(turned([spray(0..5), minutes(5..6, 40, |_| 7_000)]), None, "forty are no attack");
    let half = |range| minutes(range, 100, |number| if number % 2 == 0 { 7_000 } else { number % 70 });
    assert_eq!(turned([half(0..4), mostly_one(4..7)]), None, "it was half of it before");
    // The same networks, at one name.
    let at_one = minutes(5..7, 100, |number| number % 70).into_iter();
    let at_one = at_one.map(|row| FigureRow { account: Some(1), ..row }).collect();
    assert_eq!(turned([spray(0..5), at_one]), Some(5.0));
}

#[test]
fn what_was_compared_since_the_first_answer_is_counted_apart() {
    let mut rows = minutes(0..3, 10, |number| number);
    rows.reverse();
    let counted = |rows: &[FigureRow]| {
        let figures =
            counts::figures(AttackKind::SignIns, rows, &HashSet::new(), Micros(MONDAY + 3 * MINUTE));
        (figures.done, figures.done_since)
    };
    assert_eq!(counted(&rows), (30, None));
    // The tenth from the end is refused by an answer; nine are compared after it.
    rows[9] = FigureRow { outcome: Outcome::Refused, by_answer: true, ..rows[9] };
    assert_eq!(counted(&rows), (29, Some(9)));
    rows[2] = FigureRow { outcome: Outcome::Refused, by_answer: true, ..rows[2] };
    assert_eq!(counted(&rows), (28, Some(8)));
}

#[test]
fn an_attack_rises_goes_on_is_answered_and_is_quiet() {
    let figures = |minute, minute_answered, minute_before| AttackFigures {
        minute,
        minute_answered,
        minute_before,
        ..AttackFigures::default()
    };
    for (of, state) in [
        (figures(100, 0, 0), AttackState::Rising),
        (figures(100, 49, 80), AttackState::Rising),
        (figures(100, 0, 95), AttackState::Steady),
        (figures(100, 50, 10), AttackState::Answered),
        (figures(4, 0, 900), AttackState::Quiet),
        (figures(0, 0, 0), AttackState::Quiet),
    ] {
        assert_eq!(of.state(AttackKind::SignIns), state, "{of:?}");
    }
}
