//! Exact where everything is known; a bound that holds where it is not.

use std::time::Duration;

use jiff::tz::TimeZone;

use super::counted::{Counted, count};
use super::drafts::{enforced, limits};
use super::truth::{Run, assert_each, run};
use super::week::{Attempt, BEGIN, Shape, week};
use crate::clock::Micros;
use crate::config::Limits;
use crate::throttle::{CalendarUnit, Limit, Mode, Rule, Span, Then};
use crate::tuning::replay::row::{Action, Row};
use crate::tuning::replay::{Belief, Bounds, Counts, Side, replay};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const QUICK: Shape = Shape { days: 7, people: 60, slow: false };
const SLOW: Shape = Shape { days: 7, people: 60, slow: true };

fn captcha(max: u32, window: Duration) -> Rule {
    Rule::sliding(max, window, Then::Captcha)
}

fn block(max: u32, window: Duration) -> Rule {
    Rule::sliding(max, window, Then::Block)
}

fn per(max: u32, unit: CalendarUnit, then: Then) -> Rule {
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    Rule { max, span: Span::Calendar { unit, zone }, then }
}

/// Those of the product, smaller, so that a small week meets all of them.
pub fn today() -> Limits {
    limits(&[
        enforced("login-account", vec![captcha(3, MINUTE), block(8, HOUR)]),
        enforced("login-address", vec![captcha(10, MINUTE), block(40, HOUR)]),
        enforced("login-network", vec![captcha(40, HOUR)]),
        enforced("register-address", vec![block(3, HOUR)]),
        enforced("sms-phone", vec![block(1, MINUTE), block(3, HOUR)]),
        enforced("sms-address", vec![block(8, HOUR)]),
        enforced("sms-network", vec![block(20, HOUR)]),
        enforced("sms-prefix", vec![block(30, 4 * HOUR)]),
        enforced("sms-total", vec![block(60, 4 * HOUR)]),
        enforced("sms-guess", vec![block(4, 10 * MINUTE)]),
    ])
}

fn pairs(bounds: &Counts, counted: &Counted) -> Vec<(&'static str, Bounds, u64)> {
    vec![
        ("attempts", Bounds::exactly(bounds.attempts), counted.attempts),
        ("admitted", bounds.admitted, counted.admitted),
        ("challenged", bounds.challenged, counted.challenged),
        ("throttled", bounds.throttled, counted.throttled),
        ("bothered", bounds.bothered, counted.bothered),
        ("guesses verified", bounds.guesses_verified, counted.guesses_verified),
        ("guesses stopped", bounds.guesses_stopped, counted.guesses_stopped),
        ("messages sent", bounds.messages_sent, counted.messages_sent),
        ("messages stopped", bounds.messages_stopped, counted.messages_stopped),
    ]
}

/// Every count of the report beside what really happened.
fn beside(side: &Side, truth: &(Counted, Vec<Counted>)) -> Vec<(String, Bounds, u64)> {
    let named = |name: &str, pairs: Vec<(&'static str, Bounds, u64)>| {
        pairs
            .into_iter()
            .map(|(what, bounds, count)| (format!("{name}: {what}"), bounds, count))
            .collect::<Vec<_>>()
    };
    let mut all = named("all", pairs(&side.all, &truth.0));
    for (limit, counted) in side.limits.iter().zip(&truth.1) {
        all.extend(named(&limit.name, pairs(&limit.counts, counted)));
        all.push((format!("{}: noted", limit.name), limit.noted, counted.noted));
        for (number, (rule, count)) in limit.rules.iter().zip(&counted.rules).enumerate() {
            all.push((format!("{}: rule {number}", limit.name), rule.refused, *count));
        }
    }
    all
}

pub fn assert_exact(side: &Side, truth: &(Counted, Vec<Counted>)) {
    for (what, bounds, count) in beside(side, truth) {
        assert_eq!((bounds.low, bounds.estimate, bounds.high), (count, count, count), "{what}");
    }
}

pub fn assert_within(side: &Side, truth: &(Counted, Vec<Counted>)) {
    for (what, bounds, count) in beside(side, truth) {
        assert!(bounds.contains(count), "{what}: {count} is not within {bounds:?}");
        assert!(bounds.contains(bounds.estimate), "{what}: {bounds:?}");
    }
}

