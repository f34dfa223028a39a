//! Five an hour to a number, whatever happens; and what each answer of a gateway means.

use super::rig::*;
use gatehouse::sms::*;

const FIVE_AN_HOUR: &str = "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]";
/// So that the ledger's view of a number is what a test looks at, and nothing else.
const NO_RULES: &str = "[limits.sms-phone]\nrules = []";

on_each_store! {
    the_message_says_its_code_in_the_language_asked_for,
    hundred_parallel_requests_send_exactly_max,
    hundred_parallel_requests_at_two_instances_send_exactly_max,
    real_clocks_hold_a_number_to_max_and_tell_the_true_wait,
    no_span_holds_more_than_max,
    resend_after_is_the_true_time,
    a_store_that_forgot_a_number_lets_no_sixth_message_out,
    a_calendar_rule_holds_in_the_ledger_too,
    a_captcha_rule_asks_and_a_solved_one_passes_in_the_ledger_too,
    a_monitored_limit_refuses_nothing_in_the_ledger_either,
    a_limit_without_rules_admits_everything,
    a_refused_message_counts_against_its_asker_alone_and_its_code_is_void,
    a_gateway_that_refuses_is_not_asked_without_end,
    what_may_have_gone_out_counts_and_is_not_sent_again,
    a_gateway_that_panics_may_have_sent,
    a_gateway_that_hangs_is_given_up_and_may_have_sent,
    whoever_hangs_up_leaves_nothing_unsettled,
    no_more_than_so_many_messages_are_under_way,
    every_budget_is_kept,
    one_name_is_one_message,
    one_name_at_two_instances_is_one_message,
    a_refused_message_frees_its_name,
    few_wait_for_a_name_that_is_under_way,
    a_message_left_pending_is_told_as_one_that_may_have_gone_out,
    what_an_earlier_request_was_answered_is_known_before_the_next_one_asks,
    a_name_lapses_with_its_code,
    a_repetition_is_known_where_another_limit_says_a_longer_wait,
    a_broken_ledger_sends_nothing_and_counts_nothing,
}

async fn the_message_says_its_code_in_the_language_asked_for(store: Store) {
    let rig = Rig::new(store, "[sms]\ncode_ttl = '4m'").await;
    let (instance, address) = (rig.instance().await, address());
    for (locale, words) in [("en", "good for 4 min"), ("zh-CN", "4 分钟内有效"), ("tlh", "good for 4 min")]
    {
        let phone = phone();
        let answer = sent(instance.ask(Ask { locale, ..ask(&phone, &address) }).await);
        assert_eq!(answer, Sent { expires_in: 4 * MINUTE, resend_after: MINUTE, confirmed: true });
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
    // In process the two know nothing of each other: the ledger alone holds them to five.
    let (first, second) = tokio::join!(one.send_many(&phone, 50), other.send_many(&phone, 50));
    assert_eq!(rig.sent_to(&phone), 5);
    assert_eq!(first.iter().chain(&second).filter(|answer| is_sent(answer)).count(), 5);
}

async fn real_clocks_hold_a_number_to_max_and_tell_the_true_wait(store: Store) {
    let rig = Rig::by_real_clocks(store, FIVE_AN_HOUR).await;
    let (one, other, phone) = (rig.instance().await, rig.instance().await, phone());
    let (first, second) = tokio::join!(one.send_many(&phone, 50), other.send_many(&phone, 50));
    assert_eq!(rig.sent_to(&phone), 5);
    // Nobody has to wait for longer than the hour, nor much less of it than has gone by.
    let waits = first.into_iter().chain(second).filter(|answer| !is_sent(answer)).map(throttled);
    assert!(waits.into_iter().all(|(_, wait)| wait <= HOUR && wait > HOUR - MINUTE));
    let rows = one.ledger().await;
    let ours = rig.clock.now();
    assert!(rows.iter().all(|row| ours.since(row.at).max(row.at.since(ours)) < MINUTE));
    assert!(matches!(one.check(&phone, &newest_code(&rig, rows[0].id)).await, Checked::Right(_)));
}

fn newest_code(rig: &Rig, id: MessageId) -> Code {
    rig.sent().into_iter().find(|message| message.id == id).expect("the newest row's message").code
}

async fn no_span_holds_more_than_max(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = [{ max = 3, window = '1h' }]").await;
    let (instance, phone) = (rig.instance().await, phone());
    rig.advance(59 * MINUTE);
    for _ in 0..3 {
        sent(instance.send(&phone).await);
    }
    rig.advance(2 * MINUTE);
    for _ in 0..3 {
        assert_eq!(throttled(instance.send(&phone).await).1, 58 * MINUTE);
    }
    // Whatever the pattern: at each message sent there are at most three in the hour before it.
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
        let resend_after = sent(instance.send(&phone).await).resend_after;
        assert!(resend_after >= MINUTE, "{count}: {resend_after:?}");
        rig.advance(resend_after - MICRO);
        assert_eq!(throttled(instance.send(&phone).await).1, MICRO, "{count}");
        rig.advance(MICRO);
    }
    assert_eq!(rig.sent_to(&phone), 12);
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
        // It is 20:00 there. The second time the store remembers nothing.
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
        assert_eq!(asked, Sending::Challenged { limit: "sms-phone".into(), retry_after: HOUR });
        instance.forget("sms-phone", phone.as_str().as_bytes()).await;
    }
    let solved = Ask { solved: true, ..ask(&phone, &address) };
    assert_eq!(sent(instance.ask(solved).await).resend_after, HOUR, "the rule that nothing lifts");
    for _ in 0..2 {
        assert_eq!(throttled(instance.ask(solved).await).1, HOUR);
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
    let rig = Rig::new(store, NO_RULES).await;
    let (instance, phone) = (rig.instance().await, phone());
    for _ in 0..12 {
        sent(instance.send(&phone).await);
    }
    assert_eq!(rig.sent_to(&phone), 12);
}

