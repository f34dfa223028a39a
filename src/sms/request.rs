//! What is asked of the code service.

use super::departure::Departure;
use super::{MessagePurpose, Phone, ProgramPurpose, Purpose, SmsCode};

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