/// The same attempts, each at the moment when it was decided under these limits.
async fn as_recorded(attempts: &[Attempt], limits: &Limits) -> Vec<Attempt> {
    let run = run(attempts, limits).await;
    let mut moved: Vec<Attempt> =
        attempts.iter().zip(&run.fates).map(|(attempt, fate)| Attempt { at: fate.at, ..*attempt }).collect();
    moved.sort_by_key(|attempt| attempt.at);
    for index in 1..moved.len() {
        moved[index].at = moved[index].at.max(moved[index - 1].at + 1);
    }
    moved
}

async fn really(attempts: &[Attempt], recorded: &Run, limits: &Limits) -> (Counted, Vec<Counted>) {
    let real = run(attempts, limits).await;
    assert_each(attempts, limits, Belief::Draft, recorded, &real);
    count(attempts, limits, recorded, &real)
}

/// Less of everything, and in other ways.
fn tighter() -> Vec<Limits> {
    vec![
        limits(&[
            enforced("login-account", vec![captcha(2, MINUTE), block(5, HOUR)]),
            enforced("login-address", vec![captcha(6, MINUTE), captcha(25, HOUR)]),
            enforced("login-network", vec![captcha(12, MINUTE), block(35, HOUR)]),
            enforced("register-address", vec![block(1, HOUR)]),
            enforced("sms-phone", vec![block(1, 2 * MINUTE), block(2, HOUR)]),
            enforced("sms-address", vec![block(4, HOUR)]),
            enforced("sms-network", vec![block(12, HOUR)]),
            enforced("sms-prefix", vec![block(20, 4 * HOUR)]),
            enforced("sms-total", vec![block(35, 4 * HOUR)]),
            enforced("sms-guess", vec![block(2, 10 * MINUTE)]),
        ]),
        // The same, and what the calendar counts.
        limits(&[
            enforced(
                "login-account",
                vec![captcha(3, MINUTE), block(8, HOUR), per(12, CalendarUnit::Day, Then::Block)],
            ),
            enforced(
                "login-address",
                vec![captcha(10, MINUTE), block(40, HOUR), per(10, CalendarUnit::Hour, Then::Captcha)],
            ),
            enforced("register-address", vec![block(3, HOUR), per(5, CalendarUnit::Week, Then::Block)]),
            enforced(
                "sms-phone",
                vec![block(1, MINUTE), block(3, HOUR), per(4, CalendarUnit::Day, Then::Block)],
            ),
            enforced("sms-address", vec![block(8, HOUR)]),
            enforced("sms-network", vec![block(20, HOUR)]),
            enforced("sms-prefix", vec![block(30, 4 * HOUR)]),
            enforced("sms-total", vec![block(60, 4 * HOUR), per(50, CalendarUnit::Day, Then::Block)]),
            enforced("sms-guess", vec![block(4, 10 * MINUTE)]),
        ]),
    ]
}

/// Room for more, switched off, only watched, other windows.
fn others() -> Vec<Limits> {
    let watched =
        Limit::new("login-account", vec![captcha(3, MINUTE), block(8, HOUR)], Mode::Monitor).unwrap();
    vec![
        limits(&[
            enforced("login-account", vec![captcha(5, MINUTE), block(12, HOUR)]),
            enforced("login-address", vec![captcha(15, MINUTE), block(60, HOUR)]),
            enforced("login-network", vec![]),
            enforced("register-address", vec![block(5, HOUR)]),
            enforced("sms-phone", vec![block(2, MINUTE), block(5, HOUR)]),
            enforced("sms-address", vec![block(12, HOUR)]),
            enforced("sms-guess", vec![block(6, 10 * MINUTE)]),
        ]),
        limits(&[
            enforced("login-account", vec![]),
            enforced("login-address", vec![captcha(10, MINUTE), block(40, HOUR)]),
            enforced("sms-phone", vec![]),
            enforced("sms-address", vec![block(8, HOUR)]),
            enforced("sms-guess", vec![block(4, HOUR)]),
        ]),
        limits(&[watched, enforced("sms-phone", vec![block(3, 3 * HOUR)])]),
        limits(&[
            enforced("login-account", vec![block(4, 10 * MINUTE)]),
            enforced("login-address", vec![captcha(4, 10 * MINUTE), block(30, 30 * MINUTE)]),
            enforced("sms-phone", vec![block(2, 5 * MINUTE)]),
            enforced("sms-total", vec![block(20, HOUR), per(40, CalendarUnit::Day, Then::Block)]),
            enforced("sms-guess", vec![block(3, MINUTE)]),
        ]),
    ]
}

