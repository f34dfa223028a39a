//! The kinds of attacks, and the events that each consists of.

use strum::{EnumString, IntoStaticStr, VariantArray};

use super::event::{Action, Outcome};

/// What there is much of.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, IntoStaticStr, VariantArray,
)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum AttackKind {
    /// Passwords that were wrong, or refused before they were compared.
    SignIns,
    /// Messages requested, sent or not.
    Messages,
    /// Registrations, successful or not.
    Registrations,
    /// As sign-ins, at another program's login. Each realm is watched by itself.
    Attempts,
}

impl AttackKind {
    pub const fn action(self) -> Action {
        match self {
            Self::SignIns => Action::SignIn,
            Self::Messages => Action::Send,
            Self::Registrations => Action::Register,
            Self::Attempts => Action::Attempt,
        }
    }

    /// The outcomes that count; all of them if empty. A successful sign-in is no reason for alarm.
    pub const fn outcomes(self) -> &'static [Outcome] {
        match self {
            Self::SignIns | Self::Attempts => {
                // Also what an answer to it refuses: it goes on until it ends.
                &[Outcome::Wrong, Outcome::Challenged, Outcome::Throttled, Outcome::Busy, Outcome::Refused]
            }
            Self::Messages | Self::Registrations => &[],
        }
    }

    pub fn counts(self, action: Action, outcome: Outcome) -> bool {
        action == self.action() && (self.outcomes().is_empty() || self.outcomes().contains(&outcome))
    }

    /// Fewer in five minutes are never unusual.
    pub const fn floor(self) -> u64 {
        match self {
            Self::SignIns | Self::Attempts => 50,
            Self::Messages | Self::Registrations => 30,
        }
    }
}
