//! A save: complete, by somebody who has seen the current document, and in force when it is answered; or
//! nothing.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::Duration;

use serde_json::{Value, json};

use super::rig::{LIMITS, max, save, shown, with_max};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp, on_both_stores};

const DOCUMENT: &str = "# Ours.\n[sms] # codes\ncode_ttl = \"4m\"\n\n# Night shift.\n[limits.login-account]\n\
    rules = [\n    { max = 3, window = \"60s\", then = \"captcha\" }, # three\n]\n\n[session]\nidle = \"1h\" # short\n";

fn text(app: &TestApp) -> String {
    std::fs::read_to_string(app.file()).unwrap()
}

#[tokio::test]
async fn a_save_is_in_force_when_it_is_answered_and_touches_nothing_else() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    std::fs::set_permissions(app.file(), std::fs::Permissions::from_mode(0o640)).unwrap();
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    let answer = save(&boss, &version, &with_max(&limits, 7)).await;
    assert_eq!((answer.status, max(&app)), (200, 7), "{}", answer.text);
    assert_eq!(answer.body["changed"], true);
    assert_eq!(answer.header("etag"), format!("\"{}\"", answer.body["version"].as_str().unwrap()));
    assert_eq!(
        shown(&boss).await,
        (answer.body["version"].as_str().unwrap().to_owned(), with_max(&limits, 7))
    );
    assert_eq!(text(&app), DOCUMENT.replace("max = 3", "max = 7"));
    assert_eq!(std::fs::metadata(app.file()).unwrap().mode() & 0o777, 0o640);
    let all = boss.get(LIMITS).await.body;
    assert_eq!(all["sources"]["login-account"], "document");
    assert_eq!((&all["sources"]["sms-phone"], &all["backend"]), (&json!("default"), &json!("file")));
    assert!(all["toml"].as_str().unwrap().starts_with("# Night shift.\n[limits.login-account]\n"));
    assert_eq!(all["instances"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn what_changes_nothing_is_saved_and_says_so() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    let answer = save(&boss, &version, &limits).await;
    assert_eq!((answer.status, &answer.body), (200, &json!({ "version": version, "changed": false })));
    assert_eq!(text(&app), DOCUMENT);
    let toml = boss.get(LIMITS).await.body["toml"].as_str().unwrap().replace("60s", "1m");
    let answer = boss.put(LIMITS, &version, json!({ "toml": toml, "reason": "in other words" })).await;
    assert_eq!((answer.status, &answer.body["changed"]), (200, &json!(false)), "{}", answer.text);
    assert_eq!(text(&app), DOCUMENT.replace("60s", "1m"));
}

#[tokio::test]
async fn of_two_who_save_at_once_one_is_told_what_the_other_did() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let (ada, bea) = (app.sign_in_admin("ada").await, app.sign_in_admin("bea").await);
    for round in 0..10 {
        let (version, limits) = shown(&ada).await;
        let drafts = [with_max(&limits, 100 + round), with_max(&limits, 200 + round)];
        let (one, other) = tokio::join!(save(&ada, &version, &drafts[0]), save(&bea, &version, &drafts[1]));
        let (won, lost) = if one.status == 200 { (one, other) } else { (other, one) };
        assert_eq!((won.status, lost.status), (200, 412), "{} {}", won.text, lost.text);
        assert_eq!((lost.problem(), &lost.body["version"]), ("precondition-failed", &won.body["version"]));
        let (kept, not) =
            if max(&app) < 200 { (100 + round, 200 + round) } else { (200 + round, 100 + round) };
        let diff = lost.body["diff"].as_str().unwrap();
        let line = |sign: char, max: u32| format!("\n{sign}    {{ max = {max}, window");
        assert!(diff.contains(&line('-', kept)) && diff.contains(&line('+', not)), "{diff}");
        assert_eq!(text(&app), DOCUMENT.replace("max = 3", &format!("max = {kept}")));
    }
}

