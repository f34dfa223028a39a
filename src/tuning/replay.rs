//! What a draft of the limits would have done to the recorded attempts: one estimate, beside the record.
//!
//! The limits in force are not replayed: their figures are counted from the record. Under the draft the
//! recorded attempts come again in the order of time, and the arithmetic that enforces limits
//! ([`window`](gatehouse_limiter::window)) decides on them. **An attempt keeps its recorded decision unless the
//! draft changes a limit that counts it, or an earlier attempt with another decision has made a log that
//! counts it different from the recorded one.** So a draft that changes nothing gives exactly the recorded
//! figures, and one that changes messages leaves sign-ins as they were.
//!
//! If every attempt was admitted when it was recorded, the estimate is what the limiter would have decided;
//! the tests compare the two. What the record cannot know is counted ([`AttemptCounts::unknown`]):
//!
//! - How a refused attempt would have ended, because its password was not compared. If the same person was
//!   right within ten minutes from the same address, the estimate takes it for right, otherwise for wrong.
//!   Attempts that were recorded together are assumed to have come at even intervals.
//! - Who would have solved a challenge that only the draft asks for. The estimate assumes that nobody does.
//! - Which right codes of an app a stricter draft would refuse, and which wrong answers to challenges a laxer one would
//!   count: the former count nowhere, nor do the latter where others are asked already.
//! - What was asked for and then abandoned at the login of another program: it is not recorded.
//! - Which log counts a refused attempt, if a flood was recorded without its subjects. It keeps its decision.
//!
//! The estimate also assumes that the same attempts come at the same times, however they are answered; that
//! anyone who had to wait came back at the right time; that refused attempts would have been verified at
//! once; and that brakes, outages, shortages and the load were as they were.
//!
//! What was read is kept for the next draft. One draft is tried at a time, to its end or until it is noticed that whoever
//! asked has hung up.

mod engine;
mod read;
mod row;
mod tally;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gatehouse_limiter::Limit;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::oneshot;
use utoipa::ToSchema;

use crate::clock::{Clock, Micros, as_time};
use crate::config::{LimitName, Limits};
use crate::db::{Db, DbError};
use crate::request_id;
use row::{ReplayedLogin, counts_devices, is_replayed, replayed_limits};

pub use read::{RecordRead, read};
pub use row::{RecordedEvent, ReplayAction, ReplayOutcome, ReplayRow, RowIntake};
pub use tally::{AttemptCounts, LimitCounts, RuleCounts};

/// The counts of all attempts, and of those of each limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema, Default)]
#[schema(as = PreviewSide)]
pub struct ComparisonSide {
    pub all: AttemptCounts,
    pub limits: Vec<LimitCounts>,
}

/// The record, and the estimate of a draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    pub recorded: ComparisonSide,
    pub draft: ComparisonSide,
}

/// Counts the attempts from `from` on as they were recorded and as `draft` would have decided them; those before
/// fill the logs.
pub fn replay(recording: &[ReplayRow], in_force: &Limits, draft: &Limits, from: Micros) -> Comparison {
    let mut engine = engine::ReplayEngine::new(recording, in_force, draft, from);
    while engine.go_on().is_some() {}
    engine.finish()
}

/// How long the data that was read is reused: a minute, for an administrator who moves a threshold up and
/// down.
const KEPT: Duration = Duration::from_secs(60);
pub const SHORTEST: Duration = Duration::from_secs(60);
pub const LONGEST: Duration = Duration::from_secs(90 * 24 * 60 * 60);
/// How long to wait for another preview.
const PATIENCE: Duration = Duration::from_secs(10);

/// The limits in force.
#[derive(Debug, Clone)]
pub struct PreviewBase {
    pub limits: Limits,
    /// Since when, if there were others before.
    pub since: Option<Micros>,
}

