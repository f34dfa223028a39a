//! Limits that a config centre keeps: several instances on it, and what becomes of them without it.

use serde_json::json;

use super::rig::{LIMITS, max, save, shown, with_max};
use super::service::{document, ready};
use super::shared::{SEED, Three, save_again, saved_through_each};
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::nacos::NacosServer;
use crate::support::process::Home;
use crate::support::until;

/// `more` is added to `[live.nacos]`.
async fn on(nacos: &NacosServer, more: &str) -> TestApp {
    let address = nacos.address();
    let live = format!(
        "[live]\nbackend = \"nacos\"\npoll = \"100ms\"\n[live.nacos]\nserver = \"{address}\"\n{more}\
         [sms]\ntimeout = \"4s\"\ncode_ttl = \"4m\"\n"
    );
    TestApp::with(Store::Memory, &format!("{live}{}", document(50))).await
}

async fn filled(nacos: &NacosServer, app: &TestApp) {
    let live = &app.services.live;
    until("it is filled", async || nacos.get().await.is_some() && live.backend_down().is_none()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_through_one_is_in_force_on_all_that_share_a_config_centre() {
    let nacos = NacosServer::start().await;
    // Polling is too slow: it must be pushed.
    let mut three = Three::start(
        |_| vec!["serve".to_owned()],
        |home, _| {
            home.set("GATEHOUSE__LIVE__BACKEND", "nacos");
            home.set("GATEHOUSE__LIVE__POLL", "60s");
            home.set("GATEHOUSE__LIVE__NACOS__SERVER", nacos.address());
            home.set("HOME", home.path("home").display().to_string());
        },
    )
    .await;
    assert_eq!(nacos.get().await.unwrap(), SEED, "one of the three put it there");
    saved_through_each(&mut three, "nacos").await;
    assert_eq!(nacos.get().await.unwrap(), SEED.replace("max = 50", "max = 2"));
    let file = std::fs::read_to_string(three.homes[0].path("gatehouse.toml")).unwrap();
    assert_eq!(file, SEED, "the file is not touched");
    assert!(!three.homes[0].path("home").exists(), "nothing is written where the client keeps copies");
    let told = three.homes[1].run(&["limits", "show"]);
    let version = shown(&three.boss(0).await).await.0;
    assert!(
        told.stdout.contains("nacos DEFAULT_GROUP/gatehouse.toml") && told.stdout.contains(&version),
        "{}",
        told.stdout
    );
    assert!(three.homes[1].run(&["check-config"]).stdout.contains("are read from nacos DEFAULT_GROUP/"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_saves_at_once_one_is_overtaken() {
    let nacos = NacosServer::start().await;
    let (one, other) = tokio::join!(on(&nacos, ""), on(&nacos, ""));
    let (boss, rival) = tokio::join!(one.sign_in_admin("boss"), other.sign_in_admin("rival"));
    for round in 0..8 {
        let (version, limits) = shown(&boss).await;
        until("both have seen it", async || shown(&rival).await.0 == version).await;
        let (first, second) = (with_max(&limits, 100 + round), with_max(&limits, 200 + round));
        let (first, second) = tokio::join!(save(&boss, &version, &first), save(&rival, &version, &second));
        let wins = match (first.status, second.status) {
            (200, 412) => 100 + round,
            (412, 200) => 200 + round,
            (200, 200) => save_again(&boss, 300 + round).await,
            _ => panic!("{} {}", first.text, second.text),
        };
        until("both follow the winner", async || (max(&one), max(&other)) == (wins, wins)).await;
        let stands = nacos.get().await.unwrap();
        assert!(stands.contains(&format!("max = {wins}")), "{stands}");
    }
}

#[tokio::test]
async fn an_empty_place_is_filled_with_the_live_part_of_the_file_alone() {
    let nacos = NacosServer::start().await;
    let app = on(&nacos, "").await;
    filled(&nacos, &app).await;
    assert_eq!(nacos.get().await.unwrap(), format!("[sms]\ncode_ttl = \"4m\"\n{}", document(50)));
    nacos.set(&document(7)).await;
    until("it is followed", async || max(&app) == 7).await;
    drop(app);
    let next = on(&nacos, "").await;
    until("what stands there is followed", async || max(&next) == 7).await;
    assert_eq!(nacos.get().await.unwrap(), document(7), "it stays");
}

#[tokio::test]
async fn nonsense_changes_nothing_and_is_told() {
    let nacos = NacosServer::start().await;
    let app = on(&nacos, "").await;
    let boss = app.sign_in_admin("boss").await;
    filled(&nacos, &app).await;
    let nonsense = [
        ("[limits", "is not TOML"),
        ("[limits.login-account]\nrules = 3\n", "limits.login-account.rules"),
        ("[server]\nworkers = 3\n", "server: is not live"),
        ("[sms]\ngateway = \"outbox\"\n", "sms.gateway: is not live"),
        ("[live]\nbackend = \"file\"\n", "live: is not live"),
    ];
    for (text, reason) in nonsense {
        nacos.set(text).await;
        let told = async || {
            let body = boss.get(LIMITS).await.body;
            body["refused"]["reason"].as_str().is_some_and(|told| told.contains(reason))
        };
        until(&format!("{text:?} is refused with {reason:?}"), told).await;
        assert_eq!(ready(&boss).await, json!({ "version": 1, "refused": true, "backend": "up" }));
        assert_eq!((max(&app), nacos.get().await.as_deref()), (50, Some(text)));
        let (version, limits) = shown(&boss).await;
        assert_eq!(save(&boss, &version, &with_max(&limits, 9)).await.status, 412, "nobody has seen it");
    }
    nacos.set(&document(6)).await;
    until("what is right is followed", async || max(&app) == 6).await;
    assert_eq!(ready(&boss).await["refused"], json!(false));
}

#[tokio::test]
async fn what_was_in_force_is_put_back_where_it_was_deleted() {
    let nacos = NacosServer::start().await;
    let app = on(&nacos, "").await;
    let boss = app.sign_in_admin("boss").await;
    filled(&nacos, &app).await;
    nacos.set(&document(7)).await;
    until("it is followed", async || max(&app) == 7).await;
    nacos.remove().await;
    until("it is back", async || nacos.get().await.is_some()).await;
    assert_eq!((max(&app), nacos.get().await.unwrap()), (7, document(7)), "and not what the file says");
    assert_eq!(ready(&boss).await, json!({ "version": 2, "refused": false, "backend": "up" }));
    let (version, limits) = shown(&boss).await;
    assert_eq!(save(&boss, &version, &with_max(&limits, 9)).await.status, 200);
    assert_eq!((max(&app), nacos.get().await.unwrap()), (9, document(9)));
}

#[tokio::test]
async fn an_outage_changes_nothing_but_that_nothing_can_be_saved() {
    let mut nacos = NacosServer::start().await;
    let app = on(&nacos, "").await;
    let boss = app.sign_in_admin("boss").await;
    filled(&nacos, &app).await;
    let (version, limits) = shown(&boss).await;
    let saved = save(&boss, &version, &with_max(&limits, 8)).await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    nacos.kill();
    until("the outage is seen", async || ready(&boss).await["backend"] == "down").await;
    let version = saved.body["version"].as_str().unwrap();
    assert_eq!((max(&app), shown(&boss).await.0.as_str()), (8, version));
    let down = boss.get(LIMITS).await.body["backend_down"].as_str().unwrap().to_owned();
    assert!(down.contains("does not answer"), "{down}");
    assert_eq!(app.client().login("boss", PASSWORD).await.status, 200, "a sign-in asks nothing of it");
    let answer = save(&boss, version, &with_max(&limits, 9)).await;
    assert_eq!((answer.status, answer.problem(), max(&app)), (409, "not-saved", 8), "{}", answer.text);
    let nacos = nacos.start_again().await;
    until("it is seen again", async || ready(&boss).await["backend"] == "up").await;
    assert_eq!(save(&boss, version, &with_max(&limits, 9)).await.status, 200);
    assert_eq!(max(&app), 9);
    nacos.set(&document(5)).await;
    until("it is followed again", async || max(&app) == 5).await;
}

#[tokio::test]
async fn a_centre_that_wants_a_sign_in_gets_one() {
    let nacos = NacosServer::guarded().await;
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    let account = format!("username = \"gate\"\npassword = \"file:{}\"\n", password.display());
    // Without the secret the file applies, and the reason is reported.
    let app = on(&nacos, &account).await;
    let boss = app.sign_in_admin("boss").await;
    let down = async || boss.get(LIMITS).await.body["backend_down"].as_str().unwrap_or_default().to_owned();
    until("it is told", async || down().await.contains("the sign-in at")).await;
    assert!(down().await.contains("cannot be read"), "{}", down().await);
    assert_eq!(ready(&boss).await, json!({ "version": 1, "refused": false, "backend": "down" }));
    drop(app);
    std::fs::write(&password, "keeper\n").unwrap();
    let (app, stranger) = tokio::join!(on(&nacos, &account), on(&nacos, ""));
    let boss = app.sign_in_admin("boss").await;
    until("it is let in", async || ready(&boss).await["backend"] == "up").await;
    let (version, limits) = shown(&boss).await;
    let saved = save(&boss, &version, &with_max(&limits, 8)).await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    let other = on(&nacos, &account).await;
    until("the other follows", async || max(&other) == 8).await;
    // A server that knows none of its tokens any more.
    let nacos = nacos.start_again().await;
    until("it is let in again", async || ready(&boss).await["backend"] == "up").await;
    assert_eq!(ready(&stranger.client()).await["backend"], "down", "without an account nothing is read");
    assert_eq!(max(&stranger), 50);
    drop(nacos);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_in_the_log() {
    let nacos = NacosServer::guarded().await;
    let mut home = Home::new();
    let live = format!(
        "[live]\nbackend = \"nacos\"\n[live.nacos]\nserver = \"{}\"\nusername = \"env:WHO\"\npassword = \"env:WORD\"\n",
        nacos.address()
    );
    home.write("gatehouse.toml", &live);
    home.set("WHO", "gate");
    home.set("WORD", "not-the-keeper");
    home.set("RUST_LOG", "trace");
    let mut running = home.start(&["serve"]).await;
    running.until("the refusal is told", |running| running.stderr().contains("the sign-in at")).await;
    assert!(!running.stderr().contains("not-the-keeper"), "{}", running.stderr());
    drop(running);
    home.set("WORD", "keeper");
    let mut running = home.start(&["serve"]).await;
    running
        .until("it is let in", |running| {
            running.stderr().contains("this instance stored those that it has in force")
        })
        .await;
    assert!(!running.stderr().contains("keeper"), "{}", running.stderr());
}
