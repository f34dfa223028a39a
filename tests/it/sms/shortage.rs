//! When codes are short: what strangers cannot spend, who gets a message, and that nothing reveals who that
//! is.

use std::sync::atomic::Ordering;

use super::rig::*;
use gatehouse::clock::Micros;
use gatehouse::codes::*;
use gatehouse::db::Db;
use gatehouse::denied::Denied;
use gatehouse::message::*;
use gatehouse::sms::*;

/// Six are open to everybody at our pages, two more to programs, and two are reserved.
const TEN_IN_ALL: &str = "[limits.sms-phone]\nrules = [{ max = 2, window = '1h' }]
    [limits.sms-prefix]\nrules = []
    [limits.sms-total]\nrules = [{ max = 10, window = '24h' }]\n";
const NOTHING_BUT_ADDRESSES: &str = "[limits.sms-network]\nrules = []\n[limits.sms-prefix]\nrules = []
    [limits.sms-total]\nrules = [{ max = 100, window = '24h' }]
    [limits.sms-address]\nrules = [{ max = 5, window = '1h' }]\n";

on_each_store! {
    what_is_kept_goes_to_numbers_of_accounts,
    nobody_is_told_apart_in_a_shortage,
    strangers_who_solve_challenges_spend_nothing_that_is_kept,
    past_the_whole_nobody_is_sent_to_and_everybody_is_told_the_same,
    whoever_registers_is_refused_alike,
    an_owner_at_a_spent_address_gets_a_code,
    an_owner_in_a_spent_network_gets_a_code,
    an_owner_of_a_spent_prefix_gets_a_code,
    a_number_is_asked_for_at_most_so_often_in_a_shortage_too,
    in_a_shortage_the_same_request_is_the_same_message,
    guesses_are_answered_alike_in_a_shortage,
    a_gateway_tells_nothing_in_a_shortage,
    a_look_up_that_fails_fails_alike,
    two_instances_share_what_is_kept,
    the_windows_of_a_shortage_come_back_from_the_ledger,
    levels_are_recorded_once,
}

pub(super) async fn spent(toml: &str, open: usize, store: Store) -> (Rig, Instance) {
    let rig = Rig::new(store, toml).await;
    let instance = rig.instance().await;
    for _ in 0..open {
        sent(instance.send(&phone()).await);
    }
    (rig, instance)
}

/// A number that has had an account for a long time.
pub(super) fn owned(rig: &Rig) -> Phone {
    let phone = phone();
    rig.owners.has(&phone, Micros(0));
    phone
}

async fn solved(instance: &Instance, phone: &Phone) -> SendOutcome {
    solved_from(instance, phone, &address()).await
}

pub(super) async fn solved_from(instance: &Instance, phone: &Phone, address: &[u8]) -> SendOutcome {
    instance.ask(RequestedMessage { solved: true, ..ask(phone, address) }).await
}

#[track_caller]
pub(super) fn short(sending: SendOutcome) -> SendReceipt {
    let told = sent(sending);
    assert!(told.short && !told.confirmed, "{told:?}");
    told
}

/// The number of writes to the window logs so far, if the store counts them.
pub(super) fn store_writes(rig: &Rig) -> Option<[u64; 2]> {
    rig.redis.as_ref().map(|redis| ["zadd", "zrem"].map(|command| redis.calls(command)))
}

pub(super) async fn codes(instance: &Instance) -> i64 {
    const SQL: &str = "SELECT COUNT(*) FROM sms_codes";
    match &instance.db {
        Db::Sqlite(pools) => sqlx::query_scalar(SQL).fetch_one(&pools.all).await.unwrap(),
        Db::Postgres(pools) => sqlx::query_scalar(SQL).fetch_one(&pools.all).await.unwrap(),
    }
}

/// The same with its windows lost: a restarted process, or an emptied Redis.
pub(super) async fn after_a_loss(rig: &Rig, instance: Instance, store: Store) -> Instance {
    match store {
        Store::Memory => rig.instance().await,
        Store::Redis => {
            rig.flush();
            instance
        }
    }
}

/// Waits until every message is settled.
pub(super) async fn settled(instance: &Instance) {
    let pending = |entry: &LedgerEntry| entry.state == MessageState::Pending;
    until(async || !instance.ledger().await.iter().any(pending)).await;
}

