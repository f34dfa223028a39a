//! `/api/v1/verifications`: another program has a code sent to a number, and has it checked.

use actix_web::web::Path;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::captcha::CaptchaForm;
use crate::codes::{RequestedMessage, SendOutcome, TurnResult, VerificationOutcome};
use crate::denied::Denied;
use crate::message::ProgramPurpose;
use crate::web::code::calls::{idempotency_key, parse_sent_code, parse_sent_phone, resend_seconds};
use crate::web::http::api::{limited, refused};
use crate::web::http::describe::{self, CodeDigits, MobileNumber, NUMBER};
use crate::web::http::locale::whole_seconds;
use crate::web::http::{
    CaptchaSolution, ChallengeContext, CountedAs, Locale, Problem, SecretField, UnreadBody, WebResult,
};
use crate::web::programs::{Program, parse_client, redeem};

/// What a program says that names no purpose.
const USUAL_PURPOSE: &str = "default";
/// How long tags get (RFC 5646, 4.4.1).
const LONGEST_TAG: usize = 35;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VerificationRequest, example = json!({ "to": "+8613800138000", "address": "203.0.113.7" }))]
pub struct VerificationBody {
    #[schema(value_type = MobileNumber)]
    to: SecretField,
    /// The address of the client that your program serves.
    #[schema(value_type = String)]
    address: SecretField,
    /// What the code is for: 1 to 64 of a-z, 0-9 and -. A newer code replaces the one for the same purpose.
    #[schema(default = "default", min_length = 1, max_length = 64)]
    purpose: Option<String>,
    /// The language of the message: a tag as en or zh-CN.
    #[schema(min_length = 1, max_length = 35)]
    locale: Option<String>,
    captcha: Option<CaptchaSolution>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = Verification, example = json!({
    "id": "b19bb51d57b40116de95f7448daf9aef", "to": "+86138****8000", "expires_in": 300, "resend_after": 60,
    "delivery": "accepted"
}))]
struct VerificationSent {
    /// To check the code with.
    id: String,
    /// In E.164, masked.
    to: String,
    /// Seconds until the code expires.
    expires_in: u64,
    /// Seconds until another code can be sent to the number.
    resend_after: u64,
    /// `unknown` if the gateway did not say whether it has the message. It is not sent again by itself.
    #[schema(schema_with = deliveries)]
    delivery: &'static str,
    /// Present while the number's prefix is under a brake, for everyone who solved a challenge: codes go to numbers
    /// that were verified for your program before, and the answer does not tell which were.
    #[serde(skip_serializing_if = "Option::is_none")]
    short: Option<bool>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = VerificationCheck, example = json!({ "code": "012345" }))]
pub struct CheckBody {
    /// As somebody typed it.
    #[schema(value_type = CodeDigits)]
    code: SecretField,
}

#[derive(Serialize, ToSchema)]
#[schema(as = VerificationApproved, example = json!({ "status": "approved" }))]
struct ApprovedBody {
    #[schema(schema_with = approved)]
    status: &'static str,
}

fn deliveries() -> utoipa::openapi::schema::ObjectBuilder {
    describe::one_of(["accepted", "unknown"])
}

fn approved() -> utoipa::openapi::schema::ObjectBuilder {
    describe::one_of(["approved"])
}

