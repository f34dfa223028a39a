//! Asks for the password between a form of the console and its change, so that no input is lost.

use actix_web::HttpResponse;
use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer};

use crate::captcha::CaptchaForm;
use crate::login::SessionToken;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::console::confirm::page::{ConfirmForm, confirm};
use crate::web::console::confirm::view::{CarriedForm, ConfirmPage};
use crate::web::console::guard::Admin;
use crate::web::form::reply::FormReply;
use crate::web::kit::services::Services;
use crate::web::kit::visit::{self, Visit};
use crate::web::kit::web_error::WebError;

/// A submitted form.
pub type FormPairs = Vec<(String, String)>;

pub fn value<'a>(pairs: &'a [(String, String)], name: &str) -> &'a str {
    pairs.iter().find(|(sent, _)| sent == name).map_or("", |(_, value)| value)
}

/// The password was confirmed recently, or just now.
pub struct Confirmed(Option<SessionToken>);

impl Confirmed {
    /// Adds the session token that the confirmation renewed to the answer.
    pub fn finish(self, visit: &Visit, services: &Services, mut response: HttpResponse) -> HttpResponse {
        if let Some(token) = self.0 {
            visit::set(&mut response, visit.cookies().session(&token.expose(), services.session_lasts));
        }
        response
    }
}

/// Passes if the password was confirmed recently or comes with this form. Otherwise returns the page that
/// asks for the password and carries the form to `action`. The caller has checked the form's CSRF token.
pub async fn require(
    visit: &Visit,
    services: &Services,
    admin: &Admin,
    action: &str,
    pairs: &[(String, String)],
) -> Result<Confirmed, WebError> {
    if services.sessions.is_confirmed(&admin.who.session) {
        return Ok(Confirmed(None));
    }
    let page = || ConfirmPage::new(visit, admin.login(), None).carrying(CarriedForm::new(action, pairs));
    if !pairs.iter().any(|(name, _)| name == "password") {
        return Err(page().respond(visit).into());
    }
    let fields = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let form = ConfirmForm::deserialize(MapDeserializer::<_, Error>::new(fields)).unwrap_or_default();
    let live = services.live.snapshot();
    let show = |notice, captcha: CaptchaBlock| page().notice(notice).captcha(captcha).respond(visit);
    let reply = FormReply { visit, services, live: &live, form: CaptchaForm::PasswordChange, show: &show };
    Ok(Confirmed(Some(confirm(&reply, admin, &form).await?)))
}
