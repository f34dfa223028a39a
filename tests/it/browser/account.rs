//! `/account` and the pages that lead there.

use gatehouse::accounts::Username;

use super::WRONG;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

const NEW_PASSWORD: &str = "four other unrelated words";

#[tokio::test]
async fn an_account_is_kept_from_two_browsers() {
    let app = TestApp::start(Store::Memory).await;
    app.register("kim").await;
    let (here, there) = tokio::join!(Browser::start(&app.url), Browser::speaking(&app.url, "zh-CN"));
    sees_and_revokes_the_other(&here, &there).await;
    changes_the_password(&here, &there).await;
    is_told_what_is_wrong_with_a_password(&app, &here).await;
    here.assert_content().await;
    there.assert_content().await;
}

async fn sees_and_revokes_the_other(here: &Browser, there: &Browser) {
    here.sign_in("kim").await;
    there.sign_in("kim").await;
    here.open("/account").await;
    // The third was opened by the registration.
    assert_eq!(rows(here).await, 3);
    let first = "return document.querySelectorAll('.tag').length === 1 && !!document.querySelector('.rows > li:first-child .tag')";
    assert_eq!(here.js(first).await, true, "this one leads");
    here.follow("form[action='/account/sessions/revoke'] button").await;
    assert_eq!(here.text("[role=status]").await, "That device was signed out.");
    assert_eq!(rows(here).await, 2);
    here.follow("form[action='/account/sessions/revoke-others'] button").await;
    assert_eq!(here.text("[role=status]").await, "All other devices were signed out.");
    assert_eq!(rows(here).await, 1);
    assert!(!here.has("form[action='/account/sessions/revoke-others']").await);
    assert_eq!(here.focused().await, "sessions", "where the button was");
    here.open("/account").await;
    assert!(!here.has("[role=status].notice").await, "it is said once");

    // The other one is signed out, and returns to where it wanted to go.
    there.open("/account").await;
    assert_eq!(there.path().await, "/login?next=/account");
    there.try_password("kim", PASSWORD).await;
    assert_eq!(there.path().await, "/account");
}

async fn rows(browser: &Browser) -> u64 {
    let script = "return document.querySelectorAll('[aria-labelledby=sessions] .rows > li').length";
    browser.js(script).await.as_u64().unwrap()
}

async fn changes_the_password(here: &Browser, there: &Browser) {
    change(here, WRONG, NEW_PASSWORD).await;
    assert_eq!(
        here.text("#current_password-error").await,
        "This is not your current password. Check it and try again."
    );
    assert_eq!(here.focused().await, "current_password");
    change(here, PASSWORD, "short").await;
    assert!(here.text("#new_password-error").await.contains("at least 15 characters"));
    assert_eq!(here.focused().await, "new_password");
    change(here, PASSWORD, PASSWORD).await;
    assert!(here.text("#new_password-error").await.contains("differs"));
    change(here, PASSWORD, NEW_PASSWORD).await;
    assert_eq!(here.path().await, "/account");
    assert!(here.text("[role=status]").await.starts_with("Password changed."));

    there.open("/account").await;
    assert_eq!(there.path().await, "/login?next=/account", "the other device was signed out");
    there.try_password("kim", PASSWORD).await;
    assert!(there.text("[role=alert]").await.contains("用户名或密码错误"));
    // To another page than the account, as the link asked.
    there.open("/login?next=/problems/throttled").await;
    there.try_password("kim", NEW_PASSWORD).await;
    assert_eq!(there.path().await, "/problems/throttled");
    there.open("/login").await;
    assert_eq!(there.path().await, "/account", "nobody signs in twice");

    here.sign_out().await;
    assert!(here.has("[role=status].notice").await);
    here.open("/login").await;
    assert!(!here.has("[role=status].notice").await, "it is said once");
    here.open("/account").await;
    assert_eq!(here.path().await, "/login?next=/account");
}

async fn change(browser: &Browser, current: &str, new: &str) {
    browser.fill(&[("current_password", current), ("new_password", new)]).await;
    browser.submit().await;
}

async fn is_told_what_is_wrong_with_a_password(app: &TestApp, browser: &Browser) {
    let (login, accounts) = (Username::parse("gatekeeper").unwrap(), &app.services.accounts);
    let hash = app.services.hasher.hash_new(PASSWORD, &login).await.unwrap().unwrap();
    accounts.create_first_admin(&login, &hash).await.unwrap().unwrap();
    browser.open("/login?next=/problems/throttled").await;
    browser.try_password("gatekeeper", PASSWORD).await;
    let only = "/account?next=/problems/throttled";
    assert_eq!(browser.path().await, only, "a one-time password leads nowhere else");
    assert!(browser.text("[role=alert]").await.contains("Choose your own password"));
    assert_eq!(browser.focused().await, "current_password");
    change(browser, PASSWORD, NEW_PASSWORD).await;
    assert_eq!(browser.path().await, "/problems/throttled", "and then where they wanted to go");
}
