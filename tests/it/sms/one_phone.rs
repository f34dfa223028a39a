//! Two numbers that reach one phone: one subject for limits, ledger and guesses, and two for codes and accounts.

use super::http::{enter, with_number};
use super::rig::*;
use super::shortage::after_a_loss;
use crate::support::app::TestApp;
use crate::support::setup::max;
use crate::verify;
use gatehouse::codes::*;

const FIVE_AN_HOUR: &str = "[limits.sms-phone]\nrules = [{ max = 5, window = '1h' }]";
const THEIRS: &str = "+970599123456";
const ISRAELS: &str = "+972599123456";

on_each_store! {
    both_numbers_together_get_five_an_hour,
    wrong_codes_for_both_count_together,
    a_code_opens_nothing_at_the_other_number,
}

async fn both_numbers_together_get_five_an_hour(store: Store) {
    let rig = Rig::new(store, FIVE_AN_HOUR).await;
    let (instance, numbers) = (rig.instance().await, [THEIRS, ISRAELS].map(number_of));
    let asks = (0..40).map(|n| {
        let (instance, phone) = (instance.clone(), numbers[n % 2].clone());
        async move { is_sent(&instance.send(&phone).await) }
    });
    let admitted = all(asks.collect::<Vec<_>>().into_iter()).await;
    assert_eq!(admitted.into_iter().filter(|sent| *sent).count(), 5);
    assert_eq!(rig.sent().len(), 5);
    // The ledger knows it, too, and so do windows that are rebuilt from it.
    instance.forget("sms-phone", THEIRS.as_bytes()).await;
    for phone in &numbers {
        assert_eq!(throttled(instance.send(phone).await).0, "sms-phone");
    }
    let instance = after_a_loss(&rig, instance, store).await;
    for phone in &numbers {
        assert_eq!(throttled(instance.send(phone).await).0, "sms-phone");
    }
    assert_eq!(instance.counted("sms-phone", THEIRS.as_bytes()).await, 5);
    assert_eq!(instance.counted("sms-prefix", numbers[1].block().as_bytes()).await, 5);
    rig.advance(HOUR);
    sent(instance.send(&numbers[1]).await);
}

async fn wrong_codes_for_both_count_together(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let instance = rig.instance().await;
    let mut codes = Vec::new();
    for number in [THEIRS, ISRAELS] {
        let phone = number_of(number);
        sent(instance.send(&phone).await);
        codes.push((phone, rig.last_code()));
    }
    let mut compared = 0;
    for n in 0..12 {
        let (phone, code) = &codes[n % 2];
        compared += u32::from(matches!(instance.check(phone, &other_than(code)).await, CheckOutcome::Wrong));
    }
    assert_eq!(compared, 5);
}

async fn a_code_opens_nothing_at_the_other_number(store: Store) {
    let rig = Rig::new(store, "[limits.sms-phone]\nrules = []").await;
    let (instance, [theirs, israels]) = (rig.instance().await, [THEIRS, ISRAELS].map(number_of));
    sent(instance.send(&theirs).await);
    let first = rig.last_code();
    assert!(matches!(instance.check(&israels, &first).await, CheckOutcome::Wrong));
    sent(instance.send(&israels).await);
    let second = rig.last_code();
    if first.expose() != second.expose() {
        assert!(matches!(instance.check(&theirs, &second).await, CheckOutcome::Wrong));
    }
    for (phone, code) in [(&theirs, &first), (&israels, &second)] {
        let CheckOutcome::Right(proven) = instance.check(phone, code).await else { panic!("it is its code") };
        assert_eq!(proven.recipient().phone(), Some(phone));
    }
}

/// Over HTTP: the limit names the other number's messages, accounts are two, and so are verifications.
#[tokio::test]
async fn they_are_counted_as_one_and_registered_as_two() {
    let setup = TestApp::on(Store::Redis).limit("sms-phone", &[max(6).per("1h")]);
    let (app, boss, shop) = verify::started(setup).await;
    let alice = with_number(&app, "alice", THEIRS).await;
    let bob = with_number(&app, "bob", ISRAELS).await;
    let code = app.client().code(THEIRS, "login").await;
    assert_eq!(enter(&app.client(), ISRAELS, &code).await.problem(), "invalid-code");
    let signed_in = enter(&app.client(), THEIRS, &code).await;
    assert_eq!((signed_in.status, &signed_in.body["user"]["login"]), (200, &"alice".into()));
    // A verification of one is none of the other, though it was asked for later.
    let (first, code) = shop.sent(THEIRS).await;
    let (second, other) = shop.sent(ISRAELS).await;
    if code != other {
        assert_eq!(shop.check(&first, &other).await.problem(), "invalid-code");
    }
    shop.approve(&first, &code).await;
    shop.approve(&second, &other).await;
    assert_eq!(app.client().ask_code(ISRAELS, "login").await.status, 202);
    for number in [THEIRS, ISRAELS] {
        let refused = app.client().ask_code(number, "login").await;
        assert_eq!((refused.status, &refused.body["limit"]), (429, &"sms-phone".into()), "{}", refused.text);
    }
    // Whichever an operator clears, both are.
    assert_eq!(boss.clear("sms-phone", ISRAELS).await.status, 204);
    assert_eq!(app.client().ask_code(THEIRS, "login").await.status, 202);
    drop((alice, bob));
}
