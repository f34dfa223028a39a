//! Three instances, one home: a save through one is in force on all, under load, and counters stay.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::rig::{LIMITS, save, shown};
use crate::reload::{Load, in_force};
use crate::support::app::{Client, PASSWORD};
use crate::support::process::{Home, Running};
use crate::support::redis::RedisServer;

const WRONG: &str = "a wrong password";
/// The bound is a second; loaded machines get more.
const GENEROUS: Duration = Duration::from_secs(60);
/// The load's own requests come from one address, and must not reach its limits.
pub(super) const SEED: &str = "# Theirs together.\n[limits.login-account]\nrules = [{ max = 50, window = \"10m\", then = \"captcha\" }]\n\
    [limits.login-address]\nrules = []\n[limits.login-network]\nrules = []\n\
    [limits.captcha-address]\nrules = []\n[limits.captcha-network]\nrules = []\n[limits.captcha-total]\nrules = []\n";

/// Three processes on one database, one store and one key; killed when dropped.
pub(super) struct Three {
    running: Vec<Running>,
    redis: RedisServer,
    pub homes: Vec<Home>,
}

impl Three {
    pub async fn start(arguments: impl Fn(&Home) -> Vec<String>, set: impl Fn(&mut Home, &Home)) -> Self {
        let (redis, first) = (RedisServer::start(), Home::new());
        let mut homes: Vec<Home> = (0..3).map(|_| Home::new()).collect();
        for home in &mut homes {
            home.write("gatehouse.toml", SEED);
            let database = first.path("gatehouse.db");
            home.set("GATEHOUSE__DATABASE__URL", format!("sqlite://{}", database.display()));
            home.set("GATEHOUSE__SECRETS__KEY_FILE", first.path("secret.key").display().to_string());
            home.set("GATEHOUSE__STORE__URL", redis.url());
            home.set("GATEHOUSE__STORE__TIMEOUT", "5s");
            set(home, &first);
        }
        let made = homes[0]
            .run_with_input(&["admin", "create", "boss", "--password-stdin"], &format!("{PASSWORD}\n"));
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        let starting = async |home: &Home| {
            let arguments = arguments(&first);
            home.start(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
        };
        let (one, two, three) = tokio::join!(starting(&homes[0]), starting(&homes[1]), starting(&homes[2]));
        homes.push(first);
        Self { running: vec![one, two, three], redis, homes }
    }

    pub fn clients(&self) -> Vec<Client> {
        self.running.iter().map(Running::client).collect()
    }

    /// Signed in. Until an instance has the windows that another one rebuilds, it asks everybody for a CAPTCHA.
    pub async fn boss(&self, instance: usize) -> Client {
        let (client, start) = (self.running[instance].client(), Instant::now());
        loop {
            let answer = client.login("boss", PASSWORD).await;
            if answer.status == 200 {
                return client;
            }
            assert_eq!(answer.problem(), "captcha-required", "{}", answer.text);
            assert!(start.elapsed() < GENEROUS, "{}", answer.text);
            tokio::time::sleep(Duration::from_millis(50)).await; // other processes have no clock to advance
        }
    }
}

async fn on_redis(poll: &'static str) -> Three {
    let set = |home: &mut Home, _: &Home| {
        home.set("GATEHOUSE__LIVE__BACKEND", "redis");
        home.set("GATEHOUSE__LIVE__POLL", poll);
    };
    Three::start(|_| vec!["serve".to_owned()], set).await
}

/// Waits until all of them ask for a CAPTCHA after this many failures; returns how long that took.
async fn all_follow(clients: &[Client], max: u32, what: &str) -> Duration {
    let start = Instant::now();
    for client in clients {
        while in_force(client).await != max {
            assert!(start.elapsed() < GENEROUS, "{what}: max = {max} is not in force on {}", client.url);
            tokio::time::sleep(Duration::from_millis(5)).await; // other processes have no clock to advance
        }
    }
    start.elapsed()
}

fn with_max(limits: &Value, max: u32) -> Value {
    super::rig::with_max(limits, max)
}

/// r-nacos compares nothing: if a loaded machine delays one of two writers by more than the 300 ms after
/// which the other checks again, both were told that they saved (docs/live-limits.md, Nacos). The next save
/// has seen the last.
pub(super) async fn save_again(boss: &Client, max: u32) -> u32 {
    let start = Instant::now();
    loop {
        let (version, limits) = shown(boss).await;
        if save(boss, &version, &with_max(&limits, max)).await.status == 200 {
            return max;
        }
        assert!(start.elapsed() < GENEROUS, "max = {max} cannot be saved");
    }
}

/// Saves through each in turn, under load; counters are kept.
pub(super) async fn saved_through_each(three: &mut Three, what: &str) {
    let clients = three.clients();
    // Before the load: with more to hash than there is room, strangers are asked for a CAPTCHA.
    let bosses = [three.boss(0).await, three.boss(1).await, three.boss(2).await];
    let load = Load::across(&clients).await;
    let mut longest = Duration::ZERO;
    for round in 0..9 {
        let max = 100 + round;
        let (version, limits) = shown(&bosses[round as usize % 3]).await;
        let answer = save(&bosses[round as usize % 3], &version, &with_max(&limits, max)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        longest = longest.max(all_follow(&clients, max, what).await);
    }
    eprintln!("{what}: after a save in force on all within {longest:.0?} at the longest of 9");
    for client in &clients[..2] {
        assert_eq!(client.login("victim", WRONG).await.status, 401);
    }
    for round in 0..5 {
        let (version, limits) = shown(&bosses[0]).await;
        let drafts = [with_max(&limits, 200 + round), with_max(&limits, 300 + round)];
        let (one, other) =
            tokio::join!(save(&bosses[1], &version, &drafts[0]), save(&bosses[2], &version, &drafts[1]));
        let kept = match (one.status, other.status) {
            (200, 412) => 200 + round,
            (412, 200) => 300 + round,
            (200, 200) if what == "nacos" => save_again(&bosses[0], 400 + round).await,
            _ => panic!("{what}: {} {}", one.text, other.text),
        };
        all_follow(&clients, kept, what).await;
    }
    let (version, limits) = shown(&bosses[2]).await;
    assert_eq!(save(&bosses[2], &version, &with_max(&limits, 2)).await.status, 200);
    all_follow(&clients, 2, what).await;
    for client in &clients {
        assert_eq!(
            client.login("victim", WRONG).await.problem(),
            "captcha-required",
            "two failures stood before it"
        );
    }
    load.none_failed(what).await;
    let history = bosses[0].get(&format!("{LIMITS}/history?limit=100")).await.body;
    let history = history["changes"].as_array().unwrap();
    assert_eq!(history.len(), 16, "each once, and what they started with: {history:?}");
    assert!(history[..15].iter().all(|change| change["login"] == "boss"), "{history:?}");
    assert_eq!(history[15].get("login"), None);
    let instances = async || bosses[0].get(LIMITS).await.body["instances"].as_array().unwrap().len();
    assert_eq!(instances().await, 3);
    three.running[2].signal("TERM");
    three.running[2].ended().await;
    assert_eq!(instances().await, 2, "who leaves says so");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_through_one_is_in_force_on_all_that_share_a_redis() {
    let mut three = on_redis("5s").await;
    let seed: String = redis::cmd("GET").arg("gh:live").query(&mut three.redis.connection()).unwrap();
    assert_eq!(seed, SEED, "one of the three put it there");
    saved_through_each(&mut three, "redis").await;
    let text: String = redis::cmd("GET").arg("gh:live").query(&mut three.redis.connection()).unwrap();
    assert_eq!(text, SEED.replace("max = 50", "max = 2"));
    let file = std::fs::read_to_string(three.homes[0].path("gatehouse.toml")).unwrap();
    assert_eq!(file, SEED, "the file is not touched");
    let told = three.homes[1].run(&["limits", "show"]);
    let version = shown(&three.boss(0).await).await.0;
    assert!(told.stdout.contains("redis, key gh:live") && told.stdout.contains(&version), "{}", told.stdout);
    assert!(told.stdout.contains("at most 2 in any 10m"), "{}", told.stdout);
    assert!(three.homes[1].run(&["check-config"]).stdout.contains("are read from redis, key gh:live"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_save_through_one_is_in_force_on_all_that_share_a_file() {
    let arguments = |shared: &Home| {
        let file = shared.path("etc/gatehouse.toml").display().to_string();
        vec!["serve".to_owned(), "--config".to_owned(), file]
    };
    let mut three = Three::start(arguments, |_, first| {
        std::fs::create_dir_all(first.path("etc")).unwrap();
        std::fs::write(first.path("etc/gatehouse.toml"), SEED).unwrap();
    })
    .await;
    saved_through_each(&mut three, "shared file").await;
    let file = std::fs::read_to_string(three.homes[3].path("etc/gatehouse.toml")).unwrap();
    assert_eq!(file, SEED.replace("max = 50", "max = 2"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announcements_that_are_lost_are_made_up_for() {
    let three = on_redis("200ms").await;
    let (clients, boss) = (three.clients(), three.boss(0).await);
    let mut redis = three.redis.connection();
    let load = Load::across(&clients).await;
    for max in 60..64 {
        let killed: u32 = redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query(&mut redis).unwrap();
        assert!(max > 60 || killed == 3, "{killed} listened");
        let (version, limits) = shown(&boss).await;
        assert_eq!(save(&boss, &version, &with_max(&limits, max)).await.status, 200);
        let took = all_follow(&clients, max, "listeners killed").await;
        eprintln!("listeners killed: in force on all within {took:.0?}");
    }
    // By hand, without an announcement.
    redis::cmd("SET").arg("gh:live").arg(SEED.replace("50", "70")).exec(&mut redis).unwrap();
    let took = all_follow(&clients, 70, "set by hand").await;
    eprintln!("set by hand: in force on all within {took:.0?}");
    load.none_failed("lost announcements").await;
    let history = boss.get(&format!("{LIMITS}/history?limit=1")).await.body["changes"][0].clone();
    assert_eq!((history.get("login"), history.get("reason")), (None, None), "{history}");
    assert_eq!(json!(history["toml"]).as_str().unwrap(), SEED.replace("50", "70"));
}
