//! When codes are short: the open part of a shared budget is spent, or the number's prefix is under a brake.
//! Everybody who solved a challenge gets the same answer, after the same number of writes, but only numbers
//! of accounts get a message. While only the requester's address or network is spent, their messages come out
//! of the open part of the others, so that the reserve lasts until that is spent, too.

use std::borrow::Cow;
use std::time::Duration;

use super::budgets::BudgetTicket;
use super::job::SendJob;
use super::outcome::{SendOutcome, SmsError};
use super::path::SendPath;
use super::share::BudgetShare;
use super::{MessagePurpose, Purpose};
use crate::denied::Denied;

impl SendJob {
    /// What a shortage means for this request; None if it continues. Never depends on who owns the number.
    pub fn in_shortage(&self, limit: Cow<'static, str>, retry_after: Duration) -> Option<SendOutcome> {
        match (&self.purpose, self.solved) {
            (MessagePurpose::Own(Purpose::Login | Purpose::Reset), true) => None,
            (MessagePurpose::Own(Purpose::Login | Purpose::Reset), false) => {
                Some(SendOutcome::Denied(Denied::Challenged { limit, retry_after }))
            }
            // What is kept is for those who have an account here.
            (
                MessagePurpose::Own(Purpose::Register | Purpose::Verify)
                | MessagePurpose::Verification(_)
                | MessagePurpose::Relayed(_),
                _,
            ) => Some(SendOutcome::Denied(Denied::Throttled { limit, retry_after })),
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
            Ok(SendOutcome::unavailable())
        })
    }
}
