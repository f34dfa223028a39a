//! What a draft of the limits would have done: recorded attempts, replayed through the arithmetic that
//! enforces ([`window`](crate::throttle::window)), under the limits in force and under the draft.
//!
//! From the first moment of the span on the limits decide; before it the record does, so that the logs stand
//! as they stood. What the record does not say is what became of attempts that were refused: nobody looked at
//! them. So each log is kept in three worlds (`log.rs`), and every count is three numbers. In `MUST` stands
//! what stands there for certain, in `MAY` what may, in `GUESS` what probably does. The true log T is never
//! known, but always between: **the n-th newest hit of MUST is never newer than that of T, and that of T never
//! newer than that of MAY**, for every n that a rule asks for. A rule is full where its `max`-th newest hit is
//! in its window, so what MUST refuses T refuses, and what MAY admits T admits; the rest is open. It holds
//! because each step keeps it:
//!
//! - A hit that is certain goes into all worlds, one that is open into MAY only. To put the same hit into two
//!   logs, or one into the larger only, keeps their order; so does to drop all but the newest `capacity`.
//! - Who signs in forgives what is not newer than their coming. For the rules that ask for a challenge that cuts
//!   a log at a moment, which keeps the order of what is left, too: all worlds are cut where it is certain, MUST
//!   alone where it is open.
//! - What was refused when it was recorded is of unknown outcome: it may be a hit, so it goes into MAY; it may be
//!   a success, so MUST is cut.
//! - Of an episode of n attempts the first moment and the last are known. Their hits go into MAY when the first
//!   comes, with the time of the last; MUST holds nothing up to the last. It is refused for certain where a rule
//!   that MUST fills at the first moment stays full through the last, which is looked at again whenever that log
//!   loses something (`episode.rs`).
//! - A message that the gateway refused gives its hits back. One hit taken out of two ordered logs that both
//!   have it, or have lost it to newer ones, leaves them in order. Where it is open whether it was there it may
//!   have pushed another out of a full log: until then MUST keeps one less, and MAY one more.
//! - All or none: an attempt that one limit refuses for certain is a hit nowhere; it is open everywhere where it
//!   is open anywhere.
//! - Whom only others in flight stand in the way of waits: in line (`lines.rs`) as the limiter has it where that
//!   is certain. Where it is not, all that follows may come later by as much as anybody waits: its hit is put
//!   into MAY with the latest time, and who comes to that log meanwhile is open.
//! - A row that does not name a subject may stand for any: until its hit would leave nothing is admitted for
//!   certain, and what it may forgive is cut everywhere.
//!
//! What the rule says of the replay of today's limits: by the same steps nothing is ever open there, so that it
//! says what was decided, and low and high are one. The tests hold both to the limiter itself.
//!
//! What is left out: what known devices are counted by. What was let in from one stands in no log here, and what
//! was refused counts as not decided. Wrong answers to challenges stand in the logs that count them, and nowhere
//! else in the report: nothing refuses them.
//!
//! Shortages are left out, too: a budget is taken as whole, not by its open part, and a code that was withheld
//! counts as not decided.
//!
//! What is assumed: the same attempts come at the same times, whatever they are answered (who is asked for a
//! challenge may solve it, and come again: that is not replayed); whoever had to wait came when they got their
//! place; attempts that were refused then would have been verified at once; brakes, outages and the server's load
//! were as they were; what falls into one microsecond came in an order that explains it; and who was alone at
//! an account is what the instance saw that they came to.

mod book;
mod engine;
mod episode;
mod judge;
mod leave;
mod lines;
mod log;
mod preview;
mod read;
mod row;
mod tally;

#[cfg(test)]
mod tests;

pub use book::NAMES;
pub use preview::{Current, Incomplete, LONGEST, PreviewError, Previews, Report, SHORTEST};
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
