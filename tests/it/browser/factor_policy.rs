//! The pages on which somebody is told what is asked of them, in both languages: their looks, and the way through.

use std::time::Duration;

use gatehouse::accounts::{AccountAct, Username};
use gatehouse::clock::Clock;

use super::look::Look;
use crate::factors::totp;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

const HOUSE: &str = "
    [factors]
    require = ['admins']
    grace = '2h'
    [[apps]]
    name = 'wiki'
    hosts = ['wiki.example']
    who = ['everyone']
    factor = 'second'
    [[apps]]
    name = 'vault'
    hosts = ['vault.example']
    who = ['everyone']
    factor = 'passkey'
";

#[tokio::test]
async fn what_is_asked_of_somebody_is_fit_to_be_seen_in_english() {
    tour("en").await;
}

#[tokio::test]
async fn what_is_asked_of_somebody_is_fit_to_be_seen_in_chinese() {
    tour("zh-CN").await;
}

async fn tour(language: &str) {
    let app = TestApp::on(Store::Memory).behind_a_proxy().file(HOUSE).start().await;
    app.clock.set(Clock::System.now());
    app.register("ada").await;
    let ada = app.services.accounts.find(&Username::parse("ada").unwrap()).await.unwrap().unwrap();
    app.services.accounts.change(ada.id, AccountAct::MakeAdmin, false).await.unwrap();
    let browser = Browser::speaking(&app.url, language).await;
    let look = Look { browser: &browser, language, faults: Default::default() };
    browser.open("/login?rd=https://wiki.example/").await;
    browser.try_password("ada", PASSWORD).await;
    look.at("policy-app-asks").await;
    browser.open("/account").await;
    look.at("policy-account-grace").await;
    app.advance(Duration::from_secs(2 * 60 * 60));
    browser.open("/admin").await;
    look.at("policy-overdue").await;
    browser.fill(&[("current_password", PASSWORD)]).await;
    browser.submit().await;
    browser.follow("button[value=propose-totp]").await;
    let secret = browser.js("return document.querySelector('code.secret').textContent").await;
    let secret = secret.as_str().unwrap().replace(' ', "");
    browser.fill(&[("code", &totp(&app, &secret))]).await;
    browser.follow("form:has(input[value=use-totp]) button.main").await;
    app.advance(Duration::from_secs(30));
    // Free at once, in the console, too.
    browser.open("/admin/factors").await;
    look.at("policy-console").await;
    browser.find("[value=everyone]").await.click().await.unwrap();
    browser.fill(&[("grace", "0s")]).await;
    app.register("bob").await;
    browser.follow("button.plain[value=try]").await;
    look.at("policy-console-tried").await;
    browser.fill(&[("more", "bob"), ("grace", "soon")]).await;
    browser.follow("button.plain[value=try]").await;
    look.at("policy-console-mistake").await;
    browser.open("/admin/apps/form?app=wiki").await;
    browser.js("document.querySelector('#factor').value = 'passkey'").await;
    browser.follow("button.plain[value=try]").await;
    look.at("policy-console-app").await;
    let visitor = Browser::speaking(&app.url, language).await;
    visitor.open("/login").await;
    visitor.try_password("ada", PASSWORD).await;
    visitor.fill(&[("code", &totp(&app, &secret))]).await;
    visitor.find("#trust").await.click().await.unwrap();
    let there = Look { browser: &visitor, language, faults: Default::default() };
    there.at("policy-trust").await;
    visitor.submit().await;
    app.advance(Duration::from_secs(30));
    // Trusted at the next sign-in, which proves nothing to an application.
    visitor.sign_out().await;
    visitor.open("/login?rd=https://wiki.example/").await;
    visitor.try_password("ada", PASSWORD).await;
    there.at("policy-step-up").await;
    visitor.open("/account/factors").await;
    there.at("policy-factors").await;
    visitor.fill(&[("code", &totp(&app, &secret))]).await;
    visitor.submit().await;
    there.at("policy-factors-confirmed").await;
    visitor.open("/login?rd=https://vault.example/").await;
    there.at("policy-app-asks-passkey").await;
    look.faults.borrow_mut().extend(there.faults.into_inner());
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    browser.assert_content().await;
    visitor.assert_content().await;
}
