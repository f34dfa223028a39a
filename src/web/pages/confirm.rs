//! `/admin/confirm`: the password once more, a challenge where one is due, a wait where one is in force.

use actix_web::HttpResponse;
use askama::Template;

use crate::web::message::{Field, FieldErrors};
use crate::web::next::Next;
use crate::web::pages::Layout;
use crate::web::pages::captcha::CaptchaBlock;
use crate::web::pages::login::{Notice, here, with_wait};
use crate::web::visit::Visit;

#[derive(Template)]
#[template(path = "pages/confirm.html")]
pub struct ConfirmPage {
    layout: Layout,
    next: Option<Next>,
    notice: Notice,
    errors: FieldErrors,
    captcha: CaptchaBlock,
}

impl ConfirmPage {
    /// The form as it is first shown.
    pub fn new(visit: &Visit, user: &str, next: Option<Next>) -> Self {
        Self {
            layout: visit.layout(here("/admin/confirm", next.as_ref()), Some(user)),
            next,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
        }
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

    /// A page that asks to wait takes no focus, so that what it says is read first.
    const fn focus(&self) -> &'static str {
        if self.notice.wait().is_some() { "" } else { "password" }
    }
}
