//! `POST /api/v1/sms/codes`; and how every call that guesses a code is refused.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::HeaderMap;
use actix_web::web::Json;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::schema::ObjectBuilder;

use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::denied::Denied;
use crate::sms::{self, Phone, PhoneError, Purpose, SendOutcome, SendReceipt, SmsCode, TurnResult};
use crate::web::kit::call::{Call, CaptchaSolution, limited};
use crate::web::kit::describe::{self, ATTEMPT, BODY, MEMBER, MobileNumber, NUMBER};
use crate::web::kit::extract::{self, SecretField};
use crate::web::kit::locale::whole_seconds;
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::problem::{InputError, Problem, WebError, WebResult};
use crate::web::kit::visit::{language, set};
use crate::web::session;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = CodeRequest, example = json!({ "phone": "138 0013 8000", "purpose": "login" }))]
pub struct SendCodeBody {
    #[schema(value_type = MobileNumber)]
    phone: SecretField,
    /// What the code is for. `verify` is for a user who is signed in.
    #[schema(schema_with = describe::purposes)]
    purpose: CodePurpose,
    captcha: Option<CaptchaSolution>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum CodePurpose {
    Login,
    Register,
    Reset,
    Verify,
}

impl From<CodePurpose> for Purpose {
    fn from(purpose: CodePurpose) -> Self {
        match purpose {
            CodePurpose::Login => Self::Login,
            CodePurpose::Register => Self::Register,
            CodePurpose::Reset => Self::Reset,
            CodePurpose::Verify => Self::Verify,
        }
    }
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
    /// Present while codes are short, for everyone who solved a challenge: they go to numbers with accounts first,
    /// and the answer does not tell which number has one.
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
    extensions(("x-problems" = json!([BODY, ATTEMPT, MEMBER, NUMBER])))
)]
pub async fn send(body: Json<SendCodeBody>, call: Call) -> WebResult {
    let purpose = Purpose::from(body.purpose);
    if purpose == Purpose::Verify {
        session::member(call.request()).await?;
    } else if call.is_denied() {
        return Err(Problem::Denied.into());
    }
    let Call { services, live, .. } = &call;
    let phone = parse_phone(live, &body.phone)?;
    let headers = call.request().headers();
    let once = idempotency_key(headers)?;
    let (address, network) = (call.client.subject(), call.client.network());
    let locale = language(headers, call.edge.cookies).code();
    let (browser, named) = call.named_browser();
    let message = sms::Message {
        browser: Some(browser.bytes().to_vec()),
        once: once.map(str::to_owned),
        ..sms::Message::new(phone.clone(), purpose, locale)
    };
    let message = message.asked_from(address.as_ref(), network.as_ref());
    // Before the challenge: the same request again comes with one that is used up.
    let sending = match services.codes.turn(live, message, body.captcha.is_some()).await? {
        TurnResult::Answered(sending) => sending,
        TurnResult::Mine(turn) => {
            let solved = call.redeem(CaptchaForm::SmsCode, body.captcha.as_ref()).await?;
            turn.send(live, solved).await?
        }
    };
    let told = [&live.limits.sms_phone, &live.limits.sms_address, &live.limits.sms_network];
    match sending {
        SendOutcome::Sent(sent) => {
            let mut response = HttpResponse::Accepted().json(accepted(&phone, sent));
            if let Some(cookie) = named {
                set(&mut response, cookie);
            }
            Ok(limited(response, &told, None))
        }
        SendOutcome::NotSent => Err(Problem::NotSent.into()),
        SendOutcome::Denied(denied) => {
            let problem = call.denied(CaptchaForm::SmsCode, &denied).await;
            Err(match denied.full() {
                Some(full) => limited(problem.respond(), &told, Some(full)).into(),
                None => problem.into(),
            })
        }
    }
}

fn accepted(phone: &Phone, sent: SendReceipt) -> CodeAccepted {
    let resend_after = resend_seconds(&sent);
    CodeAccepted {
        phone: phone.masked(),
        expires_in: whole_seconds(sent.expires_in),
        resend_after,
        delivery: (!sent.confirmed && !sent.short).then_some("unknown"),
        short: sent.short.then_some(true),
    }
}

/// Until another code can be sent.
pub fn resend_seconds(sent: &SendReceipt) -> u64 {
    // Rounded up: who comes back when told to is not too early, and a code that is good for five minutes
    // but for the time it took to send it is said to be good for five.
    if sent.resend_after == Duration::ZERO { 0 } else { whole_seconds(sent.resend_after) }
}

/// A code that opened nothing.
pub fn wrong_code(call: &Call) -> WebError {
    with_quota(call, Problem::InvalidCode.respond(), None).into()
}

/// A guess that was not compared.
pub async fn deny_guess(call: &Call, form: CaptchaForm, denied: &Denied) -> WebError {
    let problem = call.denied(form, denied).await;
    match denied.full() {
        Some(full) => with_quota(call, problem.respond(), Some(full)).into(),
        None => problem.into(),
    }
}

/// With the `RateLimit` fields of a guess.
pub fn with_quota(call: &Call, response: HttpResponse, full: Option<(&str, Duration)>) -> HttpResponse {
    let limits = &call.live.limits;
    limited(response, &[&limits.sms_guess, &limits.login_address, &limits.login_network], full)
}

pub fn parse_phone(live: &LiveSettings, typed: &SecretField) -> Result<Phone, Problem> {
    extract::parse_phone(live, typed.expose()).map_err(|error| match error {
        PhoneError::Missing | PhoneError::NotANumber | PhoneError::NotMobile => Problem::InvalidPhone,
        PhoneError::CountryNotAllowed => Problem::CountryNotAllowed,
    })
}

pub fn parse_code(typed: &SecretField) -> Result<SmsCode, Problem> {
    let not_six = || Problem::invalid(&FieldErrors::one(Field::Code, Message::CodeDigits));
    SmsCode::parse(typed.expose()).ok_or_else(not_six)
}

/// Of 1 to 64 visible characters (draft-ietf-httpapi-idempotency-key-header).
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let fits = |key: &&str| (1..=64).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic());
    let wrong = InputError {
        field: "Idempotency-Key".into(),
        message: "Use 1 to 64 visible ASCII characters without spaces.".into(),
    };
    match value.to_str().ok().filter(fits) {
        Some(key) => Ok(Some(key)),
        None => Err(Problem::InvalidInput { errors: vec![wrong] }),
    }
}
