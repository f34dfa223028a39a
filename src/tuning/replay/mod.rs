//! What a draft of the limits would have done to the recorded attempts: one estimate, beside the record.
//!
//! The limits in force are not replayed: their figures are counted from the record. Under the draft the
//! recorded attempts come again in the order of time, and the arithmetic that enforces limits
//! ([`window`](crate::throttle::window)) decides on them. **An attempt keeps its recorded decision unless the
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
//! - What was asked for and then abandoned at the login of another program: it is not recorded.
//! - Which log counts a refused attempt, if a flood was recorded without its subjects. It keeps its decision.
//!
//! The estimate also assumes that the same attempts come at the same times, however they are answered; that
//! anyone who had to wait came back at the right time; that refused attempts would have been verified at
//! once; and that brakes, outages, shortages and the load were as they were.

mod attempt_log;
mod effects;
mod engine;
mod logs_of;
mod preview;
mod read;
mod row;
mod tally;

#[cfg(test)]
mod tests;

pub use preview::{
    IncompleteReason, LONGEST, PreviewBase, PreviewError, PreviewReport, PreviewService, SHORTEST,
};
pub use read::{MOST_ROWS, ReadError, RecordRead, read};
pub use row::{RecordedEvent, Recording, ReplayAction, ReplayOutcome, RowIntake};
pub use tally::{AttemptCounts, LimitCounts, RuleCounts};

use crate::clock::Micros;
use crate::config::Limits;

/// The counts of all attempts, and of those of each limit.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, utoipa::ToSchema, Default)]
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
pub fn replay(recording: &Recording, in_force: &Limits, draft: &Limits, from: Micros) -> Comparison {
    engine::ReplayEngine::new(recording, in_force, draft, from).run()
}
