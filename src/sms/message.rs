//! What the code service is asked for, what the code of a message is for, and what it answers.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gatehouse_limiter::middleware::RequestOrigin;
use gatehouse_limiter::{AdmittedHit, Refusal};
use serde::{Deserialize, Serialize, Serializer};
use strum::{EnumString, IntoStaticStr};

use super::{MessageId, Phone, SmsCode};
use crate::audit::Outcome;
use crate::config::is_custom_name;
use crate::denied::Denied;

/// A message with a code, as a page, a program or an identity provider asks for it.
#[derive(Debug, Clone)]
pub struct RequestedMessage {
    pub phone: Phone,
    pub purpose: MessagePurpose,
    /// A code that somebody else has made, and checks.
    pub code: Option<SmsCode>,
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
    pub fn new(phone: Phone, purpose: impl Into<MessagePurpose>, locale: &str) -> Self {
        Self {
            phone,
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

    /// Says from which address and network it is asked for.
    #[must_use]
    pub fn asked_from(self, address: &[u8], network: &[u8]) -> Self {
        let (address, network) = (address.to_owned(), network.to_owned());
        Self { origin: Some(RequestOrigin { address, network }), ..self }
    }
}

/// The purpose of a code; a code for one purpose does not work for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EnumString, IntoStaticStr, Deserialize)]
#[strum(serialize_all = "lowercase", const_into_str)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    Login,
    Register,
    Reset,
    /// Adds a number to the account that is signed in.
    Verify,
}

impl Purpose {
    pub const ALL: [Self; 4] = [Self::Login, Self::Register, Self::Reset, Self::Verify];
}

/// What a message is for. A code for one purpose does not work for another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessagePurpose {
    Own(Purpose),
    /// A code of another program: it opens nothing here, and nothing at any third program.
    Verification(ProgramPurpose),
    /// A code that an identity provider has made and will check itself, by the name of the relay.
    Relayed(String),
}

/// The kinds of programs that ask for messages by token, each with a budget of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramKind {
    Verifier,
    Relay,
}

impl ProgramKind {
    /// What stands before its name, in the ledger and in the scope of its tokens.
    pub const fn lead(self) -> &'static str {
        match self {
            Self::Verifier => VERIFICATION,
            Self::Relay => RELAYED,
        }
    }

    /// The subject of a limit that counts for each program: its name cannot contain what separates it.
    pub fn subject(self, name: &str, bytes: &[u8]) -> Vec<u8> {
        [self.lead().as_bytes(), name.as_bytes(), b"/", bytes].concat()
    }
}

/// A program, as the scope of its tokens names it, and what it wants the code for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgramPurpose {
    program: String,
    purpose: String,
}

/// Before the name of a program, in the ledger.
pub const VERIFICATION: &str = "verify:";
const RELAYED: &str = "relay:";

impl ProgramPurpose {
    /// Makes a name; None unless both are names as custom limits have: 1 to 64 of a-z, 0-9 and -.
    pub fn new(program: &str, purpose: &str) -> Option<Self> {
        let named = is_custom_name(program) && is_custom_name(purpose);
        named.then(|| Self { program: program.to_owned(), purpose: purpose.to_owned() })
    }

    pub fn program(&self) -> &str {
        &self.program
    }

    /// What the purposes of a program begin with in the ledger.
    pub fn stored_program(program: &str) -> String {
        format!("{VERIFICATION}{program}:")
    }
}

impl MessagePurpose {
    /// The value in the ledger, by which a number's codes are told apart. Names contain no colon, so that nothing of
    /// a program is ever something of ours or of another program.
    pub fn stored(&self) -> Cow<'static, str> {
        match self {
            Self::Own(purpose) => purpose.into_str().into(),
            Self::Verification(ProgramPurpose { program, purpose }) => {
                format!("{VERIFICATION}{program}:{purpose}").into()
            }
            Self::Relayed(relay) => format!("{RELAYED}{relay}").into(),
        }
    }

    pub fn parse(stored: &str) -> Option<Self> {
        if let Some(relay) = stored.strip_prefix(RELAYED) {
            return Self::relayed(relay);
        }
        match stored.strip_prefix(VERIFICATION) {
            None => stored.parse().ok().map(Self::Own),
            Some(rest) => {
                let (program, purpose) = rest.split_once(':')?;
                ProgramPurpose::new(program, purpose).map(Self::Verification)
            }
        }
    }

    pub fn relayed(relay: &str) -> Option<Self> {
        is_custom_name(relay).then(|| Self::Relayed(relay.to_owned()))
    }

    /// Whose brakes it counts for and is held to: empty for ours, or the program as its tokens' scope names it.
    pub fn scope(&self) -> Cow<'static, str> {
        match self {
            Self::Own(_) => "".into(),
            Self::Verification(of) => format!("{VERIFICATION}{}", of.program).into(),
            Self::Relayed(_) => self.stored(),
        }
    }

    pub fn program(&self) -> Option<(ProgramKind, &str)> {
        match self {
            Self::Own(_) => None,
            Self::Verification(of) => Some((ProgramKind::Verifier, of.program())),
            Self::Relayed(relay) => Some((ProgramKind::Relay, relay)),
        }
    }
}

crate::db::text_column!(MessagePurpose, text => Self::parse(text).ok_or("an unknown purpose")?);

impl Serialize for MessagePurpose {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.stored())
    }
}

impl From<ProgramPurpose> for MessagePurpose {
    fn from(purpose: ProgramPurpose) -> Self {
        Self::Verification(purpose)
    }
}

impl From<Purpose> for MessagePurpose {
    fn from(purpose: Purpose) -> Self {
        Self::Own(purpose)
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

    #[test]
    fn no_purpose_of_a_program_is_one_of_ours_or_of_another_program() {
        let of =
            |program, purpose| MessagePurpose::Verification(ProgramPurpose::new(program, purpose).unwrap());
        for own in Purpose::ALL {
            assert_eq!(MessagePurpose::parse(own.into_str()), Some(own.into()));
            assert_ne!(of("shop", own.into_str()).stored(), own.into_str());
        }
        assert_eq!(of("shop", "pay").stored(), "verify:shop:pay");
        assert_eq!(
            (of("shop", "pay").scope(), of("shop", "login").scope()),
            ("verify:shop".into(), "verify:shop".into())
        );
        assert_eq!(MessagePurpose::relayed("shop").unwrap().scope(), "relay:shop");
        assert_eq!(MessagePurpose::parse("verify:shop:pay"), Some(of("shop", "pay")));
        assert_ne!(of("a", "b-c").stored(), of("a-b", "c").stored());
        for (program, purpose) in
            [("", "pay"), ("shop", ""), ("shop:a", "pay"), ("shop", "a:b"), ("Shop", "pay")]
        {
            assert_eq!(ProgramPurpose::new(program, purpose), None, "{program} {purpose}");
        }
        assert_eq!(MessagePurpose::parse("relay:logto"), MessagePurpose::relayed("logto"));
        for text in ["relay:", "relay:a:b", "relay:A"] {
            assert_eq!(MessagePurpose::parse(text), None, "{text}");
        }
        for text in
            ["verify", "verify:", "verify:shop", "verify:shop:", "verify::pay", "verify:a:b:c", "decoy"]
        {
            let parsed = MessagePurpose::parse(text);
            assert!(matches!(parsed, None | Some(MessagePurpose::Own(Purpose::Verify))), "{text}");
        }
    }
}
