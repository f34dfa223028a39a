//! The attempts of this process whose passwords are being compared, and whether the window store may decide on
//! others: not while it may lack one of these, or a failure that this process could not tell it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use crate::clock::{Clock, Micros};
use crate::throttle::{HitId, Kept, Key, OwnedBucket};

/// Clones share it.
#[derive(Clone)]
pub struct InFlight(Arc<Shared>);

struct Shared {
    clock: Clock,
    state: Mutex<State>,
    ended: Arc<Notify>,
}

struct State {
    standing: Standing,
    flights: HashMap<HitId, Flight>,
    /// Attempts that ended so far.
    ended: u64,
}

/// Who decides on the next attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// The store, whose windows were whole by that rebuild.
    Store(HitId),
    /// The record: the store was last known to have everything at that time of this process.
    Record { since: Micros },
    /// Nobody for a moment: what is in flight is being told to the store.
    Nobody { since: Micros },
}

/// One attempt: the logs that it is in, its own first.
struct Flight {
    at: Micros,
    buckets: Vec<OwnedBucket>,
}

/// Until it is dropped, the attempt is in flight.
pub struct Ticket {
    shared: Arc<Shared>,
    id: HitId,
}

/// Why an attempt does not take off on the word of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotYet {
    /// Others have ended since the record was read.
    Stale,
    /// The store decides again, or will in a moment.
    Returning,
    /// Too many are in flight.
    Full,
}

impl InFlight {
    /// The record decides first: the store's windows are not known to be whole, nor what an earlier process of
    /// this instance could not tell it.
    pub fn new(clock: Clock) -> Self {
        let standing = Standing::Record { since: Micros(0) };
        let state = State { standing, flights: HashMap::new(), ended: 0 };
        Self(Arc::new(Shared { clock, state: Mutex::new(state), ended: Arc::default() }))
    }

    /// By which rebuild the store's windows are whole, where it decides.
    pub fn generation(&self) -> Option<HitId> {
        match self.lock().standing {
            Standing::Store(generation) => Some(generation),
            Standing::Record { .. } | Standing::Nobody { .. } => None,
        }
    }

    /// For how long the store may have missed something.
    pub fn away_for(&self) -> Duration {
        match self.lock().standing {
            Standing::Store(_) => Duration::ZERO,
            Standing::Record { since } | Standing::Nobody { since } => self.0.clock.now().since(since),
        }
    }

    /// The store is out, has lost its data, or was not told of a failure.
    pub fn leave_store(&self) {
        self.0.leave_store();
    }

    /// What the store is to be told before it decides again. Until then nobody takes off.
    pub fn begin_return(&self) -> Vec<(OwnedBucket, Kept)> {
        let mut state = self.lock();
        if let Standing::Record { since } = state.standing {
            state.standing = Standing::Nobody { since };
        }
        let hits = |(id, flight): (&HitId, &Flight)| {
            let kept = Kept { at: flight.at, id: *id };
            flight.buckets.iter().map(move |bucket| (bucket.clone(), kept)).collect::<Vec<_>>()
        };
        state.flights.iter().flat_map(hits).collect()
    }

    /// The store has everything.
    pub fn end_return(&self, generation: HitId) {
        let mut state = self.lock();
        if let Standing::Nobody { .. } = state.standing {
            state.standing = Standing::Store(generation);
        }
    }

    /// It could not be told.
    pub fn give_up_return(&self) {
        let mut state = self.lock();
        if let Standing::Nobody { since } = state.standing {
            state.standing = Standing::Record { since };
        }
    }

    /// An attempt that the store has given a hold.
    pub fn take_off(&self, id: HitId, at: Micros, buckets: Vec<OwnedBucket>) -> Ticket {
        self.lock().flights.insert(id, Flight { at, buckets });
        Ticket { shared: Arc::clone(&self.0), id }
    }

    /// How many have ended so far, to be asked before the record is read; and how the next end is waited for.
    pub fn ended(&self) -> (u64, OwnedNotified) {
        let next = Arc::clone(&self.0.ended).notified_owned();
        (self.lock().ended, next)
    }

    /// An attempt that the record allows, with so many others at its own log in flight, if `fits` says so.
    pub fn take_off_by_record(
        &self,
        (id, at, buckets): (HitId, Micros, &[OwnedBucket]),
        ended: u64,
        fits: impl Fn(u32) -> bool,
    ) -> Result<Ticket, NotYet> {
        let mut state = self.lock();
        if !matches!(state.standing, Standing::Record { .. }) {
            return Err(NotYet::Returning);
        }
        if state.ended != ended {
            return Err(NotYet::Stale);
        }
        if !fits(state.at(buckets[0].key)) {
            return Err(NotYet::Full);
        }
        state.flights.insert(id, Flight { at, buckets: buckets.to_vec() });
        Ok(Ticket { shared: Arc::clone(&self.0), id })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Ticket {
    /// See [`InFlight::leave_store`].
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

    /// Whether the store may have been told of the attempt since it took off.
    pub fn is_told(&self) -> bool {
        !matches!(self.shared.lock().standing, Standing::Record { .. })
    }
}

impl Shared {
    fn leave_store(&self) {
        let mut state = self.lock();
        if let Standing::Store(_) = state.standing {
            state.standing = Standing::Record { since: self.clock.now() };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// How many are in flight at a log of their own: all are looked through, which are no more than hashes
    /// that wait to be computed.
    fn at(&self, own: Key) -> u32 {
        self.flights.values().filter(|flight| flight.buckets[0].key == own).count() as u32
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.flights.remove(&self.id);
        state.ended += 1;
        drop(state);
        self.shared.ended.notify_waiters();
    }
}
