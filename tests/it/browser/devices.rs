//! Somebody keeps failing at an account: its owner, at the browser they always use, does not notice.

use super::WRONG;
use crate::sign_in::throttling::fail_until_blocked;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

const BEHIND_A_PROXY: &str = "[server]\ntrusted_proxies = [\"127.0.0.1/32\"]\n";

async fn keeps_strangers_out_and_not_the_owner(store: Store) {
    let app = TestApp::with(store, BEHIND_A_PROXY).await;
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
    // Their own third mistake brings the CAPTCHA, as everybody's does.
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
