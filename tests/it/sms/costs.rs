//! What countries cost: one asks for challenges if its codes do not come back, and a budget in money is told and kept.

use gatehouse::audit::{Action, EventFilter};
use gatehouse::clock::Micros;
use gatehouse::codes::*;
use gatehouse::message::*;
use gatehouse::sms::*;

use super::brake_scopes::{relayed, verified};
use super::braking::{NO_BUDGETS, challenged, settled, solved};
use super::rig::*;

on_each_store! {
    a_country_whose_codes_do_not_come_back_asks_for_challenges,
    a_country_that_is_watched_asks_nobody,
    a_good_day_gives_a_country_room,
    one_network_trips_no_country,
    a_budget_is_told_at_half_and_at_four_fifths_and_refuses_nobody,
    a_budget_that_blocks_keeps_a_fifth_for_accounts,
    a_country_takes_a_quarter_of_the_budget,
    where_strangers_cannot_register_nobody_sees_what_accounts_have_cost,
    a_burst_past_the_whole_leaves_accounts_their_fifth,
    programs_and_pages_leave_each_other_a_fifth,
    what_was_refused_or_withheld_costs_nothing,
    a_program_asks_for_a_country_apart,
}

const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);
/// No range is judged; a country is from ten codes on.
const COUNTRY: &str = "[sms.brake]\nmin_sent_range = 1000\nmin_sent = 1000\nmin_sent_country = 10\n";
const BUDGET: &str = "[sms]\nbudget = '1 EUR / day'\nprice = 0.1\n[sms.brake]\nenabled = false\n";
const KEPT: &str =
    "[sms]\nbudget = '1 EUR / day'\nbudget_blocks = true\nprice = 0.1\n[sms.brake]\nenabled = false\n";

async fn rig(store: Store, toml: &str) -> (Rig, Instance) {
    let rig = Rig::new(store, &format!("{NO_BUDGETS}{toml}")).await;
    let instance = rig.instance().await;
    (rig, instance)
}

fn german(n: usize) -> Phone {
    number_of(&format!("+49151{:08}", 10_000_000 + n * 1_000_003))
}

fn french(n: usize) -> Phone {
    number_of(&format!("+336{:08}", 10_000_000 + n * 1_000_003))
}

async fn a_country_whose_codes_do_not_come_back_asks_for_challenges(store: Store) {
    let (rig, instance) = rig(store, COUNTRY).await;
    for n in 0..10 {
        sent(instance.send(&german(n)).await);
    }
    instance.codes.watch_costs(instance.live()).await;
    assert_eq!(challenged(instance.send(&german(10)).await).0, "sms-brake");
    assert!(!sent(solved(&instance, &german(10)).await).short, "a challenge is all that it asks");
    sent(instance.send(&french(0)).await);
    instance.codes.watch_costs(instance.live()).await;
    let countries = instance.codes.countries(instance.live()).await.unwrap();
    let shown: Vec<_> = countries
        .iter()
        .map(|it| (&*it.country, it.sent, it.entered, it.unreturned, it.asks_from, it.asks))
        .collect();
    assert_eq!(shown, [("DE", 11, 0, 10, 10, true), ("FR", 1, 0, 1, 10, false)]);
    rig.advance(DAY);
    instance.codes.watch_costs(instance.live()).await;
    sent(instance.send(&german(11)).await);
}

async fn a_country_that_is_watched_asks_nobody(store: Store) {
    let (_rig, instance) = rig(store, &format!("{COUNTRY}[sms.country.DE]\nmode = 'monitor'\n")).await;
    for n in 0..15 {
        sent(instance.send(&german(n)).await);
        instance.codes.watch_costs(instance.live()).await;
    }
    let countries = instance.codes.countries(instance.live()).await.unwrap();
    assert_eq!((countries[0].unreturned, countries[0].asks), (15, false));
}

async fn a_good_day_gives_a_country_room(store: Store) {
    let (rig, instance) = rig(store, COUNTRY).await;
    for n in 0..30 {
        sent(instance.send(&german(n)).await);
        assert!(matches!(instance.check(&german(n), &rig.last_code()).await, CheckOutcome::Right(_)));
    }
    rig.advance(DAY + MINUTE);
    for n in 30..45 {
        instance.codes.watch_costs(instance.live()).await;
        sent(instance.send(&german(n)).await);
    }
    instance.codes.watch_costs(instance.live()).await;
    assert_eq!(challenged(instance.send(&german(45)).await).0, "sms-brake", "half of thirty");
}

