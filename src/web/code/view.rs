//! Two-step forms, a number and then its code: `/login/code`, `/password/reset` and `/account/phone`. The
//! registration form has the same fields.

use std::time::Duration;

use actix_web::HttpResponse;
use askama::Template;

use crate::clock::Micros;
use crate::sms::Purpose;
use crate::web::captcha::CaptchaBlock;
use crate::web::form::notice::Notice;
use crate::web::kit::locale::{Locale, Wait, span_in_words};
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::visit::{Layout, Visit, with_wait};

/// What the page keeps about a sent code, in hidden fields for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentCode {
    pub number: String,
    pub good_until: Micros,
    /// When another code may be requested.
    pub next_code: Micros,
    /// The gateway confirmed that it accepted the message.
    pub confirmed: bool,
    /// Codes are rationed: the message may not come, and the page does not say whether it will.
    pub short: bool,
}

/// The current step of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeStep {
    /// The number as typed, or the number that the code was sent to.
    pub number: String,
    pub second: Option<SecondStep>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondStep {
    /// Unix seconds, rounded up.
    pub good_until: i64,
    pub next_code: i64,
    lasts: u64,
    /// Until another code may be requested; None if one may be requested now.
    pub again: Option<Wait>,
    pub confirmed: bool,
    pub short: bool,
}

impl CodeStep {
    pub fn asking(typed: &str) -> Self {
        Self { number: typed.chars().take(64).collect(), second: None }
    }

    pub fn sent(sent: SentCode, now: Micros) -> Self {
        let wait = sent.next_code.since(now);
        let second = SecondStep {
            good_until: seconds_up(sent.good_until),
            next_code: seconds_up(sent.next_code),
            lasts: left(sent.good_until.since(now)),
            again: (!wait.is_zero()).then(|| Wait::new(now, wait)),
            confirmed: sent.confirmed,
            short: sent.short,
        };
        Self { number: sent.number.chars().take(64).collect(), second: Some(second) }
    }

    /// Another code was requested, but none is allowed for this long.
    pub fn not_before(mut self, retry_after: Duration, now: Micros) -> Self {
        if let Some(second) = &mut self.second {
            second.next_code = seconds_up(now.plus(retry_after));
            second.again = Some(Wait::new(now, retry_after));
        }
        self
    }

    /// The field to fill in next.
    pub const fn field(&self) -> Field {
        if self.second.is_some() { Field::Code } else { Field::Phone }
    }
}

/// Whole seconds, rounded down. The form field was already rounded up, and must not be rounded up twice.
fn left(span: Duration) -> u64 {
    if span.is_zero() { 0 } else { span.as_secs().max(1) }
}

/// Rounded up, so that the moment is never too early.
const fn seconds_up(at: Micros) -> i64 {
    at.plus(Duration::from_micros(999_999)).seconds()
}

impl SecondStep {
    /// How long the code is still valid; None if it has expired.
    pub fn lasts(&self, locale: Locale) -> Option<String> {
        (self.lasts > 0).then(|| span_in_words(self.lasts, locale))
    }
}

#[derive(Template)]
#[template(path = "pages/code.html")]
pub struct CodePage {
    layout: Layout,
    words: Words,
    step: CodeStep,
    next: Option<Next>,
    notice: Notice,
    errors: FieldErrors,
    captcha: CaptchaBlock,
    password_min: usize,
}

/// What differs between pages: the path, and the keys of the texts.
struct Words {
    path: &'static str,
    title: &'static str,
    lead: &'static str,
    submit: &'static str,
    new_password: bool,
    /// The second step, or the only one, asks for the current password.
    current_password: bool,
    /// The form has no number and no code.
    one_step: bool,
    /// Below the form: the text before the link, the link's text, and its target.
    aside: [&'static str; 3],
}

const LOGIN: Words = Words {
    path: "/login/code",
    title: "code-login.title",
    lead: "code-login.lead",
    submit: "login.submit",
    new_password: false,
    current_password: false,
    one_step: false,
    aside: ["code-login.have-password", "code-login.password", "/login"],
};
const RESET: Words = Words {
    path: "/password/reset",
    title: "reset.title",
    lead: "reset.lead",
    submit: "reset.submit",
    new_password: true,
    current_password: false,
    one_step: false,
    aside: ["reset.remembered", "reset.login", "/login"],
};
const PHONE: Words = Words {
    path: "/account/phone",
    title: "phone.title",
    lead: "phone.lead",
    submit: "phone.submit",
    new_password: false,
    current_password: true,
    one_step: false,
    aside: ["phone.no-change", "phone.account", "/account"],
};
const REMOVAL: Words = Words {
    path: "/account/phone/remove",
    title: "phone.remove-title",
    lead: "phone.remove-lead",
    submit: "account.remove-phone",
    one_step: true,
    ..PHONE
};

const EXPORT: Words = Words {
    path: "/account/export",
    title: "account.export",
    lead: "account.export-lead",
    submit: "account.export-submit",
    ..REMOVAL
};
const DELETION: Words = Words {
    path: "/account/delete",
    title: "account.delete",
    lead: "account.delete-lead",
    submit: "account.delete-submit",
    ..REMOVAL
};

/// What is done in one step, for the current password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneStep {
    PhoneRemoval,
    Export,
    Deletion,
}

impl CodePage {
    /// For a purpose that has its own page. `user` is the signed-in user.
    pub fn new(visit: &Visit, purpose: Purpose, user: Option<&str>, next: Option<Next>) -> Self {
        let words = match purpose {
            Purpose::Reset => RESET,
            Purpose::Verify => PHONE,
            Purpose::Login | Purpose::Register => LOGIN,
        };
        Self::with(visit, words, user, next)
    }

    pub fn one_step(visit: &Visit, what: OneStep, user: &str) -> Self {
        let words = match what {
            OneStep::PhoneRemoval => REMOVAL,
            OneStep::Export => EXPORT,
            OneStep::Deletion => DELETION,
        };
        Self::with(visit, words, Some(user), None)
    }

    fn with(visit: &Visit, words: Words, user: Option<&str>, next: Option<Next>) -> Self {
        Self {
            layout: visit.layout(Next::after(words.path, next.as_ref()), user),
            words,
            step: CodeStep::asking(""),
            next,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
            password_min: crate::login::SHORTEST_PASSWORD,
        }
    }

    pub fn step(mut self, step: CodeStep) -> Self {
        self.step = step;
        self
    }

    pub fn notice(mut self, notice: Notice) -> Self {
        self.layout.mistaken = notice.is_mistake();
        self.errors = notice.errors();
        self.notice = notice;
        self
    }

    pub fn captcha(mut self, captcha: CaptchaBlock) -> Self {
        self.captcha = captcha;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        let mut response = visit.page(self.notice.status(), self);
        if let Some(next) = &self.next {
            next.open_forms(&mut response);
        }
        with_wait(response, self.notice.wait())
    }

    fn focus(&self) -> &'static str {
        match (self.notice.wait(), self.errors.first()) {
            (Some(_), _) => "",
            (None, Some(field)) => field.name(),
            (None, None) if self.words.one_step => Field::CurrentPassword.name(),
            (None, None) => self.step.field().name(),
        }
    }

    /// The form cannot succeed.
    const fn closed(&self) -> bool {
        matches!(self.notice, Notice::PasswordFirst | Notice::PasswordRequired | Notice::AccountDisabled)
    }

    fn password_hint(&self) -> String {
        self.layout.with("register.password-hint", &self.password_min.to_string()).into_owned()
    }
}
