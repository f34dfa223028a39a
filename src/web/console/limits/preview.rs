//! What a draft of the limits would have done to recorded traffic, for the pages that edit it and for the call.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::Bytes;
use futures_util::stream;
use rust_i18n::t;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::LimitSettings;
use crate::request_id;
use crate::tuning::replay::{AttemptCounts, IncompleteReason, LimitCounts};
use crate::tuning::{CheckedEdit, PreviewError, PreviewProgress, PreviewReport};
use crate::web::console::RecordSpan;
use crate::web::console::document::{BUSY_RETRY, LIMITS, SentDraft, Trial};
use crate::web::console::figures::DAY;
use crate::web::console::guard::{AdminRequest, Permitted};
use crate::web::console::limit_text::{grouped, title};
use crate::web::http::extract::DOCUMENT_LIMIT;
use crate::web::http::{Locale, Problem, UnreadBody, WebResult};

/// What a draft would have done to recorded traffic.
pub async fn tried(
    request: &AdminRequest,
    checked: CheckedEdit,
    stretch: RecordSpan,
    progress: PreviewProgress,
) -> Result<Trial<PreviewView>, Problem> {
    let AdminRequest { visit, services, admin } = request;
    let limits = checked.live().limits.clone();
    let current = services.live.snapshot();
    let differs = |name: &String| current.limits.get(name) != limits.get(name);
    Ok(match services.tuning.preview(&admin.reader(), limits.clone(), stretch.length, progress).await {
        Ok(report) => {
            let untried = report.not_replayed.iter().any(differs);
            Trial::Done(view(report, stretch, untried, visit.locale))
        }
        Err(PreviewError::Busy) => Trial::BUSY,
        Err(PreviewError::Span(reason)) => Trial::Unable { key: "preview.too-much", said: Some(reason) },
        Err(PreviewError::Db(error)) => return Err(error.into()),
    })
}

/// How often it is told how far a preview is.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// For a form whose script shows how far a preview is: unless the page is there at once, its percents come before it,
/// a line each. The script stops the preview by hanging up, of which a server hears when it writes.
pub async fn telling<P: Future<Output = WebResult> + 'static>(
    asked: bool,
    page: impl FnOnce(PreviewProgress) -> P,
) -> WebResult {
    let progress = PreviewProgress::default();
    let mut page = Box::pin(request_id::keep(page(progress.clone())));
    if !asked {
        return page.await;
    }
    if let Ok(page) = tokio::time::timeout(TELL_EVERY, &mut page).await {
        return page;
    }
    let told = stream::unfold(Some(page), move |page| {
        let progress = progress.clone();
        async move {
            let mut page = page?;
            match tokio::time::timeout(TELL_EVERY, &mut page).await {
                Err(_) => Some((Ok(Bytes::from(format!("{}\n", progress.percent()))), Some(page))),
                // Too late for another status: without a page the script says that it failed.
                Ok(Err(_)) => None,
                Ok(Ok(page)) => Some((body::to_bytes(page.into_body()).await, None)),
            }
        }
    });
    let mut answer = HttpResponse::Ok();
    // nginx would keep it until it is complete.
    answer
        .insert_header((CONTENT_TYPE, "text/plain; charset=utf-8"))
        .insert_header(("X-Accel-Buffering", "no"));
    Ok(answer.streaming(told))
}

/// `untried`: the draft also changes limits that cannot be replayed.
fn view(report: PreviewReport, stretch: RecordSpan, untried: bool, locale: Locale) -> PreviewView {
    let PreviewReport { recorded, draft, incomplete, .. } = report;
    let line = |key, of: fn(&AttemptCounts) -> u64, more_is_better| PreviewLine {
        label: locale.t(key),
        recorded: of(&recorded.all),
        draft: of(&draft.all),
        more_is_better,
    };
    let mut lines = vec![
        line("preview.challenged", |all| all.challenged, None),
        line("preview.refused", |all| all.throttled, None),
        line("preview.bothered", |all| all.bothered, Some(false)),
        line("preview.guesses", |all| all.guesses_verified, Some(false)),
        line("preview.sent", |all| all.messages_sent, None),
    ];
    let both = recorded.limits.iter().zip(&draft.limits);
    lines.extend(both.filter_map(|(old, new)| by_limit(old, new, locale)));
    let mut caveats: Vec<&str> = incomplete.into_iter().map(caveat).collect();
    if untried {
        caveats.push(NOT_REPLAYED);
    }
    // A higher threshold may refuse more, which nobody expects.
    if draft.all.throttled > recorded.all.throttled
        && draft.all.guesses_verified > recorded.all.guesses_verified
    {
        caveats.push("preview.more-refused");
    }
    PreviewView { stretch, attempts: draft.all.attempts, unknown: draft.all.unknown, lines, caveats }
}

