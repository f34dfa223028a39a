//! Losing the store gives nobody more guesses: the windows of sign-ins are rebuilt from the record of
//! failures, which decides meanwhile.

use std::sync::Arc;
use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::login::GuardedLogin;
use tokio::task::JoinSet;

use crate::support::app::{ANSWER, Client, PASSWORD, Store, TestApp};
use crate::support::setup::Setup;

const WRONG: &str = "a wrong password";
/// A hash takes some milliseconds here (more in a debug build), so that attempts are in flight when the store
/// goes away. All come from one address, which these tests do not limit.
fn setup(store: Store) -> Setup {
    let limits = ["login-address", "captcha-address"];
    let setup = TestApp::on(store).set("store.timeout", "1s").without(&limits);
    setup.set("password.memory_kib", 7168).set("password.iterations", 1)
}

/// How the store loses everything.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Flush,
    Restart,
    /// It keeps its data, but cannot be reached for a while.
    Stop,
}

async fn lose(app: &mut TestApp, loss: Loss) {
    match loss {
        Loss::Flush => {
            let redis = app.redis.as_ref().unwrap();
            redis::cmd("FLUSHALL").query::<()>(&mut redis.connection()).unwrap();
        }
        Loss::Restart => {
            app.redis.as_mut().unwrap().kill();
            app.restart_redis();
        }
        Loss::Stop => {
            app.redis.as_ref().unwrap().signal("STOP");
        }
    }
}

/// This many simultaneous wrong passwords, each with a solved challenge.
async fn burst(clients: &[Client], login: &'static str, count: usize) -> JoinSet<u16> {
    let mut guesses = JoinSet::new();
    for number in 0..count {
        let client = clients[number % clients.len()].clone();
        let id = client.challenge().await;
        guesses.spawn(async move { client.login_with(login, WRONG, &id, ANSWER).await.status });
    }
    guesses
}

