//! A gateway that is slow: how many messages may be in flight there at once, and who has some of them whatever strangers
//! do.

use tokio::task::{JoinHandle, JoinSet};
use wiremock::matchers::{any, body_string_contains};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::http::NUMBER;
use super::rig::*;
use super::shortage::{owned, settled, short, solved_from};
use crate::support::app::TestApp;
use crate::verify;
use gatehouse::codes::*;
use gatehouse::denied::Denied;
use gatehouse::message::*;
use gatehouse::sms::*;

const NO_NUMBER_RULES: &str = "[limits.sms-phone]\nrules = []\n[limits.sms-address]\nrules = []
    [limits.sms-network]\nrules = []\n[sms.brake]\nenabled = false\n";
/// What is open to everybody, at our pages and at each program; and what is kept for numbers of accounts.
const OPEN: usize = 192;
const KEPT: usize = 64;

on_each_store! {
    no_more_than_so_many_messages_are_under_way,
    strangers_in_every_slot_leave_some_to_owners_and_to_programs,
    nobody_is_told_apart_when_every_slot_is_taken,
    a_crowd_at_one_address_leaves_slots_to_others,
    a_program_fills_its_own_slots_alone,
}

/// Requests that stay in flight until the gateway lets them go, a few at a time, so that the database is not what is full.
async fn in_flight(
    rig: &Rig,
    count: usize,
    ask: impl AsyncFn() -> (Instance, RequestedMessage),
) -> Vec<JoinHandle<SendOutcome>> {
    rig.mood(Mood::Hangs);
    let (mut stuck, before) = (Vec::new(), rig.sent().len());
    while stuck.len() < count {
        for _ in 0..16.min(count - stuck.len()) {
            let (instance, asked) = ask().await;
            stuck.push(tokio::spawn(async move { instance.ask(asked).await }));
        }
        until(async || rig.sent().len() >= before + stuck.len()).await;
    }
    stuck
}

async fn strangers(rig: &Rig, instance: &Instance, count: usize) -> Vec<JoinHandle<SendOutcome>> {
    in_flight(rig, count, async || (instance.clone(), ask(&phone(), &address()))).await
}

async fn at_shop(rig: &Rig, instance: &Instance, count: usize) -> Vec<JoinHandle<SendOutcome>> {
    in_flight(rig, count, async || (instance.clone(), of_shop(&phone()))).await
}

fn of_shop(phone: &Phone) -> RequestedMessage {
    let purpose = ProgramPurpose::new("shop", "pay").unwrap();
    RequestedMessage { purpose: purpose.into(), ..ask(phone, &address()) }
}

async fn all_end(rig: &Rig, stuck: Vec<JoinHandle<SendOutcome>>) {
    rig.gateway.let_go.add_permits(10_000);
    for stuck in stuck {
        sent(stuck.await.unwrap());
    }
}

#[track_caller]
fn unavailable(sending: SendOutcome) {
    assert!(matches!(sending, SendOutcome::Denied(Denied::Unavailable { .. })), "{sending:?}");
}

async fn no_more_than_so_many_messages_are_under_way(store: Store) {
    let rig = Rig::new(store, NO_NUMBER_RULES).await;
    let instance = rig.instance().await;
    let stuck = strangers(&rig, &instance, OPEN).await;
    for purpose in [Purpose::Register, Purpose::Verify] {
        let asked = RequestedMessage { purpose: purpose.into(), ..ask(&phone(), &address()) };
        unavailable(instance.ask(asked.clone()).await);
        unavailable(instance.ask(RequestedMessage { solved: true, ..asked }).await);
    }
    assert_eq!(instance.counted("sms-total", b"everyone").await as usize, OPEN, "given back");
    all_end(&rig, stuck).await;
    sent(instance.send(&phone()).await);
}

async fn strangers_in_every_slot_leave_some_to_owners_and_to_programs(store: Store) {
    let rig = Rig::new(store, NO_NUMBER_RULES).await;
    let instance = rig.instance().await;
    let mut stuck = strangers(&rig, &instance, OPEN).await;
    // A challenge first, and then as many as are kept, whatever strangers with solved ones do.
    let mut told = Vec::new();
    for count in 0..KEPT + 4 {
        let mine = owned(&rig);
        if count == 0 {
            let asked = instance.send(&mine).await;
            let busy = Denied::no_room(false, 5 * SECOND);
            assert_eq!(asked, SendOutcome::Denied(busy.clone()));
            assert_eq!(instance.send(&phone()).await, SendOutcome::Denied(busy));
        }
        told.push(short(solved_from(&instance, &phone(), &address()).await));
        told.push(short(solved_from(&instance, &mine, &address()).await));
        let reached = count < KEPT;
        if reached {
            until(async || rig.sent_to(&mine) == 1).await;
        }
        assert_eq!(rig.sent_to(&mine), usize::from(reached), "{count}");
    }
    assert!(told.iter().all(|receipt| *receipt == told[0]));
    assert_eq!(rig.sent().len(), OPEN + KEPT);
    stuck.extend(at_shop(&rig, &instance, OPEN).await);
    assert_eq!(rig.sent().len(), OPEN + KEPT + OPEN);
    all_end(&rig, stuck).await;
    settled(&instance).await;
}

