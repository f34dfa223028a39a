//! A form value that must not be shown again or logged.

use std::fmt;

use serde::Deserialize;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A form value that must not be shown again or logged. It is wiped when dropped.
#[derive(Default, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct SecretField(String);

impl SecretField {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretField(…)")
    }
}
