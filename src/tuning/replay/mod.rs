//! What a draft of the limits would have done.

mod book;
mod engine;
mod episode;
mod judge;
mod lines;
mod log;
mod preview;
mod read;
mod row;
mod tally;

#[cfg(test)]
mod tests;

pub use book::NAMES;
pub use preview::{Incomplete, LONGEST, PreviewError, Previews, Report, SHORTEST};
pub use read::{MOST_ROWS, Read, ReadError, read};
pub use row::{Action, Intake, Outcome, Recorded, Recording};
pub use tally::{Bounds, Counts, LimitCounts, RuleCounts};

use crate::clock::Micros;
use crate::config::Limits;

/// What one set of limits would have made of a recording.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Side {
    pub all: Counts,
    pub limits: Vec<LimitCounts>,
}

/// What may be taken from the record beside what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// The limits are those that were in force: who had to wait then, has to wait.
    Recorded,
    /// They are others.
    Draft,
}

/// Replays a recording under limits that come into force at `from`, with the logs as the record left them.
pub fn replay(recording: &Recording, limits: &Limits, from: Micros, belief: Belief) -> Side {
    let tally = engine::Engine::new(recording, limits, from, belief).run();
    Side { all: tally.all, limits: tally.limits.into() }
}
