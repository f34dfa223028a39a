//! When codes are short: the open part of a shared budget is spent, or the number's prefix is under a brake.
//! Everybody who solved a challenge gets the same answer, after the same number of writes, but only numbers
//! of accounts get a message. While only the requester's address or network is spent, their messages come out
//! of the open part of the others, so that the reserve lasts until that is spent, too.

use super::Purpose;
use super::brake::BrakedPrefix;
use super::budgets::BudgetTicket;
use super::codes::{SendOutcome, SmsError};
use super::sending::{SendJob, unavailable};
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
            LimitSubject::Account | LimitSubject::Device | LimitSubject::Phone => None,
        }
    }

    /// The shares that a number of an account may use, in order.
    pub const fn shares(self) -> &'static [BudgetShare] {
        match self {
            Self::Open => &[],
            Self::SpentAsker => &[BudgetShare::SpentAsker, BudgetShare::Reserve],
            Self::Short { .. } => &[BudgetShare::Reserve],
        }
    }
}

impl SendJob {
    /// What a shortage means for this request; None if it continues. Never depends on who owns the number.
    pub fn in_shortage(&self, limit: String, retry_after: std::time::Duration) -> Option<SendOutcome> {
        match (self.purpose, self.solved) {
            (Purpose::Login | Purpose::Reset, true) => None,
            (Purpose::Login | Purpose::Reset, false) => Some(SendOutcome::Challenged { limit, retry_after }),
            (Purpose::Register | Purpose::Verify, _) => Some(SendOutcome::Throttled { limit, retry_after }),
        }
    }

    /// The part of the budgets that the message uses. Every number is looked up, and a hit is taken for every
    /// number, so that it takes the same time whoever owns it. The inner error is for the answer that all get
    /// alike.
    pub async fn share(
        &self,
        ticket: &BudgetTicket,
        path: SendPath,
    ) -> Result<BudgetShare, Result<SendOutcome, SmsError>> {
        if path == SendPath::Open {
            return Ok(BudgetShare::Open);
        }
        let inner = &*self.codes.0;
        let since = inner.owners.since(&self.phone).await.map_err(|error| Err(error.into()))?;
        let proven = |since| path.under().is_none_or(|braked| since < braked.proven_before);
        let owned = since.is_some_and(proven);
        let taken = inner.budgets.take(path.shares(), &self.watched, &self.keys, owned, ticket.hit).await;
        taken.map_err(|error| {
            tracing::debug!(%error, "no message is sent while the window store is out");
            Ok(unavailable())
        })
    }
}
