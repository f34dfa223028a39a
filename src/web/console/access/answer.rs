//! One answer to an attack: its words in forms, and what it adds to what is in force.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Value, json};

use crate::clock::Micros;
use crate::config::{AccessSettings, moment_text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessAnswer {
    /// Everybody solves a CAPTCHA.
    Challenge,
    /// A network is refused.
    Deny,
    /// The limits of a network are lifted.
    Allow,
    /// A prefix gets no message.
    Pause,
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

impl AccessAnswer {
    pub const ALL: [Self; 4] = [Self::Challenge, Self::Deny, Self::Allow, Self::Pause];

    /// Its name in links and forms.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Challenge => "challenge",
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Pause => "pause",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.as_str() == text)
    }

    /// The field that says whom it is about; empty if it is about everybody.
    pub const fn field(self) -> &'static str {
        match self {
            Self::Challenge => "",
            Self::Deny | Self::Allow => "network",
            Self::Pause => "prefix",
        }
    }

    /// The list in `[access]`; None if it is not in one.
    const fn list(self) -> Option<&'static str> {
        match self {
            Self::Challenge => None,
            Self::Deny => Some("deny"),
            Self::Allow => Some("allow"),
            Self::Pause => Some("pause_sms"),
        }
    }

    /// Its key in `[access]`.
    pub fn key(self) -> &'static str {
        self.list().unwrap_or("challenge_everyone_until")
    }

    /// How long it may last, to choose from. An attack lasts hours; an office stays.
    pub fn spans(self) -> impl Iterator<Item = Duration> {
        let seconds: &[u64] = match self {
            Self::Challenge => &[15 * MINUTE, HOUR, 4 * HOUR, DAY],
            Self::Deny | Self::Pause => &[15 * MINUTE, HOUR, 4 * HOUR, DAY, 7 * DAY],
            Self::Allow => &[HOUR, DAY, 7 * DAY, 30 * DAY, 365 * DAY],
        };
        seconds.iter().map(|seconds| Duration::from_secs(*seconds))
    }

    /// For the record of events: `deny 203.0.113.0/24`.
    pub fn shown(self, subject: &str) -> String {
        let subject: String = subject.trim().chars().take(64).collect();
        format!("{} {subject}", self.as_str()).trim_end().to_owned()
    }

    /// `[access]` with it; the same one that is in force already ends at the new time.
    pub fn added_to(self, current: &AccessSettings, subject: &str, until: Micros, reason: &str) -> Value {
        let mut draft = self.taken_from(current, subject);
        let until = moment_text(until);
        match self.list() {
            None => draft[self.key()] = until.into(),
            Some(list) => {
                let entry = json!({ (self.field()): subject.trim(), "until": until, "reason": reason });
                draft[list].as_array_mut().expect("a list").push(entry);
            }
        }
        draft
    }

    /// `[access]` without it.
    pub fn taken_from(self, current: &AccessSettings, subject: &str) -> Value {
        let mut draft = current.json();
        match self.list() {
            None => draft[self.key()] = "".into(),
            Some(list) => {
                let subject = canonical(subject);
                let others = draft[list].as_array_mut().expect("a list");
                others.retain(|entry| entry[self.field()].as_str() != Some(subject.as_str()));
            }
        }
        draft
    }
}

/// A network as it is written in what is in force: an address alone has its length behind it.
fn canonical(subject: &str) -> String {
    let subject = subject.trim();
    let network = subject.parse::<IpNet>().or_else(|_| subject.parse::<IpAddr>().map(IpNet::from));
    network.map_or_else(|_| subject.to_owned(), |network| network.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_added_once_and_taken_away_whole() {
        let now = Micros(1_772_366_400_000_000);
        let read = |draft: &Value| {
            let text = toml::to_string(&json!({ "access": draft })).unwrap();
            let config = crate::config::parse(std::path::Path::new("t.toml"), &text, &[]).unwrap();
            config.live.access.settings().clone()
        };
        for (answer, subject) in [
            (AccessAnswer::Challenge, ""),
            (AccessAnswer::Deny, " 203.0.113.7 "),
            (AccessAnswer::Allow, "2001:db8::/32"),
            (AccessAnswer::Pause, "+86138"),
        ] {
            let none = AccessSettings::default();
            let once = read(&answer.added_to(&none, subject, now, "an attack"));
            let later = now.plus(Duration::from_secs(60));
            let twice = read(&answer.added_to(&once, subject, later, "it goes on"));
            assert_eq!(twice, read(&answer.added_to(&none, subject, later, "it goes on")), "{answer:?}");
            assert_eq!(read(&answer.taken_from(&twice, subject)), none, "{answer:?}");
            assert_eq!(AccessAnswer::parse(answer.as_str()), Some(answer));
            assert!(
                answer.spans().any(|span| span == Duration::from_secs(3600)),
                "an hour is the usual choice"
            );
        }
    }
}
