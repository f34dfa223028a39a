//! What the record of events holds of sign-ins.

use std::time::Duration;

use serde_json::json;

use super::{SignInAttempt, SignInOutcome, SignInService};
use crate::audit::{self, Action, AuditEvent, EventRule};
use crate::clock::Micros;
use crate::denied::{ACCESS, Denied};
use crate::login::KnownDevice;
use crate::login::guard::{AccountSubject, CountedAttempt, GuardedLogin, SignInPath};
use crate::throttle::Refusal;

/// How an attempt ended, for the record.
#[derive(Clone, Copy)]
pub(super) enum AttemptEnd {
    Refused(&'static str, Refusal),
    Busy,
    /// The client's address is refused.
    Denied,
    ChallengedWithEveryone,
    /// When it was taken and when it was refunded, and whether forgiveness was requested.
    Right(CountedAttempt, Micros, bool),
    /// When it was taken, and from when it counts.
    Wrong(CountedAttempt, Micros),
}

impl SignInService {
    /// Nothing was hashed: a client without a solved challenge is asked for one, so that a flood has to pay.
    pub(super) fn record_busy(
        &self,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        path: SignInPath,
        retry_after: Duration,
    ) -> SignInOutcome {
        self.record(attempt, subject, path, AttemptEnd::Busy);
        SignInOutcome::Denied(Denied::no_room(attempt.solved, retry_after))
    }

    pub(super) fn record_disabled(&self, attempt: &SignInAttempt, subject: AccountSubject, path: SignInPath) {
        let audit = self.0.guard.audit();
        let (name, detail) = from_device(path.known());
        audit.record(AuditEvent {
            name,
            detail,
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::EventSubject::Address(&attempt.origin.address)),
            ..AuditEvent::new(audit.now(), Action::PasswordDisabled, audit::Outcome::Ok)
        });
    }

    pub(super) fn record(
        &self,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        path: SignInPath,
        ended: AttemptEnd,
    ) {
        let audit = self.0.guard.audit();
        let (at, outcome) = match ended {
            AttemptEnd::Refused(_, refusal) => (audit.decided(&refusal), audit::Outcome::refused(&refusal)),
            AttemptEnd::Busy => (audit.now(), audit::Outcome::Busy),
            AttemptEnd::Denied => (audit.now(), audit::Outcome::Refused),
            AttemptEnd::ChallengedWithEveryone => (audit.now(), audit::Outcome::Challenged),
            AttemptEnd::Right(taken, ..) => (taken.at, audit::Outcome::Ok),
            AttemptEnd::Wrong(taken, _) => (taken.at, audit::Outcome::Wrong),
        };
        let (name, detail) = from_device(path.device());
        let event = AuditEvent {
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::EventSubject::Address(&attempt.origin.address)),
            network: Some(audit::EventSubject::Network(&attempt.origin.network)),
            solved: attempt.solved,
            name,
            detail,
            ..AuditEvent::new(at, Action::SignIn, outcome)
        };
        audit.record(match ended {
            AttemptEnd::Refused(limit, refusal) => {
                AuditEvent { why: Some(EventRule::refused(limit, &refusal)), ..event }
            }
            AttemptEnd::Busy => event,
            AttemptEnd::Denied | AttemptEnd::ChallengedWithEveryone => {
                AuditEvent { why: Some(EventRule::by_nobody(ACCESS)), ..event }
            }
            AttemptEnd::Right(taken, at, forgave) => {
                let detail = event.detail.or((!forgave).then(|| audit::NOT_FORGIVEN.to_owned()));
                AuditEvent { settled: Some(at), detail, why: why_noted(path, &taken), ..event }
            }
            AttemptEnd::Wrong(taken, at) => {
                AuditEvent { settled: Some(at), why: why_noted(path, &taken), ..event }
            }
        });
    }
}

/// The event fields for an attempt from a known device.
fn from_device(device: Option<&KnownDevice>) -> (Option<&'static str>, Option<String>) {
    let detail = device.map(|device| json!({ "device": device.id.to_string() }).to_string());
    (device.map(|_| audit::FROM_DEVICE), detail)
}

fn why_noted(path: SignInPath, taken: &CountedAttempt) -> Option<EventRule<'static>> {
    taken
        .noted
        .as_ref()
        .map(|refusal| EventRule::noted(path.limits(GuardedLogin::Own)[refusal.bucket].as_str(), refusal))
}
