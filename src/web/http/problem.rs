//! Refusals of the API as problem details (RFC 9457): one variant for each name of the contract, what each carries, and how a
//! handler ends early.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::time::Duration;

use actix_web::error::InternalError;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use actix_web::{Error, HttpResponse, ResponseError};
use serde::Serialize;
use strum::{IntoStaticStr, VariantNames};
use utoipa::ToSchema;

use crate::accounts::Factor;
use crate::captcha::{Challenge, ProofChallenge};
use crate::db::DbError;
use crate::lookup::LookupError;
use crate::sms::PhoneError;
use crate::tuning::DraftError;
use crate::web::http::locale::{Locale, whole_seconds};
use crate::web::http::message::{Field, FieldErrors, Message};
use crate::web::http::{describe, problem_kind as k};

pub use crate::web::http::problem_kind::Kind;

/// A refusal. What it carries is for its caller to read; causes stay in the log.
#[derive(Debug, Clone, PartialEq, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "kebab-case")]
pub enum Problem {
    InvalidCredentials {
        captcha_required: bool,
    },
    CaptchaRequired {
        captcha: CaptchaBody,
    },
    CaptchaInvalid {
        captcha: CaptchaBody,
    },
    /// The first step was right; a second one is asked for.
    FactorRequired {
        methods: Vec<Factor>,
        expires_in: Duration,
    },
    InvalidFactor,
    /// It opens no account, or its answer is not accepted.
    InvalidPasskey,
    /// A change of the factors, and who is signed in was not proved lately.
    StepUpRequired {
        methods: Vec<Factor>,
    },
    /// The account must have a second factor, and did not set one up in time.
    FactorSetupRequired,
    Throttled {
        limit: Cow<'static, str>,
        retry_after: Duration,
    },
    /// A custom limit; told to the millisecond, as its windows may be shorter than a second.
    #[strum(serialize = "throttled")]
    LimitFull {
        limit: String,
        retry_after: Duration,
    },
    Busy {
        retry_after: Duration,
    },
    Unavailable {
        retry_after: Duration,
    },
    Unauthenticated,
    Forbidden,
    Denied,
    /// A change in the console, and the password was not shown lately.
    ConfirmationRequired,
    #[strum(serialize = "invalid-token")]
    TokenMissing,
    /// One was, and it is none of ours, revoked or expired.
    InvalidToken,
    /// A hook whose signature is none of its relay's, or too old.
    InvalidSignature,
    InsufficientScope,
    UnknownLimit,
    /// Another outcome of the attempt was told before.
    ToldOtherwise,
    /// The outcome of the attempt was not told in time.
    Lapsed,
    /// The limit counts nothing of that kind.
    UnknownSubject,
    Csrf,
    LoginTaken,
    InvalidPhone,
    CountryNotAllowed,
    InvalidCode,
    NoAccount,
    PhoneTaken,
    /// The gateway refused the message; nothing was counted.
    #[strum(serialize = "unavailable")]
    NotSent,
    OnlyWayIn,
    TooManyTokens,
    NoPassword,
    /// The one there is has had too many wrong ones in a row.
    PasswordDisabled,
    /// An administrator's account is not opened by a number alone.
    PasswordRequired,
    AccountDisabled,
    LastAdministrator,
    PasswordChangeRequired,
    /// An instance lives that would not ask for what was to begin.
    UpgradeUnfinished,
    InvalidInput {
        errors: Vec<InputError>,
    },
    PreconditionRequired,
    PreconditionFailed {
        version: String,
        /// Unified: from what is saved to what the caller would have saved.
        diff: String,
    },
    /// What the limits are kept in cannot be written.
    NotSaved {
        reason: String,
    },
    NotFound,
    MethodNotAllowed {
        allow: String,
    },
    PayloadTooLarge,
    RequestTimeout,
    UnsupportedMediaType,
    MalformedJson,
    Internal,
}

impl Problem {
    /// Something is broken that may be mended soon: a database that restarts.
    pub const BROKEN: Self = Self::Unavailable { retry_after: Duration::from_secs(5) };

    /// In English, as the rest of the API.
    pub fn invalid(errors: &FieldErrors) -> Self {
        let error =
            |(field, message): (Field, &Message)| InputError::new(field.name(), message.text(Locale::En));
        Self::InvalidInput { errors: errors.iter().map(error).collect() }
    }

    pub fn at(field: Field, message: Message) -> Self {
        Self::invalid(&FieldErrors::one(field, message))
    }

    /// One field that cannot be used, and what would be right.
    pub fn wrong(field: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::InvalidInput { errors: vec![InputError::new(field, message)] }
    }

