//! Sends codes that identity providers make and check themselves, within the time that they wait.

use std::time::Duration;

use super::codes::SmsCodes;
use super::departure::Departure;
use super::job::SendJob;
use super::outcome::{SendOutcome, SendReceipt, SmsError};
use super::request::{MessageRequest, RelayRequest};
use super::{MessageId, MessagePurpose, once};
use crate::config::LiveSettings;
use crate::throttle::SubjectKey;

/// Supabase gives up after 5 s, and an answer within 4 reaches it. The rest is for reading the ledger then.
const PATIENCE: Duration = Duration::from_secs(3);
const READING: Duration = Duration::from_millis(500);

impl SmsCodes {
    /// Sends a code once for its name. If that takes too long, a message that was handed to the gateway is on its way:
    /// this one, or that of the same request before, which the ledger knows. Otherwise none is sent any more.
    pub async fn relay(&self, live: &LiveSettings, ask: RelayRequest<'_>) -> Result<SendOutcome, SmsError> {
        let departure = Departure::default();
        let ask = MessageRequest { departure: Some(departure.clone()), ..ask.into() };
        match tokio::time::timeout(PATIENCE, self.send(live, ask.clone())).await {
            Ok(sending) => sending,
            Err(_) => Ok(match departure.call_off() {
                Some(id) => on_its_way(id, once::RELAYED),
                None => self.begun(SendJob::new(self.clone(), live, ask).keys.once).await,
            }),
        }
    }

    async fn begun(&self, once: Option<SubjectKey>) -> SendOutcome {
        let Some(once) = once else { return SendOutcome::unavailable() };
        match tokio::time::timeout(READING, self.0.ledger.earlier(once)).await {
            Ok(Ok(Some(earlier))) => on_its_way(earlier.id, earlier.expires_in),
            Ok(Ok(None) | Err(_)) | Err(_) => SendOutcome::unavailable(),
        }
    }

    /// Notes how a code ended at the provider. False if the message is none of the relay's.
    pub async fn relay_outcome(
        &self,
        relay: &MessagePurpose,
        id: &str,
        used: bool,
    ) -> Result<bool, SmsError> {
        let Some(id) = MessageId::parse(id) else { return Ok(false) };
        Ok(self.0.ledger.note_outcome(relay, id, used).await?)
    }
}

fn on_its_way(id: MessageId, expires_in: Duration) -> SendOutcome {
    SendOutcome::Sent(SendReceipt {
        id: Some(id),
        expires_in,
        resend_after: Duration::ZERO,
        confirmed: false,
        short: false,
    })
}
