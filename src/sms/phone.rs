//! A telephone number that can take a message: parsed, canonical, and safe to print.

use std::fmt;

/// A mobile number in E.164 (`+8613800138000`): every spelling of it is the same bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Phone(String);

/// Why a text is no number that a code can be sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PhoneError {
    #[error("is missing")]
    Missing,
    #[error("is no telephone number")]
    NotANumber,
    #[error("is no mobile number")]
    NotMobile,
    #[error("is of a country that no codes are sent to")]
    CountryNotAllowed,
}

impl Phone {
    /// Out of a column that only ever held one.
    pub fn stored(e164: String) -> Self {
        Self(e164)
    }

    /// In E.164.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number without its last four digits: its 10,000 neighbours share it.
    pub fn block(&self) -> &str {
        self.less(4)
    }

    /// The number without its last six digits: an operator's range of a million.
    pub fn range(&self) -> &str {
        self.less(6)
    }

    /// For the ledger, which shows the block.
    pub fn ledger_mask(&self) -> String {
        format!("{}****", self.block())
    }

    fn less(&self, digits: usize) -> &str {
        &self.0[..self.0.len().saturating_sub(digits)]
    }
}

impl fmt::Debug for Phone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Phone(…)")
    }
}
