//! `gatehouse accounts import` and `gatehouse accounts imported`

use serde_json::json;

use crate::support::app::PASSWORD;
use crate::support::database::TestDatabase;
use crate::support::process::Home;

const HASH: &str = "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6";
/// Of the hash.
const OLD: &str = "correct horse";

fn row(login: &str) -> String {
    format!("{{\"login\":\"{login}\",\"password_hash\":\"{HASH}\"}}\n")
}

fn administrator(home: &Home) {
    assert_eq!(home.run_with_input(&["admin", "create", "ada", "--password-stdin"], PASSWORD).code, Some(0));
}

#[tokio::test]
async fn accounts_are_imported_once_and_sign_in() {
    imported_once(TestDatabase::sqlite()).await;
    imported_once(TestDatabase::postgres().await).await;
}

async fn imported_once(database: TestDatabase) {
    let mut home = Home::new();
    home.set("GATEHOUSE__DATABASE__URL", database.url.clone());
    administrator(&home);
    let numbers = "{\"login\":\"bob\",\"phone\":\"13800138000\",\"phone_verified\":true}\n\
        {\"login\":\"carol\",\"password_hash\":\"$HASH\",\"phone\":\"13800138001\"}\n";
    home.write("accounts.jsonl", &(row("Alice") + numbers.replace("$HASH", HASH).as_str()));
    let tried = home.run(&["accounts", "import", "accounts.jsonl", "--dry-run"]);
    assert_eq!((tried.code, tried.stderr.as_str()), (Some(0), ""));
    assert!(tried.stdout.starts_with("3 accounts would be imported: "), "{}", tried.stdout);
    let done = home.run(&["accounts", "import", "accounts.jsonl"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(
        done.stdout,
        "3 accounts imported: 1 with a phone number, 1 without a password.\n\
        1 phone number left out: not marked \"phone_verified\": true.\n"
    );
    assert!(home.run(&["accounts", "imported"]).stdout.starts_with("2 accounts with"));
    let again = home.run(&["accounts", "import", "accounts.jsonl"]);
    assert_eq!(again.code, Some(2));
    assert_eq!(
        again.stderr,
        "line 1: login: an account has this name already\n\
        line 2: login: an account has this name already\n\
        line 2: phone: another account has this number\n\
        line 3: login: an account has this name already\n\
        Nothing was imported.\n"
    );
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().login("alice", OLD).await.status, 200);
    let admin = running.client();
    assert_eq!(admin.login("ada", PASSWORD).await.status, 200);
    let events = admin.get("/api/v1/admin/events?action=admin").await;
    let event = &events.body["events"][0];
    assert_eq!(
        (&event["name"], &event["outcome"]),
        (&json!("account-import"), &json!("ok")),
        "{}",
        events.text
    );
    assert_eq!(event["detail"], r#"{"accounts":3,"from":"gatehouse accounts import"}"#);
}

#[test]
fn of_a_file_with_mistakes_nothing_is_imported_and_each_is_told_with_its_line() {
    let home = Home::new();
    administrator(&home);
    let text = [
        row("alice"),
        row("ALICE"),
        "{\"login\":\"bob\",\"password_hash\":\"hunter2\"}\n".to_owned(),
        row("carol").replace('}', ",\"roles\":[\"admin\"]}"),
        row("ada"),
    ];
    home.write("accounts.jsonl", &text.concat());
    for arguments in [
        &["accounts", "import", "accounts.jsonl"][..],
        &["accounts", "import", "--dry-run", "accounts.jsonl"],
    ] {
        let ended = home.run(arguments);
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
        let lines: Vec<_> = ended.stderr.lines().collect();
        assert_eq!(lines.len(), 5, "{}", ended.stderr);
        for (line, begins) in lines.iter().zip([
            "line 2: login: is the same name as on line 1",
            "line 3: password_hash: is in no known format",
            "line 4: column ",
            "line 5: login: an account has this name already",
            "Nothing was imported.",
        ]) {
            assert!(line.starts_with(begins), "{line}");
        }
        assert!(!ended.stderr.contains("hunter2"), "{}", ended.stderr);
    }
    assert!(lone(&home, "accounts", "imported").starts_with("No account has"));
    home.write("long.jsonl", &"x\n".repeat(80));
    let long = home.run(&["accounts", "import", "long.jsonl"]);
    assert!(long.stderr.ends_with("\nand 30 more\nNothing was imported.\n"), "{}", long.stderr);
}

fn lone(home: &Home, command: &str, inner: &str) -> String {
    home.run(&[command, inner]).stdout
}

#[test]
fn a_file_comes_from_standard_input_too_and_must_hold_something() {
    let home = Home::new();
    let done = home.run_with_input(&["accounts", "import", "-"], &row("alice"));
    assert_eq!(
        (done.code, done.stdout.as_str()),
        (Some(0), "1 account imported: 0 with a phone number, 0 without a password.\n")
    );
    for (ended, said) in [
        (home.run_with_input(&["accounts", "import", "-"], "\n\n"), "FILE: there is no account in it"),
        (home.run(&["accounts", "import", "missing.jsonl"]), "FILE: cannot read missing.jsonl: "),
        (home.run(&["accounts", "import", "."]), "FILE: cannot read .: "),
    ] {
        assert_eq!(ended.code, Some(2));
        assert!(ended.stderr.starts_with(said), "{}", ended.stderr);
    }
    assert_eq!(home.run(&["accounts", "import"]).code, Some(2));
}

/// A file may name only numbers that could be registered here.
#[test]
fn numbers_are_held_to_the_countries_of_the_configuration() {
    let mut home = Home::new();
    home.set("GATEHOUSE__SMS__COUNTRIES", "[\"CN\"]");
    let ended = home.run_with_input(
        &["accounts", "import", "-"],
        "{\"login\":\"alice\",\"phone\":\"+447400123456\",\"phone_verified\":true}\n",
    );
    assert_eq!(
        (ended.code, ended.stderr.as_str()),
        (Some(2), "line 1: phone: is in a country to which no codes are sent\nNothing was imported.\n")
    );
}

/// Each as the system writes it, with what is left out of it named, and then a sign-in.
#[tokio::test]
async fn exports_of_other_systems_are_read_whole() {
    let home = Home::new();
    home.write("keycloak.json", include_str!("../../exports/keycloak.json"));
    home.write("firebase.json", include_str!("../../exports/firebase.json"));
    home.write("firebase.txt", include_str!("../../exports/firebase-hash-config.txt"));
    home.write("django.json", include_str!("../../exports/django.json"));
    let import = |arguments: &[&str]| {
        let ended = home.run(&[&["accounts", "import"], arguments].concat());
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{arguments:?}");
        ended.stdout
    };
    assert_eq!(
        import(&["--from", "keycloak", "keycloak.json"]),
        "4 accounts imported: 1 with a phone number, 0 without a password, 1 with an authenticator app.\n\
        1 e-mail address left out: not verified.\n\
        Left out:\n\
        account 4: a passkey\n\
        account 4: that it has to choose a new password; require one in the console\n\
        account 5: the account, which is disabled\n\
        account 6: the account, which has no password and no verified phone number to open it with\n\
        account 7: the account of a client, not of a person\n"
    );
    assert!(import(&["--from", "firebase", "--hash-config", "firebase.txt", "firebase.json", "--dry-run"])
        .starts_with("2 accounts would be imported: 1 with a phone number, 1 without a password.\n1 name is the part"));
    assert!(
        import(&["--from", "django", "django.json", "--dry-run"]).starts_with("5 accounts would be imported")
    );
    let auth0 = home.run_with_input(
        &["accounts", "import", "--from", "auth0", "-"],
        include_str!("../../exports/auth0.ndjson"),
    );
    assert!(auth0.stdout.starts_with("2 accounts imported: 1 with a phone number"), "{}", auth0.stderr);
    // Auth0's had a bob, too.
    let taken = home.run(&["accounts", "import", "--from", "django", "django.json"]);
    assert_eq!(
        (taken.code, taken.stderr.as_str()),
        (Some(2), "account 3: login: an account has this name already\nNothing was imported.\n")
    );
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().login("user1", "user1").await.status, 200);
    assert_eq!(running.client().login("countess", OLD).await.status, 200);
}

#[test]
fn the_beginning_of_an_address_is_no_name_that_opens_an_application() {
    let home = Home::new();
    home.write("gatehouse.toml", "[[apps]]\nname = 'wiki'\nhosts = ['wiki.example']\nwho = ['ada']\n");
    let hash = "$2b$10$C6UzMDM.H6dfI/f/IKcEe.4UVqRtBY9T6o8wFJ0DqQ.xA.X7eRR1C";
    let user = |id: u32, email: &str, more: &str| {
        format!(
            "{{\"user_id\":\"auth0|{id}\",\"email\":\"{email}\",\"email_verified\":true,\"passwordHash\":\"{hash}\"{more}}}\n"
        )
    };
    let strangers = [user(1, "ada@evil.example", ""), user(2, "Admin@evil.example", "")].concat();
    let others = [user(3, "bob@a.example", ""), user(4, "x@a.example", ",\"username\":\"ada\"")].concat();
    let import = |users: &str| home.run_with_input(&["accounts", "import", "--from", "auth0", "-"], users);
    let refused = import(&format!("{strangers}{others}"));
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    for account in ["account 1", "account 2"] {
        let said = format!("{account}: login: is the part of an e-mail address before the @, and reserved");
        assert!(refused.stderr.contains(&said), "{}", refused.stderr);
    }
    // Whoever has the name as a user name there is taken for its owner here.
    let imported = import(&others);
    assert_eq!(imported.code, Some(0), "{}", imported.stderr);
}

#[test]
fn an_export_without_its_name_or_of_another_system_gets_one_answer() {
    let home = Home::new();
    home.write("keycloak.json", include_str!("../../exports/keycloak.json"));
    home.write("django.json", include_str!("../../exports/django.json"));
    home.write("broken.json", "{\n  \"users\": [\n    {},\n");
    for (arguments, said) in [
        (
            &["keycloak.json"][..],
            "line 1: begins one JSON document, and an account is a line here; name whose export",
        ),
        (&["django.json"], "line 1: begins one JSON document"),
        (&["--from", "django", "keycloak.json"], "FILE: there is no account in it\n"),
        (&["--from", "django", "broken.json"], "FILE: cannot read broken.json: EOF while parsing"),
        (&["--from", "firebase", "django.json"], "error: the following required arguments were not provided"),
        (
            &["--from", "keycloak", "--hash-config", "django.json", "keycloak.json"],
            "--hash-config: belongs to",
        ),
        (
            &["--from", "firebase", "--hash-config", "django.json", "keycloak.json"],
            "--hash-config: base64_signer_key is missing",
        ),
        (&["--from", "okta", "keycloak.json"], "error: invalid value 'okta' for '--from <SYSTEM>'"),
    ] {
        let ended = home.run(&[&["accounts", "import"], arguments].concat());
        assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(ended.stderr.starts_with(said), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.lines().count() < 10, "{}", ended.stderr);
    }
}
