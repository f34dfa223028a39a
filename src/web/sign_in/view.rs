//! `/login`: name and password, a challenge if one is due, and a wait if one is in force.

use actix_web::HttpResponse;
use askama::Template;

use crate::web::captcha::CaptchaBlock;
use crate::web::form::notice::Notice;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::visit::{Layout, Visit, with_wait};

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
        let layout = visit.layout(Next::after("/login", next.as_ref()), None);
        Self {
            layout,
            login: String::new(),
            next,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
        }
    }

    /// The name as typed. A password is never shown again.
    pub fn login(mut self, typed: &str) -> Self {
        self.login = typed.chars().take(256).collect();
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

    /// The focus: the field with an error, otherwise the first field to type again. A page with a wait sets
    /// no focus, so that its message is read first.
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