async fn verified(guesses: JoinSet<u16>) -> usize {
    let statuses = guesses.join_all().await;
    assert!(statuses.iter().all(|status| matches!(status, 401 | 403 | 429 | 503)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 401).count()
}

async fn up(app: &TestApp) {
    while app.client().get("/readyz").await.body["store"] != "up" {
        tokio::time::sleep(Duration::from_millis(20)).await; // a server that comes back in real time
    }
}

/// Waits until some hashes of this burst are done and others are not.
async fn some_are_in_flight(apps: &[&TestApp], before: u64) {
    let waiting = async {
        while apps.iter().map(|app| app.hashes()).sum::<u64>() < before + 2 {
            tokio::time::sleep(Duration::from_millis(1)).await; // hashes take real time
        }
    };
    // None come once the account is blocked.
    let _ = tokio::time::timeout(Duration::from_millis(500), waiting).await;
}

async fn guesses_through_losses(loss: Loss, login: &'static str) {
    let mut app = setup(Store::Redis).start().await;
    app.register("known").await;
    let clients = [app.client()];
    let mut guessed = 0;
    for _ in 0..2 {
        let before = app.hashes();
        let first = burst(&clients, login, 12).await;
        some_are_in_flight(&[&app], before).await;
        lose(&mut app, loss).await;
        let second = burst(&clients, login, 25).await;
        guessed += verified(first).await;
        guessed += verified(second).await;
        if matches!(loss, Loss::Stop) {
            let third = burst(&clients, login, 25).await;
            some_are_in_flight(&[&app], app.hashes()).await;
            app.redis.as_ref().unwrap().signal("CONT");
            let fourth = burst(&clients, login, 25).await;
            guessed += verified(third).await + verified(fourth).await;
        }
        up(&app).await;
    }
    guessed += verified(burst(&clients, login, 25).await).await;
    assert_eq!(guessed, 20, "{loss:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_flushed_again_and_again_buys_no_guesses() {
    guesses_through_losses(Loss::Flush, "known").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_killed_and_empty_again_and_again_buys_no_guesses() {
    guesses_through_losses(Loss::Restart, "known").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_stopped_and_continued_again_and_again_buys_no_guesses() {
    guesses_through_losses(Loss::Stop, "known").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn losses_tell_no_accounts_apart() {
    guesses_through_losses(Loss::Restart, "nobody").await;
}

/// Before there was a record, it was 64 where 20 are allowed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_instances_through_several_outages_verify_hardly_more_than_one() {
    let mut app = setup(Store::Redis).start().await;
    app.register("known").await;
    let (second, third) = (app.beside(setup(Store::Redis)).await, app.beside(setup(Store::Redis)).await);
    let clients = [app.client(), second.client(), third.client()];
    let mut guessed = 0;
    for _ in 0..3 {
        let before = [&app, &second, &third].map(TestApp::hashes).iter().sum();
        let first = burst(&clients, "known", 9).await;
        some_are_in_flight(&[&app, &second, &third], before).await;
        app.redis.as_mut().unwrap().kill();
        let next = burst(&clients, "known", 40).await;
        guessed += verified(first).await + verified(next).await;
        app.restart_redis();
        guessed += verified(burst(&clients, "known", 40).await).await;
    }
    assert!((20..=30).contains(&guessed), "{guessed}");
}

#[tokio::test]
async fn failures_of_an_outage_count_on_after_it() {
    let mut app = setup(Store::Redis).start().await;
    app.register("known").await;
    app.register("other").await;
    let client = app.client();
    app.redis.as_mut().unwrap().kill();
    for _ in 0..3 {
        assert_eq!(client.login_solved("known", WRONG).await.status, 401);
    }
    app.restart_redis();
    unchallenged(&app, "other").await;
    let bare = app.client().login("known", PASSWORD).await;
    assert_eq!((bare.status, bare.problem()), (403, "captcha-required"), "three in the last minute");
    app.advance(Duration::from_secs(61));
    unchallenged(&app, "known").await;
}

/// Waits until the store decides; a returning store and a loaded machine take real time.
async fn unchallenged(app: &TestApp, login: &str) {
    let signed_in = async {
        while app.client().login(login, PASSWORD).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await; // a server that comes back in real time
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), signed_in).await.is_ok(), "{login} stays out");
}

#[tokio::test]
async fn an_empty_store_is_whole_before_it_lets_anybody_in_unchallenged() {
    let app = setup(Store::Redis).start().await;
    app.register("known").await;
    for _ in 0..3 {
        assert_eq!(app.client().login("known", WRONG).await.status, 401);
    }
    let redis = app.redis.as_ref().unwrap();
    redis::cmd("FLUSHALL").query::<()>(&mut redis.connection()).unwrap();
    let bare = app.client().login("known", PASSWORD).await;
    assert_eq!((bare.status, bare.problem()), (403, "captcha-required"), "{}", bare.text);
    assert_eq!(app.client().login("nobody", WRONG).await.status, 401, "others are not challenged for it");
}

#[tokio::test]
async fn windows_in_the_process_come_back_with_the_next_one() {
    let app = setup(Store::Memory).start().await;
    app.register("known").await;
    for login in ["known", "nobody"] {
        for _ in 0..3 {
            assert_eq!(app.client().login(login, WRONG).await.status, 401);
        }
    }
    let next = app.beside(setup(Store::Memory)).await;
    for login in ["known", "nobody"] {
        let bare = next.client().login(login, PASSWORD).await;
        assert_eq!((bare.status, bare.problem()), (403, "captcha-required"), "{login}: {}", bare.text);
    }
}

#[tokio::test]
async fn what_was_forgiven_does_not_come_back() {
    let app = Arc::new(setup(Store::Memory).start().await);
    app.register("known").await;
    for _ in 0..3 {
        assert_eq!(app.client().login("known", WRONG).await.status, 401);
    }
    let account = app.services.accounts.find(&Username::parse("known").unwrap()).await.unwrap().unwrap();
    let limits = &app.services.live.snapshot().limits;
    app.services.sign_in.guard().forgive(GuardedLogin::Own, limits, account.id).await.unwrap();
    let next = app.beside(setup(Store::Memory)).await;
    assert_eq!(next.client().login("known", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn failures_that_no_window_sees_are_purged() {
    let app = setup(Store::Memory).start().await;
    assert_eq!(app.client().login("nobody", WRONG).await.status, 401);
    let purge = async || {
        let limits = &app.services.live.snapshot().limits;
        app.services.sign_in.guard().purge(limits, 500).await.unwrap()
    };
    app.advance(Duration::from_secs(3600));
    assert_eq!(purge().await, 0, "just out of sight, and kept a minute longer");
    app.advance(Duration::from_secs(61));
    assert_eq!(purge().await, 1);
}
