//! When codes are short: the open part of a shared budget is spent, or the number's prefix is under a brake.
//! Everybody who solved a challenge gets the same answer, after the same number of writes, but only numbers
//! of accounts get a message; at a program's brake, numbers that were proven at that program. While only the
//! requester's address or network is spent, their messages come out of the open part of the others, so that the
//! reserve lasts until that is spent, too.

use std::borrow::Cow;
use std::time::Duration;

use super::brake::BrakedPrefix;
use super::budgets::BudgetTicket;
use super::message::{SendOutcome, SmsError};
use super::message_limits::{BudgetShare, SendPath};
use super::send::SendJob;
use super::{MessagePurpose, Purpose};
use crate::clock::Micros;
use crate::config::SMS_BRAKE;
use crate::db::DbError;
use crate::denied::Denied;

impl SendJob {
    /// What a spent budget means for this request; None if it continues. Never depends on who owns the number.
    pub fn in_shortage(&self, limit: Cow<'static, str>, retry_after: Duration) -> Option<Denied> {
        match &self.message.purpose {
            MessagePurpose::Own(Purpose::Login | Purpose::Reset) => {
                (!self.message.solved).then_some(Denied::Challenged { limit, retry_after })
            }
            // What is kept is for those who have an account here.
            MessagePurpose::Own(Purpose::Register | Purpose::Verify)
            | MessagePurpose::Verification(_)
            | MessagePurpose::Relayed(_) => Some(Denied::Throttled { limit, retry_after }),
        }
    }

    /// The path on which a request continues under a brake, or its answer. Never depends on who owns the number.
    pub fn under_brake(&self, braked: BrakedPrefix) -> Result<SendPath, Denied> {
        let (limit, retry_after) = (SMS_BRAKE.into(), braked.retry_after);
        match (&self.message.purpose, braked.proven_before) {
            // Who registers or adds a number has no account with it, so there is nobody to send to.
            (MessagePurpose::Own(Purpose::Register | Purpose::Verify), Some(_)) => {
                Err(Denied::Throttled { limit, retry_after })
            }
            // Nobody can show one there.
            (MessagePurpose::Relayed(_), Some(_)) => Ok(SendPath::Short { under: Some(braked) }),
            _ if !self.message.solved => Err(Denied::Challenged { limit, retry_after }),
            (_, None) => Ok(SendPath::Open),
            (_, Some(_)) => Ok(SendPath::Short { under: Some(braked) }),
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
        let since = self.proven_since().await.map_err(|error| Err(error.into()))?;
        let before = path.under().and_then(|braked| braked.proven_before);
        let owned = since.is_some_and(|since| before.is_none_or(|before| since < before));
        let shares = path.shares(self.message.purpose.program().is_some());
        let taken = inner.budgets.take(shares, &self.watched, &self.keys, owned, ticket.hit).await;
        taken.map_err(|error| {
            tracing::debug!(%error, "no message is sent while the window store is out");
            Ok(SendOutcome::unavailable())
        })
    }

    /// Since when the number has been proven where the code is for: at the program, or as an account's here.
    async fn proven_since(&self) -> Result<Option<Micros>, DbError> {
        let (inner, purpose) = (&*self.codes.0, &self.message.purpose);
        match purpose.program() {
            None => inner.deps.owners.since(&self.message.phone).await,
            Some(_) => inner.ledger.proven_since(&purpose.scope(), self.keys.phone).await,
        }
    }
}