async fn a_refused_message_counts_against_its_asker_alone_and_its_code_is_void(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = [{ max = 1, window = '1h' }]").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    rig.mood(Mood::Refuses);
    for _ in 0..3 {
        assert_eq!(instance.send_from(&phone, &address).await, Sending::NotSent);
    }
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 0);
    assert_eq!(instance.counted("sms-address", &address).await, 3);
    assert_eq!(instance.counted("sms-prefix", phone.block().as_bytes()).await, 0);
    assert_eq!(instance.counted("sms-total", b"everyone").await, 0);
    let rows = instance.ledger().await;
    assert!(rows.len() == 3 && rows.iter().all(|row| row.state == State::Refused));
    assert_eq!(rows[0].reason.as_deref(), Some("told to"));
    assert!(matches!(instance.check(&phone, &rig.last_code()).await, Checked::Wrong));
    rig.mood(Mood::Accepts);
    assert!(sent(instance.send_from(&phone, &address).await).confirmed);
    assert!(matches!(instance.check(&phone, &rig.last_code()).await, Checked::Right(_)));
}

async fn a_gateway_that_refuses_is_not_asked_without_end(store: Store) {
    let rig = Rig::new(store, "[limits.sms-address]\nrules = [{ max = 3, window = '1h' }]").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    rig.mood(Mood::Refuses);
    for _ in 0..3 {
        assert_eq!(instance.send_from(&phone, &address).await, Sending::NotSent);
    }
    let told = throttled(instance.send_from(&phone, &address).await);
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
    // Real time: what it is measured by is how long somebody waits.
    may_have_gone_out(&rig, &rig.patient_instance(SECOND / 20).await).await;
}

async fn may_have_gone_out(rig: &Rig, instance: &Instance) {
    let phone = phone();
    let answer = sent(instance.send(&phone).await);
    assert!(!answer.confirmed);
    assert_eq!(answer.resend_after, HOUR);
    assert_eq!(throttled(instance.send(&phone).await).1, HOUR);
    assert_eq!(rig.sent_to(&phone), 1);
    assert_eq!(instance.ledger().await[0].state, State::Unknown);
    assert!(matches!(instance.check(&phone, &rig.last_code()).await, Checked::Right(_)), "it did arrive");
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
    assert_eq!(instance.ledger().await[0].state, State::Pending);
    rig.gateway.let_go.add_permits(1);
    until(async || instance.ledger().await[0].state != State::Pending).await;
    assert_eq!(instance.ledger().await[0].state, State::Accepted);
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 1);
}

