//! Promise 10 for shared subjects: an address and a network challenge strangers and refuse nobody, and what
//! strangers spend there locks out nobody who is known or solves a challenge.

use std::collections::HashMap;
use std::time::Duration;

use gatehouse::lookup::LookupSubject;

use super::devices::device_cookie;
use super::throttling::{assert_throttled, fail_solved};
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp, on_both_stores};
use crate::support::setup::max;

const WRONG: &str = "a wrong password";
const MINUTE: Duration = Duration::from_secs(60);
const SHARED: &str = "203.0.113.7";

on_both_stores!(
    junk_for_answers_shuts_nobody_out,
    what_answers_no_challenge_counts_nowhere,
    wrong_answers_bring_on_a_challenge_and_refuse_nobody,
    an_address_has_sixty_unchallenged_failures_an_hour,
    of_two_hundred_at_once_from_one_address_twenty_are_verified,
    a_known_device_is_held_by_neither_address_nor_network,
    where_an_owner_blocks_an_address_known_devices_come_in,
    no_answer_counts_where_an_owner_blocks,
    a_wrong_code_counts_in_the_network_too,
);

async fn start(store: Store, rules: &str) -> TestApp {
    TestApp::on(store).behind_a_proxy().file(rules).start().await
}

async fn owner(app: &TestApp) -> Client {
    let client = app.client_at(SHARED);
    let cookie = device_cookie(&client.register("alice", PASSWORD).await);
    app.client_that_says(&[("x-forwarded-for", SHARED), ("cookie", &format!("gh_device={cookie}"))])
}

/// How many hits the address and its network have.
async fn hits(app: &TestApp, address: &str) -> [usize; 2] {
    let live = app.services.live.snapshot();
    let subject: LookupSubject = gatehouse::web::console::lookup::subject::read(address, &live).unwrap();
    let mut hits = [0; 2];
    for (hits, limit) in hits.iter_mut().zip(["login-address", "login-network"]) {
        let standing = app.services.lookup.standing(&live, limit, &subject).await.unwrap();
        *hits = standing.expect("there is that limit").hits.len();
    }
    hits
}

fn evalshas(app: &TestApp) -> u64 {
    app.redis.as_ref().map_or(0, |redis| redis.calls("evalsha"))
}

fn assert_not_accepted(answer: &Answer) {
    assert_eq!((answer.status, answer.problem()), (403, "captcha-invalid"), "{}", answer.text);
}

/// The attack as it was measured: then, the last two got 429 for an hour.
async fn junk_for_answers_shuts_nobody_out(store: Store) {
    let app = start(store, "").await;
    let (owner, attacker, stranger) = (owner(&app).await, app.client_at(SHARED), app.client_at(SHARED));
    let (hashes, trips) = (app.hashes(), evalshas(&app));
    for number in 0..201 {
        let login = format!("guess{number}");
        assert_not_accepted(&attacker.login_with(&login, WRONG, &format!("junk{number}"), "x").await);
    }
    assert_eq!((app.hashes(), evalshas(&app)), (hashes, trips), "neither a hash nor a trip to the store");
    assert_eq!(hits(&app, SHARED).await, [0, 0]);
    assert_eq!(owner.login("alice", PASSWORD).await.status, 200, "a known device");
    assert_eq!(stranger.login_solved("alice", PASSWORD).await.status, 200, "a solved challenge");
    assert_eq!(app.client_at(SHARED).login("alice", PASSWORD).await.status, 200, "nobody is even asked");
}

async fn what_answers_no_challenge_counts_nowhere(store: Store) {
    let app = start(store, "").await;
    app.register("alice").await;
    let (client, other) = (app.client_at(SHARED), app.client_at("203.0.113.8"));
    let of_another_form = client.call("/captcha", serde_json::json!({ "for": "register" })).await;
    let of_another_form = of_another_form.body["id"].as_str().unwrap().to_owned();
    let spent = client.challenge().await;
    assert_eq!(client.login_with("alice", PASSWORD, &spent, ANSWER).await.status, 200);
    let expired = client.challenge().await;
    app.advance(3 * MINUTE);
    let of_another_client = other.challenge().await;
    let (hashes, trips) = (app.hashes(), evalshas(&app));
    let mut forged = of_another_client.clone().into_bytes();
    forged[3] ^= 1;
    let forged = String::from_utf8(forged).unwrap();
    for id in ["", "junk", &forged, &expired, &spent, &of_another_client, &of_another_form] {
        for answer in [ANSWER, "wrong", ""] {
            if !(id.is_empty() && answer.is_empty()) {
                assert_not_accepted(&client.login_with("alice", PASSWORD, id, answer).await);
            }
        }
    }
    assert_eq!((app.hashes(), evalshas(&app)), (hashes, trips));
    assert_eq!(hits(&app, SHARED).await, [0, 0]);
    assert_eq!(
        other.login_with("alice", PASSWORD, &of_another_client, ANSWER).await.status,
        200,
        "still good"
    );
}

