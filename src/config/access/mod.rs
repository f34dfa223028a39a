//! `[access]`: answers to an attack. Each has an end and a reason, and has no effect from its end on; a document
//! with ended ones stays valid.

mod networks;
mod read;
mod rules;
mod written;

use ipnet::IpNet;

use crate::clock::Micros;

pub use rules::AccessRules;
pub use written::moment_text;

/// The contents of `[access]`, with entries that have ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AccessSettings {
    /// Networks that are refused.
    pub deny: Vec<AccessNetwork>,
    /// Networks for which the limits of addresses and networks are ten times as high.
    pub allow: Vec<AccessNetwork>,
    /// Until then nobody goes on without a solved CAPTCHA, except known devices at their own account.
    pub challenge_everyone_until: Option<Micros>,
    /// Prefixes of numbers that get no message.
    pub pause_sms: Vec<SmsPause>,
}

/// A network that is refused or exempt, until when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessNetwork {
    pub network: IpNet,
    pub until: Micros,
    pub reason: String,
}

/// Numbers that get no message, until when and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmsPause {
    /// In E.164: `+86138`.
    pub prefix: String,
    pub until: Micros,
    pub reason: String,
}

/// The keys of the section.
pub(super) const KEYS: [&str; 4] = ["deny", "allow", "challenge_everyone_until", "pause_sms"];

impl AccessSettings {
    /// Without what has ended.
    #[must_use]
    pub fn in_force(&self, now: Micros) -> Self {
        let networks = |all: &[AccessNetwork]| all.iter().filter(|it| now < it.until).cloned().collect();
        Self {
            deny: networks(&self.deny),
            allow: networks(&self.allow),
            challenge_everyone_until: self.challenge_everyone_until.filter(|until| now < *until),
            pause_sms: self.pause_sms.iter().filter(|it| now < it.until).cloned().collect(),
        }
    }

    /// How many answers these are.
    pub fn count(&self) -> usize {
        let everyone = usize::from(self.challenge_everyone_until.is_some());
        everyone + self.deny.len() + self.allow.len() + self.pause_sms.len()
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
