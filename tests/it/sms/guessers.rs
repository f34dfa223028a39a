//! Whose wrong codes count where: strangers' guesses take nothing from the browser that requested the code,
//! nor from a browser that the number's account knows; and a number without a code has nothing to take.

use super::rig::*;
use gatehouse::codes::*;
use gatehouse::message::*;
use gatehouse::sms::*;

const NO_LIMIT: &str = "[limits.sms-phone]\nrules = []\n";

on_each_store! {
    wrong_codes_at_a_number_without_one_take_nothing_from_the_next,
    whoever_guesses_cannot_tell_whether_there_is_a_code,
    a_hundred_strangers_leave_the_browser_that_asked_its_own_guesses,
    ten_are_compared_in_ten_minutes_however_many_browsers_ask,
    who_asks_after_the_owner_does_not_take_the_owners_place,
    the_next_browser_has_the_place_once_the_last_code_and_its_guesses_are_over,
    known_devices_have_guesses_of_their_own,
    what_a_code_survives_is_counted_for_each_of_them_whatever_the_store_forgets,
    whoever_waited_in_vain_for_guesses_at_the_address_passes_them_by_a_challenge,
    a_known_device_that_waited_in_vain_is_asked_for_none,
    a_code_that_comes_between_look_and_comparison_is_not_compared,
    a_code_that_goes_between_look_and_comparison_costs_the_number_nothing,
}

const OWNER: &[u8] = b"the owner's browser";
const STRANGER: &[u8] = b"another browser";

async fn rig(store: Store, toml: &str) -> (Rig, Instance, Phone) {
    let rig = Rig::new(store, toml).await;
    let instance = rig.instance().await;
    (rig, instance, phone())
}

async fn asked_by(rig: &Rig, instance: &Instance, phone: &Phone, browser: &[u8]) -> MessageCode {
    sent(instance.ask(RequestedMessage { browser: Some(browser.to_vec()), ..ask(phone, &address()) }).await);
    rig.last_code()
}

/// From its own address.
async fn by(instance: &Instance, phone: &Phone, code: &MessageCode, browser: &[u8]) -> CheckOutcome {
    instance.guess(CodeGuess { browser: Some(browser), ..guess(phone, code, &address()) }).await
}

async fn from_known(instance: &Instance, phone: &Phone, code: &MessageCode) -> CheckOutcome {
    instance.guess(CodeGuess { known: true, ..guess(phone, code, &address()) }).await
}

fn any() -> MessageCode {
    MessageCode::parse("123456").unwrap()
}

/// What a caller is told, without the proof.
fn told(checked: CheckOutcome) -> String {
    match checked {
        CheckOutcome::Right(_) => "right".to_owned(),
        other => format!("{other:?}"),
    }
}

async fn wrong_codes_at_a_number_without_one_take_nothing_from_the_next(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    for turn in 0..8 {
        let answer = told(instance.check(&phone, &any()).await);
        assert_eq!(answer == "Wrong", turn < 5, "{answer}");
    }
    sent(instance.send(&phone).await);
    let code = rig.last_code();
    for _ in 0..4 {
        assert_eq!(told(instance.check(&phone, &other_than(&code)).await), "Wrong", "compared");
    }
    assert_eq!(told(instance.check(&phone, &code).await), "right");
}

async fn whoever_guesses_cannot_tell_whether_there_is_a_code(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    sent(instance.send(&phone).await);
    let (wrong, without) = (other_than(&rig.last_code()), neighbour(&phone));
    let here = [address(), address()];
    for _ in 0..7 {
        let [with, none] = [(&phone, &here[0]), (&without, &here[1])];
        let with = told(instance.check_from(with.0, &wrong, with.1).await);
        assert_eq!(told(instance.check_from(none.0, &wrong, none.1).await), with);
        rig.advance(SECOND);
    }
    // Each address is charged alike.
    for address in &here {
        assert_eq!(instance.counted("login-address", address).await, 5);
    }
}

