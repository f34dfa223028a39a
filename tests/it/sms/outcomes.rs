//! The outcome of a message, and what it counts for then. Each case runs on each store.

use super::rig::*;
use gatehouse::codes::*;

const FIVE_AN_HOUR: &str = "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]";

on_each_store! {
    a_refused_message_counts_against_its_asker_alone_and_its_code_is_void,
    a_gateway_that_refuses_is_not_asked_without_end,
    what_may_have_gone_out_counts_and_is_not_sent_again,
    a_gateway_that_panics_may_have_sent,
    a_gateway_that_hangs_is_given_up_and_may_have_sent,
    whoever_hangs_up_leaves_nothing_unsettled,
    a_message_whose_process_died_is_unknown_and_has_one_outcome,
    a_broken_ledger_sends_nothing_and_counts_nothing,
}

async fn a_refused_message_counts_against_its_asker_alone_and_its_code_is_void(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    rig.mood(Mood::Refuses);
    for _ in 0..3 {
        assert_eq!(instance.send_from(&phone, &address).await, SendOutcome::NotSent);
    }
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 0);
    assert_eq!(instance.counted("sms-address", &address).await, 3);
    assert_eq!(instance.counted("sms-prefix", phone.block().as_bytes()).await, 0);
    assert_eq!(instance.counted("sms-total", b"everyone").await, 0);
    let rows = instance.ledger().await;
    assert!(rows.len() == 3 && rows.iter().all(|row| row.state == MessageState::Refused));
    assert_eq!(rows[0].reason.as_deref(), Some("told to"));
    assert!(matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Wrong));
    rig.mood(Mood::Accepts);
    assert!(sent(instance.send_from(&phone, &address).await).confirmed);
    assert!(matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)));
}

async fn a_gateway_that_refuses_is_not_asked_without_end(store: Store) {
    let rig = Rig::new(store, "[limits.sms-address]\nrules = [{ max = 4, window = '1h' }]").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    rig.mood(Mood::Refuses);
    // Of four, three are open to everybody.
    for _ in 0..3 {
        assert_eq!(instance.send_from(&phone, &address).await, SendOutcome::NotSent);
    }
    let told = spent_by(instance.send_from(&phone, &address).await);
    assert_eq!(told, ("sms-address".to_owned(), HOUR));
    assert_eq!((rig.sent_to(&phone), instance.ledger().await.len()), (3, 3));
}

async fn what_may_have_gone_out_counts_and_is_not_sent_again(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]").await;
    rig.mood(Mood::DoesNotKnow);
    may_have_gone_out(&rig, &rig.instance().await).await;
}

async fn a_gateway_that_panics_may_have_sent(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]").await;
    rig.mood(Mood::Panics);
    may_have_gone_out(&rig, &rig.instance().await).await;
}

async fn a_gateway_that_hangs_is_given_up_and_may_have_sent(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]").await;
    rig.mood(Mood::Hangs);
    // Real time, because it measures how long a client waits.
    may_have_gone_out(&rig, &rig.patient_instance(SECOND / 20).await).await;
}

async fn may_have_gone_out(rig: &Rig, instance: &Instance) {
    let phone = phone();
    let answer = sent(instance.send(&phone).await);
    assert!(!answer.confirmed);
    assert_eq!(answer.resend_after, HOUR);
    assert_eq!(throttled(instance.send(&phone).await).1, HOUR);
    assert_eq!(rig.sent_to(&phone), 1);
    assert_eq!(instance.ledger().await[0].state, MessageState::Unknown);
    assert!(
        matches!(instance.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)),
        "it did arrive"
    );
}

async fn whoever_hangs_up_leaves_nothing_unsettled(store: Store) {
    let rig = Rig::new(store, FIVE_AN_HOUR).await;
    let (instance, phone) = (rig.instance().await, phone());
    rig.mood(Mood::Hangs);
    let caller = tokio::spawn({
        let (instance, phone) = (instance.clone(), phone.clone());
        async move { instance.send(&phone).await }
    });
    until(async || rig.sent_to(&phone) > 0).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    assert_eq!(instance.ledger().await[0].state, MessageState::Pending);
    rig.gateway.let_go.add_permits(1);
    until(async || instance.ledger().await[0].state != MessageState::Pending).await;
    assert_eq!(instance.ledger().await[0].state, MessageState::Accepted);
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 1);
}

async fn a_broken_ledger_sends_nothing_and_counts_nothing(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    assert!(instance.codes.rebuild_windows(instance.live()).await);
    instance.db.close().await;
    assert!(instance.codes.send(instance.live(), ask(&phone, &address)).await.is_err());
    assert!(rig.sent().is_empty());
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 0);
    assert_eq!(instance.counted("sms-address", &address).await, 0);
}

async fn a_message_whose_process_died_is_unknown_and_has_one_outcome(store: Store) {
    let toml = "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]\n[sms]\ncode_ttl = '10m'";
    let rig = Rig::new(store, toml).await;
    let (stopped, other, phone) = (rig.instance().await, rig.instance().await, phone());
    rig.mood(Mood::Hangs);
    let sending = tokio::spawn({
        let (stopped, phone) = (stopped.clone(), phone.clone());
        async move { stopped.send(&phone).await }
    });
    until(async || !rig.sent().is_empty()).await;
    rig.advance(5 * MINUTE);
    assert_eq!(other.codes.ledger().give_up(10).await.unwrap(), 0, "its gateway may answer yet");
    assert_eq!(other.ledger().await[0].state, MessageState::Pending);
    rig.advance(MICRO);
    assert_eq!(other.codes.ledger().give_up(10).await.unwrap(), 1);
    assert_eq!(other.codes.ledger().give_up(10).await.unwrap(), 0);
    // A process that was only stopped comes late: its result changes nothing, nor its caller's answer.
    rig.gateway.let_go.add_permits(1);
    assert!(!sent(sending.await.unwrap()).confirmed);
    let row = &other.ledger().await[0];
    assert_eq!(row.state, MessageState::Unknown);
    assert!(row.reason.as_deref().unwrap().contains("ended before"), "{:?}", row.reason);
    rig.mood(Mood::Accepts);
    assert_eq!(throttled(other.send(&phone).await).0, "sms-phone", "it counts");
    assert!(
        matches!(other.check(&phone, &rig.last_code()).await, CheckOutcome::Right(_)),
        "and its code opens"
    );
}
