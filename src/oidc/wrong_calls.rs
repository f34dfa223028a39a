//! Secrets, codes and tokens that clients send and were never given: each counts at the address that it came from.

use gatehouse_limiter::{AdmittedHit, HitDecision, Limit, Refusal};

use crate::audit::{Action, Audit, AuditEvent, EventRule, EventSubject, Outcome};
use crate::config::LimitName;
use crate::throttle::Limiter;

pub struct WrongCalls {
    limiter: Limiter,
    audit: Audit,
    outages: metrics::Counter,
}

impl WrongCalls {
    pub fn new(limiter: Limiter, audit: Audit) -> Self {
        Self { limiter, audit, outages: metrics::counter!("gatehouse_store_errors_total") }
    }

    /// Counts one, and returns the refusal past the limit. While the store is out there is none: it was wrong anyway.
    pub async fn count(
        &self,
        limit: &Limit,
        what: &str,
        (address, network): (&[u8], &[u8]),
    ) -> Option<Refusal> {
        let name = LimitName::OidcAddress.as_str();
        let decision = self.limiter.reserve(&[self.limiter.bucket(limit, address)], false).await;
        let (at, outcome, why, refusal) = match decision {
            Ok(HitDecision::Admitted(AdmittedHit { at, noted, .. })) => {
                let why = noted.map(|refusal| EventRule::noted(name, &refusal));
                (at, Outcome::Wrong, why, None)
            }
            Ok(HitDecision::Refused(refusal)) => {
                let why = EventRule::refused(name, &refusal);
                (self.audit.decided(&refusal), Outcome::Throttled, Some(why), Some(refusal))
            }
            Err(error) => {
                self.outages.increment(1);
                tracing::debug!(%error, "the window store failed; a wrong call of a client is not counted");
                return None;
            }
        };
        self.audit.record(AuditEvent {
            name: Some(what),
            why,
            address: Some(EventSubject::Address(address)),
            network: Some(EventSubject::Network(network)),
            ..AuditEvent::new(at, Action::ClientCall, outcome)
        });
        refusal
    }
}
