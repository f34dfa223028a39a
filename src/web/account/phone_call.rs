//! `POST` and `DELETE /api/v1/account/phone`. A phone number opens the account, so both need the password.

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;

use crate::captcha::CaptchaForm;
use crate::login::{CodeEntry, PhoneOutcome};
use crate::web::code::call::{deny_guess, parse_code, parse_phone, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::message::Field;
use crate::web::kit::problem::Problem;
use crate::web::kit::secret_field::SecretField;
use crate::web::kit::web_error::WebResult;
use crate::web::session::{self, Member};
use crate::web::sign_in::call::{parse_current, verify};

/// Challenges of every form that asks for the current password.
const FORM: CaptchaForm = CaptchaForm::PasswordChange;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetPhoneBody {
    phone: SecretField,
    code: SecretField,
    #[serde(default)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemovePhoneBody {
    #[serde(default)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Sets or replaces the account's number. The password is verified before the code is compared, so that a
/// wrong password does not use up the code.
pub async fn set_phone(body: Json<SetPhoneBody>, call: Call) -> WebResult {
    if !call.edge.sends_codes {
        return Err(Problem::NotFound.into());
    }
    let Member(who) = session::member(call.request()).await?;
    let (phone, code) = (parse_phone(&call.live, &body.phone)?, parse_code(&body.code)?);
    if who.account.password_hash.is_none() {
        return Err(Problem::NoPassword.into());
    }
    let password = parse_current(Field::CurrentPassword, &body.current_password)?;
    let solved = call.redeem(FORM, body.captcha.as_ref()).await?;
    let owner = verify(&call, &who.account, password, solved).await?;
    let (origin, browser, known) = (call.client.origin(), call.browser_bytes(), &call.known_devices());
    let entry = CodeEntry { phone: &phone, code: &code, origin: &origin, browser, known, solved };
    match call.services.by_code.give(&call.live, &owner, entry).await? {
        PhoneOutcome::Done => Ok(HttpResponse::NoContent().finish()),
        PhoneOutcome::PhoneTaken => Err(Problem::PhoneTaken.into()),
        PhoneOutcome::WrongCode => Err(wrong_code(&call)),
        PhoneOutcome::Denied(denied) => Err(deny_guess(&call, FORM, &denied).await),
    }
}

/// 204 also if the account has no number.
pub async fn remove_phone(body: Json<RemovePhoneBody>, call: Call, Member(who): Member) -> WebResult {
    if who.account.password_hash.is_none() {
        return Err(Problem::OnlyWayIn.into());
    }
    // If the password is disabled, the number is the only way in from new browsers.
    if who.account.password_disabled_at.is_some() {
        return Err(Problem::PasswordDisabled.into());
    }
    let password = parse_current(Field::CurrentPassword, &body.current_password)?;
    let solved = call.redeem(FORM, body.captcha.as_ref()).await?;
    let owner = verify(&call, &who.account, password, solved).await?;
    match call.services.by_code.take_away(&owner).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::OnlyWayIn.into()),
    }
}
