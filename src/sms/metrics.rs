//! The metrics of messages and guesses. The handles are kept, because refusals come by the million.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use strum::{IntoStaticStr, VariantArray};

use super::message::{SendAnswer, SendOutcome};
use super::{DeliveryResult, MessagePurpose};
use crate::denied::Denied;
use crate::outage::DependencyStatus;
use crate::telemetry::GATEWAY_SECONDS;

pub struct SmsMetrics {
    /// By [`MessageCount`].
    messages: Vec<Counter>,
    /// By [`GuessCount`].
    guesses: Vec<Counter>,
    /// Put on prefixes for our pages, a verifier, a relay.
    brakes: [Counter; 3],
    /// `gatehouse_sms_total_spent_ratio`: the part of `sms-total` that is spent; from 0.8 on codes are short.
    pub spent: Gauge,
    /// `gatehouse_sms_pages_spent_ratio`: the part of what our own pages may send; from 1 on codes are short there.
    pub pages_spent: Gauge,
    gateway_seconds: Histogram,
}

/// The state of the gateway; a process has one. A single refusal may be about one number, three in a row
/// hardly are.
static GATEWAY: DependencyStatus = DependencyStatus::new(
    "the SMS gateway",
    "gatehouse_sms_gateway_up",
    "gatehouse_sms_gateway_errors_total",
    3,
);

/// `gatehouse_sms_messages_total` by outcome; `repeated` is a request whose message was sent before;
/// `withheld` is a message that was not sent in a shortage.
#[derive(Clone, Copy, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
enum MessageCount {
    Repeated,
    Accepted,
    Unknown,
    Refused,
    Withheld,
    Challenged,
    Throttled,
    Unavailable,
}

/// `gatehouse_sms_guesses_total` by outcome. Only right and wrong ones were compared.
#[derive(Clone, Copy, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum GuessCount {
    Right,
    Wrong,
    Challenged,
    Throttled,
    Unavailable,
}

impl SmsMetrics {
    pub fn register() -> Self {
        let message = |count: &MessageCount| metrics::counter!("gatehouse_sms_messages_total", "outcome" => count.into_str());
        let guess = |count: &GuessCount| metrics::counter!("gatehouse_sms_guesses_total", "outcome" => count.into_str());
        Self {
            messages: MessageCount::VARIANTS.iter().map(message).collect(),
            guesses: GuessCount::VARIANTS.iter().map(guess).collect(),
            brakes: ["pages", "verify", "relay"]
                .map(|scope| metrics::counter!("gatehouse_sms_brakes_total", "scope" => scope)),
            spent: metrics::gauge!("gatehouse_sms_total_spent_ratio"),
            pages_spent: metrics::gauge!("gatehouse_sms_pages_spent_ratio"),
            gateway_seconds: metrics::histogram!(GATEWAY_SECONDS),
        }
    }

    pub fn guess(&self, count: GuessCount) {
        self.guesses[count as usize].increment(1);
    }

    pub fn brakes_of(&self, purpose: &MessagePurpose) -> &Counter {
        let [pages, verify, relay] = &self.brakes;
        match purpose {
            MessagePurpose::Own(_) => pages,
            MessagePurpose::Verification(_) => verify,
            MessagePurpose::Relayed(_) => relay,
        }
    }

    /// The gateway's answer to a message, and how long it took.
    pub fn gateway(&self, took: Duration, delivery: &DeliveryResult) {
        self.gateway_seconds.record(took.as_secs_f64());
        match delivery {
            DeliveryResult::Accepted { .. } => GATEWAY.answered(),
            DeliveryResult::Refused { reason } | DeliveryResult::Unknown { reason } => GATEWAY.failed(reason),
        }
    }

    pub fn count(&self, answer: &SendAnswer) {
        let count = match &answer.outcome {
            _ if answer.repeated => MessageCount::Repeated,
            // Counted when its outcome is known.
            SendOutcome::Sent(sent) if sent.short => return,
            SendOutcome::Sent(sent) if sent.confirmed => MessageCount::Accepted,
            SendOutcome::Sent(_) => MessageCount::Unknown,
            SendOutcome::NotSent => MessageCount::Refused,
            SendOutcome::Denied(Denied::Challenged { .. }) => MessageCount::Challenged,
            SendOutcome::Denied(Denied::Throttled { .. }) => MessageCount::Throttled,
            SendOutcome::Denied(Denied::Busy { .. } | Denied::Unavailable { .. } | Denied::AddressDenied) => {
                MessageCount::Unavailable
            }
        };
        self.messages[count as usize].increment(1);
    }

    /// The outcome of a message in a shortage; None: it was not sent.
    pub fn count_short(&self, delivery: Option<&DeliveryResult>) {
        let count = match delivery {
            None => MessageCount::Withheld,
            Some(DeliveryResult::Accepted { .. }) => MessageCount::Accepted,
            Some(DeliveryResult::Refused { .. } | DeliveryResult::Unknown { .. }) => MessageCount::Unknown,
        };
        self.messages[count as usize].increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::sms::SendReceipt;

    #[test]
    fn each_outcome_is_counted_by_its_name() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = metrics::with_local_recorder(&recorder, SmsMetrics::register);
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
            ("challenged", SendOutcome::Denied(Denied::Challenged { limit: limit.into(), retry_after })),
            ("throttled", SendOutcome::Denied(Denied::Throttled { limit: limit.into(), retry_after })),
            ("unavailable", SendOutcome::Denied(Denied::Unavailable { retry_after })),
        ];
        let told = |name: &str, outcome: &str| {
            let line = format!("{name}{{outcome=\"{outcome}\"}} 1");
            recorder.handle().render().lines().any(|other| other == line)
        };
        for (name, outcome) in outcomes {
            assert!(!told("gatehouse_sms_messages_total", name));
            metrics.count(&outcome.into());
            assert!(told("gatehouse_sms_messages_total", name), "{name}");
        }
        metrics.count(&SendAnswer { repeated: true, ..sent(true).into() });
        assert!(told("gatehouse_sms_messages_total", "repeated"));
        assert!(told("gatehouse_sms_messages_total", "accepted"), "once, and no more");
        metrics.guess(GuessCount::Wrong);
        assert!(told("gatehouse_sms_guesses_total", "wrong"));
        metrics.brakes_of(&MessagePurpose::relayed("idp").unwrap()).increment(1);
        assert!(recorder.handle().render().contains("gatehouse_sms_brakes_total{scope=\"relay\"} 1"));
    }
}
