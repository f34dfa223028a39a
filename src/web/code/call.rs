//! `POST /api/v1/sms/codes`

use std::time::Duration;

use actix_web::http::header::HeaderMap;
use actix_web::web::{Data, Json};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};

use crate::captcha::CaptchaForm;
use crate::config::LiveSettings;
use crate::login::NotOpened;
use crate::sms::{CodeRequest, Phone, PhoneError, Purpose, SendOutcome, SendReceipt, SmsCode, TurnResult};
use crate::web::form::fields::Typed;
use crate::web::kit::call::{Call, Solution, broken, limited};
use crate::web::kit::message::{Field, FieldErrors, Message};
use crate::web::kit::phone;
use crate::web::kit::problem::{InputError, Problem};
use crate::web::kit::services::{Services, Shared};
use crate::web::kit::visit::{Edge, language, set};
use crate::web::kit::wait::whole_seconds;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    phone: Typed,
    purpose: For,
    captcha: Option<Solution>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum For {
    Login,
    Register,
    Reset,
    Verify,
}

#[derive(Serialize)]
struct Accepted {
    /// In E.164, masked.
    phone: String,
    expires_in: u64,
    resend_after: u64,
    /// `unknown` where the gateway did not say whether it has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    delivery: Option<&'static str>,
    /// Codes are short, and go to numbers with accounts first.
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<bool>,
}

/// Sends a code: the same whether or not an account has the number.
pub async fn send(
    request: HttpRequest,
    body: Json<Wanted>,
    services: Shared,
    edge: Data<Edge>,
) -> Result<HttpResponse, Problem> {
    let call = Call::admit(&request, &edge)?;
    let purpose = match body.purpose {
        For::Login => Purpose::Login,
        For::Register => Purpose::Register,
        For::Reset => Purpose::Reset,
        For::Verify => Purpose::Verify,
    };
    if purpose == Purpose::Verify {
        call.member(&services, &edge).await?;
    }
    let live = services.live.snapshot();
    let phone = parse_phone(&live, &body.phone)?;
    let once = idempotency_key(request.headers())?;
    let (address, network) = (call.client.subject(), call.client.network());
    let (address, network) = (address.as_ref(), network.as_ref());
    let locale = language(request.headers(), edge.cookies).code();
    let (browser, named) = call.named_browser();
    let browser = Some(&browser.bytes()[..]);
    let ask = CodeRequest { phone: &phone, purpose, address, network, browser, solved: false, once, locale };
    // Before the challenge: the same request again comes with one that is used up.
    let turned = services.codes.turn(&live, ask, body.captcha.is_some()).await;
    let sending = match turned.map_err(|error| broken(&error))? {
        TurnResult::Answered(sending) => sending,
        TurnResult::Mine(turn) => {
            let solved = call.redeem(CaptchaForm::SmsCode, &services, &live, body.captcha.as_ref()).await?;
            let sending = services.codes.send_in_turn(&live, CodeRequest { solved, ..ask }, turn).await;
            sending.map_err(|error| broken(&error))?
        }
    };
    let told = [&live.limits.sms_phone, &live.limits.sms_address, &live.limits.sms_network];
    let answer = |response, full| limited(response, &told, full);
    Ok(match sending {
        SendOutcome::Sent(sent) => {
            let mut response = HttpResponse::Accepted().json(accepted(&phone, sent));
            if let Some(cookie) = named {
                set(&mut response, cookie);
            }
            answer(response, None)
        }
        SendOutcome::Challenged { limit, retry_after } => {
            let captcha = call.challenge(CaptchaForm::SmsCode, &services, &live).await;
            answer(Problem::CaptchaRequired { captcha }.respond(), Some((&limit, retry_after)))
        }
        SendOutcome::Throttled { limit, retry_after } => {
            let problem = Problem::Throttled { limit: limit.clone().into(), retry_after };
            answer(problem.respond(), Some((&limit, retry_after)))
        }
        SendOutcome::NotSent => Problem::NotSent.respond(),
        SendOutcome::Unavailable { retry_after } => Problem::Unavailable { retry_after }.respond(),
    })
}

fn accepted(phone: &Phone, sent: SendReceipt) -> Accepted {
    // Rounded up: who comes back when told to is not too early, and a code that is good for five minutes
    // but for the time it took to send it is said to be good for five.
    let resend_after = if sent.resend_after == Duration::ZERO { 0 } else { whole_seconds(sent.resend_after) };
    Accepted {
        phone: phone.masked(),
        expires_in: whole_seconds(sent.expires_in),
        resend_after,
        delivery: (!sent.confirmed && !sent.short).then_some("unknown"),
        short: sent.short.then_some(true),
    }
}

/// The refusal of a code that opened nothing.
pub async fn not_opened(
    call: &Call<'_>,
    form: CaptchaForm,
    services: &Services,
    live: &LiveSettings,
    not: NotOpened,
) -> HttpResponse {
    match not {
        NotOpened::Challenged { limit, retry_after } => {
            let captcha = call.challenge(form, services, live).await;
            guessing(Problem::CaptchaRequired { captcha }.respond(), live, Some((&limit, retry_after)))
        }
        NotOpened::Wrong => guessing(Problem::InvalidCode.respond(), live, None),
        NotOpened::Throttled { limit, retry_after } => {
            let problem = Problem::Throttled { limit: limit.clone().into(), retry_after };
            guessing(problem.respond(), live, Some((&limit, retry_after)))
        }
        NotOpened::Unavailable { retry_after } => Problem::Unavailable { retry_after }.respond(),
    }
}

pub fn guessing(response: HttpResponse, live: &LiveSettings, full: Option<(&str, Duration)>) -> HttpResponse {
    let limits = &live.limits;
    limited(response, &[&limits.sms_guess, &limits.login_address, &limits.login_network], full)
}

pub fn parse_phone(live: &LiveSettings, typed: &Typed) -> Result<Phone, Problem> {
    phone::parse(live, typed.expose()).map_err(|error| match error {
        PhoneError::Missing | PhoneError::NotANumber | PhoneError::NotMobile => Problem::InvalidPhone,
        PhoneError::CountryNotAllowed => Problem::CountryNotAllowed,
    })
}

pub fn parse_code(typed: &Typed) -> Result<SmsCode, Problem> {
    let not_six = || Problem::invalid(&FieldErrors::one(Field::Code, Message::CodeDigits));
    SmsCode::parse(typed.expose()).ok_or_else(not_six)
}

/// Of 1 to 64 visible characters (draft-ietf-httpapi-idempotency-key-header).
fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
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
