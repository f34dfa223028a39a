//! Limits in plain words: what each counts, and its rules as sentences.

use std::borrow::{Borrow, Cow};
use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use rust_i18n::t;

use crate::config::{BackendKind, LimitName, LimitUnit, SMS_BRAKE, SMS_BUDGET, SMS_COUNTRY};
use crate::denied;
use crate::web::http::Locale;
use crate::web::http::locale::in_units;

/// The word for one hit, singular and plural. Custom limits say "hit".
const fn hit_words(unit: Option<LimitUnit>) -> (&'static str, &'static str) {
    match unit {
        Some(LimitUnit::SignIn) => ("unit.sign-in", "unit.sign-ins"),
        Some(LimitUnit::Factor) => ("unit.guess", "unit.guesses"),
        Some(LimitUnit::ClientCall) => ("unit.client-call", "unit.client-calls"),
        Some(LimitUnit::Name) => ("unit.name", "unit.names"),
        Some(LimitUnit::Repeat) => ("unit.repeat", "unit.repeats"),
        Some(LimitUnit::Attempt) => ("unit.attempt", "unit.attempts"),
        Some(LimitUnit::Registration) => ("unit.registration", "unit.registrations"),
        Some(LimitUnit::Image) => ("unit.image", "unit.images"),
        Some(LimitUnit::Message) => ("unit.message", "unit.messages"),
        Some(LimitUnit::Mail) => ("unit.mail", "unit.mails"),
        Some(LimitUnit::Guess) => ("unit.guess", "unit.guesses"),
        None => ("unit.hit", "unit.hits"),
    }
}

pub fn gateway(name: &str, locale: Locale) -> Cow<'static, str> {
    match name {
        "outbox" => locale.t("overview.gateway-outbox"),
        "http" => locale.t("overview.gateway-http"),
        "aliyun" => locale.t("overview.gateway-aliyun"),
        "tencent" => locale.t("overview.gateway-tencent"),
        "none" => locale.t("overview.gateway-none"),
        "twilio" => Cow::Borrowed("Twilio"),
        other => Cow::Owned(other.to_owned()),
    }
}

pub fn backend(kind: BackendKind, locale: Locale) -> Cow<'static, str> {
    match kind {
        BackendKind::File => locale.t("overview.backend-file"),
        BackendKind::Redis => Cow::Borrowed("Redis"),
        BackendKind::Nacos => Cow::Borrowed("Nacos"),
    }
}

/// What a limit counts, as a locale key.
pub fn about(limit: &str) -> &'static str {
    LimitName::parse(limit).map_or("limit-about.custom", |name| name.words().1)
}

/// What refused, for pages: a phrase for a built-in limit or a brake, the owner's name for a custom limit.
pub fn title(refused_by: &str, locale: Locale) -> Cow<'static, str> {
    if let Some(name) = LimitName::parse(refused_by) {
        return locale.t(name.words().0);
    }
    match refused_by {
        SMS_BRAKE => locale.t("limit-name.sms-brake"),
        SMS_BUDGET => locale.t("limit-name.sms-budget"),
        SMS_COUNTRY => locale.t("limit-name.sms-country"),
        denied::BUSY => locale.t("limit-name.busy"),
        denied::ACCESS => locale.t("limit-name.access"),
        custom => Cow::Owned(custom.strip_prefix("custom.").unwrap_or(custom).to_owned()),
    }
}

/// `3 failed sign-ins within 1 minute: a CAPTCHA is asked for`
pub fn sentence(limit: &str, rule: &Rule, locale: Locale) -> String {
    let (one, many) = hit_words(LimitName::parse(limit).map(LimitName::unit));
    let key = if rule.max == 1 { one } else { many };
    let hits = t!(key, locale = locale.code(), count = grouped(u64::from(rule.max)));
    let key = match (&rule.span, rule.then) {
        (RuleSpan::Sliding(_), RuleAction::Captcha) => "rule.within-captcha",
        (RuleSpan::Sliding(_), RuleAction::Block) => "rule.within-block",
        (RuleSpan::Calendar { .. }, RuleAction::Captcha) => "rule.calendar-captcha",
        (RuleSpan::Calendar { .. }, RuleAction::Block) => "rule.calendar-block",
    };
    t!(key, locale = locale.code(), hits = hits, span = span(&rule.span, locale)).into_owned()
}

