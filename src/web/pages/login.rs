//! `/login`: name and password, a challenge where one is due, a wait where one is in force.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderValue, RETRY_AFTER};
use askama::Template;
use url::form_urlencoded;

use crate::web::message::{Field, FieldErrors, Message};
use crate::web::next::Next;
use crate::web::pages::Layout;
use crate::web::pages::captcha::CaptchaBlock;
use crate::web::visit::Visit;
use crate::web::wait::Wait;

/// Why the form is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Notice {
    #[default]
    None,
    /// Another image was asked for; nothing was tried.
    Refreshed,
    /// Name or password is wrong, and the page does not say which.
    Rejected,
    CaptchaNeeded,
    CaptchaWrong,
    Throttled(Wait),
    /// More sign-ins at once than there is room to check.
    Busy(Wait),
    /// No code was sent: there were enough of late.
    TooManyCodes(Wait),
    /// Nothing that has to do with codes works at the moment.
    NoCodes(Wait),
    /// The gateway did not take the message; it may be tried again at once.
    NotSent,
    /// The account has no password to show, and one is needed first.
    PasswordFirst,
    /// An administrator's account, which no code opens.
    PasswordRequired,
    /// See the fields.
    Invalid(FieldErrors),
    /// The form was too old, or not one of ours.
    Expired,
}

impl Notice {
    pub fn status(&self) -> StatusCode {
        match self {
            Self::None | Self::Refreshed => StatusCode::OK,
            Self::Rejected => StatusCode::UNAUTHORIZED,
            Self::CaptchaNeeded
            | Self::CaptchaWrong
            | Self::Expired
            | Self::PasswordFirst
            | Self::PasswordRequired => StatusCode::FORBIDDEN,
            Self::Throttled(_) | Self::TooManyCodes(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Busy(_) | Self::NoCodes(_) | Self::NotSent => StatusCode::SERVICE_UNAVAILABLE,
            Self::Invalid(errors) => errors.status(),
        }
    }

    pub const fn wait(&self) -> Option<&Wait> {
        match self {
            Self::Throttled(wait) | Self::Busy(wait) | Self::TooManyCodes(wait) | Self::NoCodes(wait) => {
                Some(wait)
            }
            _ => None,
        }
    }

    /// What stands at the fields of a form that is shown with it.
    pub fn errors(&self) -> FieldErrors {
        match self {
            Self::Invalid(errors) => errors.clone(),
            Self::CaptchaWrong => FieldErrors::one(Field::CaptchaAnswer, Message::CaptchaWrong),
            _ => FieldErrors::default(),
        }
    }
}

#[derive(Template)]
#[template(path = "pages/login.html")]
pub struct LoginPage {
    layout: Layout,
    login: String,
    next: Option<Next>,
    notice: Notice,
    errors: FieldErrors,
    captcha: CaptchaBlock,
}

impl LoginPage {
    /// The form as it is first shown.
    pub fn new(visit: &Visit, next: Option<Next>) -> Self {
        let layout = visit.layout(here("/login", next.as_ref()), None);
        Self {
            layout,
            login: String::new(),
            next,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
        }
    }

    /// The name as it was typed; a password is never shown again.
    pub fn login(mut self, typed: &str) -> Self {
        self.login = typed.chars().take(256).collect();
        self
    }

    pub fn notice(mut self, notice: Notice) -> Self {
        self.errors = notice.errors();
        self.notice = notice;
        self
    }

    pub fn captcha(mut self, captcha: CaptchaBlock) -> Self {
        self.captcha = captcha;
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        with_wait(visit.page(self.notice.status(), self), self.notice.wait())
    }

    /// Where typing goes on: the field at fault, else what has to be typed again. A page that asks to
    /// wait takes no focus, so that what it says is read first.
    fn focus(&self) -> &'static str {
        match (&self.notice, self.errors.first()) {
            (notice, _) if notice.wait().is_some() => "",
            (Notice::CaptchaWrong, _) => "password",
            (_, Some(field)) => field.name(),
            _ if self.login.is_empty() => "login",
            _ => "password",
        }
    }
}

pub(super) fn here(path: &str, next: Option<&Next>) -> String {
    let Some(next) = next else { return path.to_owned() };
    let query: String = form_urlencoded::byte_serialize(next.as_str().as_bytes()).collect();
    format!("{path}?next={query}")
}

pub(super) fn with_wait(mut response: HttpResponse, wait: Option<&Wait>) -> HttpResponse {
    if let Some(wait) = wait {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.seconds()));
    }
    response
}
