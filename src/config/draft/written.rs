//! A limit as it is written down: in TOML for the document, in JSON for the API.

use std::time::Duration;

use serde_json::{Value as Json, json};
use toml_edit::{Array, InlineTable, Value};

use crate::throttle::{Rule, Span};

pub(super) fn rules_toml(rules: &[Rule]) -> Array {
    let mut array = Array::new();
    for rule in rules {
        array.push(Value::InlineTable(rule_toml(rule)));
    }
    if rules.len() > 2 {
        for rule in array.iter_mut() {
            rule.decor_mut().set_prefix("\n    ");
        }
        array.set_trailing_comma(true);
        array.set_trailing("\n");
    }
    array
}

pub(super) fn rule_toml(rule: &Rule) -> InlineTable {
    let mut table = InlineTable::new();
    table.insert("max", i64::from(rule.max).into());
    match &rule.span {
        Span::Sliding(window) => drop(table.insert("window", span_text(*window).into())),
        Span::Calendar { unit, zone } => {
            table.insert("per", unit.as_str().into());
            if let Some(name) = zone.iana_name().filter(|name| *name != "UTC") {
                table.insert("timezone", name.into());
            }
        }
    }
    table.insert("then", rule.then.as_str().into());
    table
}

/// As [`Draft::Json`](super::Draft::Json) takes it.
pub fn rule_json(rule: &Rule) -> Json {
    let then = rule.then.as_str();
    match &rule.span {
        Span::Sliding(window) => json!({ "max": rule.max, "window": span_text(*window), "then": then }),
        Span::Calendar { unit, zone } => json!({
            "max": rule.max,
            "per": unit.as_str(),
            "timezone": zone.iana_name().unwrap_or("UTC"),
            "then": then,
        }),
    }
}

/// A span of time as the document takes it, to the nanosecond: `1m`, `24h`, `7d`, `1h 30m`.
pub fn span_text(span: Duration) -> String {
    const UNITS: [(u128, &str); 7] = [
        (86_400_000_000_000, "d"),
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    let nanos = span.as_nanos();
    // A day is written as most would: 24h.
    let units = if nanos < 2 * UNITS[0].0 { &UNITS[1..] } else { &UNITS[..] };
    let mut rest = nanos;
    let mut parts = Vec::new();
    for (size, name) in units {
        if rest >= *size {
            parts.push(format!("{}{name}", rest / size));
            rest %= size;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}
