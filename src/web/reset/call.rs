//! `POST /api/v1/password/reset`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{CodeEntry, ResetOutcome, ResetRequest};
use crate::web::code::call::{deny_guess, parse_code, parse_phone, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::Problem;
use crate::web::kit::secret_field::SecretField;
use crate::web::kit::visit::set;
use crate::web::kit::web_error::WebResult;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetBody {
    phone: SecretField,
    code: SecretField,
    new_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

pub async fn reset(body: Json<ResetBody>, call: Call) -> WebResult {
    let (phone, code) = (parse_phone(&call.live, &body.phone)?, parse_code(&body.code)?);
    let about = |message| Problem::invalid(&FieldErrors::one(Field::NewPassword, message));
    if body.new_password.expose().is_empty() {
        return Err(about(Message::PasswordMissing).into());
    }
    let solved = call.redeem(CaptchaForm::PasswordReset, body.captcha.as_ref()).await?;
    let (origin, browser, known) = (call.client.origin(), call.browser_bytes(), &call.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    let request = ResetRequest { entry, new_password: body.new_password.expose() };
    Err(match call.services.by_code.reset(&call.live, request).await? {
        ResetOutcome::Done(account) => {
            let mut response = HttpResponse::NoContent().finish();
            set(&mut response, call.edge.cookies.end_session());
            call.remember_device(&mut response, &account);
            return Ok(response);
        }
        ResetOutcome::NoAccount => Problem::NoAccount.into(),
        ResetOutcome::PasswordRequired => Problem::PasswordRequired.into(),
        ResetOutcome::WrongCode => wrong_code(&call),
        ResetOutcome::Unfit(unfit) => about(Message::from(unfit)).into(),
        ResetOutcome::Denied(denied) => deny_guess(&call, CaptchaForm::PasswordReset, &denied).await,
    })
}
