//! Reads `[access]` as strictly as the rest of the document.

use ipnet::IpNet;
use jiff::Timestamp;

use super::networks;
use super::{AccessNetwork, AccessSettings, SmsPause};
use crate::clock::Micros;
use crate::config::document::ValueNode;
use crate::config::reader::{ParseResult, SectionReader};

/// Of each list. An operator writes a few during an attack; a feed of addresses belongs into a firewall.
const MOST_ENTRIES: usize = 1_000;
/// The longest reason, in characters: a sentence.
const LONGEST_REASON: usize = 200;
/// The most digits of a number in E.164.
const MOST_DIGITS: usize = 15;

impl AccessSettings {
    /// `proxies` are the trusted ones: an entry that covers one of them would be about everybody behind it.
    pub(in crate::config) fn read(section: &mut SectionReader<'_>, proxies: &[IpNet]) -> Self {
        Self {
            deny: entries(section, "deny", |inner| network(inner, proxies)),
            allow: entries(section, "allow", |inner| network(inner, proxies)),
            challenge_everyone_until: section.value("challenge_everyone_until", None, end_if_any),
            pause_sms: entries(section, "pause_sms", pause),
        }
    }
}

fn entries<'p, T>(
    section: &mut SectionReader<'p>,
    key: &'static str,
    read: impl FnMut(&mut SectionReader<'p>) -> Option<T>,
) -> Vec<T> {
    section.tables(key, MOST_ENTRIES, read).unwrap_or_default().into_iter().flatten().collect()
}

fn network(section: &mut SectionReader<'_>, proxies: &[IpNet]) -> Option<AccessNetwork> {
    const MISSING: &str = "is missing; write a network: \"203.0.113.0/24\"";
    let place = section.place().cloned();
    // All are read before the first failure ends it, so that every mistake is reported.
    let network = section.required("network", MISSING, place, |node| networks::parse(node, proxies));
    let (until, reason) = end_and_reason(section);
    Some(AccessNetwork { network: network?, until: until?, reason: reason? })
}

fn pause(section: &mut SectionReader<'_>) -> Option<SmsPause> {
    const MISSING: &str = "is missing; write how the numbers begin: \"+86138\"";
    let place = section.place().cloned();
    let prefix = section.required("prefix", MISSING, place, prefix);
    let (until, reason) = end_and_reason(section);
    Some(SmsPause { prefix: prefix?, until: until?, reason: reason? })
}

fn end_and_reason(section: &mut SectionReader<'_>) -> (Option<Micros>, Option<String>) {
    const NO_END: &str = "is missing; write when it ends: \"2026-12-01T00:00:00Z\"";
    const NO_REASON: &str = "is missing; write why, for those who read it later";
    let place = section.place().cloned();
    let until = section.required("until", NO_END, place.clone(), end);
    (until, section.required("reason", NO_REASON, place, reason))
}

/// A time, or nothing.
fn end_if_any(node: ValueNode) -> ParseResult<Option<Micros>> {
    let place = node.place.clone();
    let text = node.text()?;
    if text.is_empty() {
        return Ok(None);
    }
    let value = crate::config::document::ConfigValue::Text(text);
    end(ValueNode { value, place }).map(Some)
}

/// RFC 3339. Times that have passed are valid: a restart must not fail because an hour has passed.
fn end(node: ValueNode) -> ParseResult<Micros> {
    const SUCH_AS: &str = "such as \"2026-12-01T00:00:00Z\" or \"2026-12-01T08:00:00+08:00\"";
    let text = node.text().map_err(|wrong| format!("{wrong}, {SUCH_AS}"))?;
    let time: Timestamp = text.parse().map_err(|_| {
        format!("{text:?} is not a time with its offset from UTC (RFC 3339); write one {SUCH_AS}")
    })?;
    Ok(Micros(time.as_microsecond()))
}

fn reason(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let reason = text.trim();
    if reason.is_empty() {
        return Err("is empty; write why, for those who read it later".to_owned());
    }
    if reason.chars().any(char::is_control) {
        return Err("contains a line break or another control character; write one line".to_owned());
    }
    match reason.chars().count() {
        0..=LONGEST_REASON => Ok(reason.to_owned()),
        many => Err(format!("has {many} characters; at most {LONGEST_REASON} are allowed")),
    }
}

fn prefix(node: ValueNode) -> ParseResult<String> {
    let text = node.text()?;
    let digits = text.strip_prefix('+').unwrap_or_default();
    if (1..=MOST_DIGITS).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return Ok(text);
    }
    Err(format!("{text:?} is not a prefix of numbers; write + and 1 to {MOST_DIGITS} digits: \"+86138\""))
}
