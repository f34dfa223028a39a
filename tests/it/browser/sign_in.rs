//! The main behaviour at sign-in, in a browser, on either store.

use std::time::Duration;

use super::{WRONG, hashes_during};
use crate::support::app::{ANSWER, PASSWORD, Store, TestApp};
use crate::support::browser::Browser;
use crate::support::setup::max;

async fn meets_the_limits(store: Store) {
    let app = TestApp::on(store)
        .limit("login-account", &[max(3).per("1m").captcha(), max(11).per("1h")])
        .without(&["login-device"])
        .start()
        .await;
    let browser = Browser::start(&app.url).await;
    registers_and_signs_out(&browser).await;
    is_asked_for_a_captcha(&app, &browser).await;
    is_not_asked_a_minute_later(&app, &browser).await;
    is_told_to_wait(&app, &browser).await;
    browser.assert_content().await;
}

async fn registers_and_signs_out(browser: &Browser) {
    browser.open("/register").await;
    assert_eq!(browser.focused().await, "login");
    browser.try_password("kim", PASSWORD).await;
    assert_eq!(browser.path().await, "/account");
    assert!(browser.text("[role=status]").await.contains("you are signed in"));
    browser.sign_out().await;
    assert_eq!(browser.text("[role=status]").await, "You have been signed out.");
}

async fn is_asked_for_a_captcha(app: &TestApp, browser: &Browser) {
    browser.fail(2, "kim").await;
    assert!(!browser.has("#captcha_answer").await);
    assert!(browser.text("[role=alert]").await.contains("Wrong username or password"));
    assert_eq!(
        (browser.value("#login").await.as_str(), browser.value("#password").await.as_str()),
        ("kim", "")
    );
    assert_eq!(browser.focused().await, "password");
    browser.try_password("kim", WRONG).await;
    assert!(browser.has("#captcha_answer").await, "the third failure brings the CAPTCHA");

    // Without an answer the browser does not submit the right password.
    browser.fill(&[("password", PASSWORD)]).await;
    browser.assert_required("captcha_answer").await;
    // If it is sent anyway it is not checked.
    let forced = async {
        browser.js("document.getElementById('captcha_answer').required = false").await;
        browser.submit().await;
    };
    assert_eq!(hashes_during(app, forced).await, 0);
    let missing = "Type the letters in the image, or press “I am human” if that is offered.";
    assert_eq!(browser.text("#captcha_answer-error").await, missing);
    let without_the_fields = async {
        browser.fill(&[("password", PASSWORD)]).await;
        browser.js("document.querySelector('.captcha').remove()").await;
        browser.submit().await;
    };
    assert_eq!(hashes_during(app, without_the_fields).await, 0);
    assert!(browser.text("[role=alert]").await.contains("One more step"));
    let with_a_wrong_answer = async {
        browser.fill(&[("captcha_answer", "nonsense")]).await;
        browser.try_password("kim", PASSWORD).await;
    };
    assert_eq!(hashes_during(app, with_a_wrong_answer).await, 0);
    assert!(browser.text("#captcha_answer-error").await.contains("Wrong letters"));
    assert_eq!(browser.focused().await, "password");

    browser.fill(&[("captcha_answer", ANSWER)]).await;
    browser.try_password("kim", PASSWORD).await;
    assert_eq!(browser.path().await, "/account");
    browser.sign_out().await;
}

async fn is_not_asked_a_minute_later(app: &TestApp, browser: &Browser) {
    browser.fail(3, "kim").await;
    assert!(browser.has("#captcha_answer").await);
    app.advance(Duration::from_secs(60));
    browser.sign_in("kim").await;
    browser.sign_out().await;
}

async fn is_told_to_wait(app: &TestApp, browser: &Browser) {
    browser.fail(3, "kim").await;
    app.advance(Duration::from_secs(60));
    browser.fail(2, "kim").await;
    let refused = async { browser.try_password("kim", PASSWORD).await };
    assert_eq!(hashes_during(app, refused).await, 0);
    assert!(browser.text("[role=alert]").await.contains("Too many attempts"));
    // However often its owner signed in in between.
    assert!(browser.text("[role=alert]").await.contains("58 minutes"), "an hour after the first failure");
    let left = browser.text("[data-left]").await;
    let ticks = format!("return document.querySelector('[data-left]').textContent !== {left:?}");
    browser.until("countdown", &ticks).await;

    // The wait is correct to the second, and retrying does not extend it.
    let told = browser.find("[data-wait]").await.attr("data-wait").await.unwrap().unwrap();
    let told = Duration::from_secs(told.parse().unwrap());
    app.advance(told - Duration::from_secs(1));
    browser.try_password("kim", PASSWORD).await;
    assert_eq!(browser.find("[data-wait]").await.attr("data-wait").await.unwrap().unwrap(), "1");
    browser
        .until("end of the countdown", "return document.querySelector('[data-wait]').matches('.over')")
        .await;
    assert_eq!(browser.text("[data-done]").await, "You can try again now.");
    app.advance(Duration::from_secs(1));
    browser.try_password("kim", PASSWORD).await;
    assert_eq!(browser.path().await, "/account");
}

#[tokio::test]
async fn the_limits_met_in_a_browser_in_process() {
    meets_the_limits(Store::Memory).await;
}

#[tokio::test]
async fn the_limits_met_in_a_browser_on_redis() {
    meets_the_limits(Store::Redis).await;
}
