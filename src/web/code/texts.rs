//! What differs between the pages on which a code is entered, or the current password alone.

use super::Asks;

/// What differs between pages: the path, and the keys of the texts.
pub struct FormTexts {
    pub path: &'static str,
    pub(super) to: Asks,
    pub(super) title: &'static str,
    pub(super) lead: &'static str,
    pub(super) submit: &'static str,
    pub(super) new_password: bool,
    /// The second step, or the only one, asks for the current password.
    pub(super) current_password: bool,
    /// The form has no number and no code.
    pub(super) one_step: bool,
    /// Below the form: the text before the link, the link's text, and its target.
    pub(super) aside: [&'static str; 3],
}

impl FormTexts {
    /// Where a code is entered that somebody has.
    pub(super) fn entry(&self) -> String {
        format!("{}?code", self.path)
    }
}

pub const LOGIN: FormTexts = FormTexts {
    path: "/login/code",
    to: Asks::Phone,
    title: "code-login.title",
    lead: "code-login.lead",
    submit: "login.submit",
    new_password: false,
    current_password: false,
    one_step: false,
    aside: ["code-login.have-password", "code-login.password", "/login"],
};
pub const RESET: FormTexts = FormTexts {
    path: "/password/reset",
    to: Asks::Either,
    title: "reset.title",
    lead: "reset.lead",
    submit: "reset.submit",
    new_password: true,
    current_password: false,
    one_step: false,
    aside: ["reset.remembered", "reset.login", "/login"],
};
pub const PHONE: FormTexts = FormTexts {
    path: "/account/phone",
    to: Asks::Phone,
    title: "phone.title",
    lead: "phone.lead",
    submit: "phone.submit",
    new_password: false,
    current_password: true,
    one_step: false,
    aside: ["phone.no-change", "phone.account", "/account"],
};
pub const FACTORS: FormTexts = FormTexts {
    path: "/account/factors/code",
    title: "factors.confirm",
    lead: "factors.confirm-sms",
    submit: "confirm.submit",
    current_password: false,
    ..PHONE
};
pub const REMOVAL: FormTexts = FormTexts {
    path: "/account/phone/remove",
    title: "phone.remove-title",
    lead: "phone.remove-lead",
    submit: "account.remove-phone",
    one_step: true,
    ..PHONE
};
pub const EMAIL: FormTexts = FormTexts {
    path: "/account/email",
    to: Asks::Email,
    title: "email.title",
    lead: "email.lead",
    submit: "email.submit",
    aside: ["email.no-change", "phone.account", "/account"],
    ..PHONE
};
pub const EMAIL_REMOVAL: FormTexts = FormTexts {
    path: "/account/email/remove",
    title: "email.remove-title",
    lead: "email.remove-lead",
    submit: "account.remove-email",
    one_step: true,
    ..EMAIL
};
/// At an account whose password no code by mail sets.
pub const EMAIL_FOR_NOTICES: FormTexts = FormTexts { lead: "email.lead-notices", ..EMAIL };
pub const EMAIL_REMOVAL_FOR_NOTICES: FormTexts =
    FormTexts { lead: "email.remove-lead-notices", ..EMAIL_REMOVAL };
pub const EXPORT: FormTexts = FormTexts {
    path: "/account/export",
    title: "account.export",
    lead: "account.export-lead",
    submit: "account.export-submit",
    ..REMOVAL
};
pub const DELETION: FormTexts = FormTexts {
    path: "/account/delete",
    title: "account.delete",
    lead: "account.delete-lead",
    submit: "account.delete-submit",
    ..REMOVAL
};
