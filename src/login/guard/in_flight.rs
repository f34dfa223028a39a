//! The attempts of this process whose passwords are being compared, and whether the window store may decide
//! on others: not while it may lack one of these, or a failure that this process could not write to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::clock::{Clock, Micros};
use crate::throttle::{HitId, KeptHit, OwnedBucket, SubjectKey};

/// Clones share it.
#[derive(Clone)]
pub struct InFlightAttempts(Arc<InFlightShared>);

struct InFlightShared {
    clock: Clock,
    state: Mutex<InFlightState>,
    ended: Arc<Notify>,
}

struct InFlightState {
    decided_by: DecisionSource,
    attempts: HashMap<HitId, InFlightAttempt>,
    /// Attempts that ended so far.
    ended: u64,
}

/// What decides on the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionSource {
    /// The store, whose windows are complete by that rebuild generation.
    Store(HitId),
    /// The record. The store was last known to be complete at that time of this process.
    Record { since: Micros },
    /// Nothing for a moment: attempts in flight are being written to the store.
    Neither { since: Micros },
}

/// One attempt and its logs, its own first.
struct InFlightAttempt {
    at: Micros,
    buckets: Vec<OwnedBucket>,
}

/// The attempt is in flight until this is dropped.
pub struct InFlightTicket {
    shared: Arc<InFlightShared>,
    id: HitId,
}

/// Why the record does not admit an attempt yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// Others have ended since the record was read.
    Stale,
    /// The store decides again, or will in a moment.
    Returning,
    /// Too many are in flight.
    Full,
}

impl InFlightAttempts {
    /// The record decides first: the store's windows are not known to be complete, and an earlier process of
    /// this instance may have failed to write to them.
    pub fn new(clock: Clock) -> Self {
        let decided_by = DecisionSource::Record { since: Micros(0) };
        let state = InFlightState { decided_by, attempts: HashMap::new(), ended: 0 };
        Self(Arc::new(InFlightShared { clock, state: Mutex::new(state), ended: Arc::default() }))
    }

    /// The rebuild generation in which the store's windows are complete, if the store decides.
    pub fn generation(&self) -> Option<HitId> {
        match self.lock().decided_by {
            DecisionSource::Store(generation) => Some(generation),
            DecisionSource::Record { .. } | DecisionSource::Neither { .. } => None,
        }
    }

    /// For how long the store may have missed something.
    pub fn away_for(&self) -> Duration {
        match self.lock().decided_by {
            DecisionSource::Store(_) => Duration::ZERO,
            DecisionSource::Record { since } | DecisionSource::Neither { since } => {
                self.0.clock.now().since(since)
            }
        }
    }

    /// The store is out, has lost its data, or missed a failure.
    pub fn leave_store(&self) {
        self.0.leave_store();
    }

    /// What must be written to the store before it decides again. Until then no attempt starts.
    pub fn begin_return(&self) -> Vec<(OwnedBucket, KeptHit)> {
        let mut state = self.lock();
        if let DecisionSource::Record { since } = state.decided_by {
            state.decided_by = DecisionSource::Neither { since };
        }
        let hits = |(id, attempt): (&HitId, &InFlightAttempt)| {
            let kept = KeptHit { at: attempt.at, id: *id };
            attempt.buckets.iter().map(move |bucket| (bucket.clone(), kept)).collect::<Vec<_>>()
        };
        state.attempts.iter().flat_map(hits).collect()
    }

    /// The store has everything.
    pub fn end_return(&self, generation: HitId) {
        let mut state = self.lock();
        if let DecisionSource::Neither { .. } = state.decided_by {
            state.decided_by = DecisionSource::Store(generation);
        }
    }

    /// The store could not be written to.
    pub fn give_up_return(&self) {
        let mut state = self.lock();
        if let DecisionSource::Neither { since } = state.decided_by {
            state.decided_by = DecisionSource::Record { since };
        }
    }

    /// An attempt to which the store has given a hold.
    pub fn begin(&self, id: HitId, at: Micros, buckets: Vec<OwnedBucket>) -> InFlightTicket {
        self.lock().attempts.insert(id, InFlightAttempt { at, buckets });
        InFlightTicket { shared: Arc::clone(&self.0), id }
    }

    /// How many have ended so far, which must be read before the record; and a way to wait for the next end.
    pub fn ended(&self) -> (u64, OwnedNotified) {
        let next = Arc::clone(&self.0.ended).notified_owned();
        (self.lock().ended, next)
    }

    /// An attempt that the record admits, if `fits` accepts the number of others in flight at its own log.
    pub fn begin_by_record(
        &self,
        (id, at, buckets): (HitId, Micros, &[OwnedBucket]),
        ended: u64,
        fits: impl Fn(u32) -> bool,
    ) -> Result<InFlightTicket, NotYet> {
        let mut state = self.lock();
        if !matches!(state.decided_by, DecisionSource::Record { .. }) {
            return Err(NotYet::Returning);
        }
        if state.ended != ended {
            return Err(NotYet::Stale);
        }
        if !fits(state.at(buckets[0].key)) {
            return Err(NotYet::Full);
        }
        state.attempts.insert(id, InFlightAttempt { at, buckets: buckets.to_vec() });
        Ok(InFlightTicket { shared: Arc::clone(&self.0), id })
    }

    fn lock(&self) -> MutexGuard<'_, InFlightState> {
        self.0.lock()
    }
}

impl InFlightTicket {
    /// See [`InFlightAttempts::leave_store`].
    pub fn leave_store(&self) {
        self.shared.leave_store();
    }

    /// Keeps the attempt in flight for this long: it failed, and that could not be recorded.
    pub fn keep_for(self, span: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(span).await;
            drop(self);
        });
    }

    /// Whether the attempt may have been written to the store since it started.
    pub fn store_may_know(&self) -> bool {
        !matches!(self.shared.lock().decided_by, DecisionSource::Record { .. })
    }
}

impl InFlightShared {
    fn leave_store(&self) {
        let mut state = self.lock();
        if let DecisionSource::Store(_) = state.decided_by {
            state.decided_by = DecisionSource::Record { since: self.clock.now() };
        }
    }

    fn lock(&self) -> MutexGuard<'_, InFlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightState {
    /// How many are in flight at an account's or a device's log. All are searched; there are no more than
    /// hashes that wait to be computed, and attempts in realms that wait for their outcome.
    fn at(&self, own: SubjectKey) -> u32 {
        self.attempts.values().filter(|attempt| attempt.buckets[0].key == own).count() as u32
    }
}

impl Drop for InFlightTicket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.attempts.remove(&self.id);
        state.ended += 1;
        drop(state);
        self.shared.ended.notify_waiters();
    }
}
