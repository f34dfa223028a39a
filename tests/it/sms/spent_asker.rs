//! When only the requester's address or network is spent: messages to owners then use none of the reserve.

use std::sync::atomic::Ordering;

use super::rig::*;
use super::shortage::{after_a_loss, codes, owned, settled, short, solved_from, spent, store_writes};
use gatehouse::clock::Micros;
use gatehouse::codes::MessageState;

/// Four of an address are open, eight of all messages, and three are reserved.
const FOUR_OF_AN_ADDRESS: &str = "[limits.sms-phone]\nrules = [{ max = 2, window = '1h' }]
    [limits.sms-address]\nrules = [{ max = 5, window = '1h' }]
    [limits.sms-network]\nrules = []\n[limits.sms-prefix]\nrules = []
    [limits.sms-total]\nrules = [{ max = 14, window = '24h' }]\n";

on_each_store! {
    one_address_spends_nothing_that_is_kept_while_others_have_room,
    nobody_is_told_apart_at_a_spent_address,
    what_was_withheld_at_a_spent_address_spends_nothing,
    what_is_asked_for_at_a_spent_address_weighs_nothing_at_a_brake,
    the_windows_of_a_spent_address_come_back_from_the_ledger,
}

async fn at_a_spent_address(store: Store, toml: &str) -> (Rig, Instance, Vec<u8>) {
    let (rig, instance) = spent(toml, 0, store).await;
    let shared = address();
    for _ in 0..4 {
        sent(instance.send_from(&phone(), &shared).await);
    }
    (rig, instance, shared)
}

async fn one_address_spends_nothing_that_is_kept_while_others_have_room(store: Store) {
    let (rig, instance, shared) = at_a_spent_address(store, FOUR_OF_AN_ADDRESS).await;
    // Four more are open, and sent; then three from the reserve, and then none.
    for count in 1..=8_u32 {
        short(solved_from(&instance, &owned(&rig), &shared).await);
        settled(&instance).await;
        assert_eq!(rig.sent().len(), (4 + count).min(11) as usize);
        assert_eq!(instance.counted("sms-total", b"everyone").await, (4 + count).min(8));
    }
}

/// Nor by what others see of the budgets, until one of them is spent.
async fn nobody_is_told_apart_at_a_spent_address(store: Store) {
    let (rig, instance, shared) = at_a_spent_address(store, FOUR_OF_AN_ADDRESS).await;
    let mut told = Vec::new();
    for phone in [&owned(&rig), &phone()] {
        let asked = rig.owners.asked.load(Ordering::SeqCst);
        let (writes, rows) = (store_writes(&rig), codes(&instance).await);
        let first = short(solved_from(&instance, phone, &shared).await);
        settled(&instance).await;
        told.push((
            first,
            rig.owners.asked.load(Ordering::SeqCst) - asked,
            instance.counted("sms-phone", phone.as_str().as_bytes()).await,
            store_writes(&rig).zip(writes).map(|(now, then)| [now[0] - then[0], now[1] - then[1]]),
            codes(&instance).await - rows,
        ));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(rig.sent().len(), 5);
}

/// Otherwise one address would make codes short for everybody.
async fn what_was_withheld_at_a_spent_address_spends_nothing(store: Store) {
    let (rig, instance, shared) = at_a_spent_address(store, FOUR_OF_AN_ADDRESS).await;
    for _ in 0..20 {
        short(solved_from(&instance, &phone(), &shared).await);
    }
    for _ in 0..4 {
        assert!(!sent(instance.send(&phone()).await).short);
    }
    assert_eq!(rig.sent().len(), 8);
    settled(&instance).await;
    // Nor does it stay as long as what was sent: a stranger causes as many as they solve challenges.
    let purge = async || {
        instance.codes.purge(instance.live(), 100).await.unwrap();
        instance.ledger().await.iter().filter(|entry| entry.state == MessageState::Withheld).count()
    };
    rig.advance(24 * HOUR);
    assert_eq!(purge().await, 20, "they count to their numbers until now");
    rig.advance(MICRO);
    assert_eq!((purge().await, instance.ledger().await.len()), (0, 8));
}

/// Everybody can see a brake trip, and only some of these were sent.
async fn what_is_asked_for_at_a_spent_address_weighs_nothing_at_a_brake(store: Store) {
    let toml = "[sms.brake]\nmin_sent = 5\n[limits.sms-network]\nrules = []
        [limits.sms-address]\nrules = [{ max = 1, window = '1h' }]\n";
    let rig = Rig::new(store, toml).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for n in 0..12 {
        let shared = vec![1, 2, 3, n, 5, 6, 0, 0];
        sent(instance.send_from(&phone(), &shared).await);
        let mine = neighbour(&crowd);
        rig.owners.has(&mine, Micros(0));
        short(solved_from(&instance, &mine, &shared).await);
    }
    settled(&instance).await;
    assert_eq!(rig.sent().len(), 24);
    assert!(!sent(instance.send(&neighbour(&crowd)).await).short, "there is no brake");
}

async fn the_windows_of_a_spent_address_come_back_from_the_ledger(store: Store) {
    let (rig, instance, shared) = at_a_spent_address(store, FOUR_OF_AN_ADDRESS).await;
    for phone in [&owned(&rig), &owned(&rig), &phone()] {
        short(solved_from(&instance, phone, &shared).await);
    }
    settled(&instance).await;
    let instance = after_a_loss(&rig, instance, store).await;
    assert!(!sent(instance.send(&phone()).await).short);
    assert_eq!(instance.counted("sms-total", b"everyone").await, 7);
    assert_eq!(instance.counted("sms-address", &shared).await, 5, "all that its rule counts");
}
