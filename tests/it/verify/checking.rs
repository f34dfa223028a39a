//! What a code proves, how often it may be guessed at, and where it opens nothing.

use std::time::Duration;

use gatehouse::audit::{Action, EventFilter, Outcome};
use gatehouse::codes::LedgerEntry;
use gatehouse::message::Purpose;
use gatehouse::sms::Phone;
use serde_json::json;
use tokio::task::JoinSet;

use super::{PHONE, Program, id_of, other_than, start};
use crate::support::app::{Store, on_both_stores};

const MINUTE: Duration = Duration::from_secs(60);

on_both_stores!(
    a_right_code_is_approved_once_and_makes_no_account,
    the_events_of_checks_name_the_number_as_that_of_the_message_does,
    of_parallel_right_codes_one_is_approved,
    of_parallel_wrong_codes_five_are_compared,
    a_resend_refills_no_guesses_and_they_count_by_number_and_program,
    what_is_not_this_programs_is_not_found_and_counts_nothing,
    a_code_of_one_namespace_opens_nothing_in_another,
    the_newest_code_counts_at_every_verification_that_is_open,
    a_stranger_at_the_same_program_ends_nobodys_verification,
);

async fn a_right_code_is_approved_once_and_makes_no_account(store: Store) {
    let (app, _, shop) = start(store).await;
    let (id, code) = shop.sent(PHONE).await;
    shop.guess(&id, &code).await;
    shop.approve(&id, &format!(" {}-{} ", &code[..3], &code[3..])).await;
    for code in [&code, &other_than(&code)] {
        let again = shop.check(&id, code).await;
        assert_eq!((again.status, again.problem()), (410, "lapsed"), "{}", again.text);
    }
    // A right code gives its guess back, and one that was compared with nothing takes none.
    let approved = id;
    let (id, code) = shop.sent(PHONE).await;
    assert_eq!(shop.check(&approved, &code).await.status, 410, "a newer code does not open it again");
    for _ in 0..4 {
        shop.guess(&id, &code).await;
    }
    assert_eq!(shop.check(&id, &code).await.status, 429, "five in all");
    assert_eq!(app.services.accounts.find_by_phone(&Phone::stored(PHONE.into())).await.unwrap(), None);
    let page = app.services.codes.ledger().page(&Default::default(), None, 10).await.unwrap();
    let entered = page.entries.iter().filter(|entry| entry.entered_at.is_some()).count();
    assert_eq!(entered, 1, "the brake judges by it");
}

