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

/// What every form that may be challenged carries.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Guarded {
    pub captcha_id: String,
    pub captcha_answer: Typed,
    /// There where another image was asked for.
    pub captcha_refresh: Option<String>,
    pub csrf_token: String,
}

/// The part of a form that is about a number and the code that goes to it. A form has two steps, and
/// nothing of the first is remembered here: it comes back with the second, and is judged anew.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeFields {
    pub phone: Typed,
    pub code: Typed,
    /// There where a code, or another one, was asked for.
    pub send: Option<String>,
    /// There where the number is to be typed anew.
    pub change: Option<String>,
    /// Unix seconds, to be shown again: when another code may be asked for.
    pub next_code: String,
    /// The same: until when the code is good. There in the second step.
    pub good_until: String,
    /// The same: there where nobody knows whether the message went out.
    pub unconfirmed: Option<String>,
    /// The same: there where codes are short.
    pub short: Option<String>,
}

/// `POST /login`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoginForm {
    pub login: String,
    pub password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `POST /register`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RegisterForm {
    pub login: String,
    pub password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `POST /login/code`, `POST /password/reset`, `POST /account/phone` and `POST /account/phone/remove`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeForm {
    /// Also as the registration calls it: there is only one password here.
    #[serde(alias = "password")]
    pub new_password: Typed,
    /// What a change to an account's number needs besides.
    pub current_password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `POST /account/password`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PasswordForm {
    pub current_password: Typed,
    pub new_password: Typed,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `POST /admin/confirm`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ConfirmForm {
    pub password: Typed,
    pub next: String,
    #[serde(flatten)]
    pub guarded: Guarded,
}

/// `POST /admin/tokens`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenMakingForm {
    pub name: String,
    /// Separated by spaces or commas.
    pub scopes: String,
    pub expires_days: String,
    pub csrf_token: String,
}

/// `POST /admin/tokens/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct TokenRevokingForm {
    pub id: String,
    pub csrf_token: String,
}

/// `POST /account/sessions/revoke`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RevokeForm {
    pub session_id: String,
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
        let form: CodeForm = serde_json::from_str(r#"{"code":"123456","new_password":"hunter2"}"#).unwrap();
        let shown = format!("{form:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("123456"), "{shown}");
        assert_eq!(form.fields.code.expose(), "123456");
    }
}
