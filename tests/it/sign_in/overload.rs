//! More passwords at once than can be hashed: who goes first, who gives way, and what they are told. The test
//! blocks the only worker; the queue has room for 4 strangers, 2 with a solved challenge, and 2 known
//! devices.

use std::collections::BTreeSet;

use gatehouse::accounts::Username;
use gatehouse::denied::Denied;
use gatehouse::login::{HashCaller, HashLane, PasswordChangeOutcome};
use tokio::task::JoinHandle;

use super::hang_ups;
use crate::support::app::{ANSWER, Answer, Client, PASSWORD, Store, TestApp};
use crate::support::until;

const STRANGERS: usize = 4;
const SOLVED: usize = 2;

async fn start(store: Store) -> TestApp {
    TestApp::on(store)
        .behind_a_proxy()
        .set("password.memory_kib", 7168)
        .set("password.iterations", 1)
        .set("password.workers", 1)
        .set("password.queue", 8)
        .start()
        .await
}

/// A client in its own network.
fn stranger(app: &TestApp, network: usize) -> Client {
    app.client_at(&format!("198.51.{network}.7"))
}

/// Waits until this many are in the queue, because the server adds them on its own threads.
async fn until_waiting(app: &TestApp, lane: HashLane, count: usize) {
    until("so many wait", async || app.services.hasher.waiting(lane) == count).await;
}

fn guess(client: Client, login: &str) -> JoinHandle<Answer> {
    let login = login.to_owned();
    tokio::spawn(async move { client.login(&login, PASSWORD).await })
}

/// Attempts take their positions in the strangers' queue one after the other.
async fn fill(app: &TestApp, network: impl Fn(usize) -> usize) -> Vec<JoinHandle<Answer>> {
    let mut waiting = Vec::new();
    for number in 0..STRANGERS {
        waiting.push(guess(stranger(app, network(number)), &format!("nobody-{number}")));
        until_waiting(app, HashLane::Unsolved, number + 1).await;
    }
    waiting
}

fn assert_challenged(answer: &Answer) {
    assert_eq!((answer.status, answer.problem()), (403, "captcha-required"), "{}", answer.text);
    assert!(answer.body["captcha"]["id"].is_string(), "{}", answer.text);
}

/// How many slots are taken at accounts, or count as failures.
fn slots(app: &TestApp) -> usize {
    let mut connection = app.redis.as_ref().unwrap().connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("gh:login-*").query(&mut connection).unwrap();
    keys.len()
}

#[tokio::test]
async fn strangers_past_a_full_queue_are_asked_for_a_challenge_whoever_they_try() {
    let app = start(Store::Redis).await;
    app.register("alice").await;
    let _busy = app.services.hasher.keep_busy(true).await;
    let _waiting = fill(&app, |number| number).await;
    let (taken, calls) = (slots(&app), app.redis.as_ref().unwrap().calls("evalsha"));
    let known = stranger(&app, 100).login("alice", PASSWORD).await;
    let unknown = stranger(&app, 101).login("nobody", PASSWORD).await;
    for answer in [&known, &unknown] {
        assert_challenged(answer);
    }
    let names = |answer: &Answer| answer.headers.keys().map(ToString::to_string).collect::<BTreeSet<_>>();
    assert_eq!(names(&known), names(&unknown));
    assert_eq!(slots(&app), taken);
    assert_eq!(app.redis.as_ref().unwrap().calls("evalsha"), calls, "a refusal costs no trip to the store");
}

#[tokio::test]
async fn a_network_that_has_most_gives_way_and_its_slot_is_given_back() {
    let app = start(Store::Redis).await;
    let busy = app.services.hasher.keep_busy(true).await;
    let mut crowd = fill(&app, |_| 1).await;
    let taken = slots(&app);
    let newcomer = guess(stranger(&app, 2), "nobody-3");
    let youngest = crowd.pop().unwrap();
    assert_challenged(&youngest.await.unwrap());
    until_waiting(&app, HashLane::Unsolved, STRANGERS).await;
    assert_challenged(&stranger(&app, 1).login("nobody-4", PASSWORD).await);
    assert_eq!(
        slots(&app),
        taken + 2,
        "the newcomer's address and network; at the account it has the only slot"
    );
    drop(busy);
    for waiting in crowd.into_iter().chain([newcomer]) {
        assert_eq!(waiting.await.unwrap().status, 401);
    }
}

