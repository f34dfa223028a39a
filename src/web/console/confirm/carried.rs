//! Asks for the password between a form of the console and its change, so that no input is lost.

use std::time::Duration;

use serde::Deserialize;
use serde::de::value::{Error, MapDeserializer};

use crate::captcha::CaptchaForm;
use crate::login::SessionToken;
use crate::web::captcha::view::CaptchaBlock;
use crate::web::console::confirm::page::{ConfirmForm, confirm};
use crate::web::console::confirm::view::{CarriedForm, ConfirmPage};
use crate::web::console::guard::Admin;
pub use crate::web::form::fields::{FormPairs, value};
use crate::web::form::reply::FormReply;
use crate::web::kit::error_page::problem_page;
use crate::web::kit::services::Services;
use crate::web::kit::visit::{self, Visit};
use crate::web::kit::web_error::{WebError, WebResult};

/// The password was confirmed recently, or just now.
pub struct Confirmed(Option<SessionToken>);

impl Confirmed {
    /// The answer with the token that confirming renewed, also if it is an error: the token before it is void.
    pub fn finish(self, visit: &Visit, session_lasts: Duration, answer: WebResult) -> WebResult {
        let Some(token) = self.0 else { return answer };
        let mut response = match answer {
            Ok(response) => response,
            Err(WebError::Answer(response)) => *response,
            Err(WebError::Problem(problem)) => problem_page(visit, &problem),
        };
        visit::set(&mut response, visit.cookies().session(&token.expose(), session_lasts));
        Ok(response)
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
    if admin.is_confirmed(services) {
        return Ok(Confirmed(None));
    }
    let page = || ConfirmPage::new(visit, admin.login(), None).carrying(CarriedForm::new(action, pairs));
    if !pairs.iter().any(|(name, _)| name == "password") {
        return Err(page().respond(visit).into());
    }
    let fields = pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let form = ConfirmForm::deserialize(MapDeserializer::<_, Error>::new(fields)).unwrap_or_default();
    let live = visit.live(services);
    let show = |notice, captcha: CaptchaBlock| page().notice(notice).captcha(captcha).respond(visit);
    let reply = FormReply { visit, services, live: &live, form: CaptchaForm::PasswordChange, show: &show };
    Ok(Confirmed(Some(confirm(&reply, admin, &form).await?)))
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;
    use actix_web::web::Data;
    use url::Url;

    use super::*;
    use crate::clock::{Clock, Micros};
    use crate::entropy::Entropy;
    use crate::secret::MasterKey;
    use crate::web::kit::client::TrustedProxies;
    use crate::web::kit::problem::Problem;
    use crate::web::kit::visit::Edge;

    #[test]
    fn an_error_after_confirming_carries_the_new_session_too() {
        let (url, master) = (Url::parse("http://127.0.0.1:8080").unwrap(), MasterKey::from_bytes([3; 32]));
        let clock = Clock::manual(Micros(0));
        let edge = Edge::new(&url, TrustedProxies::default(), &master, clock, Entropy::seeded(9));
        let request = TestRequest::get().peer_addr("203.0.113.77:4711".parse().unwrap()).to_http_request();
        let visit = Visit::of(&request, Data::new(edge));
        let confirmed = Confirmed(SessionToken::parse(&"A".repeat(43)));
        let answer = confirmed.finish(&visit, Duration::from_secs(60), Err(Problem::BROKEN.into())).unwrap();
        assert_eq!(answer.status(), 503);
        assert!(answer.cookies().any(|cookie| cookie.name() == visit.cookies().session_name()));
    }
}
