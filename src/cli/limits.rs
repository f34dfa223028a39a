//! `gatehouse limits show`

use gatehouse::config::Loaded;
use gatehouse::throttle::{CalendarUnit, Limit, Mode, Rule, Span, Then};

pub fn show(loaded: &Loaded) {
    for limit in loaded.live.snapshot().limits.iter() {
        println!("{}{}", limit.name(), mode(limit));
        for rule in limit.rules() {
            println!("  {}", in_words(rule));
        }
    }
}

fn mode(limit: &Limit) -> &'static str {
    match (limit.rules().is_empty(), limit.mode()) {
        (true, _) => "  (off)",
        (false, Mode::Monitor) => "  (counted, not enforced)",
        (false, Mode::Enforce) => "",
    }
}

fn in_words(rule: &Rule) -> String {
    let span = match &rule.span {
        Span::Sliding(window) => format!("in any {}", humantime::format_duration(*window)),
        Span::Calendar { unit, zone } => {
            format!("a {} in {}", unit_name(*unit), zone.iana_name().unwrap_or("UTC"))
        }
    };
    let then = match rule.then {
        Then::Captcha => "then a CAPTCHA",
        Then::Block => "then refused",
    };
    format!("at most {} {span}, {then}", rule.max)
}

const fn unit_name(unit: CalendarUnit) -> &'static str {
    match unit {
        CalendarUnit::Minute => "minute",
        CalendarUnit::Hour => "hour",
        CalendarUnit::Day => "day",
        CalendarUnit::Week => "week",
        CalendarUnit::Month => "month",
        CalendarUnit::Year => "year",
    }
}
