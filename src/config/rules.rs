//! One limit in the configuration: its rules and its mode.

use std::time::Duration;

use jiff::tz::TimeZone;

use crate::throttle::{
    CalendarUnit, LONGEST_WINDOW, Limit, LimitError, LimitMode, MAX_HITS, MOST_RULES, Rule, RuleAction,
    RuleSpan, SHORTEST_WINDOW,
};

use super::document::ValueNode;
use super::error::ConfigLocation;
use super::reader::{ParseResult, SectionReader};
use super::values::{duration, integer, word};

/// Whether a rule of the limit may say `then = "captcha"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaptchaRules {
    Possible,
    /// The limit counts challenges themselves.
    IsTheThing,
    /// Other programs use the limit, and have no form of ours.
    NobodyToAsk,
    /// The limit protects a secret of six digits, which anybody who has CAPTCHAs solved could try one by one.
    WouldGiveAway,
}

const UNITS: [(&str, CalendarUnit); 6] = [
    ("minute", CalendarUnit::Minute),
    ("hour", CalendarUnit::Hour),
    ("day", CalendarUnit::Day),
    ("week", CalendarUnit::Week),
    ("month", CalendarUnit::Month),
    ("year", CalendarUnit::Year),
];

/// The limit in a section; `None` if something in it was refused.
pub(super) fn limit(section: &mut SectionReader<'_>, name: &str, captcha: CaptchaRules) -> Option<Limit> {
    let mode = section.value(
        "mode",
        LimitMode::Enforce,
        word(&[("enforce", LimitMode::Enforce), ("monitor", LimitMode::Monitor)]),
    );
    let missing = !section.has("rules");
    let place = section.place_of("rules");
    let read = section.tables("rules", MOST_RULES, |inner| (inner.place().cloned(), rule(inner, captcha)));
    let place = place?;
    if missing {
        let reason = "is missing; list the rules, or write rules = [] to switch the limit off";
        section.refuse(place, section.path_of("rules"), reason);
        return None;
    }
    let (places, rules): (Vec<Option<ConfigLocation>>, Vec<Option<Rule>>) = read?.into_iter().unzip();
    if section.failed() {
        return None;
    }
    let rules: Vec<Rule> = rules.into_iter().collect::<Option<_>>()?;
    let refused = |wrong: LimitError| match wrong.rule() {
        Some(index) => {
            let place = places.get(index).cloned().flatten().unwrap_or(place);
            section.refuse(place, format!("{}[{index}]", section.path_of("rules")), wrong.to_string());
        }
        None => section.refuse(place, section.path_of("rules"), wrong.to_string()),
    };
    Limit::new(name, rules, mode).map_err(refused).ok()
}

fn rule(section: &mut SectionReader<'_>, captcha: CaptchaRules) -> Option<Rule> {
    // All are read before the first failure ends it, so that every mistake is reported.
    let missing = "is missing; write how many hits the rule admits";
    let max = section.required("max", missing, section.place().cloned(), integer(1..=MAX_HITS));
    let then = section.value("then", RuleAction::Block, |node| then(node, captcha));
    let span = span(section);
    Some(Rule { max: max?, span: span?, then })
}

fn then(node: ValueNode, captcha: CaptchaRules) -> ParseResult<RuleAction> {
    let then = word(&[("captcha", RuleAction::Captcha), ("block", RuleAction::Block)])(node)?;
    match (then, captcha) {
        (RuleAction::Block, _) | (RuleAction::Captcha, CaptchaRules::Possible) => Ok(then),
        (RuleAction::Captcha, CaptchaRules::IsTheThing) => {
            Err("cannot be \"captcha\": this limit counts CAPTCHAs; use \"block\"".to_owned())
        }
        (RuleAction::Captcha, CaptchaRules::NobodyToAsk) => {
            Err("cannot be \"captcha\": a custom limit has no form to show one; use \"block\"".to_owned())
        }
        (RuleAction::Captcha, CaptchaRules::WouldGiveAway) => {
            Err("cannot be \"captcha\": anyone who solves CAPTCHAs could try every code; use \"block\""
                .to_owned())
        }
    }
}

/// Exactly one of `window` and `per`.
fn span(section: &mut SectionReader<'_>) -> Option<RuleSpan> {
    let (sliding, calendar, zoned) = (section.has("window"), section.has("per"), section.has("timezone"));
    let place = section.place_of("per");
    let zone_place = section.place_of("timezone");
    let window = section.optional("window", duration(SHORTEST_WINDOW..=LONGEST_WINDOW));
    let unit = section.optional("per", word(&UNITS));
    let zone = section.value("timezone", TimeZone::UTC, zone);
    let (place, zone_place) = (place?, zone_place?);
    match (sliding, calendar) {
        (true, true) => {
            let reason = "cannot be combined with window; keep one of them: window is sliding, per follows the calendar";
            section.refuse(place, section.path_of("per"), reason);
            None
        }
        (false, false) => {
            let reason =
                "has neither window nor per; add window = \"1h\" (sliding) or per = \"day\" (calendar)";
            section.refuse(place, section.path().to_owned(), reason);
            None
        }
        (true, false) if zoned => {
            let reason = "is only valid with per; a sliding window is the same in every time zone";
            section.refuse(zone_place, section.path_of("timezone"), reason);
            None
        }
        (true, false) => window.map(|window: Duration| RuleSpan::Sliding(window)),
        (false, true) => unit.map(|unit| RuleSpan::Calendar { unit, zone }),
    }
}

fn zone(node: ValueNode) -> ParseResult<TimeZone> {
    let name = node.text()?;
    TimeZone::get(&name).map_err(|_| {
        format!("{name:?} is not a time zone; write an IANA name such as \"Asia/Shanghai\" or \"UTC\"")
    })
}
