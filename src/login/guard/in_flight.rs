//! The attempts of this process whose passwords are being compared, and whether the window store may decide on
//! others: not while it may lack one of these, or a failure that this process could not tell it.

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

/// Who decides on the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionSource {
    /// The store, whose windows were whole by that rebuild.
    Store(HitId),
    /// The record: the store was last known to have everything at that time of this process.
    Record { since: Micros },
    /// Nobody for a moment: what is in flight is being told to the store.
    Neither { since: Micros },
}

/// One attempt: the logs that it is in, its own first.
struct InFlightAttempt {
    at: Micros,
    buckets: Vec<OwnedBucket>,
}

/// Until it is dropped, the attempt is in attempt.
pub struct InFlightTicket {
    shared: Arc<InFlightShared>,
    id: HitId,
}

/// Why an attempt may not begin on the word of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// Others have ended since the record was read.
    Stale,
    /// The store decides again, or will in a moment.
    Returning,
    /// Too many are in attempt.
    Full,
}

impl InFlightAttempts {
    /// The record decides first: the store's windows are not known to be whole, nor what an earlier process of
    /// this instance could not tell it.
    pub fn new(clock: Clock) -> Self {
        let decided_by = DecisionSource::Record { since: Micros(0) };
        let state = InFlightState { decided_by, attempts: HashMap::new(), ended: 0 };
        Self(Arc::new(InFlightShared { clock, state: Mutex::new(state), ended: Arc::default() }))
    }

    /// By which rebuild the store's windows are whole, where it decides.
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

    /// The store is out, has lost its data, or was not told of a failure.
    pub fn leave_store(&self) {
        self.0.leave_store();
    }

    /// What the store is to be told before it decides again. Until then no attempt begins.
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

    /// It could not be told.
    pub fn give_up_return(&self) {
        let mut state = self.lock();
        if let DecisionSource::Neither { since } = state.decided_by {
            state.decided_by = DecisionSource::Record { since };
        }
    }

    /// An attempt that the store has given a hold.
    pub fn begin(&self, id: HitId, at: Micros, buckets: Vec<OwnedBucket>) -> InFlightTicket {
        self.lock().attempts.insert(id, InFlightAttempt { at, buckets });
        InFlightTicket { shared: Arc::clone(&self.0), id }
    }

    /// How many have ended so far, to be asked before the record is read; and how the next end is waited for.
    pub fn ended(&self) -> (u64, OwnedNotified) {
        let next = Arc::clone(&self.0.ended).notified_owned();
        (self.lock().ended, next)
    }

    /// An attempt that the record allows, with so many others at its own log in flight, if `fits` says so.
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

    /// The attempt stays in flight for so long: it failed, and nothing could be told of it.
    pub fn keep_for(self, span: Duration) {
        tokio::spawn(async move {
            tokio::time::sleep(span).await;
            drop(self);
        });
    }

    /// Whether the store may have been told of the attempt since it began.
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
    /// How many are in flight at a log of their own: all are looked through, which are no more than hashes
    /// that wait to be computed.
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
