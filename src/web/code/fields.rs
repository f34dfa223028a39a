//! The fields for a phone number and its code.

use serde::Deserialize;

use crate::web::form::fields::{GuardedFields, NextFields};
use crate::web::kit::extract::SecretField;

/// The fields for a phone number and its code. A form has two steps. The server keeps nothing of the first:
/// the browser sends it again with the second step, and it is checked again.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeFields {
    pub phone: SecretField,
    pub code: SecretField,
    /// Present if a code, or another code, is requested.
    pub send: Option<String>,
    /// Present if the user wants to enter another number.
    pub change: Option<String>,
    /// Unix seconds, for display: when another code may be requested.
    pub next_code: String,
    /// Unix seconds, for display: until when the code is valid. Set in the second step.
    pub good_until: String,
    /// For display: present if it is unknown whether the message was sent.
    pub unconfirmed: Option<String>,
    /// For display: present if codes are rationed.
    pub short: Option<String>,
}

/// `POST /login/code`, `POST /password/reset`, `POST /account/phone` and `POST /account/phone/remove`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeForm {
    /// Registration names this field `password`; there is only one password here.
    #[serde(alias = "password")]
    pub new_password: SecretField,
    /// Also required to change an account's number.
    pub current_password: SecretField,
    #[serde(flatten)]
    pub to: NextFields,
    #[serde(flatten)]
    pub fields: CodeFields,
    #[serde(flatten)]
    pub guarded: GuardedFields,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_is_not_shown_by_debug() {
        let form: crate::web::sign_in::page::LoginForm =
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
