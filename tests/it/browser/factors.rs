//! An authenticator app reads the code on the page, as a camera sees it.

use std::process::Command;

use crate::factors::totp;
use crate::support::app::{PASSWORD, Store, TestApp};
use crate::support::browser::Browser;

#[tokio::test]
async fn the_image_holds_the_key_in_both_themes() {
    let app = TestApp::with(Store::Memory, "[brand]\nname = \"Shop & Söhne\"").await;
    app.register("ada.lovelace").await;
    let browser = Browser::start(&app.url).await;
    browser.sign_in("ada.lovelace").await;
    browser.open("/account/factors").await;
    browser.follow("button[value=propose-totp]").await;
    let secret = browser.js("return document.querySelector('code.secret').textContent").await;
    let secret = secret.as_str().unwrap().replace(' ', "");
    let folder = tempfile::tempdir().unwrap();
    for dark in [false, true] {
        browser.dark(dark).await;
        let image = folder.path().join("page.png");
        browser.picture_at(&image).await;
        let read = Command::new("zbarimg").args(["--quiet", "--raw"]).arg(&image).output();
        let read = read.expect("zbarimg (scripts/setup installs it)");
        let issuer = "Shop%20%26%20S%C3%B6hne";
        let uri = format!("otpauth://totp/{issuer}:ada.lovelace?secret={secret}&issuer={issuer}");
        assert_eq!(String::from_utf8(read.stdout).unwrap().trim(), uri);
    }
    browser.fill(&[("code", &totp(&app, &secret))]).await;
    browser.follow("form:has(input[value=use-totp]) button.main").await;
    assert_eq!(browser.text("pre.secret").await.split_whitespace().count(), 10, "the recovery codes");
    assert_eq!(app.client().login("ada.lovelace", PASSWORD).await.problem(), "factor-required");
    browser.assert_content().await;
}
