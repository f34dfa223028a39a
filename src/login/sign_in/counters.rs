//! `gatehouse_sign_ins_total`: how sign-ins ended.

use metrics::Counter;

use super::Outcome;

/// Of every sign-in that succeeded, by whatever way.
pub fn signed_in_counter() -> Counter {
    metrics::counter!("gatehouse_sign_ins_total", "outcome" => "signed-in")
}

/// By outcome; the handles are kept, because refusals come by the million.
pub struct Counters {
    signed_in: Counter,
    rejected: Counter,
    challenged: Counter,
    throttled: Counter,
    busy: Counter,
}

impl Counters {
    pub fn register() -> Self {
        let counter = |outcome| metrics::counter!("gatehouse_sign_ins_total", "outcome" => outcome);
        Self {
            signed_in: signed_in_counter(),
            rejected: counter("rejected"),
            challenged: counter("challenged"),
            throttled: counter("throttled"),
            busy: counter("busy"),
        }
    }

    pub fn count(&self, outcome: &Outcome) {
        let counter = match outcome {
            Outcome::SignedIn(_) => &self.signed_in,
            Outcome::Rejected { .. } => &self.rejected,
            Outcome::Challenged { .. } => &self.challenged,
            Outcome::Throttled { .. } => &self.throttled,
            Outcome::Busy { .. } => &self.busy,
        };
        counter.increment(1);
    }
}
