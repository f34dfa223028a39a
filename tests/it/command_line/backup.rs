//! A backup that was taken while the server served, restored into a fresh installation, with the commands of
//! `docs/operations.md`.

use std::process::Command;
use std::time::Duration;

use crate::oidc::{self, BY_WIKI, VERIFIER, WIKI, call_at, claims, clients};
use crate::support::app::{Answer, Client, PASSWORD};
use crate::support::database::program;
use crate::support::postgres::PostgresServer;
use crate::support::process::{Home, Running};

const PHONE: &str = "+8613800138000";
/// Two messages an hour, so that the cap is reached without waiting; sign-ins that fail as fast as they can.
const LIMITS: &str = "[limits]
sms-phone.rules = [{ max = 2, window = '1h' }]
login-address.rules = []
login-network.rules = []";

/// The commands of the page below a first line, `# `…
fn documented(first: &str) -> &'static str {
    let page = include_str!("../../../docs/operations.md");
    let mut blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.find(|block| block.lines().next() == Some(first)).unwrap_or_else(|| panic!("no block {first:?}"))
}

fn run(script: &str, variables: &[(&str, &str)]) {
    let path = std::env::var("PATH").unwrap();
    let postgres = program("pg_dump").parent().unwrap().to_owned();
    let ran = Command::new("bash")
        .args(["-euc", script])
        .envs(variables.iter().copied())
        .env("PATH", format!("{}:{path}", postgres.display()))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{script}\n{}", String::from_utf8_lossy(&ran.stderr));
}

struct Database {
    /// None: SQLite in the folder.
    url: Option<String>,
    back_up: &'static str,
    restore: &'static str,
}

fn sqlite() -> Database {
    Database {
        url: None,
        back_up: documented("# back up SQLite, while the server runs"),
        restore: documented("# restore SQLite, before the server starts"),
    }
}

fn postgresql(url: String) -> Database {
    Database {
        url: Some(url),
        back_up: documented("# back up PostgreSQL, while the server runs"),
        restore: documented("# restore PostgreSQL into an empty database, before the server starts"),
    }
}

fn home(database: &Database) -> Home {
    let mut home = Home::new();
    home.write("gatehouse.toml", LIMITS);
    if let Some(url) = &database.url {
        home.set("GATEHOUSE__DATABASE__URL", url);
    }
    home
}

/// Wrong passwords at ever new names, each of which is written, until it is aborted.
async fn write_all_the_time(client: Client) {
    for number in 0.. {
        client.login(&format!("name{number}"), "a wrong password").await;
    }
}

async fn survives(original: Database, fresh: Database) {
    let home_before = home(&original);
    let running = home_before.start(&["serve"]).await;
    let client = running.client();
    assert_eq!(client.register("alice", PASSWORD).await.status, 201);
    for _ in 0..2 {
        assert_eq!(client.ask_code(PHONE, "login").await.status, 202);
    }
    let busy = tokio::spawn(write_all_the_time(running.client()));
    let backup = tempfile::tempdir().unwrap();
    let state = |home: &Home| home.path("data").display().to_string();
    let folder = backup.path().display().to_string();
    let script = original.back_up;
    let mut variables = vec![("STATE", state(&home_before)), ("BACKUP", folder.clone())];
    variables.extend(original.url.map(|url| ("DATABASE", url)));
    let taken = tokio::task::spawn_blocking(move || {
        let variables: Vec<_> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
        run(script, &variables);
    });
    taken.await.unwrap();
    assert!(!busy.is_finished(), "it served all the while");
    busy.abort();
    drop(running);

    let mut home_after = home(&fresh);
    // In the place of the one that is gone, or it would wait for it for a while: the backup says that it runs.
    home_after.port = home_before.port;
    home_after.set("GATEHOUSE__SERVER__BIND", format!("127.0.0.1:{}", home_before.port));
    home_after.set("GATEHOUSE__SERVER__PUBLIC_URL", home_before.url());
    let (state, url) = (state(&home_after), fresh.url.unwrap_or_default());
    run(fresh.restore, &[("STATE", &state), ("BACKUP", &folder), ("DATABASE", &url)]);
    let restored = home_after.start(&["serve"]).await;
    let same_browser = Client { url: restored.url.clone(), ..client };
    assert_eq!(same_browser.get("/readyz").await.status, 200);
    assert_eq!(same_browser.get("/api/v1/session").await.body["user"]["login"], "alice", "still signed in");
    assert_eq!(restored.client().login("alice", PASSWORD).await.status, 200);
    let third = restored.client().ask_code(PHONE, "login").await;
    assert_eq!(third.problem(), "throttled", "{}", third.text);
    assert_eq!(third.body["limit"], "sms-phone");
}

#[tokio::test]
async fn a_backup_of_sqlite_keeps_accounts_sessions_and_the_sms_cap() {
    survives(sqlite(), sqlite()).await;
}

