//! A code works once, for a while, for one number and one purpose; and a number has five wrong guesses.

use std::future::Future;
use std::task::Poll;

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::denied::Denied;
use gatehouse::message::*;
use gatehouse::sms::*;

on_each_store! {
    a_code_is_good_once,
    a_code_expires_to_the_microsecond,
    a_code_is_good_for_its_purpose_only,
    a_code_is_good_for_its_number_only,
    a_newer_code_replaces_the_older,
    five_of_a_hundred_parallel_wrong_guesses_are_compared,
    guesses_at_two_instances_share_one_window,
    right_guesses_cost_nothing,
    one_of_fifty_parallel_right_guesses_is_right,
    whoever_hangs_up_has_guessed,
    whoever_hangs_up_holds_no_slot,
    a_code_is_compared_five_times_whatever_the_store_forgets,
    a_store_that_forgets_gives_a_number_no_new_guesses,
    one_address_has_so_many_wrong_guesses_at_all_numbers,
    where_guesses_are_not_limited_no_code_is_void,
}

async fn a_code_is_good_once(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let CheckOutcome::Right(proven) = instance.check(&phone, &code).await else { panic!("it is the code") };
    assert_eq!(proven.recipient().phone(), Some(&phone));
    assert!(wrong(instance.check(&phone, &code).await));
    assert_eq!(instance.ledger().await[0].entered_at, Some(rig.clock.now()));
}

async fn a_code_expires_to_the_microsecond(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    rig.advance(5 * MINUTE - MICRO);
    assert!(right(instance.check(&phone, &code).await));
    sent(instance.send(&phone).await);
    rig.advance(5 * MINUTE);
    assert!(wrong(instance.check(&phone, &rig.last_code()).await));
}

async fn a_code_is_good_for_its_purpose_only(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    for purpose in [Purpose::Register, Purpose::Reset, Purpose::Verify] {
        let checked = instance.guess(CodeGuess { purpose, ..guess(&phone, &code, &address()) }).await;
        assert!(wrong(checked), "{purpose:?}");
    }
    assert!(right(instance.check(&phone, &code).await), "and it is good still");
}

async fn a_code_is_good_for_its_number_only(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let other = neighbour(&phone);
    sent(instance.send(&other).await);
    assert!(rig.last_code().expose() == code.expose() || wrong(instance.check(&other, &code).await));
    assert!(wrong(instance.check(&neighbour(&phone), &code).await));
    assert!(right(instance.check(&phone, &code).await));
}

async fn a_newer_code_replaces_the_older(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let (instance, phone, mut older) = sent_a_code(&rig).await;
    let mut newer = older.clone();
    while newer.expose() == older.expose() {
        older = newer;
        sent(instance.send(&phone).await);
        newer = rig.last_code();
    }
    assert!(wrong(instance.check(&phone, &older).await));
    assert!(right(instance.check(&phone, &newer).await));
}

async fn five_of_a_hundred_parallel_wrong_guesses_are_compared(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let answers = guess_many(&[&instance], &phone, &other_than(&code), 100).await;
    assert_eq!(answers.iter().filter(|answer| wrong_ref(answer)).count(), 5);
    for answer in &answers {
        let CheckOutcome::Denied(Denied::Throttled { limit, retry_after, .. }) = answer else { continue };
        assert_eq!((&**limit, *retry_after), ("sms-guess", 10 * MINUTE));
    }
    assert!(refused(instance.check(&phone, &code).await), "a right one is not even compared");
    rig.advance(MINUTE);
    sent(instance.send(&phone).await);
    assert!(refused(instance.check(&phone, &rig.last_code()).await), "a new code buys no new guesses");
    rig.advance(9 * MINUTE);
    sent(instance.send(&phone).await);
    assert!(right(instance.check(&phone, &rig.last_code()).await));
}

async fn guesses_at_two_instances_share_one_window(store: Store) {
    if store == Store::Memory {
        return; // two instances share a store, or are told apart by none
    }
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let other = rig.instance().await;
    let answers = guess_many(&[&instance, &other], &phone, &other_than(&code), 100).await;
    assert_eq!(answers.iter().filter(|answer| wrong_ref(answer)).count(), 5);
}

async fn right_guesses_cost_nothing(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let (instance, phone, _) = sent_a_code(&rig).await;
    for _ in 0..10 {
        sent(instance.send(&phone).await);
        assert!(right(instance.check(&phone, &rig.last_code()).await));
    }
    assert_eq!(instance.counted("sms-guess", phone.as_str().as_bytes()).await, 0);
}

async fn one_of_fifty_parallel_right_guesses_is_right(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let other = rig.instance().await;
    let answers = guess_many(&[&instance, &other], &phone, &code, 50).await;
    assert_eq!(answers.iter().filter(|answer| matches!(answer, CheckOutcome::Right(_))).count(), 1);
}

async fn whoever_hangs_up_has_guessed(store: Store) {
    let rig = Rig::new(store, "").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let guess = other_than(&code);
    for _ in 0..20 {
        let (instance, phone, guess) = (instance.clone(), phone.clone(), guess.clone());
        let caller = tokio::spawn(async move { drop(instance.check(&phone, &guess).await) });
        tokio::task::yield_now().await;
        caller.abort();
        let _ = caller.await;
    }
    // Those that were dropped before they had a slot took none; the others count. Never more than five.
    for _ in 0..5 {
        let _ = instance.check(&phone, &guess).await;
    }
    assert!(refused(instance.check(&phone, &code).await));
}

