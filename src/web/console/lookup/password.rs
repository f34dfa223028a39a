//! The password, asked for between a form of the console and what it changes, so that nothing typed is lost.

use std::sync::Arc;

use actix_web::HttpResponse;
use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer};

use crate::captcha;
use crate::login::SessionToken;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::console::confirm::page;
use crate::web::console::confirm::page::ConfirmForm;
use crate::web::console::confirm::view::{Carried, ConfirmPage};
use crate::web::console::guard::Admin;
use crate::web::form::reply::Reply;
use crate::web::kit::services::Services;
use crate::web::kit::visit::{self, Visit};

/// A form as it was sent.
pub type Pairs = Vec<(String, String)>;

pub fn value<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    pairs.iter().find(|(sent, _)| sent == name).map_or("", |(_, value)| value)
}

/// Somebody may change something.
pub struct Shown(Option<SessionToken>);

impl Shown {
    /// The answer, with the token that a shown password renewed.
    pub fn finish(self, visit: &Visit, services: &Services, mut response: HttpResponse) -> HttpResponse {
        if let Some(token) = self.0 {
            visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
        }
        response
    }
}

/// Goes on where the password was shown lately, or comes with this form; otherwise gives the page that asks
/// for it and carries the form along to `action`. Whoever calls has seen to it that the form is ours.
pub async fn shown(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    action: &str,
    pairs: &[(String, String)],
) -> Result<Shown, HttpResponse> {
    if services.sessions.is_confirmed(&admin.who.session) {
        return Ok(Shown(None));
    }
    let carried = || Carried::new(action, pairs);
    let page = || ConfirmPage::new(visit, admin.login(), None).carrying(carried());
    if !pairs.iter().any(|(name, _)| name == "password") {
        return Err(page().respond(visit));
    }
    let fields = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let form = ConfirmForm::deserialize(MapDeserializer::<_, Error>::new(fields)).unwrap_or_default();
    let live = services.live.snapshot();
    let show = |notice, captcha: CaptchaBlock| page().notice(notice).captcha(captcha).respond(visit);
    let reply = Reply {
        visit,
        services,
        live: &Arc::clone(&live),
        form: captcha::CaptchaForm::PasswordChange,
        show: &show,
    };
    page::verified(&reply, admin, &form).await.map(|token| Shown(Some(token)))
}
