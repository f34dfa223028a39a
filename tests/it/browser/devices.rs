//! Somebody keeps failing at an account: its owner, in their usual browser, does not notice.

use std::time::Duration;

use gatehouse::clock::Clock;

use super::WRONG;
use super::look::Look;
use crate::sign_in::throttling::fail_until_blocked;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

async fn keeps_strangers_out_and_not_the_owner(store: Store) {
    let app = TestApp::on(store).behind_a_proxy().start().await;
    let owner = Browser::start(&app.url).await;
    owner.open("/register").await;
    owner.try_password("kim", PASSWORD).await;
    assert_eq!(owner.path().await, "/account");
    owner.sign_out().await;

    fail_until_blocked(&app.client_at("203.0.113.7"), "kim").await;
    let elsewhere = Browser::start(&app.url).await;
    elsewhere.open("/login").await;
    elsewhere.try_password("kim", PASSWORD).await;
    assert!(elsewhere.text("[role=alert]").await.contains("Too many attempts"), "even to the right password");

    owner.sign_in("kim").await;
    owner.sign_out().await;
    // Their own third mistake leads to the CAPTCHA, as for everybody.
    owner.fail(2, "kim").await;
    assert!(!owner.has("#captcha_answer").await);
    owner.try_password("kim", WRONG).await;
    assert!(owner.has("#captcha_answer").await);
    for browser in [&owner, &elsewhere] {
        browser.assert_content().await;
    }
}

#[tokio::test]
async fn a_lock_out_met_in_a_known_browser_in_process() {
    keeps_strangers_out_and_not_the_owner(Store::Memory).await;
}

#[tokio::test]
async fn a_lock_out_met_in_a_known_browser_on_redis() {
    keeps_strangers_out_and_not_the_owner(Store::Redis).await;
}

/// What an administrator sees of it, in either language.
async fn is_seen_in_the_console(language: &str, estimate: &str, caveat: &str, nothing: &str) {
    let app = TestApp::on(Store::Memory).behind_a_proxy().start().await;
    // Pages show times by the browser's clock, which tests do not move.
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let owner = app.client_at("203.0.113.7");
    assert_eq!(owner.register("kim", PASSWORD).await.status, 201);
    for status in [401, 401, 401, 403] {
        assert_eq!(owner.login("kim", WRONG).await.status, status);
    }
    let mut events = crate::audit::events(&app).await.into_iter();
    let event = events.find(|event| event.name.as_deref() == Some("device")).unwrap();
    let detail: serde_json::Value = serde_json::from_str(event.detail.as_deref().unwrap()).unwrap();
    let device = format!("kim@{}", detail["device"].as_str().unwrap());

    let browser = Browser::speaking(&app.url, language).await;
    let look = Look { browser: &browser, language, faults: Default::default() };
    browser.sign_in("watchman").await;
    browser.open("/admin/events").await;
    browser.js("for (const d of document.querySelectorAll('.events details')) d.open = true").await;
    look.at("device-events").await;
    assert!(browser.text(".events").await.contains(detail["device"].as_str().unwrap()));
    browser.open("/admin/lookup").await;
    browser.fill(&[("asked", &device)]).await;
    browser.submit().await;
    look.at("device-lookup").await;
    assert!(browser.text("main").await.contains(&device[4..]), "it is found by what its events say");
    browser.open("/admin/limits/edit/login-device").await;
    // What is recorded now must not be before now.
    app.advance(Duration::from_secs(1));
    browser.fill(&[("max-0", "2")]).await;
    browser.follow("[name=do][value=try]").await;
    look.at("device-tried").await;
    let told = browser.text("main").await;
    assert!(told.contains(estimate) && !told.contains(caveat), "{told}");
    browser.open("/admin/limits/edit/captcha-address").await;
    browser.fill(&[("max-0", "2")]).await;
    browser.follow("[name=do][value=try]").await;
    let told = browser.text("main").await;
    assert!(told.contains(caveat) && !told.contains(nothing), "a figure of what cannot be known: {told}");
    browser.assert_content().await;
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn a_known_device_is_seen_in_the_console_in_english() {
    is_seen_in_the_console("en", "about 2", "Not tried", "no difference").await;
}

#[tokio::test]
async fn a_known_device_is_seen_in_the_console_in_chinese() {
    is_seen_in_the_console("zh-CN", "约 2", "未经试算", "不会带来任何差别").await;
}
