//! Applications that ask for a second factor, by the gate.

use super::*;
use crate::gate::{Visitor, inside};
use crate::support::app::{Store, on_both_stores};

const APPS: &str = "
[[apps]]
name = 'wiki'
hosts = ['wiki.example']
who = ['everyone']
parts = [
    { path = '/admin/*', factor = 'second' },
    { path = '/keys/*', factor_within = '15m' },
    { path = '/vault/*', factor = 'passkey' },
]
";
const PAGE: &str = "http://wiki.example/";
const ADMIN: &str = "http://wiki.example/admin/";
const KEYS: &str = "http://wiki.example/keys/1";
const VAULT: &str = "http://wiki.example/vault/1";
const SCRIPT: [(&str, &str); 1] = [("accept", "application/json")];

on_both_stores! {
    a_part_leads_to_the_second_step_and_back,
    a_factor_is_as_old_as_its_part_allows,
    without_a_factor_the_way_leads_to_its_setup,
    a_passkey_is_no_code,
    past_the_grace_an_application_is_shut_until_there_is_a_factor,
}

async fn behind(store: Store, factors: &str) -> TestApp {
    TestApp::on(store).file(&format!("{APPS}{factors}")).behind_a_proxy().start().await
}

/// Follows the way from the gate's answer, and proves a code where that is asked for.
async fn step_up(app: &TestApp, visitor: &mut Visitor, answer: &Answer, code: &str) -> (String, Answer) {
    let (at, page) = visitor.follow(answer.header("location")).await;
    assert!(at.starts_with(&format!("{}/confirm?rd=", app.url)), "{at}");
    assert!(page.text.contains("wiki"), "{}", page.text);
    let csp = page.header("content-security-policy");
    assert!(csp.contains("form-action 'self' http://wiki.example"), "{csp}");
    visitor.fill_in(&at, &page, "/confirm", &[("code", code)]).await
}

/// Somebody with an app whose sign-ins are not asked for it, at the application.
async fn visitor(app: &TestApp) -> (Visitor, String) {
    let owner = owner(app, "ada").await;
    assert_eq!(put(&owner.browser, "/factors", json!({ "ask": false })).await.status, 204);
    (inside(app, PAGE, "ada").await, owner.secret)
}

async fn a_part_leads_to_the_second_step_and_back(store: Store) {
    let app = behind(store, "").await;
    let (mut ada, secret) = visitor(&app).await;
    assert_eq!(ada.ask("GET", PAGE).await.status, 200);
    let asked = ada.ask("GET", ADMIN).await;
    assert_eq!(asked.status, 302, "{}", asked.text);
    assert_eq!(ada.ask("POST", ADMIN).await.status, 303);
    let by_nginx = ada.ask_nginx("GET", ADMIN).await;
    assert_eq!((by_nginx.status, by_nginx.header("location")), (401, asked.header("location")));
    for script in [ada.ask_with("GET", ADMIN, &SCRIPT).await, ada.ask_nginx_with("GET", ADMIN, &SCRIPT).await]
    {
        assert_eq!((script.status, script.problem()), (403, "step-up-required"), "{}", script.text);
        assert_eq!(script.body["methods"], json!(["totp", "recovery"]));
        assert_eq!(script.header("location"), "");
    }
    let (at, page) = ada.follow(asked.header("location")).await;
    let wrong = ada.fill_in(&at, &page, "/confirm", &[("code", WRONG_CODE)]).await.1;
    assert_eq!(wrong.status, 401, "{}", wrong.text);
    let (back, _) = step_up(&app, &mut ada, &asked, &totp(&app, &secret)).await;
    assert_eq!(back, ADMIN.trim_end_matches('/').to_owned() + "/");
    assert_eq!(ada.ask("GET", ADMIN).await.status, 200);
    assert_eq!(ada.ask("GET", KEYS).await.status, 200, "it was proved lately");
}

