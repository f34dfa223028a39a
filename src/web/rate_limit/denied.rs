//! Why a request was turned away, and what it is told.

use std::time::Duration;

use actix_web::http::header::{HeaderMap, RETRY_AFTER};

use crate::throttle::{Limit, Refusal};
use crate::web::problem::Problem;

/// What somebody is told who waited for others in flight, or whose store does not answer: a moment.
const SOON: Duration = Duration::from_secs(1);

/// Why a request was turned away.
#[derive(Debug, Clone, PartialEq)]
pub enum Denied {
    /// A rule of this limit is full.
    Full { limit: Limit, refusal: Refusal },
    /// Requests in flight take all that is left of a limit, and none of them ended in time.
    Busy,
    /// The store does not answer.
    Unavailable,
}

impl Denied {
    /// As a problem of the API: 429 `throttled`, or 503 `busy` or `unavailable`.
    pub fn problem(&self) -> Problem {
        match self {
            Self::Full { limit, refusal } => {
                Problem::LimitFull { limit: limit.name().to_owned(), retry_after: refusal.retry_after }
            }
            Self::Busy => Problem::Busy { retry_after: SOON },
            Self::Unavailable => Problem::Unavailable { retry_after: SOON },
        }
    }

    /// Adds what the answer leaves out.
    pub(super) fn head(&self, headers: &mut HeaderMap) {
        if !headers.contains_key(RETRY_AFTER) {
            self.problem().head(headers);
        }
    }
}
