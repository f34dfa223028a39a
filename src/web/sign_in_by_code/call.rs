//! `POST /api/v1/sms/login`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{ByCodeOutcome, CodeEntry, SignedInBy};
use crate::web::code::call::{deny_guess, parse_code, parse_phone, with_quota, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::problem::Problem;
use crate::web::kit::secret_field::SecretField;
use crate::web::kit::web_error::WebResult;
use crate::web::session::call::welcome;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CodeLoginBody {
    phone: SecretField,
    code: SecretField,
    captcha: Option<CaptchaSolution>,
}

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
        ByCodeOutcome::WrongCode => Err(wrong_code(&call)),
        ByCodeOutcome::Denied(denied) => Err(deny_guess(&call, CaptchaForm::SmsCode, &denied).await),
    }
}
