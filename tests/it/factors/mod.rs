//! Second factors: what an account with an authenticator app is asked for, and who gets past it.

mod applications;
mod by_sms;
mod console;
mod ended;
mod fido2;
mod guessing;
mod moving;
mod pages;
mod passkeys;
mod policy;
mod routes;
mod told_apart;
mod trial;
mod upgrade;

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::support::app::{Answer, Client, PASSWORD, TestApp};

/// One code is shown for so long.
pub const STEP: Duration = Duration::from_secs(30);
/// Six digits that are those of none of the codes here.
pub const WRONG_CODE: &str = "000000";

/// The code that an app shows, by the OATH toolkit.
pub fn totp(app: &TestApp, secret: &str) -> String {
    let now = format!("@{}", app.clock.now().0 / 1_000_000);
    let args = ["--totp", "--base32", "--now", &now, secret];
    let made = Command::new("oathtool").args(args).output().expect("oathtool (scripts/setup installs it)");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}

/// Somebody who has set an app up, in the browser in which that was.
pub struct Owner {
    pub browser: Client,
    pub secret: String,
    pub recovery: Vec<String>,
}

/// Registers, sets an app up, and waits until its next code.
pub async fn owner(app: &TestApp, login: &str) -> Owner {
    let browser = app.client();
    let answer = browser.register(login, PASSWORD).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let (secret, recovery) = set_up(app, &browser).await;
    Owner { browser, secret, recovery }
}

/// Sets an app up in a session that was confirmed just now.
pub async fn set_up(app: &TestApp, browser: &Client) -> (String, Vec<String>) {
    let proposed = browser.call("/totp", json!({})).await;
    assert_eq!(proposed.status, 201, "{}", proposed.text);
    let secret = proposed.body["secret"].as_str().unwrap().to_owned();
    let used = put(browser, "/totp", json!({ "code": totp(app, &secret) })).await;
    assert_eq!(used.status, 200, "{}", used.text);
    let codes = used.body["recovery_codes"].as_array().unwrap().iter();
    app.advance(STEP);
    (secret, codes.map(|code| code.as_str().unwrap().to_owned()).collect())
}

pub async fn put(browser: &Client, path: &str, body: serde_json::Value) -> Answer {
    let request = browser.http.put(format!("{}/api/v1{path}", browser.url)).json(&body);
    Answer::read(request.send().await.unwrap()).await
}

pub async fn delete(browser: &Client, path: &str) -> Answer {
    Answer::read(browser.http.delete(format!("{}/api/v1{path}", browser.url)).send().await.unwrap()).await
}

/// The first step of a sign-in, which leads to the second.
pub async fn first_step(browser: &Client, login: &str) {
    let answer = browser.login(login, PASSWORD).await;
    assert_eq!((answer.status, answer.problem()), (403, "factor-required"), "{}", answer.text);
    assert!(answer.cookie("gh_session").is_none() && answer.cookie("gh_device").is_none());
}

pub async fn by_totp(browser: &Client, code: &str) -> Answer {
    browser.call("/login/factor", json!({ "totp": code })).await
}

pub async fn by_recovery(browser: &Client, code: &str) -> Answer {
    browser.call("/login/factor", json!({ "recovery": code })).await
}

pub async fn is_signed_in(browser: &Client) -> bool {
    browser.get("/api/v1/session").await.status == 200
}
