//! Secrets that Gatehouse keeps for clients: made and shown once, two good at a time, gone for good when they are dropped.

use serde_json::json;

use super::*;
use crate::support::app::on_both_stores;

on_both_stores!(
    a_secret_is_made_replaced_and_dropped,
    of_many_at_once_two_are_made,
    only_a_client_that_keeps_them_here_has_any,
    the_page_does_the_same,
    what_was_dropped_stays_so_when_a_document_is_restored,
    secrets_take_the_scope_of_applications,
);

const SECRETS: &str = "/admin/apps/wiki/secrets";

fn setup(store: Store) -> Setup {
    let apps = format!(
        "[[apps]]\nname = 'wiki'\nwho = ['everyone']\n[apps.oidc]\nsecret = 'stored'\nredirect_uris = ['{WIKI}']\n\n\
         [[apps]]\nname = 'spa'\nwho = ['everyone']\n[apps.oidc]\nredirect_uris = ['{SPA}']\n\n\
         [[apps]]\nname = 'files'\nwho = ['everyone']\n[apps.oidc]\nsecret = 'file:{}'\nredirect_uris = ['https://files.example/']\n",
        secret_file()
    );
    TestApp::on(store).file(&apps).without(&["oidc-address"])
}

async fn stored(store: Store) -> TestApp {
    start(setup(store)).await
}

/// How a call with that secret ends: a code that is none is told only to a client that has proved itself.
async fn accepted(app: &TestApp, secret: &str) -> bool {
    let fields = [("grant_type", "authorization_code"), ("code", "none"), ("redirect_uri", WIKI)];
    let by_basic = call(app, "/oauth/token", Some(("wiki", secret)), &fields).await;
    let in_form = [&fields[..], &[("client_id", "wiki"), ("client_secret", secret)]].concat();
    let by_form = call(app, "/oauth/token", None, &in_form).await;
    assert_eq!(by_basic.body["error"], by_form.body["error"], "{} {}", by_basic.text, by_form.text);
    match by_basic.body["error"].as_str() {
        Some("invalid_grant") => true,
        Some("invalid_client") => false,
        other => panic!("{other:?}"),
    }
}

async fn made(boss: &Client) -> (String, String) {
    let answer = boss.call(SECRETS, json!({})).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let text = |name: &str| answer.body[name].as_str().unwrap().to_owned();
    (text("id"), text("secret"))
}

async fn a_secret_is_made_replaced_and_dropped(store: Store) {
    let app = stored(store).await;
    let boss = app.sign_in_admin("boss").await;
    for none in ["", "stored", SECRET] {
        assert!(!accepted(&app, none).await, "before there is one: {none:?}");
    }
    let (first_id, first) = made(&boss).await;
    assert!(first.starts_with("ghc_") && accepted(&app, &first).await);
    let browser = browser(&app, "alice").await;
    let code = code(&browser, &[]).await;
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", &code),
        ("redirect_uri", WIKI),
        ("code_verifier", VERIFIER),
    ];
    tokens(&call(&app, "/oauth/token", Some(("wiki", &first)), &fields).await);
    let (_, second) = made(&boss).await;
    assert!(accepted(&app, &first).await && accepted(&app, &second).await, "both, while it changes over");
    let third = boss.call(SECRETS, json!({})).await;
    assert_eq!((third.status, third.problem()), (409, "two-secrets"), "{}", third.text);
    let list = boss.get(&format!("/api/v1{SECRETS}")).await;
    assert_eq!(list.body["secrets"].as_array().unwrap().len(), 2);
    assert!(!list.text.contains("ghc_"), "they are shown once");
    let path = format!("/api/v1{SECRETS}/{first_id}");
    assert_eq!(boss.delete(&path, json!({})).await.status, 204);
    assert_eq!(boss.delete(&path, json!({})).await.status, 404);
    assert!(!accepted(&app, &first).await && accepted(&app, &second).await);
    // Another instance knows at once.
    let other = app.beside(setup(store)).await;
    if store == Store::Redis {
        assert!(!accepted(&other, &first).await && accepted(&other, &second).await);
    }
    other.stop().await;
}

async fn of_many_at_once_two_are_made(store: Store) {
    let app = stored(store).await;
    let boss = app.sign_in_admin("boss").await;
    let tries = (0..8).map(|_| async { boss.call(SECRETS, json!({})).await.status });
    let answers = futures_util::future::join_all(tries).await;
    assert_eq!(answers.iter().filter(|status| **status == 201).count(), 2, "{answers:?}");
}