async fn a_hundred_strangers_leave_the_browser_that_asked_its_own_guesses(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    let code = asked_by(&rig, &instance, &phone, OWNER).await;
    // If the store is shared, from two instances at once.
    let other = if store == Store::Redis { rig.instance().await } else { instance.clone() };
    let (wrong, instances) = (other_than(&code), [instance.clone(), other]);
    let strangers = (0..100).map(|turn| {
        let (instance, phone, wrong) = (instances[turn % 2].clone(), phone.clone(), wrong.clone());
        // Half of them send their browser id.
        async move {
            match turn % 4 {
                0 | 1 => told(instance.check(&phone, &wrong).await),
                _ => told(by(&instance, &phone, &wrong, format!("browser {turn}").as_bytes()).await),
            }
        }
    });
    let owner = {
        let (instance, phone, code) = (instance.clone(), phone.clone(), code.clone());
        async move { by(&instance, &phone, &code, OWNER).await }
    };
    let (answers, owner) = tokio::join!(all(strangers), tokio::spawn(owner));
    assert_eq!(told(owner.unwrap()), "right");
    // Once the owner has used the code there is none: five more get the same answer as if there had never
    // been one.
    assert!(answers.iter().filter(|answer| *answer == "Wrong").count() <= 10, "{answers:?}");
    assert!(instance.counted("sms-guess", phone.as_str().as_bytes()).await <= 5);
}

async fn ten_are_compared_in_ten_minutes_however_many_browsers_ask(store: Store) {
    let no_brake = format!("{NO_LIMIT}[sms.brake]\nenabled = false\n");
    let (rig, instance, phone) = rig(store, &no_brake).await;
    let mut compared = 0;
    for browser in 0..12u8 {
        let code = asked_by(&rig, &instance, &phone, &[browser]).await;
        for _ in 0..6 {
            let answer = by(&instance, &phone, &other_than(&code), &[browser]).await;
            compared += u32::from(told(answer) == "Wrong");
        }
        // All within ten minutes, and no code has expired.
        rig.advance(45 * SECOND);
    }
    assert_eq!(compared, 10);
}

async fn who_asks_after_the_owner_does_not_take_the_owners_place(store: Store) {
    let (rig, instance, phone) = rig(store, NO_LIMIT).await;
    asked_by(&rig, &instance, &phone, OWNER).await;
    rig.advance(MINUTE);
    // The owner types the newest of the codes.
    let code = asked_by(&rig, &instance, &phone, STRANGER).await;
    for _ in 0..10 {
        by(&instance, &phone, &other_than(&code), STRANGER).await;
    }
    assert_eq!(told(by(&instance, &phone, &code, OWNER).await), "right");
}

async fn the_next_browser_has_the_place_once_the_last_code_and_its_guesses_are_over(store: Store) {
    let (rig, instance, phone) = rig(store, NO_LIMIT).await;
    let is_asker = async |browser: &[u8]| {
        let code = asked_by(&rig, &instance, &phone, browser).await;
        for _ in 0..5 {
            instance.check(&phone, &other_than(&code)).await;
        }
        told(by(&instance, &phone, &code, browser).await) == "right"
    };
    assert!(is_asker(STRANGER).await);
    rig.advance(15 * MINUTE - MICRO);
    assert!(!is_asker(OWNER).await, "five minutes of its code, and ten of a guess in its last moment");
    rig.advance(10 * MINUTE);
    assert!(is_asker(OWNER).await);
}

async fn known_devices_have_guesses_of_their_own(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    let code = asked_by(&rig, &instance, &phone, STRANGER).await;
    let wrong = other_than(&code);
    for _ in 0..8 {
        by(&instance, &phone, &wrong, STRANGER).await;
        instance.check(&phone, &wrong).await;
    }
    for _ in 0..4 {
        assert_eq!(told(from_known(&instance, &phone, &wrong).await), "Wrong");
    }
    assert_eq!(told(from_known(&instance, &phone, &code).await), "right");
}

