//! What the record of events holds of attempts in realms.

use std::time::Duration;

use super::ticket::NotedRule;
use super::{AttemptOutcome, AttemptTicket, GuardedAttempt, GuardedAttempts};
use crate::audit::{Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::clock::Micros;
use crate::denied::{ACCESS, Denied};
use crate::login::AccountId;
use crate::throttle::Refusal;

impl GuardedAttempts {
    /// What `[access]` answers to who does not come from the name's known device.
    pub(super) fn bar_stranger(
        &self,
        attempt: &GuardedAttempt<'_>,
        account: AccountId,
        everyone: Option<Duration>,
    ) -> Option<Denied> {
        let (outcome, denied) = match everyone {
            _ if attempt.denied => (Outcome::Refused, Denied::AddressDenied),
            Some(left) => (Outcome::Challenged, Denied::challenged_with_everyone(left)),
            None => return None,
        };
        self.record(attempt, account, self.audit().now(), outcome, Some(EventRule::by_nobody(ACCESS)));
        Some(denied)
    }

    pub(super) fn record_refused(
        &self,
        attempt: &GuardedAttempt<'_>,
        account: AccountId,
        limit: &'static str,
        refusal: &Refusal,
    ) {
        let (at, why) = (self.audit().decided(refusal), EventRule::refused(limit, refusal));
        self.record(attempt, account, at, Outcome::refused(refusal), Some(why));
    }

    pub(super) fn record(
        &self,
        attempt: &GuardedAttempt<'_>,
        account: AccountId,
        at: Micros,
        outcome: Outcome,
        why: Option<EventRule<'_>>,
    ) {
        let id = account.as_bytes();
        self.audit().record(AuditEvent {
            name: Some(attempt.realm.as_str()),
            why,
            solved: attempt.solved,
            account: Some(EventSubject::Realm { id, login: attempt.login.as_str() }),
            address: Some(EventSubject::Address(&attempt.origin.address)),
            network: Some(EventSubject::Network(&attempt.origin.network)),
            ..AuditEvent::new(at, Action::Attempt, outcome)
        });
    }

    pub(super) fn record_settled(
        &self,
        ticket: &AttemptTicket,
        ended: AttemptOutcome,
        settled: Option<Micros>,
    ) {
        let seen = &ticket.seen;
        let (outcome, detail) = match ended {
            AttemptOutcome::Success => (Outcome::Ok, None),
            AttemptOutcome::Failure => (Outcome::Wrong, None),
            AttemptOutcome::Lapsed => (Outcome::Wrong, Some(r#"{"lapsed":true}"#.to_owned())),
            // It counts nowhere.
            AttemptOutcome::Abandoned => return,
        };
        let id = ticket.account.as_bytes();
        let account = self.audit().subject(&EventSubject::Realm { id, login: "" });
        self.audit().record(AuditEvent {
            settled,
            name: Some(ticket.realm.as_str()),
            why: seen.noted.as_ref().map(noted),
            detail,
            solved: seen.solved,
            account: Some(EventSubject::Recorded { key: account, mask: &seen.login }),
            address: Some(EventSubject::Recorded { key: seen.address, mask: &seen.network_mask }),
            network: Some(EventSubject::Recorded { key: seen.network, mask: &seen.network_mask }),
            ..AuditEvent::new(ticket.at, Action::Attempt, outcome)
        });
    }
}

/// By a limit in monitor mode.
fn noted(rule: &NotedRule) -> EventRule<'_> {
    EventRule { limit: &rule.limit, rule: rule.rule, frees_at: Micros(rule.frees_at), noted: true }
}