async fn wrong_answers_bring_on_a_challenge_and_refuse_nobody(store: Store) {
    let app = start(store, "").await;
    let (owner, guesser) = (owner(&app).await, app.client_at(SHARED));
    let hashes = app.hashes();
    for number in 1..=25 {
        let id = guesser.challenge().await;
        assert_not_accepted(&guesser.login_with("alice", PASSWORD, &id, "wrong").await);
        // Where a challenge is asked for, no more of them count.
        assert_eq!(hits(&app, SHARED).await, [number.min(20), number.min(20)]);
    }
    let asked = app.client_at(SHARED).login("alice", PASSWORD).await;
    assert_eq!((asked.status, asked.problem()), (403, "captcha-required"));
    assert_eq!(asked.header("ratelimit"), "\"login-address\";r=0;t=60");
    assert_eq!(app.hashes(), hashes);
    assert_eq!(guesser.login_solved("alice", PASSWORD).await.status, 200, "the guesser, too");
    // A known device is not asked, and its wrong answer costs it nothing.
    let id = owner.challenge().await;
    assert_not_accepted(&owner.login_with("alice", PASSWORD, &id, "wrong").await);
    assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
}

/// Over many accounts, as fast as possible without a challenge, for two hours.
async fn an_address_has_sixty_unchallenged_failures_an_hour(store: Store) {
    let app = start(store, "").await;
    let client = app.client_at(SHARED);
    let mut verified = Vec::new();
    for second in (0..7200).step_by(20) {
        let answer = client.login(&format!("guess{second}"), WRONG).await;
        match answer.status {
            401 => verified.push(second),
            _ => assert_eq!(answer.problem(), "captcha-required"),
        }
        app.advance(Duration::from_secs(20));
    }
    let within = |first: &i32| verified.iter().filter(|at| (*first..*first + 3600).contains(at)).count();
    assert_eq!(verified.iter().map(within).max(), Some(60));
    assert_eq!(verified.len(), 120);
}

async fn of_two_hundred_at_once_from_one_address_twenty_are_verified(store: Store) {
    let app = start(store, "").await;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let client = app.client_at(SHARED);
        tasks.spawn(async move { client.login(&format!("guess{number}"), WRONG).await });
    }
    let mut tally: HashMap<(u16, String), usize> = HashMap::new();
    for answer in tasks.join_all().await {
        *tally.entry((answer.status, answer.problem().to_owned())).or_default() += 1;
    }
    assert_eq!(tally[&(401, "invalid-credentials".to_owned())], 20, "{tally:?}");
    assert_eq!(app.hashes(), 20);
    // On a slow machine some may wait in vain.
    assert!(tally.keys().all(|(_, problem)| problem != "throttled"), "{tally:?}");
}

/// The default for IPv6: 600 an hour for a /48, from any of its /64s.
#[tokio::test]
async fn a_network_has_six_hundred_unchallenged_failures_an_hour() {
    let app = start(Store::Memory, "").await;
    app.register("alice").await;
    let hashes = app.hashes();
    // Twenty from each, so that no single address is challenged.
    for subnet in 0..30 {
        let client = app.client_at(&format!("2001:db8:7:{subnet:x}::1"));
        for number in 0..20 {
            let answer = client.login(&format!("guess{number}-{subnet}"), WRONG).await;
            assert_eq!(answer.status, 401, "{number} of {subnet}");
        }
    }
    assert_eq!(app.hashes() - hashes, 600);
    let newcomer = app.client_at("2001:db8:7:ffff::1");
    let asked = newcomer.login("alice", PASSWORD).await;
    assert_eq!(asked.problem(), "captcha-required");
    assert!(
        asked.header("ratelimit").starts_with("\"login-network\";r=0;t="),
        "{}",
        asked.header("ratelimit")
    );
    assert_eq!(newcomer.login_solved("alice", PASSWORD).await.status, 200);
    assert_eq!(app.client_at("2001:db8:8::1").login("alice", PASSWORD).await.status, 200, "another network");
}

#[tokio::test]
async fn a_network_is_a_24_or_a_48() {
    let rules = "[limits.login-network]\nrules = [{ max = 2, window = \"1h\", then = \"captcha\" }]\n";
    let app = start(Store::Memory, rules).await;
    for (first, second, inside, outside) in [
        ("203.0.113.1", "203.0.113.2", "203.0.113.255", "203.0.112.255"),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", "2001:db8:1:ffff::1", "2001:db8:2:2::1"),
        ("198.51.100.1", "::ffff:198.51.100.2", "::ffff:198.51.100.3", "198.51.101.1"),
    ] {
        for (address, status) in [(first, 401), (second, 401), (inside, 403), (outside, 401)] {
            assert_eq!(app.client_at(address).login("nobody-here", WRONG).await.status, status, "{address}");
            app.advance(MINUTE);
        }
    }
}

