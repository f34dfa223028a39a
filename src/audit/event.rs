//! What an event says: who tried what, how it ended, and which rule of which limit had a say in it.

use crate::clock::Micros;
use crate::throttle::{Refusal, RuleAction};

/// Each variant with the text that stands for it in SQL and in the API.
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
    /// What was tried.
    Action {
        /// A password.
        SignIn => "sign-in",
        /// A new password, set by a code that came by SMS. It forgives the account's failures.
        Reset => "reset",
        /// An account's password was disabled: it had too many wrong ones in a row.
        PasswordDisabled => "password-disabled",
        /// A code that came by SMS; `name` is its purpose.
        Guess => "guess",
        /// To be sent a code; `name` is its purpose.
        Send => "send",
        Register => "register",
        /// Much of what may be sent to everybody is spent; `name` says how much.
        Budget => "budget",
        /// A challenge: asked for, or answered.
        Captcha => "captcha",
        /// A hit on a limit of the owner's own.
        Custom => "custom",
        /// Another configuration.
        Reload => "reload",
        /// An act of an administrator; `name` is which.
        Admin => "admin",
    }
}

words! {
    /// How it ended.
    Outcome {
        Ok => "ok",
        /// It was looked at, and is not right.
        Wrong => "wrong",
        /// A challenge must be solved with it.
        Challenged => "challenged",
        Throttled => "throttled",
        /// Too much else was going on.
        Busy => "busy",
        /// A challenge was handed out.
        Asked => "asked",
        /// Sent perhaps: the gateway did not say.
        Unknown => "unknown",
        /// Codes were short: it was said to be sent, and went to nobody.
        Withheld => "withheld",
        /// It came to nothing, for a reason that is no limit's; `name` or `detail` says which.
        Failed => "failed",
        /// Something that it needs is out.
        Unavailable => "unavailable",
        /// Not allowed, or not applied.
        Refused => "refused",
    }
}

/// The detail of a right password that came beside others: the failures of its account were not forgiven.
pub const NOT_FORGIVEN: &str = r#"{"forgave":false}"#;
/// The name of a password that came from a known device: no log of the account counts it. Which, its detail says.
pub const FROM_DEVICE: &str = "device";

/// One thing that happened. Everything in clear stays in memory: of subjects, a keyed hash and a mask are
/// written.
#[derive(Clone)]
pub struct AuditEvent<'a> {
    /// When it was decided, by the clock that decided.
    pub at: Micros,
    /// Of a failure: when it began to count.
    pub settled: Option<Micros>,
    pub action: Action,
    pub outcome: Outcome,
    pub name: Option<&'a str>,
    /// The rule that refused it, or (noted) would have.
    pub why: Option<EventRule<'a>>,
    /// The limit that it is about, where no rule had a say.
    pub limit: Option<&'a str>,
    /// A challenge was solved with it.
    pub solved: bool,
    pub account: Option<EventSubject<'a>>,
    pub address: Option<EventSubject<'a>>,
    pub network: Option<EventSubject<'a>>,
    pub phone: Option<EventSubject<'a>>,
    pub prefix: Option<EventSubject<'a>>,
    /// The account of who acted, for acts of the console.
    pub actor: Option<&'a str>,
    pub detail: Option<String>,
}

impl AuditEvent<'_> {
    /// Of nobody in particular; the rest is filled in by `..`.
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

/// The rule that had a say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRule<'a> {
    pub limit: &'a str,
    /// Which of its rules, from 0.
    pub rule: usize,
    /// When the hit that stands in the way leaves: attempts that the same hit stops are one episode. Zero
    /// where no hit does.
    pub frees_at: Micros,
    /// The limit only watches.
    pub noted: bool,
}

impl Outcome {
    /// What a refusal means for who is refused.
    pub const fn refused(refusal: &Refusal) -> Self {
        match refusal.then {
            RuleAction::Captcha => Self::Challenged,
            RuleAction::Block => Self::Throttled,
        }
    }
}

impl<'a> EventRule<'a> {
    /// By a limit that is enforced.
    pub const fn refused(limit: &'a str, refusal: &Refusal) -> Self {
        Self { limit, rule: refusal.rule, frees_at: refusal.frees_at, noted: false }
    }

    /// By a limit that only watches.
    pub const fn noted(limit: &'a str, refusal: &Refusal) -> Self {
        Self { noted: true, ..Self::refused(limit, refusal) }
    }
}

/// Whom an event is about.
#[derive(Clone, Copy)]
pub enum EventSubject<'a> {
    Account {
        id: &'a [u8; 16],
        /// To be masked.
        login: &'a str,
    },
    /// A name that no account has.
    Login(&'a str),
    /// Whom a limit of the owner's own counts.
    Custom(&'a str),
    /// The bytes that limits count: a 4 or a 6, and the address (of IPv6 its first half).
    Address(&'a [u8]),
    Network(&'a [u8]),
    /// In E.164.
    Phone(&'a str),
    /// A dialling prefix.
    Prefix(&'a str),
}

impl EventSubject<'_> {
    /// What its key is made of: a tag of its kind, and what is unmistakably it.
    pub(super) fn input(&self) -> ([u8; 8], &[u8]) {
        match self {
            Self::Account { id, .. } => (*b"account ", *id),
            Self::Login(name) => (*b"login   ", name.as_bytes()),
            Self::Custom(name) => (*b"custom  ", name.as_bytes()),
            Self::Address(bytes) => (*b"address ", bytes),
            Self::Network(bytes) => (*b"network ", bytes),
            Self::Phone(number) => (*b"phone   ", number.as_bytes()),
            Self::Prefix(prefix) => (*b"prefix  ", prefix.as_bytes()),
        }
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
