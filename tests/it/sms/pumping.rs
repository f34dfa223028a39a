//! Somebody is paid by the message: how many go out under the defaults before the budgets and the brake
//! stop them, and who is stopped with them. `--nocapture` shows the counts.

use super::rig::*;
use gatehouse::sms::*;

on_each_store! {
    a_block_whose_codes_do_not_come_back_is_braked,
    a_block_whose_codes_come_back_is_not,
    a_brake_lifts_by_time_and_counts_afresh,
    a_brake_is_lifted_by_an_administrator,
    a_brake_holds_at_every_instance_and_is_lifted_at_each,
    a_brake_that_is_switched_off_stops_nobody,
    a_repeated_request_is_answered_through_a_brake,
    what_was_refused_counts_for_no_brake,
}

/// So many networks of /48 by turns, and in each of them another /64 each time, which is an address.
fn address_of(networks: u16, index: u16) -> Vec<u8> {
    let network = (index % networks).to_be_bytes();
    [&[0x20, 0x01, 0x0d, 0xb8], &network[..], &index.to_be_bytes()].concat()
}

#[derive(Debug, Default)]
struct Tally {
    sent: usize,
    by_brake: usize,
    by_prefix: usize,
    by_address: usize,
    by_network: usize,
    by_total: usize,
}