/// One failure of a stranger fills every rule of both.
const ONE: &str = "[limits.login-address]\nrules = [{ max = 1, window = \"1h\", then = \"captcha\" }]\n\
                   [limits.login-network]\nrules = [{ max = 1, window = \"1h\", then = \"captcha\" }]\n";

async fn a_known_device_is_held_by_neither_address_nor_network(store: Store) {
    let app = start(store, ONE).await;
    let owner = owner(&app).await;
    // Its own failures do not count for strangers.
    for required in [false, false] {
        let answer = owner.login("alice", WRONG).await;
        assert_eq!((answer.status, &answer.body["captcha_required"]), (401, &required.into()));
    }
    assert_eq!(hits(&app, SHARED).await, [0, 0]);
    assert_eq!(app.client_at(SHARED).login("nobody", WRONG).await.body["captcha_required"], true);
    assert_eq!(hits(&app, SHARED).await, [1, 1]);
    assert_eq!(app.client_at(SHARED).login("alice", PASSWORD).await.problem(), "captcha-required");
    for _ in 0..3 {
        assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
    }
    assert_eq!(app.client_at(SHARED).login_solved("alice", PASSWORD).await.status, 200);
    // Past its own block it is a stranger, here as elsewhere.
    app.advance(60 * MINUTE);
    for _ in 0..10 {
        assert_eq!(fail_solved(&owner, "alice").await.status, 401);
    }
    assert_eq!(hits(&app, SHARED).await, [1, 1], "that of the stranger before");
    assert_eq!(owner.login("alice", WRONG).await.status, 401);
    assert_eq!(owner.login("alice", PASSWORD).await.problem(), "captcha-required");
}

async fn where_an_owner_blocks_an_address_known_devices_come_in(store: Store) {
    for limit in ["login-address", "login-network"] {
        let app =
            start(store, &format!("[limits.{limit}]\nrules = [{{ max = 2, window = \"1h\" }}]\n")).await;
        let owner = owner(&app).await;
        for number in 0..2 {
            assert_eq!(app.client_at(SHARED).login(&format!("guess{number}"), WRONG).await.status, 401);
        }
        let stranger = app.client_at(SHARED);
        assert_throttled(&stranger.login("alice", PASSWORD).await, limit, 3600);
        assert_throttled(&stranger.login_solved("alice", PASSWORD).await, limit, 3600);
        assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
        assert_eq!(owner.login_solved("alice", PASSWORD).await.status, 200);
        let id = owner.challenge().await;
        assert_not_accepted(&owner.login_with("alice", PASSWORD, &id, "wrong").await);
        assert_eq!(owner.login("alice", PASSWORD).await.status, 200);
    }
}

/// Answers would be the cheapest way to fill such a rule.
async fn no_answer_counts_where_an_owner_blocks(store: Store) {
    let app = start(store, "[limits.login-address]\nrules = [{ max = 2, window = \"1h\" }]\n").await;
    app.register("alice").await;
    let client = app.client_at(SHARED);
    for number in 1..=5 {
        let id = client.challenge().await;
        assert_not_accepted(&client.login_with("alice", PASSWORD, &id, "wrong").await);
        assert_eq!(hits(&app, SHARED).await, [0, number], "the network's rule asks only");
    }
    assert_eq!(client.login("alice", PASSWORD).await.status, 200);
}

async fn a_wrong_code_counts_in_the_network_too(store: Store) {
    let rules = "[limits.login-network]\nrules = [{ max = 1, window = \"1h\", then = \"captcha\" }]\n";
    let app = start(store, rules).await;
    let enter = async |address: &str| {
        let body = serde_json::json!({ "phone": "+8613800138000", "code": "123456" });
        app.client_at(address).call("/sms/login", body).await
    };
    assert_eq!(enter(SHARED).await.problem(), "invalid-code");
    assert_eq!(hits(&app, SHARED).await, [1, 1]);
    assert_eq!(enter("203.0.113.200").await.problem(), "captcha-required");
    assert_eq!(enter("203.0.114.7").await.problem(), "invalid-code");
}

/// The windows of one instance include the network, too, with half its limit.
#[tokio::test]
async fn in_an_outage_a_network_is_held_to_half_and_a_known_device_is_not() {
    let mut app = TestApp::on(Store::Redis)
        .behind_a_proxy()
        .set("store.timeout", "100ms")
        .limit("login-network", &[max(4).per("1h")])
        .start()
        .await;
    let owner = owner(&app).await;
    app.redis.as_mut().unwrap().kill();
    for (address, status) in [("203.0.113.1", 401), ("203.0.113.2", 401), ("203.0.113.3", 429)] {
        assert_eq!(fail_solved(&app.client_at(address), "nobody").await.status, status, "{address}");
    }
    assert_eq!(fail_solved(&app.client_at("203.0.114.1"), "nobody").await.status, 401, "another network");
    assert_eq!(owner.login_solved("alice", PASSWORD).await.status, 200);
}
