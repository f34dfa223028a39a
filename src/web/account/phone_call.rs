//! `POST` and `DELETE /api/v1/account/phone`. A phone number opens the account, so both need the password.

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::login::{CodeEntry, PhoneOutcome};
use crate::web::code::call::{deny_guess, parse_code, parse_phone, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution};
use crate::web::kit::describe::{
    ATTEMPT, BODY, CodeDigits, CurrentPassword, MEMBER, MobileNumber, NUMBER, PASSWORD,
};
use crate::web::kit::extract::SecretField;
use crate::web::kit::message::Field;
use crate::web::kit::problem::{Problem, WebResult};
use crate::web::session::{self, Member};
use crate::web::sign_in::call::{parse_current, verify};

/// Challenges of every form that asks for the current password.
const FORM: CaptchaForm = CaptchaForm::PasswordChange;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPhone, example = json!({
    "phone": "+8613800138000", "code": "012345", "current_password": "correct horse battery staple"
}))]
pub struct SetPhoneBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    #[schema(value_type = CodeDigits)]
    code: SecretField,
    /// Required if the account has a password.
    #[serde(default)]
    #[schema(value_type = CurrentPassword, required = false)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PhoneRemoval, example = json!({ "current_password": "correct horse battery staple" }))]
pub struct RemovePhoneBody {
    /// Required if the account has a password.
    #[serde(default)]
    #[schema(value_type = CurrentPassword, required = false)]
    current_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// Give the account a number, in place of the one that it may have
///
/// A number can sign in, so the current password is verified first, as at sign-in; a mistake in it does not use up the
/// code. An account without a password gets one from POST /api/v1/password/reset first. That another account has the
/// number is told only to a caller with its code.
#[utoipa::path(
    post,
    path = "/api/v1/account/phone",
    operation_id = "setPhone",
    tag = "account",
    request_body = SetPhoneBody,
    responses((status = 204, description = "The account has the number.")),
    security(("session" = [])),
    extensions(("x-problems" = json!([
        BODY, ATTEMPT, MEMBER, PASSWORD, NUMBER, "invalid-code", "phone-taken", "no-password"
    ])))
)]
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

/// Remove the account's number
///
/// Also 204 if it has none.
#[utoipa::path(
    delete,
    path = "/api/v1/account/phone",
    operation_id = "removePhone",
    tag = "account",
    request_body = RemovePhoneBody,
    responses((status = 204, description = "The account has no number.")),
    security(("session" = [])),
    extensions(("x-problems" = json!([BODY, ATTEMPT, MEMBER, PASSWORD, "only-way-in"])))
)]
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
