//! The fields of a form about a number and the code that goes to it.

use serde::Deserialize;

use crate::web::form::fields::GuardedFields;
use crate::web::kit::secret_field::SecretField;

/// The part of a form that is about a number and the code that goes to it. A form has two steps, and
/// nothing of the first is remembered here: it comes back with the second, and is judged anew.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeFields {
    pub phone: SecretField,
    pub code: SecretField,
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

/// `POST /login/code`, `POST /password/reset`, `POST /account/phone` and `POST /account/phone/remove`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CodeForm {
    /// Also as the registration calls it: there is only one password here.
    #[serde(alias = "password")]
    pub new_password: SecretField,
    /// What a change to an account's number needs besides.
    pub current_password: SecretField,
    pub next: String,
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
