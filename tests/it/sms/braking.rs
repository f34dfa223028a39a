//! The brake: what trips it, what applies while it is on, and whom it exempts.

use std::time::Duration;

use super::rig::*;
use gatehouse::clock::Micros;
use gatehouse::codes::*;
use gatehouse::denied::Denied;
use gatehouse::message::*;
use gatehouse::sms::*;

/// For what is said of the brake alone.
pub(super) const NO_PREFIX: &str = "[limits.sms-prefix]\nrules = []\n";
pub(super) const NO_BUDGETS: &str = "[limits.sms-prefix]\nrules = []\n[limits.sms-address]\nrules = []
    [limits.sms-network]\nrules = []\n[limits.sms-total]\nrules = []\n[limits.program-prefix]\nrules = []\n";

on_each_store! {
    a_block_whose_codes_do_not_come_back_is_braked,
    a_block_whose_codes_come_back_is_not,
    a_brake_lifts_by_time_and_counts_afresh,
    a_brake_is_lifted_by_an_administrator,
    a_brake_holds_at_every_instance_and_is_lifted_at_each,
    a_brake_that_is_switched_off_stops_nobody,
    a_repeated_request_is_answered_through_a_brake,
    what_was_refused_counts_for_no_brake,
    one_network_trips_no_brake,
    a_solved_challenge_weighs_half,
    a_braked_prefix_is_short_and_spares_older_accounts,
    what_is_withheld_trips_no_brake,
    a_range_asks_for_challenges_from_a_hundred_and_is_braked_at_five_hundred_more,
    two_hundred_at_once_climb_no_rung_far_beyond,
}

pub(super) async fn braked_block(rig: &Rig) -> (Instance, Phone) {
    let (instance, crowd) = (rig.instance().await, phone());
    brake_block(&instance, &crowd, HOUR).await;
    (instance, crowd)
}

/// Ten messages without a challenge, and twenty with one, which weigh half.
async fn brake_block(instance: &Instance, crowd: &Phone, lasts: Duration) {
    for _ in 0..10 {
        sent(instance.send(&neighbour(crowd)).await);
    }
    assert_eq!(challenged(instance.send(&neighbour(crowd)).await), ("sms-brake".to_owned(), HOUR));
    assert!(instance.codes.ledger().brakes().await.unwrap().is_empty());
    for _ in 0..20 {
        assert!(!sent(solved(instance, &neighbour(crowd)).await).short);
    }
    // Until a message is about to be written, a remembered challenge is answer enough.
    assert!(sent(solved(instance, &neighbour(crowd)).await).short);
    assert_eq!(challenged(instance.send(&neighbour(crowd)).await), ("sms-brake".to_owned(), lasts));
}

#[track_caller]
pub(super) fn challenged(sending: SendOutcome) -> (String, Duration) {
    match sending {
        SendOutcome::Denied(Denied::Challenged { limit, retry_after, .. }) => {
            (limit.into_owned(), retry_after)
        }
        other => panic!("expected a challenge, got {other:?}"),
    }
}

pub(super) async fn solved(instance: &Instance, phone: &Phone) -> SendOutcome {
    let address = address();
    instance.ask(RequestedMessage { solved: true, ..ask(phone, &address) }).await
}

pub(super) async fn settled(instance: &Instance) {
    let pending = |entry: &LedgerEntry| entry.state == MessageState::Pending;
    until(async || !instance.ledger().await.iter().any(pending)).await;
}

