//! How the ledger's columns are written and read back.

use super::{MessageId, Micros, SubjectKey};
use crate::sms::MessagePurpose;
use crate::sms::share::BudgetShare;
use crate::throttle::HitId;

/// The most of a gateway's own words that is stored.
const LONGEST_WORDS: usize = 200;

/// The state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MessageState {
    /// It was admitted, and its gateway has not answered yet. It counts, and becomes unknown if its process
    /// dies.
    Pending,
    /// The gateway has accepted it.
    Accepted,
    /// It was not sent, and its number's limit does not count it.
    Refused,
    /// It may have been sent. It counts, and is never sent again.
    Unknown,
    /// Codes were short, and it was not sent: the answer was the same as for any other number.
    Withheld,
}

impl MessageState {
    pub const ALL: [Self; 5] = [Self::Pending, Self::Accepted, Self::Refused, Self::Unknown, Self::Withheld];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::Withheld => "withheld",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }

    pub(super) fn stored(text: &str) -> Result<Self, sqlx::Error> {
        Self::parse(text).ok_or_else(|| decode("an unknown state"))
    }
}

/// A row's position in the ledger, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerPosition {
    pub at: Micros,
    pub id: String,
}

impl LedgerPosition {
    /// Before the newest row.
    pub const NEWEST: Self = Self { at: Micros(i64::MAX), id: String::new() };
}

/// What the window store had of a message.
#[derive(Debug, Clone)]
pub struct HitRow {
    pub place: LedgerPosition,
    pub phone: SubjectKey,
    pub address: SubjectKey,
    pub network: SubjectKey,
    pub once: Option<SubjectKey>,
    pub hit: HitId,
    pub block: String,
    pub share: BudgetShare,
    pub purpose: MessagePurpose,
}

#[derive(sqlx::FromRow)]
pub struct RawHit {
    created_at: i64,
    id: String,
    phone_key: String,
    address_key: String,
    network_key: String,
    once_key: Option<String>,
    hit: String,
    block: String,
    share: String,
    purpose: String,
}

impl RawHit {
    pub fn parse(self) -> Result<HitRow, sqlx::Error> {
        Ok(HitRow {
            place: LedgerPosition { at: Micros(self.created_at), id: self.id },
            phone: stored_key(&self.phone_key)?,
            address: stored_key(&self.address_key)?,
            network: stored_key(&self.network_key)?,
            once: self.once_key.as_deref().map(stored_key).transpose()?,
            hit: stored_hit(&self.hit)?,
            block: self.block,
            share: stored_share(&self.share)?,
            purpose: stored_purpose(&self.purpose)?,
        })
    }
}

pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a String takes what it is given");
        text
    })
}

fn unhex<const N: usize>(text: &str) -> Result<[u8; N], sqlx::Error> {
    let mut bytes = [0; N];
    let digits = text.len() == 2 * N && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !digits {
        return Err(decode("hexadecimal digits of the wrong length"));
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let pair = std::str::from_utf8(pair).expect("ASCII");
        *byte = u8::from_str_radix(pair, 16).expect("two hexadecimal digits");
    }
    Ok(bytes)
}

pub fn stored_key(text: &str) -> Result<SubjectKey, sqlx::Error> {
    unhex(text).map(SubjectKey)
}

pub fn stored_hit(text: &str) -> Result<HitId, sqlx::Error> {
    unhex(text).map(HitId)
}

pub fn stored_id(text: &str) -> Result<MessageId, sqlx::Error> {
    MessageId::parse(text).ok_or_else(|| decode("an invalid id"))
}

pub fn stored_share(text: &str) -> Result<BudgetShare, sqlx::Error> {
    BudgetShare::parse(text).ok_or_else(|| decode("an unknown share"))
}

pub fn stored_purpose(text: &str) -> Result<MessagePurpose, sqlx::Error> {
    MessagePurpose::parse(text).ok_or_else(|| decode("an unknown purpose"))
}

pub fn decode(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("a column holds {what}").into())
}

/// A gateway's text may be long.
pub fn short(words: &str) -> &str {
    let end = words.char_indices().nth(LONGEST_WORDS).map_or(words.len(), |(at, _)| at);
    &words[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_from_their_text() {
        let key = SubjectKey([0x0f, 0xa0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 255]);
        assert_eq!(stored_key(&hex(&key.0)).unwrap(), key);
        for text in ["", "0f", "+f0102030405060708090a0b0c0d0e0f", &"é".repeat(16)] {
            assert!(stored_key(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn words_are_cut_between_letters() {
        assert_eq!(short(&"短".repeat(300)).chars().count(), LONGEST_WORDS);
        assert_eq!(short("brief"), "brief");
    }
}
