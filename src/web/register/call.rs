//! `POST /api/v1/register`

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::login::{Password, RegistrationOutcome, RegistrationRequest, SignedInBy, Username};
use crate::sms::{Phone, SmsCode};
use crate::web::code::call::{parse_phone, wrong_code};
use crate::web::kit::call::{Call, CaptchaSolution, invalid_unless};
use crate::web::kit::describe::{ATTEMPT, BODY, CodeDigits, MobileNumber, NUMBER, NewPassword, UserName};
use crate::web::kit::extract::{self, SecretField};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::{Problem, WebResult};
use crate::web::session::call::{UserBody, welcome};

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewAccount, example = json!({ "login": "ada", "password": "correct horse battery staple" }))]
pub struct RegisterBody {
    #[schema(value_type = UserName)]
    login: String,
    #[schema(value_type = NewPassword)]
    password: SecretField,
    /// Together with the code that was sent to it, or neither.
    #[schema(value_type = Option<MobileNumber>)]
    phone: Option<SecretField>,
    #[schema(value_type = Option<CodeDigits>)]
    code: Option<SecretField>,
    captcha: Option<CaptchaSolution>,
}

/// Create an account, and sign in to it
///
/// That a number belongs to another account is told only to a caller with its code. Input that is refused does not use
/// up the code.
#[utoipa::path(
    post,
    path = "/api/v1/register",
    operation_id = "register",
    tag = "sign-in",
    request_body = RegisterBody,
    responses((
        status = 201,
        description = "Created and signed in. The cookie is the session.",
        body = UserBody,
        headers(("SignInCookies"))
    )),
    extensions(("x-problems" = json!([BODY, ATTEMPT, NUMBER, "invalid-code", "login-taken", "phone-taken", "busy"])))
)]
pub async fn submit(body: Json<RegisterBody>, call: Call) -> WebResult {
    let (login, phone) = parse(&call, &body)?;
    let solved = call.redeem(CaptchaForm::Register, body.captcha.as_ref()).await?;
    let origin = call.client.origin();
    let request = RegistrationRequest {
        login: &login,
        password: body.password.expose(),
        phone: phone.as_ref().map(|(phone, code)| (phone, code)),
        origin: &origin,
        browser: call.browser_bytes(),
        solved,
    };
    Err(match call.services.registration.register(&call.live, request).await? {
        RegistrationOutcome::Made(account) => {
            let made = welcome(&call, &account, SignedInBy::Password, HttpResponse::Created()).await?;
            return Ok(made.ok_or(Problem::Unauthenticated)?);
        }
        RegistrationOutcome::WrongCode => wrong_code(&call),
        RegistrationOutcome::PhoneTaken => Problem::PhoneTaken.into(),
        RegistrationOutcome::LoginTaken => Problem::LoginTaken.into(),
        RegistrationOutcome::Unfit(password) => {
            Problem::invalid(&FieldErrors::one(Field::Password, password.into())).into()
        }
        RegistrationOutcome::Denied(denied) => call.denied(CaptchaForm::Register, &denied).await.into(),
    })
}

/// Every mistake at once. That of a number alone is a problem of its own.
fn parse(call: &Call, body: &RegisterBody) -> Result<(Username, Option<(Phone, SmsCode)>), Problem> {
    let mut errors = FieldErrors::default();
    let login = errors.take(Field::Login, Username::parse(&body.login).map_err(Message::from));
    let number = match (&body.phone, &body.code) {
        (None, None) => Some(None),
        _ if !call.edge.sends_codes => {
            errors.add(Field::Phone, Message::NoCodesSent);
            None
        }
        (phone, code) => parse_number(&call.live, phone.as_ref(), code.as_ref(), &mut errors).map(Some),
    };
    errors.take(Field::Password, Password::check(body.password.expose()).map_err(Message::from));
    match (&body.phone, errors.iter().collect::<Vec<_>>().as_slice()) {
        (Some(phone), [(Field::Phone, message)]) if **message != Message::NoCodesSent => {
            parse_phone(&call.live, phone).map(drop)?;
        }
        _ => {}
    }
    invalid_unless(login.zip(number), &errors)
}

/// Number and code: both are needed.
fn parse_number(
    live: &LiveSettings,
    phone: Option<&SecretField>,
    code: Option<&SecretField>,
    errors: &mut FieldErrors,
) -> Option<(Phone, SmsCode)> {
    let parsed = |typed: &SecretField| extract::parse_phone(live, typed.expose()).map_err(Message::from);
    let phone = phone.map_or(Err(Message::PhoneMissing), parsed);
    let phone = errors.take(Field::Phone, phone);
    let code = code.ok_or(Message::CodeMissing);
    let code = code.and_then(|code| SmsCode::parse(code.expose()).ok_or(Message::CodeDigits));
    phone.zip(errors.take(Field::Code, code))
}