// What a draft would have done, beside the record; as it is in the API.
#[derive(Debug, Clone, PartialEq, Default, Serialize, ToSchema)]
#[schema(as = LimitsPreview, example = json!(PreviewReport {
    from: Micros::from_seconds(1_795_168_800),
    to: Micros::from_seconds(1_795_255_200),
    not_replayed: vec!["captcha-address".to_owned()],
    ..PreviewReport::default()
}))]
pub struct PreviewReport {
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub from: Micros,
    #[serde(serialize_with = "as_time")]
    #[schema(value_type = String, format = DateTime)]
    pub to: Micros,
    // Rows that were read, including those before the span that fill the windows.
    pub rows: u64,
    // Their size in memory.
    pub bytes: u64,
    /// What has to be known to read the numbers: the record begins after the span does; what came before the span, which
    /// the windows look back on, is not all in the record; other limits were in force for a part of the span.
    #[schema(inline)]
    pub incomplete: Vec<IncompleteReason>,
    /// What was recorded: nothing here is estimated.
    #[serde(rename = "current")]
    pub recorded: ComparisonSide,
    /// An estimate. Attempts that meet no changed limit, and no log that the draft has changed, are as they were recorded.
    pub draft: ComparisonSide,
    /// Limits of which the record does not say enough: changes to them are not tried. `login-device` is one of them unless
    /// it and `login-account` are in force with rules that are enforced, and `factor-device` unless its own are.
    pub not_replayed: Vec<String>,
    pub read_ms: u64,
    pub replay_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IncompleteReason {
    /// The record begins later than the span does.
    BeginsLater,
    /// The windows were not full yet when the span began: what came before it is not in the record.
    NotWarm,
    /// Other limits were in force for a part of the span, and decided what was recorded then.
    LimitsChanged,
}

#[derive(Debug)]
pub enum PreviewError {
    /// Another preview is running.
    Busy,
    /// The span is not valid or contains too much; says why.
    Span(String),
    Db(DbError),
}

impl From<DbError> for PreviewError {
    fn from(error: DbError) -> Self {
        Self::Db(error)
    }
}

/// How far a preview is. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct PreviewProgress(Arc<AtomicU32>);

/// The part of the progress that reading is, of a hundred.
const READING: usize = 60;

impl PreviewProgress {
    pub fn percent(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn has_read(&self, pages: usize, of: usize) {
        self.0.store((READING * pages / of) as u32, Ordering::Relaxed);
    }

    fn has_replayed(&self, rows: usize, of: usize) {
        self.0.store((READING + (100 - READING) * rows / of) as u32, Ordering::Relaxed);
    }
}

/// Kept by whoever gives previews.
#[derive(Debug, Default)]
pub struct PreviewService {
    turn: Arc<tokio::sync::Mutex<()>>,
    kept: Arc<Mutex<Option<KeptRead>>>,
}

#[derive(Debug, Clone)]
struct KeptRead {
    span: Duration,
    at: Micros,
    read: Arc<RecordRead>,
    took: Duration,
}

impl PreviewService {
    /// Waits for its turn; reads the record unless that was done a moment ago; replays. A thread of its own does it,
    /// which stops soon after the caller has hung up.
    pub async fn preview(
        &self,
        (db, clock): (&Db, &Clock),
        base: PreviewBase,
        draft: Limits,
        span: Duration,
        progress: PreviewProgress,
    ) -> Result<PreviewReport, PreviewError> {
        if !(SHORTEST..=LONGEST).contains(&span) {
            return Err(PreviewError::Span("a span is from 1m to 90d".to_owned()));
        }
        let (caller, hung_up) = oneshot::channel::<()>();
        let (db, clock, kept) = (db.clone(), clock.clone(), Arc::clone(&self.kept));
        let work = Box::pin(async move {
            let preview = async {
                let kept = kept_or_read(&kept, &db, &clock, span, back(&draft), &progress).await?;
                Ok(Box::pin(replayed(&kept, base, &draft, &progress)).await)
            };
            tokio::select! {
                biased;
                // The answer is heard by nobody.
                _ = hung_up => Err(PreviewError::Busy),
                report = preview => report,
            }
        });
        let report = request_id::in_turn(&self.turn, PATIENCE, work).await;
        drop(caller);
        report.unwrap_or(Err(PreviewError::Busy))
    }