async fn the_events_of_checks_name_the_number_as_that_of_the_message_does(store: Store) {
    let (app, _, shop) = start(store).await;
    let owner = app.client();
    let code = owner.code(PHONE, "register").await;
    let new = json!({ "login": "ada", "password": "a long enough password", "phone": PHONE, "code": code });
    assert_eq!(owner.call("/register", new).await.status, 201);
    let (id, code) = shop.sent(PHONE).await;
    for _ in 0..4 {
        shop.guess(&id, &code).await;
    }
    shop.approve(&id, &code).await;
    let audit = &app.services.audit;
    audit.flush().await;
    let events = audit.log().page(&EventFilter::default(), None, 100).await.unwrap().entries;
    let of = |action, outcome| {
        let at_shop = events.iter().filter(|event| event.detail.as_deref() == Some(r#"{"from":"program"}"#));
        at_shop.filter(|event| (event.action, event.outcome) == (action, outcome)).collect::<Vec<_>>()
    };
    let sent = events.iter().find(|event| event.action == Action::Send).unwrap().phone.as_ref().unwrap();
    let (right, wrong) = (of(Action::Guess, Outcome::Ok), of(Action::Guess, Outcome::Wrong));
    assert_eq!((right.len(), wrong.len()), (1, 4));
    for check in right.into_iter().chain(wrong) {
        let named = check.phone.as_ref().expect("a number");
        assert_eq!((named.key, &named.mask), (sent.key, &sent.mask));
    }
    // They are no failures of the account that has the number.
    assert!(!owner.get("/account").await.text.contains("Wrong codes:"));
}

async fn of_parallel_right_codes_one_is_approved(store: Store) {
    let (_app, _, shop) = start(store).await;
    let (id, code) = shop.sent(PHONE).await;
    let mut checking = JoinSet::new();
    for _ in 0..30 {
        let (shop, id, code) = (shop.clone(), id.clone(), code.clone());
        checking.spawn(async move { shop.check(&id, &code).await.status });
    }
    let mut statuses = checking.join_all().await;
    statuses.sort_unstable();
    assert_eq!((statuses[0], &statuses[1..]), (200, &[410; 29][..]));
    // They cost no guesses.
    let (id, code) = shop.sent(PHONE).await;
    for _ in 0..4 {
        shop.guess(&id, &code).await;
    }
    shop.approve(&id, &code).await;
}

async fn of_parallel_wrong_codes_five_are_compared(store: Store) {
    let (_app, _, shop) = start(store).await;
    let (id, code) = shop.sent(PHONE).await;
    let mut checking = JoinSet::new();
    for _ in 0..40 {
        let (shop, id, code) = (shop.clone(), id.clone(), other_than(&code));
        checking.spawn(async move { shop.check(&id, &code).await.status });
    }
    let statuses = checking.join_all().await;
    let count = |status| statuses.iter().filter(|other| **other == status).count();
    assert_eq!((count(401), count(429)), (5, 35), "{statuses:?}");
}

async fn a_resend_refills_no_guesses_and_they_count_by_number_and_program(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let (first, code) = shop.sent(PHONE).await;
    for _ in 0..3 {
        shop.guess(&first, &code).await;
    }
    let (second, code) = shop.sent(PHONE).await;
    for _ in 0..2 {
        shop.guess(&second, &code).await;
    }
    let (third, code) = shop.sent(PHONE).await;
    for id in [&second, &third] {
        let refused = shop.check(id, &code).await;
        match refused.status {
            429 => {
                assert_eq!((&refused.body["limit"], refused.problem()), (&json!("sms-guess"), "throttled"))
            }
            _ => assert_eq!((id, refused.status), (&second, 410)),
        }
    }
    // Another purpose is no way around it; another number, another program and our own sign-in are others.
    let pay = shop.call("", json!({ "to": PHONE, "address": "203.0.113.7", "purpose": "pay" })).await;
    let code = shop.client.codes(PHONE).await.remove(0);
    assert_eq!(shop.check(&id_of(&pay), &code).await.status, 429);
    let (id, code) = shop.sent("+8613800138001").await;
    shop.approve(&id, &code).await;
    let (id, code) = mail.sent(PHONE).await;
    mail.approve(&id, &code).await;
    let client = app.client();
    let code = client.code(PHONE, "login").await;
    let signed_in = client.call("/sms/login", json!({ "phone": PHONE, "code": code })).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.text);
    app.advance(10 * MINUTE);
    let (id, code) = shop.sent(PHONE).await;
    shop.approve(&id, &code).await;
}

async fn what_is_not_this_programs_is_not_found_and_counts_nothing(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let (id, code) = shop.sent(PHONE).await;
    let (theirs, their_code) = mail.sent(PHONE).await;
    let ours = app.client();
    assert_eq!(ours.ask_code(PHONE, "verify").await.status, 401);
    assert_eq!(ours.ask_code(PHONE, "login").await.status, 202);
    let page = app.services.codes.ledger().page(&Default::default(), None, 10).await.unwrap();
    let is_own = |entry: &&LedgerEntry| entry.purpose == Purpose::Login.into();
    let own = page.entries.iter().find(is_own).expect("our code").id.to_string();
    let own_code = ours.codes(PHONE).await.remove(0);
    for _ in 0..10 {
        for (id, code) in [(&id, &code), (&id, &other_than(&code)), (&own, &own_code)] {
            let answer = mail.check(id, code).await;
            assert_eq!((answer.status, answer.problem()), (404, "not-found"), "{}", answer.text);
        }
    }
    for unknown in ["x", "0", &"0".repeat(32), &"f".repeat(33), &"a".repeat(5000), "%00", "..%2f", "é"] {
        assert_eq!(mail.check(unknown, "123456").await.status, 404, "{unknown}");
    }
    mail.guess(&theirs, &their_code).await;
    mail.approve(&theirs, &their_code).await;
    shop.approve(&id, &code).await;
    let signed_in = ours.call("/sms/login", json!({ "phone": PHONE, "code": own_code })).await;
    assert_eq!(signed_in.status, 200, "{}", signed_in.text);
}

async fn a_code_of_one_namespace_opens_nothing_in_another(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "verify:mail").await;
    let client = app.client();
    // Named as our own purposes are.
    let mut theirs = Vec::new();
    for purpose in ["login", "reset", "verify", "register"] {
        let body = json!({ "to": PHONE, "address": "203.0.113.7", "purpose": purpose });
        theirs.push((id_of(&shop.call("", body).await), client.codes(PHONE).await.remove(0)));
    }
    let (id, code) = mail.sent(PHONE).await;
    let own = client.code(PHONE, "login").await;
    for (_, code) in &theirs[..2] {
        let login = client.call("/sms/login", json!({ "phone": PHONE, "code": code })).await;
        assert_eq!((login.status, login.problem()), (401, "invalid-code"));
        let new = json!({ "phone": PHONE, "code": code, "new_password": "a long enough password" });
        let reset = client.call("/password/reset", new).await;
        assert_eq!((reset.status, reset.problem()), (401, "invalid-code"));
        let register =
            json!({ "login": "eve", "password": "a long enough password", "phone": PHONE, "code": code });
        assert_eq!(client.call("/register", register).await.status, 401);
    }
    for wrong in [&own, &code, &theirs[1].1] {
        assert_eq!(shop.check(&theirs[0].0, wrong).await.status, 401);
    }
    for wrong in [&own, &theirs[0].1] {
        assert_eq!(mail.check(&id, wrong).await.status, 401);
    }
    // And each still opens what it is for.
    shop.approve(&theirs[0].0, &theirs[0].1).await;
    shop.approve(&theirs[1].0, &theirs[1].1).await;
    mail.approve(&id, &code).await;
    assert_eq!(client.call("/sms/login", json!({ "phone": PHONE, "code": own })).await.status, 200);
}