pub fn sentences(limit: &Limit, locale: Locale) -> Vec<String> {
    limit.rules().iter().map(|rule| sentence(limit.name(), rule, locale)).collect()
}

/// `2 of 3 / 1 min`
pub fn used(used: &u64, rule: &Rule, locale: Locale) -> Cow<'static, str> {
    let (max, span) = (grouped(u64::from(rule.max)), short_span(&rule.span, locale));
    t!("limit-page.nearest", locale = locale.code(), used = grouped(used), max = max, span = span)
}

fn short_span(span: &RuleSpan, locale: Locale) -> String {
    match span {
        RuleSpan::Sliding(window) => {
            in_units(u64::try_from(window.as_millis()).unwrap_or(u64::MAX), &SHORT_UNITS, locale)
        }
        RuleSpan::Calendar { unit, .. } => {
            locale.named_word("rule", &format!("unit-{}", unit.as_str())).into_owned()
        }
    }
}

/// `3 / 1 min → CAPTCHA`
pub fn chip(rule: &Rule, locale: Locale) -> String {
    let span = short_span(&rule.span, locale);
    let key = match rule.then {
        RuleAction::Captcha => "rule.chip-captcha",
        RuleAction::Block => "rule.chip-block",
    };
    t!(key, locale = locale.code(), max = grouped(u64::from(rule.max)), span = span).into_owned()
}

/// Whether a limit acts, only watches, or is off, as a locale key.
pub fn mode(limit: &Limit) -> &'static str {
    match limit.mode() {
        _ if limit.rules().is_empty() => "limit-page.off",
        LimitMode::Monitor => "limit-page.watches",
        LimitMode::Enforce => "limit-page.enforces",
    }
}

/// From one version of a limit to another: `3 → 2 in 1 minute`.
pub fn differences(before: Option<&Limit>, after: Option<&Limit>, locale: Locale) -> Vec<Cow<'static, str>> {
    let rules = |limit: Option<&Limit>| limit.map(|limit| limit.rules().to_vec()).unwrap_or_default();
    let (old, new) = (rules(before), rules(after));
    let mut gone: Vec<&Rule> = old.iter().filter(|rule| !new.contains(rule)).collect();
    let mut told: Vec<Cow<'static, str>> = Vec::new();
    if let (Some(before), Some(after)) = (before, after)
        && mode(before) != mode(after)
    {
        told.push(format!("{} → {}", locale.t(mode(before)), locale.t(mode(after))).into());
    }
    let code = locale.code();
    for rule in new.iter().filter(|rule| !old.contains(rule)) {
        told.push(match gone.iter().position(|was| was.span == rule.span && was.then == rule.then) {
            Some(at) => {
                let [from, to] = [gone.remove(at).max, rule.max].map(|max| grouped(u64::from(max)));
                t!("rule.differs", locale = code, from = from, to = to, span = span(&rule.span, locale))
            }
            None => t!("rule.added", locale = code, rule = chip(rule, locale)),
        });
    }
    told.extend(gone.into_iter().map(|rule| t!("rule.removed", locale = code, rule = chip(rule, locale))));
    told
}

/// `1 minute`, or `calendar month in Asia/Shanghai`.
fn span(span: &RuleSpan, locale: Locale) -> String {
    match span {
        RuleSpan::Sliding(window) => exactly(*window, locale),
        RuleSpan::Calendar { unit, zone } => {
            let zone = zone.iana_name().unwrap_or("UTC");
            let unit = locale.named_word("rule", &format!("unit-{}", unit.as_str()));
            t!("rule.unit-in", locale = locale.code(), unit = unit, zone = zone).into_owned()
        }
    }
}

const SHORT_UNITS: [(u64, [&str; 2]); 5] = [
    (86_400_000, ["span.d"; 2]),
    (3_600_000, ["span.h"; 2]),
    (60_000, ["span.min"; 2]),
    (1_000, ["span.s"; 2]),
    (1, ["span.ms"; 2]),
];

/// A span with all of its units: a limit's window is not rounded.
pub fn exactly(span: Duration, locale: Locale) -> String {
    const UNITS: [(u64, [&str; 2]); 5] = [
        (86_400_000, ["span.day", "span.days"]),
        (3_600_000, ["span.hour", "span.hours"]),
        (60_000, ["span.minute", "span.minutes"]),
        (1_000, ["span.second", "span.seconds"]),
        (1, ["span.millisecond", "span.milliseconds"]),
    ];
    in_units(u64::try_from(span.as_millis()).unwrap_or(u64::MAX), &UNITS, locale)
}

