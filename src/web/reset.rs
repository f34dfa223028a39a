//! `/password/reset` and `POST /api/v1/password/reset`: a new password for a user who proves that the account's number
//! or address is theirs.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::web::Json;
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{Factor, FirstFactor};
use crate::captcha::CaptchaForm;
use crate::codes::{Channel, Recipient};
use crate::login::CodeRefusal;
use crate::message::{MessageCode, Purpose};
use crate::web::captcha::CaptchaBlock;
use crate::web::code::calls::{parse_sent_code, parse_sent_email, parse_sent_phone};
use crate::web::code::{CodeForm, CodePage, RESET};
use crate::web::form::{FormReach, FormReply, Notice, SentForm};
use crate::web::http::describe::{ATTEMPT, CodeDigits, EmailAddress, MobileNumber, NUMBER, NewPassword};
use crate::web::http::page::set_all;
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, Field, FieldErrors, Flash, Message, PageRequest,
    Problem, SecretField, ServicesData, WebResult,
};
use crate::web::session::{SECOND_STEP, begin_half, factor_required};

const FORM: CaptchaForm = CaptchaForm::PasswordReset;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = PasswordReset, example = json!({
    "phone": "+8613800138000", "code": "012345", "new_password": "correct horse battery staple"
}))]
pub struct ResetBody {
    /// Required without `email`.
    #[serde(default)]
    #[schema(value_type = MobileNumber, required = false)]
    phone: SecretField,
    /// Instead of `phone`.
    #[serde(default)]
    #[schema(value_type = EmailAddress, required = false)]
    email: SecretField,
    #[schema(value_type = CodeDigits)]
    code: SecretField,
    #[schema(value_type = NewPassword)]
    new_password: SecretField,
    captcha: Option<CaptchaSolution>,
}

/// The answer: `whole`, or `half` if the account has a second factor, which is proved first.
async fn reset(
    by: &Actor<'_>,
    (to, code): &(Recipient, MessageCode),
    new_password: &SecretField,
    mut whole: HttpResponse,
    half: impl FnOnce(Vec<Factor>, Duration) -> HttpResponse,
) -> Result<HttpResponse, ActionRefusal> {
    let solved = by.redeem().await?;
    let entry = by.entry(to, code, solved);
    match by.services.by_code.reset(by.live, entry, new_password.expose()).await {
        Ok(account) => {
            set_all(&mut whole, by.sender.edge.cookies.end_session());
            by.sender.remember_device(&mut whole, &account);
            Ok(whole)
        }
        Err(CodeRefusal::FactorMissing(account, hash)) => {
            let first = match to.channel() {
                Channel::Sms => FirstFactor::Code,
                Channel::Mail => FirstFactor::MailCode,
            };
            let then = ("/login", Some(&hash));
            let begun = begin_half(by.sender, by.services, &account, first, then, half).await?;
            Ok(begun.ok_or(Problem::InvalidCode)?)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// `GET /password/reset`. Also for signed-in users: an account without a password can set one by a code.
pub async fn show(visit: PageRequest) -> HttpResponse {
    let page = CodePage::new(&visit, &RESET, None, None);
    let notice = if page.form.layout.code_resets() { Notice::None } else { Notice::NO_RESET };
    page.again(notice, CaptchaBlock::Absent).respond(&visit)
}

pub async fn submit(visit: PageRequest, form: SentForm, services: ServicesData) -> WebResult {
    form.once(visit, services, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: CodeForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let page = CodePage::new(&visit, &RESET, None, None);
    let show = page.shown_again(&visit, &live, &form.fields);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    if !page.form.layout.code_resets() && visit.admits_form(&form.guarded.csrf_token) {
        return Ok(reply.plain(Notice::NO_RESET));
    }
    page.before_entry(&reply, Purpose::Reset, &form).await?;
    let parse = |errors: &mut FieldErrors| {
        let parsed = page.parse_both(&live, &form.fields, errors);
        if form.new_password.expose().is_empty() {
            errors.add(Field::NewPassword, Message::PasswordMissing);
        }
        parsed
    };
    let parsed = reply.read(&form.guarded, parse).await?;
    let (by, whole) = (reply.actor(&form.guarded), visit.see_other("/login", Some(Flash::PasswordReset)));
    let half = |_, _| visit.see_other(SECOND_STEP, None);
    reply.told(reset(&by, &parsed, &form.new_password, whole, half).await).await
}

/// Set a new password with a code that was sent to the account's number or address
///
/// An account with a second factor answers 403 factor-required, also if its sign-ins are not asked for one: the password is
/// set by POST /api/v1/login/factor. It ends every session of the account, and clears its failed sign-ins. Whether an account
/// has the number or the address, and whether it is an administrator's, is told only to a caller with its code. Input that is
/// refused does not use up the code.
#[utoipa::path(
    post,
    path = "/api/v1/password/reset",
    operation_id = "resetPassword",
    tags = ["sms", "sign-in"],
    request_body = ResetBody,
    responses((status = 204, description = "Set. Every session has ended.", headers(("SignInCookies")))),
    extensions(("x-problems" = json!([ATTEMPT, NUMBER, "invalid-email", "invalid-code", "no-account", "password-required", "account-disabled", "account-frozen", "factor-required", "busy"])))
)]
pub async fn api(body: Json<ResetBody>, call: ApiRequest) -> WebResult {
    let to = match (body.phone.expose(), body.email.expose()) {
        ("", address) if !address.is_empty() => Recipient::from(parse_sent_email(&body.email)?),
        _ => Recipient::from(parse_sent_phone(&call.live, &body.phone)?),
    };
    let call = call.by(to.channel());
    let parsed = (to, parse_sent_code(&body.code)?);
    if body.new_password.expose().is_empty() {
        return Err(Problem::at(Field::NewPassword, Message::PasswordMissing).into());
    }
    let (by, whole) = (call.actor(FORM, body.captcha.as_ref()), HttpResponse::NoContent().finish());
    call.told(FORM, reset(&by, &parsed, &body.new_password, whole, factor_required).await).await
}
