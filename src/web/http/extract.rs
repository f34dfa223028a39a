//! How bodies, paths, queries and tokens are read, and the answers if they are invalid.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{JsonBody, Payload, ServiceRequest, ServiceResponse, UrlEncoded};
use actix_web::error::{JsonPayloadError, PayloadError, UrlencodedError};
use actix_web::http::header::{AUTHORIZATION, HeaderMap};
use actix_web::middleware::Next;
use actix_web::web::{JsonConfig, PathConfig, QueryConfig, ServiceConfig};
use actix_web::{Error, FromRequest, HttpRequest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::accounts::{ApiToken, TokenBearer, TokenUse};
use crate::audit::{EventSubject, mask};
use crate::config::LiveSettings;
use crate::custom::{self, TokenCheck};
use crate::sms::{Phone, PhoneError};
use crate::web::http::client::ClientAddress;
use crate::web::http::connections::BodyTime;
use crate::web::http::error_page::answer;
use crate::web::http::page::judge_anew;
use crate::web::http::problem::{InputError, Problem, WebError};
use crate::web::http::services::Services;

/// Sixteen times the longest valid form.
pub const BODY_LIMIT: usize = 16 * 1024;

/// For a document of all limits: about a thousand of them.
pub const DOCUMENT_LIMIT: usize = 256 * 1024;

pub fn configure(app: &mut ServiceConfig) {
    app.app_data(
        JsonConfig::default().limit(BODY_LIMIT).error_handler(|error, _| json_problem(&error).into()),
    )
    .app_data(PathConfig::default().error_handler(|_, _| Problem::NotFound.into()))
    .app_data(QueryConfig::default().error_handler(|_, _| Problem::wrong("query", "Invalid value.").into()));
}

/// A body of at most `LIMIT` bytes. It is not read until a guard has admitted its sender.
pub struct UnreadBody<T, const LIMIT: usize = BODY_LIMIT> {
    request: HttpRequest,
    payload: Payload,
    holds: PhantomData<T>,
}

impl<T, const LIMIT: usize> FromRequest for UnreadBody<T, LIMIT> {
    type Error = Infallible;
    type Future = Ready<Result<Self, Infallible>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        ready(Ok(Self::of(request, payload)))
    }
}

impl<T, const LIMIT: usize> UnreadBody<T, LIMIT> {
    pub fn of(request: &HttpRequest, payload: &mut Payload) -> Self {
        Self { request: request.clone(), payload: payload.take(), holds: PhantomData }
    }
}

impl<T: DeserializeOwned + 'static, const LIMIT: usize> UnreadBody<T, LIMIT> {
    pub async fn read(mut self) -> Result<T, Problem> {
        self.begin();
        let body = JsonBody::new(&self.request, &mut self.payload, None, true).limit(LIMIT).await;
        judge_anew(&self.request);
        body.map_err(|error| json_problem(&error))
    }

    pub async fn read_form(mut self) -> Result<T, WebError> {
        self.begin();
        let body = UrlEncoded::new(&self.request, &mut self.payload).limit(LIMIT).await;
        judge_anew(&self.request);
        body.map_err(|error| form_problem(&error).into())
    }

    fn begin(&self) {
        if LIMIT > BODY_LIMIT {
            BodyTime::allow_document(&self.request);
        }
    }
}