impl Tally {
    fn add(&mut self, sending: &Sending) {
        let place = match sending {
            Sending::Sent(_) => &mut self.sent,
            Sending::Throttled { limit, .. } => match limit.as_str() {
                "sms-brake" => &mut self.by_brake,
                "sms-prefix" => &mut self.by_prefix,
                "sms-address" => &mut self.by_address,
                "sms-network" => &mut self.by_network,
                "sms-total" => &mut self.by_total,
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        };
        *place += 1;
    }
}

/// Ten thousand forged numbers, an address each.
async fn pump(instance: &Instance, networks: u16, numbers: impl Fn(u32) -> String) -> Tally {
    let mut tally = Tally::default();
    for index in 0..10_000 {
        let (phone, address) = (number_of(&numbers(index.into())), address_of(networks, index));
        tally.add(&instance.send_from(&phone, &address).await);
    }
    tally
}

async fn honest_users_get_theirs(rig: &Rig, instance: &Instance) {
    for _ in 0..30 {
        let phone = number_of(&format!("+86159{:08}", rig.sent().len() * 104_729 % 100_000_000));
        sent(instance.send(&phone).await);
        assert!(matches!(instance.check(&phone, &rig.last_code()).await, Checked::Right(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_numbers_of_one_block_cost_twenty_messages() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 1, |index| format!("+861380013{index:04}")).await;
    println!("one block, one /48: {tally:?}");
    assert_eq!(tally.sent, 20);
    assert_eq!(tally.by_address, 0, "no /64 came twice: the address' budget stops nothing");
    honest_users_get_theirs(&rig, &instance).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_numbers_of_one_range_cost_a_hundred_messages() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 50, |index| format!("+8613800{:06}", index * 7919 % 1_000_000)).await;
    println!("one range of a hundred blocks, fifty /48: {tally:?}");
    assert_eq!((tally.sent, tally.by_network), (100, 0));
    honest_users_get_theirs(&rig, &instance).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_blocks_cost_one_network_a_hundred_messages() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    // Every block once: this is as thinly as numbers can be spread over a hundred million.
    let tally = pump(&instance, 1, |index| format!("+86138{:08}", u64::from(index) * 10_000)).await;
    println!("ten thousand blocks, one /48: {tally:?}");
    assert_eq!((tally.sent, tally.by_network), (100, 9_900));
    honest_users_get_theirs(&rig, &instance).await;
    rig.advance(HOUR);
    sent(instance.send_from(&phone(), &address_of(1, 0)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_blocks_asked_for_from_a_hundred_networks_are_stopped_by_the_total() {
    let rig = Rig::new(Store::Memory, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 100, |index| format!("+86138{:08}", u64::from(index) * 10_000)).await;
    println!("ten thousand blocks, a hundred /48: {tally:?}");
    // What the defaults cannot tell from honest people: a hundred to a range and from a network, and no block twice.
    assert_eq!(tally.sent, 10_000);
    let spent = instance.send(&phone()).await;
    assert_eq!(throttled(spent).0, "sms-total", "what the owner is ready to pay for is the last stop");
}

async fn braked_block(rig: &Rig) -> (Instance, Phone) {
    let (instance, crowd) = (rig.instance().await, phone());
    for _ in 0..20 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    assert_eq!(throttled(instance.send(&neighbour(&crowd)).await), ("sms-brake".to_owned(), HOUR));
    (instance, crowd)
}

async fn a_block_whose_codes_do_not_come_back_is_braked(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = braked_block(&rig).await;
    let (phone, address) = (neighbour(&crowd), address());
    assert_eq!(throttled(instance.send_from(&phone, &address).await).0, "sms-brake");
    for (limit, subject) in [("sms-phone", phone.as_str().as_bytes()), ("sms-address", &address)] {
        assert_eq!(instance.counted(limit, subject).await, 0, "{limit}: nothing went out");
    }
    assert_eq!(instance.counted("sms-prefix", crowd.block().as_bytes()).await, 20);
    let brakes = instance.codes.ledger().brakes().await.unwrap();
    assert_eq!(brakes.len(), 1);
    let brake = &brakes[0];
    assert_eq!((brake.prefix.as_str(), brake.sent, brake.entered), (crowd.block(), 20, 0));
    assert_eq!(brake.ends_at, rig.clock.now().plus(HOUR));
}

async fn a_block_whose_codes_come_back_is_not(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = (rig.instance().await, phone());
    for count in 0..100 {
        let phone = neighbour(&crowd);
        sent(instance.send(&phone).await);
        // One in ten is enough, and the first of each ten is the one.
        if count % 10 == 0 {
            assert!(matches!(instance.check(&phone, &rig.last_code()).await, Checked::Right(_)));
        }
    }
    assert!(instance.codes.ledger().brakes().await.unwrap().is_empty());
}

async fn a_brake_lifts_by_time_and_counts_afresh(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = braked_block(&rig).await;
    rig.advance(HOUR - MICRO);
    assert_eq!(throttled(instance.send(&neighbour(&crowd)).await).1, MICRO);
    rig.advance(MICRO);
    // In the microsecond in which it ends nothing is counted yet.
    sent(instance.send(&neighbour(&crowd)).await);
    rig.advance(MICRO);
    for _ in 0..20 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    assert_eq!(throttled(instance.send(&neighbour(&crowd)).await), ("sms-brake".to_owned(), HOUR));
}

async fn a_brake_is_lifted_by_an_administrator(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = braked_block(&rig).await;
    let ledger = instance.codes.ledger();
    assert!(!ledger.lift("+4915700", "admin").await.unwrap(), "there is none");
    assert!(ledger.lift(crowd.block(), "admin").await.unwrap());
    assert!(!ledger.lift(crowd.block(), "admin").await.unwrap(), "once is enough");
    assert!(ledger.brakes().await.unwrap().is_empty());
    // What tripped it before does not trip it again.
    rig.advance(MICRO);
    for _ in 0..20 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    assert_eq!(throttled(instance.send(&neighbour(&crowd)).await).0, "sms-brake");
}

async fn a_brake_holds_at_every_instance_and_is_lifted_at_each(store: Store) {
    let rig = Rig::new(store, "").await;
    let (one, crowd) = braked_block(&rig).await;
    let other = rig.instance().await;
    assert_eq!(throttled(other.send(&neighbour(&crowd)).await).0, "sms-brake");
    assert!(one.codes.ledger().lift(crowd.block(), "admin").await.unwrap());
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
    let named = Ask { once: Some("click"), ..ask(&phone, &address) };
    let first = sent(instance.ask(named).await);
    for _ in 0..19 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    for _ in 0..2 {
        assert_eq!(throttled(instance.send(&neighbour(&crowd)).await).0, "sms-brake");
    }
    assert_eq!(sent(instance.ask(named).await), first);
    assert_eq!(rig.sent().len(), 20);
}

async fn what_was_refused_counts_for_no_brake(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, crowd) = (rig.instance().await, phone());
    rig.mood(Mood::Refuses);
    for _ in 0..30 {
        assert_eq!(instance.send(&neighbour(&crowd)).await, Sending::NotSent);
    }
    rig.mood(Mood::Accepts);
    sent(instance.send(&neighbour(&crowd)).await);
}
