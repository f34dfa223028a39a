//! The record is shown as it is. If everything is known the estimate is exact; otherwise it is close.

use std::time::Duration;

use gatehouse_limiter::{CalendarUnit, Limit, LimitMode, Rule, RuleAction, RuleSpan};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::counted::count;
use super::drafts::{enforced, limits};
use super::truth::{run, run_changed};
use super::week::{BEGIN, Shape, week};
use crate::clock::Micros;
use crate::config::{LimitName, Limits};
use crate::tuning::replay::replay;
use crate::tuning::replay::row::{self, is_replayed};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const QUICK: Shape = Shape { days: 7, people: 60, slow: false };
const SLOW: Shape = Shape { days: 7, people: 60, slow: true };

fn captcha(max: u32, window: Duration) -> Rule {
    Rule::sliding(max, window, RuleAction::Captcha)
}

fn block(max: u32, window: Duration) -> Rule {
    Rule::sliding(max, window, RuleAction::Block)
}

fn per(max: u32, unit: CalendarUnit, then: RuleAction) -> Rule {
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    Rule { max, span: RuleSpan::Calendar { unit, zone }, then }
}

/// The product's limits, smaller, so that a small week reaches all of them.
pub fn today() -> Limits {
    limits(&[
        enforced("login-account", vec![captcha(3, MINUTE), block(8, HOUR)]),
        enforced("login-device", vec![captcha(3, MINUTE), block(5, HOUR)]),
        enforced("login-address", vec![captcha(10, MINUTE), block(40, HOUR)]),
        enforced("login-network", vec![captcha(40, HOUR)]),
        enforced("guard-account", vec![captcha(3, MINUTE), block(6, HOUR)]),
        enforced("guard-device", vec![captcha(3, MINUTE), block(4, HOUR)]),
        enforced("guard-address", vec![captcha(8, MINUTE), captcha(30, HOUR)]),
        enforced("guard-network", vec![captcha(50, HOUR)]),
        enforced("register-address", vec![block(3, HOUR)]),
        enforced("sms-phone", vec![block(1, MINUTE), block(3, HOUR)]),
        enforced("sms-address", vec![block(8, HOUR)]),
        enforced("sms-network", vec![block(20, HOUR)]),
        enforced("sms-prefix", vec![block(30, 4 * HOUR)]),
        enforced("sms-total", vec![block(60, 4 * HOUR)]),
        enforced("sms-guess", vec![block(4, 10 * MINUTE)]),
    ])
}

/// Every number of a report beside the true one.
fn beside(what: String, told: &Value, truth: &Value) -> Vec<(String, u64, u64)> {
    match told {
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, told)| beside(format!("{what} {key}"), told, &truth[key])).collect()
        }
        Value::Array(all) => {
            let all = all.iter().enumerate();
            all.flat_map(|(index, told)| beside(format!("{what} {index}"), told, &truth[index])).collect()
        }
        Value::Number(told) => vec![(what, told.as_u64().unwrap(), truth.as_u64().unwrap())],
        _ => Vec::new(),
    }
}

/// Stricter limits of all kinds.
fn tighter() -> Vec<Limits> {
    vec![
        limits(&[
            enforced("login-account", vec![captcha(2, MINUTE), block(5, HOUR)]),
            enforced("login-device", vec![captcha(2, MINUTE), block(3, HOUR)]),
            enforced("login-address", vec![captcha(6, MINUTE), captcha(25, HOUR)]),
            enforced("login-network", vec![captcha(12, MINUTE), block(35, HOUR)]),
            enforced("guard-account", vec![captcha(2, MINUTE), block(5, HOUR)]),
            enforced("guard-device", vec![captcha(2, MINUTE), block(3, HOUR)]),
            enforced("guard-address", vec![captcha(6, MINUTE), block(20, HOUR)]),
            enforced("guard-network", vec![captcha(25, HOUR)]),
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
                vec![captcha(3, MINUTE), block(8, HOUR), per(12, CalendarUnit::Day, RuleAction::Block)],
            ),
            enforced(
                "login-address",
                vec![captcha(10, MINUTE), block(40, HOUR), per(10, CalendarUnit::Hour, RuleAction::Captcha)],
            ),
            enforced("register-address", vec![block(3, HOUR), per(5, CalendarUnit::Week, RuleAction::Block)]),
            enforced(
                "sms-phone",
                vec![block(1, MINUTE), block(3, HOUR), per(4, CalendarUnit::Day, RuleAction::Block)],
            ),
            enforced("sms-address", vec![block(8, HOUR)]),
            enforced("sms-network", vec![block(20, HOUR)]),
            enforced("sms-prefix", vec![block(30, 4 * HOUR)]),
            enforced("sms-total", vec![block(60, 4 * HOUR), per(50, CalendarUnit::Day, RuleAction::Block)]),
            enforced("sms-guess", vec![block(4, 10 * MINUTE)]),
        ]),
    ]
}

/// Limits that are looser, switched off, in monitor mode, or with other windows.
fn others() -> Vec<Limits> {
    let watched =
        Limit::new("login-account", vec![captcha(3, MINUTE), block(8, HOUR)], LimitMode::Monitor).unwrap();
    vec![
        limits(&[
            enforced("login-account", vec![captcha(5, MINUTE), block(12, HOUR)]),
            enforced("login-device", vec![captcha(5, MINUTE), block(10, HOUR)]),
            enforced("login-address", vec![captcha(15, MINUTE), block(60, HOUR)]),
            enforced("login-network", vec![]),
            enforced("guard-account", vec![captcha(5, MINUTE), block(12, HOUR)]),
            enforced("guard-device", vec![]),
            enforced("guard-address", vec![captcha(12, MINUTE), captcha(45, HOUR)]),
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
            enforced("login-device", vec![block(2, 5 * MINUTE)]),
            enforced("login-address", vec![captcha(4, 10 * MINUTE), block(30, 30 * MINUTE)]),
            enforced("sms-phone", vec![block(2, 5 * MINUTE)]),
            enforced("sms-total", vec![block(20, HOUR), per(40, CalendarUnit::Day, RuleAction::Block)]),
            enforced("sms-guess", vec![block(3, MINUTE)]),
        ]),
    ]
}

