//! `POST /api/v1/sms/login`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::login::{ByCodeOutcome, CodeEntry, SignedInBy};
use crate::web::code::call::{deny_guess, parse_code, parse_phone, with_quota, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::describe::{ATTEMPT, BODY, CodeDigits, MobileNumber, NUMBER};
use crate::web::kit::extract::SecretField;
use crate::web::kit::problem::{Problem, WebResult};
use crate::web::session::call::{UserBody, welcome};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PhoneAndCode, example = json!({ "phone": "+8613800138000", "code": "012345" }))]
pub struct CodeLoginBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    #[schema(value_type = CodeDigits)]
    code: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Sign in with a number and the code that was sent to it
///
/// The first sign-in with a number creates its account. That the number belongs to an administrator is told only to a
/// caller with its code.
#[utoipa::path(
    post,
    path = "/api/v1/sms/login",
    operation_id = "loginByCode",
    tags = ["sms", "sign-in"],
    request_body = CodeLoginBody,
    responses((
        status = 200,
        description = "Signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"), ("RateLimitPolicy")),
        example = json!({ "user": {
            "id": "b19bb51d57b40116de95f7448daf9aef", "login": "user-7k3m9q2x", "phone": "+8613800138000",
            "roles": ["user"]
        } })
    )),
    extensions(("x-problems" = json!([BODY, ATTEMPT, NUMBER, "invalid-code", "password-required", "account-disabled"])))
)]
pub async fn login(body: Json<CodeLoginBody>, call: Call) -> WebResult {
    let (phone, code) = (parse_phone(&call.live, &body.phone)?, parse_code(&body.code)?);
    let solved = call.redeem(CaptchaForm::SmsCode, body.captcha.as_ref()).await?;
    let (origin, browser, known) = (call.client.origin(), call.browser_bytes(), &call.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    match call.services.by_code.sign_in(&call.live, entry).await? {
        ByCodeOutcome::SignedIn { account, .. } => {
            let response = welcome(&call, &account, SignedInBy::Code, HttpResponse::Ok()).await?;
            Ok(with_quota(&call, response.ok_or(Problem::InvalidCode)?, None))
        }
        ByCodeOutcome::PasswordRequired => Err(Problem::PasswordRequired.into()),
        ByCodeOutcome::AccountDisabled => Err(Problem::AccountDisabled.into()),
        ByCodeOutcome::WrongCode => Err(wrong_code(&call)),
        ByCodeOutcome::Denied(denied) => Err(deny_guess(&call, CaptchaForm::SmsCode, &denied).await),
    }
}