    pub fn invalid_draft(errors: Vec<DraftError>) -> Self {
        let error =
            |DraftError { field, message, line }| InputError { line, ..InputError::new(field, message) };
        Self::InvalidInput { errors: errors.into_iter().map(error).collect() }
    }

    /// The kind, by the variant's name, but for those that are another form of a kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NotSent => k::NOT_SENT,
            other => k::named(other.into()).expect("a test names every variant's kind"),
        }
    }

    /// Whole seconds, where there is something to wait for.
    pub fn retry_after(&self) -> Option<u64> {
        match self {
            Self::Throttled { retry_after, .. }
            | Self::LimitFull { retry_after, .. }
            | Self::Busy { retry_after }
            | Self::Unavailable { retry_after } => Some(whole_seconds(*retry_after)),
            // A gateway that has just refused is better not asked again at once.
            Self::NotSent => Some(10),
            _ => None,
        }
    }

    pub fn body(&self) -> ProblemBody<'_> {
        let bare = ProblemBody::of(self.kind());
        match self {
            Self::InvalidCredentials { captcha_required } => {
                ProblemBody { captcha_required: Some(*captcha_required), ..bare }
            }
            Self::CaptchaRequired { captcha } | Self::CaptchaInvalid { captcha } => {
                ProblemBody { captcha: Some(captcha), ..bare }
            }
            Self::FactorRequired { methods, expires_in } => {
                ProblemBody { methods: Some(methods), expires_in: Some(expires_in.as_secs()), ..bare }
            }
            Self::StepUpRequired { methods } => ProblemBody { methods: Some(methods), ..bare },
            Self::Throttled { limit, .. } => {
                ProblemBody { limit: Some(limit), retry_after: self.retry_after(), ..bare }
            }
            Self::LimitFull { limit, retry_after } => {
                let millis = retry_after.as_micros().div_ceil(1000) as u64;
                let retry_after = self.retry_after();
                ProblemBody { limit: Some(limit), retry_after, retry_after_ms: Some(millis), ..bare }
            }
            Self::Busy { .. } | Self::Unavailable { .. } | Self::NotSent => {
                ProblemBody { retry_after: self.retry_after(), ..bare }
            }
            Self::InvalidInput { errors } => ProblemBody { errors: Some(errors), ..bare },
            Self::PreconditionFailed { version, diff } => {
                ProblemBody { version: Some(version), diff: Some(diff), ..bare }
            }
            Self::NotSaved { reason } => ProblemBody { reason: Some(reason), ..bare },
            _ => bare,
        }
    }

    pub fn respond(&self) -> HttpResponse {
        // Room for a challenge.
        let mut body = Vec::with_capacity(1_024);
        serde_json::to_writer(&mut body, &self.body()).expect("strings and numbers are JSON");
        let kind = HeaderValue::from_static("application/problem+json");
        let mut response =
            HttpResponse::build(self.kind().status).insert_header((CONTENT_TYPE, kind)).body(body);
        self.head(response.headers_mut());
        response
    }

    /// The fields that its status calls for, in whatever shape it is told.
    pub fn head(&self, headers: &mut HeaderMap) {
        if let Some(seconds) = self.retry_after() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::MethodNotAllowed { allow } = self {
            headers.insert(ALLOW, HeaderValue::try_from(allow).expect("names of methods"));
        }
        let challenge = match self {
            // RFC 9110 §15.5.2 wants a challenge with 401; this one makes no browser ask by itself.
            Self::InvalidCredentials { .. }
            | Self::InvalidCode
            | Self::InvalidFactor
            | Self::InvalidPasskey
            | Self::Unauthenticated => "Cookie realm=\"gatehouse\"",
            // RFC 6750, 3.1.
            Self::TokenMissing => "Bearer realm=\"gatehouse\"",
            Self::InvalidToken => "Bearer realm=\"gatehouse\", error=\"invalid_token\"",
            Self::InvalidSignature => "Webhook-Signature realm=\"gatehouse\"",
            Self::InsufficientScope => "Bearer realm=\"gatehouse\", error=\"insufficient_scope\"",
            _ => return,
        };
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name)
    }
}

impl std::error::Error for Problem {}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.kind().status
    }

    fn error_response(&self) -> HttpResponse {
        self.respond()
    }
}

/// A fresh challenge, as `POST /captcha` gives it too; or, if no proofs of work are offered and no image can be had, when
/// to ask again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum CaptchaBody {
    Challenge(CaptchaChallenge),
    Later(CaptchaLater),
}

