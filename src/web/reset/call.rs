//! `POST /api/v1/password/reset`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::login::{CodeEntry, ResetOutcome, ResetRequest};
use crate::web::code::call::{deny_guess, parse_code, parse_phone, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::describe::{ATTEMPT, BODY, CodeDigits, MobileNumber, NUMBER, NewPassword};
use crate::web::kit::extract::SecretField;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::{Problem, WebResult};
use crate::web::kit::visit::set;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PasswordReset, example = json!({
    "phone": "+8613800138000", "code": "012345", "new_password": "correct horse battery staple"
}))]
pub struct ResetBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    #[schema(value_type = CodeDigits)]
    code: SecretField,
    #[schema(value_type = NewPassword)]
    new_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Set a new password with a code that was sent to the account's number
///
/// It ends every session of the account, and clears its failed sign-ins. Whether an account has the number, and whether
/// it is an administrator's, is told only to a caller with its code. Input that is refused does not use up the code.
#[utoipa::path(
    post,
    path = "/api/v1/password/reset",
    operation_id = "resetPassword",
    tags = ["sms", "sign-in"],
    request_body = ResetBody,
    responses((status = 204, description = "Set. Every session has ended.", headers(("SignInCookies")))),
    extensions(("x-problems" = json!([
        BODY, ATTEMPT, NUMBER, "invalid-code", "no-account", "password-required", "account-disabled", "busy"
    ])))
)]
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
        ResetOutcome::AccountDisabled => Problem::AccountDisabled.into(),
        ResetOutcome::WrongCode => wrong_code(&call),
        ResetOutcome::Unfit(unfit) => about(Message::from(unfit)).into(),
        ResetOutcome::Denied(denied) => deny_guess(&call, CaptchaForm::PasswordReset, &denied).await,
    })
}
