//! Promise 4: refusals write nothing to the store and let nothing grow; and nothing there is in clear.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::app::{ANSWER, Client, Store, TestApp};
use crate::support::redis::RedisServer;

const WRONG: &str = "a wrong password";
const LOGIN: &str = "marmalade";
/// The commands that a decision may use if it admits nobody.
const READS: [&str; 11] = [
    "evalsha",
    "get",
    "time",
    "zrange",
    "zcount",
    "zcard",
    "zscore",
    "ping",
    "info",
    "hello",
    "client|setinfo",
];

/// Calls of each command so far, including those from scripts.
fn calls(redis: &RedisServer) -> BTreeMap<String, u64> {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut redis.connection()).unwrap();
    let call = |line: &str| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        Some((command.to_owned(), rest.split(',').next()?.parse().ok()?))
    };
    stats.lines().filter_map(call).collect()
}

/// Every key with its members.
fn everything(redis: &RedisServer) -> Vec<(String, Vec<Vec<u8>>)> {
    let mut connection = redis.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let members = |key: String| {
        let kind: String = redis::cmd("TYPE").arg(&key).query(&mut connection).unwrap();
        let members = match kind.as_str() {
            "zset" => redis::cmd("ZRANGE").arg(&key).arg(0).arg(-1).query(&mut connection).unwrap(),
            "string" => vec![redis::cmd("GET").arg(&key).query(&mut connection).unwrap()],
            other => panic!("{key} is a {other}"),
        };
        (key, members)
    };
    keys.into_iter().map(members).collect()
}

async fn attempt_many(app: &TestApp, count: usize, status: u16) {
    let sent = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..24 {
        let (client, sent): (Client, _) = (app.client(), sent.clone());
        tasks.spawn(async move {
            while sent.fetch_add(1, Ordering::SeqCst) < count {
                let answer = client.login(LOGIN, WRONG).await;
                assert_eq!(answer.status, status, "{}", answer.text);
            }
        });
    }
    tasks.join_all().await;
}

async fn fail_until_blocked(app: &TestApp) {
    let client = app.client();
    for _ in 3..20 {
        let id = client.challenge().await;
        assert_eq!(client.login_with(LOGIN, WRONG, &id, ANSWER).await.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_refusals_write_nothing_to_redis() {
    let app = TestApp::start(Store::Redis).await;
    app.register(LOGIN).await;
    let redis = app.redis.as_ref().unwrap();
    let client = app.client();
    for _ in 0..3 {
        assert_eq!(client.login(LOGIN, WRONG).await.status, 401);
    }
    for (count, status) in [(8_000, 403), (2_000, 429)] {
        if status == 429 {
            // The refusals used up the challenges that one address gets in a minute.
            app.advance(Duration::from_secs(60));
            fail_until_blocked(&app).await;
        }
        let (before, hashes) = (calls(redis), app.hashes());
        attempt_many(&app, count, status).await;
        assert_eq!(app.hashes(), hashes);
        for (command, now) in calls(redis) {
            let more = now - before.get(&command).copied().unwrap_or(0);
            assert!(more == 0 || READS.contains(&command.as_str()), "{command} {more} times");
        }
    }
    let mut logs = 0;
    for (key, members) in everything(redis) {
        // That the windows of messages are complete, which lives as long as they do, and how many
        // keys the store had evicted by then.
        if ["complete-", "evicted-"].iter().any(|mark| key.split(':').nth(1).unwrap().starts_with(mark)) {
            continue;
        }
        let most = match key.split(':').nth(1).unwrap() {
            "login-account" => 20,
            "login-address" => 60,
            "login-network" => 600,
            "register-address" => 10,
            "spent" => 1,
            other => panic!("whose is {other}?"),
        };
        assert!(members.len() <= most, "{key} holds {}", members.len());
        let life: i64 = redis::cmd("PTTL").arg(&key).query(&mut redis.connection()).unwrap();
        // The longest window, and what a hold and rounding add to it.
        assert!((1..=3_620_000).contains(&life), "{key} lives for {life} ms");
        logs += usize::from(key.contains("login-account"));
    }
    assert_eq!(logs, 2, "of new guesses, and of all failures");
}

#[tokio::test]
async fn nothing_on_redis_names_an_account_or_an_address() {
    let app = TestApp::on(Store::Redis).behind_a_proxy().start().await;
    let client = app.client_at("203.0.113.77");
    assert_eq!(client.register(LOGIN, "correct horse battery staple").await.status, 201);
    for login in [LOGIN, "nobodyatall"] {
        for _ in 0..3 {
            assert_eq!(client.login(login, WRONG).await.status, 401);
        }
        let id = client.challenge().await;
        assert_eq!(client.login_with(login, WRONG, &id, ANSWER).await.status, 401);
    }
    let found = everything(app.redis.as_ref().unwrap());
    assert!(found.len() >= 6, "two accounts, an address twice, two answers: {found:?}");
    let in_clear: [&[u8]; 7] = [
        LOGIN.as_bytes(),
        b"nobodyatall",
        b"203.0.113",
        &[203, 0, 113, 77],
        b"cb00714d",
        WRONG.as_bytes(),
        ANSWER.as_bytes(),
    ];
    for (key, members) in found {
        for text in members.iter().map(Vec::as_slice).chain([key.as_bytes()]) {
            let told = in_clear.iter().any(|word| text.windows(word.len()).any(|part| part == *word));
            assert!(!told, "{key}: {text:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_are_forgotten_in_process_too() {
    let app = TestApp::start(Store::Memory).await;
    app.register(LOGIN).await;
    for _ in 0..3 {
        assert_eq!(app.client().login(LOGIN, WRONG).await.status, 401);
    }
    attempt_many(&app, 2_000, 403).await;
    // None of them is in the window: a slot frees when the three failures leave it.
    app.advance(Duration::from_secs(60));
    assert_eq!(app.client().login(LOGIN, WRONG).await.status, 401);
}
