//! When codes are short: the open part of a shared budget is spent, or the number's prefix is braked. Whoever
//! solved a challenge is told the same, after as many writes; numbers of accounts are sent to.

use super::Purpose;
use super::brake::Braked;
use super::budgets::Ticket;
use super::codes::{Sending, SmsError};
use super::sending::{Job, unavailable};
use super::share::Share;
use super::watched::Watched;
use crate::throttle::{Refusal, Then};

/// How a request goes its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    Open,
    /// In a shortage, and under which brake where there is one.
    Short {
        under: Option<Braked>,
    },
}

impl Lane {
    /// What it counts in before it is known whose number it is.
    pub const fn counted_as(self) -> Share {
        match self {
            Self::Open => Share::Open,
            Self::Short { .. } => Share::Withheld,
        }
    }

    pub const fn under(self) -> Option<Braked> {
        match self {
            Self::Open => None,
            Self::Short { under } => under,
        }
    }

    /// Whether that refusal makes codes short, for who came as anybody does.
    pub fn is_short_by(self, limit: &str, refusal: &Refusal) -> bool {
        self == Self::Open && refusal.then == Then::Block && Watched::is_shared(limit)
    }
}

impl Job {
    /// What a shortage means for this request; none where it goes on in it. Never what follows from whose
    /// number it is.
    pub fn in_shortage(&self, limit: String, retry_after: std::time::Duration) -> Option<Sending> {
        match (self.purpose, self.solved) {
            (Purpose::Login | Purpose::Reset, true) => None,
            (Purpose::Login | Purpose::Reset, false) => Some(Sending::Challenged { limit, retry_after }),
            (Purpose::Register | Purpose::Verify, _) => Some(Sending::Throttled { limit, retry_after }),
        }
    }

    /// Out of which part of the budgets the message is. Everybody is looked up, and a hit is taken for everybody,
    /// so that it takes as long whoever has the number. The inner error is for the answer that all get alike.
    pub async fn share(&self, ticket: &Ticket, lane: Lane) -> Result<Share, Result<Sending, SmsError>> {
        let Lane::Short { under } = lane else { return Ok(Share::Open) };
        let inner = &*self.codes.0;
        let since = inner.owners.since(&self.phone).await.map_err(|error| Err(error.into()))?;
        let proven = |since| under.is_none_or(|braked| since < braked.proven_before);
        let owned = since.is_some_and(proven);
        let sent = inner.budgets.take_kept(&self.watched, &self.keys, owned, ticket.hit).await;
        match sent {
            Ok(true) => Ok(Share::Reserve),
            Ok(false) => Ok(Share::Withheld),
            Err(error) => {
                tracing::debug!(%error, "no message is sent while the window store is out");
                Err(Ok(unavailable()))
            }
        }
    }
}
