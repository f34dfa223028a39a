//! A client of OpenID Connect in `/admin/apps/form`: tried, saved, refused, shown, and in the history.

use super::{APPS, account, start, written};
use crate::support::app::{Answer, Client, PASSWORD, Store, TestApp};

const LIST: &str = "/admin/apps";
const FORM: &str = "/admin/apps/form";
const DASH: [(&str, &str); 6] = [
    ("name", "dash"),
    ("who", "group:staff"),
    ("oidc", "on"),
    ("oidc-redirect_uris", "https://dash.example/cb\r\nhttp://127.0.0.1/cb"),
    ("oidc-groups", "*"),
    ("reason", "dash moves in"),
];

/// Sends the fields of an application's form, some with other values.
async fn send(boss: &Client, app: &str, act: &str, other: &[(&str, &str)]) -> Answer {
    let page = boss.get(&if app.is_empty() { FORM.to_owned() } else { format!("{FORM}?app={app}") }).await;
    let (token, version) = (page.csrf_token(), page.hidden("version").unwrap());
    let kept = DASH.iter().filter(|(name, _)| !other.iter().any(|(key, _)| key == name));
    let fixed = [("do", act), ("app", app), ("version", version.as_str()), ("csrf_token", token.as_str())];
    let fields: Vec<(&str, &str)> = fixed.iter().chain(other).chain(kept).copied().collect();
    boss.post(FORM, &fields).await
}

#[tokio::test]
async fn a_client_is_tried_saved_changed_and_taken_away_by_its_form() {
    let (app, boss) = start(Store::Memory).await;
    account(&app, "bob", &["staff"]).await;
    let tried = send(&boss, "", "try", &[]).await;
    assert_eq!(tried.status, 200, "{}", tried.text);
    for told in [
        "OpenID Connect: <bdi>dash</bdi>",
        "new client",
        "Redirect URI that comes: <code>https://dash.example/cb</code>",
        "Sign-in by OpenID Connect",
        "<bdi>bob</bdi>",
        " value=\"on\" aria-describedby=\"oidc-help\" checked>",
    ] {
        assert!(tried.text.contains(told), "{told}: {}", tried.text);
    }
    let before = written(&app);
    assert!(!before.contains("dash"));
    assert_eq!(send(&boss, "", "save", &[]).await.status, 303);
    let file = written(&app);
    let table = "[apps.oidc]\nredirect_uris = [\"https://dash.example/cb\", \"http://127.0.0.1/cb\"]\n";
    assert!(file.contains(table) && !file.contains("hosts = []"), "{file}");
    let list = boss.get(LIST).await;
    assert!(list.text.contains("OpenID Connect</a> <code>dash</code>"), "{}", list.text);
    // Other pages live with an application that has no host.
    let bob = app.client_at("198.51.100.8");
    assert_eq!(bob.login("bob", PASSWORD).await.status, 200);
    let page = bob.get("/account").await;
    assert!(
        page.text.contains("<bdi>dash</bdi>") && !page.text.contains("href=\"https://dash"),
        "{}",
        page.text
    );
    let fewer = [("oidc-redirect_uris", "https://dash.example/cb")];
    let tried = send(&boss, "dash", "try", &fewer).await;
    assert!(
        tried.text.contains("Redirect URI that goes: <code>http://127.0.0.1/cb</code>"),
        "{}",
        tried.text
    );
    assert_eq!(send(&boss, "dash", "save", &fewer).await.status, 303);
    let history = boss.get("/admin/limits/history").await;
    assert!(history.text.contains("dash moves in"), "{}", history.text);
    assert!(history.text.contains("http://127.0.0.1/cb"), "what went is in the history: {}", history.text);
    let no_client = [("oidc", ""), ("hosts", "dash.example")];
    assert_eq!(send(&boss, "dash", "save", &no_client).await.status, 303);
    assert!(
        written(&app).contains("dash.example\"]") && !written(&app).contains("oidc"),
        "{}",
        written(&app)
    );
}

#[tokio::test]
async fn a_mistake_of_a_client_is_told_at_its_field() {
    let (app, boss) = start(Store::Memory).await;
    let before = written(&app);
    for (field, typed, told) in [
        ("oidc-redirect_uris", "https://dash.example/*", "has a wildcard"),
        ("oidc-redirect_uris", "", "is missing"),
        ("oidc-client_id", "a:b", "is not an id"),
        ("oidc-secret", "hunter2hunter2hunter2", "contains the secret itself"),
        (
            "oidc-secret",
            "env:GATEHOUSE_TEST_NOT_SET",
            "environment variable GATEHOUSE_TEST_NOT_SET, which is not set",
        ),
        ("oidc-backchannel_logout_uri", "https://10.0.0.1/", "set allow_private = true"),
        ("oidc-pkce", "optional", "without a secret"),
        ("oidc-groups", "Staff", "is not a group"),
    ] {
        for act in ["try", "save"] {
            let answer = send(&boss, "", act, &[(field, typed)]).await;
            assert_eq!(answer.status, 422, "{field}={typed}: {}", answer.text);
            assert!(answer.text.contains(&format!("href=\"#{field}\"")), "{field}: {}", answer.text);
            assert!(answer.text.contains(told), "{told}: {}", answer.text);
        }
    }
    let neither = send(&boss, "", "save", &[("oidc", "")]).await;
    assert!(neither.status == 422 && neither.text.contains("or add [apps.oidc]"), "{}", neither.text);
    assert_eq!(written(&app), before);
}

/// The variable may be missing on one of several instances, which has to follow the others in everything else.
#[tokio::test]
async fn a_client_whose_secret_is_missing_is_warned_of_and_stops_nothing() {
    let apps = format!(
        "{APPS}\n[[apps]]\nname = 'dash'\nwho = ['everyone']\n[apps.oidc]\n\
         secret = 'env:GATEHOUSE_TEST_NOT_SET'\nredirect_uris = ['http://localhost:3000/cb']\n"
    );
    let app = TestApp::on(Store::Memory).behind_a_proxy().file(&apps).start().await;
    let boss = app.sign_in_admin_at("boss", "198.51.100.7").await;
    let list = boss.get(LIST).await;
    for told in ["cannot read its secret", "A redirect URI is http", "whoever has an account"] {
        assert!(list.text.contains(told), "{told}: {}", list.text);
    }
    let form = boss.get(&format!("{FORM}?app=dash")).await;
    assert!(form.text.contains("value=\"env:GATEHOUSE_TEST_NOT_SET\""), "{}", form.text);
    // Others are saved beside it; another secret that is not there is not.
    let other = [("name", "other"), ("oidc", ""), ("hosts", "other.example")];
    let saved = send(&boss, "", "save", &other).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    let secret = [("name", "third"), ("oidc-secret", "env:GATEHOUSE_TEST_NOT_SET_EITHER")];
    let refused = send(&boss, "", "save", &secret).await;
    assert!(refused.status == 422 && refused.text.contains("NOT_SET_EITHER"), "{}", refused.text);
}
