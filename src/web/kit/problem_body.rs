//! What a refusal of the API carries in its body (RFC 9457), and the parts of it.

use std::borrow::Cow;

use serde::Serialize;

use crate::captcha::{Challenge, ImageRefusal};
use crate::web::kit::wait::whole_seconds;

/// A fresh challenge, as `POST /captcha` gives it too; or, while no image can be had, when to ask again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum CaptchaBody {
    Challenge {
        id: String,
        /// A path: the image is drawn when it is fetched.
        image: String,
        /// Seconds.
        expires_in: u64,
    },
    Later {
        /// Seconds.
        retry_after: u64,
    },
}

impl From<Challenge> for CaptchaBody {
    fn from(Challenge { id, expires_in }: Challenge) -> Self {
        Self::Challenge { image: format!("/captcha/{id}.png"), id, expires_in: expires_in.as_secs() }
    }
}

impl From<ImageRefusal> for CaptchaBody {
    fn from(later: ImageRefusal) -> Self {
        Self::Later { retry_after: whole_seconds(later.retry_after) }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct InputError {
    pub field: Cow<'static, str>,
    pub message: Cow<'static, str>,
}

/// What is wrong with one field of a draft.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DraftProblem {
    /// Its dotted path.
    pub field: String,
    pub message: String,
    /// Where it was sent as text, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
}

#[derive(Serialize, Default)]
pub(super) struct Body<'a> {
    pub r#type: String,
    pub title: &'a str,
    pub status: u16,
    pub detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captcha_required: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub captcha: Option<&'a CaptchaBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errors: Option<Errors<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diff: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Errors<'a> {
    Input(&'a [InputError]),
    Draft(&'a [DraftProblem]),
}
