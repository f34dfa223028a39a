//! A key file that is lost, stolen or another one.

use std::os::unix::fs::PermissionsExt;

use super::WRONG;
use crate::support::app::{Client, PASSWORD};
use crate::support::process::{Home, Running};
use crate::support::redis::RedisServer;

const CONFIG: &str = "[captcha]\nprovider = 'fixed'\nfixed_answer = 'solo'
[limits]\nsms-phone.rules = [{ max = 5, window = '1h' }]
login-account.rules = [{ max = 20, window = '1h', then = 'block' }]
login-address.rules = []\nlogin-network.rules = []";
const PHONE: &str = "+8613800138000";

async fn stopped(mut running: Running) {
    running.signal("TERM");
    assert_eq!(running.ended().await.code(), Some(0));
}

fn write_key(home: &Home, key: &[u8]) {
    let path = home.path("data/secret.key");
    std::fs::write(&path, key).unwrap();
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

async fn compared(client: &Client, count: usize) -> usize {
    let mut compared = 0;
    for _ in 0..count {
        compared += usize::from(client.login("known", WRONG).await.status == 401);
    }
    compared
}

/// A server whose key has counted as much as its limits allow.
async fn spent(home: &Home) -> Running {
    home.write("gatehouse.toml", CONFIG);
    let running = home.start(&["serve"]).await;
    let client = running.client();
    assert_eq!(client.register("known", PASSWORD).await.status, 201);
    for _ in 0..5 {
        assert_eq!(client.ask_code(PHONE, "login").await.status, 202);
    }
    assert_eq!(compared(&running.client(), 20).await, 20);
    running
}

#[tokio::test]
async fn a_key_that_is_made_is_told_and_another_one_or_none_ends_the_start_with_the_remedy() {
    let home = Home::new();
    let mut running = spent(&home).await;
    running.until("it is told", |running| running.stderr().contains("so a key was made")).await;
    assert!(running.stderr().contains("data/secret.key"), "{}", running.stderr());
    stopped(running).await;
    let key = std::fs::read(home.path("data/secret.key")).unwrap();
    let commands: [&[&str]; 3] =
        [&["serve"], &["admin", "clear-factors", "known"], &["key", "reseal", "data/secret.key"]];
    let refused = |what: &str| {
        for command in commands {
            let ended = home.run(command);
            assert!(!matches!(ended.code, Some(0)), "{what}: {command:?}");
            if command[0] != "key" {
                assert!(
                    ended.stderr.contains("gatehouse key replace"),
                    "{what}: {command:?}: {}",
                    ended.stderr
                );
            }
        }
        assert_eq!(home.run(&["serve"]).code, Some(2), "{what}");
    };
    write_key(&home, &[7; 32]);
    refused("another key");
    std::fs::remove_file(home.path("data/secret.key")).unwrap();
    refused("no key");
    assert!(!home.path("data/secret.key").exists(), "none is made in its place");
    write_key(&home, &key);
    let running = home.start(&["serve"]).await;
    assert_eq!(compared(&running.client(), 20).await, 0);
    assert!(!running.stderr().contains("so a key was made"));
}

#[tokio::test]
async fn of_two_instances_with_two_keys_the_second_does_not_start() {
    let (redis, mut first, mut second) = (RedisServer::start(), Home::new(), Home::new());
    let database = format!("sqlite://{}", first.path("shared.db").display());
    for home in [&mut first, &mut second] {
        home.set("GATEHOUSE__DATABASE__URL", database.clone());
        home.set("GATEHOUSE__STORE__URL", redis.url());
    }
    std::fs::create_dir(second.path("data")).unwrap();
    write_key(&second, &[7; 32]);
    let _running = first.start(&["serve"]).await;
    let ended = second.run(&["serve"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("hashed under another key"), "{}", ended.stderr);
}

#[tokio::test]
async fn a_loss_that_is_accepted_buys_neither_guesses_nor_messages() {
    for is_lost in [false, true] {
        let home = Home::new();
        let running = spent(&home).await;
        let told = home.run(&["key", "replace"]);
        assert_eq!(told.code, Some(2), "{}", told.stdout);
        assert!(told.stderr.contains("everybody signs in anew"), "{}", told.stderr);
        let running_still = home.run(&["key", "replace", "--accept-loss"]);
        assert_eq!(running_still.code, Some(1), "{}", running_still.stdout);
        stopped(running).await;
        let key = std::fs::read(home.path("data/secret.key")).unwrap();
        if is_lost {
            std::fs::remove_file(home.path("data/secret.key")).unwrap();
        }
        let replaced = home.run(&["key", "replace", "--accept-loss"]);
        assert_eq!(replaced.code, Some(0), "{}", replaced.stderr);
        assert!(replaced.stdout.contains("everybody signs in anew"), "{}", replaced.stdout);
        let old = std::fs::read(home.path("data/secret.key.old")).ok();
        assert_eq!(old, (!is_lost).then_some(key.clone()), "the old one opens secrets of apps");
        assert_ne!(std::fs::read(home.path("data/secret.key")).unwrap(), key);
        let running = home.start(&["serve"]).await;
        let client = running.client();
        assert_eq!(compared(&client, 20).await, 0);
        let blocked = client.login("known", PASSWORD).await;
        assert_eq!((blocked.status, blocked.problem()), (429, "throttled"), "{}", blocked.text);
        let unknown = client.login("nobody", PASSWORD).await;
        assert_eq!((unknown.status, unknown.problem()), (429, "throttled"), "{}", unknown.text);
        assert_eq!(client.ask_code(PHONE, "login").await.status, 503);
    }
}

/// What has left every window is not waited for.
#[tokio::test]
async fn a_loss_of_a_key_that_has_counted_nothing_pauses_nothing() {
    let home = Home::new();
    home.write("gatehouse.toml", CONFIG);
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().register("known", PASSWORD).await.status, 201);
    stopped(running).await;
    assert_eq!(home.run(&["key", "replace", "--accept-loss"]).code, Some(0));
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().login("known", PASSWORD).await.status, 200);
    assert_eq!(running.client().ask_code(PHONE, "login").await.status, 202);
}

/// A command may run without the volume that holds the file, where it makes one that is gone afterwards.
#[tokio::test]
async fn a_key_that_only_a_command_has_used_is_not_the_databases() {
    let home = Home::new();
    let made =
        home.run_with_input(&["admin", "create", "boss", "--password-stdin"], &format!("{PASSWORD}\n"));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    write_key(&home, &[7; 32]);
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().login("boss", PASSWORD).await.status, 200);
    stopped(running).await;
    let again = home.run(&["key", "replace", "--accept-loss"]);
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let again = home.run(&["key", "replace", "--accept-loss"]);
    assert!(again.stderr.contains("secret.key.old is there"), "{}", again.stderr);
}
