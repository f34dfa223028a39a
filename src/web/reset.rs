//! `/password/reset` and `POST /api/v1/password/reset`: a new password for a user who proves that the account's number
//! is theirs.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{Account, Factor, FirstFactor, HalfToken};
use crate::captcha::CaptchaForm;
use crate::login::CodeRefusal;
use crate::sms::{Phone, Purpose, SmsCode};
use crate::web::code::{CodeForm, CodePage, RESET, parse_both, parse_sent_code, parse_sent_phone};
use crate::web::form::{FormPairs, FormReach, FormReply, once};
use crate::web::http::describe::{ATTEMPT, BODY, CodeDigits, MobileNumber, NUMBER, NewPassword};
use crate::web::http::page::set_all;
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, Field, FieldErrors, Flash, Message, PageRequest,
    Problem, SecretField, ServicesData, UnreadBody, WebResult,
};
use crate::web::session::SECOND_STEP;

const FORM: CaptchaForm = CaptchaForm::PasswordReset;

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

enum ResetDone {
    Set(Box<Account>),
    /// The account asks for a second step first, until when this browser may take it.
    Half(HalfToken, Duration, Vec<Factor>),
}

async fn reset(
    by: &Actor<'_>,
    (phone, code): &(Phone, SmsCode),
    new_password: &SecretField,
) -> Result<ResetDone, ActionRefusal> {
    let solved = by.redeem().await?;
    let entry = by.entry(phone, code, solved);
    match by.services.by_code.reset(by.live, entry, new_password.expose()).await {
        Ok(account) => Ok(ResetDone::Set(account)),
        Err(CodeRefusal::FactorMissing(account, hash)) => {
            let half = &by.services.half_sign_ins;
            let begun = half.begin(&account, FirstFactor::Code, "/login", Some(&hash)).await?;
            let (token, lasts) = begun.ok_or(ActionRefusal::WrongCode)?;
            let methods = by.services.factor_verifier.factors().of(account.id).await?.methods();
            Ok(ResetDone::Half(token, lasts, methods))
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// `GET /password/reset`. Also for signed-in users: an account without a password can set one by a code.
pub async fn show(visit: PageRequest) -> HttpResponse {
    CodePage::new(&visit, &RESET, None, None).respond(&visit)
}

pub async fn submit(visit: PageRequest, body: UnreadBody<FormPairs>, services: ServicesData) -> WebResult {
    once(visit, services, body, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: CodeForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let page = CodePage::new(&visit, &RESET, None, None);
    let show = page.shown_again(&visit, &live, &form.fields);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    page.before_entry(&reply, Purpose::Reset, &form).await?;
    let parse = |errors: &mut FieldErrors| {
        let parsed = parse_both(&live, &form.fields, errors);
        if form.new_password.expose().is_empty() {
            errors.add(Field::NewPassword, Message::PasswordMissing);
        }
        parsed
    };
    let parsed = reply.read(&form.guarded, parse).await?;
    let done = reset(&reply.actor(&form.guarded), &parsed, &form.new_password).await;
    let account = match reply.told(done).await? {
        ResetDone::Set(account) => account,
        ResetDone::Half(token, lasts, _) => {
            let mut response = visit.see_other(SECOND_STEP, None);
            visit.begin_half(&mut response, &token, lasts);
            return Ok(response);
        }
    };
    let mut response = visit.see_other("/login", Some(Flash::PasswordReset));
    set_all(&mut response, visit.cookies().end_session());
    visit.remember_device(&mut response, &account);
    Ok(response)
}

/// Set a new password with a code that was sent to the account's number
///
/// An account with a second factor answers 403 factor-required: the password is set by POST /api/v1/login/factor. It
/// ends every session of the account, and clears its failed sign-ins. Whether an account has the number, and whether
/// it is an administrator's, is told only to a caller with its code. Input that is refused does not use up the code.
#[utoipa::path(
    post,
    path = "/api/v1/password/reset",
    operation_id = "resetPassword",
    tags = ["sms", "sign-in"],
    request_body = ResetBody,
    responses((status = 204, description = "Set. Every session has ended.", headers(("SignInCookies")))),
    extensions(("x-problems" = json!([
        BODY, ATTEMPT, NUMBER, "invalid-code", "no-account", "password-required", "account-disabled", "factor-required", "busy"
    ])))
)]
pub async fn api(body: Json<ResetBody>, call: ApiRequest) -> WebResult {
    let parsed = (parse_sent_phone(&call.live, &body.phone)?, parse_sent_code(&body.code)?);
    if body.new_password.expose().is_empty() {
        return Err(Problem::at(Field::NewPassword, Message::PasswordMissing).into());
    }
    let done = reset(&call.actor(FORM, body.captcha.as_ref()), &parsed, &body.new_password).await;
    let account = match call.told(FORM, done).await? {
        ResetDone::Set(account) => account,
        ResetDone::Half(token, lasts, methods) => {
            let mut response = Problem::FactorRequired { methods, expires_in: lasts }.respond();
            call.begin_half(&mut response, &token, lasts);
            return Ok(response);
        }
    };
    let mut response = HttpResponse::NoContent().finish();
    set_all(&mut response, call.edge.cookies.end_session());
    call.remember_device(&mut response, &account);
    Ok(response)
}
