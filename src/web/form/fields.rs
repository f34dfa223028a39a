//! The forms as they are sent. A field left out reads as empty, so that its absence is told at the
//! field and not as a page of its own.

use std::fmt;

use serde::Deserialize;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Something typed that must not be shown again or logged; wiped when dropped.
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

/// What every form that may be challenged carries.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GuardedFields {
    pub captcha_id: String,
    pub captcha_answer: SecretField,
    /// There where another image was asked for.
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
}

/// `POST /logout`, and what else needs to know no more than who asks
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenForm {
    pub csrf_token: String,
}

/// `GET /login`, `GET /login/code`, `GET /register` and `GET /admin/confirm`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NextQuery {
    pub next: String,
}
