//! What is counted of messages and guesses; the handles are kept, because refusals come by the million.

use metrics::Counter;

use super::codes::Sending;

pub struct Metrics {
    messages: Messages,
    pub guesses: Guesses,
    pub brakes: Counter,
}

/// `gatehouse_sms_messages_total` by outcome. A repeated request counts for what it is answered with, too.
struct Messages {
    accepted: Counter,
    unknown: Counter,
    refused: Counter,
    challenged: Counter,
    throttled: Counter,
    unavailable: Counter,
}

/// `gatehouse_sms_guesses_total` by outcome. Only right and wrong ones were compared.
pub struct Guesses {
    pub right: Counter,
    pub wrong: Counter,
    pub throttled: Counter,
    pub unavailable: Counter,
}

impl Metrics {
    pub fn register() -> Self {
        let message = |outcome| metrics::counter!("gatehouse_sms_messages_total", "outcome" => outcome);
        let guess = |outcome| metrics::counter!("gatehouse_sms_guesses_total", "outcome" => outcome);
        Self {
            messages: Messages {
                accepted: message("accepted"),
                unknown: message("unknown"),
                refused: message("refused"),
                challenged: message("challenged"),
                throttled: message("throttled"),
                unavailable: message("unavailable"),
            },
            guesses: Guesses {
                right: guess("right"),
                wrong: guess("wrong"),
                throttled: guess("throttled"),
                unavailable: guess("unavailable"),
            },
            brakes: metrics::counter!("gatehouse_sms_brakes_total"),
        }
    }

    pub fn count(&self, outcome: &Sending) {
        let counter = match outcome {
            Sending::Sent(sent) if sent.confirmed => &self.messages.accepted,
            Sending::Sent(_) => &self.messages.unknown,
            Sending::NotSent => &self.messages.refused,
            Sending::Challenged { .. } => &self.messages.challenged,
            Sending::Throttled { .. } => &self.messages.throttled,
            Sending::Unavailable { .. } => &self.messages.unavailable,
        };
        counter.increment(1);
    }
}
