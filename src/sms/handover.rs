//! Hands a message to the gateway once, and writes the outcome: first to the ledger, which decides.

use std::sync::Arc;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::Instrument;

use super::budgets::BudgetTicket;
use super::job::SendJob;
use super::ledger::MessageOutcome;
use super::share::BudgetShare;
use super::{DeliveryResult, MessageId, SmsCode, SmsMessage};
use crate::request_id;
use crate::spans;
use crate::throttle::HitId;

/// What to hand over for a message in the ledger.
pub struct PendingMessage {
    pub id: MessageId,
    pub hit: HitId,
    pub code: SmsCode,
}

impl SendJob {
    pub async fn deliver(&self, letter: PendingMessage) -> DeliveryResult {
        let (id, hit) = (letter.id, letter.hit);
        let delivery = self.hand_over(letter).await;
        match self.codes.ledger().settle(id, &MessageOutcome::Told(&delivery)).await {
            Ok(true) if matches!(delivery, DeliveryResult::Refused { .. }) => {
                self.codes.0.budgets.refund_all_but_asker(&self.watched, &self.keys, hit).await;
            }
            Ok(true) => {}
            // This process was stopped for minutes, and the ledger has marked the message as unknown.
            Ok(false) => {
                let reason = "it was given up before its gateway answered".to_owned();
                return DeliveryResult::Unknown { reason };
            }
            // It stays pending and counts, in the window store as well.
            Err(error) => {
                tracing::warn!(%error, message = %id, "the outcome of a message could not be recorded in the ledger");
            }
        }
        delivery
    }

    /// In a shortage nobody waits for the gateway: the waiting time would show whether a message was sent. If
    /// the gateway refuses, nothing is refunded and the code stays valid, because that would show it later.
    pub fn hand_over_later(
        self: &Arc<Self>,
        letter: PendingMessage,
        share: BudgetShare,
        ticket: BudgetTicket,
        place: OwnedSemaphorePermit,
    ) {
        let (job, id) = (Arc::clone(self), letter.id);
        request_id::spawn(async move {
            let delivery = match share {
                BudgetShare::Withheld => None,
                BudgetShare::Open | BudgetShare::SpentAsker | BudgetShare::Reserve => {
                    Some(match job.hand_over(letter).await {
                        DeliveryResult::Refused { reason } => {
                            DeliveryResult::Unknown { reason: format!("refused: {reason}") }
                        }
                        other => other,
                    })
                }
            };
            let fate = delivery.as_ref().map_or(MessageOutcome::Withheld, MessageOutcome::Told);
            if let Err(error) = job.codes.ledger().settle(id, &fate).await {
                tracing::warn!(%error, message = %id, "the outcome of a message could not be recorded in the ledger");
            }
            job.codes.0.metrics.count_short(delivery.as_ref());
            job.record_short(&ticket, delivery.as_ref());
            drop(place);
        });
    }

    async fn hand_over(&self, letter: PendingMessage) -> DeliveryResult {
        let inner = &*self.codes.0;
        let PendingMessage { id, code, .. } = letter;
        let text = self.text(&code);
        let (gateway, phone) = (Arc::clone(&inner.gateway), self.phone.clone());
        // If a gateway panics, only this task ends.
        let span = spans::gateway(gateway.name());
        let handed =
            async move { gateway.send(SmsMessage { id, phone: &phone, code: &code, text: &text }).await };
        let sending = request_id::spawn(handed.instrument(span.clone()));
        let (stop, begun) = (sending.abort_handle(), Instant::now());
        let delivery = match tokio::time::timeout(inner.gateway_patience, sending).await {
            Ok(Ok(delivery)) => delivery,
            Ok(Err(_)) => DeliveryResult::Unknown { reason: "the gateway's code failed".to_owned() },
            Err(_) => {
                stop.abort();
                DeliveryResult::Unknown { reason: "the gateway took too long".to_owned() }
            }
        };
        inner.metrics.gateway(begun.elapsed(), &delivery);
        if let DeliveryResult::Refused { reason } | DeliveryResult::Unknown { reason } = &delivery {
            spans::failed(&span);
            let gateway = inner.gateway.name();
            tracing::info!(gateway, message = %id, reason, "the gateway did not confirm a message");
        }
        delivery
    }
}
