//! Answers to an attack: refused and exempt networks, everybody challenged, paused prefixes.

mod challenging;
mod denying;
mod exempting;
mod instances;
mod origins;
mod pages;
mod pausing;
mod saving;

use crate::support::app::{Client, PASSWORD, TestApp};

/// An hour after the tests' clocks begin.
pub const IN_AN_HOUR: &str = "2026-03-01T13:00:00Z";
/// In the network that is refused or exempt, and outside.
const THERE: &str = "203.0.113.7";
const ELSEWHERE: &str = "198.51.100.1";
const WRONG: &str = "a wrong password";

/// A list of `[access]` with an entry for each network.
fn list(key: &str, networks: &[&str]) -> String {
    let entry = |network: &&str| {
        format!("{{ network = \"{network}\", until = \"{IN_AN_HOUR}\", reason = \"a test\" }}")
    };
    format!("{key} = [{}]\n", networks.iter().map(entry).collect::<Vec<_>>().join(", "))
}

/// A client at an address that sends these cookies.
fn with_cookies(app: &TestApp, address: &str, cookies: &str) -> Client {
    app.client_that_says(&[("x-forwarded-for", address), ("cookie", cookies)])
}

/// An account, and the cookie of its known device.
async fn owner(app: &TestApp, login: &str) -> String {
    let answer = app.client_at(ELSEWHERE).register(login, PASSWORD).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    pair(answer.cookie("gh_device").expect("a device"))
}

/// `name=value` of a `Set-Cookie` line.
fn pair(line: &str) -> String {
    line.split(';').next().unwrap_or_default().to_owned()
}