/// The challenges and refusals of a limit; None if the draft does not change their number.
fn by_limit(recorded: &LimitCounts, draft: &LimitCounts, locale: Locale) -> Option<PreviewLine> {
    let stopped = |limit: &LimitCounts| limit.counts.challenged + limit.counts.throttled;
    let name = title(&recorded.name, locale);
    let (recorded, draft) = (stopped(recorded), stopped(draft));
    let label = t!("preview.by-limit", locale = locale.code(), limit = name);
    (recorded != draft).then_some(PreviewLine { label, recorded, draft, more_is_better: None })
}

const fn caveat(why: IncompleteReason) -> &'static str {
    match why {
        IncompleteReason::BeginsLater => "preview.begins-later",
        IncompleteReason::NotWarm => "preview.not-warm",
        IncompleteReason::LimitsChanged => "preview.limits-changed",
    }
}

/// A caveat: the draft also changes limits that cannot be replayed.
pub const NOT_REPLAYED: &str = "preview.not-replayed";

pub struct PreviewLine {
    pub label: Cow<'static, str>,
    pub recorded: u64,
    pub draft: u64,
    /// Whether a higher figure is better; None if that depends.
    pub more_is_better: Option<bool>,
}

impl PreviewLine {
    /// The longest bar of the line has 100 units.
    pub fn bar(&self, count: &u64) -> u64 {
        let longest = self.recorded.max(self.draft).max(1);
        (u128::from(*count) * 100).div_ceil(u128::from(longest)) as u64
    }

    pub fn same(&self) -> bool {
        self.recorded == self.draft
    }

    /// A figure is an estimate only if the draft changes it.
    pub fn estimate(&self, locale: Locale) -> Cow<'static, str> {
        let count = grouped(self.draft);
        if self.same() {
            Cow::Owned(count)
        } else {
            t!("preview.about", locale = locale.code(), count = count)
        }
    }

    pub fn tone(&self) -> &'static str {
        match (self.more_is_better, self.draft.cmp(&self.recorded)) {
            (None, _) | (_, Ordering::Equal) => "",
            (Some(better), change) if better == change.is_gt() => "better",
            _ => "worse",
        }
    }
}

pub struct PreviewView {
    pub stretch: RecordSpan,
    pub attempts: u64,
    pub unknown: u64,
    pub lines: Vec<PreviewLine>,
    /// What readers of the figures must know, as keys of sentences.
    pub caveats: Vec<&'static str>,
}

impl PreviewView {
    pub fn lead(&self, locale: Locale) -> Cow<'static, str> {
        let stretch = locale.t(self.stretch.key);
        let code = locale.code();
        t!("preview.lead", locale = code, stretch = stretch, count = grouped(self.attempts))
    }

    /// A note on what is estimated and what the record cannot show; None if nothing is estimated.
    pub fn estimated(&self, locale: Locale) -> Option<Cow<'static, str>> {
        let estimated = self.unknown > 0 || !self.lines.iter().all(PreviewLine::same);
        let unknown = grouped(self.unknown);
        estimated.then(|| t!("preview.estimated", locale = locale.code(), unknown = unknown))
    }

    /// True only if every changed limit could be replayed.
    pub fn changes_nothing(&self) -> bool {
        !self.caveats.contains(&NOT_REPLAYED) && self.lines.iter().all(PreviewLine::same)
    }
}