/// Limits so large that nothing is ever refused, with logs as long as any draft looks back.
pub fn plenty() -> Limits {
    let names = LimitName::ALL.iter().filter(|name| is_replayed(**name));
    let plenty = names.map(|name| enforced(name.as_str(), vec![block(1_000_000, 8 * 24 * HOUR)]));
    limits(&plenty.collect::<Vec<_>>())
}

#[tokio::test]
async fn where_every_outcome_was_recorded_a_draft_gives_exactly_what_it_would_have_decided() {
    for (seed, shape) in (1..5).map(|seed| (seed, if seed % 2 == 0 { QUICK } else { SLOW })) {
        let attempts = week(seed, shape);
        let recorded = run(&attempts, &plenty()).await;
        for draft in tighter().into_iter().chain(others()).chain([today()]) {
            let replayed = replay(&recorded.recording, &plenty(), &draft, Micros(BEGIN));
            let truth = count(&attempts, &draft, &recorded, &run(&attempts, &draft).await, BEGIN);
            assert!(truth.all.throttled > 0 && truth.all.unknown > 0, "{:?}", truth.all);
            assert_eq!(replayed.draft, truth);
        }
    }
}

#[tokio::test]
async fn what_was_in_force_is_shown_as_it_was_recorded_and_a_draft_without_changes_is_the_same() {
    for (seed, shape) in [(1, QUICK), (2, QUICK), (3, QUICK), (4, SLOW), (5, SLOW), (6, SLOW)] {
        let (attempts, today) = (week(seed, shape), today());
        let recorded = run(&attempts, &today).await;
        let truth = count(&attempts, &today, &recorded, &recorded, BEGIN);
        assert!(
            truth.all.challenged > 50 && truth.all.throttled > 50,
            "the week meets the limits: {:?}",
            truth.all
        );
        let replayed = replay(&recorded.recording, &today, &today, Micros(BEGIN));
        assert_eq!(replayed.recorded, truth);
        assert_eq!(replayed.draft, replayed.recorded);
        // Whatever is in force by now.
        let replayed = replay(&recorded.recording, &plenty(), &plenty(), Micros(BEGIN));
        assert_eq!(replayed.draft.all, replayed.recorded.all);
        assert_eq!(replayed.recorded.all.admitted, truth.all.admitted);
    }
}

fn replayed(limits: &Limits) -> Vec<Limit> {
    let named =
        LimitName::ALL.iter().zip(row::replayed_limits(limits)).filter(|(name, _)| is_replayed(**name));
    named.map(|(_, limit)| limit.clone()).collect()
}

#[tokio::test]
async fn a_draft_leaves_alone_what_meets_none_of_the_limits_that_it_changes() {
    let attempts = week(7, SLOW);
    let recorded = run(&attempts, &today()).await;
    let changed = |name: &str| name.starts_with("sms-") && name != "sms-guess";
    let messages = |other: &Limits| {
        let (other, today) = (replayed(other), replayed(&today()));
        let chosen = other.into_iter().zip(today);
        limits(&chosen.map(|(new, old)| if changed(new.name()) { new } else { old }).collect::<Vec<_>>())
    };
    for draft in tighter().iter().chain(&others()).map(messages) {
        let replayed = replay(&recorded.recording, &today(), &draft, Micros(BEGIN));
        let (old, new) = (replayed.recorded.limits, replayed.draft.limits);
        assert_ne!(old, new);
        for (old, new) in old.iter().zip(&new).filter(|(old, _)| !changed(&old.name)) {
            assert_eq!(old, new);
        }
    }
}

#[tokio::test]
async fn whatever_the_record_cannot_know_the_estimate_is_close() {
    for (seed, shape) in [(10, QUICK), (15, SLOW)] {
        let attempts = week(seed, shape);
        let recorded = run(&attempts, &today()).await;
        for draft in others().into_iter().chain(tighter()) {
            let side = replay(&recorded.recording, &today(), &draft, Micros(BEGIN)).draft;
            let truth = count(&attempts, &draft, &recorded, &run(&attempts, &draft).await, BEGIN);
            for (what, count, counted) in beside(String::new(), &json!(side), &json!(truth)) {
                // An owner who was refused among strangers is counted as one of them.
                let guessed = ["guesses_verified", "noted"].iter().any(|figure| what.ends_with(figure));
                let share = if guessed { 20 } else { 100 };
                let off = count.abs_diff(counted);
                assert!(off <= truth.all.attempts / share, "{what}: {count}, and not {counted}");
            }
        }
    }
}

#[tokio::test]
async fn the_limits_of_a_later_part_find_their_logs_as_the_record_left_them() {
    for seed in 41..43 {
        let (attempts, plenty) = (week(seed, SLOW), plenty());
        let recorded = run(&attempts, &plenty).await;
        let from = BEGIN + 3 * 24 * 3600 * 1_000_000;
        for draft in tighter().into_iter().chain([today()]) {
            let replayed = replay(&recorded.recording, &plenty, &draft, Micros(from));
            let real = run_changed(&attempts, [&plenty, &draft], from).await;
            assert_eq!(replayed.draft, count(&attempts, &draft, &recorded, &real, from));
            assert_eq!(replayed.recorded, count(&attempts, &plenty, &recorded, &recorded, from));
        }
    }
}
