//! Messages with a code: what names one, its code, and what the code is for.

use std::borrow::Cow;
use std::fmt;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize, Serializer};
use strum::{EnumString, IntoStaticStr};
use zeroize::Zeroizing;

use crate::config::is_custom_name;
use crate::db::random_id;
use crate::entropy::Entropy;
use crate::typed;

random_id! {
    /// Identifies one message, here and in the reports of its gateway. Random, not secret.
    MessageId
}

/// What only one person should know: six digits if the code is ours. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct MessageCode(Zeroizing<String>);

/// The digits of our codes.
const DIGITS: usize = 6;

impl MessageCode {
    /// Every code equally likely.
    pub fn random(entropy: &Entropy) -> Self {
        const CODES: u32 = 10_u32.pow(DIGITS as u32);
        // Values that would make small codes likelier are discarded.
        const FAIR: u32 = u32::MAX - u32::MAX % CODES;
        let mut number = u32::from_le_bytes(entropy.bytes());
        while number >= FAIR {
            number = u32::from_le_bytes(entropy.bytes());
        }
        Self(Zeroizing::new(format!("{:0DIGITS$}", number % CODES)))
    }

    /// Parses a code; None if it is not six digits, as people type and paste them.
    pub fn parse(text: &str) -> Option<Self> {
        typed::digits(text, DIGITS).map(Self)
    }

    /// A code that somebody else has made. None unless it is 4 to 10 of 0-9, A-Z and a-z.
    pub fn relayed(text: &str) -> Option<Self> {
        let fits =
            (4..=10).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_alphanumeric());
        fits.then(|| Self(Zeroizing::new(text.to_owned())))
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for MessageCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Code(…)")
    }
}

pub fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
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

/// The scope of messages by mail in the ledger. The scopes of programs have a colon.
pub const MAIL: &str = "mail";

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_people_type_them() {
        for text in ["012345", " 012 345 ", "012-345", "０１２３４５", "0 1 2 3 4 5", "۰۱۲۳۴۵"] {
            assert_eq!(MessageCode::parse(text).unwrap().expose(), "012345", "{text:?}");
        }
        for text in ["", "12345", "1234567", "12345a", "１２３４５", "+12345"] {
            assert!(MessageCode::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn codes_of_others_are_letters_and_digits_and_nothing_else() {
        for text in ["1234", "012345", "0123456789", "aZ09"] {
            assert_eq!(MessageCode::relayed(text).unwrap().expose(), text);
        }
        for text in
            ["", "123", "12345678901", "12 34", "12-34", "１２３４", "12é4", "1234\n", "a.io", "{code}"]
        {
            assert!(MessageCode::relayed(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn codes_use_every_digit_at_every_place() {
        let entropy = Entropy::seeded(7);
        let mut seen = [[0u32; 10]; 6];
        for _ in 0..10_000 {
            let code = MessageCode::random(&entropy);
            for (place, digit) in code.expose().bytes().enumerate() {
                seen[place][usize::from(digit - b'0')] += 1;
            }
        }
        // 1000 of each are expected; five standard deviations are 150.
        assert!(seen.iter().flatten().all(|&count| (850..=1150).contains(&count)), "{seen:?}");
        assert_eq!(format!("{:?}", MessageCode::random(&entropy)), "Code(…)");
    }

    #[test]
    fn ids_and_purposes_come_back_from_their_text() {
        let id = MessageId::random(&Entropy::Os);
        assert_eq!(MessageId::parse(&id.to_string()), Some(id));
        assert_eq!(MessageId::parse("+0000000000000000000000000000001"), None);
        assert!(Purpose::ALL.iter().all(|purpose| purpose.into_str().parse() == Ok(*purpose)));
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
