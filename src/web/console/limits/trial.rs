//! A draft replayed on recorded traffic, for the pages that edit it.

use std::time::Duration;

use crate::tuning::replay::{AttemptCounts, Comparison, IncompleteReason, LimitCounts};
use crate::tuning::{DocumentDraft, DraftError, PreviewError, PreviewReport};
use crate::web::console::document::call::read_draft;
use crate::web::console::document::draft::Stretch;
use crate::web::console::guard::Admin;
use crate::web::console::limits::preview::{About, NOT_REPLAYED, PreviewLine, PreviewView, Trial};
use crate::web::kit::problem::Problem;
use crate::web::kit::services::Services;

/// What a draft would have done to recorded traffic, or all of its mistakes.
pub async fn tried(
    services: &Services,
    admin: &Admin,
    draft: String,
    stretch: Stretch,
) -> Result<Result<Trial, Vec<DraftError>>, Problem> {
    let limits =
        match read_draft(services, admin, move |live| live.parse(DocumentDraft::Toml(&draft))).await? {
            Ok(limits) => limits,
            Err(errors) => return Ok(Err(errors)),
        };
    let span = Duration::from_secs(stretch.hours() * 60 * 60);
    let current = services.live.snapshot();
    let differs = |name: &String| current.limits.get(name) != limits.get(name);
    Ok(Ok(match services.tuning.preview(limits.clone(), span).await {
        Ok(report) => {
            let untried = report.not_replayed.iter().any(differs);
            Trial::Done(view(report, stretch, untried))
        }
        Err(PreviewError::Busy) => Trial::Unable { key: "preview.busy", said: None },
        Err(PreviewError::Span(reason)) => Trial::Unable { key: "preview.too-much", said: Some(reason) },
        Err(PreviewError::Db(error)) => return Err(error.into()),
    }))
}

/// `untried`: the draft also changes limits that cannot be replayed.
fn view(report: PreviewReport, stretch: Stretch, untried: bool) -> PreviewView {
    let PreviewReport { comparison: Comparison { recorded, draft }, incomplete, .. } = report;
    let line = |key, of: fn(&AttemptCounts) -> u64, more_is_better| PreviewLine {
        about: About::All(key),
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
    lines.extend(recorded.limits.iter().zip(&draft.limits).filter_map(|(old, new)| by_limit(old, new)));
    let mut caveats: Vec<&str> = incomplete.into_iter().map(caveat).collect();
    if untried {
        caveats.push(NOT_REPLAYED);
    }
    PreviewView { stretch, attempts: draft.all.attempts, unknown: draft.all.unknown, lines, caveats }
}

/// The challenges and refusals of a limit; None if the draft does not change their number.
fn by_limit(recorded: &LimitCounts, draft: &LimitCounts) -> Option<PreviewLine> {
    let stopped = |limit: &LimitCounts| limit.counts.challenged + limit.counts.throttled;
    let about = About::Limit(recorded.name.clone());
    let (recorded, draft) = (stopped(recorded), stopped(draft));
    (recorded != draft).then_some(PreviewLine { about, recorded, draft, more_is_better: None })
}

const fn caveat(why: IncompleteReason) -> &'static str {
    match why {
        IncompleteReason::BeginsLater => "preview.begins-later",
        IncompleteReason::NotWarm => "preview.not-warm",
        IncompleteReason::LimitsChanged => "preview.limits-changed",
    }
}