/// What was measured: twenty messages from one address braked 10,000 numbers, and a hundred from five /64s of
/// one /48 a million.
async fn one_network_trips_no_brake(store: Store) {
    let rig = Rig::new(store, NO_BUDGETS).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for n in 0..150_u8 {
        let phone = if n < 40 { neighbour(&crowd) } else { other_block(&crowd, n.into()) };
        sent(instance.send_from(&phone, &[1, 2, 3, 4, 5, 6, n % 5, 0]).await);
    }
    assert!(instance.codes.ledger().brakes().await.unwrap().is_empty());
    // Four networks are a shared building; five are the least that can trip a brake.
    let from = |n: u8| {
        let (instance, phone) = (instance.clone(), neighbour(&crowd));
        async move {
            let address = [9, 2, 3, 4, 5, n, 0, 0];
            sent(instance.ask(RequestedMessage { solved: true, ..ask(&phone, &address) }).await).short
        }
    };
    for n in 0..3 * 30 {
        assert!(!from(n % 3).await, "three networks and the one before");
    }
    for _ in 0..8 {
        assert!(!from(4).await);
    }
    assert!(from(4).await);
}

/// Of the same range, in another block.
fn other_block(phone: &Phone, n: u16) -> Phone {
    let taken: u32 = phone.block()[phone.block().len() - 2..].parse().unwrap();
    number_of(&format!("{}{:02}{n:04}", phone.range(), (taken + 1 + u32::from(n) % 90) % 100))
}

async fn a_solved_challenge_weighs_half(store: Store) {
    let rig = Rig::new(store, NO_BUDGETS).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for _ in 0..40 {
        assert!(!sent(solved(&instance, &neighbour(&crowd)).await).short);
    }
    assert!(sent(solved(&instance, &neighbour(&crowd)).await).short);
}

async fn a_braked_prefix_is_short_and_spares_older_accounts(store: Store) {
    let rig = Rig::new(store, NO_PREFIX).await;
    let (instance, crowd) = braked_block(&rig).await;
    let (old, young, nobodys) = (neighbour(&crowd), neighbour(&crowd), neighbour(&crowd));
    let window_began = rig.clock.now().minus(HOUR);
    rig.owners.has(&old, Micros(window_began.0 - 1));
    rig.owners.has(&young, window_began);
    let mut told = Vec::new();
    for phone in [&old, &young, &nobodys] {
        assert_eq!(challenged(instance.send(phone).await), ("sms-brake".to_owned(), HOUR));
        told.push(sent(solved(&instance, phone).await));
    }
    assert!(told[0].short && told.iter().all(|other| *other == told[0]), "{told:?}");
    settled(&instance).await;
    assert_eq!([&old, &young, &nobodys].map(|phone| rig.sent_to(phone)), [1, 0, 0]);
    let address = address();
    for (purpose, solved) in [(Purpose::Register, true), (Purpose::Verify, false)] {
        let refused =
            instance.ask(RequestedMessage { purpose: purpose.into(), solved, ..ask(&old, &address) }).await;
        assert_eq!(throttled(refused), ("sms-brake".to_owned(), HOUR));
    }
    // An instance that has not met the brake yet finds it in the ledger.
    let other = rig.instance().await;
    let (older, nobodys) = (neighbour(&crowd), neighbour(&crowd));
    rig.owners.has(&older, Micros(0));
    for phone in [&older, &nobodys] {
        assert!(sent(solved(&other, phone).await).short);
    }
    settled(&other).await;
    assert_eq!((rig.sent_to(&older), rig.sent_to(&nobodys)), (1, 0));
}

async fn what_is_withheld_trips_no_brake(store: Store) {
    let toml = "[limits.sms-prefix]\nrules = [{ max = 10, window = '24h' }]\n";
    let rig = Rig::new(store, toml).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for _ in 0..8 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    for _ in 0..60 {
        assert!(sent(solved(&instance, &neighbour(&crowd)).await).short);
    }
    assert!(instance.codes.ledger().brakes().await.unwrap().is_empty());
}