#[tokio::test]
async fn who_has_not_seen_an_edit_by_hand_does_not_undo_it() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    let edited = DOCUMENT.replace("4m", "3m");
    std::fs::write(app.file(), &edited).unwrap();
    let answer = save(&boss, &version, &with_max(&limits, 9)).await;
    assert_eq!((answer.status, text(&app)), (412, edited.clone()), "{}", answer.text);
    let answer = save(&boss, answer.body["version"].as_str().unwrap(), &with_max(&limits, 9)).await;
    assert_eq!((answer.status, text(&app)), (200, edited.replace("max = 3", "max = 9")));
}

#[tokio::test]
async fn a_bad_draft_is_told_at_its_field_and_changes_nothing() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, _) = shown(&boss).await;
    let rules = |rules: Value| json!({ "limits": { "login-account": { "rules": rules } }, "reason": "r" });
    let toml = |toml: &str| json!({ "toml": toml, "reason": "r" });
    let mistakes = [
        (rules(json!([{ "max": 0, "window": "1m" }])), "limits.login-account.rules[0].max", Value::Null),
        (rules(json!([{ "max": "3", "window": "1m" }])), "limits.login-account.rules[0].max", Value::Null),
        (rules(json!([{ "max": 3, "window": "1y" }])), "limits.login-account.rules[0].window", Value::Null),
        (rules(json!([{ "max": 3, "per": "eon" }])), "limits.login-account.rules[0].per", Value::Null),
        (
            rules(json!([{ "max": 3, "window": "1m", "then": "cry" }])),
            "limits.login-account.rules[0].then",
            Value::Null,
        ),
        (rules(json!([{ "mux": 3, "window": "1m" }])), "limits.login-account.rules[0].max", Value::Null),
        (rules(json!({})), "limits.login-account.rules", Value::Null),
        (json!({ "limits": { "colour": {} }, "reason": "r" }), "limits.colour", Value::Null),
        (
            toml("[limits.sms-phone]\nrules = [{ max = -1, window = \"1m\" }]"),
            "limits.sms-phone.rules[0].max",
            json!(2),
        ),
        (toml("[limits.sms-phone\n"), "", json!(1)),
        (toml("[server]\nworkers = 3\n"), "server", json!(1)),
        (json!({ "reason": "r" }), "limits", Value::Null),
        (json!({ "limits": {}, "toml": "", "reason": "r" }), "toml", Value::Null),
        (json!({ "limits": {}, "reason": "  " }), "reason", Value::Null),
        (json!({ "limits": {}, "reason": "x".repeat(501) }), "reason", Value::Null),
        (json!({ "limits": {} }), "reason", Value::Null),
    ];
    for (body, field, line) in mistakes {
        let answer = boss.put(LIMITS, &version, body.clone()).await;
        assert_eq!((answer.status, answer.problem()), (422, "invalid-input"), "{body}: {}", answer.text);
        let error = &answer.body["errors"][0];
        assert_eq!((&error["field"], &error["line"]), (&json!(field), &line), "{body}: {}", answer.text);
        assert_eq!((text(&app).as_str(), max(&app)), (DOCUMENT, 3), "{body}");
    }
    assert_eq!(shown(&boss).await.0, version);
}

#[tokio::test]
async fn a_save_names_what_it_replaces_and_is_for_administrators() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let user = app.client();
    user.register("user", PASSWORD).await;
    let (version, limits) = shown(&boss).await;
    let body = json!({ "limits": limits, "reason": "r" });
    let bare = async |client: &Client, tag: Option<&str>| {
        let mut request = client.http.put(format!("{}{LIMITS}", client.url)).json(&body);
        if let Some(tag) = tag {
            request = request.header("if-match", tag);
        }
        Answer::read(request.send().await.unwrap()).await
    };
    for tag in [None, Some("*"), Some("W/\"abc\""), Some("abc")] {
        let answer = bare(&boss, tag).await;
        assert_eq!((answer.status, answer.problem()), (428, "precondition-required"), "{tag:?}");
    }
    assert_eq!(bare(&boss, Some(&format!("\"other\", \"{version}\""))).await.status, 200);
    assert_eq!(bare(&user, Some(&version)).await.problem(), "forbidden");
    assert_eq!(bare(&app.client(), Some(&version)).await.problem(), "unauthenticated");
    let foreign = boss.http.put(format!("{}{LIMITS}", app.url)).header("origin", "https://evil.example");
    let foreign = Answer::read(foreign.json(&body).send().await.unwrap()).await;
    assert_eq!(foreign.problem(), "csrf");
    for path in ["", "/history"] {
        assert_eq!(user.get(&format!("{LIMITS}{path}")).await.problem(), "forbidden");
        assert_eq!(app.client().get(&format!("{LIMITS}{path}")).await.problem(), "unauthenticated");
    }
    let back = json!({ "change": "0", "reason": "r" });
    assert_eq!(user.call("/admin/limits/rollback", back).await.problem(), "forbidden");
}

