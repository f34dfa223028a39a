//! The forms as they are sent. A field left out reads as empty, so that its absence is told at the
//! field and not as a page of its own.

use std::fmt;

use serde::Deserialize;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Something typed that must not be shown again or logged; wiped when dropped.
#[derive(Default, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct Typed(String);

impl Typed {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Typed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Typed(…)")
    }
}

/// `POST /login`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoginForm {
    pub login: String,
    pub password: Typed,
    pub captcha_id: String,
    pub captcha_answer: Typed,
    /// There where another image was asked for.
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
    pub next: String,
}

/// `POST /register`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RegisterForm {
    pub login: String,
    pub password: Typed,
    pub captcha_id: String,
    pub captcha_answer: Typed,
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
    pub next: String,
}

/// `POST /account/password`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    pub current_password: Typed,
    pub new_password: Typed,
    pub captcha_id: String,
    pub captcha_answer: Typed,
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
}

/// `POST /account/sessions/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeForm {
    pub session_id: String,
    pub csrf_token: String,
}

/// `POST /logout` and `POST /account/sessions/revoke-others`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenForm {
    pub csrf_token: String,
}

/// `GET /login` and `GET /register`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NextQuery {
    pub next: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_not_shown_by_debug() {
        let form: LoginForm =
            serde_json::from_str(r#"{"password":"hunter2","captcha_answer":"xyz"}"#).unwrap();
        let shown = format!("{form:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("xyz"), "{shown}");
        assert_eq!(form.password.expose(), "hunter2");
    }
}
