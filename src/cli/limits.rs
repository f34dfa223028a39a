//! `gatehouse limits show`

use std::path::Path;

use gatehouse::config::{HomeKind, Loaded, Look};
use gatehouse::throttle::{Limit, Mode, Rule, Span, Then};

use super::log::tell;

/// What is in force, or would be if a server started now; where it is kept is told first.
pub fn show(loaded: &Loaded, file: &Path) {
    let home = &loaded.settings.home;
    let (place, look) = match loaded.live.home() {
        HomeKind::Fixed | HomeKind::File => (file.display().to_string(), Look::Followed),
        HomeKind::Redis => (format!("redis, key {}", home.key), loaded.look()),
        HomeKind::Nacos => (home.place().display().to_string(), loaded.look()),
    };
    tell!("home:    {place}");
    match (look, loaded.live.in_force().fingerprint) {
        (Look::Followed, Some(version)) => {
            tell!("version: {version}\n");
        }
        (Look::Followed, None) | (Look::Empty, _) => {
            tell!(
                "version: none yet; the first server to start stores these limits of {}:\n",
                file.display()
            );
        }
        (Look::Refused(error), _) => {
            tell!("version: refused; these are the limits of {}:\n{error}\n", file.display());
        }
        (Look::Down(reason), _) => {
            tell!("version: unknown ({reason}); these are the limits of {}:\n", file.display());
        }
    }
    for limit in loaded.live.snapshot().limits.iter() {
        tell!("{}{}", limit.name(), mode(limit));
        for rule in limit.rules() {
            tell!("  {}", in_words(rule));
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
            format!("a {} in {}", unit.as_str(), zone.iana_name().unwrap_or("UTC"))
        }
    };
    let then = match rule.then {
        Then::Captcha => "then a CAPTCHA",
        Then::Block => "then refused",
    };
    format!("at most {} {span}, {then}", rule.max)
}
