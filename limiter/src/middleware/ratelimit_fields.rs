//! The `RateLimit` and `RateLimit-Policy` fields (draft-ietf-httpapi-ratelimit-headers-10).

use std::time::Duration;

use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::{Limit, RuleSpan};

/// The caller's current state under a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing<'a> {
    /// The name of its limit.
    pub name: &'a str,
    /// Its place in the limit, from 0.
    pub rule: usize,
    /// How many it allows now.
    pub remaining: u32,
    /// Until it allows more; None if no slot is taken, or if nobody knows.
    pub more_after: Option<Duration>,
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const STANDING: HeaderName = HeaderName::from_static("ratelimit");

/// The length of the fields of a few limits with two rules each. The fields are in every refusal, so they are written
/// without a second allocation.
const ROOM: usize = 256;

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
    let policy = policies(limits);
    let standing = standing.map(state).unwrap_or_default();
    for (name, text) in [(POLICY, policy), (STANDING, standing)] {
        if let Ok(value) = HeaderValue::try_from(text)
            && !value.is_empty()
        {
            headers.append(name, value);
        }
    }
}

/// `"login-account";q=3;w=60, "login-account-2";q=20;w=3600`. Each rule is a policy of its own, and names in a list must
/// differ, so the rules of a limit after the first are numbered. Windows are in whole seconds, rounded up: a client that
/// obeys them is slower than necessary, never too fast. A calendar rule names none: its windows differ in length.
fn policies<'a>(limits: impl IntoIterator<Item = (&'a str, &'a Limit)>) -> String {
    let mut out = String::with_capacity(ROOM);
    for (name, limit) in limits {
        for (place, rule) in limit.rules().iter().enumerate() {
            out.push_str(if out.is_empty() { "" } else { ", " });
            item(&mut out, name, place);
            push(&mut out, "q", u64::from(rule.max));
            if let RuleSpan::Sliding(window) = rule.span {
                push(&mut out, "w", whole_seconds(window));
            }
        }
    }
    out
}

/// `"login-account";r=2;t=57`.
fn state(standing: Standing<'_>) -> String {
    let mut out = String::with_capacity(ROOM);
    item(&mut out, standing.name, standing.rule);
    push(&mut out, "r", u64::from(standing.remaining));
    if let Some(wait) = standing.more_after {
        push(&mut out, "t", whole_seconds(wait));
    }
    out
}

fn push(out: &mut String, name: &str, value: u64) {
    for part in [";", name, "=", itoa::Buffer::new().format(value)] {
        out.push_str(part);
    }
}

/// The name as an sf-string (RFC 9651 §3.3.3), which is printable ASCII.
fn item(out: &mut String, name: &str, rule: usize) {
    out.push('"');
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
    if rule > 0 {
        out.push('-');
        out.push_str(itoa::Buffer::new().format(rule + 1));
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;
    use crate::{CalendarUnit, LimitMode, Rule, RuleAction};

    fn limit(rules: Vec<Rule>) -> Limit {
        Limit::new("login-account", rules, LimitMode::Enforce).unwrap()
    }

    #[test]
    fn a_policy_says_its_quota_and_its_window() {
        let minute = Rule::sliding(3, Duration::from_secs(60), RuleAction::Block);
        let hour = Rule::sliding(20, Duration::from_secs(3600), RuleAction::Block);
        let (one, two) = (limit(vec![minute.clone()]), limit(vec![minute, hour]));
        assert_eq!(policies([(one.name(), &one)]), "\"login-account\";q=3;w=60");
        assert_eq!(
            policies([(two.name(), &two)]),
            "\"login-account\";q=3;w=60, \"login-account-2\";q=20;w=3600"
        );
    }

    #[test]
    fn a_calendar_rule_names_no_window() {
        let span = RuleSpan::Calendar { unit: CalendarUnit::Month, zone: TimeZone::UTC };
        let monthly = limit(vec![Rule { max: 3, span, then: RuleAction::Block }]);
        assert_eq!(policies([("leave", &monthly)]), "\"leave\";q=3");
    }

    #[test]
    fn a_standing_is_never_rosier_than_the_truth() {
        let standing =
            |rule, remaining, more_after| state(Standing { name: "sms-phone", rule, remaining, more_after });
        let wait = Some(Duration::from_millis(56_001));
        assert_eq!(standing(0, 2, wait), "\"sms-phone\";r=2;t=57");
        assert_eq!(standing(1, 2, wait), "\"sms-phone-2\";r=2;t=57", "the policy that binds");
        assert_eq!(standing(0, 5, None), "\"sms-phone\";r=5");
    }

    #[test]
    fn a_name_cannot_break_out_of_its_quotes() {
        let name = "a\"b\\c\r\nX: 中";
        let standing = Standing { name, rule: 0, remaining: 1, more_after: None };
        assert_eq!(state(standing), "\"a\\\"b\\\\cX: \";r=1");
    }
}