async fn states(instance: &Instance) -> Vec<MessageState> {
    settled(instance).await;
    instance.ledger().await.iter().map(|entry| entry.state).collect()
}

async fn what_is_kept_goes_to_numbers_of_accounts(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let (mine, nobodys) = (owned(&rig), phone());
    let asked = instance.send(&mine).await;
    assert!(
        matches!(asked, SendOutcome::Denied(Denied::Challenged { ref limit, .. }) if limit == "sms-total"),
        "{asked:?}"
    );
    let told = short(solved(&instance, &mine).await);
    assert_eq!(short(solved(&instance, &nobodys).await), told);
    settled(&instance).await;
    assert_eq!((rig.sent_to(&mine), rig.sent_to(&nobodys)), (1, 0));
    assert!(matches!(instance.check(&mine, &rig.last_code()).await, CheckOutcome::Right(_)));
    let states = states(&instance).await;
    let count = |state| states.iter().filter(|other| **other == state).count();
    assert_eq!((count(MessageState::Accepted), count(MessageState::Withheld)), (7, 1));
}

async fn nobody_is_told_apart_in_a_shortage(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let (asker, known, unknown) = (address(), owned(&rig), phone());
    let mut told = Vec::new();
    for phone in [&known, &unknown] {
        let asked = rig.owners.asked.load(Ordering::SeqCst);
        let before = instance.counted("sms-total", b"everyone").await;
        let (writes, codes) = (store_writes(&rig), codes(&instance).await);
        let first = short(solved_from(&instance, phone, &asker).await);
        settled(&instance).await;
        told.push((
            first,
            rig.owners.asked.load(Ordering::SeqCst) - asked,
            instance.counted("sms-total", b"everyone").await - before,
            instance.counted("sms-phone", phone.as_str().as_bytes()).await,
            store_writes(&rig).zip(writes).map(|(now, then)| [now[0] - then[0], now[1] - then[1]]),
            self::codes(&instance).await - codes,
        ));
        // What anybody else can see of what is spent.
        let other = super::rig::phone();
        let refused =
            instance.ask(RequestedMessage { purpose: Purpose::Register.into(), ..ask(&other, &asker) }).await;
        assert_eq!(throttled(refused), ("sms-total".to_owned(), 24 * HOUR));
    }
    assert_eq!(told[0], told[1]);
    assert_eq!(instance.counted("sms-address", &asker).await, 2, "both count for whoever asked");
}

async fn strangers_who_solve_challenges_spend_nothing_that_is_kept(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    for _ in 0..30 {
        short(solved(&instance, &phone()).await);
    }
    let (one, other) = (owned(&rig), owned(&rig));
    short(solved(&instance, &one).await);
    short(solved(&instance, &other).await);
    settled(&instance).await;
    assert_eq!((rig.sent_to(&one), rig.sent_to(&other), rig.sent().len()), (1, 1, 8));
}

/// A refusal would show how many of the requested numbers have accounts.
async fn past_the_whole_nobody_is_sent_to_and_everybody_is_told_the_same(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    for _ in 0..2 {
        short(solved(&instance, &owned(&rig)).await);
    }
    let told = short(solved(&instance, &owned(&rig)).await);
    assert_eq!(short(solved(&instance, &phone()).await), told);
    settled(&instance).await;
    assert_eq!(rig.sent().len(), 8, "never more than the owner is ready to pay for");
    rig.advance(24 * HOUR);
    assert!(!sent(instance.send(&phone()).await).short);
}

async fn whoever_registers_is_refused_alike(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let asker = address();
    for purpose in [Purpose::Register, Purpose::Verify] {
        for solved in [false, true] {
            for phone in [&owned(&rig), &phone()] {
                let told = instance
                    .ask(RequestedMessage { purpose: purpose.into(), solved, ..ask(phone, &asker) })
                    .await;
                assert_eq!(throttled(told), ("sms-total".to_owned(), 24 * HOUR), "{purpose:?}");
            }
        }
    }
    let (mine, nobodys) = (owned(&rig), phone());
    for phone in [&mine, &nobodys] {
        short(
            instance
                .ask(RequestedMessage { purpose: Purpose::Reset.into(), solved: true, ..ask(phone, &asker) })
                .await,
        );
    }
    settled(&instance).await;
    assert_eq!((rig.sent_to(&mine), rig.sent_to(&nobodys)), (1, 0));
}

