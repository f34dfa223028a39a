//! The real binary with real files: a missing one, one that cannot be replaced, one beside variables.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::rig::{LIMITS, save, shown, with_max};
use crate::support::app::{Client, PASSWORD};
use crate::support::process::{Home, Running};

const DOCUMENT: &str = "[limits.login-account]\nrules = [{ max = 50, window = \"10m\" }]\n";

async fn boss(home: &Home, running: &Running) -> Client {
    let made =
        home.run_with_input(&["admin", "create", "boss", "--password-stdin"], &format!("{PASSWORD}\n"));
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let client = running.client();
    assert_eq!(client.login("boss", PASSWORD).await.status, 200);
    client
}

fn text(home: &Home, name: &str) -> String {
    std::fs::read_to_string(home.path(name)).unwrap()
}

#[tokio::test]
async fn without_a_file_the_first_save_makes_one() {
    let home = Home::new();
    let running = home.start(&["serve"]).await;
    let client = boss(&home, &running).await;
    let (version, limits) = shown(&client).await;
    assert_eq!(save(&client, &version, &limits).await.body["changed"], false);
    let (version, _) = shown(&client).await;
    let answer = save(&client, &version, &with_max(&limits, 5)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let made = text(&home, "gatehouse.toml");
    assert!(
        made.contains("[limits.login-account]\nrules = [{ max = 5, window = \"1m\", then = \"captcha\" }"),
        "{made}"
    );
    assert!(!made.contains("sms-phone"), "what is at its default is not written down: {made}");
    assert_eq!(home.run(&["check-config"]).code, Some(0));
    let version = answer.body["version"].as_str().unwrap();
    let answer = save(&client, version, &json!({})).await;
    assert_eq!((answer.status, &answer.body["changed"]), (200, &json!(true)), "{}", answer.text);
    assert_eq!(shown(&client).await.1, limits, "and without a draft all is at its default again");
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_is_told_and_nothing_changes() {
    let mut home = Home::new();
    std::fs::create_dir(home.path("etc")).unwrap();
    home.write("etc/gatehouse.toml", DOCUMENT);
    home.as_anybody();
    set_permissions(home.path("etc"), Permissions::from_mode(0o555)).unwrap();
    let running = home.start(&["serve", "--config", "etc/gatehouse.toml"]).await;
    let client = boss(&home, &running).await;
    let (version, limits) = shown(&client).await;
    let answer = save(&client, &version, &with_max(&limits, 5)).await;
    assert_eq!((answer.status, answer.problem()), (409, "not-saved"), "{}", answer.text);
    let reason = answer.body["reason"].as_str().unwrap();
    assert!(reason.contains("the folder of etc/gatehouse.toml cannot be written"), "{reason}");
    assert_eq!(
        (shown(&client).await, text(&home, "etc/gatehouse.toml").as_str()),
        ((version.clone(), limits.clone()), DOCUMENT)
    );
    set_permissions(home.path("etc"), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        save(&client, &version, &with_max(&limits, 5)).await.status,
        200,
        "and once it may be, it works"
    );
    assert_eq!(text(&home, "etc/gatehouse.toml"), DOCUMENT.replace("50", "5"));
}

/// Its other contents would be lost at the next start.
#[tokio::test]
async fn a_file_that_was_taken_away_is_not_made_anew_out_of_the_limits_alone() {
    let home = Home::new();
    home.write("gatehouse.toml", &format!("[sms]\ncode_ttl = \"4m\"\n{DOCUMENT}"));
    let running = home.start(&["serve"]).await;
    let client = boss(&home, &running).await;
    let (version, limits) = shown(&client).await;
    std::fs::remove_file(home.path("gatehouse.toml")).unwrap();
    for version in [version.as_str(), "af1349b9f5f9"] {
        let answer = save(&client, version, &with_max(&limits, 5)).await;
        assert_eq!((answer.status, answer.problem()), (409, "not-saved"), "{}", answer.text);
    }
    assert!(!home.path("gatehouse.toml").exists());
}

#[tokio::test]
async fn what_was_left_by_one_that_was_killed_at_it_is_in_nobodys_way() {
    let home = Home::new();
    home.write("gatehouse.toml", DOCUMENT);
    home.write(".gatehouse.toml.new", "[limits.login-acc");
    home.write(".gatehouse.toml.lock", "");
    let running = home.start(&["serve"]).await;
    let client = boss(&home, &running).await;
    let (version, limits) = shown(&client).await;
    assert_eq!(save(&client, &version, &with_max(&limits, 5)).await.status, 200);
    assert_eq!(text(&home, "gatehouse.toml"), DOCUMENT.replace("50", "5"));
    assert!(!home.path(".gatehouse.toml.new").exists());
}

#[tokio::test]
async fn what_a_variable_sets_is_shown_as_such_and_not_saved() {
    let mut home = Home::new();
    home.write("gatehouse.toml", DOCUMENT);
    home.set("GATEHOUSE__LIMITS__SMS_PHONE__RULES", "[{ max = 2, window = \"1h\" }]");
    let running = home.start(&["serve"]).await;
    let client = boss(&home, &running).await;
    let (version, mut limits) = shown(&client).await;
    let sources = client.get(LIMITS).await.body["sources"].clone();
    assert_eq!(
        (&sources["sms-phone"], &sources["login-account"]),
        (&json!("environment"), &json!("document"))
    );
    assert_eq!(limits["sms-phone"]["rules"][0]["max"], 2);
    let saved = save(&client, &version, &with_max(&limits, 6)).await;
    assert_eq!(saved.status, 200, "sent back as it is shown: {}", saved.text);
    let written = text(&home, "gatehouse.toml");
    assert_eq!(written, DOCUMENT.replace("50", "6"), "what a variable sets is not written down");
    limits["sms-phone"]["rules"][0]["max"] = json!(3);
    let version = saved.body["version"].as_str().unwrap();
    for body in [
        json!({ "limits": limits, "reason": "r" }),
        json!({ "toml": "[limits.sms-phone]\nrules = []\n", "reason": "r" }),
    ] {
        let line = if body["toml"].is_string() { json!(1) } else { Value::Null };
        let answer = client.put(LIMITS, version, body).await;
        let error = &answer.body["errors"][0];
        assert_eq!(
            (answer.status, &error["field"], &error["line"]),
            (422, &json!("limits.sms-phone"), &line),
            "{}",
            answer.text
        );
    }
    assert_eq!(text(&home, "gatehouse.toml"), written);
}
