//! The attempts that this instance has admitted and that have not ended, and what becomes of those about which nobody
//! says anything.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::StreamExt;

use super::settling::failed;
use super::{AttemptOutcome, AttemptTicket, GuardedAttempts};
use crate::config::LiveSettings;
use crate::login::AttemptSlot;
use crate::throttle::window::HOLD_LIFE;

/// By what their outcome is noted under.
#[derive(Default)]
pub struct AttemptsInFlight(pub(super) HashMap<[u8; 16], (AttemptTicket, AttemptSlot)>);

impl GuardedAttempts {
    /// Ends the attempts about which nobody has said anything in time. Call it every second.
    pub async fn lapse(&self, live: &LiveSettings) {
        const AT_ONCE: usize = 64;
        let now = self.0.clock.now();
        let overdue = |(id, (ticket, _)): (&[u8; 16], &(AttemptTicket, AttemptSlot))| {
            (now.since(ticket.at) >= HOLD_LIFE).then(|| (*id, ticket.clone()))
        };
        let overdue: Vec<_> = self.0.in_flight.lock().0.iter().filter_map(overdue).collect();
        let out = AtomicBool::new(false);
        let ends = overdue.into_iter().map(|(id, ticket)| {
            let out = &out;
            async move {
                let patient = now.since(ticket.at) < 2 * HOLD_LIFE;
                if patient && out.load(Ordering::Relaxed) {
                    return;
                }
                match self.0.outcomes.note(id, AttemptOutcome::Lapsed).await {
                    Ok(None) => drop(self.carry_out(live, id, &ticket, AttemptOutcome::Lapsed).await),
                    // Told at another instance, which may not have come to its end.
                    Ok(Some(told)) => self.follow(id, told).await,
                    // It may have been told elsewhere: the store will say, if it comes back soon.
                    Err(_) if patient => out.store(true, Ordering::Relaxed),
                    Err(_) => drop(self.carry_out(live, id, &ticket, AttemptOutcome::Lapsed).await),
                }
            }
        });
        futures_util::stream::iter(ends).for_each_concurrent(AT_ONCE, |end| end).await;
    }

    pub(super) fn has_slot(&self, id: &[u8; 16]) -> bool {
        self.0.in_flight.lock().0.contains_key(id)
    }

    pub(super) fn take_slot(&self, id: &[u8; 16]) -> Option<AttemptSlot> {
        self.0.in_flight.lock().0.remove(id).map(|(_, slot)| slot)
    }

    /// The slot of an attempt that another instance has recorded. Repeating what that did changes nothing.
    async fn follow(&self, id: [u8; 16], told: AttemptOutcome) {
        match self.take_slot(&id) {
            Some(slot) if failed(told) => drop(slot.keep().await),
            Some(slot) => slot.refund().await,
            None => {}
        }
    }
}
