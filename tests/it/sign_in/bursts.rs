//! Many attempts at once: promise 2, in both directions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};

/// How often an attempt without room is sent again: the wait is bounded (5 s), which is too short for a
/// loaded machine. Nothing was verified then, and the client may send it again.
const TRIES: usize = 20;

pub async fn attempt(client: &Client, login: &str, password: &str) -> Answer {
    for _ in 1..TRIES {
        let answer = client.login(login, password).await;
        // A client that waited in vain is asked for a challenge, without a limit.
        let by_no_limit = answer.header("ratelimit").is_empty();
        if answer.problem() != "captcha-required" || !by_no_limit {
            return answer;
        }
    }
    client.login(login, password).await
}

/// Tries every password once over `connections` connections, each of which sends the next when it has an
/// answer. Returns the answers in any order, each with its password.
pub async fn burst(
    app: &TestApp,
    login: &str,
    passwords: Vec<&'static str>,
    connections: usize,
) -> Vec<(&'static str, Answer)> {
    let (passwords, next) = (Arc::new(passwords), Arc::new(AtomicUsize::new(0)));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..connections {
        let (passwords, next, client, login) =
            (passwords.clone(), next.clone(), app.client(), login.to_owned());
        tasks.spawn(async move {
            let mut answers = Vec::new();
            while let Some(password) = passwords.get(next.fetch_add(1, Ordering::SeqCst)) {
                answers.push((*password, attempt(&client, &login, password).await));
            }
            answers
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

fn tally(answers: &[(&'static str, Answer)]) -> HashMap<(u16, String), usize> {
    let mut tally = HashMap::new();
    for (_, answer) in answers {
        *tally.entry((answer.status, answer.problem().to_owned())).or_default() += 1;
    }
    tally
}

async fn wrong_burst(store: Store, login: &str) {
    let app = TestApp::start(store).await;
    app.register("known").await;
    let before = app.hashes();
    let answers = burst(&app, login, vec!["a wrong password"; 200], 16).await;
    let expected = HashMap::from([
        ((401, "invalid-credentials".to_owned()), 3),
        ((403, "captcha-required".to_owned()), 197),
    ]);
    assert_eq!(tally(&answers), expected);
    assert_eq!(app.hashes() - before, 3, "a refused attempt computes no hash");
}

async fn right_burst(store: Store) {
    let app = TestApp::start(store).await;
    app.register("known").await;
    let answers = burst(&app, "known", vec![PASSWORD; 50], 50).await;
    assert_eq!(tally(&answers), HashMap::from([((200, String::new()), 50)]));
}

/// Wrong and right passwords at once, at the real cost of a hash: at most 3 wrong ones are verified, because
/// a success beside others forgives nothing, and a right one is refused only because of counted failures. All
/// are strangers: a known device would have guesses of its own.
async fn mixed_burst(store: Store) {
    let app = TestApp::on(store).set("password.memory_kib", 19456).without(&["login-device"]).start().await;
    app.register("known").await;
    let passwords = (0..250).map(|i| if i % 5 == 0 { PASSWORD } else { "a wrong password" }).collect();
    let answers = burst(&app, "known", passwords, 50).await;
    let wrong = answers.iter().filter(|(_, answer)| answer.status == 401).count();
    assert!(wrong <= 3, "{:?}", tally(&answers));
    let refused = answers.iter().any(|(_, answer)| answer.status == 403);
    assert!(!refused || wrong == 3, "refused with {wrong} failures: {:?}", tally(&answers));
    assert!(
        answers.iter().all(|(_, answer)| matches!(answer.status, 200 | 401 | 403)),
        "{:?}",
        tally(&answers)
    );
}

#[tokio::test]
async fn two_hundred_wrong_passwords_get_three_verifications_in_process() {
    wrong_burst(Store::Memory, "known").await;
}

#[tokio::test]
async fn two_hundred_wrong_passwords_get_three_verifications_on_redis() {
    wrong_burst(Store::Redis, "known").await;
}

#[tokio::test]
async fn an_unknown_account_gets_the_same_three_in_process() {
    wrong_burst(Store::Memory, "nobody").await;
}

#[tokio::test]
async fn an_unknown_account_gets_the_same_three_on_redis() {
    wrong_burst(Store::Redis, "nobody").await;
}

#[tokio::test]
async fn fifty_right_passwords_at_once_all_sign_in_in_process() {
    right_burst(Store::Memory).await;
}

#[tokio::test]
async fn fifty_right_passwords_at_once_all_sign_in_on_redis() {
    right_burst(Store::Redis).await;
}

#[tokio::test]
async fn a_mixed_burst_verifies_three_wrong_ones_in_process() {
    mixed_burst(Store::Memory).await;
}

#[tokio::test]
async fn a_mixed_burst_verifies_three_wrong_ones_on_redis() {
    mixed_burst(Store::Redis).await;
}
