//! Five an hour to a number, whatever happens. Each case runs on each store.

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::denied::Denied;
use gatehouse::message::*;

const FIVE_AN_HOUR: &str = "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]";
/// So that only the ledger's view of a number is tested.
const NO_RULES: &str = "[limits.sms-phone]\nrules = []";

on_each_store! {
    the_message_says_its_code_in_the_language_asked_for,
    hundred_parallel_requests_send_exactly_max,
    hundred_parallel_requests_at_two_instances_send_exactly_max,
    real_clocks_hold_a_number_to_max_and_tell_the_true_wait,
    no_span_holds_more_than_max,
    resend_after_is_the_true_time,
    the_fourth_of_a_day_to_a_number_takes_a_challenge,
    a_store_that_forgot_a_number_lets_no_sixth_message_out,
    a_calendar_rule_holds_in_the_ledger_too,
    a_captcha_rule_asks_and_a_solved_one_passes_in_the_ledger_too,
    a_monitored_limit_refuses_nothing_in_the_ledger_either,
    a_limit_without_rules_admits_everything,
    every_budget_is_kept,
}

async fn the_message_says_its_code_in_the_language_asked_for(store: Store) {
    let rig = Rig::new(store, "[sms]\ncode_ttl = '4m'").await;
    let (instance, address) = (rig.instance().await, address());
    for (locale, words) in [("en", "valid for 4 min"), ("zh-CN", "4 分钟内有效"), ("tlh", "valid for 4 min")]
    {
        let phone = phone();
        let answer =
            sent(instance.ask(RequestedMessage { locale: locale.to_owned(), ..ask(&phone, &address) }).await);
        assert_eq!(
            answer,
            SendReceipt {
                id: None,
                expires_in: 4 * MINUTE,
                resend_after: MINUTE,
                confirmed: true,
                short: false
            }
        );
        let message = rig.sent().pop().unwrap();
        assert!(message.text.contains(message.code.expose()) && message.text.contains(words));
        assert_eq!(instance.ledger().await[0].id, message.id);
        rig.advance(SECOND);
    }
}

async fn hundred_parallel_requests_send_exactly_max(store: Store) {
    let rig = Rig::new(store, FIVE_AN_HOUR).await;
    let (instance, phone) = (rig.instance().await, phone());
    let answers = instance.send_many(&phone, 100).await;
    assert_eq!(rig.sent_to(&phone), 5);
    assert_eq!(answers.iter().filter(|answer| is_sent(answer)).count(), 5);
    let refused = answers.into_iter().filter(|answer| !is_sent(answer)).map(throttled);
    assert!(refused.into_iter().all(|told| told == ("sms-phone".to_owned(), HOUR)));
    assert_eq!(instance.ledger().await.len(), 5);
}

async fn hundred_parallel_requests_at_two_instances_send_exactly_max(store: Store) {
    let rig = Rig::new(store, FIVE_AN_HOUR).await;
    let (one, other, phone) = (rig.instance().await, rig.instance().await, phone());
    // In process the two know nothing of each other: only the ledger limits them to five.
    let (first, second) = tokio::join!(one.send_many(&phone, 50), other.send_many(&phone, 50));
    assert_eq!(rig.sent_to(&phone), 5);
    assert_eq!(first.iter().chain(&second).filter(|answer| is_sent(answer)).count(), 5);
}

async fn real_clocks_hold_a_number_to_max_and_tell_the_true_wait(store: Store) {
    let rig = Rig::by_real_clocks(store, FIVE_AN_HOUR).await;
    let (one, other, phone) = (rig.instance().await, rig.instance().await, phone());
    let (first, second) = tokio::join!(one.send_many(&phone, 50), other.send_many(&phone, 50));
    assert_eq!(rig.sent_to(&phone), 5);
    // Nobody waits longer than the hour, nor much less than what is left of it.
    let waits = first.into_iter().chain(second).filter(|answer| !is_sent(answer)).map(throttled);
    assert!(waits.into_iter().all(|(_, wait)| wait <= HOUR && wait > HOUR - MINUTE));
    let rows = one.ledger().await;
    let ours = rig.clock.now();
    assert!(rows.iter().all(|row| ours.since(row.at).max(row.at.since(ours)) < MINUTE));
    assert!(matches!(one.check(&phone, &newest_code(&rig, rows[0].id)).await, CheckOutcome::Right(_)));
}

fn newest_code(rig: &Rig, id: MessageId) -> MessageCode {
    rig.sent().into_iter().find(|message| message.id == id).expect("the newest row's message").code
}

async fn no_span_holds_more_than_max(store: Store) {
    let rig = Rig::new(
        store,
        "[limits.sms-prefix]\nrules = []\n[limits.sms-phone]\nrules = [{ max = 3, window = '1h' }]",
    )
    .await;
    let (instance, phone) = (rig.instance().await, phone());
    rig.advance(59 * MINUTE);
    for _ in 0..3 {
        sent(instance.send(&phone).await);
    }
    rig.advance(2 * MINUTE);
    for _ in 0..3 {
        assert_eq!(throttled(instance.send(&phone).await).1, 58 * MINUTE);
    }
    // For any pattern: at each message sent there are at most three in the hour before it.
    let mut times = Vec::new();
    for step in 0..400 {
        if is_sent(&instance.send(&phone).await) {
            times.push(rig.clock.now());
        }
        rig.advance((1 + step % 7) * MINUTE);
    }
    assert!(times.len() > 60, "{} messages", times.len());
    assert!(times.windows(4).all(|four| four[3].since(four[0]) >= HOUR));
}

