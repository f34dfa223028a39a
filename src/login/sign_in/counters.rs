//! `gatehouse_sign_ins_total`: how sign-ins ended.

use metrics::Counter;

use super::SignInOutcome;
use crate::denied::Denied;

/// Every successful sign-in, by any method.
pub fn signed_in_counter() -> Counter {
    metrics::counter!("gatehouse_sign_ins_total", "outcome" => "signed-in")
}

/// By outcome. The handles are kept, because refusals come by the million.
pub struct SignInCounters {
    signed_in: Counter,
    rejected: Counter,
    challenged: Counter,
    throttled: Counter,
    busy: Counter,
}

impl SignInCounters {
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

    pub fn count(&self, outcome: &SignInOutcome) {
        let counter = match outcome {
            SignInOutcome::SignedIn(_) => &self.signed_in,
            SignInOutcome::Rejected { .. } => &self.rejected,
            SignInOutcome::Denied(Denied::Challenged { .. }) => &self.challenged,
            SignInOutcome::Denied(Denied::Throttled { .. } | Denied::AddressDenied) => &self.throttled,
            SignInOutcome::Denied(Denied::Busy { .. } | Denied::Unavailable { .. }) => &self.busy,
        };
        counter.increment(1);
    }
}
