//! Gaps in the record and actions of an administrator, one case at a time.

use std::time::Duration;

use gatehouse_limiter::{Limit, Rule, RuleAction};

use super::drafts::{enforced, limits};
use super::week::{BEGIN, SECOND};
use crate::clock::Micros;
use crate::config::{LimitName, Limits};
use crate::tuning::replay::engine::ReplayEngine;
use crate::tuning::replay::{
    AttemptCounts, Comparison, ComparisonSide, RecordedEvent, ReplayAction, ReplayOutcome, RowIntake, replay,
};

fn three_an_hour() -> Limits {
    let rules = vec![Rule::sliding(3, Duration::from_secs(3600), RuleAction::Block)];
    limits(&[enforced("login-account", rules), enforced("login-address", vec![])])
}

/// Of the account, if any limit.
fn row(second: i64, outcome: ReplayOutcome, account: Option<i64>) -> RecordedEvent {
    let at = Micros(BEGIN + second * SECOND);
    let refused = matches!(outcome, ReplayOutcome::Challenged | ReplayOutcome::Throttled);
    RecordedEvent {
        at,
        until: at,
        count: 1,
        action: ReplayAction::SignIn,
        outcome,
        limit: refused.then_some(LimitName::LoginAccount),
        rule: 0,
        noted: false,
        solved: false,
        forgave: true,
        keys: [account, Some(1), None, None, None, None],
    }
}

fn clear(second: i64, account: Option<i64>) -> RecordedEvent {
    RecordedEvent {
        action: ReplayAction::Clear,
        limit: Some(LimitName::LoginAccount),
        ..row(second, ReplayOutcome::Ok, account)
    }
}

fn wrongs(account: i64) -> Vec<RecordedEvent> {
    (0..3).map(|second| row(second, ReplayOutcome::Wrong, Some(account))).collect()
}

/// This many attempts between two seconds, in one row.
fn episode(from: i64, to: i64, count: u64, account: Option<i64>) -> RecordedEvent {
    RecordedEvent {
        until: Micros(BEGIN + to * SECOND),
        count,
        ..row(from, ReplayOutcome::Throttled, account)
    }
}

fn compare(rows: &[RecordedEvent], in_force: &Limits, draft: &Limits) -> Comparison {
    let mut intake = RowIntake::default();
    let mut rows = rows.to_vec();
    rows.sort_by_key(|row| row.at);
    rows.iter().for_each(|row| intake.take(row));
    replay(&intake.finish(), in_force, draft, Micros(BEGIN))
}

/// The estimate for three wrong passwords an hour, with something else in force.
fn estimate(rows: &[RecordedEvent]) -> AttemptCounts {
    compare(rows, &Limits::default(), &three_an_hour()).draft.all
}

#[test]
fn a_few_rows_of_many_attempts_can_be_stopped_too() {
    let mut intake = RowIntake::default();
    for account in 0..20 {
        intake.take(&episode(account, account + 4_000, 4_000, Some(account)));
    }
    let (rows, in_force) = (intake.finish(), three_an_hour());
    let draft = limits(&[enforced("login-account", vec![]), enforced("login-address", vec![])]);
    let mut engine = ReplayEngine::new(&rows, &in_force, &draft, Micros(BEGIN));
    let steps = std::iter::from_fn(|| engine.go_on()).count();
    assert!(steps > 2, "80,000 attempts, and {steps} occasions to stop");
    assert_eq!(engine.finish().draft.all.admitted, 80_000);
}

#[test]
fn a_log_that_an_administrator_cleared_is_empty() {
    let mut rows = wrongs(5);
    rows.push(row(10, ReplayOutcome::Wrong, Some(5)));
    assert_eq!(estimate(&rows).throttled, 1);
    rows.push(clear(9, Some(5)));
    assert_eq!(estimate(&rows).throttled, 0);
}

#[test]
fn a_log_is_not_cleared_if_the_record_does_not_say_whose() {
    let mut rows = wrongs(5);
    rows.push(clear(9, None));
    rows.push(row(10, ReplayOutcome::Wrong, Some(5)));
    assert_eq!(estimate(&rows).throttled, 1);
}

