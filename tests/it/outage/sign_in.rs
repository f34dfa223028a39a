//! Sign-ins while the store is out: a CAPTCHA for everyone, and the record of failures decides.

use std::collections::HashMap;
use std::time::Duration;

use super::proxy::{Proxy, Way};
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp};
use crate::support::redis::RedisServer;
use crate::support::until;

const WRONG: &str = "a wrong password";

async fn out(toml: &str) -> TestApp {
    let mut app = TestApp::on(Store::Redis).set("store.timeout", "100ms").file(toml).start().await;
    app.register("known").await;
    app.redis.as_mut().unwrap().kill();
    app
}

/// An app whose store is at that address, whatever answers there.
async fn at(url: &str) -> TestApp {
    let app = TestApp::on(Store::Memory).by_real_clocks();
    let app = app.set("store.timeout", "100ms").set("store.url", url).start().await;
    app.register("known").await;
    app
}

/// The policy as clients see it.
async fn goes_on_with_a_captcha(app: &TestApp) {
    let client = app.client();
    let bare = client.login("known", PASSWORD).await;
    assert_eq!((bare.status, bare.problem()), (403, "captcha-required"), "{}", bare.text);
    assert!(bare.body["captcha"]["id"].is_string());
    assert_eq!(client.login_solved("known", PASSWORD).await.status, 200);
    let wrong = client.login_solved("known", WRONG).await;
    assert_eq!((wrong.status, wrong.problem()), (401, "invalid-credentials"));
    assert_eq!(wrong.body["captcha_required"], true);
    let ready = client.get("/readyz").await;
    assert_eq!(ready.status, 200);
    assert_eq!(ready.body["store"], "down", "{}", ready.text);
    assert_eq!(ready.body["database"], "up");
}

/// Waits until the store is reachable again, which must not need a restart.
async fn normal_again(app: &TestApp) {
    let client = app.client();
    let normal = async {
        while client.login("known", PASSWORD).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(20)).await; // a server that comes back in real time
        }
        while client.get("/readyz").await.body["store"] != "up" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), normal).await.is_ok(), "it does not recover");
}

#[tokio::test]
async fn sign_ins_go_on_with_a_captcha_and_are_normal_after_a_restart_of_redis() {
    let mut app = out("").await;
    goes_on_with_a_captcha(&app).await;
    app.restart_redis();
    normal_again(&app).await;
}

#[tokio::test]
async fn a_stall_of_redis_is_an_outage_too() {
    let app = TestApp::on(Store::Redis).set("store.timeout", "100ms").start().await;
    app.register("known").await;
    app.redis.as_ref().unwrap().signal("STOP");
    goes_on_with_a_captcha(&app).await;
    app.redis.as_ref().unwrap().signal("CONT");
    normal_again(&app).await;
}

async fn guesses_in_an_outage(login: &'static str) {
    let rules = "[limits.login-account]\nrules = [{ max = 3, window = \"1m\", then = \"captcha\" }, { max = 8, window = \"1h\" }]\n";
    let app = out(rules).await;
    let before = app.hashes();
    let mut guesses = tokio::task::JoinSet::new();
    for round in 0..40 {
        let client = app.client();
        guesses.spawn(async move {
            match round % 2 {
                0 => client.login(login, WRONG).await,
                _ => client.login_solved(login, WRONG).await,
            }
        });
    }
    let mut tally: HashMap<(u16, String), usize> = HashMap::new();
    for answer in guesses.join_all().await {
        *tally.entry((answer.status, answer.problem().to_owned())).or_default() += 1;
    }
    let verified = tally.remove(&(401, "invalid-credentials".to_owned()));
    assert_eq!(verified, Some(8), "as many as ever: {tally:?}");
    assert_eq!(app.hashes() - before, 8);
    assert!(tally.keys().all(|(status, _)| matches!(status, 403 | 429)), "{tally:?}");
    // The right password does not get around it.
    let right = app.client().login_solved(login, PASSWORD).await;
    assert_eq!((right.status, right.problem()), (429, "throttled"), "{}", right.text);
    // These windows slide, too.
    app.advance(Duration::from_secs(3600));
    let later = app.client().login_solved(login, PASSWORD).await;
    assert_eq!(later.status, if login == "known" { 200 } else { 401 }, "{}", later.text);
}