#[tokio::test]
async fn a_known_device_has_room_when_strangers_have_none() {
    let app = start(Store::Memory).await;
    let owner = stranger(&app, 100);
    assert_eq!(owner.register("alice", PASSWORD).await.status, 201);
    let busy = app.services.hasher.keep_busy(true).await;
    let _waiting = fill(&app, |number| number).await;
    assert_challenged(&stranger(&app, 100).login("alice", PASSWORD).await);
    let owner = guess(owner, "alice");
    until_waiting(&app, HashLane::KnownDevice, 1).await;
    drop(busy);
    assert_eq!(owner.await.unwrap().status, 200);
}

#[tokio::test]
async fn whoever_solved_the_challenge_has_room_until_that_is_full_too() {
    let app = start(Store::Redis).await;
    app.register("alice").await;
    let busy = app.services.hasher.keep_busy(true).await;
    let _waiting = fill(&app, |number| number).await;
    let mut solved = Vec::new();
    for number in 0..SOLVED {
        let client = stranger(&app, 50);
        let challenge = client.challenge().await;
        let attempt = async move { client.login_with("alice", PASSWORD, &challenge, ANSWER).await };
        solved.push(tokio::spawn(attempt));
        until_waiting(&app, HashLane::Solved, number + 1).await;
    }
    let taken = slots(&app);
    let late = stranger(&app, 50);
    let refused = late.login_with("bob", PASSWORD, &late.challenge().await, ANSWER).await;
    assert_eq!((refused.status, refused.problem()), (503, "busy"), "{}", refused.text);
    assert!(refused.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert_eq!(slots(&app), taken);
    drop(busy);
    for attempt in solved {
        assert_eq!(attempt.await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn whoever_hangs_up_gives_position_and_slot_back() {
    let app = start(Store::Redis).await;
    let busy = app.services.hasher.keep_busy(true).await;
    let mut streams = Vec::new();
    for number in 0..STRANGERS {
        streams.push(hang_ups::send(&app, &format!("nobody-{number}"), PASSWORD).await);
        until_waiting(&app, HashLane::Unsolved, number + 1).await;
    }
    assert_ne!(slots(&app), 0);
    for stream in streams {
        stream.set_zero_linger().unwrap(); // a reset, as an aborted page load sends
    }
    until_waiting(&app, HashLane::Unsolved, 0).await;
    until("no slot is taken", async || slots(&app) == 0).await;
    drop(busy);
    assert_eq!(app.hashes(), 0);
}

#[tokio::test]
async fn whoever_would_make_an_account_is_asked_too() {
    let app = start(Store::Memory).await;
    let busy = app.services.hasher.keep_busy(true).await;
    let _waiting = fill(&app, |number| number).await;
    let client = stranger(&app, 100);
    let refused = client.register("alice", PASSWORD).await;
    assert_challenged(&refused);
    let captcha = serde_json::json!({ "id": refused.body["captcha"]["id"], "answer": ANSWER });
    let body = serde_json::json!({ "login": "alice", "password": PASSWORD, "captcha": captcha });
    let made = tokio::spawn(async move { client.call("/register", body).await });
    until_waiting(&app, HashLane::Solved, 1).await;
    drop(busy);
    assert_eq!(made.await.unwrap().status, 201);
}

#[tokio::test]
async fn a_new_password_is_hashed_with_the_strangers() {
    let app = start(Store::Memory).await;
    app.register("alice").await;
    let _busy = app.services.hasher.keep_busy(true).await;
    let _waiting = fill(&app, |number| number).await;
    let alice = app.services.accounts.find(&Username::parse("alice").unwrap()).await.unwrap().unwrap();
    let caller = HashCaller::stranger(b"elsewhere", false);
    let owner = gatehouse::login::SignedInOwner { account: alice.clone(), device: None };
    let changed = app.services.registration.change_password(&caller, &owner, "quiet lanterns drift").await;
    assert!(matches!(changed, Ok(PasswordChangeOutcome::Denied(Denied::Challenged { .. }))), "{changed:?}");
}
