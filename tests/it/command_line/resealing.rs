//! Apps that come with an import, and their secrets when the whole key file is replaced.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use gatehouse::clock::Clock;
use serde_json::{Value, json};

use crate::factors::{by_recovery, by_totp};
use crate::mail::flows;
use crate::support::app::{Client, PASSWORD};
use crate::support::database::TestDatabase;
use crate::support::process::Home;

/// Of "correct horse".
const HASH: &str = "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6";
const SECRET: &str = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
/// More than one batch.
const MANY: usize = 150;

#[tokio::test]
async fn secrets_are_sealed_under_another_key_file() {
    resealed(TestDatabase::sqlite()).await;
    resealed(TestDatabase::postgres().await).await;
}

#[tokio::test]
async fn signing_keys_are_sealed_under_another_key_file_or_replaced() {
    let database = TestDatabase::sqlite();
    let mut home = Home::new();
    home.set("GATEHOUSE__DATABASE__URL", database.url.clone());
    home.set("GATEHOUSE__SECRETS__KEY_FILE", "old.key");
    home.set("GATEHOUSE__OIDC__SIGNING", "ES256");
    let running = home.start(&["serve"]).await;
    let first = token_keys(&running.client(), 1).await;
    drop(running);

    home.set("GATEHOUSE__SECRETS__KEY_FILE", "new.key");
    key(&home, "new.key", 2);
    taken(&home);
    let done = home.run(&["key", "reseal", "old.key"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        done.stdout,
        "0 secrets of authenticator apps sealed under new.key; 0 secrets already.\n\
        1 signing key sealed; 0 signing keys already.\n"
    );
    let running = home.start(&["serve"]).await;
    assert_eq!(token_keys(&running.client(), 1).await, first);
    drop(running);

    // The file is lost: the next key signs, and the log says why.
    home.set("GATEHOUSE__SECRETS__KEY_FILE", "third.key");
    key(&home, "third.key", 3);
    taken(&home);
    let lost = home.run(&["key", "reseal", "old.key"]);
    assert_eq!(lost.code, Some(0), "{}", lost.stderr);
    let told = "1 signing key opens under neither key file; another one signs.\n";
    assert!(lost.stdout.ends_with(told), "{}", lost.stdout);
    let mut running = home.start(&["serve"]).await;
    running.until("it says so", |running| running.stderr().contains("gatehouse key reseal OLD.key")).await;
    assert_ne!(token_keys(&running.client(), 1).await, first);
}

#[tokio::test]
async fn addresses_are_sealed_whatever_else_is_lost() {
    let mut home = Home::new();
    home.set("GATEHOUSE__SECRETS__KEY_FILE", "first.key");
    key(&home, "first.key", 1);
    import(&home, &row("boris"));
    home.set("GATEHOUSE__SECRETS__KEY_FILE", "second.key");
    key(&home, "second.key", 2);
    let running = home.start(&["serve"]).await;
    with_address(&running.client()).await;
    drop(running);

    home.set("GATEHOUSE__SECRETS__KEY_FILE", "third.key");
    key(&home, "third.key", 3);
    taken(&home);
    let lost_secret = "1 secret opens under neither key file. Their owners need: gatehouse admin clear-factors NAME\nboris\n";
    let done = home.run(&["key", "reseal", "second.key"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(2), lost_secret));
    assert!(
        done.stdout.contains("1 e-mail address sealed; 0 e-mail addresses already.\n"),
        "{}",
        done.stdout
    );
    let again = home.run(&["key", "reseal", "second.key"]).stdout;
    assert!(again.contains("0 e-mail addresses sealed; 1 e-mail address already.\n"), "{again}");

    home.set("GATEHOUSE__SECRETS__KEY_FILE", "fourth.key");
    key(&home, "fourth.key", 4);
    taken(&home);
    let lost = home.run(&["key", "reseal", "first.key"]);
    assert_eq!(lost.code, Some(2), "{}", lost.stdout);
    assert!(lost.stderr.starts_with("1 e-mail address left as before: "), "{}", lost.stderr);
    assert!(lost.stdout.starts_with("1 secret of authenticator apps sealed"), "{}", lost.stdout);
    let found = home.run(&["key", "reseal", "third.key"]);
    assert_eq!((found.code, found.stderr.as_str()), (Some(0), ""), "{}", found.stdout);
}

/// An account whose owner has confirmed an address.
async fn with_address(owner: &Client) {
    const EMAIL: &str = "ada@example.org";
    assert_eq!(owner.register("ada", PASSWORD).await.status, 201);
    owner.login("ada", PASSWORD).await;
    let asked = owner.call("/email/codes", json!({ "email": EMAIL, "purpose": "verify" })).await;
    assert_eq!(asked.status, 202, "{}", asked.text);
    for _ in 0..1500 {
        let mails = owner.get(&format!("/dev/outbox.json?email={EMAIL}")).await.body;
        if let Some(mail) = mails.as_array().and_then(|mails| mails.first()) {
            let set = flows::set(owner, EMAIL, &flows::code_of(mail)).await;
            assert_eq!(set.status, 200, "{}", set.text);
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // a process of its own has no clock to advance
    }
    panic!("no mail");
}

/// The published ones, once there are so many.
async fn token_keys(client: &Client, count: usize) -> Value {
    for _ in 0..1500 {
        let answer = client.get("/oauth/keys").await;
        if answer.body["keys"].as_array().is_some_and(|keys| keys.len() == count) {
            return answer.body;
        }
        tokio::time::sleep(Duration::from_millis(20)).await; // a process of its own has no clock to advance
    }
    panic!("no {count} keys");
}

fn row(login: &str) -> String {
    format!("{{\"login\":\"{login}\",\"password_hash\":\"{HASH}\",\"totp\":\"{SECRET}\"}}\n")
}

fn import(home: &Home, rows: &str) {
    let done = home.run_with_input(&["accounts", "import", "-"], rows);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stdout.contains(" with an authenticator app."), "{}", done.stdout);
}

/// The code that an app shows so many seconds from now.
fn code(ahead: i64) -> String {
    let now = Clock::System.now().0 / 1_000_000 + ahead;
    let args = ["--totp", "--base32", "--now", &format!("@{now}"), SECRET];
    let made = Command::new("oathtool").args(args).output().expect("oathtool (scripts/setup installs it)");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

async fn asked(browser: &Client) -> Vec<String> {
    let first = browser.login("alice", "correct horse").await;
    assert_eq!((first.status, first.problem()), (403, "factor-required"), "{}", first.text);
    serde_json::from_value(first.body["methods"].clone()).unwrap()
}

fn key(home: &Home, name: &str, byte: u8) {
    std::fs::write(home.path(name), [byte; 32]).unwrap();
    std::fs::set_permissions(home.path(name), Permissions::from_mode(0o600)).unwrap();
}

/// The database is told that the key file is another one now.
fn taken(home: &Home) {
    let taken = home.run(&["key", "replace", "--accept-loss"]);
    assert_eq!(taken.code, Some(0), "{}", taken.stderr);
    assert!(taken.stdout.contains("is that of the database now"), "{}", taken.stdout);
}

async fn resealed(database: TestDatabase) {
    let mut home = Home::new();
    home.set("GATEHOUSE__DATABASE__URL", database.url.clone());
    home.set("GATEHOUSE__SECRETS__KEY_FILE", "old.key");
    key(&home, "old.key", 1);
    import(&home, &(0..MANY).map(|number| row(&format!("user{number}"))).collect::<String>());
    import(&home, &row("alice"));
    let running = home.start(&["serve"]).await;
    let browser = running.client();
    assert_eq!(asked(&browser).await, ["totp"]);
    assert_eq!(by_totp(&browser, &code(0)).await.status, 200);
    let made = browser.call("/recovery-codes", json!({})).await;
    let recovery = made.body["recovery_codes"][0].as_str().expect("a code").to_owned();
    drop(running);

    home.set("GATEHOUSE__SECRETS__KEY_FILE", "new.key");
    let missing = home.run(&["key", "reseal", "old.key"]);
    assert_eq!(missing.code, Some(2), "{}", missing.stdout);
    assert!(missing.stderr.contains("new.key"), "{}", missing.stderr);
    key(&home, "new.key", 2);
    taken(&home);
    import(&home, &row("boris"));
    let done = home.run(&["key", "reseal", "old.key"]);
    assert_eq!((done.code, done.stderr.as_str()), (Some(0), ""));
    assert_eq!(
        done.stdout,
        "151 secrets of authenticator apps sealed under new.key; 1 secret already.\n\
        Recovery codes cannot be carried over: those of 1 account are gone, and their owners make new ones on \
        /account/factors.\n"
    );
    let again = home.run(&["key", "reseal", "old.key"]).stdout;
    assert_eq!(again, "0 secrets of authenticator apps sealed under new.key; 152 secrets already.\n");

    let running = home.start(&["serve"]).await;
    let browser = running.client();
    assert_eq!(asked(&browser).await, ["totp"]);
    assert_eq!(by_recovery(&browser, &recovery).await.problem(), "invalid-factor");
    // The next one: that of now was used.
    let right = by_totp(&browser, &code(30)).await;
    assert_eq!(right.status, 200, "{}", right.text);
    drop(running);

    home.set("GATEHOUSE__SECRETS__KEY_FILE", "third.key");
    key(&home, "third.key", 3);
    taken(&home);
    let lost = home.run(&["key", "reseal", "old.key"]);
    assert_eq!(lost.code, Some(2), "{}", lost.stdout);
    assert!(lost.stderr.starts_with("152 secrets open under neither key file."), "{}", lost.stderr);
    assert!(lost.stderr.contains("\nalice\n"), "{}", lost.stderr);
    let cleared = home.run(&["admin", "clear-factors", "alice"]);
    assert_eq!(cleared.stdout, "The second factors of alice are gone, and its sessions have ended.\n");
}