#[test]
fn an_attempt_that_names_nobody_keeps_its_decision_and_is_unknown() {
    let mut rows = wrongs(5);
    rows.push(RecordedEvent { count: 2, ..row(10, ReplayOutcome::Throttled, None) });
    let counts = estimate(&rows);
    assert_eq!((counts.admitted, counts.throttled, counts.unknown), (3, 2, 2));
    let unchanged = compare(&rows, &three_an_hour(), &three_an_hour()).draft.all;
    assert_eq!((unchanged.throttled, unchanged.unknown), (2, 0));
}

#[test]
fn a_flood_that_is_still_refused_is_refused_whole() {
    let mut rows = wrongs(5);
    rows.push(episode(10, 20, 1_000, Some(5)));
    let counts = estimate(&rows);
    assert_eq!((counts.admitted, counts.throttled, counts.unknown), (3, 1_000, 0));
}

#[test]
fn of_a_flood_as_many_are_admitted_as_there_is_room_for_and_their_end_is_unknown() {
    let rows = [episode(0, 10, 1_000, Some(5)), row(20, ReplayOutcome::Wrong, Some(5))];
    let counts = estimate(&rows);
    assert_eq!((counts.admitted, counts.throttled, counts.unknown), (3, 998, 3));
    assert_eq!((counts.guesses_verified, counts.guesses_stopped), (3, 1), "nobody was right soon after");
}

#[test]
fn who_was_refused_and_then_right_is_taken_to_have_been_right_before() {
    let rows = [
        row(0, ReplayOutcome::Wrong, Some(5)),
        row(1, ReplayOutcome::Wrong, Some(5)),
        RecordedEvent { count: 4, ..row(10, ReplayOutcome::Throttled, Some(5)) },
        row(60, ReplayOutcome::Ok, Some(5)),
    ];
    let counts = estimate(&rows);
    assert_eq!((counts.admitted, counts.throttled, counts.unknown), (7, 0, 4));
    assert_eq!(counts.guesses_verified, 2);
}

#[test]
fn whoever_is_asked_for_a_challenge_by_the_draft_alone_is_unknown() {
    let asks = vec![Rule::sliding(1, Duration::from_secs(3600), RuleAction::Captcha)];
    let asks = limits(&[enforced("login-account", asks)]);
    let rows = [
        row(0, ReplayOutcome::Wrong, Some(5)),
        row(1, ReplayOutcome::Wrong, Some(5)),
        RecordedEvent { solved: true, ..row(2, ReplayOutcome::Wrong, Some(5)) },
        row(3, ReplayOutcome::Challenged, Some(5)),
        row(4, ReplayOutcome::Throttled, Some(5)),
    ];
    let counts = compare(&rows, &Limits::default(), &asks).draft.all;
    assert_eq!((counts.admitted, counts.challenged, counts.unknown), (2, 3, 2));
}

#[test]
fn a_rule_that_is_not_in_force_any_more_is_not_blamed() {
    let rows = [RecordedEvent { rule: 7, ..row(0, ReplayOutcome::Throttled, Some(5)) }];
    let Comparison { recorded: ComparisonSide { all, limits }, .. } =
        compare(&rows, &three_an_hour(), &three_an_hour());
    assert_eq!((all.throttled, limits[0].counts.throttled, limits[0].rules[0].refused), (1, 1, 0));
}

#[test]
fn what_a_watching_limit_noted_is_shown_as_it_was_recorded() {
    let watching = three_an_hour().login_account.rules().to_vec();
    let watching =
        limits(&[Limit::new("login-account", watching, gatehouse_limiter::LimitMode::Monitor).unwrap()]);
    let rows = [RecordedEvent {
        limit: Some(LimitName::LoginAccount),
        noted: true,
        ..row(0, ReplayOutcome::Wrong, Some(5))
    }];
    let side = compare(&rows, &watching, &watching).draft;
    assert_eq!((side.all.admitted, side.limits[0].noted), (1, 1));
}

fn one_a_day_from_an_address_and_a_network() -> Limits {
    let rule = || vec![Rule::sliding(1, Duration::from_secs(86_400), RuleAction::Captcha)];
    limits(&[
        enforced("login-account", vec![Rule::sliding(9, Duration::from_secs(3600), RuleAction::Block)]),
        enforced("login-address", rule()),
        enforced("login-network", rule()),
    ])
}

