//! What the record leaves out, or an administrator does, one case at a time.

use std::time::Duration;

use super::drafts::{enforced, limits};
use super::week::{BEGIN, SECOND};
use crate::clock::Micros;
use crate::config::Limits;
use crate::throttle::{Rule, Then};
use crate::tuning::replay::{Action, Belief, Bounds, Counts, Intake, Outcome, Recorded, replay};

fn three_an_hour() -> Limits {
    let rules = vec![Rule::sliding(3, Duration::from_secs(3600), Then::Block)];
    limits(&[enforced("login-account", rules), enforced("login-address", vec![])])
}

fn row(second: i64, outcome: Outcome, account: Option<i64>) -> Recorded {
    let at = Micros(BEGIN + second * SECOND);
    Recorded {
        at,
        until: at,
        count: 1,
        action: Action::SignIn,
        outcome,
        limit: None,
        solved: false,
        reset: false,
        forgave: (outcome == Outcome::Ok).then_some(true),
        keys: [account, Some(1), None, None, None],
    }
}

fn clear(second: i64, account: Option<i64>) -> Recorded {
    Recorded { action: Action::Clear, limit: Some(0), ..row(second, Outcome::Ok, account) }
}

fn wrongs(account: i64) -> Vec<Recorded> {
    (0..3).map(|second| row(second, Outcome::Wrong, Some(account))).collect()
}

fn counts(rows: &[Recorded]) -> Counts {
    let mut intake = Intake::default();
    rows.iter().for_each(|row| intake.take(row));
    replay(&intake.finish(), &three_an_hour(), Micros(BEGIN), Belief::Draft).all
}

fn ends(bounds: Bounds) -> (u64, u64) {
    (bounds.low, bounds.high)
}

#[test]
fn a_log_that_an_administrator_cleared_is_empty() {
    let mut rows = wrongs(5);
    rows.push(row(10, Outcome::Wrong, Some(5)));
    assert_eq!(ends(counts(&rows).throttled), (1, 1));
    rows.push(clear(9, Some(5)));
    assert_eq!(ends(counts(&rows).throttled), (0, 0));
}

#[test]
fn whose_log_was_cleared_is_not_known_where_the_record_does_not_say() {
    let mut rows = wrongs(5);
    rows.push(clear(9, None));
    rows.push(row(10, Outcome::Wrong, Some(5)));
    assert_eq!(ends(counts(&rows).throttled), (0, 1));
}

#[test]
fn an_attempt_that_names_nobody_may_have_been_anybodys() {
    let mut rows = wrongs(5);
    rows.push(Recorded { count: 2, ..row(10, Outcome::Throttled, None) });
    rows.push(row(11, Outcome::Wrong, Some(5)));
    rows.push(row(12, Outcome::Wrong, Some(6)));
    let counts = counts(&rows);
    assert_eq!(ends(counts.throttled), (0, 4), "the owner of either may have signed in, or failed");
    assert_eq!(ends(counts.admitted), (3, 7));
}

#[test]
fn a_flood_that_is_still_refused_is_refused_whole() {
    let mut rows = wrongs(5);
    let until = Micros(BEGIN + 20 * SECOND);
    rows.push(Recorded { count: 1_000, until, ..row(10, Outcome::Throttled, Some(5)) });
    assert_eq!(ends(counts(&rows).throttled), (1_000, 1_000));
    // In the midst of it the owner signs in, who had solved a challenge and more: nothing is certain then.
    rows.push(clear(15, Some(5)));
    assert_eq!(ends(counts(&rows).admitted), (3, 1_003));
}

#[test]
fn a_code_that_set_a_new_password_clears_for_certain_only_what_was_in_force() {
    let mut rows = wrongs(5);
    rows.push(Recorded { reset: true, ..clear(9, Some(5)) });
    rows.push(row(10, Outcome::Wrong, Some(5)));
    assert_eq!(ends(counts(&rows).throttled), (0, 1));
}

fn one_a_day_from_an_address_and_a_network() -> Limits {
    let rule = || vec![Rule::sliding(1, Duration::from_secs(86_400), Then::Captcha)];
    limits(&[
        enforced("login-account", vec![]),
        enforced("login-address", rule()),
        enforced("login-network", rule()),
    ])
}

fn challenged(rows: &[Recorded]) -> (u64, u64) {
    let mut intake = Intake::default();
    rows.iter().for_each(|row| intake.take(row));
    let limits = one_a_day_from_an_address_and_a_network();
    ends(replay(&intake.finish(), &limits, Micros(BEGIN), Belief::Draft).all.challenged)
}

/// From an address in a network.
fn from(second: i64, [address, network]: [i64; 2]) -> Recorded {
    let keys = [Some(second), Some(address), Some(network), None, None];
    Recorded { keys, ..row(second, Outcome::Wrong, None) }
}

#[test]
fn a_stranger_counts_at_the_address_and_in_the_network() {
    assert_eq!(challenged(&[from(1, [1, 7]), from(2, [1, 7])]), (1, 1));
    assert_eq!(challenged(&[from(1, [1, 7]), from(2, [2, 7])]), (1, 1));
    assert_eq!(challenged(&[from(1, [1, 7]), from(2, [2, 8])]), (0, 0));
}

#[test]
fn a_known_device_counts_at_neither_and_is_held_by_neither() {
    let known = |second| Recorded { action: Action::Known, ..from(second, [1, 7]) };
    assert_eq!(challenged(&[known(1), from(2, [1, 7])]), (0, 0));
    assert_eq!(challenged(&[from(1, [1, 7]), known(2)]), (0, 0));
}

#[test]
fn a_wrong_answer_counts_and_is_no_attempt() {
    let answer = |second| Recorded { action: Action::Answer, solved: true, ..from(second, [1, 7]) };
    assert_eq!(challenged(&[answer(1), answer(2), from(3, [1, 7])]), (1, 1));
}

#[test]
fn what_was_recorded_before_networks_were_counted_stands_in_none() {
    let old = |second| Recorded { keys: [Some(second), Some(1), None, None, None], ..from(second, [1, 7]) };
    assert_eq!(challenged(&[old(1), from(2, [2, 7])]), (0, 0));
    assert_eq!(challenged(&[old(1), old(2)]), (1, 1), "but at its address");
}
