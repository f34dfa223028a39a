//! The metrics of messages and guesses. The handles are kept, because refusals come by the million.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::message::{SendAnswer, SendOutcome};
use super::{DeliveryResult, MessagePurpose};
use crate::denied::Denied;
use crate::outage::DependencyStatus;
use crate::telemetry::GATEWAY_SECONDS;

pub struct SmsMetrics {
    messages: MessageCounters,
    pub guesses: GuessCounters,
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
struct MessageCounters {
    repeated: Counter,
    accepted: Counter,
    unknown: Counter,
    refused: Counter,
    withheld: Counter,
    challenged: Counter,
    throttled: Counter,
    unavailable: Counter,
}

/// `gatehouse_sms_guesses_total` by outcome. Only right and wrong ones were compared.
pub struct GuessCounters {
    pub right: Counter,
    pub wrong: Counter,
    pub challenged: Counter,
    pub throttled: Counter,
    pub unavailable: Counter,
}

impl SmsMetrics {
    pub fn register() -> Self {
        let message = |outcome| metrics::counter!("gatehouse_sms_messages_total", "outcome" => outcome);
        let guess = |outcome| metrics::counter!("gatehouse_sms_guesses_total", "outcome" => outcome);
        Self {
            messages: MessageCounters {
                repeated: message("repeated"),
                accepted: message("accepted"),
                unknown: message("unknown"),
                refused: message("refused"),
                withheld: message("withheld"),
                challenged: message("challenged"),
                throttled: message("throttled"),
                unavailable: message("unavailable"),
            },
            guesses: GuessCounters {
                right: guess("right"),
                wrong: guess("wrong"),
                challenged: guess("challenged"),
                throttled: guess("throttled"),
                unavailable: guess("unavailable"),
            },
            brakes: ["pages", "verify", "relay"]
                .map(|scope| metrics::counter!("gatehouse_sms_brakes_total", "scope" => scope)),
            spent: metrics::gauge!("gatehouse_sms_total_spent_ratio"),
            pages_spent: metrics::gauge!("gatehouse_sms_pages_spent_ratio"),
            gateway_seconds: metrics::histogram!(GATEWAY_SECONDS),
        }
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
        let counter = match &answer.outcome {
            _ if answer.repeated => &self.messages.repeated,
            // Counted when its outcome is known.
            SendOutcome::Sent(sent) if sent.short => return,
            SendOutcome::Sent(sent) if sent.confirmed => &self.messages.accepted,
            SendOutcome::Sent(_) => &self.messages.unknown,
            SendOutcome::NotSent => &self.messages.refused,
            SendOutcome::Denied(Denied::Challenged { .. }) => &self.messages.challenged,
            SendOutcome::Denied(Denied::Throttled { .. }) => &self.messages.throttled,
            SendOutcome::Denied(Denied::Busy { .. } | Denied::Unavailable { .. } | Denied::AddressDenied) => {
                &self.messages.unavailable
            }
        };
        counter.increment(1);
    }

    /// The outcome of a message in a shortage; None: it was not sent.
    pub fn count_short(&self, delivery: Option<&DeliveryResult>) {
        let counter = match delivery {
            None => &self.messages.withheld,
            Some(DeliveryResult::Accepted { .. }) => &self.messages.accepted,
            Some(DeliveryResult::Refused { .. } | DeliveryResult::Unknown { .. }) => &self.messages.unknown,
        };
        counter.increment(1);
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
        metrics.guesses.wrong.increment(1);
        assert!(told("gatehouse_sms_guesses_total", "wrong"));
        metrics.brakes_of(&MessagePurpose::relayed("idp").unwrap()).increment(1);
        assert!(recorder.handle().render().contains("gatehouse_sms_brakes_total{scope=\"relay\"} 1"));
    }
}
