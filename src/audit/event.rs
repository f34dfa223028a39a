//! The contents of an event: who tried what, how it ended, and which rule of which limit decided.

use crate::clock::Micros;
use crate::throttle::{Refusal, RuleAction};

/// Each variant with its text in SQL and in the API.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident => $text:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$about])* $variant),+
        }

        impl $name {
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text),+
                }
            }

            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }
    };
}

words! {
    /// What was attempted.
    Action {
        /// A sign-in with a password.
        SignIn => "sign-in",
        /// An attempt at another program's login; `name` is its realm.
        Attempt => "attempt",
        /// A new password, set with an SMS code. It forgives the account's failures.
        Reset => "reset",
        /// An account's password was disabled after too many wrong ones in a row.
        PasswordDisabled => "password-disabled",
        /// An SMS code was entered; `name` is its purpose.
        Guess => "guess",
        /// An SMS code was requested; `name` is its purpose.
        Send => "send",
        Register => "register",
        /// A large part of the total SMS budget is spent; `name` says how much.
        Budget => "budget",
        /// A challenge was requested or answered.
        Captcha => "captcha",
        /// A hit on a custom limit.
        Custom => "custom",
        /// A request from a network that is refused (`[access] deny`), of which no more is known.
        Request => "request",
        /// A configuration was loaded.
        Reload => "reload",
        /// An attack began or ended; `name` is its kind.
        Attack => "attack",
        /// An administrator's action; `name` says which.
        Admin => "admin",
    }
}

words! {
    /// How it ended.
    Outcome {
        Ok => "ok",
        /// It was checked, and is wrong.
        Wrong => "wrong",
        /// A challenge must be solved with it.
        Challenged => "challenged",
        Throttled => "throttled",
        /// The server was too busy.
        Busy => "busy",
        /// A challenge was issued.
        Asked => "asked",
        /// Possibly sent: the gateway did not say.
        Unknown => "unknown",
        /// Codes were short: the answer said that it was sent, but it was not.
        Withheld => "withheld",
        /// It failed for a reason other than a limit; `name` or `detail` says which.
        Failed => "failed",
        /// Something that it needs is out.
        Unavailable => "unavailable",
        /// Not allowed, or not applied.
        Refused => "refused",
        /// Something that lasts began.
        Began => "began",
        Ended => "ended",
    }
}

/// The detail of a right password beside other attempts: the failures of its account were not forgiven.
pub const NOT_FORGIVEN: &str = r#"{"forgave":false}"#;
/// The name of a password attempt from a known device, which no log of the account counts. The detail says
/// which device.
pub const FROM_DEVICE: &str = "device";
/// The first field of that detail. At another program's login, where the name is the realm's, it alone tells.
pub const DEVICE: &str = "device";
/// How such a detail begins.
pub const DEVICE_FIRST: &str = r#"{"device":"#;

/// One event. What is in clear stays in memory: of subjects, only a keyed hash and a mask are written.
#[derive(Clone)]
pub struct AuditEvent<'a> {
    /// When it was decided, by the clock that decided.
    pub at: Micros,
    /// For a failure: from when it counts.
    pub settled: Option<Micros>,
    pub action: Action,
    pub outcome: Outcome,
    pub name: Option<&'a str>,
    /// The rule that refused it or, if noted, would have refused it.
    pub why: Option<EventRule<'a>>,
    /// The limit that it is about, if no rule decided.
    pub limit: Option<&'a str>,
    /// A challenge was solved with it.
    pub solved: bool,
    pub account: Option<EventSubject<'a>>,
    pub address: Option<EventSubject<'a>>,
    pub network: Option<EventSubject<'a>>,
    pub phone: Option<EventSubject<'a>>,
    pub prefix: Option<EventSubject<'a>>,
    /// The account that acted in the console.
    pub actor: Option<&'a str>,
    pub detail: Option<String>,
}

impl AuditEvent<'_> {
    /// About nobody in particular; the rest is filled in with `..`.
    pub const fn new(at: Micros, action: Action, outcome: Outcome) -> Self {
        Self {
            at,
            settled: None,
            action,
            outcome,
            name: None,
            why: None,
            limit: None,
            solved: false,
            account: None,
            address: None,
            network: None,
            phone: None,
            prefix: None,
            actor: None,
            detail: None,
        }
    }
}

/// The rule that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRule<'a> {
    pub limit: &'a str,
    /// The index of the rule, from 0.
    pub rule: usize,
    /// When the hit that causes the wait stops counting: attempts stopped by the same hit are one episode.
    /// Zero if no hit causes it.
    pub frees_at: Micros,
    /// The limit is in monitor mode.
    pub noted: bool,
}

impl Outcome {
    /// What a refusal means for the client.
    pub const fn refused(refusal: &Refusal) -> Self {
        match refusal.then {
            RuleAction::Captcha => Self::Challenged,
            RuleAction::Block => Self::Throttled,
        }
    }
}

impl<'a> EventRule<'a> {
    /// By an enforced limit.
    pub const fn refused(limit: &'a str, refusal: &Refusal) -> Self {
        Self { limit, rule: refusal.rule, frees_at: refusal.frees_at, noted: false }
    }

    /// By something that no hit causes: a brake, or `[access]`.
    pub const fn by_nobody(limit: &'a str) -> Self {
        Self { limit, rule: 0, frees_at: Micros(0), noted: false }
    }

    /// By a limit in monitor mode.
    pub const fn noted(limit: &'a str, refusal: &Refusal) -> Self {
        Self { noted: true, ..Self::refused(limit, refusal) }
    }
}

/// The subject of an event.
#[derive(Clone, Copy)]
pub enum EventSubject<'a> {
    Account {
        id: &'a [u8; 16],
        /// Will be masked.
        login: &'a str,
    },
    /// A name without an account.
    Login(&'a str),
    /// A name at another program's login.
    Realm {
        id: &'a [u8; 16],
        /// Will be masked.
        login: &'a str,
    },
    /// Its key and mask from before.
    Recorded {
        key: i64,
        mask: &'a str,
    },
    /// A subject of a custom limit.
    Custom(&'a str),
    /// The bytes that limits count: a 4 or a 6, and the address (for IPv6 its first half).
    Address(&'a [u8]),
    Network(&'a [u8]),
    /// In E.164.
    Phone(&'a str),
    /// A dialling prefix.
    Prefix(&'a str),
}

impl EventSubject<'_> {
    /// The input of its key: a tag for its kind, and bytes that identify it. An error if it has its key already.
    pub(super) fn input(&self) -> Result<([u8; 8], &[u8]), i64> {
        Ok(match self {
            Self::Recorded { key, .. } => return Err(*key),
            Self::Account { id, .. } => (*b"account ", *id),
            Self::Realm { id, .. } => (*b"realm   ", *id),
            Self::Login(name) => (*b"login   ", name.as_bytes()),
            Self::Custom(name) => (*b"custom  ", name.as_bytes()),
            Self::Address(bytes) => (*b"address ", bytes),
            Self::Network(bytes) => (*b"network ", bytes),
            Self::Phone(number) => (*b"phone   ", number.as_bytes()),
            Self::Prefix(prefix) => (*b"prefix  ", prefix.as_bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_comes_back_from_its_text() {
        assert!(Action::ALL.iter().all(|action| Action::parse(action.as_str()) == Some(*action)));
        assert!(Outcome::ALL.iter().all(|outcome| Outcome::parse(outcome.as_str()) == Some(*outcome)));
        assert_eq!(Action::parse("Sign-In"), None);
    }
}