async fn a_block_whose_codes_do_not_come_back_is_braked(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = braked_block(&rig).await;
    let (phone, address) = (neighbour(&crowd), address());
    assert_eq!(challenged(instance.send_from(&phone, &address).await).0, "sms-brake");
    for (limit, subject) in [("sms-phone", phone.as_str().as_bytes()), ("sms-address", &address)] {
        assert_eq!(instance.counted(limit, subject).await, 0, "{limit}: nothing went out");
    }
    assert_eq!(instance.counted("sms-prefix", crowd.block().as_bytes()).await, 30);
    let brakes = instance.codes.ledger().brakes().await.unwrap();
    assert_eq!(brakes.len(), 1);
    let brake = &brakes[0];
    assert_eq!((brake.prefix.as_str(), brake.sent, brake.entered), (crowd.block(), 30, 0));
    assert_eq!(brake.program, None);
    assert_eq!(brake.ends_at, rig.clock.now().plus(HOUR));
}

async fn a_block_whose_codes_come_back_is_not(store: Store) {
    let rig = Rig::new(store, NO_PREFIX).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for count in 0..100 {
        let phone = neighbour(&crowd);
        sent(instance.send(&phone).await);
        // One in ten is enough, and it is the first of each ten.
        if count % 10 == 0 {
            assert!(matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)));
        }
    }
    assert!(instance.codes.ledger().brakes().await.unwrap().is_empty());
}

async fn a_brake_lifts_by_time_and_counts_afresh(store: Store) {
    let rig = Rig::new(store, NO_PREFIX).await;
    let (instance, crowd) = braked_block(&rig).await;
    rig.advance(HOUR - MICRO);
    assert_eq!(challenged(instance.send(&neighbour(&crowd)).await).1, MICRO);
    rig.advance(MICRO);
    // In the microsecond in which it ends nothing counts yet.
    sent(instance.send(&neighbour(&crowd)).await);
    rig.advance(MICRO);
    brake_block(&instance, &crowd, HOUR).await;
}

async fn a_brake_is_lifted_by_an_administrator(store: Store) {
    let rig = Rig::new(store, NO_PREFIX).await;
    let (instance, crowd) = braked_block(&rig).await;
    let ledger = instance.codes.ledger();
    assert!(!ledger.lift("+4915700", None, "admin").await.unwrap(), "there is none");
    assert!(!ledger.lift(crowd.block(), Some("verify:shop"), "admin").await.unwrap(), "it is for our pages");
    assert!(ledger.lift(crowd.block(), None, "admin").await.unwrap());
    assert!(!ledger.lift(crowd.block(), Some(""), "admin").await.unwrap(), "once is enough");
    assert!(ledger.brakes().await.unwrap().is_empty());
    // What tripped it before does not trip it again.
    rig.advance(MICRO);
    brake_block(&instance, &crowd, HOUR).await;
}

async fn a_brake_holds_at_every_instance_and_is_lifted_at_each(store: Store) {
    let rig = Rig::new(store, "").await;
    let (one, crowd) = braked_block(&rig).await;
    let other = rig.instance().await;
    assert_eq!(challenged(other.send(&neighbour(&crowd)).await).0, "sms-brake");
    assert!(one.codes.ledger().lift(crowd.block(), Some(""), "admin").await.unwrap());
    sent(one.send(&neighbour(&crowd)).await);
    rig.advance(SECOND);
    sent(other.send(&neighbour(&crowd)).await);
}

async fn a_brake_that_is_switched_off_stops_nobody(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = braked_block(&rig).await;
    let toml = "[sms.brake]\nenabled = false";
    let live = gatehouse::config::parse(std::path::Path::new("test.toml"), toml, &[]).unwrap().live;
    sent(instance.with(&live).send(&neighbour(&crowd)).await);
}

async fn a_repeated_request_is_answered_through_a_brake(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = (rig.instance().await, phone());
    let (phone, address) = (neighbour(&crowd), address());
    let named = RequestedMessage { once: Some("click".to_owned()), ..ask(&phone, &address) };
    let first = sent(instance.ask(named.clone()).await);
    for _ in 0..9 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    for unreturned in [10, 30] {
        for _ in 0..2 {
            assert_eq!(challenged(instance.send(&neighbour(&crowd)).await).0, "sms-brake");
        }
        assert_eq!(sent(instance.ask(named.clone()).await), first);
        assert_eq!(rig.sent().len(), unreturned);
        for _ in 0..20 {
            solved(&instance, &neighbour(&crowd)).await;
        }
    }
}

