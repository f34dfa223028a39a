//! `POST /api/v1/sms/codes` and `POST /api/v1/email/codes`, and what calls that take a code parse.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::HeaderMap;
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;

use super::send;
use crate::captcha::CaptchaForm;
use crate::codes::{Recipient, SendReceipt};
use crate::config::{LiveSettings, RegistrationProof};
use crate::mail::Mailbox;
use crate::message::{MessageCode, Purpose};
use crate::sms::Phone;
use crate::web::http::describe::{self, ATTEMPT, EmailAddress, MobileNumber, NUMBER};
use crate::web::http::extract;
use crate::web::http::locale::whole_seconds;
use crate::web::http::page::{language, set};
use crate::web::http::{
    ApiRequest, CaptchaSolution, CountedAs, Field, Message, Problem, SecretField, WebResult,
};
use crate::web::session;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CodeRequest, example = json!({ "phone": "138 0013 8000", "purpose": "login" }))]
pub struct SendCodeBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    /// What the code is for. `verify` is for a user who is signed in.
    #[schema(schema_with = describe::purposes)]
    purpose: Purpose,
    captcha: Option<CaptchaSolution>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = CodeSent, example = json!({ "phone": "+86138****8000", "expires_in": 300, "resend_after": 60 }))]
struct CodeAccepted {
    /// In E.164, masked.
    phone: String,
    /// Seconds until the code expires.
    expires_in: u64,
    /// Seconds until another code can be sent to the number.
    resend_after: u64,
    /// Present if the gateway did not say whether it has the message. It is not sent again by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = unknown)]
    delivery: Option<&'static str>,
    /// Present while codes are short, for everyone who solved a challenge, and for a login or reset code while a
    /// new number makes no account: they go to numbers with accounts first, or alone, and the answer does not tell which
    /// number has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<bool>,
}

fn unknown() -> ObjectBuilder {
    describe::one_of(["unknown"])
}

/// Send a code to a number
///
/// The answer is the same whether or not an account has the number. `verify` needs a session.
#[utoipa::path(
    post,
    path = "/api/v1/sms/codes",
    operation_id = "sendCode",
    tag = "sms",
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "The caller's name for this request, of visible ASCII. A repetition for the same number and purpose \
            gets the same answer and sends no second message while the code is valid.",
        min_length = 1,
        max_length = 64
    )),
    request_body = SendCodeBody,
    responses((
        status = 202,
        description = "Sent, or perhaps sent: see delivery. A browser without a cookie gets one; with it, its guesses at \
            the code are counted apart.",
        body = CodeAccepted,
        headers(("BrowserCookie"), ("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, NUMBER, "registration-closed"])))
)]
pub async fn send_by_sms(body: Json<SendCodeBody>, call: ApiRequest) -> WebResult {
    if body.purpose == Purpose::Verify {
        session::member(call.request()).await?;
    } else if call.is_denied(&call.live) {
        return Err(Problem::Denied.into());
    }
    if body.purpose == Purpose::Register {
        let registration = &call.live.registration;
        if !registration.mode.is_open() {
            return Err(Problem::RegistrationClosed.into());
        }
        // No number makes an account, so none is sent what costs money.
        if !registration.takes_new_numbers() {
            const BY_MAIL: &str = "Registration takes an e-mail address here: use POST /api/v1/email/codes.";
            return Err(Problem::wrong("purpose", BY_MAIL).into());
        }
    }
    let to = Recipient::from(parse_sent_phone(&call.live, &body.phone)?);
    let answer = |sent: &SendReceipt| {
        HttpResponse::Accepted().json(CodeAccepted {
            phone: to.masked(),
            expires_in: whole_seconds(sent.expires_in),
            resend_after: resend_seconds(sent),
            delivery: (!sent.confirmed && !sent.short).then_some("unknown"),
            short: sent.short.then_some(true),
        })
    };
    send_called(&call, (&to, body.purpose), body.captcha.as_ref(), answer).await
}

/// What a call that asks for a code does, once it is known for whom and for what.
async fn send_called(
    call: &ApiRequest,
    wanted: (&Recipient, Purpose),
    captcha: Option<&CaptchaSolution>,
    answer: impl FnOnce(&SendReceipt) -> HttpResponse,
) -> WebResult {
    const FORM: CaptchaForm = CaptchaForm::MessageCode;
    let headers = call.request().headers();
    let once = idempotency_key(headers)?.map(str::to_owned);
    let (browser, named) = call.named_browser();
    let sent =
        send(&call.actor(FORM, captcha), wanted, &browser, language(headers), once, captcha.is_some()).await;
    let mut response = answer(&call.told(FORM, sent).await?);
    if let Some(cookie) = named {
        set(&mut response, cookie);
    }
    Ok(call.with_quota(CountedAs::Message, response, None))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = MailCodeRequest, example = json!({ "email": "ada@example.org", "purpose": "reset" }))]
pub struct MailCodeBody {
    #[schema(value_type = EmailAddress)]
    email: SecretField,
    /// What the code is for. `verify` is for a user who is signed in.
    purpose: MailPurpose,
    captcha: Option<CaptchaSolution>,
}

/// What a code by mail is for: it signs nobody in.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum MailPurpose {
    /// Where registration requires an address.
    Register,
    Reset,
    Verify,
}

