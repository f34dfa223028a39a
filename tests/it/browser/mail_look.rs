//! The pages of e-mail in every state, and every letter, checked like the other pages in `look.rs`.

use std::time::Duration;

use gatehouse::accounts::Username;
use gatehouse::clock::Clock;
use gatehouse::mail::{LetterKind, letter};
use strum::VariantArray;

use super::look::Look;
use crate::mail::console::refuse_mail;
use crate::mail::flows::{freeze_code, newest_code, until};
use crate::mail::pages::by_mail_alone;
use crate::mail::servers::facts;
use crate::support::app::{PASSWORD, Store, TestApp, typed};
use crate::support::browser::Browser;
use crate::support::setup::max;

const ADA: &str = "ada@example.org";
const LONG: &str = "somebody_with_a_long_name+and_a_tag@departmentofeverything.example.org";

#[tokio::test]
async fn pages_and_letters_of_mail_are_fit_to_be_seen_in_english() {
    tour("en").await;
}

#[tokio::test]
async fn pages_and_letters_of_mail_are_fit_to_be_seen_in_chinese() {
    tour("zh-CN").await;
}

async fn tour(language: &'static str) {
    let app = TestApp::on(Store::Memory)
        .at_localhost()
        .file("[registration]\nrequire = ['email']\n[limits.mail-mailbox]\nrules = [{ max = 1, window = '1m' }]\n")
        .start()
        .await;
    // Pages show times by the browser's clock, which tests do not move.
    app.clock.set(Clock::System.now());
    let browser = Browser::speaking(&app.url, language).await;
    let look = Look { browser: &browser, language, faults: Default::default() };
    register(&look, &app).await;
    account(&look, &app).await;
    without_session(&look, &app).await;
    rules(&look).await;
    console(&look, &app).await;
    letters(&look, language).await;
    let faults = look.faults.into_inner();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

async fn register(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    browser.open("/register?code").await;
    look.at("register-email-in-hand").await;
    browser.open("/register").await;
    look.at("register-email").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.fill(&[("login", ""), ("email", "ada")]).await;
    browser.submit().await;
    look.at("register-email-invalid").await;
    browser.fill(&[("login", "ada"), ("email", ADA)]).await;
    browser.submit().await;
    look.at("register-email-sent").await;
    let code = newest_code(app, ADA, 1).await;
    browser.fill(&[("code", &code), ("password", PASSWORD)]).await;
    browser.submit().await;
    assert_eq!(browser.path().await, "/account");
    look.at("account-email").await;
}

async fn account(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    browser.open("/account/email?code").await;
    look.at("email-in-hand").await;
    browser.open("/account/email").await;
    look.at("email").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.fill(&[("email", "ada@example")]).await;
    browser.submit().await;
    look.at("email-invalid").await;
    browser.fill(&[("email", LONG)]).await;
    browser.submit().await;
    look.at("email-sent").await;
    browser.fill(&[("code", "000000"), ("current_password", PASSWORD)]).await;
    browser.submit().await;
    look.at("email-wrong").await;
    let code = newest_code(app, LONG, 1).await;
    browser.fill(&[("code", &code), ("current_password", PASSWORD)]).await;
    browser.submit().await;
    look.at("account-email-changed").await;
    browser.open("/account/email/remove").await;
    look.at("email-remove").await;
    browser.sign_out().await;
}

async fn without_session(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    app.advance(Duration::from_secs(61));
    browser.open("/password/reset?code").await;
    look.at("reset-in-hand").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.fill(&[("phone", LONG), ("code", "12")]).await;
    browser.submit().await;
    look.at("reset-in-hand-invalid").await;
    browser.open("/password/reset").await;
    look.at("reset-either").await;
    browser.js("document.querySelector('form').noValidate = true").await;
    browser.fill(&[("phone", "ada at example.org")]).await;
    browser.submit().await;
    look.at("reset-either-invalid").await;
    browser.fill(&[("phone", LONG)]).await;
    browser.submit().await;
    look.at("reset-email-sent").await;
    browser.open("/freeze").await;
    look.at("freeze").await;
    browser.fill(&[("code", "7K3M-4H2Q-PXWA-6RTB")]).await;
    browser.follow("button.danger").await;
    look.at("freeze-wrong").await;
    browser.open("/dev/outbox").await;
    look.at("outbox-mail").await;
}

/// Where codes by mail set the password of some accounts, or of none, and where there is only mail.
async fn rules(look: &Look<'_>) {
    let browser = look.browser;
    let numberless = TestApp::on(Store::Memory).set("mail.reset", "without-number").start().await;
    browser.open(&format!("{}/password/reset", numberless.url)).await;
    look.at("reset-numberless").await;
    browser.fill(&[("phone", ADA)]).await;
    browser.submit().await;
    look.at("reset-numberless-sent").await;
    for (name, reset) in [("numberless", "without-number"), ("none", "no"), ("mail", "yes")] {
        let setup = by_mail_alone().set("mail.reset", reset).limit("login-account", &[max(1).per("1h")]);
        let alone = setup.start().await;
        alone.clock.set(Clock::System.now());
        browser.open(&format!("{}/password/reset", alone.url)).await;
        look.at(&format!("reset-alone-{name}")).await;
        browser.open(&format!("{}/login", alone.url)).await;
        for _ in 0..2 {
            browser.try_password("kim", &typed("wrong")).await;
        }
        look.at(&format!("login-alone-{name}")).await;
    }
}

/// Of an account that is frozen, and whose mailbox refuses mail.
async fn console(look: &Look<'_>, app: &TestApp) {
    let browser = look.browser;
    // The mail that froze it: to the address before.
    let code = until(app, ADA, |mails| mails.iter().find_map(freeze_code)).await;
    browser.open("/freeze").await;
    browser.fill(&[("code", &code)]).await;
    browser.follow("button.danger").await;
    look.at("frozen").await;
    app.services.codes.drain().await;
    refuse_mail(app, LONG).await;
    app.administrator("watchman").await;
    browser.sign_in("watchman").await;
    browser.open("/admin/lookup").await;
    browser.fill(&[("asked", LONG)]).await;
    browser.submit().await;
    browser.js("document.querySelector('#refuses-mail details').open = true").await;
    look.at("console-mailbox").await;
    let ada = Username::parse("ada").unwrap();
    let ada = app.services.accounts.find(&ada).await.unwrap().unwrap();
    browser.open(&format!("/admin/accounts/{}", ada.id)).await;
    look.at("console-account-frozen").await;
    browser.open("/admin/messages?channel=mail").await;
    look.at("messages-mail").await;
    browser.fill(&[("prefix", "ada at example.org, or ada@")]).await;
    browser.follow("form.filter button").await;
    look.at("messages-mail-invalid").await;
    browser.sign_out().await;
}

/// As a program for mail shows them: alone, without script, in light and in dark.
async fn letters(look: &Look<'_>, language: &'static str) {
    let folder = tempfile::tempdir().unwrap();
    for kind in LetterKind::VARIANTS {
        let name: &str = kind.into();
        let file = folder.path().join(format!("{name}.html"));
        std::fs::write(&file, &letter(&facts(*kind, language)).html).unwrap();
        look.browser.open(&format!("file://{}", file.display())).await;
        look.at(&format!("letter-{name}")).await;
    }
    // A letter is a part of the page on which its reader's program shows it.
    let of_pages = |fault: &String| fault.contains("axe landmark-one-main:") || fault.contains("axe region:");
    look.faults.borrow_mut().retain(|fault| !of_pages(fault));
}