/// So much of everything that nothing is ever refused.
fn plenty() -> Limits {
    let names = crate::tuning::replay::NAMES;
    limits(&names.map(|name| enforced(name, vec![block(1_000_000, HOUR)])))
}

#[tokio::test]
async fn where_every_outcome_was_recorded_a_draft_gives_exactly_what_it_would_have_decided() {
    for (seed, shape) in (1..5).map(|seed| (seed, if seed % 2 == 0 { QUICK } else { SLOW })) {
        let attempts = week(seed, shape);
        let recorded = run(&attempts, &plenty()).await;
        for draft in tighter().into_iter().chain(others()).chain([today()]) {
            let side = replay(&recorded.recording, &draft, Micros(BEGIN), Belief::Draft);
            let truth = really(&attempts, &recorded, &draft).await;
            assert!(truth.0.throttled > 0, "{:?}", truth.0);
            assert_exact(&side, &truth);
        }
    }
}

#[tokio::test]
async fn whatever_the_draft_what_happens_lies_within_the_bounds() {
    for (seed, shape) in (10..18).map(|seed| (seed, if seed % 2 == 0 { QUICK } else { SLOW })) {
        // How long somebody had waited is not recorded: they come when they got their place.
        let attempts = as_recorded(&week(seed, shape), &today()).await;
        let recorded = run(&attempts, &today()).await;
        for draft in others().into_iter().chain(tighter()) {
            let side = replay(&recorded.recording, &draft, Micros(BEGIN), Belief::Draft);
            let truth = really(&attempts, &recorded, &draft).await;
            assert_within(&side, &truth);
        }
    }
}

#[tokio::test]
async fn the_limits_that_were_in_force_give_the_decisions_that_were_made() {
    for (seed, shape) in [(1, QUICK), (2, QUICK), (3, QUICK), (4, SLOW), (5, SLOW), (6, SLOW)] {
        let (attempts, today) = (week(seed, shape), today());
        let recorded = run(&attempts, &today).await;
        let side = replay(&recorded.recording, &today, Micros(BEGIN), Belief::Recorded);
        let truth = count(&attempts, &today, &recorded, &recorded);
        assert!(
            truth.0.challenged > 50 && truth.0.throttled > 50,
            "the week meets the limits: {:?}",
            truth.0
        );
        assert_exact(&side, &truth);
    }
}

/// Bounds that hold everything would hold the truth, too.
#[tokio::test]
async fn the_bounds_say_something() {
    let attempts = week(31, QUICK);
    let recorded = run(&attempts, &today()).await;
    let all = |draft: &Limits| replay(&recorded.recording, draft, Micros(BEGIN), Belief::Draft).all;
    let (today, wider) = (all(&today()), all(&others()[0]));
    let refused = today.attempts - today.admitted.low;
    // Most of those that were refused are refused still or admitted, it is not known which; but of what was
    // admitted hardly anything is in doubt.
    assert!(wider.admitted.low + today.attempts / 50 > today.admitted.low, "{wider:?}");
    assert!(wider.admitted.high - wider.admitted.low <= refused + today.attempts / 50, "{wider:?}");
    assert!(wider.admitted.estimate > today.admitted.estimate, "{wider:?}");
}

#[tokio::test]
async fn the_limits_of_a_later_part_find_their_logs_as_the_record_left_them() {
    for seed in 41..44 {
        let attempts = week(seed, SLOW);
        let recorded = run(&attempts, &today()).await;
        let from = BEGIN + 3 * 24 * 3600 * 1_000_000;
        let side = replay(&recorded.recording, &today(), Micros(from), Belief::Recorded);
        let reported = |row: &&Row| row.at.0 >= from && row.action != Action::Answer;
        let rows = recorded.recording.rows.iter().filter(reported);
        let (mut attempts, mut refused) = (0, 0);
        for row in rows {
            attempts += u64::from(row.count);
            refused += if row.is_refused() { u64::from(row.count) } else { 0 };
        }
        assert!(refused > 0);
        assert_eq!(side.all.attempts, attempts);
        assert_eq!(side.all.admitted, Bounds::exactly(attempts - refused));
    }
}