/// `1,204,000`
pub fn grouped(number: impl Borrow<u64>) -> String {
    let digits = number.borrow().to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The share in whole per cent; None if the whole is zero.
pub fn share(part: u64, whole: u64) -> Option<u64> {
    (whole > 0).then(|| (u128::from(part) * 100 / u128::from(whole)) as u64)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn a_rule_is_a_sentence_that_says_when_and_what() {
        let minute = Rule::sliding(3, Duration::from_secs(60), RuleAction::Captcha);
        let english = "3 failed sign-ins within 1 minute, then a CAPTCHA";
        assert_eq!(sentence("login-account", &minute, Locale::En), english);
        let chinese = "1 分钟内登录失败 3 次后，须完成人机验证";
        assert_eq!(sentence("login-account", &minute, Locale::ZhCn), chinese);
        let zone = TimeZone::get("Asia/Shanghai").unwrap();
        let month = Rule {
            max: 1,
            span: RuleSpan::Calendar { unit: gatehouse_limiter::CalendarUnit::Month, zone },
            then: RuleAction::Block,
        };
        let english = "1 hit in a calendar month (Asia/Shanghai), then refused";
        assert_eq!(sentence("custom.leave-campus", &month, Locale::En), english);
        let chinese = "每个自然月（Asia/Shanghai）计数 1 次后，一律拒绝";
        assert_eq!(sentence("custom.leave-campus", &month, Locale::ZhCn), chinese);
    }

    #[test]
    fn a_rule_is_a_chip_and_a_change_of_rules_is_told_by_them() {
        let rule = |max, seconds, then| Rule::sliding(max, Duration::from_secs(seconds), then);
        let limit = |rules: &[Rule], mode| Limit::new("login-account", rules.to_vec(), mode).unwrap();
        let (three, two) = (rule(3, 60, RuleAction::Captcha), rule(2, 60, RuleAction::Captcha));
        let day = rule(1_000, 86_400, RuleAction::Block);
        assert_eq!(chip(&three, Locale::En), "3 / 1 min → CAPTCHA");
        assert_eq!(chip(&day, Locale::En), "1,000 / 1 d → refuse");
        assert_eq!(chip(&day, Locale::ZhCn), "1,000 / 1 天 → 拒绝");
        let was = limit(&[three.clone(), day.clone()], LimitMode::Enforce);
        let told = |after: Option<&Limit>| differences(Some(&was), after, Locale::En);
        assert_eq!(told(Some(&was)), Vec::<String>::new());
        assert_eq!(told(Some(&limit(&[two, day.clone()], LimitMode::Enforce))), ["3 → 2 in 1 minute"]);
        let hour = rule(9, 3_600, RuleAction::Block);
        assert_eq!(
            told(Some(&limit(&[three, hour], LimitMode::Monitor))),
            ["enforce → monitor", "added 9 / 1 h → refuse", "removed 1,000 / 1 d → refuse"]
        );
        assert_eq!(told(None), ["removed 3 / 1 min → CAPTCHA", "removed 1,000 / 1 d → refuse"]);
    }

    #[test]
    fn gateways_and_backends_have_names_in_the_readers_language() {
        for name in ["outbox", "http", "twilio", "aliyun", "tencent", "none"] {
            assert_ne!(gateway(name, Locale::ZhCn), name);
        }
        for &kind in <BackendKind as strum::VariantArray>::VARIANTS {
            assert_ne!(backend(kind, Locale::ZhCn), kind.into_str());
        }
        assert_eq!(backend(BackendKind::File, Locale::ZhCn), "文件");
    }

    #[test]
    fn a_window_is_told_exactly() {
        for (millis, words) in [
            (100, "100 milliseconds"),
            (1_500, "1 second 500 milliseconds"),
            (60_000, "1 minute"),
            (90_061_000, "1 day 1 hour 1 minute 1 second"),
        ] {
            assert_eq!(exactly(Duration::from_millis(millis), Locale::En), words);
        }
    }

    #[test]
    fn long_numbers_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        assert_eq!((share(1, 3), share(0, 0)), (Some(33), None));
    }
}
