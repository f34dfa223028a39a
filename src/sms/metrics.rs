//! What is counted of messages and guesses; the handles are kept, because refusals come by the million.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};

use super::Delivery;
use super::codes::Sending;
use super::sending::Answer;
use crate::outage::Outage;
use crate::telemetry::GATEWAY_SECONDS;

pub struct Metrics {
    messages: Messages,
    pub guesses: Guesses,
    pub brakes: Counter,
    /// `gatehouse_sms_total_spent_ratio`: of what `sms-total` admits, what everybody has spent; from 0.8 on
    /// codes are short.
    pub spent: Gauge,
    gateway_seconds: Histogram,
}

/// How the gateway is. A process has one. What it refuses may be about one number, three in a row hardly are.
static GATEWAY: Outage =
    Outage::new("the SMS gateway", "gatehouse_sms_gateway_up", "gatehouse_sms_gateway_errors_total", 3);

/// `gatehouse_sms_messages_total` by outcome; `repeated` is a request whose message was sent before;
/// `withheld` one of those that in a shortage went to nobody.
struct Messages {
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
pub struct Guesses {
    pub right: Counter,
    pub wrong: Counter,
    pub challenged: Counter,
    pub throttled: Counter,
    pub unavailable: Counter,
}

impl Metrics {
    pub fn register() -> Self {
        let message = |outcome| metrics::counter!("gatehouse_sms_messages_total", "outcome" => outcome);
        let guess = |outcome| metrics::counter!("gatehouse_sms_guesses_total", "outcome" => outcome);
        Self {
            messages: Messages {
                repeated: message("repeated"),
                accepted: message("accepted"),
                unknown: message("unknown"),
                refused: message("refused"),
                withheld: message("withheld"),
                challenged: message("challenged"),
                throttled: message("throttled"),
                unavailable: message("unavailable"),
            },
            guesses: Guesses {
                right: guess("right"),
                wrong: guess("wrong"),
                challenged: guess("challenged"),
                throttled: guess("throttled"),
                unavailable: guess("unavailable"),
            },
            brakes: metrics::counter!("gatehouse_sms_brakes_total"),
            spent: metrics::gauge!("gatehouse_sms_total_spent_ratio"),
            gateway_seconds: metrics::histogram!(GATEWAY_SECONDS),
        }
    }

    /// What a gateway made of a message, and how long it took over it.
    pub fn gateway(&self, took: Duration, delivery: &Delivery) {
        self.gateway_seconds.record(took.as_secs_f64());
        match delivery {
            Delivery::Accepted { .. } => GATEWAY.answered(),
            Delivery::Refused { reason } | Delivery::Unknown { reason } => GATEWAY.failed(reason),
        }
    }

    pub fn count(&self, answer: &Answer) {
        let counter = match &answer.sending {
            _ if answer.repeated => &self.messages.repeated,
            // When it is known what became of it.
            Sending::Sent(sent) if sent.short => return,
            Sending::Sent(sent) if sent.confirmed => &self.messages.accepted,
            Sending::Sent(_) => &self.messages.unknown,
            Sending::NotSent => &self.messages.refused,
            Sending::Challenged { .. } => &self.messages.challenged,
            Sending::Throttled { .. } => &self.messages.throttled,
            Sending::Unavailable { .. } => &self.messages.unavailable,
        };
        counter.increment(1);
    }

    /// What became of a message in a shortage; none: it went to nobody.
    pub fn count_short(&self, delivery: Option<&Delivery>) {
        let counter = match delivery {
            None => &self.messages.withheld,
            Some(Delivery::Accepted { .. }) => &self.messages.accepted,
            Some(Delivery::Refused { .. } | Delivery::Unknown { .. }) => &self.messages.unknown,
        };
        counter.increment(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::sms::Sent;

    #[test]
    fn each_outcome_is_counted_by_its_name() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let metrics = metrics::with_local_recorder(&recorder, Metrics::register);
        let (limit, retry_after) = ("sms-phone".to_owned(), Duration::ZERO);
        let sent = |confirmed| {
            Sending::Sent(Sent {
                expires_in: Duration::ZERO,
                resend_after: Duration::ZERO,
                confirmed,
                short: false,
            })
        };
        let outcomes = [
            ("accepted", sent(true)),
            ("unknown", sent(false)),
            ("refused", Sending::NotSent),
            ("challenged", Sending::Challenged { limit: limit.clone(), retry_after }),
            ("throttled", Sending::Throttled { limit, retry_after }),
            ("unavailable", Sending::Unavailable { retry_after }),
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
        metrics.count(&Answer { repeated: true, ..sent(true).into() });
        assert!(told("gatehouse_sms_messages_total", "repeated"));
        assert!(told("gatehouse_sms_messages_total", "accepted"), "once, and no more");
        metrics.guesses.wrong.increment(1);
        assert!(told("gatehouse_sms_guesses_total", "wrong"));
        metrics.brakes.increment(1);
        assert!(recorder.handle().render().contains("gatehouse_sms_brakes_total 1"));
    }
}