async fn an_owner_at_a_spent_address_gets_a_code(store: Store) {
    let rig = Rig::new(store, NOTHING_BUT_ADDRESSES).await;
    let (instance, shared) = (rig.instance().await, address());
    for _ in 0..4 {
        sent(instance.send_from(&phone(), &shared).await);
    }
    for _ in 0..10 {
        short(solved_from(&instance, &phone(), &shared).await);
    }
    for _ in 0..6 {
        let mine = owned(&rig);
        short(solved_from(&instance, &mine, &shared).await);
        settled(&instance).await;
        assert_eq!(rig.sent_to(&mine), 1, "addresses challenge; they keep no owner out");
    }
}

async fn an_owner_in_a_spent_network_gets_a_code(store: Store) {
    let toml =
        "[limits.sms-prefix]\nrules = []\n[limits.sms-network]\nrules = [{ max = 5, window = '1h' }]\n";
    let rig = Rig::new(store, toml).await;
    let instance = rig.instance().await;
    let address = |n: u8| vec![1, 2, 3, 4, 5, 6, 0, n];
    for n in 0..4 {
        sent(instance.send_from(&phone(), &address(n)).await);
    }
    let mine = owned(&rig);
    for phone in [&phone(), &mine] {
        short(solved_from(&instance, phone, &address(9)).await);
    }
    settled(&instance).await;
    assert_eq!((rig.sent_to(&mine), rig.sent().len()), (1, 5));
}

async fn an_owner_of_a_spent_prefix_gets_a_code(store: Store) {
    let toml = "[sms.brake]\nenabled = false\n[limits.sms-prefix]\nrules = [{ max = 10, window = '24h' }]\n";
    let rig = Rig::new(store, toml).await;
    let (instance, crowd) = (rig.instance().await, phone());
    for _ in 0..8 {
        sent(instance.send(&neighbour(&crowd)).await);
    }
    let mine = neighbour(&crowd);
    rig.owners.has(&mine, Micros(0));
    for phone in [&neighbour(&crowd), &mine, &neighbour(&crowd)] {
        short(solved(&instance, phone).await);
    }
    settled(&instance).await;
    assert_eq!((rig.sent_to(&mine), rig.sent().len()), (1, 9));
    assert!(!sent(instance.send(&phone()).await).short, "elsewhere there is enough");
}

async fn a_number_is_asked_for_at_most_so_often_in_a_shortage_too(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    for phone in [owned(&rig), phone()] {
        for count in 0..4 {
            let told = solved(&instance, &phone).await;
            if count < 2 {
                short(told);
            } else {
                assert_eq!(throttled(told), ("sms-phone".to_owned(), HOUR));
            }
        }
    }
    settled(&instance).await;
    assert_eq!(instance.ledger().await.len(), 10);
}

async fn in_a_shortage_the_same_request_is_the_same_message(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let asker = address();
    for phone in [owned(&rig), phone()] {
        rig.mood(Mood::Hangs);
        let named = RequestedMessage { solved: true, once: Some("click".to_owned()), ..ask(&phone, &asker) };
        let first = short(instance.ask(named.clone()).await);
        assert_eq!(short(instance.ask(named.clone()).await), first, "while it is handed over");
        rig.gateway.let_go.add_permits(1);
        rig.mood(Mood::Accepts);
        settled(&instance).await;
        assert_eq!(
            short(instance.ask(RequestedMessage { solved: false, ..named.clone() }).await),
            first,
            "and after it"
        );
    }
    assert_eq!(instance.ledger().await.len(), 8);
    assert_eq!(rig.sent().len(), 7);
}

async fn guesses_are_answered_alike_in_a_shortage(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let (known, unknown) = (owned(&rig), phone());
    let mut told = Vec::new();
    for phone in [&known, &unknown] {
        short(solved(&instance, phone).await);
        settled(&instance).await;
        let code = rig.last_code();
        let mut answers = Vec::new();
        for _ in 0..7 {
            answers.push(match instance.check(phone, &other_than(&code)).await {
                CheckOutcome::Wrong => "wrong".to_owned(),
                CheckOutcome::Denied(Denied::Throttled { limit, .. }) => limit.into_owned(),
                other => panic!("{other:?}"),
            });
        }
        answers.push(instance.counted("sms-guess", phone.as_str().as_bytes()).await.to_string());
        told.push(answers);
    }
    assert_eq!(told[0], told[1]);
}