fn challenged(rows: &[RecordedEvent]) -> u64 {
    compare(rows, &Limits::default(), &one_a_day_from_an_address_and_a_network()).draft.all.challenged
}

/// From an address in a network.
fn from(second: i64, [address, network]: [i64; 2]) -> RecordedEvent {
    let keys = [Some(second), Some(address), Some(network), None, None, None];
    RecordedEvent { keys, ..row(second, ReplayOutcome::Wrong, None) }
}

#[test]
fn a_stranger_counts_at_the_address_and_in_the_network() {
    assert_eq!(challenged(&[from(1, [1, 7]), from(2, [1, 7])]), 1);
    assert_eq!(challenged(&[from(1, [1, 7]), from(2, [2, 7])]), 1);
    assert_eq!(challenged(&[from(1, [1, 7]), from(2, [2, 8])]), 0);
}

#[test]
fn a_known_device_counts_at_neither_and_is_held_by_neither() {
    let known = |second| {
        let keys = [Some(second), Some(1), Some(7), None, None, Some(9)];
        RecordedEvent { action: ReplayAction::DeviceSignIn, keys, ..from(second, [1, 7]) }
    };
    assert_eq!(challenged(&[known(1), from(2, [1, 7])]), 0);
    assert_eq!(challenged(&[from(1, [1, 7]), known(2)]), 0);
}

#[test]
fn a_wrong_answer_counts_and_is_no_attempt() {
    let answer = |second| RecordedEvent { action: ReplayAction::Answer, ..from(second, [1, 7]) };
    assert_eq!(challenged(&[answer(1), answer(2), from(3, [1, 7])]), 1);
}

#[test]
fn registrations_that_counted_nowhere_take_nothing_from_each_other() {
    let register = |second, outcome| RecordedEvent {
        action: ReplayAction::Register,
        ..row(second, outcome, Some(second))
    };
    let unfit =
        RecordedEvent { until: Micros(BEGIN + 9 * SECOND), count: 50, ..register(0, ReplayOutcome::Failed) };
    let rule = vec![Rule::sliding(1, Duration::from_secs(3600), RuleAction::Block)];
    let draft = limits(&[enforced("register-address", rule)]);
    let rows = [unfit, register(5, ReplayOutcome::Ok), register(20, ReplayOutcome::Ok)];
    let counts = compare(&rows, &Limits::default(), &draft).draft.all;
    // While the first of the two counts, the rest of the unfit ones are refused, and so is the second.
    assert_eq!((counts.admitted, counts.throttled), (29, 23));
}

#[test]
fn what_was_recorded_before_networks_were_counted_stands_in_none() {
    let old = |second| RecordedEvent {
        keys: [Some(second), Some(1), None, None, None, None],
        ..from(second, [1, 7])
    };
    assert_eq!(challenged(&[old(1), from(2, [2, 7])]), 0);
    assert_eq!(challenged(&[old(1), old(2)]), 1, "but at its address");
}

#[test]
fn a_known_device_has_a_log_of_its_own_until_the_draft_takes_it_away() {
    let known = |second, device| {
        let keys = [Some(5), Some(1), None, None, None, Some(device)];
        RecordedEvent {
            action: ReplayAction::DeviceSignIn,
            keys,
            ..row(second, ReplayOutcome::Wrong, Some(5))
        }
    };
    let rows = [known(0, 1), known(1, 2), known(2, 1), row(3, ReplayOutcome::Wrong, Some(5))];
    let two = |name| enforced(name, vec![Rule::sliding(2, Duration::from_secs(3600), RuleAction::Block)]);
    let stopped = |draft: &[Limit]| {
        let draft = compare(&rows, &Limits::default(), &limits(draft)).draft;
        (draft.all.throttled, draft.limits[0].counts.attempts, draft.limits[1].counts.attempts)
    };
    assert_eq!(stopped(&[two("login-device")]), (0, 1, 3));
    // The device's second comes as a stranger's third would: it is the account's second.
    let one = enforced("login-device", vec![Rule::sliding(1, Duration::from_secs(3600), RuleAction::Block)]);
    assert_eq!(stopped(std::slice::from_ref(&one)), (0, 2, 2));
    assert_eq!(stopped(&[one, two("login-account")]), (0, 2, 2));
    assert_eq!(stopped(&[enforced("login-device", vec![]), two("login-account")]), (2, 4, 0));
}
