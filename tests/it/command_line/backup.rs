//! A backup that was taken while the server served, restored into a fresh installation, with the commands of
//! `docs/operations.md`.

use std::process::Command;

use crate::support::app::{Client, PASSWORD};
use crate::support::database::program;
use crate::support::postgres::PostgresServer;
use crate::support::process::Home;

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

    let home_after = home(&fresh);
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
    let database = || Database {
        url: None,
        back_up: documented("# back up SQLite, while the server runs"),
        restore: documented("# restore SQLite, before the server starts"),
    };
    survives(database(), database()).await;
}

#[tokio::test]
async fn a_backup_of_postgresql_keeps_accounts_sessions_and_the_sms_cap() {
    let server = PostgresServer::start().await;
    let (original, fresh) = (server.database("gatehouse").await, server.database("restored").await);
    let database = |url| Database {
        url: Some(url),
        back_up: documented("# back up PostgreSQL, while the server runs"),
        restore: documented("# restore PostgreSQL into an empty database, before the server starts"),
    };
    survives(database(original), database(fresh)).await;
}
