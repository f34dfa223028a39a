//! Rules of the detector, each with a clock of its own.

use super::sketch::{Mark, NameSketch};
use super::*;

const SECOND: Micros = 1_000_000;
const MINUTE: Micros = 60 * SECOND;
const HOUR: Micros = 60 * MINUTE;

fn tag(kind: u64, number: u64) -> u64 {
    let mut z = (kind << 56 ^ number).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn failure(password: u64, name: u64, network: u64) -> Failure {
    Failure { password: tag(1, password), name: tag(2, name), network: tag(3, network) }
}

fn detector() -> GuessDetector {
    GuessDetector::new(DetectorSettings::default())
}

/// The number of names, one each `gap`, until password 1 is hot.
fn names_until_hot(detector: &mut GuessDetector, from: Micros, gap: Micros) -> Option<u64> {
    (1..200).find(|&name| {
        let found = detector.observe(failure(1, 1_000_000 + name, name), from + name as i64 * gap);
        matches!(found, Finding::Began(_))
    })
}

#[test]
fn memory_is_at_most_two_mebibytes() {
    const { assert!(GuessDetector::BYTES <= 2 << 20) };
}

#[test]
fn five_names_make_a_password_hot_and_four_never_do() {
    for round in 0..200 {
        let mut detector = detector();
        let mut names = 0;
        for name in 0..4 {
            assert_eq!(detector.observe(failure(round, name, name), SECOND), Finding::Quiet);
        }
        let told = (4..20).find(|&name| {
            names = name + 1;
            detector.observe(failure(round, name, name), SECOND) != Finding::Quiet
        });
        assert!(told.is_some() && names <= 9, "{names}");
        assert!(detector.is_hot(tag(1, round), SECOND));
        assert!(!detector.is_hot(tag(1, round + 1), SECOND));
    }
}

#[test]
fn one_name_is_one_name_however_often_it_is_tried() {
    let mut detector = detector();
    for second in 0..10_000 {
        let found = detector.observe(failure(1, second % 3, second), second as i64 * SECOND);
        assert_eq!(found, Finding::Quiet);
    }
}

#[test]
fn two_networks_are_no_spray() {
    let mut detector = detector();
    for name in 0..1000 {
        assert_eq!(detector.observe(failure(1, name, name % 2), SECOND), Finding::Quiet);
    }
}

#[test]
fn names_of_the_last_hour_count_and_those_before_it_do_not() {
    let mut detector = detector();
    for name in 0..4 {
        detector.observe(failure(1, name, name), name as i64);
    }
    assert_ne!(names_until_hot(&mut detector, 59 * MINUTE, SECOND), None);
    let mut detector = GuessDetector::new(DetectorSettings::default());
    for name in 0..4 {
        detector.observe(failure(1, name, name), name as i64);
    }
    assert!(names_until_hot(&mut detector, 81 * MINUTE, SECOND) >= Some(5));
}

#[test]
fn hot_ends_an_hour_after_the_last_failure() {
    let mut detector = detector();
    let told = names_until_hot(&mut detector, 0, SECOND).unwrap();
    let last = told as i64 * SECOND;
    assert!(detector.is_hot(tag(1, 1), last + HOUR - 1));
    assert!(!detector.is_hot(tag(1, 1), last + HOUR));
}

#[test]
fn what_is_usual_for_a_password_is_not_told_and_three_times_as_much_is() {
    let mut detector = detector();
    let mut now = 0;
    // Password 1 is wrong at thirty names an hour, among a thousand failures.
    for turn in 0..12_000 {
        now += 3_600_000;
        let password = if turn % 33 == 0 { 1 } else { 100 + turn };
        assert_eq!(detector.observe(failure(password, turn, turn), now), Finding::Quiet, "{turn}");
    }
    let told = names_until_hot(&mut detector, now, SECOND).unwrap();
    assert!((40..140).contains(&told), "{told}");
    assert!(names_until_hot(&mut detector, now + 3 * HOUR, SECOND).is_some());
}

#[test]
fn a_hot_password_does_not_become_usual() {
    let mut detector = detector();
    for minute in 0..3 * 24 * 60 {
        detector.observe(failure(1, minute, minute), minute as i64 * MINUTE);
    }
    assert!(detector.is_hot(tag(1, 1), 3 * 24 * HOUR));
}

#[test]
fn a_flood_of_random_passwords_makes_none_hot_and_hides_no_spray_of_one_a_minute() {
    let mut detector = detector();
    for turn in 0..2_500 {
        assert_eq!(
            detector.observe(failure(1000 + turn, turn, turn), turn as i64 * 10 * SECOND),
            Finding::Quiet
        );
    }
    let begin = 25_000 * SECOND;
    let mut told = None;
    // 2,000,000 in an hour, one in 33,333 of them with password 1.
    for turn in 0..2_000_000 {
        let (now, sprayed) = (begin + turn as i64 * 1800, turn % 33_333 == 0);
        let password = if sprayed { 1 } else { 10_000 + turn };
        let found = detector.observe(failure(password, turn % 100_003, turn % 10_007), now);
        assert!(sprayed || found == Finding::Quiet, "{turn}");
        if let Finding::Began(_) = found {
            told = told.or(Some(now - begin));
        }
    }
    assert!(told.is_some_and(|told| told <= 10 * MINUTE), "{told:?}");
}

#[test]
fn a_clock_that_steps_back_stands_still() {
    let mut detector = detector();
    detector.observe(failure(9, 1, 1), 5 * HOUR);
    assert!(names_until_hot(&mut detector, -3 * HOUR, SECOND).is_some());
}

#[test]
fn a_pause_of_years_and_the_ends_of_time_are_survived() {
    let mut detector = detector();
    for now in [Micros::MIN, 0, 30 * 365 * 24 * HOUR, Micros::MAX] {
        detector.observe(failure(1, 1, 1), now);
    }
}

#[test]
fn sketches_are_right_on_average_and_within_a_quarter_mostly() {
    for names in [20_u64, 100, 1000, 10_000] {
        let errors: Vec<f64> = (0..100)
            .map(|round| {
                let mut sketch = NameSketch::default();
                (0..names).for_each(|name| sketch.add(Mark::of_name(tag(round + 5, name))));
                sketch.count() / names as f64 - 1.0
            })
            .collect();
        let mean = errors.iter().sum::<f64>() / 100.0;
        let deviation = (errors.iter().map(|error| error * error).sum::<f64>() / 100.0).sqrt();
        assert!(mean.abs() < 0.06 && deviation < 0.25, "{names}: {mean} {deviation}");
    }
}