#[tokio::test]
async fn as_many_wrong_passwords_as_ever_are_verified_in_an_outage() {
    guesses_in_an_outage("known").await;
}

#[tokio::test]
async fn an_outage_tells_no_accounts_apart() {
    guesses_in_an_outage("nobody").await;
}

#[tokio::test]
async fn a_burst_through_the_beginning_of_an_outage_gets_no_5xx() {
    let mut app = TestApp::on(Store::Redis).set("store.timeout", "100ms").start().await;
    app.register("known").await;
    let mut attempts = tokio::task::JoinSet::new();
    for round in 0..60 {
        let client = app.client();
        attempts.spawn(async move {
            let mut statuses = Vec::new();
            for _ in 0..5 {
                let password = if round % 2 == 0 { PASSWORD } else { WRONG };
                statuses.push(client.login("known", password).await.status);
            }
            statuses
        });
    }
    tokio::time::sleep(Duration::from_millis(30)).await;
    app.redis.as_mut().unwrap().kill();
    let statuses: Vec<u16> = attempts.join_all().await.into_iter().flatten().collect();
    assert!(statuses.iter().all(|status| matches!(status, 200 | 401 | 403 | 429)), "{statuses:?}");
    let wrong = statuses.iter().filter(|status| **status == 401).count();
    assert!(wrong <= 3, "{wrong} wrong passwords verified without a CAPTCHA");
}

#[tokio::test]
async fn a_challenge_is_redeemed_once_whatever_becomes_of_the_store() {
    let mut app = TestApp::on(Store::Redis).set("store.timeout", "100ms").start().await;
    app.register("known").await;
    let client = app.client();
    let refused_now = async |id: &str| {
        let again = client.login_with("known", PASSWORD, id, ANSWER).await;
        assert_eq!((again.status, again.problem()), (403, "captcha-invalid"), "{}", again.text);
    };
    let before = client.challenge().await;
    assert!(client.login_with("known", PASSWORD, &before, ANSWER).await.status < 404);
    app.redis.as_mut().unwrap().kill();
    refused_now(&before).await;
    let during = client.challenge().await;
    assert_eq!(client.login_with("known", PASSWORD, &during, ANSWER).await.status, 200);
    refused_now(&during).await;
    app.restart_redis();
    normal_again(&app).await;
    refused_now(&before).await;
    refused_now(&during).await;
}

#[tokio::test]
async fn one_challenge_redeemed_many_times_at_once_in_an_outage_is_taken_once() {
    let app = out("").await;
    let id = app.client().challenge().await;
    let mut tries = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (client, id) = (app.client(), id.clone());
        tries.spawn(async move { client.login_with("known", PASSWORD, &id, ANSWER).await.status });
    }
    let taken = tries.join_all().await.into_iter().filter(|status| *status == 200).count();
    assert_eq!(taken, 1);
}

#[tokio::test]
async fn flushed_scripts_are_no_outage() {
    let app = TestApp::start(Store::Redis).await;
    app.register("known").await;
    let client = app.client();
    assert_eq!(client.login("known", WRONG).await.status, 401);
    let redis = app.redis.as_ref().unwrap();
    let loaded = redis.calls("eval");
    redis::cmd("SCRIPT").arg("FLUSH").query::<()>(&mut redis.connection()).unwrap();
    let third = [client.login("known", WRONG).await, client.login("known", WRONG).await];
    assert_eq!(third.map(|answer| answer.body["captcha_required"].clone()), [false, true]);
    assert!(redis.calls("eval") > loaded, "nothing was flushed, or nothing sent again");
}