async fn a_factor_is_as_old_as_its_part_allows(store: Store) {
    let app = behind(store, "").await;
    let (mut ada, secret) = visitor(&app).await;
    let asked = ada.ask("GET", KEYS).await;
    let (back, _) = step_up(&app, &mut ada, &asked, &totp(&app, &secret)).await;
    assert_eq!(back, KEYS);
    app.advance(Duration::from_secs(15 * 60 - 1));
    assert_eq!(ada.ask("GET", KEYS).await.status, 200);
    app.advance(Duration::from_secs(1));
    assert_eq!(ada.ask("GET", ADMIN).await.status, 200, "that has no age");
    let asked = ada.ask("GET", KEYS).await;
    assert_eq!(asked.status, 302, "{}", asked.text);
    let (back, _) = step_up(&app, &mut ada, &asked, &totp(&app, &secret)).await;
    assert_eq!((back.as_str(), ada.ask("GET", KEYS).await.status), (KEYS, 200));
}

async fn without_a_factor_the_way_leads_to_its_setup(store: Store) {
    let app = behind(store, "").await;
    app.register("ada").await;
    let mut ada = inside(&app, PAGE, "ada").await;
    let script = ada.ask_with("GET", ADMIN, &SCRIPT).await;
    assert_eq!((script.problem(), &script.body["methods"]), ("step-up-required", &json!([])));
    let asked = ada.ask("GET", ADMIN).await;
    let (at, page) = ada.follow(asked.header("location")).await;
    assert_eq!(at, format!("{}/account/factors", app.url));
    assert!(page.text.contains("This application asks for a second factor"), "{}", page.text);
}

async fn a_passkey_is_no_code(store: Store) {
    let app = behind(store, "").await;
    let (mut ada, secret) = visitor(&app).await;
    let asked = ada.ask("GET", ADMIN).await;
    step_up(&app, &mut ada, &asked, &totp(&app, &secret)).await;
    let script = ada.ask_with("GET", VAULT, &SCRIPT).await;
    assert_eq!((script.problem(), &script.body["methods"]), ("step-up-required", &json!([])));
    let asked = ada.ask("GET", VAULT).await;
    let (at, page) = ada.follow(asked.header("location")).await;
    assert_eq!(at, format!("{}/account/factors", app.url));
    assert!(page.text.contains("This application asks for a passkey"), "{}", page.text);
}

async fn past_the_grace_an_application_is_shut_until_there_is_a_factor(store: Store) {
    let app = behind(store, "[factors]\nrequire = ['everyone']\ngrace = '1h'").await;
    app.register("ada").await;
    let mut ada = inside(&app, PAGE, "ada").await;
    assert_eq!(ada.ask("GET", PAGE).await.status, 200);
    app.advance(Duration::from_secs(3_600));
    let script = ada.ask_with("GET", PAGE, &SCRIPT).await;
    assert_eq!((script.status, script.problem()), (403, "factor-setup-required"), "{}", script.text);
    let page = ada.ask("GET", PAGE).await;
    assert_eq!(page.status, 302, "{}", page.text);
    let (at, page) = ada.follow(page.header("location")).await;
    assert_eq!(at, format!("{}/account/factors", app.url));
    assert!(page.text.contains("the time to set one up has passed"), "{}", page.text);
    let own = ada.cookie("", "gh_session").unwrap().to_owned();
    let own = app.client_that_says(&[("cookie", &format!("gh_session={own}"))]);
    // The password was entered too long ago for that; the new session is of no host yet.
    let confirmed = own.call("/confirm", json!({ "password": PASSWORD })).await;
    let renewed = confirmed.cookie("gh_session").unwrap().split([';', '=']).nth(1).unwrap().to_owned();
    let own = app.client_that_says(&[("cookie", &format!("gh_session={renewed}"))]);
    set_up(&app, &own).await;
    app.services.gate.follow_changes().await.unwrap();
    assert_eq!(ada.ask("GET", PAGE).await.status, 200, "in the session that was open, at once");
}
