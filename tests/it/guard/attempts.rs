//! What is decided, and what each outcome makes of it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Program, solved, start, started};
use crate::support::app::{Store, TestApp, on_both_stores};
use crate::support::setup::max;

on_both_stores!(
    of_two_hundred_at_once_three_are_looked_at_without_a_challenge,
    sixty_right_passwords_at_once_all_go,
    whoever_waited_in_vain_for_those_in_flight_passes_them_by_a_challenge,
    a_challenge_is_asked_for_after_three_failures_and_is_good_once,
    a_challenge_belongs_to_its_realm_and_to_the_address_that_was_stated,
    twenty_failures_block_whatever_is_solved_and_a_new_password_opens_again,
    a_success_forgives_and_an_abandoned_attempt_counts_nowhere,
    the_first_outcome_stays_and_can_be_told_again,
    an_attempt_about_which_nothing_is_said_counts_as_a_failure,
    an_old_outcome_that_is_told_again_counts_nothing_anew,
    a_known_device_goes_on_where_strangers_have_used_up_the_name,
    spellings_of_one_name_share_their_failures,
);

async fn of_two_hundred_at_once_three_are_looked_at_without_a_challenge(store: Store) {
    let (_app, _, shop) = start(store).await;
    let mut asking = JoinSet::new();
    for n in 0..200 {
        let shop = shop.clone();
        asking.spawn(async move {
            let address = format!("10.{}.{}.1", n / 100, n % 100);
            let decision = shop.ask_with(json!({ "login": "ada", "address": address })).await;
            if let Some(attempt) = decision["attempt"].as_str() {
                assert_eq!(shop.tell(attempt, "failure").await.status, 200);
            }
            decision["decision"].as_str().unwrap().to_owned()
        });
    }
    let decisions = asking.join_all().await;
    let count = |what: &str| decisions.iter().filter(|decision| *decision == what).count();
    assert_eq!((count("go"), count("challenge") + count("wait")), (3, 197), "{decisions:?}");
}

async fn sixty_right_passwords_at_once_all_go(store: Store) {
    let (_app, _, shop) = start(store).await;
    let mut asking = JoinSet::new();
    for _ in 0..60 {
        let shop = shop.clone();
        asking.spawn(async move { shop.succeed("ada").await });
    }
    assert_eq!(asking.join_all().await.len(), 60);
}

async fn whoever_waited_in_vain_for_those_in_flight_passes_them_by_a_challenge(store: Store) {
    let (_app, _, shop) = start(store).await;
    for _ in 0..3 {
        shop.go("ada").await;
    }
    // Five seconds later: a store's line waits by the machine's clock.
    let asked = shop.ask("ada").await;
    assert_eq!(asked["decision"], "challenge", "{asked}");
    shop.go_solved("ada", &asked).await;
}

async fn a_challenge_is_asked_for_after_three_failures_and_is_good_once(store: Store) {
    let (app, _, shop) = start(store).await;
    for _ in 0..3 {
        shop.fail("ada").await;
    }
    let asked = shop.ask("ada").await;
    assert_eq!(asked["decision"], "challenge");
    assert!((1..=60).contains(&asked["retry_after"].as_u64().unwrap()), "{asked}");
    let image = app.client().get(asked["captcha"]["image"].as_str().unwrap()).await;
    assert_eq!((image.status, image.header("content-type")), (200, "image/png"));
    let attempt = shop.go_solved("ada", &asked).await;
    let again = shop.ask_with(solved("ada", &asked)).await;
    assert_eq!(again["decision"], "challenge", "it was used");
    assert_ne!(again["captcha"]["id"], asked["captcha"]["id"]);
    assert_eq!(shop.tell(&attempt, "failure").await.status, 200);
    assert_eq!(shop.ask("bob").await["decision"], "go", "another name");
}

async fn a_challenge_belongs_to_its_realm_and_to_the_address_that_was_stated(store: Store) {
    let (app, boss, shop) = start(store).await;
    let mail = Program::of(&app, &boss, "guard:mail").await;
    for program in [&shop, &mail] {
        for _ in 0..3 {
            program.fail("ada").await;
        }
    }
    let asked = shop.ask("ada").await;
    assert_eq!(mail.ask_with(solved("ada", &asked)).await["decision"], "challenge");
    let asked = shop.ask("ada").await;
    let mut elsewhere = solved("ada", &asked);
    elsewhere["address"] = "198.51.100.1".into();
    assert_eq!(shop.ask_with(elsewhere).await["decision"], "challenge");
    // Nor is one of our own sign-in's good there.
    let own = app.client().challenge().await;
    let captcha = json!({ "captcha": { "id": own } });
    assert_eq!(shop.ask_with(solved("ada", &captcha)).await["decision"], "challenge");
    shop.go_solved("ada", &shop.ask("ada").await).await;
}

