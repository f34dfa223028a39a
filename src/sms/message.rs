//! What is asked of the code service.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::budgets::BudgetTicket;
use super::{MessageId, MessagePurpose, Phone, ProgramPurpose, Purpose, SmsCode};
use crate::db::DbError;
use crate::denied::Denied;
use crate::throttle::Refusal;

/// One request for a code.
#[derive(Debug, Clone, Copy)]
pub struct CodeRequest<'a> {
    pub phone: &'a Phone,
    pub purpose: Purpose,
    /// The requester's address in the form that limits count.
    pub address: &'a [u8],
    /// The network of the address.
    pub network: &'a [u8],
    /// The id of the requesting browser, if it has one: it gets guesses of its own at the code.
    pub browser: Option<&'a [u8]>,
    /// A challenge was solved with the request.
    pub solved: bool,
    /// The requester's name for this request: the same name is the same request, whose message is not sent
    /// twice.
    pub once: Option<&'a str>,
    /// The language of the message.
    pub locale: &'a str,
}

/// A request of another program for a code, which it will check here.
#[derive(Debug, Clone, Copy)]
pub struct VerificationRequest<'a> {
    pub phone: &'a Phone,
    pub purpose: &'a ProgramPurpose,
    /// Of the client that the program serves, in the form that limits count.
    pub address: &'a [u8],
    pub network: &'a [u8],
    /// A challenge was solved with the request.
    pub solved: bool,
    /// The program's name for this request.
    pub once: Option<&'a str>,
    /// The language of the message, among ours.
    pub locale: &'a str,
    /// The language that was asked for, among those that the program has texts in.
    pub language: Option<&'a str>,
}

/// A code of an identity provider, to be sent in our words.
#[derive(Debug, Clone, Copy)]
pub struct RelayRequest<'a> {
    pub phone: &'a Phone,
    pub relay: &'a MessagePurpose,
    pub code: &'a SmsCode,
    /// The address of who signs in there and its network, in the form that limits count, if the provider tells them.
    pub origin: Option<[&'a [u8]; 2]>,
    /// The same name is the same request.
    pub once: &'a str,
    pub locale: &'a str,
    pub language: Option<&'a str>,
}

/// Any of them.
#[derive(Debug, Clone)]
pub struct MessageRequest<'a> {
    pub phone: &'a Phone,
    pub purpose: MessagePurpose,
    /// One that somebody else has made.
    pub code: Option<&'a SmsCode>,
    /// Address and network.
    pub origin: Option<[&'a [u8]; 2]>,
    pub browser: Option<&'a [u8]>,
    pub solved: bool,
    pub once: Option<&'a str>,
    pub locale: &'a str,
    pub language: Option<&'a str>,
    /// If the caller may stop waiting, and then answers that nothing is sent.
    pub departure: Option<Departure>,
}

impl<'a> From<CodeRequest<'a>> for MessageRequest<'a> {
    fn from(ask: CodeRequest<'a>) -> Self {
        let CodeRequest { phone, purpose, address, network, browser, solved, once, locale } = ask;
        let (purpose, origin, language) = (purpose.into(), Some([address, network]), None);
        Self { phone, purpose, code: None, origin, browser, solved, once, locale, language, departure: None }
    }
}

impl<'a> From<VerificationRequest<'a>> for MessageRequest<'a> {
    fn from(ask: VerificationRequest<'a>) -> Self {
        let VerificationRequest { phone, purpose, address, network, solved, once, locale, language } = ask;
        let (purpose, origin) = (MessagePurpose::Verification(purpose.clone()), Some([address, network]));
        Self {
            phone,
            purpose,
            code: None,
            origin,
            browser: None,
            solved,
            once,
            locale,
            language,
            departure: None,
        }
    }
}

impl<'a> From<RelayRequest<'a>> for MessageRequest<'a> {
    fn from(ask: RelayRequest<'a>) -> Self {
        let RelayRequest { phone, relay, code, origin, once, locale, language } = ask;
        let (purpose, code, once) = (relay.clone(), Some(code), Some(once));
        Self {
            phone,
            purpose,
            code,
            origin,
            browser: None,
            solved: false,
            once,
            locale,
            language,
            departure: None,
        }
    }
}

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

/// Whichever is first, and then for good. A provider that is told that nothing was sent forgets the code, so it must not
/// arrive later.
#[derive(Debug, Clone, Default)]
pub struct Departure(Arc<OnceLock<Option<MessageId>>>);

impl Departure {
    /// The message is about to be handed to the gateway. False if it must not be any more.
    pub fn departs(&self, id: MessageId) -> bool {
        *self.0.get_or_init(|| Some(id)) == Some(id)
    }

    /// The caller stops waiting. The message, if it has departed.
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
        let departed = Departure::default();
        assert!(departed.departs(id) && departed.departs(id));
        assert_eq!((departed.call_off(), departed.is_called_off()), (Some(id), false));
        let called_off = Departure::default();
        assert_eq!((called_off.call_off(), called_off.departs(id)), (None, false));
        assert!(called_off.is_called_off());
    }
}
