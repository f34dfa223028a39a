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
    assert!(
        import(&["--from", "firebase", "--hash-config", "firebase.txt", "firebase.json", "--dry-run"])
            .starts_with("2 accounts would be imported: 1 with a phone number, 1 without a password.\n")
    );
    assert!(
        import(&["--from", "django", "django.json", "--dry-run"]).starts_with("5 accounts would be imported")
    );
    let auth0 = home.run_with_input(
        &["accounts", "import", "--from", "auth0", "-"],
        include_str!("../../exports/auth0.ndjson"),
    );
    assert!(auth0.stdout.starts_with("2 accounts imported: 1 with a phone number"), "{}", auth0.stderr);
    let taken = home.run(&["accounts", "import", "--from", "keycloak", "keycloak.json"]);
    assert_eq!(taken.code, Some(2));
    let said = "account 1: login: an account has this name already\n";
    assert!(taken.stderr.starts_with(said), "{}", taken.stderr);
    let running = home.start(&["serve"]).await;
    assert_eq!(running.client().login("user1", "user1").await.status, 200);
    assert_eq!(running.client().login("countess", OLD).await.status, 200);
}

#[test]
fn an_address_that_nobody_verified_is_no_name_that_opens_an_application() {
    let home = Home::new();
    let apps = "[[apps]]\nname = 'wiki'\nhosts = ['wiki.example']\nwho = ['ada@corp.example', 'bob']\n";
    home.write("gatehouse.toml", apps);
    let hash = "$2b$10$C6UzMDM.H6dfI/f/IKcEe.4UVqRtBY9T6o8wFJ0DqQ.xA.X7eRR1C";
    let user = |id: u32, email: &str, verified: bool, more: &str| {
        format!(
            "{{\"user_id\":\"auth0|{id}\",\"email\":\"{email}\",\"email_verified\":{verified},\"passwordHash\":\"{hash}\"{more}}}\n"
        )
    };
    let stranger = user(1, "Ada@corp.example", false, "");
    let others =
        [user(2, "bob@a.example", false, ""), user(3, "x@a.example", false, ",\"username\":\"bob\"")]
            .concat();
    let import = |users: &str| home.run_with_input(&["accounts", "import", "--from", "auth0", "-"], users);
    let refused = import(&format!("{stranger}{others}"));
    let said = "account 1: login: is an e-mail address that nobody verified, and named in [apps]";
    assert!(refused.code == Some(2) && refused.stderr.starts_with(said), "{}", refused.stderr);
    // Whoever has the name as a user name there is taken for its owner here.
    let imported = import(&format!("{}{others}", stranger.replace(":false", ":true")));
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

#[tokio::test]
async fn accounts_are_created_and_people_invited() {
    created_and_invited(TestDatabase::sqlite()).await;
    created_and_invited(TestDatabase::postgres().await).await;
}

async fn created_and_invited(database: TestDatabase) {
    let mut home = Home::new();
    home.set("GATEHOUSE__DATABASE__URL", database.url.clone());
    administrator(&home);
    let one = home.run(&["accounts", "create", "Alice", "--group", "staff", "--phone", "13800138000"]);
    assert_eq!((one.code, one.stderr.as_str()), (Some(0), ""));
    let alices = token(&one.stdout).to_owned();
    let listed = home.run_with_input(&["accounts", "create", "-"], "bob\n\n carol \n");
    let links: Vec<_> = listed.stdout.lines().map(|line| line.split_once('\t').unwrap()).collect();
    assert_eq!((links[0].0, links[1].0, links.len()), ("bob", "carol", 2), "{}", listed.stderr);
    for (arguments, told) in [
        (&["create", "dave", "bob"][..], "NAME: bob is taken\nNothing was created.\n"),
        (&["create", "dave", "dave"], "NAME: dave is given twice; nothing was created\n"),
        (&["create", "a b"], "NAME: a username must not contain spaces\n"),
        (&["create", "dave", "--group", "No"], "--group: \"No\" is not the name of a group"),
        (&["create", "dave", "--phone", "12"], "--phone: "),
        (&["create", "dave", "erin", "--phone", "13800138001"], "--phone: is that of one account"),
        (&["create", "dave", "--phone", "13800138000"], "--phone: another account has this number\n"),
        (&["create", "dave", "--email", "nobody"], "--email: it must be one address"),
        (&["invite", "nobody"], "NAME: there is no account nobody"),
        (&["invite", "ada"], "NAME: ada has a password, a number, an address or a second factor"),
        (&["invite", "--count", "0"], "--count: use 1 to 1000\n"),
        (&["invite", "--count", "1", "--expires-in", "1s"], "--expires-in: use 1m to 90d"),
    ] {
        let refused = home.run(&[&["accounts"], arguments].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(refused.stderr.starts_with(told), "{arguments:?}: {}", refused.stderr);
    }
    let again = home.run(&["accounts", "invite", "alice"]);
    let many = home.run(&["accounts", "invite", "--count", "2", "--expires-in", "7d", "--group", "staff"]);
    home.set("GATEHOUSE__REGISTRATION__MODE", "closed");
    let closed = home.run(&["accounts", "invite", "--count", "2"]);
    assert_eq!(closed.code, Some(2));
    assert!(closed.stderr.starts_with("registration.mode: is \"closed\""), "{}", closed.stderr);
    home.set("GATEHOUSE__REGISTRATION__MODE", "invite");
    let running = home.start(&["serve"]).await;
    let accept = async |token: &str, login: Option<&str>| {
        let mut body = json!({ "token": token, "new_password": PASSWORD });
        if let Some(login) = login {
            body["login"] = login.into();
        }
        running.client().call("/welcome", body).await.status
    };
    assert_eq!(accept(&alices, None).await, 404, "a newer one has ended it");
    assert_eq!(accept(token(&again.stdout), None).await, 200, "{}", again.stderr);
    assert_eq!(accept(token(links[1].1), None).await, 200);
    assert_eq!(accept(token(&many.stdout), Some("pupil")).await, 200, "{}", many.stderr);
    let admin = running.client();
    assert_eq!(admin.login("ada", PASSWORD).await.status, 200);
    let staff = admin.get("/api/v1/admin/accounts?group=staff").await;
    assert_eq!(staff.body["accounts"].as_array().unwrap().len(), 2, "{}", staff.text);
    let events = admin.get("/api/v1/admin/events?action=admin").await;
    assert!(events.text.contains("account-create") && events.text.contains("invitation.create"));
}

/// What is after the last slash of the only line.
fn token(printed: &str) -> &str {
    printed.trim_end().rsplit_once("/welcome/").unwrap_or_else(|| panic!("{printed}")).1
}