#[tokio::test]
async fn a_server_that_never_answers_is_an_outage_from_the_start() {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || listener.incoming().take(10_000).collect::<Vec<_>>());
    goes_on_with_a_captcha(&at(&format!("redis://127.0.0.1:{port}/")).await).await;
}

#[tokio::test]
async fn a_server_of_another_kind_is_an_outage_from_the_start() {
    let other = TestApp::start(Store::Memory).await;
    let url = other.url.replace("http", "redis");
    goes_on_with_a_captcha(&at(&url).await).await;
}

#[tokio::test]
async fn an_outage_from_the_start_ends_when_redis_comes() {
    let port = crate::support::ports::free_port();
    let app = at(&format!("redis://127.0.0.1:{port}/")).await;
    goes_on_with_a_captcha(&app).await;
    let _redis = RedisServer::start_at(port, |_| {});
    normal_again(&app).await;
}

/// The store fails between the hold and its settlement: the answer follows from the password.
async fn fails_before_it_is_settled(way: Way) {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port).await;
    let app = at(&proxy.url()).await;
    for (password, status) in [(PASSWORD, 200), (WRONG, 401)] {
        proxy.set(Way::Clear);
        normal_again(&app).await;
        proxy.set(way);
        let answer = app.client().login("known", password).await;
        // A check of the link may come between; then the hold was not taken either.
        let outage = (answer.status, answer.problem()) == (403, "captcha-required");
        assert!(answer.status == status || outage, "{}: {}", answer.status, answer.text);
        if answer.status == 401 {
            assert_eq!(answer.body["captcha_required"], true, "in an outage everyone is asked");
        }
    }
    proxy.set(Way::Clear);
    normal_again(&app).await;
}

#[tokio::test]
async fn a_sign_in_survives_a_store_that_falls_silent_before_it_is_settled() {
    fails_before_it_is_settled(Way::MuteAfterOneScript).await;
}

#[tokio::test]
async fn a_sign_in_survives_a_store_that_dies_before_it_is_settled() {
    fails_before_it_is_settled(Way::CutAfterOneScript).await;
}

/// Every log of sign-ins that there is.
fn logs_of_sign_ins(redis: &RedisServer) -> Vec<String> {
    redis::cmd("KEYS").arg("*:login-*").query(&mut redis.connection()).unwrap()
}

/// The reservation was answered, or not; what takes the slot back got lost with the connection.
#[tokio::test]
async fn right_passwords_beside_a_store_that_breaks_off_leave_no_failures() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port).await;
    let app = at(&proxy.url()).await;
    for way in [Way::LoseAfterOneScript, Way::Mute, Way::LoseAfterOneScript] {
        normal_again(&app).await;
        proxy.set(way);
        let answer = app.client().login("known", PASSWORD).await;
        // A check of the link may come between.
        let outage = (answer.status, answer.problem()) == (403, "captcha-required");
        assert!(answer.status == 200 || outage, "{}: {}", answer.status, answer.text);
        proxy.set(Way::Clear);
        until("nothing counts", async || logs_of_sign_ins(&redis).is_empty()).await;
    }
}

#[tokio::test]
async fn answers_that_get_lost_are_an_outage() {
    let redis = RedisServer::start();
    let proxy = Proxy::to(redis.port).await;
    let app = at(&proxy.url()).await;
    for way in [Way::Mute, Way::Garbage, Way::Deaf] {
        proxy.set(way);
        goes_on_with_a_captcha(&app).await;
        proxy.set(Way::Clear);
        // Attempts that were executed unnoticed are holds, and then failures, for a while: the store errs
        // towards refusing. An owner who proves who they are is let in again.
        let client = app.client();
        let again = async {
            while client.get("/readyz").await.body["store"] != "up" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            while client.login_solved("known", PASSWORD).await.status != 200 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), again).await.is_ok());
    }
}
