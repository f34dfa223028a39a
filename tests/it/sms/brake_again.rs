//! The brake learns: sooner and longer where a prefix was pumped before, and one for all ranges that were never proven.

use std::time::Duration;

use super::braking::{NO_BUDGETS, challenged, solved};
use super::rig::*;
use gatehouse::codes::*;
use gatehouse::message::*;
use gatehouse::sms::*;

on_each_store! {
    a_range_that_is_pumped_again_is_braked_sooner_and_for_longer,
    patience_does_not_help,
    a_brake_that_was_lifted_counts_against_nobody,
    one_message_to_each_of_many_new_ranges_is_a_spread,
    many_to_one_new_range_shut_no_other,
    while_most_people_are_in_new_ranges_it_takes_more_to_brake_those,
    what_is_withheld_makes_no_range_one_of_many_messages,
    a_block_is_braked_for_no_longer_however_often,
    a_window_of_days_judges_each_message,
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Ten without a challenge and ten with one; or two and five where there was a brake lately.
const SMALL: &str = "[sms.brake]\nmin_sent_range = 10\nmin_solved_range = 10\nmin_sent_again = 10\n";

async fn rig(store: Store) -> (Rig, Instance) {
    let rig = Rig::new(store, &format!("{NO_BUDGETS}{SMALL}")).await;
    let instance = rig.instance().await;
    (rig, instance)
}

/// A number of that range, each time of another block.
fn number(range: usize) -> Phone {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let last = NEXT.fetch_add(10_007, std::sync::atomic::Ordering::SeqCst) % 1_000_000;
    number_of(&format!("+861{:04}{last:06}", 5_000 + range))
}

/// Sends that many without a challenge and that many with one, after which it is under a brake. One each second, since
/// ranges that were never proven are judged as often.
async fn pump(
    rig: &Rig,
    instance: &Instance,
    [free, with_challenge]: [usize; 2],
    to: impl Fn(usize) -> Phone,
) {
    for n in 0..free {
        assert!(!sent(instance.send(&to(n)).await).short, "{n} free");
        rig.advance(SECOND);
    }
    assert_eq!(challenged(instance.send(&to(free)).await).0, "sms-brake");
    for n in 0..with_challenge {
        assert!(!sent(solved(instance, &to(free + n)).await).short, "{n} solved");
        rig.advance(SECOND);
    }
    assert!(sent(solved(instance, &to(free + with_challenge)).await).short);
}

async fn lasts(rig: &Rig, instance: &Instance) -> Duration {
    let brakes = instance.codes.ledger().brakes().await.unwrap();
    assert_eq!(brakes.len(), 1, "{brakes:?}");
    brakes[0].ends_at.since(rig.clock.now())
}

async fn a_range_that_is_pumped_again_is_braked_sooner_and_for_longer(store: Store) {
    let (rig, instance) = rig(store).await;
    pump(&rig, &instance, [10, 10], |_| number(0)).await;
    assert_eq!(lasts(&rig, &instance).await, HOUR);
    for (hours, then) in [(1, 4), (4, 24), (24, 24)] {
        rig.advance(hours * HOUR + MICRO);
        pump(&rig, &instance, [2, 10], |_| number(0)).await;
        assert_eq!(lasts(&rig, &instance).await, then * HOUR);
    }
    rig.advance(8 * DAY);
    pump(&rig, &instance, [10, 10], |_| number(0)).await;
    assert_eq!(lasts(&rig, &instance).await, HOUR, "it was quiet for a week");
}

async fn patience_does_not_help(store: Store) {
    let (rig, instance) = rig(store).await;
    for _ in 0..10 {
        assert!(!sent(instance.send(&number(0)).await).short);
        rig.advance(HOUR);
    }
    assert_eq!(challenged(instance.send(&number(0)).await).0, "sms-brake", "ten within a day");
    for _ in 0..10 {
        assert!(!sent(solved(&instance, &number(0)).await).short);
        rig.advance(HOUR / 2);
    }
    assert!(sent(solved(&instance, &number(0)).await).short);
    assert_eq!(lasts(&rig, &instance).await, HOUR);
    rig.advance(HOUR + MICRO);
    for _ in 0..2 {
        assert!(!sent(instance.send(&number(0)).await).short);
    }
    for _ in 0..10 {
        rig.advance(HOUR);
        assert!(!sent(solved(&instance, &number(0)).await).short);
    }
    assert!(sent(solved(&instance, &number(0)).await).short);
}

async fn a_brake_that_was_lifted_counts_against_nobody(store: Store) {
    let (rig, instance) = rig(store).await;
    pump(&rig, &instance, [10, 10], |_| number(0)).await;
    rig.advance(HOUR + MICRO);
    pump(&rig, &instance, [2, 10], |_| number(0)).await;
    assert!(instance.codes.ledger().lift(number(0).range(), Some(""), "admin").await.unwrap());
    rig.advance(MICRO);
    pump(&rig, &instance, [10, 10], |_| number(0)).await;
    assert_eq!(lasts(&rig, &instance).await, HOUR);
}

/// People of a range who enter their codes, a day apart at first.
async fn prove(rig: &Rig, instance: &Instance, range: usize) {
    for n in 0..12 {
        let phone = number(range);
        assert!(!sent(instance.send(&phone).await).short);
        assert!(matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)));
        if n == 0 {
            rig.advance(DAY);
        }
    }
}

