//! An administrator creates a person, who signs in by the link; and how that looks.

use gatehouse::clock::Clock;

use super::look::Look;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

#[tokio::test]
async fn a_person_is_created_and_signs_in() {
    story("en").await;
}

#[tokio::test]
async fn a_person_is_created_and_signs_in_in_chinese() {
    story("zh-CN").await;
}

async fn story(language: &str) {
    let app = TestApp::with(Store::Memory, "[registration]\nmode = \"invite\"\n").await;
    app.clock.set(Clock::System.now());
    app.administrator("watchman").await;
    let browser = Browser::speaking(&app.url, language).await;
    let look = Look { browser: &browser, language, faults: Default::default() };
    browser.open("/login").await;
    look.at("login-invited-only").await;
    browser.open("/register").await;
    look.at("register-closed").await;
    browser.open("/login/code").await;
    browser.fill(&[("phone", "138 0013 8000")]).await;
    browser.submit().await;
    look.at("code-accounts-only").await;
    browser.sign_in("watchman").await;
    // Three clicks: the list, its button, and the form's.
    browser.open("/admin").await;
    browser.follow("a[href='/admin/accounts']").await;
    browser.follow("a[href='/admin/invitations']").await;
    look.at("invitations").await;
    browser.fill(&[("login", "kim"), ("groups", "staff")]).await;
    browser.leave_by(async { browser.find("#create ~ form .main").await.click().await.unwrap() }).await;
    look.at("invitations-made").await;
    let link = browser.text("#link").await;
    browser.fill(&[("count", "30")]).await;
    browser.leave_by(async { browser.find("#invite ~ form button").await.click().await.unwrap() }).await;
    assert_ne!(browser.text("#link").await, link);
    browser.fill(&[("login", "kim\nlee")]).await;
    browser.js("for (const d of document.querySelectorAll('details')) d.open = true").await;
    browser.fill(&[("phone", "138 0013 8000")]).await;
    browser.leave_by(async { browser.find("#create ~ form .main").await.click().await.unwrap() }).await;
    look.at("invitations-mistaken").await;
    browser.sign_out().await;
    browser.open(link.strip_prefix(&app.url).unwrap()).await;
    look.at("welcome").await;
    assert_eq!(browser.focused().await, "password");
    browser.fill(&[("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
    look.at("welcome-account").await;
    browser.open(link.strip_prefix(&app.url).unwrap()).await;
    look.at("welcome-ended").await;
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