async fn what_was_refused_counts_for_no_brake(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = (rig.instance().await, phone());
    rig.mood(Mood::Refuses);
    for _ in 0..30 {
        assert_eq!(instance.send(&neighbour(&crowd)).await, SendOutcome::NotSent);
    }
    rig.mood(Mood::Accepts);
    sent(instance.send(&neighbour(&crowd)).await);
}

/// Solved, from one of that many networks.
async fn from_networks(instance: &Instance, phone: &Phone, networks: u16, turn: u16) -> SendOutcome {
    let [high, low] = (turn % networks).to_be_bytes();
    let address = [7, 7, 7, 7, high, low, 0, 0];
    instance.ask(RequestedMessage { solved: true, ..ask(phone, &address) }).await
}

async fn a_range_asks_for_challenges_from_a_hundred_and_is_braked_at_five_hundred_more(store: Store) {
    let rig = Rig::new(store, NO_BUDGETS).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for n in 0..100 {
        sent(instance.send(&other_block(&crowd, n)).await);
    }
    // A number in none of these blocks.
    assert_eq!(challenged(instance.send(&crowd).await), ("sms-brake".to_owned(), 24 * HOUR));
    let address = address();
    let register = RequestedMessage { purpose: Purpose::Register.into(), ..ask(&crowd, &address) };
    assert_eq!(challenged(instance.ask(register.clone()).await).0, "sms-brake", "a registration, too");
    assert!(!sent(instance.ask(RequestedMessage { solved: true, ..register.clone() }).await).short);
    // Ninety-nine networks do not brake a million numbers, whatever they solve; the registration was another.
    for n in 0..600 {
        let phone = other_block(&crowd, 1000 + n);
        assert!(!sent(from_networks(&instance, &phone, 99, n).await).short, "{n}");
    }
    for n in 0..4 {
        let phone = other_block(&crowd, 2000 + n);
        let address = [8, 8, 8, 8, 8, 8, 0, 0];
        let asked = RequestedMessage { solved: true, ..ask(&phone, &address) };
        assert!(!sent(instance.ask(asked).await).short, "{n}");
    }
    assert!(sent(from_networks(&instance, &other_block(&crowd, 3000), 99, 0).await).short);
    let register = RequestedMessage { solved: true, ..register };
    assert_eq!(throttled(instance.ask(register).await), ("sms-brake".to_owned(), HOUR));
    let brakes = instance.codes.ledger().brakes().await.unwrap();
    assert_eq!((brakes.len(), brakes[0].prefix.as_str()), (1, crowd.range()));
}

async fn two_hundred_at_once_climb_no_rung_far_beyond(store: Store) {
    // As many transactions as an instance runs at once, less one.
    const BESIDE: usize = 3;
    let rig = Rig::new(store, NO_BUDGETS).await;
    let (instance, crowd) = (rig.instance().await, phone());
    let many = async |solved: bool| {
        let answers = all((0..200).map(|_| {
            let (instance, phone, address) = (instance.clone(), neighbour(&crowd), address());
            async move { instance.ask(RequestedMessage { solved, ..ask(&phone, &address) }).await }
        }));
        answers.await.iter().filter(|answer| matches!(answer, SendOutcome::Sent(sent) if !sent.short)).count()
    };
    let free = many(false).await;
    assert!((10..=10 + BESIDE).contains(&free), "{free}");
    let solved = many(true).await;
    assert!(free * 2 + solved >= 40 && free * 2 + solved <= 40 + 2 * BESIDE, "{free} and {solved}");
    assert_eq!(instance.codes.ledger().brakes().await.unwrap().len(), 1);
}
