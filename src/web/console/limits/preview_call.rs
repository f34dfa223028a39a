//! `POST /api/v1/admin/limits/preview`: what a draft of the limits would have done to recorded traffic.

use std::time::Duration;

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::tuning::replay::{Comparison, ComparisonSide, IncompleteReason};
use crate::tuning::{DraftError, LimitsDraft, PreviewError, PreviewReport};
use crate::web::console::guard::Admin;
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::problem::{DraftProblem, InputError, Problem};
use crate::web::kit::services::Shared;
use crate::web::kit::wait::Moment;

/// The default time span.
const USUAL: Duration = Duration::from_secs(24 * 60 * 60);
/// About as long as another preview takes.
const BUSY_RETRY: Duration = Duration::from_secs(5);

/// Exactly one of `limits` and `toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    limits: Option<Value>,
    toml: Option<String>,
    span: Option<String>,
}

#[derive(Serialize)]
struct Body {
    from: String,
    to: String,
    rows: u64,
    bytes: u64,
    incomplete: Vec<IncompleteReason>,
    /// The recorded figures.
    current: ComparisonSide,
    draft: ComparisonSide,
    not_replayed: Vec<String>,
    read_ms: u64,
    replay_ms: u64,
}

impl From<PreviewReport> for Body {
    fn from(report: PreviewReport) -> Self {
        let PreviewReport { from, to, rows, bytes, incomplete, comparison, not_replayed, read_ms, replay_ms } =
            report;
        let Comparison { recorded: current, draft } = comparison;
        let (from, to) = (Moment(from).iso(), Moment(to).iso());
        Self { from, to, rows, bytes, incomplete, current, draft, not_replayed, read_ms, replay_ms }
    }
}

/// Changes nothing, so the password need not be confirmed.
pub async fn submit(
    _: Admin,
    wanted: UnreadBody<Wanted, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    let draft = match (&wanted.limits, &wanted.toml) {
        (Some(limits), None) => LimitsDraft::Json(limits),
        (None, Some(toml)) => LimitsDraft::Toml(toml),
        (Some(_), Some(_)) => {
            return Err(wrong("toml", "Send either toml or limits, not both.".to_owned()));
        }
        (None, None) => return Err(wrong("limits", "Missing; send limits or toml.".to_owned())),
    };
    let span = wanted.span.as_deref().map_or(Ok(USUAL), humantime::parse_duration);
    let span = span.map_err(|_| wrong("span", "Not a duration; write 24h or 7d.".to_owned()))?;
    let limits = services.tuning.parse(&draft).map_err(|errors| {
        let told = |DraftError { field, message, line }| DraftProblem { field, message, line };
        Problem::InvalidDraft { errors: errors.into_iter().map(told).collect() }
    })?;
    match services.tuning.preview(limits, span).await {
        Ok(report) => Ok(HttpResponse::Ok().json(Body::from(report))),
        Err(PreviewError::Span(reason)) => Err(wrong("span", reason)),
        Err(PreviewError::Busy) => Err(Problem::Unavailable { retry_after: BUSY_RETRY }),
        Err(PreviewError::Db(error)) => Err(error.into()),
    }
}

fn wrong(field: &'static str, message: String) -> Problem {
    Problem::InvalidInput { errors: vec![InputError { field: field.into(), message: message.into() }] }
}
