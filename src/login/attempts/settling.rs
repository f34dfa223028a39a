//! How an attempt's outcome is taken: noted first, once for all instances, and then carried out.

use std::sync::Arc;

use super::record::TicketEnd;
use super::{
    AttemptOutcome, AttemptSettled, AttemptTicket, AttemptsError, AttemptsParts, GuardedAttempts, outcomes,
};
use crate::config::LiveSettings;
use crate::login::Realm;
use crate::login::guard::SettleError;
use crate::throttle::window::HOLD_LIFE;

impl GuardedAttempts {
    /// Settles an attempt. Telling the same outcome again changes nothing.
    pub async fn settle(
        &self,
        live: &Arc<LiveSettings>,
        realm: &Realm,
        ticket: &str,
        outcome: AttemptOutcome,
    ) -> Result<AttemptSettled, AttemptsError> {
        let AttemptsParts { tickets, clock, .. } = &*self.0;
        let Some(ticket) = AttemptTicket::read(ticket, tickets).filter(|ticket| ticket.realm == *realm)
        else {
            return Ok(AttemptSettled::Unknown);
        };
        if clock.now().since(ticket.at) >= outcomes::KEPT {
            // Its outcome is forgotten, and no window may count it anew.
            return Ok(AttemptSettled::Lapsed);
        }
        // A caller that hangs up must not leave an outcome that is noted and not carried out.
        let (this, live) = (self.clone(), Arc::clone(live));
        let settling = tokio::spawn(async move { this.settle_ticket(&live, ticket, outcome).await });
        settling.await.expect("settling does not panic")
    }

    async fn settle_ticket(
        &self,
        live: &LiveSettings,
        ticket: AttemptTicket,
        outcome: AttemptOutcome,
    ) -> Result<AttemptSettled, AttemptsError> {
        let AttemptsParts { outcomes, clock, .. } = &*self.0;
        let age = clock.now().since(ticket.at);
        let lapsed = age >= HOLD_LIFE;
        let id = self.mark(&ticket);
        let noted = if lapsed { AttemptOutcome::Lapsed } else { outcome };
        match outcomes.note(id, noted).await {
            Ok(None) => {
                // Later, the store has counted it by itself.
                if age < 2 * HOLD_LIFE || self.has_slot(&id) {
                    self.carry_out(live, id, &ticket, noted).await?;
                }
                Ok(if lapsed { AttemptSettled::Lapsed } else { self.told(&ticket, outcome) })
            }
            Ok(Some(before)) if before == outcome => {
                // What was noted may not have been carried out, because something was out.
                if !lapsed {
                    self.0
                        .guard
                        .settle_elsewhere(&live.limits, &ticket.logs, ticket.hit, failed(outcome))
                        .await?;
                }
                Ok(self.told(&ticket, outcome))
            }
            Ok(Some(AttemptOutcome::Lapsed)) => Ok(AttemptSettled::Lapsed),
            Ok(Some(_)) => Ok(AttemptSettled::ToldOtherwise),
            // The instance that has the slot can settle it without the store.
            Err(_) if !lapsed && self.has_slot(&id) => {
                self.carry_out(live, id, &ticket, outcome).await?;
                Ok(self.told(&ticket, outcome))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// By the slot if this instance has it, otherwise by what the ticket says.
    pub(super) async fn carry_out(
        &self,
        live: &LiveSettings,
        id: [u8; 16],
        ticket: &AttemptTicket,
        outcome: AttemptOutcome,
    ) -> Result<(), AttemptsError> {
        let done = match (self.take_slot(&id), outcome) {
            (Some(slot), AttemptOutcome::Failure | AttemptOutcome::Lapsed) => {
                slot.keep().await.map(TicketEnd::kept).map_err(AttemptsError::from)
            }
            (Some(slot), AttemptOutcome::Success) => Ok(TicketEnd::right(slot.succeed().await)),
            (Some(slot), AttemptOutcome::Abandoned) => {
                slot.refund().await;
                Ok(TicketEnd::default())
            }
            (None, _) => {
                let guard = &self.0.guard;
                let settled = guard.settle_elsewhere(&live.limits, &ticket.logs, ticket.hit, failed(outcome));
                let end = || TicketEnd::kept(Some(self.audit().now()));
                settled.await.map(|()| end()).map_err(AttemptsError::from)
            }
        };
        self.record_settled(ticket, outcome, done.as_ref().copied().unwrap_or_default());
        done.map(drop)
    }
}

impl From<SettleError> for AttemptsError {
    fn from(error: SettleError) -> Self {
        match error {
            SettleError::Db(error) => Self::Db(error),
            SettleError::Store(error) => Self::Store(error),
        }
    }
}

/// Whether it counts.
pub(super) const fn failed(outcome: AttemptOutcome) -> bool {
    matches!(outcome, AttemptOutcome::Failure | AttemptOutcome::Lapsed)
}