/// At whatever point: others would wait for the slot, and it would count although nothing was compared.
async fn whoever_hangs_up_holds_no_slot(store: Store) {
    let rig = Rig::new(store, "[limits.sms-guess]\nrules = [{ max = 1000, window = \"10m\" }]").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let guess = other_than(&code);
    // How many polls it takes varies a little, so all of its points are met several times.
    for polls in (1..=8).cycle().take(80) {
        let (mut checking, mut left) = (Box::pin(instance.check(&phone, &guess)), polls);
        let given_up = std::future::poll_fn(|context| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            checking.as_mut().poll(context).map(drop)
        });
        given_up.await;
        drop(checking);
        until(async || instance.holds("sms-guess", phone.as_str().as_bytes()).await == 0).await;
    }
}

async fn a_code_is_compared_five_times_whatever_the_store_forgets(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    for _ in 0..5 {
        assert!(wrong(instance.check(&phone, &other_than(&code)).await));
        match store {
            Store::Redis => rig.flush(),
            Store::Memory => instance.forget("sms-guess", phone.as_str().as_bytes()).await,
        }
    }
    let sixth = instance.check(&phone, &code).await;
    match store {
        // It has lost all, which is noticed; in memory only this log, which nobody sees.
        Store::Redis => assert!(refused(sixth), "its window is restored"),
        Store::Memory => assert!(wrong(sixth), "the code is void"),
    }
    assert!(refused(rig.instance().await.check(&phone, &code).await), "a new instance");
    rig.advance(10 * MINUTE);
    sent(instance.send(&phone).await);
    assert!(right(instance.check(&phone, &rig.last_code()).await), "a new code is a new one");
}

async fn a_store_that_forgets_gives_a_number_no_new_guesses(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let (mut instance, phone, code) = sent_a_code(&rig).await;
    for _ in 0..5 {
        assert!(wrong(instance.check(&phone, &other_than(&code)).await));
    }
    for purpose in [Purpose::Login, Purpose::Reset] {
        match store {
            Store::Redis => rig.flush(),
            Store::Memory => instance = rig.instance().await,
        }
        let here = address();
        sent(instance.ask(RequestedMessage { purpose: purpose.into(), ..ask(&phone, &here) }).await);
        let code = rig.last_code();
        let newer = CodeGuess { purpose, ..guess(&phone, &code, &here) };
        assert!(refused(instance.guess(newer).await), "{purpose:?}");
    }
    rig.advance(10 * MINUTE);
    sent(instance.send(&phone).await);
    assert!(right(instance.check(&phone, &rig.last_code()).await), "they are ten minutes old");
}

async fn one_address_has_so_many_wrong_guesses_at_all_numbers(store: Store) {
    let toml = "[limits.login-address]\n\
        rules = [{ max = 6, window = '1m', then = 'captcha' }, { max = 8, window = '1h' }]";
    let rig = Rig::new(store, toml).await;
    let (instance, phone, code) = sent_a_code(&rig).await;
    let (here, other) = (address(), other_than(&code));
    assert!(right(instance.check_from(&phone, &code, &here).await), "a right one costs nothing");
    let tasks: Vec<_> = (0..30).map(|_| number_of(neighbour(&phone).as_str())).collect();
    let answers = all(tasks.into_iter().map(|number| {
        let (instance, other, here) = (instance.clone(), other.clone(), here.clone());
        async move { instance.check_from(&number, &other, &here).await }
    }))
    .await;
    assert_eq!(answers.iter().filter(|answer| wrong_ref(answer)).count(), 6);
    for answer in answers.iter().filter(|answer| !wrong_ref(answer)) {
        assert!(
            matches!(answer, CheckOutcome::Denied(Denied::Challenged { limit, .. }) if limit == "login-address"),
            "{answer:?}"
        );
    }
    let number = neighbour(&phone);
    let solved = CodeGuess { solved: true, ..guess(&number, &other, &here) };
    for _ in 0..2 {
        assert!(wrong(instance.guess(solved.clone()).await), "a CAPTCHA lets it by");
    }
    let answer = instance.guess(solved).await;
    assert!(
        matches!(answer, CheckOutcome::Denied(Denied::Throttled { limit, .. }) if limit == "login-address")
    );
    assert!(wrong(instance.check(&number, &other).await), "another address has its own");
}

async fn where_guesses_are_not_limited_no_code_is_void(store: Store) {
    for limit in ["rules = []", "mode = 'monitor'\nrules = [{ max = 5, window = '10m' }]"] {
        let rig = Rig::new(store, &format!("[limits.sms-guess]\n{limit}")).await;
        let (instance, phone, code) = sent_a_code(&rig).await;
        for _ in 0..8 {
            assert!(wrong(instance.check(&phone, &other_than(&code)).await));
        }
        assert!(right(instance.check(&phone, &code).await), "{limit}");
    }
}

async fn sent_a_code(rig: &Rig) -> (Instance, Phone, MessageCode) {
    let (instance, phone) = (rig.instance().await, phone());
    sent(instance.send(&phone).await);
    (instance, phone, rig.last_code())
}

async fn guess_many(
    instances: &[&Instance],
    phone: &Phone,
    code: &MessageCode,
    count: usize,
) -> Vec<CheckOutcome> {
    all((0..count).map(|index| {
        let instance = instances[index % instances.len()].clone();
        let (phone, code) = (phone.clone(), code.clone());
        async move { instance.check(&phone, &code).await }
    }))
    .await
}

fn right(checked: CheckOutcome) -> bool {
    matches!(checked, CheckOutcome::Right(_))
}

fn wrong(checked: CheckOutcome) -> bool {
    wrong_ref(&checked)
}

fn wrong_ref(checked: &CheckOutcome) -> bool {
    matches!(checked, CheckOutcome::Wrong)
}

fn refused(checked: CheckOutcome) -> bool {
    matches!(checked, CheckOutcome::Denied(Denied::Throttled { .. }))
}
