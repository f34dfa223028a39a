//! The fields of every form with a draft, and how it shows mistakes.

use std::borrow::Cow;

use crate::tuning::DraftError;
use crate::web::console::LONGEST_REASON;
use crate::web::form::fields::value;
use crate::web::kit::locale::Locale;

/// The button that submitted a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Act {
    /// Also the effect of Enter: it changes nothing.
    #[default]
    Try,
    Save,
    AddRule,
    RemoveRule(usize),
    RestoreDefault,
}

impl Act {
    fn parse(word: &str) -> Self {
        match word {
            "save" => Self::Save,
            "add" => Self::AddRule,
            "default" => Self::RestoreDefault,
            _ => match word.strip_prefix("remove-").and_then(|index| index.parse().ok()) {
                Some(index) => Self::RemoveRule(index),
                None => Self::Try,
            },
        }
    }
}

/// How much recorded traffic is replayed for a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stretch {
    Hour,
    #[default]
    Day,
    Week,
}

impl Stretch {
    pub const ALL: [Self; 3] = [Self::Hour, Self::Day, Self::Week];

    pub fn parse(word: &str) -> Self {
        Self::ALL.into_iter().find(|stretch| stretch.value() == word).unwrap_or_default()
    }

    pub const fn value(self) -> &'static str {
        match self {
            Self::Hour => "1h",
            Self::Day => "24h",
            Self::Week => "7d",
        }
    }

    pub const fn key(self) -> &'static str {
        match self {
            Self::Hour => "draft.hour",
            Self::Day => "draft.day",
            Self::Week => "draft.week",
        }
    }

    pub const fn hours(self) -> u64 {
        match self {
            Self::Hour => 1,
            Self::Day => 24,
            Self::Week => 7 * 24,
        }
    }
}

/// Other fields of every form with a draft.
#[derive(Debug, Clone, Default)]
pub struct Controls {
    pub act: Act,
    /// The version in force when the page was opened.
    pub version: String,
    pub reason: String,
    pub stretch: Stretch,
    pub csrf_token: String,
    /// The reason is required but missing.
    pub reason_missing: bool,
}

impl Controls {
    pub fn read(pairs: &[(String, String)]) -> Self {
        let text = |name: &str| value(pairs, name).to_owned();
        Self {
            act: Act::parse(value(pairs, "do")),
            version: text("version"),
            reason: text("reason")
                .trim()
                .chars()
                .filter(|letter| !letter.is_control())
                .take(LONGEST_REASON)
                .collect(),
            stretch: Stretch::parse(value(pairs, "stretch")),
            csrf_token: text("csrf_token"),
            reason_missing: false,
        }
    }
}

impl DraftError {
    /// The rule's index and the name of its part, if the mistake is about a rule.
    pub fn rule_part(&self) -> Option<(usize, &str)> {
        let (_, rest) = self.field.rsplit_once("rules[")?;
        let (index, part) = rest.split_once(']')?;
        Some((index.parse().ok()?, part.strip_prefix('.').unwrap_or(part)))
    }

    /// The expected value, in the reader's language; None if only the message describes it.
    pub fn right(&self, locale: Locale) -> Option<Cow<'static, str>> {
        let key = match self.rule_part()?.1 {
            "max" => "draft.right-max",
            "window" => "draft.right-window",
            "timezone" => "draft.right-zone",
            "per" => "draft.right-span",
            "then" => "draft.right-then",
            _ => return None,
        };
        Some(locale.t(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        url::form_urlencoded::parse(text.as_bytes()).into_owned().collect()
    }

    #[test]
    fn enter_tries_and_never_saves() {
        assert_eq!(Controls::read(&pairs("max-0=3")).act, Act::Try);
        assert_eq!(Controls::read(&pairs("do=remove-2")).act, Act::RemoveRule(2));
        assert_eq!(Controls::read(&pairs("do=save&reason=+ca%00lm+")).reason, "calm");
    }

    #[test]
    fn a_mistake_is_found_at_its_field() {
        let field = "limits.custom.reply.rules[3].window".to_owned();
        let mistake = DraftError { field, message: "is not a duration".to_owned(), line: Some(4) };
        assert_eq!(mistake.rule_part(), Some((3, "window")));
        assert!(mistake.right(Locale::En).is_some());
        let field = "limits.sms-phone.rules[1]".to_owned();
        assert_eq!(DraftError { field, ..mistake }.rule_part(), Some((1, "")));
    }
}
