//! Passkeys in Chromium, with its virtual authenticator.

use std::time::Duration;

use serde_json::json;

use crate::factors::{owner, totp};
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

impl Browser {
    /// Plugs in the browser's own authenticator, which touches itself.
    pub async fn authenticator(&self, verifies_user: bool) -> String {
        self.cdp("WebAuthn.enable", json!({})).await;
        let options = json!({ "options": {
            "protocol": "ctap2", "transport": "internal", "hasResidentKey": true,
            "hasUserVerification": verifies_user, "isUserVerified": verifies_user,
            "automaticPresenceSimulation": true,
        } });
        let plugged = self.cdp("WebAuthn.addVirtualAuthenticator", options).await;
        plugged["authenticatorId"].as_str().unwrap().to_owned()
    }

    /// Whether it is touched without being asked; otherwise never.
    async fn touch(&self, authenticator: &str, enabled: bool) {
        let set = json!({ "authenticatorId": authenticator, "enabled": enabled });
        self.cdp("WebAuthn.setAutomaticPresenceSimulation", set).await;
    }

    pub async fn unplug(&self, authenticator: &str) {
        let id = json!({ "authenticatorId": authenticator });
        self.cdp("WebAuthn.removeVirtualAuthenticator", id).await;
    }

    /// Presses the button, which leads nowhere, and waits for what the page says.
    pub async fn fail_passkey(&self, what: &str) -> String {
        self.find(&format!("[data-passkey={what}] button")).await.click().await.unwrap();
        self.until(
            "a cause",
            "return Boolean(document.querySelector('[data-passkey] [role=alert]:not([hidden])'))",
        )
        .await;
        self.text("[data-passkey] [role=alert]").await
    }
}

#[tokio::test]
async fn a_passkey_is_added_signs_in_and_takes_the_second_step_by_buttons() {
    let app = TestApp::on(Store::Memory).at_localhost().start().await;
    let owner = owner(&app, "ada").await;
    let browser = Browser::start(&app.url).await;
    let key = browser.authenticator(true).await;
    browser.open("/login").await;
    browser.try_password("ada", PASSWORD).await;
    assert!(!browser.has("[data-passkey]").await, "the account has none yet");
    browser.fill(&[("code", &totp(&app, &owner.secret))]).await;
    browser.submit().await;
    browser.open("/account/factors").await;
    browser.fill(&[("label", "Ada's phone")]).await;
    browser.follow("[data-passkey=add] button").await;
    assert_eq!(browser.path().await, "/account/factors");
    assert!(browser.text("main").await.contains("Ada's phone"), "{}", browser.text("main").await);
    let again = browser.fail_passkey("add").await;
    assert!(again.contains("has a passkey for your account already"), "{again}");

    // Whoever touches it as soon as the field of the name offers it.
    browser.find(".who summary").await.click().await.unwrap();
    browser.find(".who button").await.click().await.unwrap();
    browser
        .until("account", "return location.pathname === '/account' && document.readyState === 'complete'")
        .await;
    browser.touch(&key, false).await;
    browser.sign_out().await;
    browser.touch(&key, true).await;
    browser.follow("[data-passkey=sign-in] button").await;
    assert_eq!(browser.path().await, "/account", "without a name");
    browser.touch(&key, false).await;
    browser.sign_out().await;

    browser.touch(&key, true).await;
    browser.try_password("ada", PASSWORD).await;
    assert_eq!(browser.path().await, "/login/factor");
    browser.follow("[data-passkey=second-step] button").await;
    assert_eq!(browser.path().await, "/account");
    app.advance(Duration::from_secs(16 * 60));
    browser.open("/account/factors").await;
    browser.follow("[data-passkey=confirm] button").await;
    browser.follow("button[value=remove-passkey]").await;
    assert!(!browser.has("button[value=remove-passkey]").await);
    browser.assert_content().await;
}

#[tokio::test]
async fn what_goes_wrong_is_named_with_what_to_do() {
    let app = TestApp::on(Store::Memory).at_localhost().start().await;
    app.register("ada").await;
    let browser = Browser::start(&app.url).await;
    let bare = browser.authenticator(false).await;
    browser.sign_in("ada").await;
    browser.open("/account/factors").await;
    let cause = browser.fail_passkey("add").await;
    assert!(
        cause.contains("could not check that it is you") && cause.contains("without a PIN needs one first"),
        "{cause}"
    );
    browser.unplug(&bare).await;
    browser.authenticator(true).await;
    browser.sign_out().await;
    let cause = browser.fail_passkey("sign-in").await;
    assert!(cause.contains("Nothing was chosen"), "{cause}");
    // By another name of this machine, for which they are not.
    let elsewhere = app.url.replace("localhost", "127.0.0.1");
    browser.open(&format!("{elsewhere}/login")).await;
    let cause = browser.fail_passkey("sign-in").await;
    assert!(cause.contains("address bar"), "{cause}");

    let plain = TestApp::start(Store::Memory).await;
    plain.register("ada").await;
    let browser = Browser::start(&plain.url).await;
    browser.sign_in("ada").await;
    browser.open("/account/factors").await;
    let told = browser.text("main").await;
    assert!(told.contains("Passkeys do not work at this address"), "{told}");
    assert!(!browser.has("[data-passkey]").await);
}