async fn the_newest_code_counts_at_every_verification_that_is_open(store: Store) {
    let (app, _, shop) = start(store).await;
    let (old, code) = shop.sent(PHONE).await;
    app.advance(2 * MINUTE);
    let (new, newer) = shop.sent(PHONE).await;
    if code != newer {
        shop.guess(&old, &newer).await;
        assert_eq!(shop.check(&new, &code).await.status, 401);
    }
    shop.approve(&old, &newer).await;
    for id in [&old, &new] {
        assert_eq!(shop.check(id, &newer).await.status, 410, "one approval");
    }
    let (new, newer) = shop.sent(PHONE).await;
    app.advance(4 * MINUTE);
    shop.guess(&new, &newer).await;
    app.advance(MINUTE);
    let lapsed = shop.check(&new, &newer).await;
    assert_eq!((lapsed.status, lapsed.problem()), (410, "lapsed"), "{}", lapsed.text);
}

async fn a_stranger_at_the_same_program_ends_nobodys_verification(store: Store) {
    let (app, _, shop) = start(store).await;
    let (hers, _) = shop.sent(PHONE).await;
    app.advance(MINUTE);
    let asked = shop.call("", json!({ "to": PHONE, "address": "198.51.100.1" })).await;
    let (theirs, newest) = (id_of(&asked), shop.client.codes(PHONE).await.remove(0));
    for _ in 0..5 {
        shop.guess(&theirs, &newest).await;
    }
    assert_eq!(shop.check(&theirs, &newest).await.status, 429, "their guesses are spent");
    let asked = shop.call("", json!({ "to": PHONE, "address": "198.51.100.2" })).await;
    assert_eq!(shop.check(&id_of(&asked), &newest).await.status, 429, "from another address, too");
    let newest = shop.client.codes(PHONE).await.remove(0);
    shop.guess(&hers, &newest).await;
    shop.approve(&hers, &newest).await;
}
