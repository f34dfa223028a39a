//! Promise 6 on the real binary and real files, under load: a change is applied completely or not at all, no
//! request notices, and counters survive it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::support::app::{Client, PASSWORD};
use crate::support::process::{Home, Running};

const WRONG: &str = "a wrong password";
/// The bound is a second; loaded machines get more.
const GENEROUS: Duration = Duration::from_secs(60);

/// `max` failures on an account before a CAPTCHA; the limit on addresses is off, or the load would reach it.
fn document(max: u32) -> String {
    format!(
        "[limits.login-account]\nrules = [{{ max = {max}, window = \"10m\", then = \"captcha\" }}]\n\
         [limits.login-address]\nrules = []\n[limits.login-network]\nrules = []\n"
    )
}

/// The `max` in force, as shown in every answer to a sign-in.
pub async fn in_force(client: &Client) -> u32 {
    let answer = client.login("nobody-in-particular", WRONG).await;
    let policy = answer.header("ratelimit-policy").to_owned();
    let quota = policy.split(";q=").nth(1).unwrap_or_else(|| panic!("{policy:?} {}", answer.text));
    quota.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Four clients that sign in, rightly and wrongly, load pages and get challenges, until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<Vec<String>>>,
}

impl Load {
    async fn on(running: &Running) -> Self {
        Self::across(std::slice::from_ref(&running.client())).await
    }

    /// On instances that share their accounts.
    pub async fn across(instances: &[Client]) -> Self {
        assert_eq!(instances[0].register("known", PASSWORD).await.status, 201);
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = (0..4).map(|number| {
            let (stop, done, client) =
                (Arc::clone(&stop), Arc::clone(&done), Client::of(&instances[number % instances.len()].url));
            tokio::spawn(async move {
                let mut failed = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let count = done.fetch_add(1, Ordering::SeqCst);
                    let (path, login, password) = match count % 4 {
                        0 => ("login", "known".to_owned(), PASSWORD),
                        1 => ("login", format!("nobody-{number}-{count}"), WRONG),
                        2 => ("captcha", String::new(), ""),
                        _ => ("session", String::new(), ""),
                    };
                    let url = format!("{}/api/v1/{path}", client.url);
                    let body = serde_json::json!({ "login": login, "password": password });
                    let request = match path {
                        "login" => client.http.post(url).json(&body),
                        "captcha" => client.http.post(url).json(&serde_json::json!({})),
                        _ => client.http.get(url),
                    };
                    match request.send().await {
                        Ok(answer) if answer.status().is_server_error() => {
                            failed.push(format!("{path}: {}", answer.status()));
                        }
                        Ok(answer) => {
                            drop(answer.bytes().await.map_err(|error| failed.push(error.to_string())))
                        }
                        Err(error) => failed.push(error.to_string()),
                    }
                }
                failed
            })
        });
        Self { clients: clients.collect(), stop, done }
    }

    pub async fn none_failed(self, what: &str) {
        let enough = async {
            while self.done.load(Ordering::SeqCst) < 60 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), enough).await.expect("a load");
        self.stop.store(true, Ordering::SeqCst);
        let mut failed = Vec::new();
        for client in self.clients {
            failed.extend(client.await.unwrap());
        }
        let done = self.done.load(Ordering::SeqCst);
        eprintln!("{what}: {} of {done} requests failed", failed.len());
        assert!(failed.is_empty(), "{failed:?}");
    }
}

