//! `/login/code` and `POST /api/v1/sms/login`: signing in with a phone number and a code sent to it.

use actix_web::HttpResponse;
use actix_web::web::{Json, Query};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::accounts::{Account, FirstFactor};
use crate::captcha::CaptchaForm;
use crate::codes::Recipient;
use crate::message::{MessageCode, Purpose};
use crate::web::captcha::CaptchaBlock;
use crate::web::code::calls::{parse_sent_code, parse_sent_phone};
use crate::web::code::{CodeForm, CodePage, LOGIN};
use crate::web::form::{FormReach, FormReply, NextFields, SentForm};
use crate::web::http::describe::{ATTEMPT, CodeDigits, MobileNumber, NUMBER};
use crate::web::http::{
    ActionRefusal, Actor, ApiRequest, CaptchaSolution, CountedAs, Flash, PageRequest, Problem, SecretField,
    ServicesData, WebResult,
};
use crate::web::session::{UserBody, unless_signed_in, welcome, welcome_program};

const FORM: CaptchaForm = CaptchaForm::MessageCode;

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

/// The account, and whether it was created now.
async fn sign_in(
    by: &Actor<'_>,
    (to, code): (Recipient, MessageCode),
) -> Result<(Box<Account>, bool), ActionRefusal> {
    let solved = by.redeem().await?;
    Ok(by.services.by_code.sign_in(by.live, by.entry(&to, &code, solved)).await?)
}

pub async fn show(visit: PageRequest, query: Query<NextFields>, services: ServicesData) -> WebResult {
    let page = |visit: &PageRequest, next, why| {
        CodePage::new(visit, &LOGIN, None, next).again(why, CaptchaBlock::Absent).respond(visit)
    };
    unless_signed_in(visit, &services, &query, page).await
}

pub async fn submit(visit: PageRequest, form: SentForm, services: ServicesData) -> WebResult {
    form.once(visit, services, FormReach::AnyInstance, submit_once).await
}

async fn submit_once(visit: PageRequest, form: CodeForm, services: ServicesData) -> WebResult {
    let live = visit.live(&services);
    let next = form.to.target(&visit, &live);
    let page = CodePage::new(&visit, &LOGIN, None, next.clone());
    let show = page.shown_again(&visit, &live, &form.fields);
    let reply = FormReply { visit: &visit, services: &services, live: &live, form: FORM, show: &show };
    page.before_entry(&reply, Purpose::Login, &form).await?;
    let parsed = reply.read(&form.guarded, |errors| page.parse_both(&live, &form.fields, errors)).await?;
    let (account, made) = reply.told(sign_in(&reply.actor(&form.guarded), parsed).await).await?;
    let flash = made.then_some(Flash::Registered);
    let response = welcome(&visit, &services, &account, next, flash, FirstFactor::Code).await?;
    reply.told(response.ok_or(Problem::InvalidCode)).await
}

/// Sign in with a number and the code that was sent to it
///
/// The first sign-in with a number creates its account, unless strangers cannot register, or need an e-mail address for it.
/// Only a caller with its code learns that the number belongs to an administrator.
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
    extensions(("x-problems" = json!([ATTEMPT, NUMBER, "invalid-code", "password-required", "account-disabled", "account-frozen", "registration-closed"])))
)]
pub async fn api(body: Json<CodeLoginBody>, call: ApiRequest) -> WebResult {
    let parsed = (parse_sent_phone(&call.live, &body.phone)?.into(), parse_sent_code(&body.code)?);
    let signed_in = sign_in(&call.actor(FORM, body.captcha.as_ref()), parsed).await;
    let (account, _) = call.told(FORM, signed_in).await?;
    let response = welcome_program(&call, &account, FirstFactor::Code, HttpResponse::Ok()).await?;
    let response = call.told(FORM, response.ok_or(Problem::InvalidCode)).await?;
    Ok(call.with_quota(CountedAs::Guess, response, None))
}
