//! Codes by SMS: who may have one, how it is sent only once, and what proves that it was received.

mod brake;
mod budgets;
mod check;
mod codes;
mod costs;
mod decide;
pub mod gateway;
mod ledger;
mod message;
mod message_limits;
mod metrics;
mod money;
mod phone;
mod send;
mod slots;
mod spent;
mod text;

use std::fmt;

use data_encoding::HEXLOWER;
use zeroize::Zeroizing;

use crate::db::random_id;
use crate::entropy::Entropy;
use crate::typed;

pub use brake::{
    HeldBrake, Ladder, MOST_OF_AN_UNPROVEN_RANGE, PROVEN_OF_FIVE, PrefixTraffic, Rung, WHILE_PEOPLE_ARE_NEW,
    country_asks_from, lasts, most_of_a_network,
};
pub use check::{CheckOutcome, CodeGuess, ProvenPhone, VerificationOutcome};
pub use codes::{CodesDeps, PhoneOwners, SmsCodes};
pub use costs::{CountryFigures, as_text};
pub use gateway::{
    DeliveryReport, DeliveryResult, Gateways, OutOfService, Outbox, OutboxMessage, RefusedFor, ReportCall,
    ReportError, ReportState, ReportedMessage, SmsGateway, SmsMessage,
};
pub use ledger::{Guesser, Ledger, LedgerCursor, LedgerEntry, LedgerFilter, LedgerPage, MessageState};
pub use message::{
    MessagePurpose, ProgramKind, ProgramPurpose, Purpose, RequestedMessage, SendOutcome, SendReceipt,
};
pub use phone::{Phone, PhoneError, UNKNOWN_COUNTRY};
pub use send::{InTurn, TurnResult};
pub use spent::{BudgetLevel, SpentRule};

random_id! {
    /// Identifies one message, here and in the reports of its gateway. Random, not secret.
    MessageId
}

/// What only one person should know: six digits if the code is ours. Wiped when dropped, never printed.
#[derive(Clone)]
pub struct SmsCode(Zeroizing<String>);

/// The digits of our codes.
const DIGITS: usize = 6;

impl SmsCode {
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

impl fmt::Debug for SmsCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Code(…)")
    }
}

fn hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_read_as_people_type_them() {
        for text in ["012345", " 012 345 ", "012-345", "０１２３４５", "0 1 2 3 4 5", "۰۱۲۳۴۵"] {
            assert_eq!(SmsCode::parse(text).unwrap().expose(), "012345", "{text:?}");
        }
        for text in ["", "12345", "1234567", "12345a", "１２３４５", "+12345"] {
            assert!(SmsCode::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn codes_of_others_are_letters_and_digits_and_nothing_else() {
        for text in ["1234", "012345", "0123456789", "aZ09"] {
            assert_eq!(SmsCode::relayed(text).unwrap().expose(), text);
        }
        for text in
            ["", "123", "12345678901", "12 34", "12-34", "１２３４", "12é4", "1234\n", "a.io", "{code}"]
        {
            assert!(SmsCode::relayed(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn codes_use_every_digit_at_every_place() {
        let entropy = Entropy::seeded(7);
        let mut seen = [[0u32; 10]; 6];
        for _ in 0..10_000 {
            let code = SmsCode::random(&entropy);
            for (place, digit) in code.expose().bytes().enumerate() {
                seen[place][usize::from(digit - b'0')] += 1;
            }
        }
        // 1000 of each are expected; five standard deviations are 150.
        assert!(seen.iter().flatten().all(|&count| (850..=1150).contains(&count)), "{seen:?}");
        assert_eq!(format!("{:?}", SmsCode::random(&entropy)), "Code(…)");
    }

    #[test]
    fn ids_and_purposes_come_back_from_their_text() {
        let id = MessageId::random(&Entropy::Os);
        assert_eq!(MessageId::parse(&id.to_string()), Some(id));
        assert_eq!(MessageId::parse("+0000000000000000000000000000001"), None);
        assert!(Purpose::ALL.iter().all(|purpose| purpose.into_str().parse() == Ok(*purpose)));
    }
}
