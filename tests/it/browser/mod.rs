//! The pages in a real browser. A browser takes a second to start, so each test does much with one.

mod access;
mod account;
mod api_page;
mod apps;
mod brand;
mod captcha;
mod clock;
mod codes;
mod console;
mod console_look;
mod devices;
mod double_click;
mod factor_policy;
mod factors;
mod gallery;
mod invitations;
mod look;
mod mail_look;
mod newcomer;
mod passkeys;
mod proof;
mod sign_in;
mod under_attack;

use crate::support::app::{PASSWORD, TestApp, typed};
use crate::support::browser::Browser;

const WRONG: &str = "not the right password";

impl Browser {
    /// Tries to sign in on the current page, which has a form with a name and a password.
    async fn try_password(&self, login: &str, password: &str) {
        self.fill(&[("login", login), ("password", password)]).await;
        self.submit().await;
    }

    /// Signs in on a fresh page and arrives at the account.
    async fn sign_in(&self, login: &str) {
        self.open("/login").await;
        self.try_password(login, PASSWORD).await;
        assert_eq!(self.path().await, "/account");
    }

    /// Fills in the form that adds a client of OpenID Connect for everyone, and saves it.
    async fn add_client(&self, name: &str, redirect_uri: &str) {
        self.find("[value=everyone]").await.click().await.unwrap();
        self.find("#oidc").await.click().await.unwrap();
        self.fill(&[("name", name), ("oidc-redirect_uris", redirect_uri), ("reason", "It moves in")]).await;
        self.follow("button[value=save]").await;
        assert_eq!(self.path().await, format!("/admin/apps/client?name={name}"), "its page comes by itself");
    }

    async fn sign_out(&self) {
        self.find(".who summary").await.click().await.unwrap();
        self.follow(".who button").await;
        assert_eq!(self.path().await, "/login");
    }

    /// This many wrong passwords, starting on a fresh page.
    async fn fail(&self, times: usize, login: &str) {
        self.open("/login").await;
        for _ in 0..times {
            self.try_password(login, &typed("wrong")).await;
        }
    }

    /// Asserts that the browser's console is empty: no error, and nothing refused by the content security
    /// policy.
    async fn assert_content(&self) {
        assert_eq!(self.complaints().await, Vec::<String>::new());
    }

    /// Asserts that the form cannot be submitted, because this field is empty.
    async fn assert_required(&self, id: &str) {
        self.js("document.leaving = true").await;
        self.find("button.main").await.click().await.unwrap();
        let script = format!(
            "const e = document.getElementById({id:?});
             return document.leaving && e.validity.valueMissing && document.activeElement === e"
        );
        assert_eq!(self.js(&script).await, true, "{id}");
    }
}

/// How many passwords an action has verified.
async fn hashes_during(app: &TestApp, action: impl Future<Output = ()>) -> u64 {
    let before = app.hashes();
    action.await;
    app.hashes() - before
}