async fn one_network_trips_no_country(store: Store) {
    let (_rig, instance) = rig(store, COUNTRY).await;
    let asker = address();
    for n in 0..30 {
        sent(instance.ask(ask(&german(n), &asker)).await);
    }
    instance.codes.watch_costs(instance.live()).await;
    let countries = instance.codes.countries(instance.live()).await.unwrap();
    assert_eq!((countries[0].sent, countries[0].unreturned), (30, 2));
}

async fn told(instance: &Instance) -> Vec<String> {
    instance.audit.flush().await;
    let filter = EventFilter { actions: vec![Action::Budget], ..EventFilter::default() };
    let page = instance.audit.log().page(&filter, None, 10).await.unwrap();
    let named = page.entries.into_iter().map(|entry| {
        assert_eq!(entry.limit.as_deref(), Some("sms-budget"));
        entry.name.unwrap()
    });
    let mut names: Vec<_> = named.collect();
    names.sort();
    names
}

async fn spend(instance: &Instance, range: std::ops::Range<usize>, to: impl Fn(usize) -> Phone) {
    for n in range {
        sent(instance.send(&to(n)).await);
        instance.codes.watch_costs(instance.live()).await;
    }
}

async fn a_budget_is_told_at_half_and_at_four_fifths_and_refuses_nobody(store: Store) {
    let (_rig, instance) = rig(store, BUDGET).await;
    spend(&instance, 0..4, german).await;
    assert!(told(&instance).await.is_empty());
    spend(&instance, 4..5, german).await;
    assert_eq!(told(&instance).await, ["half"]);
    spend(&instance, 5..8, german).await;
    assert_eq!(told(&instance).await, ["half", "short"]);
    spend(&instance, 8..12, german).await;
    assert_eq!(told(&instance).await.len(), 2, "told once");
    let spent = instance.codes.money_spent(instance.live()).unwrap();
    assert_eq!(spent.spent.to_string(), "1.20");
}

/// Numbers of five countries in turn, so that none takes a quarter early.
fn somewhere(n: usize) -> Phone {
    match n % 5 {
        0 => german(n),
        1 => french(n),
        2 => number_of(&format!("+8613{:09}", 800_000_000 + n)),
        3 => number_of(&format!("+447400{:06}", 100_000 + n)),
        _ => number_of(&format!("+346{:08}", 12_000_000 + n)),
    }
}

async fn a_budget_that_blocks_keeps_a_fifth_for_accounts(store: Store) {
    let (rig, instance) = rig(store, KEPT).await;
    let owner = german(500);
    rig.owners.has(&owner, Micros(0));
    spend(&instance, 0..6, somewhere).await;
    let stranger = somewhere(9);
    assert_eq!(challenged(instance.send(&stranger).await).0, "sms-budget");
    let register = |phone: &Phone| RequestedMessage {
        purpose: Purpose::Register.into(),
        solved: true,
        ..ask(phone, &address())
    };
    assert_eq!(throttled(instance.ask(register(&stranger)).await).0, "sms-budget");
    let before = rig.sent().len();
    assert!(sent(solved(&instance, &stranger).await).short);
    assert!(sent(solved(&instance, &owner).await).short);
    settled(&instance).await;
    assert_eq!(rig.sent().len(), before + 1, "the account's alone");
    for n in 501..504 {
        let another = german(n);
        rig.owners.has(&another, Micros(0));
        assert!(sent(solved(&instance, &another).await).short);
        settled(&instance).await;
        instance.codes.watch_costs(instance.live()).await;
    }
    let another = german(504);
    rig.owners.has(&another, Micros(0));
    assert!(sent(solved(&instance, &another).await).short, "answered as ever");
    settled(&instance).await;
    assert_eq!(rig.sent().len(), before + 4, "nothing is left");
    rig.advance(DAY + SECOND);
    instance.codes.watch_costs(instance.live()).await;
    assert!(!sent(instance.send(&stranger).await).short);
}