async fn what_a_code_survives_is_counted_for_each_of_them_whatever_the_store_forgets(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    let code = asked_by(&rig, &instance, &phone, OWNER).await;
    let wrong = other_than(&code);
    let forget = async || match store {
        Store::Redis => rig.flush(),
        Store::Memory => {
            for guesser in Guesser::ALL {
                instance.forget("sms-guess", &guesser.subject(phone.subject(), true)).await;
            }
        }
    };
    for _ in 0..9 {
        instance.check(&phone, &wrong).await;
        forget().await;
    }
    let stranger = told(instance.check(&phone, &code).await);
    match store {
        // It has lost all, which is noticed; in memory only these logs, which nobody sees.
        Store::Redis => assert!(stranger.contains("sms-guess"), "{stranger}"),
        Store::Memory => assert_eq!(stranger, "Wrong", "void for everyone"),
    }
    assert_eq!(told(by(&instance, &phone, &wrong, OWNER).await), "Wrong");
    forget().await;
    assert_eq!(told(by(&instance, &phone, &code, OWNER).await), "right", "but for who asked");
}

async fn whoever_waited_in_vain_for_guesses_at_the_address_passes_them_by_a_challenge(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    let (typed, here, mut in_flight) = (any(), address(), Vec::new());
    for _ in 0..20 {
        let held = instance.codes.admit(instance.live(), guess(&neighbour(&phone), &typed, &here)).await;
        in_flight.push(held.unwrap().unwrap());
    }
    sent(instance.send(&phone).await);
    let code = rig.last_code();
    // Five seconds later: a store's line waits by the machine's clock.
    let unsolved = told(instance.guess(guess(&phone, &code, &here)).await);
    assert!(unsolved.contains("Challenged"), "{unsolved}");
    let solved = CodeGuess { solved: true, ..guess(&phone, &code, &here) };
    assert_eq!(told(instance.guess(solved).await), "right");
    for held in in_flight {
        held.refund().await;
    }
}

/// A challenge does not pass what is in flight at a number, so that nobody solves one in vain.
async fn a_known_device_that_waited_in_vain_is_asked_for_none(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    sent(instance.send(&phone).await);
    let (wrong, here, mut in_flight) = (other_than(&rig.last_code()), address(), Vec::new());
    let known = CodeGuess { known: true, ..guess(&phone, &wrong, &here) };
    for _ in 0..5 {
        in_flight.push(instance.codes.admit(instance.live(), known.clone()).await.unwrap().unwrap());
    }
    let answer = told(instance.guess(known).await);
    assert!(answer.contains("Unavailable"), "{answer}");
    for held in in_flight {
        held.refund().await;
    }
}

async fn a_code_that_comes_between_look_and_comparison_is_not_compared(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    // One code of a million is right by chance, which the test ignores.
    let here = address();
    let typed = any();
    let early = instance.codes.admit(instance.live(), guess(&phone, &typed, &here)).await.unwrap().unwrap();
    sent(instance.send(&phone).await);
    assert_eq!(told(early.compare().await.unwrap()), "Wrong");
    assert_eq!(instance.counted("sms-guess", phone.as_str().as_bytes()).await, 0);
    assert_eq!(told(instance.check(&phone, &rig.last_code()).await), "right");
}

async fn a_code_that_goes_between_look_and_comparison_costs_the_number_nothing(store: Store) {
    let (rig, instance, phone) = rig(store, "").await;
    sent(instance.send(&phone).await);
    let (code, here) = (rig.last_code(), address());
    let late = instance.codes.admit(instance.live(), guess(&phone, &code, &here)).await.unwrap().unwrap();
    rig.advance(5 * MINUTE);
    assert_eq!(told(late.compare().await.unwrap()), "Wrong");
    assert_eq!(instance.counted("sms-guess", phone.as_str().as_bytes()).await, 0);
    assert_eq!(instance.counted("login-address", &here).await, 1);
}
