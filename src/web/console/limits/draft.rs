//! The form of one limit: its input, as TOML.

use crate::throttle::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use crate::web::console::words::unit_key;
use crate::web::form::fields::value;

/// A rule as entered in the form, valid or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleRow {
    pub max: String,
    /// `window`, or a calendar unit.
    pub span: String,
    pub window: String,
    pub zone: String,
    pub then: String,
}

impl Default for RuleRow {
    fn default() -> Self {
        let text = str::to_owned;
        Self { max: text(""), span: text("window"), window: text(""), zone: text(""), then: text("block") }
    }
}

impl From<&Rule> for RuleRow {
    fn from(rule: &Rule) -> Self {
        let (span, window, zone) = match &rule.span {
            RuleSpan::Sliding(window) => {
                ("window".to_owned(), humantime::format_duration(*window).to_string(), String::new())
            }
            RuleSpan::Calendar { unit, zone } => {
                let unit = unit_key(*unit).rsplit('-').next().unwrap_or_default();
                (unit.to_owned(), String::new(), zone.iana_name().unwrap_or("UTC").to_owned())
            }
        };
        let then = match rule.then {
            RuleAction::Captcha => "captcha",
            RuleAction::Block => "block",
        };
        Self { max: rule.max.to_string(), span, window, zone, then: then.to_owned() }
    }
}

/// One limit as entered in its form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitForm {
    pub monitor: bool,
    pub rows: Vec<RuleRow>,
}

impl From<&Limit> for LimitForm {
    fn from(limit: &Limit) -> Self {
        let rows = limit.rules().iter().map(RuleRow::from).collect();
        Self { monitor: limit.mode() == LimitMode::Monitor, rows }
    }
}

impl LimitForm {
    /// The rows in the order of their numbers, which have no gaps.
    pub fn read(pairs: &[(String, String)]) -> Self {
        let row = |index: usize| {
            let text = |part: &str| value(pairs, &format!("{part}-{index}")).trim().to_owned();
            let there = pairs.iter().any(|(name, _)| *name == format!("max-{index}"));
            there.then(|| RuleRow {
                max: text("max"),
                span: text("span"),
                window: text("window"),
                zone: text("zone"),
                then: text("then"),
            })
        };
        // One more than a limit allows, so that a surplus rule is reported and not lost.
        let rows = (0..crate::throttle::MOST_RULES + 2).map_while(row).collect();
        Self { monitor: value(pairs, "mode") == "monitor", rows }
    }

    /// The limit's table in TOML. Input that is not a number is kept as typed, so that parsing rejects it
    /// with a reason.
    pub fn toml(&self, name: &str) -> String {
        let mode = if self.monitor { "mode = \"monitor\"\n" } else { "" };
        let rules: Vec<String> = self.rows.iter().map(RuleRow::toml).collect();
        let rules = match rules.as_slice() {
            [] => "rules = []".to_owned(),
            [one] => format!("rules = [{one}]"),
            many => format!("rules = [\n    {},\n]", many.join(",\n    ")),
        };
        format!("[limits.{name}]\n{mode}{rules}\n")
    }
}

impl RuleRow {
    fn toml(&self) -> String {
        let max = match self.max.parse::<i64>() {
            Ok(max) => max.to_string(),
            Err(_) => quoted(&self.max),
        };
        let span = if self.span == "window" {
            format!("window = {}", quoted(&self.window))
        } else if self.zone.is_empty() {
            format!("per = {}", quoted(&self.span))
        } else {
            format!("per = {}, timezone = {}", quoted(&self.span), quoted(&self.zone))
        };
        format!("{{ max = {max}, {span}, then = {} }}", quoted(&self.then))
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            control if control.is_control() => out.push_str(&format!("\\u{:04X}", u32::from(control))),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    #[test]
    fn a_limit_goes_through_its_form_and_back_unchanged() {
        let text = r#"[limits.login-account]
            mode = "monitor"
            rules = [{ max = 3, window = "90s", then = "captcha" }, { max = 9, per = "month", timezone = "Asia/Shanghai" }]"#;
        let read =
            |toml: &str| crate::config::parse(Path::new("t.toml"), toml, &[]).unwrap().live.limits.clone();
        let limit = read(text).login_account;
        let again = read(&LimitForm::from(&limit).toml("login-account")).login_account;
        assert_eq!(again, limit);
    }

    #[test]
    fn whatever_is_typed_is_kept_and_stays_one_value() {
        let form = LimitForm::read(&pairs(
            "mode=enforce&max-0=three&span-0=window&window-0=1m%22%2C+x+%3D+1&then-0=block&max-1=",
        ));
        assert_eq!(form.rows[0].max, "three");
        assert_eq!(form.rows.len(), 2);
        let toml: toml::Table = form.toml("login-account").parse().unwrap();
        let rule = &toml["limits"]["login-account"]["rules"][0];
        assert_eq!(rule["max"].as_str(), Some("three"));
        assert_eq!(rule["window"].as_str(), Some("1m\", x = 1"));
    }

    #[test]
    fn a_window_is_written_as_it_is_read() {
        let rule = Rule::sliding(5, Duration::from_millis(100), RuleAction::Block);
        assert_eq!(RuleRow::from(&rule).window, "100ms");
    }
}
