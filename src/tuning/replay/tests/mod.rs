//! The replay beside the limiter itself: what it says would have happened, happens when the same attempts are
//! made under the draft.

mod against_truth;
mod truth;
mod week;