/// Waits from the edit to the first answer that reflects it.
async fn followed(client: &Client, max: u32, what: &str, edit: impl FnOnce()) {
    let start = Instant::now();
    edit();
    while in_force(client).await != max {
        assert!(start.elapsed() < GENEROUS, "{what}: max = {max} is not in force");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    eprintln!("{what}: in force after {:.0?}", start.elapsed());
}

async fn problem(client: &Client, login: &str, password: &str) -> (u16, String) {
    let answer = client.login(login, password).await;
    (answer.status, answer.problem().to_owned())
}

fn home() -> Home {
    let mut home = Home::new();
    home.set("GATEHOUSE__LIMITS__CAPTCHA_ADDRESS__RULES", "[]");
    home.set("GATEHOUSE__LIMITS__CAPTCHA_TOTAL__RULES", "[]");
    home
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_file_is_in_force_at_once_and_failures_before_it_still_count() {
    let home = home();
    home.write("gatehouse.toml", &document(50));
    let running = home.start(&["serve"]).await;
    let client = running.client();
    let load = Load::on(&running).await;
    for _ in 0..2 {
        assert_eq!(problem(&client, "victim", WRONG).await.0, 401);
    }
    // The policy is read from the load's own guesses at one name, so those must stay unlimited.
    followed(&client, 49, "rename", || home.replace("gatehouse.toml", &document(49))).await;
    for _ in 0..2 {
        assert_eq!(problem(&client, "victim", WRONG).await.0, 401);
    }
    followed(&client, 4, "rename again", || home.replace("gatehouse.toml", &document(4))).await;
    assert_eq!(problem(&client, "victim", WRONG).await, (403, "captcha-required".to_owned()));
    assert_eq!(problem(&client, "known", PASSWORD).await.0, 200);
    followed(&client, 6, "and back", || home.replace("gatehouse.toml", &document(6))).await;
    for _ in 0..2 {
        assert_eq!(problem(&client, "victim", WRONG).await.0, 401, "four failures stood before it");
    }
    assert_eq!(problem(&client, "victim", WRONG).await, (403, "captcha-required".to_owned()));
    load.none_failed("rename-over").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_config_map_is_in_force_at_once() {
    let home = home();
    let fill = |folder: &Path, max: u32| {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("gatehouse.toml"), document(max)).unwrap();
    };
    std::fs::create_dir(home.path("etc")).unwrap();
    fill(&home.path("etc/..1"), 50);
    symlink("..1", home.path("etc/..data")).unwrap();
    symlink("..data/gatehouse.toml", home.path("etc/gatehouse.toml")).unwrap();
    let running = home.start(&["serve", "--config", "etc/gatehouse.toml"]).await;
    let load = Load::on(&running).await;
    for max in 51..54 {
        let swap = || {
            fill(&home.path(format!("etc/..{max}")), max);
            symlink(format!("..{max}"), home.path("etc/..tmp")).unwrap();
            std::fs::rename(home.path("etc/..tmp"), home.path("etc/..data")).unwrap();
        };
        followed(&running.client(), max, "symlink swap", swap).await;
    }
    load.none_failed("symlink swap").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_written_file_changes_nothing_until_it_is_whole() {
    let home = home();
    home.write("gatehouse.toml", &document(50));
    let mut running = home.start(&["serve"]).await;
    let client = running.client();
    let load = Load::on(&running).await;
    let whole = document(60);
    home.write("gatehouse.toml", &whole[..whole.find("window").unwrap()]);
    running.until("the half is refused", |running| running.stderr().contains("configuration refused")).await;
    assert_eq!(in_force(&client).await, 50);
    followed(&client, 60, "half-written, then whole", || home.write("gatehouse.toml", &whole)).await;
    load.none_failed("half-written").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hangup_reloads_and_drops_nobody() {
    let home = home();
    home.write("gatehouse.toml", &document(50));
    let mut running = home.start(&["serve"]).await;
    let load = Load::on(&running).await;
    for _ in 0..5 {
        running.signal("HUP");
    }
    running.until("it looked", |running| running.stderr().contains("configuration unchanged")).await;
    let (before, edit) = (home.path("gatehouse.toml"), document(51));
    followed(&running.client(), 51, "in place, with SIGHUP", || {
        std::fs::write(before, edit).unwrap();
        running.signal("HUP");
    })
    .await;
    load.none_failed("SIGHUP").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_mistake_is_refused_by_line_and_field_and_the_old_stays() {
    let home = home();
    home.write("gatehouse.toml", &document(50));
    let mut running = home.start(&["serve"]).await;
    let client = running.client();
    let load = Load::on(&running).await;
    let good = document(70);
    let mistakes = [
        ("[limits.login-account\n".to_owned(), "gatehouse.toml:1: is not TOML"),
        (String::new(), "gatehouse.toml: is empty"),
        (good.replace("max = 70", "max = 0"), "gatehouse.toml:2: limits.login-account.rules[0].max: "),
        (good.replace("max = 70", "max = \"70\""), "gatehouse.toml:2: limits.login-account.rules[0].max: "),
        (good.replace("10m", "a while"), "gatehouse.toml:2: limits.login-account.rules[0].window: "),
        (good.replace("10m", "1ms"), "gatehouse.toml:2: limits.login-account.rules[0].window: "),
        (good.replace("captcha", "cry"), "gatehouse.toml:2: limits.login-account.rules[0].then: "),
        (good.replace("max =", "mux ="), "gatehouse.toml:2: limits.login-account.rules[0].mux: "),
        (good.replace("login-account", "login-acount"), "gatehouse.toml:1: limits.login-acount: "),
        (good.replace("[limits.login-address]", "[limits.login-account]"), "gatehouse.toml:3: "),
        (format!("{good}[server]\nworkers = 0\n"), "gatehouse.toml:8: server.workers: "),
        (format!("{good}[captcha]\nttl = \"1y\"\n"), "gatehouse.toml:8: captcha.ttl: "),
        (format!("{good}[colour]\n"), "gatehouse.toml:7: colour: "),
        (format!("{good}[sms]\ncountries = [\"Narnia\"]\n"), "gatehouse.toml:8: sms.countries"),
    ];
    for (text, told) in &mistakes {
        let before = running.stderr().len();
        home.replace("gatehouse.toml", text);
        let refused = format!("refusing {text:?} with {told:?}");
        running.until(&refused, |running| running.stderr()[before..].contains(told)).await;
        let ready = client.get("/readyz").await;
        assert_eq!(ready.status, 200);
        assert_eq!(ready.body["limits"], serde_json::json!({ "version": 1, "refused": true }), "{told}");
    }
    std::fs::remove_file(home.path("gatehouse.toml")).unwrap();
    running.until("a removal is refused", |running| running.stderr().contains("was removed")).await;
    assert_eq!(in_force(&client).await, 50);
    followed(&client, 70, "a good one after them", || home.replace("gatehouse.toml", &good)).await;
    let ready = client.get("/readyz").await;
    assert_eq!(ready.body["limits"], serde_json::json!({ "version": 2, "refused": false }));
    load.none_failed("mistakes").await;
}

#[tokio::test]
async fn what_takes_a_restart_is_told_and_the_rest_followed() {
    let home = home();
    home.write("gatehouse.toml", &document(50));
    let mut running = home.start(&["serve"]).await;
    let edit = format!("{}[session]\nidle = \"1h\"\n", document(51));
    followed(&running.client(), 51, "rename", || home.replace("gatehouse.toml", &edit)).await;
    running.until("it says so", |running| running.stderr().contains("needs a restart: session.idle")).await;
}
