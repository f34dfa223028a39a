//! Hits on custom limits (`[limits.custom]`), which other programs request. A subject is any text; it is
//! hashed before it goes anywhere, and is never logged.

mod gate;

use crate::audit::{Action, Audit, AuditEvent, EventRule, EventSubject, Outcome};
use crate::throttle::{
    AdmittedHit, AnyStore, Bucket, HitDecision, HitId, Limit, Limiter, LogPeek, Refusal, StoreError,
};

pub use gate::{TokenCheck, TokenGate};

/// The service. Clones share it.
#[derive(Clone)]
pub struct CustomLimits {
    limiter: Limiter<AnyStore>,
    audit: Audit,
    outages: metrics::Counter,
}

/// The program that requests a hit, and the subject.
#[derive(Clone, Copy)]
pub struct CustomRequest<'a> {
    pub limit: &'a Limit,
    pub subject: &'a str,
    /// The program's address in the form that limits count.
    pub address: &'a [u8],
}

/// The result of a reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CustomDecision {
    Admitted(AdmittedHit),
    Refused(Refusal),
}

impl CustomLimits {
    pub fn new(limiter: Limiter<AnyStore>, audit: Audit) -> Self {
        Self { limiter, audit, outages: metrics::counter!("gatehouse_store_errors_total") }
    }

    /// Takes a hit, or returns when one is possible. If the store is out there is none: the program must not
    /// go on, and a hit that may have been taken anyway is refunded.
    pub async fn reserve(&self, ask: CustomRequest<'_>) -> Result<CustomDecision, StoreError> {
        match self.failing(self.limiter.reserve_or_nothing(&[self.bucket(ask)], false).await)? {
            HitDecision::Admitted(admission) => {
                if let Some(noted) = &admission.noted {
                    self.record(ask, noted, true);
                }
                Ok(CustomDecision::Admitted(admission))
            }
            HitDecision::Refused(refusal) => {
                self.record(ask, &refusal, false);
                Ok(CustomDecision::Refused(refusal))
            }
        }
    }

    /// The state of the subject's log. Takes nothing.
    pub async fn peek(&self, ask: CustomRequest<'_>) -> Result<LogPeek, StoreError> {
        self.failing(self.limiter.peek(self.bucket(ask)).await)
    }

    /// Refunds a hit. Harmless if it is not there: refunded before, out of its window, or another's.
    pub async fn refund(&self, ask: CustomRequest<'_>, hit: HitId) -> Result<(), StoreError> {
        self.failing(self.limiter.refund(&[self.bucket(ask)], hit).await)
    }

    fn bucket<'a>(&self, ask: CustomRequest<'a>) -> Bucket<'a> {
        self.limiter.bucket(ask.limit, ask.subject.as_bytes())
    }

    /// Records only refusals, including those of a limit in monitor mode: otherwise each hit would be a row,
    /// as many as programs like.
    fn record(&self, ask: CustomRequest<'_>, refusal: &Refusal, noted: bool) {
        let why = EventRule { noted, ..EventRule::refused(ask.limit.name(), refusal) };
        let event = AuditEvent::new(refusal.at(), Action::Custom, Outcome::Throttled);
        self.audit.record(AuditEvent {
            name: ask.limit.name().strip_prefix("custom."),
            why: Some(why),
            account: Some(EventSubject::Custom(ask.subject)),
            address: Some(EventSubject::Address(ask.address)),
            ..event
        });
    }

    fn failing<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &result {
            self.outages.increment(1);
            tracing::debug!(%error, "the window store failed; a custom limit admits nothing");
        }
        result
    }
}