#[tokio::test]
async fn a_backup_of_postgresql_keeps_accounts_sessions_and_the_sms_cap() {
    let server = PostgresServer::start().await;
    let (original, fresh) = (server.database("gatehouse").await, server.database("restored").await);
    survives(postgresql(original), postgresql(fresh)).await;
}

/// Its clients, with a key that signs.
async fn serving(home: &Home) -> Running {
    let running = home.start(&["serve"]).await;
    let client = running.client();
    for _ in 0..1500 {
        if client.get("/oauth/keys").await.status == 200 {
            return running;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // a process of its own has no clock to advance
    }
    panic!("no key was made");
}

async fn granted(browser: &Client) -> [String; 2] {
    let code = oidc::code(browser, &[]).await;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", WIKI),
        ("code_verifier", VERIFIER),
    ];
    tokens(&call_at(&browser.url, "/oauth/token", BY_WIKI, &fields).await)
}

fn tokens(answer: &Answer) -> [String; 2] {
    oidc::tokens(answer).into()
}

async fn refreshed(url: &str, token: &str) -> Answer {
    let fields = [("grant_type", "refresh_token"), ("refresh_token", token)];
    call_at(url, "/oauth/token", BY_WIKI, &fields).await
}

async fn login_of(browser: &Client) -> (u16, serde_json::Value) {
    let session = browser.get("/api/v1/session").await;
    (session.status, session.body["user"]["login"].clone())
}

/// What had ended or moved on since the backup is back with it, until the sessions are ended.
async fn revives_nothing(original: Database, fresh: Database) {
    let mut home = home(&original);
    home.set("GATEHOUSE__OIDC__SIGNING", "ES256");
    home.write("gatehouse.toml", &clients());
    let running = serving(&home).await;
    let (ada, boris) = (running.client(), running.client());
    assert_eq!(ada.register("ada", PASSWORD).await.status, 201);
    assert_eq!(boris.register("boris", PASSWORD).await.status, 201);
    let (of_ada, of_boris) = (granted(&ada).await, granted(&boris).await);
    let backup = tempfile::tempdir().unwrap();
    let (state, folder) = (home.path("data").display().to_string(), backup.path().display().to_string());
    let url = original.url.clone().unwrap_or_default();
    run(original.back_up, &[("STATE", &state), ("BACKUP", &folder), ("DATABASE", &url)]);
    let mut all = vec![of_boris.clone(), of_ada];
    for _ in 0..3 {
        let [_, token] = all.last().unwrap();
        all.push(tokens(&refreshed(&running.url, token).await));
    }
    assert_eq!(boris.submit("/account", "/logout", &[]).await.status, 303);
    assert_eq!(refreshed(&running.url, &of_boris[1]).await.status, 400);
    // Of a session that the backup does not know.
    let carol = running.client();
    assert_eq!(carol.register("carol", PASSWORD).await.status, 201);
    all.push(granted(&carol).await);
    drop(running);

    if let Some(url) = &fresh.url {
        home.set("GATEHOUSE__DATABASE__URL", url);
    }
    let url = fresh.url.clone().unwrap_or_default();
    run(fresh.restore, &[("STATE", &state), ("BACKUP", &folder), ("DATABASE", &url)]);
    let running = serving(&home).await;
    assert_eq!(oidc::userinfo(&running.url, &of_boris[0]).await.status, 200, "it is back");
    assert_eq!(login_of(&ada).await, (200, "ada".into()));
    drop(running);

    let ended = home.run(&["admin", "end-sessions"]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    assert_eq!(ended.stdout, "2 sessions ended. Everybody signs in anew.\n");
    assert_eq!(home.run(&["admin", "end-sessions"]).stdout, "0 sessions ended. Everybody signs in anew.\n");
    let running = serving(&home).await;
    for browser in [&ada, &boris, &carol] {
        assert_eq!(login_of(browser).await.0, 401);
    }
    for [access, token] in &all {
        assert_eq!(oidc::userinfo(&running.url, access).await.status, 401);
        let refused = refreshed(&running.url, token).await;
        assert_eq!((refused.status, &refused.body["error"]), (400, &"invalid_grant".into()));
    }
    let again = running.client();
    assert_eq!(again.login("ada", PASSWORD).await.status, 200);
    let [access, refresh] = granted(&again).await;
    assert_eq!(oidc::userinfo(&running.url, &access).await.status, 200);
    let answer = refreshed(&running.url, &refresh).await;
    let id = claims(answer.body["id_token"].as_str().expect("an ID token"));
    assert_eq!(id["preferred_username"], "ada");
}

#[tokio::test]
async fn a_restored_backup_of_sqlite_revives_nothing_once_sessions_are_ended() {
    revives_nothing(sqlite(), sqlite()).await;
}

#[tokio::test]
async fn a_restored_backup_of_postgresql_revives_nothing_once_sessions_are_ended() {
    let server = PostgresServer::start().await;
    let (original, fresh) = (server.database("gatehouse").await, server.database("restored").await);
    revives_nothing(postgresql(original), postgresql(fresh)).await;
}