    /// Frees data that was not used recently.
    pub fn tidy(&self, clock: &Clock) {
        let mut kept = self.kept.lock();
        if kept.as_ref().is_some_and(|kept| !(kept.at..kept.at.plus(KEPT)).contains(&clock.now())) {
            *kept = None;
        }
    }
}

async fn kept_or_read(
    kept: &Mutex<Option<KeptRead>>,
    db: &Db,
    clock: &Clock,
    span: Duration,
    back: Duration,
    progress: &PreviewProgress,
) -> Result<KeptRead, PreviewError> {
    let now_is = clock.now();
    let last = kept.lock().clone();
    if let Some(last) = last
        && last.span == span
        && (last.at..last.at.plus(KEPT)).contains(&now_is)
        && (last.read.cut || last.read.warm_from <= last.read.from.minus(back))
    {
        return Ok(last);
    }
    // Freed first, so that two of them are never in memory at once.
    *kept.lock() = None;
    let begun = now();
    let read = read(db, now_is.minus(span), now_is, back, |pages, of| progress.has_read(pages, of)).await?;
    let fresh = KeptRead { span, at: now_is, read: Arc::new(read), took: begun.elapsed() };
    *kept.lock() = Some(fresh.clone());
    Ok(fresh)
}

async fn replayed(
    KeptRead { read, took: read_took, .. }: &KeptRead,
    PreviewBase { limits: in_force, since }: PreviewBase,
    draft: &Limits,
    progress: &PreviewProgress,
) -> PreviewReport {
    let (begun, of) = (now(), read.recording.len());
    let mut engine = engine::ReplayEngine::new(&read.recording, &in_force, draft, read.from);
    while let Some(rows) = engine.go_on() {
        progress.has_replayed(rows, of);
        tokio::task::yield_now().await;
    }
    progress.has_replayed(1, 1);
    let not_replayed = not_replayed(&in_force, draft);
    let Comparison { recorded, draft } = engine.finish();
    let reasons = [
        (read.oldest.is_none_or(|oldest| oldest > read.from), IncompleteReason::BeginsLater),
        (read.cut || read.oldest.is_none_or(|oldest| oldest > read.warm_from), IncompleteReason::NotWarm),
        (since.is_some_and(|since| since > read.from), IncompleteReason::LimitsChanged),
    ];
    PreviewReport {
        from: read.from,
        to: read.to,
        rows: of as u64,
        bytes: size_of_val(read.recording.as_slice()) as u64,
        incomplete: reasons.into_iter().filter_map(|(is, reason)| is.then_some(reason)).collect(),
        recorded,
        draft,
        not_replayed,
        read_ms: read_took.as_millis() as u64,
        replay_ms: begun.elapsed().as_millis() as u64,
    }
}

#[expect(clippy::disallowed_methods, reason = "how long it took is told, and nothing is decided by it")]
fn now() -> Instant {
    Instant::now()
}

/// How far the limits look back before the span.
fn back(draft: &Limits) -> Duration {
    replayed_limits(draft).into_iter().map(Limit::longest_window).max().unwrap_or_default()
}

/// Limits that are not recorded attempt by attempt; and the limits on devices, unless devices are recorded
/// separately.
fn not_replayed(in_force: &Limits, draft: &Limits) -> Vec<String> {
    let replayed = |name| match name {
        LimitName::LoginDevice => counts_devices(in_force, ReplayedLogin::Own),
        LimitName::GuardDevice => counts_devices(in_force, ReplayedLogin::Realm),
        LimitName::FactorDevice => counts_devices(in_force, ReplayedLogin::Factor),
        name => is_replayed(name),
    };
    let names = draft.iter().map(Limit::name);
    names.filter(|name| !LimitName::parse(name).is_some_and(replayed)).map(str::to_owned).collect()
}

#[cfg(test)]
mod preview_tests {
    use std::pin::pin;
    use std::task::Poll;

    use super::row::KINDS;
    use super::*;
    use crate::db::tests::TestDatabase;

    const BEGIN: Micros = Micros::from_seconds(1_772_366_400);

    /// A wrong password every millisecond.
    fn recording(rows: i64) -> RecordRead {
        let mut intake = RowIntake::default();
        for number in 0..rows {
            let at = Micros(BEGIN.0 + number * 1_000);
            intake.take(&RecordedEvent {
                at,
                until: at,
                count: 1,
                action: ReplayAction::SignIn,
                outcome: ReplayOutcome::Wrong,
                limit: None,
                rule: 0,
                noted: false,
                solved: false,
                forgave: true,
                keys: [Some(number % 1_000); KINDS],
            });
        }
        let to = Micros(BEGIN.0 + rows * 1_000);
        let recording = intake.finish();
        RecordRead { recording, from: BEGIN, to, warm_from: BEGIN, oldest: Some(BEGIN), cut: true }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_is_told_how_far_a_preview_is_and_hanging_up_stops_it() {
        let database = TestDatabase::sqlite();
        let (db, clock) = (database.open().await, Clock::manual(BEGIN));
        let previews = PreviewService::default();
        let read = Arc::new(recording(500_000));
        let kept = KeptRead { span: KEPT, at: BEGIN, read, took: Duration::ZERO };
        *previews.kept.lock() = Some(kept);
        let begin = |progress: &PreviewProgress| {
            let base = PreviewBase { limits: Limits::default(), since: None };
            previews.preview((&db, &clock), base, Limits::default(), KEPT, progress.clone())
        };
        let progress = PreviewProgress::default();
        {
            let mut asked = pin!(begin(&progress));
            while progress.percent() == 0 {
                let poll = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
                assert!(poll.await.is_pending());
                tokio::task::yield_now().await;
            }
        }
        drop(previews.turn.lock().await);
        assert!(progress.percent() < 100, "it went on to the end");
        let whole = PreviewProgress::default();
        assert_eq!(begin(&whole).await.unwrap().rows, 500_000);
        assert_eq!(whole.percent(), 100);
    }
}
