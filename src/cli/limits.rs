//! `gatehouse limits show`

use std::path::Path;

use gatehouse::config::{BackendKind, LoadedConfig, ReloadResult};
use gatehouse::throttle::{Limit, LimitMode, Rule, RuleAction, RuleSpan};

use super::log::tell;

/// Shows the limits in force, or those that would be if a server started now, after the place where they are
/// kept.
pub fn show(loaded: &LoadedConfig, file: &Path) {
    let backend = &loaded.settings.backend;
    let (place, look) = match loaded.live.backend() {
        BackendKind::Fixed | BackendKind::File => (file.display().to_string(), ReloadResult::Followed),
        BackendKind::Redis => (format!("redis, key {}", backend.key), loaded.read_once()),
        BackendKind::Nacos => (backend.place().display().to_string(), loaded.read_once()),
    };
    tell!("backend: {place}");
    match (look, loaded.live.in_force().fingerprint) {
        (ReloadResult::Followed, Some(version)) => {
            tell!("version: {version}\n");
        }
        (ReloadResult::Followed, None) | (ReloadResult::Empty, _) => {
            tell!(
                "version: none yet; the first server to start stores these limits of {}:\n",
                file.display()
            );
        }
        (ReloadResult::Refused(error), _) => {
            tell!("version: refused; these are the limits of {}:\n{error}\n", file.display());
        }
        (ReloadResult::Down(reason), _) => {
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
        (false, LimitMode::Monitor) => "  (counted, not enforced)",
        (false, LimitMode::Enforce) => "",
    }
}

fn in_words(rule: &Rule) -> String {
    let span = match &rule.span {
        RuleSpan::Sliding(window) => format!("in any {}", humantime::format_duration(*window)),
        RuleSpan::Calendar { unit, zone } => {
            format!("a {} in {}", unit.as_str(), zone.iana_name().unwrap_or("UTC"))
        }
    };
    let then = match rule.then {
        RuleAction::Captcha => "then a CAPTCHA",
        RuleAction::Block => "then refused",
    };
    format!("at most {} {span}, {then}", rule.max)
}
