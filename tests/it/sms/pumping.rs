//! SMS pumping: how many messages are sent with the default limits before the budgets and the brake stop
//! them, and who is stopped with them. `--nocapture` shows the counts.

use std::collections::BTreeMap;

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::denied::Denied;

/// Takes this many /48 networks in turn, with another /64 each time, which is an address.
fn address_of(networks: u16, index: u16) -> Vec<u8> {
    let network = (index % networks).to_be_bytes();
    [&[0x20, 0x01, 0x0d, 0xb8], &network[..], &index.to_be_bytes()].concat()
}

#[derive(Debug, Default)]
struct Tally {
    sent: usize,
    /// Refused, or asked for a challenge, by limit.
    refused: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, sending: SendOutcome) {
        match sending {
            SendOutcome::Sent(_) => self.sent += 1,
            SendOutcome::Denied(Denied::Challenged { limit, .. })
            | SendOutcome::Denied(Denied::Throttled { limit, .. }) => {
                *self.refused.entry(limit.into_owned()).or_default() += 1;
            }
            other => panic!("{other:?}"),
        }
    }

    fn by(&self, limit: &str) -> usize {
        self.refused.get(limit).copied().unwrap_or(0)
    }
}

/// A third of what was measured, which reaches all the bounds.
const ASKS: u16 = 3_000;

/// This many forged numbers, with an address each.
async fn pump(instance: &Instance, networks: u16, numbers: impl Fn(u32) -> String) -> Tally {
    let mut tally = Tally::default();
    for index in 0..ASKS {
        let (phone, address) = (number_of(&numbers(index.into())), address_of(networks, index));
        tally.add(instance.send_from(&phone, &address).await);
    }
    tally
}

async fn honest_users_get_theirs(rig: &Rig, instance: &Instance) {
    for _ in 0..30 {
        let phone = number_of(&format!("+86159{:08}", rig.sent().len() * 104_729 % 100_000_000));
        sent(instance.send(&phone).await);
        assert!(matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_at_one_block_costs_twenty_messages() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 1, |index| format!("+861380013{index:04}")).await;
    println!("one block, one /48: {tally:?}");
    assert_eq!((tally.sent, tally.by("sms-network")), (20, 2_980));
    honest_users_get_theirs(&rig, &instance).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_at_one_block_costs_many_networks_ten_messages_and_twenty_challenges() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 50, |index| format!("+861380013{index:04}")).await;
    println!("one block, fifty /48: {tally:?}");
    assert_eq!((tally.sent, tally.by("sms-brake")), (10, 2_990));
    for index in 0..40 {
        let (phone, address) = (number_of(&format!("+861380013{:04}", 5000 + index)), address_of(50, index));
        let asked = RequestedMessage { solved: true, ..ask(&phone, &address) };
        assert_eq!(sent(instance.ask(asked).await).short, index >= 20, "{index}");
    }
    honest_users_get_theirs(&rig, &instance).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_at_one_range_costs_a_hundred_messages() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 50, |index| format!("+8613800{:06}", index * 7919 % 1_000_000)).await;
    println!("one range of a hundred blocks, fifty /48: {tally:?}");
    assert_eq!((tally.sent, tally.by("sms-brake")), (100, 2_900));
    honest_users_get_theirs(&rig, &instance).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_over_all_blocks_costs_one_network_twenty_messages() {
    let rig = Rig::new(Store::Redis, "").await;
    let instance = rig.instance().await;
    // Every block once: numbers cannot be spread more thinly over a hundred million.
    let tally = pump(&instance, 1, |index| format!("+86138{:08}", u64::from(index) * 10_000)).await;
    println!("a block each, one /48: {tally:?}");
    assert_eq!((tally.sent, tally.by("sms-network")), (20, 2_980));
    honest_users_get_theirs(&rig, &instance).await;
    rig.advance(HOUR);
    sent(instance.send_from(&phone(), &address_of(1, 0)).await);
}

/// What was measured before there were challenges: 10,000 messages, and then nobody got a code for a day.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_over_all_blocks_costs_a_hundred_networks_a_thousand_messages() {
    let rig = Rig::new(Store::Memory, "").await;
    let instance = rig.instance().await;
    let tally = pump(&instance, 100, |index| format!("+86138{:08}", u64::from(index) * 10_000)).await;
    println!("a block each, a hundred /48: {tally:?}");
    // What the defaults cannot tell from honest people: ten per range and per network, and no block twice.
    assert_eq!((tally.sent, tally.by("sms-total")), (1_000, 2_000));
    let (phone, address) = (phone(), address());
    sent(instance.ask(RequestedMessage { solved: true, ..ask(&phone, &address) }).await);
}
