//! What the code service answers.

use std::time::Duration;

use super::budgets::BudgetTicket;
use super::{MessageId, Phone};
use crate::db::DbError;
use crate::denied::Denied;
use crate::throttle::Refusal;

/// The retry time that a caller gets while something that a message needs is out.
pub const TRY_AGAIN: Duration = Duration::from_secs(5);

/// The result of a request for a code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    Sent(SendReceipt),
    /// The gateway refused it: it was not sent, and the number's limit does not count it.
    NotSent,
    /// A limit is full, or something that a message needs is out: the window store, the gateway, or a free slot.
    Denied(Denied),
}

impl SendOutcome {
    pub(super) const fn unavailable() -> Self {
        Self::Denied(Denied::Unavailable { retry_after: TRY_AGAIN })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendReceipt {
    /// For another program, which names the message by it.
    pub id: Option<MessageId>,
    /// How long its code is valid.
    pub expires_in: Duration,
    /// Until the number's rules admit the next message.
    pub resend_after: Duration,
    /// The gateway confirmed it. Otherwise it may have been sent, and is not sent again.
    pub confirmed: bool,
    /// Codes are short and go to numbers with accounts first. The answer does not say whether this number has
    /// one.
    pub short: bool,
}

/// The result of a guess.
#[derive(Debug)]
pub enum CheckOutcome {
    Right(ProvenPhone),
    /// Wrong code, or no code (any more): the answer does not say which.
    Wrong,
    /// Nothing was compared: a limit is full, the window store is out, or too many guesses are in flight.
    Denied(Denied),
}

/// A number that was just proved to belong to the client. Only a comparison creates one.
#[derive(Debug)]
pub struct ProvenPhone(Phone);

impl ProvenPhone {
    /// Only for the code that has compared a code.
    pub(super) const fn of(phone: Phone) -> Self {
        Self(phone)
    }

    pub const fn phone(&self) -> &Phone {
        &self.0
    }
}

/// The database is out: nothing was sent that is not in the ledger, and no code was accepted.
#[derive(Debug, thiserror::Error)]
pub enum SmsError {
    #[error(transparent)]
    Db(#[from] DbError),
}

/// The answer to a request, and whether an earlier one with the same name got it.
pub struct SendAnswer {
    pub sending: SendOutcome,
    pub repeated: bool,
    /// The ticket of the windows, if they admitted it.
    pub ticket: Option<BudgetTicket>,
    /// The rule that refused it.
    pub refusal: Option<Refusal>,
}

impl From<SendOutcome> for SendAnswer {
    fn from(sending: SendOutcome) -> Self {
        Self { sending, repeated: false, ticket: None, refusal: None }
    }
}

impl SendAnswer {
    pub fn refused(limit: String, refusal: Refusal) -> Self {
        let sending = SendOutcome::Denied(Denied::by(limit, &refusal));
        Self { refusal: Some(refusal), ..sending.into() }
    }
}