async fn twenty_failures_block_whatever_is_solved_and_a_new_password_opens_again(store: Store) {
    let (_app, _, shop) = start(store).await;
    for failure in 0..20 {
        let attempt = match failure {
            0..3 => shop.go("ada").await,
            _ => shop.go_solved("ada", &shop.ask("ada").await).await,
        };
        assert_eq!(shop.tell(&attempt, "failure").await.status, 200);
    }
    let blocked = shop.ask("ada").await;
    assert_eq!((&blocked["decision"], &blocked["limit"]), (&json!("wait"), &json!("guard-account")));
    assert!(blocked["retry_after"].as_u64().unwrap() > 3500, "{blocked}");
    assert!(blocked.get("captcha").is_none());
    let forgiven = shop.call("/forgive", json!({ "login": "ADA" })).await;
    assert_eq!(forgiven.status, 204, "{}", forgiven.text);
    let elsewhere = shop.ask_with(json!({ "login": "ada", "address": "198.51.100.1" })).await;
    assert_eq!(elsewhere["decision"], "go");
    assert_eq!(shop.ask("ada").await["decision"], "challenge", "the address keeps its failures");
}

async fn a_success_forgives_and_an_abandoned_attempt_counts_nowhere(store: Store) {
    let (_app, _, shop) = start(store).await;
    for _ in 0..2 {
        shop.fail("ada").await;
    }
    for _ in 0..5 {
        let attempt = shop.go("ada").await;
        let told = shop.tell(&attempt, "abandoned").await;
        assert_eq!((told.status, &told.body), (200, &json!({})));
    }
    shop.succeed("ada").await;
    for _ in 0..3 {
        shop.fail("ada").await;
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
}

async fn the_first_outcome_stays_and_can_be_told_again(store: Store) {
    let (_app, _, shop) = start(store).await;
    let attempt = shop.go("ada").await;
    for _ in 0..3 {
        assert_eq!(shop.tell(&attempt, "failure").await.status, 200);
        for other in ["success", "abandoned"] {
            let told = shop.tell(&attempt, other).await;
            assert_eq!((told.status, told.problem()), (409, "told-otherwise"), "{other}");
        }
    }
    // It was one failure.
    for _ in 0..2 {
        shop.fail("ada").await;
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    let right = shop.go("bob").await;
    let (first, second) = (shop.tell(&right, "success").await, shop.tell(&right, "success").await);
    assert!(first.body["device"].is_string() && second.body["device"].is_string());
    assert_eq!(shop.tell(&right, "failure").await.status, 409);
}

async fn an_attempt_about_which_nothing_is_said_counts_as_a_failure(store: Store) {
    let (app, _, shop) = start(store).await;
    let attempts = [shop.go("ada").await, shop.go("ada").await, shop.go("ada").await];
    app.advance(Duration::from_secs(15));
    let told = shop.tell(&attempts[0], "success").await;
    assert_eq!((told.status, told.problem()), (410, "lapsed"));
    app.services.attempts.lapse(&app.services.live.snapshot()).await;
    for attempt in &attempts {
        for outcome in ["success", "failure", "abandoned"] {
            assert_eq!(shop.tell(attempt, outcome).await.status, 410, "{outcome}");
        }
    }
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
}

/// A program's queue of retries may run dry hours later.
async fn an_old_outcome_that_is_told_again_counts_nothing_anew(store: Store) {
    let (app, _, shop) = start(store).await;
    let attempts = [shop.go("ada").await, shop.go("ada").await, shop.go("ada").await];
    for attempt in &attempts {
        assert_eq!(shop.tell(attempt, "success").await.status, 200);
    }
    for minutes in [1, 9, 60] {
        app.advance(Duration::from_secs(60 * minutes));
        for attempt in &attempts {
            let told = shop.tell(attempt, "success").await;
            assert_eq!(told.status, if minutes == 1 { 200 } else { 410 }, "{minutes}");
        }
        shop.succeed("ada").await;
    }
    for _ in 0..3 {
        shop.fail("ada").await;
    }
}

async fn a_known_device_goes_on_where_strangers_have_used_up_the_name(store: Store) {
    let (app, boss, shop) = start(store).await;
    let device = shop.succeed("ada").await;
    for _ in 0..3 {
        shop.fail("ada").await;
    }
    let with = |login: &str| json!({ "login": login, "address": "198.51.100.1", "device": &device });
    assert_eq!(shop.ask("ada").await["decision"], "challenge");
    let known = shop.ask_with(with("ada")).await;
    assert_eq!(known["decision"], "go", "{known}");
    let told = shop.tell(known["attempt"].as_str().unwrap(), "success").await;
    assert!(told.body["device"].is_string());
    // It is of one name in one realm, and opens nothing here.
    for _ in 0..3 {
        shop.fail("bob").await;
    }
    assert_eq!(shop.ask_with(with("bob")).await["decision"], "challenge");
    let mail = Program::of(&app, &boss, "guard:mail").await;
    for _ in 0..3 {
        mail.fail("ada").await;
    }
    assert_eq!(mail.ask_with(with("ada")).await["decision"], "challenge");
    // It has its own count.
    for _ in 0..3 {
        let attempt = shop.ask_with(with("ada")).await["attempt"].as_str().unwrap().to_owned();
        assert_eq!(shop.tell(&attempt, "failure").await.status, 200);
    }
    assert_eq!(shop.ask_with(with("ada")).await["decision"], "challenge");
}

async fn spellings_of_one_name_share_their_failures(store: Store) {
    let (_app, _, shop) = start(store).await;
    for login in ["ada@example.com", "ADA@example.com", "ａｄａ@Example.com "] {
        shop.fail(login).await;
    }
    assert_eq!(shop.ask("Ada@Example.Com").await["decision"], "challenge");
}

#[tokio::test]
async fn what_is_no_attempt_is_said_to_be_none() {
    let (_app, _, shop) = start(Store::Memory).await;
    let wrong = |answer: crate::support::app::Answer| {
        let fields = answer.body["errors"].as_array().expect("errors").iter();
        let fields: Vec<Value> = fields.map(|error| error["field"].clone()).collect();
        (answer.status, fields)
    };
    let both = shop.call("", json!({ "login": "a\u{200b}", "address": "here" })).await;
    assert!(!both.text.contains("here"), "not repeated");
    assert_eq!(wrong(both), (422, vec![json!("login"), json!("address")]));
    for address in ["", "203.0.113.7:80", "203.0.113.0/24", "localhost", "1"] {
        let answer = shop.call("", json!({ "login": "ada", "address": address })).await;
        assert_eq!(wrong(answer), (422, vec![json!("address")]), "{address}");
    }
    for login in ["", "  ", &"x".repeat(257)] {
        let answer = shop.call("", json!({ "login": login, "address": "::1" })).await;
        assert_eq!(wrong(answer), (422, vec![json!("login")]), "{login}");
    }
    let attempt = shop.go("ada").await;
    assert_eq!(wrong(shop.tell(&attempt, "lapsed").await), (422, vec![json!("outcome")]));
    let forged = format!("{}A{}", &attempt[..20], &attempt[21..]);
    for other in ["x", "AAAA", &forged, &attempt[1..], &"A".repeat(5000)] {
        assert_eq!(shop.tell(other, "failure").await.status, 404, "{other}");
    }
    // A form that passes its empty fields on.
    let empty = json!({ "login": "eve", "address": "::1", "captcha": { "id": "", "answer": "" } });
    assert_eq!(shop.ask_with(empty).await["decision"], "go");
    // A device that is none of ours is a stranger's.
    for (login, device) in [("bob", ""), ("carol", "x"), ("dave", &"A".repeat(10_000))] {
        let ask = json!({ "login": login, "address": "::1", "device": device });
        assert_eq!(shop.ask_with(ask).await["decision"], "go");
    }
}

/// A program fetches the images of all its clients from one address.
#[tokio::test]
async fn images_count_on_the_client_that_a_program_states() {
    let setup = TestApp::on(Store::Memory).behind_a_proxy();
    let (app, boss, shop) = started(setup.limit("guard-account", &[max(1).per("1h").captcha()])).await;
    let mail = Program::of(&app, &boss, "guard:mail").await;
    for program in [&shop, &mail] {
        program.fail("ada").await;
    }
    let servers = app.client_at("192.0.2.80");
    let fetch = async |program: &Program, address: &str| {
        let asked = program.ask_with(json!({ "login": "ada", "address": address })).await;
        assert_eq!(asked["decision"], "challenge", "{asked}");
        match asked["captcha"]["image"].as_str() {
            Some(image) => servers.get(image).await.status,
            None => 429,
        }
    };
    let mut drawn = 0;
    for _ in 0..606 {
        drawn += u32::from(fetch(&shop, "203.0.113.7").await == 200);
    }
    assert_eq!(drawn, 60);
    for address in ["203.0.113.8", "2001:db8::1"] {
        assert_eq!(fetch(&shop, address).await, 200, "another client of the program");
    }
    assert_eq!(fetch(&mail, "203.0.113.7").await, 200, "the same client of another");
    // Who has stolen its token states a client in each of a thousand networks.
    for network in 0..1_000 {
        fetch(&shop, &format!("10.{}.{}.1", network / 250, network % 250)).await;
    }
    assert_eq!(fetch(&mail, "203.0.113.9").await, 200);
    for address in ["192.0.2.80", "203.0.113.7"] {
        let visitor = app.client_at(address);
        assert_eq!(visitor.image(&visitor.challenge().await).await.status, 200, "at our own forms");
    }
}