/// Turns a handler's refusal into a page, except for the API. A body that was read as bytes may have been too long.
pub async fn refuse_with_pages<B: MessageBody>(
    request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B>>, Error> {
    let response = next.call(request).await?;
    let problem = response.response().error().and_then(|error| match error.as_error::<PayloadError>() {
        Some(PayloadError::Overflow) => Some(&Problem::PayloadTooLarge),
        _ => error.as_error::<Problem>(),
    });
    let Some(problem) = problem else {
        return Ok(response.map_into_left_body());
    };
    let answer = answer(response.request(), problem);
    Ok(response.into_response(answer).map_into_right_body())
}

fn json_problem(error: &JsonPayloadError) -> Problem {
    match error {
        JsonPayloadError::OverflowKnownLength { .. } | JsonPayloadError::Overflow { .. } => {
            Problem::PayloadTooLarge
        }
        JsonPayloadError::ContentType => Problem::UnsupportedMediaType,
        JsonPayloadError::Deserialize(cause) if cause.is_data() => {
            Problem::InvalidInput { errors: vec![field_at_fault(&cause.to_string())] }
        }
        // Truncated, or not JSON. Variants that the enum may gain are about reading, too.
        _ => Problem::MalformedJson,
    }
}

/// serde names the field only in its text. Nothing else of that text is passed on: it repeats values, which
/// may include a password.
fn field_at_fault(cause: &str) -> InputError {
    let named = |lead: &str| {
        let name = cause.strip_prefix(lead)?.split('`').next()?;
        let plain = name.len() <= 40
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        plain.then(|| name.to_owned())
    };
    for (lead, message) in [
        ("unknown field `", "Unknown field; leave it out."),
        ("missing field `", "Missing; send it."),
        ("duplicate field `", "Sent twice; send it once."),
    ] {
        if let Some(field) = named(lead) {
            return InputError::new(field, message);
        }
    }
    InputError::new("body", "A field is unknown or has the wrong type; see /openapi.json.")
}

fn form_problem(error: &UrlencodedError) -> Problem {
    match error {
        UrlencodedError::Overflow { .. } => Problem::PayloadTooLarge,
        UrlencodedError::ContentType => Problem::UnsupportedMediaType,
        _ => Problem::InvalidInput { errors: Vec::new() },
    }
}

/// A form value that must not be shown again or logged. It is wiped when dropped.
#[derive(Default, Deserialize, Zeroize, ZeroizeOnDrop)]
#[serde(transparent)]
pub struct SecretField(String);

impl SecretField {
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretField(…)")
    }
}

/// The data of the token that was sent, if it is valid. An address that sends many invalid ones is throttled.
pub async fn admit_token(
    request: &HttpRequest,
    services: &Services,
    client: ClientAddress,
) -> Result<Arc<TokenBearer>, Problem> {
    let token = bearer(request.headers()).ok_or(Problem::TokenMissing)?;
    admit_text(token, request, services, client).await
}

/// Admits a token as a mail server sends it: as the password of HTTP Basic, whatever the name (RFC 7617), as a bearer
/// token, or in `X-API-Key`.
pub async fn admit_program(
    request: &HttpRequest,
    services: &Services,
    client: ClientAddress,
) -> Result<Arc<TokenBearer>, Problem> {
    let headers = request.headers();
    if let Some(token) = bearer(headers) {
        return admit_text(token, request, services, client).await;
    }
    let key = || Some(headers.get("x-api-key")?.to_str().ok()?.trim_matches(' ').to_owned());
    let token = basic(headers).or_else(key).ok_or(Problem::TokenMissing)?;
    admit_text(&token, request, services, client).await
}

async fn admit_text(
    token: &str,
    request: &HttpRequest,
    services: &Services,
    client: ClientAddress,
) -> Result<Arc<TokenBearer>, Problem> {
    let token = ApiToken::parse(token).ok_or(Problem::InvalidToken)?;
    let address = client.subject();
    let used = || TokenUse {
        call: format!("{} {}", request.method(), request.match_pattern().unwrap_or_default()),
        network: mask(&EventSubject::Address(address.as_ref())),
    };
    match services.token_gate.admit(&token, address.as_ref(), used).await? {
        TokenCheck::Good(bearer) => Ok(bearer),
        TokenCheck::Unknown => Err(Problem::InvalidToken),
        TokenCheck::TooMany(refusal) => Err(Problem::throttled(custom::NAME, refusal.retry_after)),
    }
}

pub fn sends_token(request: &HttpRequest) -> bool {
    bearer(request.headers()).is_some()
}

/// RFC 6750, 2.1.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    credentials(headers, "bearer")
}

fn basic(headers: &HeaderMap) -> Option<String> {
    let text = String::from_utf8(STANDARD.decode(credentials(headers, "basic")?).ok()?).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

/// The scheme's case does not matter (RFC 9110, 11.1).
fn credentials<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case(wanted).then(|| token.trim_matches(' '))
}

/// A mobile number of a country that codes are sent to.
pub fn parse_phone(live: &LiveSettings, typed: &str) -> Result<Phone, PhoneError> {
    Phone::parse(typed, &live.sms.default_region)?.allowed_by(&live.sms)
}

#[cfg(test)]
#[path = "extract_tests.rs"]
mod tests;