/// A challenge. It takes one answer, from the client that it was given to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = Captcha, example = json!(CaptchaChallenge::example()))]
pub struct CaptchaChallenge {
    pub id: String,
    /// The path of the image; left out while none can be drawn for the client. It is drawn when it is fetched, and counts on the address and the network that fetch it, or that a program has stated:
    /// 429 or 503 with Retry-After if it is not drawn now.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(pattern = r"^/captcha/.+\.png$")]
    pub image: Option<String>,
    /// The challenge of a proof of work (ALTCHA, version 2) to solve instead. Left out if none are offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = describe::proof_of_work, required = false)]
    pub altcha: Option<Box<ProofChallenge>>,
    /// Seconds.
    pub expires_in: u64,
}

/// Neither can be had now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct CaptchaLater {
    /// Seconds after which to send the same call again, or to ask POST /api/v1/captcha.
    #[schema(minimum = 1)]
    pub retry_after: u64,
}

impl CaptchaChallenge {
    pub fn example() -> Self {
        let (id, expires_in) = ("Qmx1ZSBzdG9uZXM".to_owned(), Duration::from_secs(180));
        Challenge { id, expires_in, image_after: None, proof: Some(Box::new(ProofChallenge::example())) }
            .into()
    }
}

impl From<Challenge> for CaptchaChallenge {
    fn from(Challenge { id, expires_in, image_after, proof }: Challenge) -> Self {
        let image = image_after.is_none().then(|| ["/captcha/", &id, ".png"].concat());
        Self { image, altcha: proof, id, expires_in: expires_in.as_secs() }
    }
}

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct InputError {
    /// Its name; in limits, its dotted path.
    #[schema(value_type = String)]
    pub field: Cow<'static, str>,
    #[schema(value_type = String)]
    pub message: Cow<'static, str>,
    /// The line, from 1, if the field was sent as TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

impl InputError {
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self { field: field.into(), message: message.into(), line: None }
    }
}

#[derive(Serialize, Default, ToSchema)]
pub struct ProblemBody<'a> {
    pub r#type: String,
    pub title: &'a str,
    pub status: u16,
    /// What to do next.
    pub detail: &'a str,
    /// Whether the next attempt needs a solved challenge. The answer is the same for a name that no account has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captcha_required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captcha: Option<&'a CaptchaBody>,
    /// What can be proved now, the strongest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<String>)]
    pub methods: Option<&'a [Factor]>,
    /// Seconds until the first step has to be repeated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<u64>,
    /// The limit that is full.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'a str>,
    /// Whole seconds, rounded up, as in Retry-After.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// The same in milliseconds, rounded up; of custom limits only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Vec<InputError>)]
    pub errors: Option<&'a [InputError]>,
    /// The version that is saved now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<&'a str>,
    /// Unified, from what is saved now to what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<&'a str>,
    /// Why, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

impl ProblemBody<'_> {
    pub fn of(Kind { name, status, title, detail }: Kind) -> Self {
        Self {
            r#type: ["/problems/", name].concat(),
            title,
            status: status.as_u16(),
            detail,
            ..Self::default()
        }
    }
}

pub type WebResult = Result<HttpResponse, WebError>;

#[derive(Debug)]
pub enum WebError {
    /// For example the form again, a redirect, or a refusal with its fields.
    Answer(Box<HttpResponse>),
    /// JSON for API calls; `extract::refuse_with_pages` renders a page for everyone else.
    Problem(Problem),
}

impl From<HttpResponse> for WebError {
    fn from(answer: HttpResponse) -> Self {
        Self::Answer(Box::new(answer))
    }
}

impl<P: Into<Problem>> From<P> for WebError {
    fn from(problem: P) -> Self {
        Self::Problem(problem.into())
    }
}

impl From<WebError> for Error {
    fn from(error: WebError) -> Self {
        match error {
            WebError::Answer(answer) => InternalError::from_response("answered", *answer).into(),
            WebError::Problem(problem) => problem.into(),
        }
    }
}

impl From<PhoneError> for Problem {
    fn from(error: PhoneError) -> Self {
        match error {
            PhoneError::Missing | PhoneError::NotANumber | PhoneError::NotMobile => Self::InvalidPhone,
            PhoneError::CountryNotAllowed => Self::CountryNotAllowed,
        }
    }
}

/// `?` on an error of a service answers [`Problem::BROKEN`].
macro_rules! broken {
    ($($error:ty),+) => {
        $(impl From<$error> for Problem {
            fn from(error: $error) -> Self {
                log_failure(&error);
                Self::BROKEN
            }
        })+
    };
}

broken!(DbError, LookupError);

/// An outage is logged once, when it begins. Its later errors are not logged.
pub fn log_failure(error: &impl Display) {
    if crate::db::OUTAGE.is_out() {
        tracing::debug!(%error, "a request could not be answered");
    } else {
        tracing::error!(%error, "a request could not be answered");
    }
}

#[cfg(test)]
#[path = "problem_tests.rs"]
mod tests;