async fn only_a_client_that_keeps_them_here_has_any(store: Store) {
    let app = stored(store).await;
    let boss = app.sign_in_admin("boss").await;
    for name in ["spa", "files"] {
        let refused = boss.call(&format!("/admin/apps/{name}/secrets"), json!({})).await;
        assert_eq!((refused.status, refused.problem()), (409, "no-stored-secret"), "{name}");
    }
    assert_eq!(boss.call("/admin/apps/nobody/secrets", json!({})).await.status, 404);
}

async fn the_page_does_the_same(store: Store) {
    let app = stored(store).await;
    let boss = app.sign_in_admin("boss").await;
    let page = "/admin/apps/client?name=wiki";
    let shown = boss.get(page).await;
    assert!(shown.text.contains(&format!("{}/oauth/token", app.url)), "{}", shown.text);
    assert!(shown.text.contains("There is none yet"));
    assert!(shown.text.contains("client_id = wiki"), "Grafana's settings have the values of this client");
    assert!(boss.get("/admin/apps").await.text.contains("It has no secret yet"));
    let lacking = boss.submit(page, "/admin/apps/client", &[("name", "wiki"), ("test", "1")]).await;
    assert!(lacking.text.contains("FAIL secret: received none") && lacking.text.contains("generate one"));
    let done = boss.submit(page, "/admin/apps/client", &[("name", "wiki")]).await;
    assert_eq!(done.status, 201, "{}", done.text);
    let (_, rest) = done.text.split_once("ghc_").unwrap();
    assert!(accepted(&app, &format!("ghc_{}", &rest[..43])).await);
    assert!(!boss.get("/admin/apps").await.text.contains("It has no secret yet"));
    for again in [1, 2] {
        let tested = boss.submit(page, "/admin/apps/client", &[("name", "wiki"), ("test", "1")]).await;
        assert_eq!(tested.status, 200);
        assert!(
            tested.text.contains("ok   token_endpoint by client_secret_basic"),
            "{again}: {}",
            tested.text
        );
        assert!(!tested.text.contains("FAIL") && !tested.text.contains("ghc_"), "{again}: {}", tested.text);
    }
    let again = boss.get(page).await;
    assert!(!again.text.contains("ghc_"), "it is shown once");
    let id = again.hidden("drop").unwrap();
    let dropped = boss.submit(page, "/admin/apps/client", &[("name", "wiki"), ("drop", &id)]).await;
    assert_eq!(dropped.status, 303, "{}", dropped.text);
    assert!(boss.get(page).await.text.contains("There is none yet"));
    assert_eq!(boss.get("/admin/apps/client?name=nobody").await.status, 404);
    for (name, said) in [("spa", "it is public"), ("files", "from a variable or a file")] {
        let page = boss.get(&format!("/admin/apps/client?name={name}")).await;
        assert!(page.text.contains(said) && page.hidden("drop").is_none(), "{}", page.text);
    }
}

async fn what_was_dropped_stays_so_when_a_document_is_restored(store: Store) {
    let app = stored(store).await;
    let boss = app.sign_in_admin("boss").await;
    let (id, secret) = made(&boss).await;
    let before = boss.get("/api/v1/admin/apps").await;
    let (version, toml) = (
        before.header("etag").trim_matches('"').to_owned(),
        before.body["toml"].as_str().unwrap().to_owned(),
    );
    assert!(toml.contains("secret = 'stored'") || toml.contains("secret = \"stored\""), "{toml}");
    assert_eq!(boss.delete(&format!("/api/v1{SECRETS}/{id}"), json!({})).await.status, 204);
    let saved = boss
        .put("/api/v1/admin/apps", &version, json!({ "toml": format!("{toml}\n# again\n"), "reason": "x" }))
        .await;
    assert_eq!(saved.status, 200, "{}", saved.text);
    assert!(!accepted(&app, &secret).await, "no document brings it back");
}

async fn secrets_take_the_scope_of_applications(store: Store) {
    let app = stored(store).await;
    let boss = app.sign_in_admin("boss").await;
    for (scope, status) in [("apps:write", 201), ("accounts:write", 403)] {
        let body = json!({ "name": "script", "scopes": [scope], "expires_in": 3600 });
        let token = boss.call("/admin/tokens", body).await.body["token"].as_str().unwrap().to_owned();
        let header: &'static str = Box::leak(format!("Bearer {token}").into_boxed_str());
        let script = app.client_that_says(&[("authorization", header)]);
        assert_eq!(script.call(SECRETS, json!({})).await.status, status, "{scope}");
    }
}