#[derive(Serialize, ToSchema)]
#[schema(as = MailCodeSent, example = json!({ "email": "a***@example.org", "expires_in": 600, "resend_after": 60 }))]
struct MailCodeAccepted {
    /// Masked.
    email: String,
    /// Seconds until the code expires.
    expires_in: u64,
    /// Seconds until another code can be sent to the address.
    resend_after: u64,
}

/// Send a code to an e-mail address
///
/// A code for `reset` goes to an address that an account has confirmed, and the answer is the same for any other. `verify`
/// needs a session, and sends to the address that the account is to have. `register` is for where an account needs an
/// address, and sends to any.
#[utoipa::path(
    post,
    path = "/api/v1/email/codes",
    operation_id = "sendMailCode",
    tag = "mail",
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "The caller's name for this request, of visible ASCII. A repetition for the same address and purpose \
            gets the same answer and sends no second message while the code is valid.",
        min_length = 1,
        max_length = 64
    )),
    request_body = MailCodeBody,
    responses((
        status = 202,
        description = "Queued, if the address gets one. A browser without a cookie gets one; with it, its guesses at the \
            code are counted apart.",
        body = MailCodeAccepted,
        headers(("BrowserCookie"), ("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!([ATTEMPT, "invalid-email", "registration-closed"])))
)]
pub async fn send_by_mail(body: Json<MailCodeBody>, call: ApiRequest) -> WebResult {
    let purpose = match body.purpose {
        MailPurpose::Verify => {
            session::member(call.request()).await?;
            Purpose::Verify
        }
        MailPurpose::Register | MailPurpose::Reset if call.is_denied(&call.live) => {
            return Err(Problem::Denied.into());
        }
        MailPurpose::Register if !call.live.registration.mode.is_open() => {
            return Err(Problem::RegistrationClosed.into());
        }
        // Otherwise strangers have no mail sent to whom they name.
        MailPurpose::Register if !call.live.registration.requires(RegistrationProof::Email) => {
            return Err(Problem::wrong(
                "purpose",
                "Registration needs no address here. Use reset or verify.",
            )
            .into());
        }
        MailPurpose::Register => Purpose::Register,
        MailPurpose::Reset => Purpose::Reset,
    };
    let to = Recipient::from(parse_sent_email(&body.email)?);
    let answer = |sent: &SendReceipt| {
        HttpResponse::Accepted().json(MailCodeAccepted {
            email: to.masked(),
            expires_in: whole_seconds(sent.expires_in),
            resend_after: resend_seconds(sent),
        })
    };
    send_called(&call.by(to.channel()), (&to, purpose), body.captcha.as_ref(), answer).await
}

pub fn resend_seconds(sent: &SendReceipt) -> u64 {
    // Rounded up: who comes back when told to is not too early, and a code that is good for five minutes
    // but for the time it took to send it is said to be good for five.
    if sent.resend_after == Duration::ZERO { 0 } else { whole_seconds(sent.resend_after) }
}

pub fn parse_sent_phone(live: &LiveSettings, typed: &SecretField) -> Result<Phone, Problem> {
    Ok(extract::parse_phone(live, typed.expose())?)
}

pub fn parse_sent_email(typed: &SecretField) -> Result<Mailbox, Problem> {
    Ok(Mailbox::parse(typed.expose())?)
}

pub fn parse_sent_code(typed: &SecretField) -> Result<MessageCode, Problem> {
    MessageCode::parse(typed.expose()).ok_or_else(|| Problem::at(Field::Code, Message::CodeDigits))
}

/// Reads the header `Idempotency-Key`, of 1 to 64 visible characters (draft-ietf-httpapi-idempotency-key-header).
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let fits = |key: &&str| (1..=64).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let wrong = "Use 1 to 64 visible ASCII characters without spaces.";
    value.to_str().ok().filter(fits).map(Some).ok_or_else(|| Problem::wrong("Idempotency-Key", wrong))
}
