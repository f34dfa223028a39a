//! `/register`: a new account with a name and a password.

use actix_web::HttpResponse;
use askama::Template;

use crate::web::captcha::CaptchaBlock;
use crate::web::code::view::CodeStep;
use crate::web::form::notice::Notice;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::visit::{Layout, Visit, with_wait};

/// The numbers in the hints. The parsers of names and passwords decide.
#[derive(Debug, Clone, Copy)]
pub struct Hints {
    pub login_max: usize,
    pub password_min: usize,
}

#[derive(Template)]
#[template(path = "pages/register.html")]
pub struct RegisterPage {
    layout: Layout,
    hints: Hints,
    login: String,
    step: CodeStep,
    next: Option<Next>,
    notice: Notice,
    errors: FieldErrors,
    captcha: CaptchaBlock,
}

impl RegisterPage {
    pub fn new(visit: &Visit, hints: Hints, next: Option<Next>) -> Self {
        let layout = visit.layout(Next::after("/register", next.as_ref()), None);
        Self {
            layout,
            hints,
            login: String::new(),
            step: CodeStep::asking(""),
            next,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
        }
    }

    pub fn login(mut self, typed: &str) -> Self {
        self.login = typed.chars().take(256).collect();
        self
    }

    pub fn step(mut self, step: CodeStep) -> Self {
        self.step = step;
        self
    }

    /// `Notice::Rejected` has no meaning here. A taken name is `Message::LoginTaken` at its field.
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
        match (&self.notice, self.errors.first()) {
            (notice, _) if notice.wait().is_some() => "",
            (Notice::CaptchaWrong, _) => "password",
            (_, Some(field)) => field.name(),
            _ if self.login.is_empty() => "login",
            _ if self.step.second.is_some() => "code",
            _ => "password",
        }
    }

    /// Who gives a number chooses the password in the next step, together with the code.
    const fn asks_number(&self) -> bool {
        self.layout.sends_codes && self.step.second.is_none()
    }

    fn password_hint(&self) -> String {
        self.layout.with("register.password-hint", &self.hints.password_min.to_string()).into_owned()
    }

    fn login_hint(&self) -> String {
        self.layout.with("register.login-hint", &self.hints.login_max.to_string()).into_owned()
    }
}
