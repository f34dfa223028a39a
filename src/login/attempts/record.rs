//! What the record of events holds of attempts in realms.

use std::time::Duration;

use serde_json::{Map, Value};

use super::ticket::NotedRule;
use super::{AttemptOutcome, AttemptTicket, GuardedAttempt, GuardedAttempts};
use crate::audit::{Action, AuditEvent, DEVICE, EventRule, EventSubject, Outcome};
use crate::clock::Micros;
use crate::config::LimitName;
use crate::denied::{ACCESS, Denied};
use crate::login::guard::SignInPath;
use crate::login::{AccountId, DeviceId, Realm, RealmLogin};
use crate::throttle::Refusal;

/// How an attempt of another program ended.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TicketEnd {
    /// When it was settled, if the store could say.
    settled: Option<Micros>,
    /// Whether its success was to forgive.
    forgave: bool,
}

impl TicketEnd {
    /// A failure, or what another instance has admitted: nothing is forgiven.
    pub const fn kept(settled: Option<Micros>) -> Self {
        Self { settled, forgave: false }
    }

    pub fn right(done: Option<(Micros, bool)>) -> Self {
        Self { settled: done.map(|(at, _)| at), forgave: done.is_some_and(|(_, forgave)| forgave) }
    }
}

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
        let (who, why) = ((account, SignInPath::Stranger), Some(EventRule::by_nobody(ACCESS)));
        self.record(attempt, who, self.audit().now(), outcome, why);
        Some(denied)
    }

    pub(super) fn record_refused(
        &self,
        attempt: &GuardedAttempt<'_>,
        who: (AccountId, SignInPath),
        limit: &'static str,
        refusal: &Refusal,
    ) {
        let (at, why) = (self.audit().decided(refusal), EventRule::refused(limit, refusal));
        self.record(attempt, who, at, Outcome::refused(refusal), Some(why));
    }

    pub(super) fn record(
        &self,
        attempt: &GuardedAttempt<'_>,
        (account, path): (AccountId, SignInPath),
        at: Micros,
        outcome: Outcome,
        why: Option<EventRule<'_>>,
    ) {
        let id = account.as_bytes();
        self.audit().record(AuditEvent {
            name: Some(attempt.realm.as_str()),
            why,
            detail: detail(path.device().map(|device| device.id), []),
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
        TicketEnd { settled, forgave }: TicketEnd,
    ) {
        let seen = &ticket.seen;
        let (outcome, more) = match ended {
            AttemptOutcome::Success => (Outcome::Ok, (!forgave).then_some(("forgave", false))),
            AttemptOutcome::Failure => (Outcome::Wrong, None),
            AttemptOutcome::Lapsed => (Outcome::Wrong, Some(("lapsed", true))),
            // It counts nowhere.
            AttemptOutcome::Abandoned => return,
        };
        let id = ticket.account.as_bytes();
        let account = self.audit().subject(&EventSubject::Realm { id, login: "" });
        self.audit().record(AuditEvent {
            settled,
            name: Some(ticket.realm.as_str()),
            why: seen.noted.as_ref().map(noted),
            detail: detail(ticket.known_device(), more),
            solved: seen.solved,
            account: Some(EventSubject::Recorded { key: account, mask: &seen.login }),
            address: Some(EventSubject::Recorded { key: seen.address, mask: &seen.network_mask }),
            network: Some(EventSubject::Recorded { key: seen.network, mask: &seen.network_mask }),
            ..AuditEvent::new(Micros(seen.at), Action::Attempt, outcome)
        });
    }

    /// The name's failures are gone.
    pub(super) fn record_forgiven(&self, realm: &Realm, login: &RealmLogin, account: AccountId) {
        let audit = self.audit();
        audit.record(AuditEvent {
            name: Some(realm.as_str()),
            limit: Some(LimitName::GuardAccount.as_str()),
            account: Some(EventSubject::Realm { id: account.as_bytes(), login: login.as_str() }),
            ..AuditEvent::new(audit.now(), Action::Reset, Outcome::Ok)
        });
    }
}

/// The device first: by that, attempts from known devices are told from others.
fn detail(device: Option<DeviceId>, more: impl IntoIterator<Item = (&'static str, bool)>) -> Option<String> {
    let device = device.map(|id| (DEVICE.to_owned(), Value::from(id.to_string())));
    let more = more.into_iter().map(|(name, is)| (name.to_owned(), Value::from(is)));
    let detail: Map<String, Value> = device.into_iter().chain(more).collect();
    (!detail.is_empty()).then(|| Value::Object(detail).to_string())
}

/// By a limit in monitor mode.
fn noted(rule: &NotedRule) -> EventRule<'_> {
    EventRule { limit: &rule.limit, rule: rule.rule, frees_at: Micros(rule.frees_at), noted: true }
}
