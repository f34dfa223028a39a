//! How requests for codes are recorded as events.

use super::codes::SmsCodes;
use super::message::{RequestedMessage, SendAnswer, SendOutcome};
use super::message_limits::BudgetShare;
use super::send::SendJob;
use super::{DeliveryResult, MessagePurpose};
use crate::audit::{self, Action, AuditEvent, EventRule, Outcome};
use crate::clock::Micros;
use crate::denied::{ACCESS, Denied};

impl SmsCodes {
    /// `[access]` refuses the client that a program states, before anything is counted.
    pub fn record_denied(&self, purpose: &MessagePurpose, [address, network]: [&[u8]; 2]) {
        let (audit, purpose) = (&self.0.deps.audit, purpose.stored());
        audit.record(AuditEvent {
            name: Some(&purpose),
            address: Some(audit::EventSubject::Address(address)),
            network: Some(audit::EventSubject::Network(network)),
            why: Some(EventRule::by_nobody(ACCESS)),
            ..AuditEvent::new(audit.now(), Action::Send, Outcome::Refused)
        });
    }
}

impl SendJob {
    /// A repeated request is not an event, because it changes nothing. One in a shortage is recorded when its
    /// outcome is known.
    pub fn record(&self, answer: &SendAnswer) {
        if answer.repeated {
            return;
        }
        let audit = &self.codes.0.deps.audit;
        let (outcome, limit) = match &answer.outcome {
            SendOutcome::Sent(sent) if sent.short => return,
            SendOutcome::Sent(sent) if sent.confirmed => (Outcome::Ok, None),
            SendOutcome::Sent(_) => (Outcome::Unknown, None),
            SendOutcome::NotSent => (Outcome::Failed, None),
            SendOutcome::Denied(Denied::Challenged { limit, .. }) => (Outcome::Challenged, Some(limit)),
            SendOutcome::Denied(Denied::Throttled { limit, .. }) => (Outcome::Throttled, Some(limit)),
            SendOutcome::Denied(Denied::Busy { .. } | Denied::Unavailable { .. } | Denied::AddressDenied) => {
                (Outcome::Unavailable, None)
            }
        };
        let buckets = self.limits.buckets(&self.keys, BudgetShare::Open);
        let (at, why) = match (limit, &answer.refusal, &answer.admitted) {
            (Some(limit), Some(refusal), _) => {
                (audit.decided(refusal), Some(EventRule::refused(limit, refusal)))
            }
            // A brake, or everybody is challenged.
            (Some(limit), None, _) => (audit.now(), Some(EventRule::by_nobody(limit))),
            (None, _, Some((at, noted))) => {
                let noted = noted.as_ref();
                (*at, noted.map(|refusal| EventRule::noted(buckets[refusal.bucket].limit.name(), refusal)))
            }
            (None, _, None) => (audit.now(), None),
        };
        // When its hits were refunded.
        let settled = (outcome == Outcome::Failed).then(|| audit.now());
        let event = AuditEvent { settled, why, ..AuditEvent::new(at, Action::Send, outcome) };
        self.record_event(event);
    }

    /// It was not sent, because its prefix is paused.
    pub fn record_paused(&self) {
        let event = AuditEvent::new(self.codes.0.deps.audit.now(), Action::Send, Outcome::Refused);
        self.record_event(AuditEvent { why: Some(EventRule::by_nobody(ACCESS)), ..event });
    }

    /// None: it was not sent.
    pub fn record_short(&self, at: Micros, delivery: Option<&DeliveryResult>) {
        let outcome = match delivery {
            None => Outcome::Withheld,
            Some(DeliveryResult::Accepted { .. }) => Outcome::Ok,
            Some(DeliveryResult::Refused { .. } | DeliveryResult::Unknown { .. }) => Outcome::Unknown,
        };
        self.record_event(AuditEvent::new(at, Action::Send, outcome));
    }

    /// Whoever checks the code of another program names no number.
    pub fn event_key(&self) -> Option<i64> {
        let number = audit::EventSubject::Phone(self.message.phone.as_str());
        let checked_by_id = matches!(self.message.purpose, MessagePurpose::Verification(_));
        checked_by_id.then(|| self.codes.0.deps.audit.subject(&number))
    }

    /// The purpose as the ledger has it, so that a program's is none of ours, nor the realm of a login.
    fn record_event(&self, event: AuditEvent<'_>) {
        let RequestedMessage { phone, purpose, origin, solved, .. } = &self.message;
        let origin = origin.as_ref();
        self.codes.0.deps.audit.record(AuditEvent {
            name: Some(&purpose.stored()),
            solved: *solved,
            address: origin.map(|[address, _]| audit::EventSubject::Address(address)),
            network: origin.map(|[_, network]| audit::EventSubject::Network(network)),
            phone: Some(audit::EventSubject::Phone(phone.as_str())),
            prefix: Some(audit::EventSubject::Prefix(phone.block())),
            ..event
        });
    }
}