/// Have a code sent to a number
///
/// At the number and the total it counts as a code of ours does; at the client's address and network, the prefix and the
/// program, in windows of the program's own. It opens nothing here. An account is neither needed nor made.
#[utoipa::path(
    post,
    path = "/api/v1/verifications",
    operation_id = "startVerification",
    tag = "verify",
    params((
        "Idempotency-Key" = Option<String>,
        Header,
        description = "The program's name for this request, of visible ASCII. A repetition for the same number and \
            purpose gets the same answer and sends no second message while the code is valid.",
        min_length = 1,
        max_length = 64
    )),
    request_body = VerificationBody,
    responses((
        status = 202,
        description = "Sent, or perhaps sent: see delivery.",
        body = VerificationSent,
        headers(("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!([NUMBER, "denied", "captcha-required", "captcha-invalid"])))
)]
pub async fn start(program: Program, request: HttpRequest, body: UnreadBody<VerificationBody>) -> WebResult {
    let name = program.verify()?;
    let body = body.read().await?;
    let client = parse_client(&body.address, &program.sender.edge.trusted);
    let client = client.map_err(|wrong| Problem::wrong("address", wrong))?;
    let purpose = ProgramPurpose::new(name.as_str(), body.purpose.as_deref().unwrap_or(USUAL_PURPOSE));
    let purpose = purpose.ok_or_else(|| Problem::wrong("purpose", "Use 1 to 64 of a-z, 0-9 and -."))?;
    let (locale, language) = language(body.locale.as_deref())?;
    let once = idempotency_key(request.headers())?;
    let Program { sender, services, .. } = &program;
    let live = sender.live_for(services, client);
    let (form, realm) = (CaptchaForm::Verification, Some(name));
    let asker = ChallengeContext { form, client, browser: None, realm };
    let (address, network, codes) = (client.subject(), client.network(), &services.codes);
    if live.access.is_denied(client, sender.now()) {
        codes.record_denied(&purpose.clone().into(), [address.as_ref(), network.as_ref()]);
        return Err(Problem::Denied.into());
    }
    let phone = parse_sent_phone(&live, &body.to)?;
    let message = RequestedMessage {
        once: once.map(str::to_owned),
        language: language.map(str::to_owned),
        ..RequestedMessage::new(phone.clone(), purpose, locale.code())
    };
    let message = message.asked_from(address.as_ref(), network.as_ref());
    // Before the challenge: the same request again comes with one that is used up.
    let sending = match codes.turn(&live, message, body.captcha.is_some()).await? {
        TurnResult::Answered(sending) => sending,
        TurnResult::Mine(turn) => {
            let Some(solved) = redeem(asker, services, &live, body.captcha.as_ref()).await? else {
                let captcha = asker.challenge(services, &live).await;
                return Err(refused(&Problem::CaptchaInvalid, Some(&captcha), &[], None));
            };
            turn.send(&live, solved).await?
        }
    };
    let limits = &live.limits;
    let told = [&limits.sms_phone, &limits.program_address, &limits.program_network, &limits.verify_token];
    match sending {
        SendOutcome::Sent(sent) => {
            let response = HttpResponse::Accepted().json(VerificationSent {
                id: sent.id.ok_or(Problem::Internal)?.to_string(),
                to: phone.masked(),
                expires_in: whole_seconds(sent.expires_in),
                resend_after: resend_seconds(&sent),
                delivery: if sent.confirmed { "accepted" } else { "unknown" },
                short: sent.short.then_some(true),
            });
            Ok(limited(response, &told, None))
        }
        SendOutcome::NotSent => Err(Problem::NotSent.into()),
        SendOutcome::Denied(denied @ Denied::Challenged { .. }) => {
            let captcha = asker.challenge(services, &live).await;
            let problem = Problem::denied(denied, CountedAs::Message);
            Err(refused(&problem, Some(&captcha), &told, problem.limits().and_then(|(_, full)| full)))
        }
        SendOutcome::Denied(denied) => {
            Err(refused(&Problem::not_compared(&denied), None, &told, denied.full()))
        }
    }
}

/// Check the code that somebody has typed
///
/// A right code is approved once. Wrong ones count at the number in this program, whatever codes are sent meanwhile.
#[utoipa::path(
    post,
    path = "/api/v1/verifications/{id}/check",
    operation_id = "checkVerification",
    tag = "verify",
    params(("id" = String, Path, description = "As it was given.")),
    request_body = CheckBody,
    responses((
        status = 200,
        description = "The code was right.",
        body = ApprovedBody,
        headers(("RateLimitPolicy"))
    )),
    extensions(("x-problems" = json!(["invalid-code", "not-found", "lapsed"])))
)]
pub async fn check(program: Program, id: Path<String>, body: UnreadBody<CheckBody>) -> WebResult {
    let name = program.verify()?.as_str();
    let body = body.read().await?;
    let code = parse_sent_code(&body.code)?;
    let live = program.sender.settings(&program.services);
    let told = [&live.limits.sms_guess];
    match program.services.codes.check_verification(&live, name, &id, &code).await? {
        VerificationOutcome::Approved => {
            Ok(limited(HttpResponse::Ok().json(ApprovedBody { status: "approved" }), &told, None))
        }
        VerificationOutcome::WrongCode => Err(limited(Problem::InvalidCode.respond(), &told, None).into()),
        VerificationOutcome::Lapsed => Err(Problem::Lapsed.into()),
        VerificationOutcome::Unknown => Err(Problem::NotFound.into()),
        VerificationOutcome::Denied(denied) => {
            Err(refused(&Problem::not_compared(&denied), None, &told, denied.full()))
        }
    }
}

impl Problem {
    /// The problem of what no challenge helps with, or is shown to nobody.
    pub(super) fn not_compared(denied: &Denied) -> Self {
        match denied {
            Denied::Challenged { limit, retry_after, .. } | Denied::Throttled { limit, retry_after, .. } => {
                Self::throttled(limit.clone(), *retry_after)
            }
            Denied::Busy { retry_after } | Denied::Unavailable { retry_after } => {
                Self::Unavailable { retry_after: *retry_after }
            }
            Denied::AddressDenied => Self::Denied,
        }
    }
}

/// The language among ours that serves a tag best, and the tag.
pub(super) fn language(tag: Option<&str>) -> Result<(Locale, Option<&str>), Problem> {
    let Some(tag) = tag.filter(|tag| !tag.is_empty()) else { return Ok((Locale::default(), None)) };
    let letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
    if tag.len() > LONGEST_TAG || !tag.bytes().all(letter) {
        return Err(Problem::wrong("locale", "Send a language tag such as en or zh-CN."));
    }
    Ok((Locale::accepted(tag).unwrap_or_default(), Some(tag)))
}
