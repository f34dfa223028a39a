//! One request, sent more than once, is one message. Each case runs on each store.

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::denied::Denied;
use gatehouse::message::*;
use gatehouse::sms::*;

on_each_store! {
    one_name_is_one_message,
    one_name_at_two_instances_is_one_message,
    a_refused_message_frees_its_name,
    few_wait_for_a_name_that_is_under_way,
    a_message_left_pending_is_told_as_one_that_may_have_gone_out,
    what_an_earlier_request_was_answered_is_known_before_the_next_one_asks,
    a_name_lapses_with_its_code,
    a_repetition_is_known_where_another_limit_says_a_longer_wait,
}

async fn one_name_is_one_message(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    let both = named_at([&instance, &instance], &phone, "click").await;
    assert_eq!(both[0], both[1]);
    assert!(sent(both[0].clone()).confirmed);
    rig.advance(10 * SECOND);
    // Later it is still the same message, and its times have moved on.
    let again = sent(named(&instance, &phone, Purpose::Login, "click").await);
    assert_eq!((again.expires_in, again.resend_after), (290 * SECOND, 50 * SECOND));
    assert_eq!(rig.sent_to(&phone), 1);
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 1);
    // Another name, purpose or number is another request.
    assert_eq!(throttled(named(&instance, &phone, Purpose::Login, "other").await).1, 50 * SECOND);
    assert_eq!(throttled(named(&instance, &phone, Purpose::Reset, "click").await).1, 50 * SECOND);
    sent(named(&instance, &self::phone(), Purpose::Login, "click").await);
    assert_eq!(rig.sent().len(), 2);
}

async fn one_name_at_two_instances_is_one_message(store: Store) {
    let rig = Rig::new(store, "").await;
    let (one, other, phone) = (rig.instance().await, rig.instance().await, phone());
    let both = named_at([&one, &other], &phone, "click").await;
    assert!(both.iter().all(is_sent), "{both:?}");
    assert_eq!(rig.sent_to(&phone), 1);
    assert!(is_sent(&named(&other, &phone, Purpose::Login, "click").await));
    assert!(is_sent(&named(&one, &phone, Purpose::Login, "click").await));
    assert_eq!(rig.sent_to(&phone), 1);
}

async fn few_wait_for_a_name_that_is_under_way(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    rig.mood(Mood::Hangs);
    let call = || {
        let (instance, phone) = (instance.clone(), phone.clone());
        tokio::spawn(async move { named(&instance, &phone, Purpose::Login, "click").await })
    };
    let first = call();
    until(async || rig.sent_to(&phone) > 0).await;
    let waiting: Vec<_> = (0..20).map(|_| call()).collect();
    until(async || waiting.iter().filter(|call| call.is_finished()).count() == 12).await;
    rig.gateway.let_go.add_permits(1);
    let (mut same, mut turned_away) = (0, 0);
    let answer = first.await.unwrap();
    for call in waiting {
        match call.await.unwrap() {
            SendOutcome::Denied(Denied::Unavailable { .. }) => turned_away += 1,
            other => same += usize::from(other == answer),
        }
    }
    assert_eq!((same, turned_away, rig.sent_to(&phone)), (8, 12, 1));
}

async fn a_message_left_pending_is_told_as_one_that_may_have_gone_out(store: Store) {
    let rig = Rig::new(store, "").await;
    let (dead, other, phone) = (rig.instance().await, rig.instance().await, phone());
    rig.mood(Mood::Hangs);
    tokio::spawn({
        let (dead, phone) = (dead.clone(), phone.clone());
        async move { named(&dead, &phone, Purpose::Login, "click").await }
    });
    until(async || rig.sent_to(&phone) > 0).await;
    assert!(!sent(named(&other, &phone, Purpose::Login, "click").await).confirmed);
    assert_eq!(rig.sent_to(&phone), 1);
}

async fn what_an_earlier_request_was_answered_is_known_before_the_next_one_asks(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    let ask = RequestedMessage { once: Some("click".to_owned()), ..ask(&phone, &address) };
    let look = async || instance.codes.turn(instance.live(), ask.clone(), true).await.unwrap();
    let TurnResult::Mine(turn) = look().await else { panic!("nobody has asked") };
    let mut second = std::pin::pin!(look());
    let at_once = tokio::time::timeout(std::time::Duration::ZERO, &mut second).await;
    assert!(at_once.is_err(), "it waits for the first");
    let first = turn.send(instance.live(), false).await.unwrap();
    let TurnResult::Answered(again) = second.await else { panic!("the first was answered") };
    assert_eq!(again, first);
    assert_eq!(rig.sent_to(&phone), 1);
}

async fn a_refused_message_frees_its_name(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    rig.mood(Mood::Refuses);
    assert_eq!(named(&instance, &phone, Purpose::Login, "click").await, SendOutcome::NotSent);
    rig.mood(Mood::Accepts);
    sent(named(&instance, &phone, Purpose::Login, "click").await);
    assert_eq!(rig.sent_to(&phone), 2);
}

async fn a_name_lapses_with_its_code(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    sent(named(&instance, &phone, Purpose::Login, "click").await);
    rig.advance(5 * MINUTE - MICRO);
    sent(named(&instance, &phone, Purpose::Login, "click").await);
    assert_eq!(rig.sent_to(&phone), 1);
    rig.advance(MICRO);
    sent(named(&instance, &phone, Purpose::Login, "click").await);
    assert_eq!(rig.sent_to(&phone), 2);
}

async fn a_repetition_is_known_where_another_limit_says_a_longer_wait(store: Store) {
    let rig = Rig::new(store, "[limits.sms-total]\nrules = [{ max = 1, window = '1h' }]").await;
    let (instance, phone) = (rig.instance().await, phone());
    sent(named(&instance, &phone, Purpose::Login, "click").await);
    sent(named(&instance, &phone, Purpose::Login, "click").await);
    assert_eq!(spent_by(named(&instance, &phone, Purpose::Login, "other").await).0, "sms-total");
    assert_eq!(rig.sent_to(&phone), 1);
}

async fn named(instance: &Instance, phone: &Phone, purpose: Purpose, name: &str) -> SendOutcome {
    instance
        .ask(RequestedMessage {
            once: Some(name.to_owned()),
            purpose: purpose.into(),
            ..ask(phone, &address())
        })
        .await
}

async fn named_at(instances: [&Instance; 2], phone: &Phone, name: &'static str) -> Vec<SendOutcome> {
    all(instances.into_iter().cloned().map(|instance| {
        let phone = phone.clone();
        async move { named(&instance, &phone, Purpose::Login, name).await }
    }))
    .await
}