/// Exactly one of `limits` and `toml`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({ "limits": { "sms-phone": LimitSettings::example() }, "span": "24h" }))]
pub struct PreviewRequest {
    #[schema(value_type = Option<super::LimitsDocument>)]
    limits: Option<Value>,
    /// Instead of limits: `[limits.NAME]` tables, with comments.
    toml: Option<String>,
    /// How far back, from 1m to 90d.
    #[schema(default = "24h")]
    span: Option<String>,
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
    responses((status = 200, description = "What was recorded, and what the draft would have done.", body = PreviewReport)),
)]
pub async fn api_preview(
    permitted: Permitted,
    wanted: UnreadBody<PreviewRequest, DOCUMENT_LIMIT>,
) -> Result<HttpResponse, Problem> {
    let (admin, PreviewRequest { limits: json, toml, span }) = permitted.read(wanted).await?;
    let checked = SentDraft { part: &LIMITS, json, toml }.check(&admin).await?;
    let span = span.as_deref().map_or(Ok(DAY), humantime::parse_duration);
    let span = span.map_err(|_| Problem::wrong("span", "Not a duration; write 24h or 7d.".to_owned()))?;
    let checked = checked.map_err(|error| Problem::invalid_draft(error.into_errors()))?;
    let limits = checked.live().limits.clone();
    match admin.services.tuning.preview(&admin.reader(), limits, span, PreviewProgress::default()).await {
        Ok(report) => Ok(HttpResponse::Ok().json(report)),
        Err(PreviewError::Span(reason)) => Err(Problem::wrong("span", reason)),
        Err(PreviewError::Busy) => Err(Problem::Unavailable { retry_after: BUSY_RETRY }),
        Err(PreviewError::Db(error)) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use actix_web::body::MessageBody;
    use actix_web::http::StatusCode;
    use tokio::sync::oneshot;

    use super::*;
    use crate::clock::Micros;
    use crate::tuning::replay::ComparisonSide;

    async fn next(mut body: std::pin::Pin<&mut impl MessageBody<Error: std::fmt::Debug>>) -> Option<Bytes> {
        std::future::poll_fn(|context| body.as_mut().poll_next(context)).await.map(Result::unwrap)
    }

    #[actix_web::test]
    async fn before_a_page_that_takes_long_comes_how_far_it_is() {
        let (done, wait) = oneshot::channel::<()>();
        let page = async {
            wait.await.unwrap();
            Ok(HttpResponse::Conflict().body("<p>"))
        };
        let answer = telling(true, |_| page).await.unwrap();
        let mut body = pin!(answer.into_body());
        for _ in 0..2 {
            assert_eq!(next(body.as_mut()).await.unwrap(), "0\n");
        }
        done.send(()).unwrap();
        assert_eq!(next(body.as_mut()).await.unwrap(), "<p>");
        assert_eq!(next(body.as_mut()).await, None);
    }

    #[actix_web::test]
    async fn a_page_that_is_there_at_once_or_was_asked_for_without_is_the_answer_itself() {
        let page = async { Ok(HttpResponse::Conflict().body("<p>")) };
        let answer = telling(true, |_| page).await.unwrap();
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        let (done, wait) = oneshot::channel::<()>();
        let page = async {
            wait.await.unwrap();
            Ok(HttpResponse::Conflict().body("<p>"))
        };
        let mut answer = pin!(telling(false, |_| page));
        assert!(tokio::time::timeout(3 * TELL_EVERY, &mut answer).await.is_err());
        done.send(()).unwrap();
        assert_eq!(answer.await.unwrap().status(), StatusCode::CONFLICT);
    }

    #[actix_web::test]
    async fn nobody_works_on_a_page_whose_reader_has_hung_up() {
        let held = Arc::new(());
        let works = Arc::clone(&held);
        let page = async move {
            std::future::pending::<()>().await;
            drop(works);
            Ok(HttpResponse::Ok().finish())
        };
        let answer = telling(true, |_| page).await.unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        drop(answer);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_draft_that_lets_more_through_and_refuses_more_says_why() {
        let caveats = |(guesses, refused)| {
            let side = |guesses_verified, throttled| ComparisonSide {
                all: AttemptCounts { guesses_verified, throttled, ..AttemptCounts::default() },
                limits: Vec::new(),
            };
            let report = PreviewReport {
                from: Micros(0),
                to: Micros(1),
                rows: 0,
                bytes: 0,
                read_ms: 0,
                replay_ms: 0,
                incomplete: Vec::new(),
                recorded: side(3, 10),
                draft: side(guesses, refused),
                not_replayed: Vec::new(),
            };
            view(report, RecordSpan::default(), false, Locale::En).caveats
        };
        assert_eq!(caveats((5, 14)), ["preview.more-refused"]);
        for other in [(5, 10), (5, 2), (3, 14), (2, 14)] {
            assert_eq!(caveats(other), [""; 0], "{other:?}");
        }
    }

    #[test]
    fn a_figure_of_the_draft_is_an_estimate_unless_it_is_as_recorded() {
        let line = |recorded, draft, better| PreviewLine {
            label: "asked".into(),
            recorded,
            draft,
            more_is_better: Some(better),
        };
        assert_eq!(line(7, 9, true).tone(), "better");
        assert_eq!(line(7, 9, false).tone(), "worse");
        assert_eq!(line(9, 7, false).tone(), "better");
        assert_eq!(line(9, 9, false).tone(), "");
        assert_eq!(line(20, 1_900, false).estimate(Locale::En), "about 1,900");
        assert_eq!(line(1_900, 1_900, false).estimate(Locale::En), "1,900");
        assert_eq!(line(20, 8, false).bar(&8), 40);
    }
}