async fn resend_after_is_the_true_time(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    for count in 1..=12 {
        let address = address();
        let solved = RequestedMessage { solved: true, ..ask(&phone, &address) };
        let resend_after = sent(instance.ask(solved.clone()).await).resend_after;
        assert!(resend_after >= MINUTE, "{count}: {resend_after:?}");
        rig.advance(resend_after - MICRO);
        assert_eq!(throttled(instance.ask(solved.clone()).await).1, MICRO, "{count}");
        rig.advance(MICRO);
    }
    assert_eq!(rig.sent_to(&phone), 12);
}

async fn the_fourth_of_a_day_to_a_number_takes_a_challenge(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    for _ in 0..3 {
        sent(instance.send(&phone).await);
        rig.advance(MINUTE);
    }
    let asked = instance.send(&phone).await;
    assert!(
        matches!(asked, SendOutcome::Denied(Denied::Challenged { ref limit, .. }) if limit == "sms-phone"),
        "{asked:?}"
    );
    sent(instance.ask(RequestedMessage { solved: true, ..ask(&phone, &address) }).await);
}

async fn a_store_that_forgot_a_number_lets_no_sixth_message_out(store: Store) {
    let rig = Rig::new(store, FIVE_AN_HOUR).await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    for _ in 0..5 {
        sent(instance.send_from(&phone, &address).await);
        rig.advance(MINUTE);
    }
    instance.forget("sms-phone", phone.as_str().as_bytes()).await;
    let refused = instance.send_from(&phone, &address).await;
    assert_eq!(throttled(refused), ("sms-phone".to_owned(), 55 * MINUTE));
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 5, "it knows again");
    assert_eq!(instance.counted("sms-address", &address).await, 5, "given back");
    assert_eq!(rig.sent_to(&phone), 5);
}

async fn a_calendar_rule_holds_in_the_ledger_too(store: Store) {
    let toml = "[limits.sms-phone]\nrules = [{ max = 2, per = 'day', timezone = 'Asia/Shanghai' }]";
    let rig = Rig::new(store, toml).await;
    let (instance, phone) = (rig.instance().await, phone());
    for _ in 0..2 {
        sent(instance.send(&phone).await);
    }
    for _ in 0..2 {
        // It is 20:00 there. The second time the store is empty.
        let refused = instance.send(&phone).await;
        assert_eq!(throttled(refused), ("sms-phone".to_owned(), 4 * HOUR));
        instance.forget("sms-phone", phone.as_str().as_bytes()).await;
    }
    rig.advance(4 * HOUR);
    sent(instance.send(&phone).await);
}

async fn a_captcha_rule_asks_and_a_solved_one_passes_in_the_ledger_too(store: Store) {
    let toml = "[limits.sms-phone]\nrules = [{ max = 1, window = '1h', then = 'captcha' },
        { max = 2, window = '1h' }]";
    let rig = Rig::new(store, toml).await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    sent(instance.send(&phone).await);
    for _ in 0..2 {
        let asked = instance.send(&phone).await;
        assert_eq!(
            asked,
            SendOutcome::Denied(Denied::Challenged { limit: "sms-phone".into(), rule: 0, retry_after: HOUR })
        );
        instance.forget("sms-phone", phone.as_str().as_bytes()).await;
    }
    let solved = RequestedMessage { solved: true, ..ask(&phone, &address) };
    assert_eq!(sent(instance.ask(solved.clone()).await).resend_after, HOUR, "the rule that nothing lifts");
    for _ in 0..2 {
        assert_eq!(throttled(instance.ask(solved.clone()).await).1, HOUR);
        instance.forget("sms-phone", phone.as_str().as_bytes()).await;
    }
    assert_eq!(rig.sent_to(&phone), 2);
}

async fn a_monitored_limit_refuses_nothing_in_the_ledger_either(store: Store) {
    let toml = "[limits.sms-phone]\nmode = 'monitor'\nrules = [{ max = 1, window = '1h' }]";
    let rig = Rig::new(store, toml).await;
    let (instance, phone) = (rig.instance().await, phone());
    for _ in 0..10 {
        assert_eq!(sent(instance.send(&phone).await).resend_after, std::time::Duration::ZERO);
        instance.forget("sms-phone", phone.as_str().as_bytes()).await;
    }
}

async fn a_limit_without_rules_admits_everything(store: Store) {
    let rig = Rig::new(store, &format!("{NO_RULES}\n[sms.brake]\nenabled = false\n")).await;
    let (instance, phone) = (rig.instance().await, phone());
    for _ in 0..12 {
        sent(instance.send(&phone).await);
    }
    assert_eq!(rig.sent_to(&phone), 12);
}

async fn every_budget_is_kept(store: Store) {
    let toml = "[limits.sms-phone]\nrules = []\n[limits.sms-address]\nrules = [{ max = 4, window = '1h' }]
        [limits.sms-prefix]\nrules = [{ max = 5, window = '1h' }]
        [limits.sms-total]\nrules = [{ max = 10, window = '1h' }]";
    let rig = Rig::new(store, toml).await;
    let (instance, crowd, address) = (rig.instance().await, phone(), address());
    // Of four, five and ten, three, four and six are open to everybody at our pages.
    let refusal = |sending: SendOutcome| spent_by(sending).0;
    for _ in 0..3 {
        sent(instance.send_from(&neighbour(&crowd), &address).await);
    }
    assert_eq!(refusal(instance.send_from(&phone(), &address).await), "sms-address");
    sent(instance.send(&neighbour(&crowd)).await);
    assert_eq!(refusal(instance.send(&neighbour(&crowd)).await), "sms-prefix");
    for _ in 0..2 {
        sent(instance.send(&phone()).await);
    }
    assert_eq!(refusal(instance.send(&phone()).await), "sms-total");
    assert_eq!(rig.sent().len(), 6);
}
