//! `POST /api/v1/sms/login`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{ByCodeOutcome, CodeEntry, SignedInBy};
use crate::web::code::call::{guessing, not_opened, parse_code, parse_phone};
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, UserBody, broken};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Edge, set};
use crate::web::session::renew;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credentials {
    phone: Typed,
    code: Typed,
    captcha: Option<Solution>,
}

pub async fn login(
    request: HttpRequest,
    body: Json<Credentials>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let live = services.live.snapshot();
    let (phone, code) = (parse_phone(&live, &body.phone)?, parse_code(&body.code)?);
    let solved = call.redeem(CaptchaForm::SmsCode, &services, &live, body.captcha.as_ref()).await?;
    let origin = call.client.origin();
    let (browser, known) = (call.browser.as_ref().map(|browser| &browser.bytes()[..]), &call.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    match services.by_code.sign_in(&live, entry).await.map_err(|error| broken(&error))? {
        ByCodeOutcome::SignedIn { account, .. } => {
            let old = edge.session_token(request.headers());
            let token = renew(&services, &account, &call.shown(), old, SignedInBy::Code).await;
            let token = token.map_err(|error| broken(&error))?.ok_or(Problem::InvalidCode)?;
            let mut response = HttpResponse::Ok().json(UserBody::from(&*account));
            set(&mut response, edge.cookies.session(&token.expose(), services.session_lasts));
            call.remember_device(&mut response, &account);
            Ok(guessing(response, &live, None))
        }
        ByCodeOutcome::PasswordRequired => Err(Problem::PasswordRequired),
        ByCodeOutcome::Not(not) => Ok(not_opened(&call, CaptchaForm::SmsCode, &services, &live, not).await),
    }
}
