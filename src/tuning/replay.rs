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
//! - Which right codes of an app a stricter draft would refuse: they count nowhere, and are not recorded.
//! - What was asked for and then abandoned at the login of another program: it is not recorded.
//! - Which log counts a refused attempt, if a flood was recorded without its subjects. It keeps its decision.
//!
//! The estimate also assumes that the same attempts come at the same times, however they are answered; that
//! anyone who had to wait came back at the right time; that refused attempts would have been verified at
//! once; and that brakes, outages, shortages and the load were as they were.
//!
//! What was read is kept for the next draft, and one draft is tried at a time.

mod engine;
mod read;
mod row;
mod tally;

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gatehouse_limiter::Limit;
use parking_lot::Mutex;
use serde::Serialize;
use utoipa::ToSchema;

use crate::clock::{Clock, Micros, as_time};
use crate::config::{LimitName, Limits};
use crate::db::{Db, DbError};
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
    engine::ReplayEngine::new(recording, in_force, draft, from).run()
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
    /// As it was recorded: nothing here is estimated.
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

/// Kept by whoever gives previews.
#[derive(Debug, Default)]
pub struct PreviewService {
    turn: Arc<tokio::sync::Mutex<()>>,
    kept: Mutex<Option<KeptRead>>,
}

#[derive(Debug, Clone)]
struct KeptRead {
    span: Duration,
    at: Micros,
    read: Arc<RecordRead>,
    took: Duration,
}

impl PreviewService {
    /// Waits for its turn; reads the record unless that was done a moment ago; replays on its own thread.
    pub async fn preview(
        &self,
        (db, clock): (&Db, &Clock),
        current: PreviewBase,
        draft: Limits,
        span: Duration,
    ) -> Result<PreviewReport, PreviewError> {
        let PreviewBase { limits: current, since } = current;
        if !(SHORTEST..=LONGEST).contains(&span) {
            return Err(PreviewError::Span("a span is from 1m to 90d".to_owned()));
        }
        let turn = tokio::time::timeout(PATIENCE, Arc::clone(&self.turn).lock_owned()).await;
        let turn = turn.map_err(|_| PreviewError::Busy)?;
        let kept = self.read(db, clock, span, back(&draft)).await?;
        let not_replayed = not_replayed(&current, &draft);
        let (read, read_took) = (Arc::clone(&kept.read), kept.took);
        let replayed = tokio::task::spawn_blocking(move || {
            // The caller may hang up, and the next one still gets its turn when this one is done.
            let _turn = turn;
            let begun = now();
            (replay(&read.recording, &current, &draft, read.from), begun.elapsed())
        });
        let (Comparison { recorded, draft }, took) = replayed.await.expect("a replay does not panic");
        let read = &kept.read;
        let reasons = [
            (read.oldest.is_none_or(|oldest| oldest > read.from), IncompleteReason::BeginsLater),
            (read.cut || read.oldest.is_none_or(|oldest| oldest > read.warm_from), IncompleteReason::NotWarm),
            (since.is_some_and(|since| since > read.from), IncompleteReason::LimitsChanged),
        ];
        Ok(PreviewReport {
            from: read.from,
            to: read.to,
            rows: read.recording.len() as u64,
            bytes: size_of_val(read.recording.as_slice()) as u64,
            incomplete: reasons.into_iter().filter_map(|(is, reason)| is.then_some(reason)).collect(),
            recorded,
            draft,
            not_replayed,
            read_ms: read_took.as_millis() as u64,
            replay_ms: took.as_millis() as u64,
        })
    }

    async fn read(
        &self,
        db: &Db,
        clock: &Clock,
        span: Duration,
        back: Duration,
    ) -> Result<KeptRead, PreviewError> {
        let now_is = clock.now();
        let kept = self.kept.lock().clone();
        if let Some(kept) = kept
            && kept.span == span
            && (kept.at..kept.at.plus(KEPT)).contains(&now_is)
            && (kept.read.cut || kept.read.warm_from <= kept.read.from.minus(back))
        {
            return Ok(kept);
        }
        // Freed first, so that two of them are never in memory at once.
        *self.kept.lock() = None;
        let begun = now();
        let read = read(db, now_is.minus(span), now_is, back).await?;
        let kept = KeptRead { span, at: now_is, read: Arc::new(read), took: begun.elapsed() };
        *self.kept.lock() = Some(kept.clone());
        Ok(kept)
    }

    /// Frees data that was not used recently.
    pub fn tidy(&self, clock: &Clock) {
        let mut kept = self.kept.lock();
        if kept.as_ref().is_some_and(|kept| !(kept.at..kept.at.plus(KEPT)).contains(&clock.now())) {
            *kept = None;
        }
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

    use super::*;
    use crate::db::tests::TestDatabase;

    #[test]
    fn who_hangs_up_makes_no_room_for_another_while_the_replay_goes_on() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).max_blocking_threads(1).enable_all().build().unwrap();
        runtime.block_on(async {
            let database = TestDatabase::sqlite();
            let (db, clock) = (database.open().await, Clock::manual(Micros::from_seconds(1_772_366_400)));
            let previews = PreviewService::default();
            // The only thread for replays is blocked, so that this one stays in progress.
            let (release, released) = std::sync::mpsc::channel::<()>();
            let taken = tokio::task::spawn_blocking(move || released.recv());
            {
                let current = PreviewBase { limits: Limits::default(), since: None };
                let asked = previews.preview((&db, &clock), current, Limits::default(), KEPT);
                let mut asked = pin!(asked);
                while previews.kept.lock().is_none() {
                    let poll = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
                    assert!(poll.await.is_pending());
                    tokio::task::yield_now().await;
                }
            }
            assert!(previews.turn.try_lock().is_err(), "the replay has not ended");
            release.send(()).unwrap();
            taken.await.unwrap().unwrap();
            drop(previews.turn.lock().await);
        });
    }
}
