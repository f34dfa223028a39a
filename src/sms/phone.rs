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
    /// In E.164.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Phone {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Phone(…)")
    }
}
