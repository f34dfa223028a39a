//! `/admin/confirm`: the password again, a challenge if one is due, and a wait if one is in force.

use actix_web::HttpResponse;
use askama::Template;

use crate::web::captcha::view::CaptchaBlock;
use crate::web::form::notice::Notice;
use crate::web::kit::layout::Layout;
use crate::web::kit::message::{Field, FieldErrors};
use crate::web::kit::next::Next;
use crate::web::kit::visit::Visit;
use crate::web::kit::visit::with_wait;

/// A form that is submitted again to its target after the password is confirmed.
pub struct CarriedForm {
    action: String,
    fields: Vec<(String, String)>,
}

impl CarriedForm {
    /// Every field of the form, except those that the page asks for itself.
    pub fn new(action: &str, pairs: &[(String, String)]) -> Self {
        const OWN: [&str; 6] =
            ["csrf_token", "password", "captcha_id", "captcha_answer", "captcha_altcha", "captcha_refresh"];
        let fields = pairs.iter().filter(|(name, _)| !OWN.contains(&name.as_str())).cloned().collect();
        Self { action: action.to_owned(), fields }
    }
}

#[derive(Template)]
#[template(path = "pages/confirm.html")]
pub struct ConfirmPage {
    layout: Layout,
    next: Option<Next>,
    notice: Notice,
    errors: FieldErrors,
    captcha: CaptchaBlock,
    carried: Option<CarriedForm>,
}

impl ConfirmPage {
    /// The form as it is first shown.
    pub fn new(visit: &Visit, user: &str, next: Option<Next>) -> Self {
        Self {
            layout: visit.layout(Next::after("/admin/confirm", next.as_ref()), Some(user)),
            next,
            notice: Notice::None,
            errors: FieldErrors::default(),
            captcha: CaptchaBlock::Absent,
            carried: None,
        }
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

    /// Carries a form, which runs after the password is confirmed.
    pub fn carrying(mut self, carried: CarriedForm) -> Self {
        self.carried = Some(carried);
        self
    }

    pub fn respond(&self, visit: &Visit) -> HttpResponse {
        with_wait(visit.page(self.notice.status(), self), self.notice.wait())
    }

    /// A page with a wait sets no focus, so that its message is read first.
    const fn focus(&self) -> &'static str {
        if self.notice.wait().is_some() { "" } else { "password" }
    }
}
