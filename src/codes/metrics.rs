//! The metrics of messages and guesses. The handles are kept, because refusals come by the million.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::recipient::Channel;
use super::request::SendAnswer;
use crate::audit::Outcome;
use crate::mail::MailDelivery;
use crate::message::MessagePurpose;
use crate::telemetry::GATEWAY_SECONDS;

pub struct MessageMetrics {
    messages: [Counter; MESSAGES.len()],
    mails: [Counter; MESSAGES.len()],
    guesses: [Counter; GUESSES.len()],
    mail_guesses: [Counter; GUESSES.len()],
    /// Put on prefixes for our pages, a verifier, a relay.
    brakes: [Counter; 3],
    deliveries: [Counter; DELIVERIES.len()],
    /// `gatehouse_sms_total_spent_ratio`: the part of `sms-total` that is spent; from 0.8 on codes are short.
    pub spent: Gauge,
    /// `gatehouse_sms_pages_spent_ratio`: the part of what our own pages may send; from 1 on codes are short there.
    pub pages_spent: Gauge,
    /// `gatehouse_mail_queue_depth`: mails that wait for the mail server.
    pub mail_waiting: Gauge,
    /// `gatehouse_mail_server_up`: 0 while the mail server takes nothing.
    pub mail_server_up: Gauge,
    gateway_seconds: Histogram,
}

/// `repeated` is a request whose message was sent before; `withheld` is a message that was not sent in a shortage.
const MESSAGES: [&str; 8] =
    ["repeated", "accepted", "unknown", "refused", "withheld", "challenged", "throttled", "unavailable"];
/// Only right and wrong ones were compared.
const GUESSES: [&str; 5] = ["right", "wrong", "challenged", "throttled", "unavailable"];

/// What the mail server said to a mail.
const DELIVERIES: [&str; 4] = ["sent", "refused", "deferred", "unknown"];

impl MessageMetrics {
    pub fn register() -> Self {
        let mail_server_up = metrics::gauge!("gatehouse_mail_server_up");
        mail_server_up.set(1.0);
        Self {
            messages: MESSAGES
                .map(|word| metrics::counter!("gatehouse_sms_messages_total", "outcome" => word)),
            mails: MESSAGES.map(|word| metrics::counter!("gatehouse_mail_messages_total", "outcome" => word)),
            guesses: GUESSES.map(|word| metrics::counter!("gatehouse_sms_guesses_total", "outcome" => word)),
            mail_guesses: GUESSES
                .map(|word| metrics::counter!("gatehouse_mail_guesses_total", "outcome" => word)),
            brakes: ["pages", "verify", "relay"]
                .map(|scope| metrics::counter!("gatehouse_sms_brakes_total", "scope" => scope)),
            deliveries: DELIVERIES
                .map(|word| metrics::counter!("gatehouse_mail_deliveries_total", "outcome" => word)),
            spent: metrics::gauge!("gatehouse_sms_total_spent_ratio"),
            pages_spent: metrics::gauge!("gatehouse_sms_pages_spent_ratio"),
            mail_waiting: metrics::gauge!("gatehouse_mail_queue_depth"),
            mail_server_up,
            gateway_seconds: metrics::histogram!(GATEWAY_SECONDS),
        }
    }

    pub fn guess(&self, channel: Channel, outcome: Outcome) {
        let word = if outcome == Outcome::Ok { "right" } else { outcome.into_str() };
        let guesses = match channel {
            Channel::Sms => &self.guesses,
            Channel::Mail => &self.mail_guesses,
        };
        count(&GUESSES, guesses, word);
    }

    pub fn brakes_of(&self, purpose: &MessagePurpose) -> &Counter {
        let [pages, verify, relay] = &self.brakes;
        match purpose {
            MessagePurpose::Own(_) => pages,
            MessagePurpose::Verification(_) => verify,
            MessagePurpose::Relayed(_) => relay,
        }
    }

    pub fn delivery(&self, delivery: &MailDelivery) {
        let word = match delivery {
            MailDelivery::Accepted { .. } => "sent",
            MailDelivery::Refused { .. } => "refused",
            MailDelivery::Deferred { .. } => "deferred",
            MailDelivery::Unknown { .. } => "unknown",
        };
        count(&DELIVERIES, &self.deliveries, word);
    }

    pub fn gateway_took(&self, took: Duration) {
        self.gateway_seconds.record(took.as_secs_f64());
    }

    pub fn answer(&self, channel: Channel, answer: &SendAnswer) {
        if answer.repeated {
            count(&MESSAGES, self.messages(channel), "repeated");
        } else if let Some(outcome) = answer.outcome.told() {
            self.message(channel, outcome);
        }
    }

    const fn messages(&self, channel: Channel) -> &[Counter] {
        match channel {
            Channel::Sms => &self.messages,
            Channel::Mail => &self.mails,
        }
    }

    pub fn message(&self, channel: Channel, outcome: Outcome) {
        let word = match outcome {
            Outcome::Ok => "accepted",
            Outcome::Failed => "refused",
            other => other.into_str(),
        };
        count(&MESSAGES, self.messages(channel), word);
    }
}

fn count(words: &[&str], counters: &[Counter], word: &str) {
    if let Some(at) = words.iter().position(|known| *known == word) {
        counters[at].increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::codes::{SendOutcome, SendReceipt};
    use crate::denied::Denied;

    #[test]
    fn each_outcome_is_counted_by_its_name() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = metrics::with_local_recorder(&recorder, MessageMetrics::register);
        let (limit, retry_after) = ("sms-phone", Duration::ZERO);
        let sent = |confirmed| {
            SendOutcome::Sent(SendReceipt {
                id: None,
                expires_in: Duration::ZERO,
                resend_after: Duration::ZERO,
                confirmed,
                short: false,
            })
        };
        let outcomes = [
            ("accepted", sent(true)),
            ("unknown", sent(false)),
            ("refused", SendOutcome::NotSent),
            (
                "challenged",
                SendOutcome::Denied(Denied::Challenged { limit: limit.into(), rule: 0, retry_after }),
            ),
            (
                "throttled",
                SendOutcome::Denied(Denied::Throttled { limit: limit.into(), rule: 0, retry_after }),
            ),
            ("unavailable", SendOutcome::Denied(Denied::Unavailable { retry_after })),
        ];
        let told = |name: &str, outcome: &str| {
            let line = format!("{name}{{outcome=\"{outcome}\"}} 1");
            recorder.handle().render().lines().any(|other| other == line)
        };
        for (name, outcome) in outcomes {
            assert!(!told("gatehouse_sms_messages_total", name));
            metrics.answer(Channel::Sms, &outcome.into());
            assert!(told("gatehouse_sms_messages_total", name), "{name}");
        }
        metrics.answer(Channel::Sms, &SendAnswer { repeated: true, ..sent(true).into() });
        assert!(told("gatehouse_sms_messages_total", "repeated"));
        assert!(told("gatehouse_sms_messages_total", "accepted"), "once, and no more");
        metrics.guess(Channel::Sms, Outcome::Wrong);
        assert!(told("gatehouse_sms_guesses_total", "wrong"));
        assert!(!told("gatehouse_mail_guesses_total", "wrong"));
        metrics.guess(Channel::Mail, Outcome::Ok);
        assert!(told("gatehouse_mail_guesses_total", "right"));
        metrics.brakes_of(&MessagePurpose::relayed("idp").unwrap()).increment(1);
        assert!(recorder.handle().render().contains("gatehouse_sms_brakes_total{scope=\"relay\"} 1"));
    }
}
