//! `gatehouse_sign_ins_total`: how sign-ins ended; and how long those took whose password was compared.

use metrics::{Counter, Histogram};

use super::SignInOutcome;
use crate::clock::{Micros, RecentTimes};
use crate::denied::Denied;
use crate::telemetry::SIGN_IN_SECONDS;

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
    seconds: Histogram,
    /// The same, lately.
    pub took: RecentTimes,
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
            seconds: metrics::histogram!(SIGN_IN_SECONDS),
            took: RecentTimes::default(),
        }
    }

    pub fn count(&self, outcome: &SignInOutcome, begun: Micros, now: Micros) {
        let counter = match outcome {
            SignInOutcome::SignedIn(_) => &self.signed_in,
            SignInOutcome::Rejected { .. } => &self.rejected,
            SignInOutcome::Denied(Denied::Challenged { .. }) => &self.challenged,
            SignInOutcome::Denied(Denied::Throttled { .. } | Denied::AddressDenied) => &self.throttled,
            SignInOutcome::Denied(Denied::Busy { .. } | Denied::Unavailable { .. }) => &self.busy,
        };
        counter.increment(1);
        if !matches!(outcome, SignInOutcome::Denied(_)) {
            self.seconds.record(now.since(begun));
            self.took.record(now, now.since(begun));
        }
    }
}
