//! The replay compared with the limiter itself: what it estimates is what happens when the same attempts are
//! made under the draft.

mod against_truth;
mod counted;
mod database;
mod drafts;
mod gaps;
mod truth;
mod week;