async fn no_more_than_so_many_messages_are_under_way(store: Store) {
    let toml = "[limits.sms-phone]\nrules = []\n[sms.brake]\nenabled = false";
    let rig = Rig::new(store, toml).await;
    let instance = rig.instance().await;
    rig.mood(Mood::Hangs);
    let mut stuck = Vec::new();
    // A few at a time: what is full here is not the database.
    for batch in 1..=16 {
        for instance in vec![instance.clone(); 16] {
            stuck.push(tokio::spawn(async move { instance.send(&phone()).await }));
        }
        until(async || rig.sent().len() == 16 * batch).await;
    }
    assert!(matches!(instance.send(&phone()).await, Sending::Unavailable { .. }));
    assert_eq!(instance.counted("sms-total", b"everyone").await, 256, "given back");
    rig.gateway.let_go.add_permits(257);
    for stuck in stuck {
        sent(stuck.await.unwrap());
    }
    sent(instance.send(&phone()).await);
}

async fn every_budget_is_kept(store: Store) {
    let toml = "[limits.sms-phone]\nrules = []\n[limits.sms-address]\nrules = [{ max = 3, window = '1h' }]
        [limits.sms-prefix]\nrules = [{ max = 4, window = '1h' }]
        [limits.sms-total]\nrules = [{ max = 6, window = '1h' }]";
    let rig = Rig::new(store, toml).await;
    let (instance, crowd, address) = (rig.instance().await, phone(), address());
    let refusal = |sending: Sending| throttled(sending).0;
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

async fn one_name_is_one_message(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    let both = named_at([&instance, &instance], &phone, "click").await;
    assert_eq!(both[0], both[1]);
    assert!(sent(both[0].clone()).confirmed);
    rig.advance(10 * SECOND);
    // Later it is the same message still, and its times have moved on.
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
            Sending::Unavailable { .. } => turned_away += 1,
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
    let ask = Ask { once: Some("click"), ..ask(&phone, &address) };
    let look = async || instance.codes.turn(instance.live(), ask, true).await.unwrap();
    let Turned::Mine(turn) = look().await else { panic!("nobody has asked") };
    let mut second = std::pin::pin!(look());
    let at_once = tokio::time::timeout(std::time::Duration::ZERO, &mut second).await;
    assert!(at_once.is_err(), "it waits for the first");
    let first = instance.codes.send_in_turn(instance.live(), ask, turn).await.unwrap();
    let Turned::Answered(again) = second.await else { panic!("the first was answered") };
    assert_eq!(again, first);
    assert_eq!(rig.sent_to(&phone), 1);
}

async fn a_refused_message_frees_its_name(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone) = (rig.instance().await, phone());
    rig.mood(Mood::Refuses);
    assert_eq!(named(&instance, &phone, Purpose::Login, "click").await, Sending::NotSent);
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
    assert_eq!(throttled(named(&instance, &phone, Purpose::Login, "other").await).0, "sms-total");
    assert_eq!(rig.sent_to(&phone), 1);
}

async fn a_broken_ledger_sends_nothing_and_counts_nothing(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, address) = (rig.instance().await, phone(), address());
    assert!(instance.codes.make_whole(instance.live()).await);
    instance.db.close().await;
    assert!(instance.codes.send(instance.live(), ask(&phone, &address)).await.is_err());
    assert!(rig.sent().is_empty());
    assert_eq!(instance.counted("sms-phone", phone.as_str().as_bytes()).await, 0);
    assert_eq!(instance.counted("sms-address", &address).await, 0);
}

async fn named(instance: &Instance, phone: &Phone, purpose: Purpose, name: &str) -> Sending {
    instance.ask(Ask { once: Some(name), purpose, ..ask(phone, &address()) }).await
}

async fn named_at(instances: [&Instance; 2], phone: &Phone, name: &'static str) -> Vec<Sending> {
    all(instances.into_iter().cloned().map(|instance| {
        let phone = phone.clone();
        async move { named(&instance, &phone, Purpose::Login, name).await }
    }))
    .await
}
