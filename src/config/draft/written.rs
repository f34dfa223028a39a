//! Writes a limit: in TOML for the document, in JSON for the API.

use std::time::Duration;

use serde_json::{Value as Json, json};
use toml_edit::{Array, InlineTable, Table};

use crate::throttle::{Limit, LimitMode, Rule, RuleSpan};

/// The table of a limit, without the defaults.
pub(super) fn limit_toml(limit: &Limit) -> Table {
    let mut rules: Array = limit.rules().iter().map(rule_toml).collect();
    if rules.len() > 2 {
        rules.iter_mut().for_each(|rule| rule.decor_mut().set_prefix("\n    "));
        rules.set_trailing_comma(true);
        rules.set_trailing("\n");
    }
    let mut table = Table::new();
    if limit.mode() == LimitMode::Monitor {
        table.insert("mode", toml_edit::value("monitor"));
    }
    table.insert("rules", toml_edit::value(rules));
    table
}

fn rule_toml(rule: &Rule) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert("max", i64::from(rule.max).into());
    match &rule.span {
        RuleSpan::Sliding(window) => drop(table.insert("window", span_text(*window).into())),
        RuleSpan::Calendar { unit, zone } => {
            table.insert("per", unit.as_str().into());
            if let Some(name) = zone.iana_name().filter(|name| *name != "UTC") {
                table.insert("timezone", name.into());
            }
        }
    }
    table.insert("then", rule.then.as_str().into());
    table
}

/// As [`DocumentDraft::Json`](super::DocumentDraft::Json) takes it.
pub fn rule_json(rule: &Rule) -> Json {
    let then = rule.then.as_str();
    match &rule.span {
        RuleSpan::Sliding(window) => json!({ "max": rule.max, "window": span_text(*window), "then": then }),
        RuleSpan::Calendar { unit, zone } => json!({
            "max": rule.max,
            "per": unit.as_str(),
            "timezone": zone.iana_name().unwrap_or("UTC"),
            "then": then,
        }),
    }
}

/// A duration as the document takes it, to the nanosecond: `1m`, `24h`, `7d`, `1h 30m`.
pub fn span_text(span: Duration) -> String {
    const HOUR: u64 = 60 * 60;
    let hours = span.as_secs() / HOUR;
    // A day is usually written as 24h.
    let days = if hours < 48 { 0 } else { hours / 24 };
    let rest = span - Duration::from_secs(hours * HOUR);
    let mut parts = Vec::new();
    for (count, unit) in [(days, "d"), (hours - days * 24, "h")] {
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        }
    }
    if !rest.is_zero() || parts.is_empty() {
        parts.push(humantime::format_duration(rest).to_string());
    }
    parts.join(" ")
}
