//! What a refusal of the API carries in its body (RFC 9457), and the parts of it.

use std::borrow::Cow;
use std::time::Duration;

use serde::Serialize;
use utoipa::ToSchema;

use super::problem_kind::Kind;
use crate::captcha::{Challenge, ImageRefusal, ProofChallenge};
use crate::web::kit::describe;
use crate::web::kit::wait::whole_seconds;

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
    /// For the description of the API.
    pub fn example() -> Self {
        let (id, expires_in) = ("Qmx1ZSBzdG9uZXM".to_owned(), Duration::from_secs(180));
        Challenge { id, expires_in, image_after: None, proof: Some(Box::new(ProofChallenge::example())) }
            .into()
    }
}

impl From<Challenge> for CaptchaChallenge {
    fn from(Challenge { id, expires_in, image_after, proof }: Challenge) -> Self {
        let image = image_after.is_none().then(|| format!("/captcha/{id}.png"));
        Self { image, altcha: proof, id, expires_in: expires_in.as_secs() }
    }
}

impl From<Challenge> for CaptchaBody {
    fn from(challenge: Challenge) -> Self {
        Self::Challenge(challenge.into())
    }
}

impl From<ImageRefusal> for CaptchaBody {
    fn from(later: ImageRefusal) -> Self {
        Self::Later(CaptchaLater { retry_after: whole_seconds(later.retry_after) })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputError {
    pub field: Cow<'static, str>,
    pub message: Cow<'static, str>,
}

/// What is wrong with one field of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = InputError, description = "What is wrong with one field.")]
pub struct DraftProblem {
    /// Its name; in limits, its dotted path.
    pub field: String,
    pub message: String,
    /// The line, from 1, if the field was sent as TOML.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
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
    #[schema(value_type = Vec<DraftProblem>)]
    pub errors: Option<Errors<'a>>,
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
    /// What every problem of a kind says.
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

#[derive(Serialize)]
#[serde(untagged)]
pub enum Errors<'a> {
    Input(&'a [InputError]),
    Draft(&'a [DraftProblem]),
}
