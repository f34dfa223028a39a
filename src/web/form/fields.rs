//! The forms as they are sent. A field left out reads as empty, so that its absence is told at the
//! field and not as a page of its own.

use serde::Deserialize;

use crate::web::kit::secret_field::SecretField;

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
