//! An event in words, for lists of events.

use std::borrow::Cow;

use rust_i18n::t;

use crate::audit::{
    Action, AttackEntry, AttackKind, EventEntry, FROM_DEVICE, MaskedSubject, Outcome, SubjectKind,
};
use crate::config::BESIDE_LIMITS;
use crate::web::console::attack;
use crate::web::console::limit_text::{grouped, title};
use crate::web::console::subject_link::{self, SubjectLink};
use crate::web::http::{Locale, Moment};

/// One row: an event, or several events combined.
pub struct EventRow {
    pub at: Moment,
    /// The moment of the last of several events, if it differs.
    pub until: Option<Moment>,
    pub count: u64,
    action: Action,
    outcome: Outcome,
    name: Option<String>,
    limit: Option<String>,
    /// Counts from 1.
    rule: Option<i64>,
    pub noted: bool,
    pub solved: bool,
    pub subjects: Vec<SubjectLink>,
    /// For example the reason that an administrator gave.
    pub details: Vec<(String, String)>,
    pub request: Option<String>,
    pub lead: Option<String>,
}

/// The rows of a page, in which different subjects look different.
pub fn rows(entries: Vec<EventEntry>) -> Vec<EventRow> {
    let mut rows: Vec<EventRow> = entries.into_iter().map(EventRow::from).collect();
    subject_link::tell_apart(rows.iter_mut().flat_map(|row| &mut row.subjects));
    rows
}

impl From<EventEntry> for EventRow {
    fn from(entry: EventEntry) -> Self {
        let subjects = [
            (SubjectKind::Account, &entry.account),
            (SubjectKind::Phone, &entry.phone),
            match &entry.address {
                Some(_) => (SubjectKind::Address, &entry.address),
                None => (SubjectKind::Network, &entry.network),
            },
        ];
        let link = |(kind, shown): (SubjectKind, &Option<MaskedSubject>)| {
            shown.as_ref().map(|shown| SubjectLink::new(kind, shown))
        };
        let several = entry.count > 1 && entry.until.seconds() > entry.at.seconds();
        Self {
            at: Moment(entry.at),
            until: several.then_some(Moment(entry.until)),
            count: u64::try_from(entry.count).unwrap_or(0),
            action: entry.action,
            outcome: entry.outcome,
            subjects: subjects.into_iter().filter_map(link).collect(),
            details: entry.detail.as_deref().map(details).unwrap_or_default(),
            request: entry.request,
            name: entry.name,
            limit: entry.limit,
            rule: entry.rule.map(|rule| rule + 1),
            noted: entry.noted,
            solved: entry.solved,
            lead: None,
        }
    }
}

impl From<&AttackEntry> for EventRow {
    fn from(attack: &AttackEntry) -> Self {
        Self {
            at: Moment(attack.began_at),
            until: Some(Moment(attack.seen_at)),
            count: attack.figures.attempts,
            action: Action::Attack,
            outcome: if attack.ended_at.is_some() { Outcome::Ended } else { Outcome::Began },
            name: Some(attack.kind.into_str().to_owned()),
            limit: None,
            rule: None,
            noted: false,
            solved: false,
            subjects: Vec::new(),
            details: match attack.realm.as_str() {
                "" => Vec::new(),
                realm => vec![("realm".to_owned(), realm.to_owned())],
            },
            request: None,
            lead: Some(attack::events_of(attack)),
        }
    }
}

impl EventRow {
    /// The moment by which it is in the list: of an attack, that of its last event.
    pub fn last(&self) -> Moment {
        match (&self.lead, self.until) {
            (Some(_), Some(until)) => until,
            _ => self.at,
        }
    }

    pub fn what(&self, locale: Locale) -> Cow<'static, str> {
        match (self.action, self.name.as_deref()) {
            (Action::Admin, Some(act)) => locale.named_word("act", act),
            (Action::Custom, Some(name)) => Cow::Owned(name.to_owned()),
            // It is written as the scope of its token and the look-up write it.
            (Action::Attempt, Some(realm)) => Cow::Owned(format!("guard:{realm}")),
            (Action::Reset, Some(realm)) => {
                t!("event.reset-at", locale = locale.code(), realm = realm)
            }
            (action @ (Action::Send | Action::Guess), Some(name)) if is_of_program(name) => {
                Cow::Owned(format!("{} ({name})", action_word(action, locale)))
            }
            (Action::Attack, Some(kind)) if kind.parse::<AttackKind>().is_ok() => {
                locale.named_word("event", &format!("attack-{kind}"))
            }
            (Action::Attack, Some(kind)) => Cow::Owned(kind.to_owned()),
            (Action::SignIn, Some(FROM_DEVICE)) => locale.t("event.sign-in-known"),
            (Action::PasswordDisabled, Some(FROM_DEVICE)) => locale.t("event.device-disabled"),
            (action, _) => action_word(action, locale),
        }
    }

    pub fn outcome(&self, locale: Locale) -> Cow<'static, str> {
        outcome_word(self.outcome, locale)
    }

    pub fn tone(&self) -> &'static str {
        match self.outcome {
            Outcome::Ok | Outcome::Asked | Outcome::Ended => "good",
            Outcome::Wrong | Outcome::Challenged | Outcome::Unknown | Outcome::Withheld | Outcome::Busy => {
                "warn"
            }
            Outcome::Throttled
            | Outcome::Failed
            | Outcome::Unavailable
            | Outcome::Refused
            | Outcome::Began => "bad",
        }
    }

    pub fn why(&self, locale: Locale) -> Option<String> {
        let limit = title(self.limit.as_deref()?, locale);
        Some(match self.rule {
            // Only limits have rules.
            Some(rule) if !self.limit.as_deref().is_some_and(|name| BESIDE_LIMITS.contains(&name)) => {
                t!("event.by-rule", locale = locale.code(), limit = limit, rule = rule).into_owned()
            }
            _ => limit.into_owned(),
        })
    }

    pub fn times(&self) -> String {
        format!("× {}", grouped(self.count))
    }
}

/// Whether codes were those of another program, as the scope of its token names it.
fn is_of_program(name: &str) -> bool {
    name.contains(':')
}

/// The fields of a JSON object as texts for people. Any other text is returned unchanged.
fn details(json: &str) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(json) else {
        return vec![(String::new(), json.to_owned())];
    };
    let text = |value: serde_json::Value| match value {
        serde_json::Value::String(text) => text,
        other => other.to_string(),
    };
    fields.into_iter().map(|(name, value)| (name, text(value))).collect()
}

pub fn action_word(action: Action, locale: Locale) -> Cow<'static, str> {
    locale.named_word("event", action.into_str())
}

pub fn outcome_word(outcome: Outcome, locale: Locale) -> Cow<'static, str> {
    locale.named_word("outcome", outcome.into_str())
}