async fn one_message_to_each_of_many_new_ranges_is_a_spread(store: Store) {
    let (rig, instance) = rig(store).await;
    prove(&rig, &instance, 0).await;
    pump(&rig, &instance, [10, 10], |n| number(1 + n)).await;
    let brakes = instance.codes.ledger().brakes().await.unwrap();
    assert_eq!((brakes.len(), &*brakes[0].prefix), (1, "+"));
    assert_eq!(challenged(instance.send(&number(999)).await).0, "sms-brake", "a new range");
    let register = RequestedMessage { purpose: Purpose::Register.into(), ..ask(&number(999), &address()) };
    assert_eq!(throttled(instance.ask(RequestedMessage { solved: true, ..register }).await).0, "sms-brake");
    assert!(!sent(instance.send(&number(0)).await).short, "people are known there");
    assert!(instance.codes.ledger().lift("+", Some(""), "admin").await.unwrap());
    rig.advance(SECOND);
    assert!(!sent(instance.send(&number(999)).await).short);
}

async fn many_to_one_new_range_shut_no_other(store: Store) {
    let (rig, instance) = rig(store).await;
    prove(&rig, &instance, 0).await;
    pump(&rig, &instance, [10, 10], |_| number(1)).await;
    assert_eq!(instance.codes.ledger().brakes().await.unwrap()[0].prefix, number(1).range());
    assert!(!sent(instance.send(&number(2)).await).short);
}

async fn while_most_people_are_in_new_ranges_it_takes_more_to_brake_those(store: Store) {
    let (rig, instance) = rig(store).await;
    // Three codes in a hundred come back, all in new ranges: few enough for a brake.
    for range in 0..3 {
        let phone = number(range);
        assert!(!sent(instance.send(&phone).await).short);
        assert!(matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)));
    }
    pump(&rig, &instance, [47, 47], |n| number(10 + n)).await;
    assert_eq!(instance.codes.ledger().brakes().await.unwrap()[0].prefix, "+");
}

/// Otherwise somebody could have withheld messages take ranges out of what is judged together.
async fn what_is_withheld_makes_no_range_one_of_many_messages(store: Store) {
    let (rig, instance) = rig(store).await;
    prove(&rig, &instance, 0).await;
    pump(&rig, &instance, [10, 10], |n| number(1 + n)).await;
    for range in 100..110 {
        for _ in 0..6 {
            assert!(sent(solved(&instance, &number(range)).await).short);
        }
    }
    rig.advance(HOUR + MICRO);
    pump(&rig, &instance, [2, 10], |n| number(100 + n % 10)).await;
    assert_eq!(instance.codes.ledger().brakes().await.unwrap()[0].prefix, "+");
}

async fn a_block_is_braked_for_no_longer_however_often(store: Store) {
    let rig = Rig::new(store, NO_BUDGETS).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for _ in 0..3 {
        pump(&rig, &instance, [10, 20], |_| neighbour(&crowd)).await;
        assert_eq!(lasts(&rig, &instance).await, HOUR);
        rig.advance(HOUR + MICRO);
    }
}

async fn a_window_of_days_judges_each_message(store: Store) {
    let rig = Rig::new(store, &format!("{NO_BUDGETS}{SMALL}window = '2d'\n")).await;
    let instance = rig.instance().await;
    pump(&rig, &instance, [10, 10], |_| number(0)).await;
}
