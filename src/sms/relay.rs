//! Sends codes that identity providers make and check themselves, within the time that they wait.

use std::time::Duration;

use super::codes::SmsCodes;
use super::job::SendJob;
use super::outcome::{SendOutcome, SendReceipt, SmsError};
use super::request::RelayRequest;
use super::{MessageId, MessagePurpose};
use crate::config::LiveSettings;
use crate::throttle::SubjectKey;

/// Supabase gives up after 5 s, and an answer within 4 reaches it. The rest is for reading the ledger then.
const PATIENCE: Duration = Duration::from_secs(3);
const READING: Duration = Duration::from_millis(500);

impl SmsCodes {
    /// Sends a code once for its name. If that takes too long it goes on by itself, and the answer is what the ledger
    /// knows: a message that is in it has been admitted, and is not sent again.
    pub async fn relay(&self, live: &LiveSettings, ask: RelayRequest<'_>) -> Result<SendOutcome, SmsError> {
        match tokio::time::timeout(PATIENCE, self.send(live, ask)).await {
            Ok(sending) => sending,
            Err(_) => Ok(self.begun(SendJob::new(self.clone(), live, ask.into()).keys.once).await),
        }
    }

    async fn begun(&self, once: Option<SubjectKey>) -> SendOutcome {
        let Some(once) = once else { return SendOutcome::unavailable() };
        match tokio::time::timeout(READING, self.0.ledger.earlier(once)).await {
            Ok(Ok(Some(earlier))) => SendOutcome::Sent(SendReceipt {
                id: Some(earlier.id),
                expires_in: earlier.expires_in,
                resend_after: Duration::ZERO,
                confirmed: false,
                short: false,
            }),
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