/// Neither by the answers, nor by what is left for others meanwhile and afterwards.
async fn nobody_is_told_apart_when_every_slot_is_taken(store: Store) {
    let rig = Rig::new(store, NO_NUMBER_RULES).await;
    let instance = rig.instance().await;
    let mut told = Vec::new();
    for mine in [true, false] {
        let stuck = strangers(&rig, &instance, OPEN).await;
        let phone = if mine { owned(&rig) } else { phone() };
        let before = rig.sent().len();
        let asked = instance.send(&phone).await;
        let first = short(solved_from(&instance, &phone, &address()).await);
        if mine {
            until(async || rig.sent_to(&phone) == 1).await;
        }
        assert_eq!(rig.sent().len() - before, usize::from(mine));
        unavailable(
            instance
                .ask(RequestedMessage { purpose: Purpose::Register.into(), ..ask(&phone, &address()) })
                .await,
        );
        all_end(&rig, stuck).await;
        settled(&instance).await;
        // As many as before are open.
        rig.gateway.sent.lock().unwrap().clear();
        rig.gateway.let_go.forget_permits(100_000);
        let again = strangers(&rig, &instance, OPEN).await;
        let more = instance.send(&super::rig::phone()).await;
        all_end(&rig, again).await;
        rig.gateway.sent.lock().unwrap().clear();
        rig.gateway.let_go.forget_permits(100_000);
        told.push((asked, first, more));
    }
    assert_eq!(told[0], told[1]);
}

/// Whoever shares that address and has an account is sent to.
async fn a_crowd_at_one_address_leaves_slots_to_others(store: Store) {
    let rig = Rig::new(store, NO_NUMBER_RULES).await;
    let (instance, shared) = (rig.instance().await, address());
    let stuck = in_flight(&rig, OPEN / 3, async || (instance.clone(), ask(&phone(), &shared))).await;
    let there = instance.send_from(&phone(), &shared).await;
    assert_eq!(there, SendOutcome::Denied(Denied::no_room(false, 5 * SECOND)));
    let mine = owned(&rig);
    short(solved_from(&instance, &mine, &shared).await);
    until(async || rig.sent_to(&mine) == 1).await;
    let elsewhere = strangers(&rig, &instance, 16).await;
    all_end(&rig, stuck).await;
    all_end(&rig, elsewhere).await;
}

async fn a_program_fills_its_own_slots_alone(store: Store) {
    let rig = Rig::new(store, NO_NUMBER_RULES).await;
    let instance = rig.instance().await;
    let stuck = at_shop(&rig, &instance, OPEN).await;
    unavailable(instance.ask(of_shop(&phone())).await);
    let mail = ProgramPurpose::new("mail", "login").unwrap();
    let mail = RequestedMessage { purpose: mail.into(), ..ask(&phone(), &address()) };
    rig.mood(Mood::Accepts);
    sent(instance.ask(mail).await);
    sent(instance.send(&phone()).await);
    all_end(&rig, stuck).await;
}

/// 26 addresses, each with the ten messages that it may have.
#[tokio::test]
async fn at_a_slow_gateway_owners_and_programs_get_their_codes() {
    let gateway = MockServer::start().await;
    let at_once = Mock::given(body_string_contains(NUMBER)).respond_with(ResponseTemplate::new(200));
    at_once.with_priority(1).mount(&gateway).await;
    let hangs = ResponseTemplate::new(200).set_delay(MINUTE);
    Mock::given(any()).respond_with(hangs).mount(&gateway).await;
    let setup = TestApp::on(Store::Memory).behind_a_proxy().without(&["sms-phone"]);
    let setup = setup.set("sms.gateway", "http").set("sms.timeout", "10s").set("sms.http.url", gateway.uri());
    let (app, _boss, shop) = verify::started(setup).await;
    let mut crowd = JoinSet::new();
    for n in 0..260 {
        let stranger = app.client_at(&format!("10.{}.0.1", n % 26));
        // Ten of a range, one of a block.
        let number = format!("+86137{:02}{:02}0001", n % 26, n / 26);
        crowd.spawn(async move { stranger.ask_code(&number, "login").await.status });
    }
    let most_are_in_flight = async || gateway.received_requests().await.unwrap().len() >= 130;
    crate::support::until("the crowd is in flight", most_are_in_flight).await;
    for purpose in ["login", "reset", "register"] {
        let told = app.client_at("203.0.113.7").ask_code(NUMBER, purpose).await;
        assert_eq!(told.status, 202, "{}", told.text);
    }
    let told = shop.send(NUMBER).await;
    assert_eq!(told.status, 202, "{}", told.text);
    crowd.abort_all();
}
