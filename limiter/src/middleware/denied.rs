//! Why a request was refused, and the answer to it.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use serde::Serialize;

use crate::middleware::ratelimit_fields::whole_seconds;
use crate::{Limit, Refusal};

/// `Retry-After` if requests in flight take all slots, or if the store does not answer.
const SOON: Duration = Duration::from_secs(1);

/// What is the same for every problem of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProblemKind {
    /// The last part of its `type`.
    pub name: &'static str,
    /// The status of the answer.
    pub status: StatusCode,
    /// In a few words.
    pub title: &'static str,
    /// What to do next.
    pub detail: &'static str,
}

/// 429: a rule is full.
pub const THROTTLED: ProblemKind = ProblemKind {
    name: "throttled",
    status: StatusCode::TOO_MANY_REQUESTS,
    title: "Too many attempts",
    detail: "Wait retry_after seconds, then try again. Earlier attempts are refused but do not make the wait longer.",
};
/// 503: requests in flight hold every slot.
pub const BUSY: ProblemKind = ProblemKind {
    name: "busy",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Server busy",
    detail: "This attempt was not counted. Send the same call again after Retry-After.",
};
/// 503: the store does not answer.
pub const UNAVAILABLE: ProblemKind = ProblemKind {
    name: "unavailable",
    status: StatusCode::SERVICE_UNAVAILABLE,
    title: "Temporarily unavailable",
    detail: "A service that this call needs does not respond. Send the same call again after Retry-After.",
};

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq)]
pub enum Denied {
    /// A rule of this limit is full.
    Full {
        /// Which.
        limit: Limit,
        /// The rule that refused it, and for how long.
        refusal: Refusal,
    },
    /// Requests in flight take all free slots of a limit, and none of them ended in time.
    Busy,
    /// The store does not answer.
    Unavailable,
}

/// The body of a problem (RFC 9457).
#[derive(Serialize)]
struct Body<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'a str>,
    /// Whole seconds.
    retry_after: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl Denied {
    /// A problem: 429 `throttled`, or 503 `busy` or `unavailable`, with `Retry-After`.
    pub fn respond(&self) -> HttpResponse {
        let (kind, limit) = match self {
            Self::Full { limit, .. } => (THROTTLED, Some(limit.name())),
            Self::Busy => (BUSY, None),
            Self::Unavailable => (UNAVAILABLE, None),
        };
        let ProblemKind { name, status, title, detail } = kind;
        let body = Body {
            r#type: format!("/problems/{name}"),
            title,
            status: status.as_u16(),
            detail,
            limit,
            retry_after: whole_seconds(self.retry_after()),
            retry_after_ms: limit.map(|_| self.retry_after().as_micros().div_ceil(1000) as u64),
        };
        let body = serde_json::to_vec(&body).expect("strings and numbers are JSON");
        let mut response = HttpResponse::build(status)
            .insert_header((CONTENT_TYPE, HeaderValue::from_static("application/problem+json")))
            .body(body);
        self.head(response.headers_mut());
        response
    }

    /// When to try again.
    pub const fn retry_after(&self) -> Duration {
        match self {
            Self::Full { refusal, .. } => refusal.retry_after,
            Self::Busy | Self::Unavailable => SOON,
        }
    }

    /// Adds the headers that the answer lacks.
    pub(super) fn head(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(RETRY_AFTER) {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(self.retry_after())));
        }
    }
}
