//! `POST /api/v1/password/reset`

use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{CodeEntry, ResetOutcome, ResetRequest};
use crate::web::code::call::{not_opened, parse_code, parse_phone};
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, broken};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::visit::{Edge, set};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    phone: Typed,
    code: Typed,
    new_password: Typed,
    captcha: Option<Solution>,
}

pub async fn reset(
    request: HttpRequest,
    body: Json<Body>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let live = services.live.snapshot();
    let (phone, code) = (parse_phone(&live, &body.phone)?, parse_code(&body.code)?);
    let about = |message| Problem::invalid(&FieldErrors::one(Field::NewPassword, message));
    if body.new_password.expose().is_empty() {
        return Err(about(Message::PasswordMissing));
    }
    let solved = call.redeem(CaptchaForm::PasswordReset, &services, &live, body.captcha.as_ref()).await?;
    let origin = call.client.origin();
    let new_password = body.new_password.expose();
    let (browser, known) = (call.browser.as_ref().map(|browser| &browser.bytes()[..]), &call.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    let ask = ResetRequest { entry, new_password };
    match services.by_code.reset(&live, ask).await.map_err(|error| broken(&error))? {
        ResetOutcome::Done(account) => {
            let mut response = HttpResponse::NoContent().finish();
            set(&mut response, edge.cookies.end_session());
            call.remember_device(&mut response, &account);
            Ok(response)
        }
        ResetOutcome::NoAccount => Err(Problem::NoAccount),
        ResetOutcome::PasswordRequired => Err(Problem::PasswordRequired),
        ResetOutcome::Not(not) => {
            Ok(not_opened(&call, CaptchaForm::PasswordReset, &services, &live, not).await)
        }
        ResetOutcome::Unfit(unfit) => Err(about(Message::from(unfit))),
        ResetOutcome::Busy { retry_after } => Err(Problem::Busy { retry_after }),
    }
}