on_both_stores!(
    what_was_in_force_is_remembered_and_comes_back,
    every_live_section_is_in_the_history_and_comes_back_alone,
);

async fn every_live_section_is_in_the_history_and_comes_back_alone(store: Store) {
    const MORE: &str =
        "\n[factors]\ngrace = \"2d\"\n\n[brand]\nname = \"Acme\"\n\n[captcha]\ndifficulty = \"hard\"\n";
    let document = format!("{DOCUMENT}{MORE}");
    let app = TestApp::with(store, &document).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, _) = shown(&boss).await;
    std::fs::write(app.file(), DOCUMENT).unwrap();
    let reloaded = async {
        while shown(&boss).await.0 == version {
            tokio::time::sleep(Duration::from_millis(50)).await; // the file is polled by its own timer
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reloaded).await.expect("the file is followed");
    app.services.tuning.sync_once().await;
    let history = boss.get(&format!("{LIMITS}/history")).await.body["changes"].clone();
    let others = history[1]["others"].as_str().unwrap();
    let live = "\n[sms]\ncode_ttl = \"4m\"\n";
    assert_eq!(others, format!("{}{live}", MORE.trim_start()));
    assert_eq!(history[0]["others"], live.trim_start());
    let page = boss.get("/admin/limits/history").await.text;
    assert!(page.contains("grace") && page.contains("Acme"), "what changed is shown: {page}");
    let change = history[1]["id"].clone();
    let page = boss.get(&format!("/admin/limits/history/{}", change.as_str().unwrap())).await.text;
    for section in ["factors", "brand", "captcha"] {
        assert!(page.contains(&format!("value=\"{section}\"")), "{page}");
    }
    let restore = async |section: &str| {
        let (version, _) = shown(&boss).await;
        let body = json!({ "change": change, "section": section, "reason": "it was better" });
        let request = boss.http.post(format!("{}{LIMITS}/rollback", app.url)).json(&body);
        Answer::read(request.header("if-match", format!("\"{version}\"")).send().await.unwrap()).await
    };
    assert_eq!(restore("server").await.body["errors"][0]["field"], "section");
    for section in ["factors", "brand", "captcha"] {
        let answer = restore(section).await;
        assert_eq!(
            (answer.status, &answer.body["changed"]),
            (200, &json!(true)),
            "{section}: {}",
            answer.text
        );
    }
    assert_eq!(text(&app), document);
    assert_eq!(restore("limits").await.body["changed"], false);
}

async fn what_was_in_force_is_remembered_and_comes_back(store: Store) {
    let app = TestApp::with(store, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    for max in [7, 3, 8] {
        let (version, _) = shown(&boss).await;
        let body = json!({ "limits": with_max(&limits, max), "reason": format!("make it {max}") });
        assert_eq!(boss.put(LIMITS, &version, body).await.status, 200);
    }
    let history = boss.get(&format!("{LIMITS}/history")).await.body["changes"].clone();
    let reasons: Vec<_> = history.as_array().unwrap().iter().map(|change| &change["reason"]).collect();
    assert_eq!(
        reasons,
        [&json!("make it 8"), &json!("make it 3"), &json!("make it 7"), &Value::Null],
        "{history}"
    );
    assert_eq!(history[1]["version"], version.as_str(), "the same limits a second time");
    assert_eq!((&history[0]["login"], &history[0]["previous"]), (&json!("boss"), &json!(version)));

    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = boss.get(&format!("{LIMITS}/history?limit=1&before={next}")).await.body;
        paged.extend(page["changes"].as_array().unwrap().iter().cloned());
        let Some(more) = page["next"].as_str() else { break };
        next = more.to_owned();
    }
    assert_eq!(json!(paged), history);

    let back = async |change: &Value| {
        let (version, _) = shown(&boss).await;
        let body = json!({ "change": change, "reason": "it was better" });
        let request = boss.http.post(format!("{}{LIMITS}/rollback", app.url)).json(&body);
        Answer::read(request.header("if-match", format!("\"{version}\"")).send().await.unwrap()).await
    };
    assert_eq!(back(&json!("0123")).await.body["errors"][0]["field"], "change");
    assert_eq!(back(&history[2]["id"]).await.status, 200);
    assert_eq!((max(&app), text(&app)), (7, DOCUMENT.replace("max = 3", "max = 7")));
    assert_eq!(back(&history[3]["id"]).await.body["version"], version.as_str());
    assert_eq!((max(&app), text(&app).as_str()), (3, DOCUMENT));
    let newest = boss.get(&format!("{LIMITS}/history?limit=1")).await.body["changes"][0].clone();
    assert_eq!(newest["reason"], "it was better");
}