/// Nobody waits for the gateway or gets a refund, whether a message is sent or not.
async fn a_gateway_tells_nothing_in_a_shortage(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let mut told = Vec::new();
    for (mood, phone) in [(Mood::Hangs, owned(&rig)), (Mood::Refuses, owned(&rig)), (Mood::Accepts, phone())]
    {
        rig.mood(mood);
        let first = short(solved(&instance, &phone).await);
        rig.gateway.let_go.add_permits(usize::from(mood == Mood::Hangs));
        settled(&instance).await;
        let second = solved(&instance, &phone).await;
        rig.gateway.let_go.add_permits(1);
        settled(&instance).await;
        let third = solved(&instance, &phone).await;
        told.push((first, second, third));
    }
    assert!(told.iter().all(|answers| *answers == told[0]), "{told:?}");
    assert!(!states(&instance).await.contains(&MessageState::Refused));
}

async fn a_look_up_that_fails_fails_alike(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    rig.owners.out.store(true, Ordering::SeqCst);
    let asker = address();
    for phone in [owned(&rig), phone()] {
        let asked = RequestedMessage { solved: true, ..ask(&phone, &asker) };
        assert!(instance.codes.send(instance.live(), asked).await.is_err());
        assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 0, "it is given back");
    }
    assert_eq!((instance.ledger().await.len(), rig.sent().len()), (6, 6));
    rig.owners.out.store(false, Ordering::SeqCst);
    short(solved(&instance, &owned(&rig)).await);
}

async fn two_instances_share_what_is_kept(store: Store) {
    if store == Store::Memory {
        return;
    }
    let (rig, one) = spent(TEN_IN_ALL, 6, store).await;
    let other = rig.instance().await;
    let asks = (0..20).map(|n| {
        let (instance, phone) = (if n % 2 == 0 { one.clone() } else { other.clone() }, owned(&rig));
        async move { short(solved(&instance, &phone).await) }
    });
    all(asks.collect::<Vec<_>>().into_iter()).await;
    settled(&one).await;
    assert_eq!(rig.sent().len(), 8, "two of twenty at once");
}

async fn the_windows_of_a_shortage_come_back_from_the_ledger(store: Store) {
    let (rig, instance) = spent(TEN_IN_ALL, 6, store).await;
    let (mine, nobodys, asker) = (owned(&rig), phone(), address());
    for phone in [&mine, &nobodys] {
        short(solved_from(&instance, phone, &asker).await);
    }
    settled(&instance).await;
    let instance = after_a_loss(&rig, instance, store).await;
    // The last reserved message, and one that is not sent.
    for phone in [owned(&rig), owned(&rig), phone()] {
        short(solved(&instance, &phone).await);
    }
    settled(&instance).await;
    assert_eq!(rig.sent().len(), 8);
    assert_eq!(instance.counted("sms-total", b"everyone").await, 6);
    assert_eq!(instance.counted("sms-address", &asker).await, 2);
    for phone in [&mine, &nobodys] {
        assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 1);
    }
}

async fn levels_are_recorded_once(store: Store) {
    let (_rig, instance) = spent(TEN_IN_ALL, 4, store).await;
    instance.codes.watch_level(instance.live()).await;
    for _ in 0..2 {
        sent(instance.send(&phone()).await);
        instance.codes.watch_level(instance.live()).await;
    }
    let spent = instance.codes.spent(instance.live()).await.unwrap().unwrap();
    assert_eq!((spent.count, spent.pages, spent.max, spent.level()), (6, 6, 10, BudgetLevel::Short));
    let rows = async || {
        instance.audit.flush().await;
        let filter = gatehouse::audit::EventFilter {
            actions: vec![gatehouse::audit::Action::Budget],
            ..gatehouse::audit::EventFilter::default()
        };
        let page = instance.audit.log().page(&filter, None, 10).await.unwrap();
        let mut names: Vec<_> = page.entries.into_iter().filter_map(|entry| entry.name).collect();
        names.sort();
        names
    };
    assert_eq!(rows().await, ["half", "short"]);
}
