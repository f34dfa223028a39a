//! The path of a request through the budgets: open, or one of those in a shortage.

use super::brake::BrakedPrefix;
use super::share::BudgetShare;
use crate::config::{LimitName, LimitSubject};
use crate::throttle::{Refusal, RuleAction};

/// The path of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendPath {
    Open,
    /// The requester's address or network is spent.
    SpentAsker,
    /// The budget of the prefix or the total is spent, or there is a brake.
    Short {
        under: Option<BrakedPrefix>,
    },
}

impl SendPath {
    /// What it counts in before it is known who owns the number.
    pub const fn counted_as(self) -> BudgetShare {
        match self {
            Self::Open => BudgetShare::Open,
            Self::SpentAsker | Self::Short { .. } => BudgetShare::Withheld,
        }
    }

    pub const fn under(self) -> Option<BrakedPrefix> {
        match self {
            Self::Open | Self::SpentAsker => None,
            Self::Short { under } => under,
        }
    }

    /// The path on which a refused ordinary request continues; None if the refusal does not make codes short.
    pub fn after(self, limit: &str, refusal: &Refusal) -> Option<Self> {
        if self != Self::Open || refusal.then != RuleAction::Block {
            return None;
        }
        match LimitName::parse(limit)?.subject() {
            LimitSubject::Address | LimitSubject::Network => Some(Self::SpentAsker),
            LimitSubject::Prefix | LimitSubject::Everyone => Some(Self::Short { under: None }),
            LimitSubject::Account
            | LimitSubject::Device
            | LimitSubject::Phone
            | LimitSubject::Program
            | LimitSubject::ProgramAddress
            | LimitSubject::ProgramNetwork
            | LimitSubject::ProgramPrefix
            | LimitSubject::RealmAccount
            | LimitSubject::RealmDevice
            | LimitSubject::RealmAddress
            | LimitSubject::RealmNetwork => None,
        }
    }

    /// The shares that a proven number may use, in order. The reserve is for accounts, so a program's brake leaves the
    /// open part.
    pub const fn shares(self, of_program: bool) -> &'static [BudgetShare] {
        match self {
            Self::Open => &[],
            _ if of_program => &[BudgetShare::SpentAsker],
            Self::SpentAsker => &[BudgetShare::SpentAsker, BudgetShare::Reserve],
            Self::Short { .. } => &[BudgetShare::Reserve],
        }
    }
}