#[tokio::test]
async fn what_cannot_be_written_says_why_and_changes_nothing() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    let folder = app.file().parent().unwrap().to_owned();
    // A ConfigMap: the file is a link through ..data.
    std::fs::create_dir(folder.join("..1")).unwrap();
    std::fs::rename(app.file(), folder.join("..1/test.toml")).unwrap();
    symlink("..1", folder.join("..data")).unwrap();
    symlink("..data/test.toml", app.file()).unwrap();
    let answer = save(&boss, &version, &with_max(&limits, 5)).await;
    assert_eq!((answer.status, answer.problem()), (409, "not-saved"), "{}", answer.text);
    assert!(answer.body["reason"].as_str().unwrap().contains("change the ConfigMap"), "{}", answer.text);
    assert_eq!((text(&app).as_str(), max(&app)), (DOCUMENT, 3));
    // Somebody's own link: its target is replaced, and the link stays.
    std::fs::remove_file(app.file()).unwrap();
    symlink("..1/test.toml", app.file()).unwrap();
    let answer = save(&boss, &version, &with_max(&limits, 5)).await;
    assert_eq!((answer.status, max(&app)), (200, 5), "{}", answer.text);
    assert!(app.file().is_symlink());
    assert_eq!(text(&app), DOCUMENT.replace("max = 3", "max = 5"));
    // The new file cannot be written: a folder has its name.
    std::fs::create_dir_all(folder.join("..1/.test.toml.new/full")).unwrap();
    let version = answer.body["version"].as_str().unwrap();
    let answer = save(&boss, version, &with_max(&limits, 6)).await;
    assert_eq!((answer.status, answer.problem(), max(&app)), (409, "not-saved", 5), "{}", answer.text);
    assert_eq!(text(&app), DOCUMENT.replace("max = 3", "max = 5"));
}

#[tokio::test]
async fn what_administrators_did_and_would_have_done_is_recorded() {
    let app = TestApp::with(Store::Memory, DOCUMENT).await;
    let boss = app.sign_in_admin("boss").await;
    let (version, limits) = shown(&boss).await;
    assert_eq!(save(&boss, &version, &with_max(&limits, 7)).await.status, 200);
    assert_eq!(save(&boss, &version, &with_max(&limits, 8)).await.status, 412);
    app.services.audit.flush().await;
    let filter = gatehouse::audit::EventFilter::default();
    let events = app.services.audit.log().page(&filter, None, 50).await.unwrap().entries;
    let acts: Vec<_> = events
        .iter()
        .filter(|event| event.name.as_deref() == Some("limits.save"))
        .map(|event| event.detail.clone().unwrap())
        .collect();
    assert_eq!(acts.len(), 2, "{events:?}");
    // They happened at the same time by the clock, so in any order.
    let stale = acts.iter().filter(|act| act.contains("\"why\":\"stale\"")).count();
    let done =
        acts.iter().filter(|act| act.contains("\"to\":\"") && act.contains("\"reason\":\"a test\"")).count();
    assert_eq!((stale, done), (1, 1), "{acts:?}");
}
