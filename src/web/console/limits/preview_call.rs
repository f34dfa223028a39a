//! `POST /api/v1/admin/limits/preview`: what a draft of the limits would have done to recorded traffic.

use std::time::Duration;

use actix_web::HttpResponse;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::schema::LimitSettings;
use crate::tuning::replay::{Comparison, ComparisonSide, IncompleteReason};
use crate::tuning::{PreviewError, PreviewReport};
use crate::web::console::document::call::{BUSY_RETRY, SentDraft, read_draft};
use crate::web::console::document::part::DocumentPart;
use crate::web::console::permitted::{Permitted, TryLimits};
use crate::web::kit::describe::{ADMIN, BODY, SCOPED};
use crate::web::kit::extract::{DOCUMENT_LIMIT, UnreadBody};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Shared;
use crate::web::kit::wait::Moment;

/// The default time span.
const USUAL: Duration = Duration::from_secs(24 * 60 * 60);

/// Exactly one of `limits` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "limits": { "sms-phone": LimitSettings::example() }, "span": "24h" }))]
pub struct PreviewRequest {
    #[schema(value_type = Option<super::schema::LimitsDocument>)]
    limits: Option<Value>,
    /// Instead of limits: `[limits.NAME]` tables, with comments.
    toml: Option<String>,
    /// How far back, from 1m to 90d.
    #[schema(default = "24h")]
    span: Option<String>,
}

#[derive(Default, Serialize, ToSchema)]
#[schema(example = json!(LimitsPreview {
    from: "2026-11-20T10:00:00Z".to_owned(),
    to: "2026-11-21T10:00:00Z".to_owned(),
    not_replayed: vec!["captcha-address".to_owned()],
    ..LimitsPreview::default()
}))]
struct LimitsPreview {
    #[schema(format = DateTime)]
    from: String,
    #[schema(format = DateTime)]
    to: String,
    rows: u64,
    bytes: u64,
    /// What has to be known to read the numbers: the record begins after the span does; what came before the span, which
    /// the windows look back on, is not all in the record; other limits were in force for a part of the span.
    #[schema(inline)]
    incomplete: Vec<IncompleteReason>,
    /// As it was recorded: nothing here is estimated.
    current: ComparisonSide,
    /// An estimate. Attempts that meet no changed limit, and no log that the draft has changed, are as they were recorded.
    draft: ComparisonSide,
    /// Limits of which the record does not say enough: changes to them are not tried. `login-device` is one of them unless
    /// it and `login-account` are in force with rules that are enforced.
    not_replayed: Vec<String>,
    read_ms: u64,
    replay_ms: u64,
}

impl From<PreviewReport> for LimitsPreview {
    fn from(report: PreviewReport) -> Self {
        let PreviewReport { from, to, rows, bytes, incomplete, comparison, not_replayed, read_ms, replay_ms } =
            report;
        let Comparison { recorded: current, draft } = comparison;
        let (from, to) = (Moment(from).iso(), Moment(to).iso());
        Self { from, to, rows, bytes, incomplete, current, draft, not_replayed, read_ms, replay_ms }
    }
}

/// Try other limits on recorded traffic
///
/// It counts what was recorded of the span, replays the same attempts under the draft, and changes nothing. The numbers
/// of the draft are one estimate; `unknown` counts the attempts whose end the record cannot know.
#[utoipa::path(
    post,
    path = "/api/v1/admin/limits/preview",
    operation_id = "previewLimits",
    tag = "admin",
    request_body = PreviewRequest,
    responses((status = 200, description = "What was recorded, and what the draft would have done.", body = LimitsPreview)),
    security(("session" = []), ("token" = ["limits:read"])),
    extensions(("x-problems" = json!([ADMIN, SCOPED, "csrf", BODY])))
)]
pub async fn submit(
    Permitted { admin, .. }: Permitted<TryLimits>,
    wanted: UnreadBody<PreviewRequest, DOCUMENT_LIMIT>,
    services: Shared,
) -> Result<HttpResponse, Problem> {
    let wanted = wanted.read().await?;
    let PreviewRequest { limits: json, toml, span } = wanted;
    let body = SentDraft { part: DocumentPart::Limits, json, toml }.body()?;
    let span = span.as_deref().map_or(Ok(USUAL), humantime::parse_duration);
    let span = span.map_err(|_| Problem::wrong("span", "Not a duration; write 24h or 7d.".to_owned()))?;
    let limits = read_draft(&services, &admin, move |live| live.parse(body.draft())).await?;
    let limits = limits.map_err(Problem::invalid_draft)?;
    match services.tuning.preview(limits, span).await {
        Ok(report) => Ok(HttpResponse::Ok().json(LimitsPreview::from(report))),
        Err(PreviewError::Span(reason)) => Err(Problem::wrong("span", reason)),
        Err(PreviewError::Busy) => Err(Problem::Unavailable { retry_after: BUSY_RETRY }),
        Err(PreviewError::Db(error)) => Err(error.into()),
    }
}
