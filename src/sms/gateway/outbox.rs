//! The outbox: messages stay in memory, on a page for developers. Nothing leaves the machine.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    DeliveryReport, DeliveryResult, MessageId, Phone, ReportCall, ReportError, SendFuture, SmsGateway,
    SmsMessage,
};
use crate::clock::{Clock, Micros};

/// How many messages are kept; the oldest are dropped first.
const KEPT: usize = 1000;

/// Clones share the messages.
#[derive(Clone)]
pub struct Outbox {
    messages: Arc<Mutex<VecDeque<OutboxMessage>>>,
    clock: Clock,
}

/// A message that would have been sent.
#[derive(Clone)]
pub struct OutboxMessage {
    pub id: MessageId,
    pub at: Micros,
    pub phone: Phone,
    pub text: String,
    pub code: String,
}

impl fmt::Debug for OutboxMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("OutboxMessage").field("id", &self.id).field("at", &self.at).finish_non_exhaustive()
    }
}

impl Outbox {
    pub fn new(clock: Clock) -> Self {
        Self { messages: Arc::default(), clock }
    }

    /// Newest first; only those to one number if one is given.
    pub fn messages(&self, to: Option<&Phone>) -> Vec<OutboxMessage> {
        let messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
        messages
            .iter()
            .rev()
            .filter(|message| to.is_none_or(|phone| *phone == message.phone))
            .cloned()
            .collect()
    }
}

impl SmsGateway for Outbox {
    fn name(&self) -> &'static str {
        "outbox"
    }

    fn send<'a>(&'a self, message: SmsMessage<'a>) -> SendFuture<'a> {
        Box::pin(async move {
            let kept = OutboxMessage {
                id: message.id,
                at: self.clock.now(),
                phone: message.phone.clone(),
                text: message.text.to_owned(),
                code: message.code.expose().to_owned(),
            };
            let mut messages = self.messages.lock().unwrap_or_else(PoisonError::into_inner);
            if messages.len() >= KEPT {
                messages.pop_front();
            }
            messages.push_back(kept);
            DeliveryResult::Accepted { reference: None }
        })
    }

    fn reports(&self, _: &ReportCall<'_>) -> Result<Vec<DeliveryReport>, ReportError> {
        Err(ReportError::NotOffered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::Entropy;
    use crate::sms::SmsCode;

    #[tokio::test]
    async fn the_last_thousand_are_kept_the_newest_first() {
        let outbox = Outbox::new(Clock::manual(Micros(1)));
        let phones =
            ["+8613800138000", "+8613800138001"].map(|text| Phone::parse(text, "CN").expect("a number"));
        for number in 0..=KEPT {
            let (id, code) = (MessageId::random(&Entropy::Os), SmsCode::parse("012345").unwrap());
            let text = number.to_string();
            let message = SmsMessage { id, phone: &phones[number % 2], code: &code, text: &text };
            assert_eq!(outbox.send(message).await, DeliveryResult::Accepted { reference: None });
        }
        let all = outbox.clone().messages(None);
        assert_eq!((all.len(), all[0].text.as_str(), all[KEPT - 1].text.as_str()), (KEPT, "1000", "1"));
        let odd = outbox.messages(Some(&phones[1]));
        assert_eq!((odd.len(), odd[0].text.as_str()), (KEPT / 2, "999"));
        assert!(!format!("{:?}", all[0]).contains("012345"));
    }
}
