//! What the record of events has of requests for codes.

use super::Delivery;
use super::budgets::Ticket;
use super::codes::Sending;
use super::sending::{Answer, Job};
use super::share::Share;
use crate::audit::{self, Action, Event, Outcome, Why};
use crate::clock::Micros;

impl Job {
    /// A request that was answered before is no event: it changes nothing. One in a shortage is when it is
    /// known what became of it.
    pub fn record(&self, answer: &Answer) {
        if answer.repeated {
            return;
        }
        let audit = &self.codes.0.audit;
        let (outcome, limit) = match &answer.sending {
            Sending::Sent(sent) if sent.short => return,
            Sending::Sent(sent) if sent.confirmed => (Outcome::Ok, None),
            Sending::Sent(_) => (Outcome::Unknown, None),
            Sending::NotSent => (Outcome::Failed, None),
            Sending::Challenged { limit, .. } => (Outcome::Challenged, Some(limit)),
            Sending::Throttled { limit, .. } => (Outcome::Throttled, Some(limit)),
            Sending::Unavailable { .. } => (Outcome::Unavailable, None),
        };
        let buckets = self.watched.buckets(&self.keys, Share::Open);
        let (at, why) = match (limit, &answer.refusal, &answer.ticket) {
            (Some(limit), Some(refusal), _) => (audit.decided(refusal), Some(Why::refused(limit, refusal))),
            // A brake, which no hit holds up.
            (Some(limit), None, _) => {
                (audit.now(), Some(Why { limit, rule: 0, frees_at: Micros(0), noted: false }))
            }
            (None, _, Some(Ticket { at, noted, .. })) => {
                let noted = noted.as_ref();
                (*at, noted.map(|refusal| Why::noted(buckets[refusal.bucket].limit.name(), refusal)))
            }
            (None, _, None) => (audit.now(), None),
        };
        // When what it was counted by was given back.
        let settled = (outcome == Outcome::Failed).then(|| audit.now());
        audit.record(Event { settled, why, ..self.about(Event::new(at, Action::Send, outcome)) });
    }

    /// None: it went to nobody.
    pub fn record_short(&self, ticket: &Ticket, delivery: Option<&Delivery>) {
        let outcome = match delivery {
            None => Outcome::Withheld,
            Some(Delivery::Accepted { .. }) => Outcome::Ok,
            Some(Delivery::Refused { .. } | Delivery::Unknown { .. }) => Outcome::Unknown,
        };
        self.codes.0.audit.record(self.about(Event::new(ticket.at, Action::Send, outcome)));
    }

    fn about<'a>(&'a self, event: Event<'a>) -> Event<'a> {
        Event {
            name: Some(self.purpose.as_str()),
            solved: self.solved,
            address: Some(audit::Subject::Address(&self.address)),
            network: Some(audit::Subject::Network(&self.network)),
            phone: Some(audit::Subject::Phone(self.phone.as_str())),
            prefix: Some(audit::Subject::Prefix(self.phone.block())),
            ..event
        }
    }
}
