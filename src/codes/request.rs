//! What the code service is asked for, and what it answers.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gatehouse_limiter::middleware::RequestOrigin;
use gatehouse_limiter::{AdmittedHit, Refusal};

use super::recipient::{Channel, Recipient};
use crate::audit::Outcome;
use crate::denied::Denied;
use crate::message::{MAIL, MessageCode, MessageId, MessagePurpose};

/// A message with a code, as a page, a program or an identity provider asks for it.
#[derive(Debug, Clone)]
pub struct RequestedMessage {
    pub to: Recipient,
    pub purpose: MessagePurpose,
    /// A code that somebody else has made, and checks.
    pub code: Option<MessageCode>,
    /// The requester, if it is known.
    pub origin: Option<RequestOrigin>,
    /// The id of the requesting browser, if it has one: it gets guesses of its own at the code.
    pub browser: Option<Vec<u8>>,
    /// A challenge was solved with the request.
    pub solved: bool,
    /// The requester's name for this request: the same name is the same request, whose message is not sent
    /// twice.
    pub once: Option<String>,
    /// The language of the message, among ours.
    pub locale: String,
    /// The language that was asked for, among those that the program has texts in.
    pub language: Option<String>,
}

impl RequestedMessage {
    pub fn new(to: impl Into<Recipient>, purpose: impl Into<MessagePurpose>, locale: &str) -> Self {
        Self {
            to: to.into(),
            purpose: purpose.into(),
            code: None,
            origin: None,
            browser: None,
            solved: false,
            once: None,
            locale: locale.to_owned(),
            language: None,
        }
    }

    /// Whose brakes, slots and ledger rows it is among: mail has its own, as each program has.
    pub fn scope(&self) -> Cow<'static, str> {
        match self.to.channel() {
            Channel::Sms => self.purpose.scope(),
            Channel::Mail => MAIL.into(),
        }
    }

    /// Says from which address and network it is asked for.
    #[must_use]
    pub fn asked_from(self, address: &[u8], network: &[u8]) -> Self {
        let (address, network) = (address.to_owned(), network.to_owned());
        Self { origin: Some(RequestOrigin { address, network }), ..self }
    }
}

/// The retry time that a caller gets while something that a message needs is out.
pub const TRY_AGAIN: Duration = Duration::from_secs(5);

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

    /// What metrics count and events say. None in a shortage: then they wait until the gateway has answered.
    pub(super) const fn told(&self) -> Option<Outcome> {
        Some(match self {
            Self::Sent(sent) if sent.short => return None,
            Self::Sent(sent) if sent.confirmed => Outcome::Ok,
            Self::Sent(_) => Outcome::Unknown,
            Self::NotSent => Outcome::Failed,
            Self::Denied(Denied::Challenged { .. }) => Outcome::Challenged,
            Self::Denied(Denied::Throttled { .. }) => Outcome::Throttled,
            Self::Denied(Denied::Busy { .. } | Denied::Unavailable { .. } | Denied::AddressDenied) => {
                Outcome::Unavailable
            }
        })
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

/// An outcome with what is counted and recorded of it.
pub struct SendAnswer {
    pub outcome: SendOutcome,
    /// An earlier request with the same name got it.
    pub repeated: bool,
    /// If the windows admitted it.
    pub admitted: Option<AdmittedHit>,
    /// The rule that refused it.
    pub refusal: Option<Refusal>,
}

impl From<SendOutcome> for SendAnswer {
    fn from(outcome: SendOutcome) -> Self {
        Self { outcome, repeated: false, admitted: None, refusal: None }
    }
}

/// Whether a message was handed to its gateway, or its caller has stopped waiting for it: whichever is first, and then
/// for good. A provider that is told that nothing was sent forgets the code, so it must not arrive later.
#[derive(Debug, Clone, Default)]
pub struct HandoverFlag(Arc<OnceLock<Option<MessageId>>>);

impl HandoverFlag {
    /// The message is about to be handed to the gateway. False if it must not be any more.
    pub fn hand_over(&self, id: MessageId) -> bool {
        *self.0.get_or_init(|| Some(id)) == Some(id)
    }

    /// The caller stops waiting. The message, if it was handed over.
    pub fn call_off(&self) -> Option<MessageId> {
        *self.0.get_or_init(|| None)
    }

    pub fn is_called_off(&self) -> bool {
        self.0.get() == Some(&None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;

    #[test]
    fn a_message_departs_or_is_called_off_and_never_both() {
        let id = MessageId::random(&Entropy::seeded(1));
        let departed = HandoverFlag::default();
        assert!(departed.hand_over(id) && departed.hand_over(id));
        assert_eq!((departed.call_off(), departed.is_called_off()), (Some(id), false));
        let called_off = HandoverFlag::default();
        assert_eq!((called_off.call_off(), called_off.hand_over(id)), (None, false));
        assert!(called_off.is_called_off());
    }
}
