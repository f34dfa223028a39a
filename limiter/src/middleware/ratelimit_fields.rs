//! The `RateLimit` and `RateLimit-Policy` fields (draft-ietf-httpapi-ratelimit-headers-10).

use std::fmt::Write;
use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::{Limit, RuleSpan};

/// A rule as callers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy<'a> {
    /// The name of its limit.
    pub name: &'a str,
    /// How many it allows in its window.
    pub quota: u32,
    /// None for a calendar rule: its windows differ in length.
    pub window: Option<Duration>,
}

/// The caller's current state under a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The name of its limit.
    pub name: &'a str,
    /// How many it allows now.
    pub remaining: u32,
    /// Until the next slot becomes free; None if no slot is taken.
    pub reset: Option<Duration>,
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STANDING: HeaderName = HeaderName::from_static("ratelimit");

/// Whole seconds rounded up, at least one: a client that waits this long is never too early.
pub fn whole_seconds(span: Duration) -> u64 {
    (span.as_secs() + u64::from(span.subsec_nanos() > 0)).max(1)
}

/// Adds the limits, by the names that callers know, and the caller's state. Fields that already exist are
/// kept: both fields are lists, so several lines form one list.
pub fn add<'a>(
    headers: &mut HeaderMap,
    limits: impl IntoIterator<Item = (&'a str, &'a Limit)>,
    standing: Option<Standing<'_>>,
) {
    let policy = policies(limits.into_iter().flat_map(|(name, limit)| policies_of(name, limit)));
    let standing = standing.map(|standing| standings([standing])).unwrap_or_default();
    for (name, text) in [(POLICY, policy), (STANDING, standing)] {
        if let Ok(value) = HeaderValue::try_from(text)
            && !value.is_empty()
        {
            headers.append(name, value);
        }
    }
}

fn policies_of<'a>(name: &'a str, limit: &'a Limit) -> impl Iterator<Item = Policy<'a>> {
    limit.rules().iter().map(move |rule| {
        let window = match rule.span {
            RuleSpan::Sliding(window) => Some(window),
            RuleSpan::Calendar { .. } => None,
        };
        Policy { name, quota: rule.max, window }
    })
}

/// `"login-account";q=3;w=60, "login-account-2";q=20;w=3600`. Names in a list must differ, so the rules of a
/// limit after the first are numbered. Windows are in whole seconds, rounded up: a client that obeys them is
/// slower than necessary, never too fast.
pub fn policies<'a>(policies: impl IntoIterator<Item = Policy<'a>>) -> String {
    let mut out = String::new();
    let mut earlier = ("", 0);
    for policy in policies {
        item(&mut out, policy.name, &mut earlier);
        push(&mut out, "q", u64::from(policy.quota));
        if let Some(window) = policy.window {
            push(&mut out, "w", whole_seconds(window));
        }
    }
    out
}

/// `"login-account";r=2;t=57`.
pub fn standings<'a>(standings: impl IntoIterator<Item = Standing<'a>>) -> String {
    let mut out = String::new();
    let mut earlier = ("", 0);
    for standing in standings {
        item(&mut out, standing.name, &mut earlier);
        push(&mut out, "r", u64::from(standing.remaining));
        if let Some(reset) = standing.reset {
            push(&mut out, "t", whole_seconds(reset));
        }
    }
    out
}

fn push(out: &mut String, name: &str, value: u64) {
    write!(out, ";{name}={value}").expect("a String takes all");
}

/// The name as an sf-string (RFC 9651 §3.3.3), which is printable ASCII.
fn item<'a>(out: &mut String, name: &'a str, earlier: &mut (&'a str, u32)) {
    *earlier = if earlier.0 == name { (name, earlier.1 + 1) } else { (name, 1) };
    out.push_str(if out.is_empty() { "\"" } else { ", \"" });
    if name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-') {
        out.push_str(name);
    } else {
        for letter in name.chars().filter(|letter| (' '..='~').contains(letter)) {
            if matches!(letter, '"' | '\\') {
                out.push('\\');
            }
            out.push(letter);
        }
    }
    if earlier.1 > 1 {
        write!(out, "-{}", earlier.1).expect("a String takes all");
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_its_quota_and_its_window() {
        let minute = Policy { name: "login-account", quota: 3, window: Some(Duration::from_secs(60)) };
        let hour = Policy { quota: 20, window: Some(Duration::from_secs(3600)), ..minute };
        assert_eq!(policies([minute]), "\"login-account\";q=3;w=60");
        assert_eq!(policies([minute, hour]), "\"login-account\";q=3;w=60, \"login-account-2\";q=20;w=3600");
    }

    #[test]
    fn a_calendar_rule_names_no_window() {
        assert_eq!(policies([Policy { name: "leave", quota: 3, window: None }]), "\"leave\";q=3");
    }

    #[test]
    fn a_standing_is_never_rosier_than_the_truth() {
        let reset = Some(Duration::from_millis(56_001));
        assert_eq!(
            standings([Standing { name: "sms-phone", remaining: 2, reset }]),
            "\"sms-phone\";r=2;t=57"
        );
        assert_eq!(
            standings([Standing { name: "sms-phone", remaining: 5, reset: None }]),
            "\"sms-phone\";r=5"
        );
    }

    #[test]
    fn a_name_cannot_break_out_of_its_quotes() {
        let name = "a\"b\\c\r\nX: 中";
        assert_eq!(standings([Standing { name, remaining: 1, reset: None }]), "\"a\\\"b\\\\cX: \";r=1");
    }
}
