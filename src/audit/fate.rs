//! What became of an attempt. Every figure of the console is made of these, so that a word has one meaning
//! wherever it is shown; `docs/figures.md` says which figure counts what.

use super::event::{Action, Outcome};

/// Each attempt has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It did what it was to do: a right password, a message that was or may have been sent.
    Done,
    /// It was checked, and is wrong.
    Wrong,
    /// Nothing was checked: a challenge must be solved first.
    Challenged,
    /// Nothing was checked, and no challenge helps: a limit, a list of `[access]`, or no room to hash.
    Refused,
    /// It was admitted, and something else went wrong.
    Failed,
}

impl Outcome {
    /// What a limit in monitor mode noted, it let through.
    pub const fn fate(self, noted: bool) -> Fate {
        match self {
            Self::Challenged | Self::Throttled if noted => Fate::Done,
            Self::Ok | Self::Asked | Self::Unknown | Self::Began | Self::Ended => Fate::Done,
            Self::Wrong => Fate::Wrong,
            Self::Challenged => Fate::Challenged,
            Self::Throttled | Self::Busy | Self::Refused => Fate::Refused,
            Self::Withheld | Self::Failed | Self::Unavailable => Fate::Failed,
        }
    }
}

impl Action {
    /// What people and programs attempt here. A challenge is part of the attempt that it came with, what happens at
    /// the logins of other programs has figures of its own, and the rest is done by administrators and by us.
    pub const fn is_attempt(self) -> bool {
        matches!(
            self,
            Self::SignIn | Self::Register | Self::Send | Self::Guess | Self::Custom | Self::Request
        )
    }
}