async fn a_country_takes_a_quarter_of_the_budget(store: Store) {
    let (_rig, instance) = rig(store, KEPT).await;
    spend(&instance, 0..3, german).await;
    assert_eq!(challenged(instance.send(&german(3)).await).0, "sms-budget");
    assert!(sent(solved(&instance, &german(3)).await).short);
    spend(&instance, 0..2, french).await;
}

async fn programs_and_pages_leave_each_other_a_fifth(store: Store) {
    let (_rig, instance) = rig(store, KEPT).await;
    spend(&instance, 0..6, somewhere).await;
    assert_eq!(challenged(instance.send(&somewhere(6)).await).0, "sms-budget");
    for n in 6..8 {
        sent(verified(&instance, "shop", &somewhere(n), false).await);
        instance.codes.watch_costs(instance.live()).await;
    }
    assert_eq!(throttled(verified(&instance, "shop", &somewhere(8), true).await).0, "sms-budget");
}

async fn what_was_refused_or_withheld_costs_nothing(store: Store) {
    let (rig, instance) = rig(store, KEPT).await;
    rig.mood(Mood::Refuses);
    for n in 0..10 {
        assert!(!is_sent(&instance.send(&german(n)).await));
    }
    rig.mood(Mood::Accepts);
    spend(&instance, 0..6, somewhere).await;
    for n in 20..30 {
        assert!(sent(solved(&instance, &french(n)).await).short);
    }
    settled(&instance).await;
    instance.codes.watch_costs(instance.live()).await;
    assert_eq!(instance.codes.money_spent(instance.live()).unwrap().spent.to_string(), "0.60");
}

async fn a_program_asks_for_a_country_apart(store: Store) {
    let (_rig, instance) = rig(store, COUNTRY).await;
    for n in 0..10 {
        sent(instance.send(&german(n)).await);
    }
    instance.codes.watch_costs(instance.live()).await;
    assert_eq!(challenged(instance.send(&german(10)).await).0, "sms-brake");
    for n in 20..30 {
        sent(verified(&instance, "shop", &german(n), false).await);
    }
    instance.codes.watch_costs(instance.live()).await;
    assert_eq!(challenged(verified(&instance, "shop", &german(30), false).await).0, "sms-brake");
    for n in 40..52 {
        sent(relayed(&instance, &german(n), &n.to_string()).await);
    }
    instance.codes.watch_costs(instance.live()).await;
    sent(relayed(&instance, &german(52), "52").await);
}

async fn where_strangers_cannot_register_nobody_sees_what_accounts_have_cost(store: Store) {
    let (rig, instance) = rig(store, &format!("{KEPT}[registration]\nmode = 'closed'\n")).await;
    let owner = |n: usize| {
        rig.owners.has(&german(n), Micros(0));
        german(n)
    };
    let answer = async |phone: &Phone| {
        let answer = sent(instance.send(phone).await);
        settled(&instance).await;
        instance.codes.watch_costs(instance.live()).await;
        answer.short
    };
    for n in 0..10 {
        assert!(answer(&owner(n)).await, "{n}");
        assert!(answer(&french(n)).await, "a stranger {n}");
    }
    assert_eq!(rig.sent().len(), 10);
    for n in 10..13 {
        assert!(answer(&owner(n)).await, "nothing is left {n}");
        assert!(answer(&french(n)).await, "a stranger {n}");
    }
    assert_eq!(rig.sent().len(), 10);
}

async fn a_burst_past_the_whole_leaves_accounts_their_fifth(store: Store) {
    let (rig, instance) = rig(store, KEPT).await;
    let burst = (0..40).map(|n| {
        let instance = instance.clone();
        async move { is_sent(&instance.send(&somewhere(n)).await) }
    });
    assert!(all(burst.collect::<Vec<_>>().into_iter()).await.into_iter().all(|sent| sent));
    instance.codes.watch_costs(instance.live()).await;
    assert_eq!(challenged(instance.send(&somewhere(41)).await).0, "sms-budget");
    let owner = german(500);
    rig.owners.has(&owner, Micros(0));
    assert!(sent(solved(&instance, &owner).await).short);
    settled(&instance).await;
    assert_eq!(rig.sent_to(&owner), 1);
}
