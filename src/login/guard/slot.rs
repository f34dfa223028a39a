//! A slot that an attempt holds, and how it is settled; and all attempts of this process that hold one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::{Bucket, HitId, KeptHit, MemoryStore, OwnedBucket, Settlement, StoreError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;

use super::CountedAttempt;
use super::counting::{CountingMode, OWN, by_own};
use super::failure_record::FailureRecord;
use crate::clock::{Clock, Micros};
use crate::db::DbError;
use crate::login::Guess;
use crate::throttle::{Hold, Limiter};

/// Between two checks whether the attempts in flight are in the store: the time of a few scripts.
const RETURNS_SOON: Duration = Duration::from_millis(10);

pub struct AttemptSlot {
    pub(super) hold: SlotHold,
    pub(super) mode: CountingMode,
    /// Dropped last.
    pub(super) ticket: InFlightTicket,
    pub(super) failures: Arc<FailureRecord>,
}

pub(super) enum SlotHold {
    Store(Hold),
    Outage(HeldInOutage),
}

pub(super) struct HeldInOutage {
    pub id: HitId,
    pub at: Micros,
    pub buckets: Vec<OwnedBucket>,
    /// In this process's logs of the address and the network.
    pub elsewhere: Option<Box<gatehouse_limiter::Hold<MemoryStore>>>,
    pub limiter: Limiter,
}

impl AttemptSlot {
    /// When it was taken, and what a limit in monitor mode would have refused.
    pub fn taken(&self) -> CountedAttempt {
        match &self.hold {
            SlotHold::Store(hold) => {
                let limit = |bucket: usize| &hold.buckets()[bucket].limit;
                CountedAttempt { at: hold.at, noted: hold.noted.map(|refusal| by_own(refusal, limit)) }
            }
            SlotHold::Outage(hold) => CountedAttempt { at: hold.at, noted: None },
        }
    }

    pub fn hit(&self) -> (HitId, &[OwnedBucket]) {
        match &self.hold {
            SlotHold::Store(hold) => (hold.id(), hold.buckets()),
            SlotHold::Outage(hold) => (hold.id, &hold.buckets),
        }
    }

    pub const fn mode(&self) -> CountingMode {
        self.mode
    }

    /// The attempt failed and counts; returns from when, if the store could say, and whether it was the same guess again,
    /// which counts for `captcha` rules and at address and network alone. It is in the record when this returns; on an
    /// error the client must not be told that it failed.
    pub async fn keep(self, guess: Option<Guess>) -> Result<(Option<Micros>, bool), DbError> {
        self.keep_by(guess, async |hold, again| hold.keep_in(again.counts()).await).await
    }

    /// Keeps the hit, and returns the states of its logs afterwards, normally in the same round trip.
    pub async fn keep_and_peek(self, guess: Option<Guess>) -> Result<(Option<Settlement>, bool), DbError> {
        self.keep_by(guess, async |hold, again| hold.keep_in_and_peek(again.counts()).await).await
    }

    async fn keep_by<T>(
        self,
        guess: Option<Guess>,
        keep: impl AsyncFnOnce(Hold, Kept) -> Result<T, StoreError>,
    ) -> Result<(Option<T>, bool), DbError> {
        let Self { hold, ticket, failures, mode } = self;
        let (kept, written) = match hold {
            SlotHold::Store(hold) => {
                // The record knows the guesses of before. Until the store is told, the hold counts in every log.
                let written = failures.write(hold.id(), hold.buckets(), guess).await;
                let kept = keep(hold, Kept { mode, repeat: *written.as_ref().unwrap_or(&false) }).await;
                if kept.is_err() {
                    ticket.all.leave_store();
                }
                (settled(kept), written)
            }
            SlotHold::Outage(hold) => {
                let written = failures.write(hold.id, &hold.buckets, guess).await;
                if written.is_err() {
                    // No record has it: it counts as if it were in flight, here and when the store returns.
                    let windows = hold.buckets.iter().map(|bucket| bucket.limit.longest_window());
                    ticket.keep_for(windows.max().unwrap_or_default());
                }
                if let Some(elsewhere) = hold.elsewhere {
                    let _ = elsewhere.keep().await;
                }
                (None, written)
            }
        };
        written.map(|repeat| (kept, repeat))
    }

    /// Nothing was verified: it is removed.
    pub async fn refund(self) {
        let store_may_know = self.ticket.end().await;
        match self.hold {
            SlotHold::Store(hold) => drop(settled(hold.refund().await)),
            SlotHold::Outage(hold) => hold.refund(store_may_know).await,
        }
    }

    /// The owner signed in: rules that ask for a challenge ignore the earlier failures in the attempt's own
    /// log. For a stranger that is the account's log. For a known device it is only the device's: failures at
    /// the account belong to somebody else and are not in the owner's way. Rules that block still count them;
    /// otherwise a stranger would get as many guesses again each time the owner signs in. A log in monitor
    /// mode is forgiven as if it were enforced. Failures of the address and the network stay, because
    /// otherwise an attacker could sign in to an account of their own to wipe them. Returns when that was,
    /// and whether forgiveness was requested, if the store could say.
    pub async fn succeed(self) -> Option<(Micros, bool)> {
        let (store_may_know, mode) = (self.ticket.end().await, self.mode);
        match self.hold {
            SlotHold::Store(hold) => settled(hold.succeed(|bucket| !mode.is_shared(bucket)).await),
            SlotHold::Outage(hold) => {
                hold.refund(store_may_know).await;
                None
            }
        }
    }
}

/// A failure, and whether it was the same guess again.
#[derive(Clone, Copy)]
struct Kept {
    mode: CountingMode,
    repeat: bool,
}

impl Kept {
    /// The logs in which it counts: if it was the same guess again, not in its own, nor in that of a device whose limit is
    /// in monitor mode.
    const fn counts(self) -> impl Fn(usize) -> bool {
        move |bucket| !self.repeat || bucket != OWN && !self.mode.is_monitored_device(bucket)
    }
}

impl HeldInOutage {
    /// The store has it as a failure if it came back in the meantime.
    async fn refund(self, store_may_know: bool) {
        if let Some(elsewhere) = self.elsewhere {
            let _ = elsewhere.refund().await;
        }
        if store_may_know {
            let buckets: Vec<Bucket<'_>> = self.buckets.iter().map(OwnedBucket::borrow).collect();
            settled(self.limiter.refund(&buckets, self.id).await);
        }
    }
}

/// A hold that could not be settled counts as a failure until it expires: the store errs towards refusing.
fn settled<T>(result: Result<T, StoreError>) -> Option<T> {
    result
        .inspect_err(|error| tracing::debug!(%error, "an attempt's outcome did not reach the window store"))
        .ok()
}

/// The attempts of this process whose passwords are being compared, and whether the window store may decide
/// on others: not while it may lack one of these, or a failure that this process could not write to it.
/// Clones share it.
#[derive(Clone)]
pub struct InFlightAttempts(Arc<InFlightShared>);

struct InFlightShared {
    clock: Clock,
    state: Mutex<InFlightState>,
    /// Told whenever an attempt ends.
    ended: watch::Sender<()>,
}

struct InFlightState {
    decided_by: DecisionSource,
    /// How often the store began to decide.
    terms: u64,
    /// When each was admitted, and its logs, its own first.
    attempts: HashMap<HitId, (Micros, Vec<OwnedBucket>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecisionSource {
    Store(StoreTerm),
    /// The record. The store was last known to be complete at that time of this process.
    Record {
        since: Micros,
    },
    /// Nothing for a moment: attempts in flight are being written to the store.
    Neither {
        since: Micros,
    },
}

/// From when the store decides until it is left. Another one may be of the same rebuild generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreTerm {
    /// The rebuild by which the store's windows are complete.
    pub generation: HitId,
    number: u64,
}

/// The attempt is in flight until this is dropped.
pub struct InFlightTicket {
    all: InFlightAttempts,
    id: HitId,
}

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
        let state = InFlightState { decided_by, terms: 0, attempts: HashMap::new() };
        Self(Arc::new(InFlightShared { clock, state: Mutex::new(state), ended: watch::Sender::new(()) }))
    }

    /// The term in which the store decides; None if it does not.
    pub fn term(&self) -> Option<StoreTerm> {
        let DecisionSource::Store(term) = self.0.state.lock().decided_by else { return None };
        Some(term)
    }

    /// For how long the store may have missed something.
    pub fn away_for(&self) -> Duration {
        match self.0.state.lock().decided_by {
            DecisionSource::Store(_) => Duration::ZERO,
            DecisionSource::Record { since } | DecisionSource::Neither { since } => {
                self.0.clock.now().since(since)
            }
        }
    }

    /// The store is out, has lost its data, or missed a failure.
    pub fn leave_store(&self) {
        let mut state = self.0.state.lock();
        if let DecisionSource::Store(_) = state.decided_by {
            state.decided_by = DecisionSource::Record { since: self.0.clock.now() };
        }
    }

    /// Ends a term, unless another term has begun.
    pub fn end_term(&self, term: StoreTerm) {
        let mut state = self.0.state.lock();
        if state.decided_by == DecisionSource::Store(term) {
            state.decided_by = DecisionSource::Record { since: self.0.clock.now() };
        }
    }

    /// What must be written to the store before it decides again. Until then no attempt starts.
    pub fn begin_return(&self) -> Vec<(OwnedBucket, KeptHit)> {
        let mut state = self.0.state.lock();
        if let DecisionSource::Record { since } = state.decided_by {
            state.decided_by = DecisionSource::Neither { since };
        }
        let hits = state.attempts.iter().flat_map(|(&id, (at, buckets))| {
            let kept = KeptHit { at: *at, id };
            buckets.iter().map(move |bucket| (bucket.clone(), kept))
        });
        hits.collect()
    }

    pub fn end_return(&self, generation: HitId) {
        let mut state = self.0.state.lock();
        if let DecisionSource::Neither { .. } = state.decided_by {
            state.terms += 1;
            state.decided_by = DecisionSource::Store(StoreTerm { generation, number: state.terms });
        }
    }

    pub async fn returned(&self) {
        while matches!(self.0.state.lock().decided_by, DecisionSource::Neither { .. }) {
            sleep(RETURNS_SOON).await;
        }
    }

    pub fn give_up_return(&self) {
        let mut state = self.0.state.lock();
        if let DecisionSource::Neither { since } = state.decided_by {
            state.decided_by = DecisionSource::Record { since };
        }
    }

    /// An attempt to which the store has given a hold in this term, if that lasts: otherwise the record may have
    /// admitted others without it, and a return has not written it.
    pub fn begin(
        &self,
        term: StoreTerm,
        (id, at, buckets): (HitId, Micros, &[OwnedBucket]),
    ) -> Option<InFlightTicket> {
        let mut state = self.0.state.lock();
        if state.decided_by != DecisionSource::Store(term) {
            return None;
        }
        state.attempts.insert(id, (at, buckets.to_vec()));
        Some(InFlightTicket { all: self.clone(), id })
    }

    /// Tells whether another attempt has ended. To be asked for before the record is read.
    pub fn ended(&self) -> watch::Receiver<()> {
        self.0.ended.subscribe()
    }

    /// An attempt that the record admits, if `fits` accepts the number of others in flight at its own log.
    pub fn begin_by_record(
        &self,
        (id, at, buckets): (HitId, Micros, &[OwnedBucket]),
        ended: &watch::Receiver<()>,
        fits: impl Fn(u32) -> bool,
    ) -> Result<InFlightTicket, NotYet> {
        let mut state = self.0.state.lock();
        if !matches!(state.decided_by, DecisionSource::Record { .. }) {
            return Err(NotYet::Returning);
        }
        if ended.has_changed().is_ok_and(|has| has) {
            return Err(NotYet::Stale);
        }
        // All are searched; there are no more than hashes that wait to be computed, and attempts in realms that wait
        // for their outcome.
        let own = buckets[OWN].key;
        let others = state.attempts.values().filter(|(_, theirs)| theirs[OWN].key == own);
        if !fits(others.count() as u32) {
            return Err(NotYet::Full);
        }
        state.attempts.insert(id, (at, buckets.to_vec()));
        Ok(InFlightTicket { all: self.clone(), id })
    }
}

impl InFlightTicket {
    /// Keeps the attempt in flight for this long: it failed, and that could not be recorded.
    pub fn keep_for(self, span: Duration) {
        tokio::spawn(async move {
            sleep(span).await;
            drop(self);
        });
    }

    /// Ends an attempt that is no failure, before its hold is given back: a return that is writing it to the store
    /// as a failure is waited for, and none does so later. Returns whether one may have.
    pub async fn end(self) -> bool {
        let all = self.all.clone();
        drop(self);
        all.returned().await;
        all.term().is_some()
    }
}

impl Drop for InFlightTicket {
    fn drop(&mut self) {
        let mut state = self.all.0.state.lock();
        state.attempts.remove(&self.id);
        self.all.0.ended.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use gatehouse_limiter::{Limit, LimitMode, SubjectKey};

    use super::*;
    use crate::clock::Clock;

    /// Otherwise an owner's right password would count as a failure.
    #[tokio::test]
    async fn what_is_no_failure_waits_for_the_return_that_writes_it() {
        let all = InFlightAttempts::new(Clock::manual(Micros(1_000_000)));
        let limit = Limit::new("test", vec![], LimitMode::Enforce).unwrap();
        let logs = vec![OwnedBucket { limit, key: SubjectKey([1; 16]) }];
        let generation = HitId([3; 6]);
        let returned = || {
            all.begin_return();
            all.end_return(generation);
            all.term().unwrap()
        };
        let first = returned();
        all.end_term(first);
        let term = returned();
        let begin = |term| all.begin(term, (HitId([1; 6]), Micros(1), &logs));
        assert!(begin(first).is_none(), "the record may have decided meanwhile");
        all.end_term(first);
        let ticket = begin(term).expect("another term has ended");
        all.leave_store();
        assert!(begin(term).is_none());
        assert_eq!(all.begin_return().len(), 1, "what is in flight is written");
        let ended = tokio::spawn(ticket.end());
        tokio::time::sleep(2 * RETURNS_SOON).await;
        assert!(!ended.is_finished(), "it would be given back before it is written");
        all.end_return(HitId([2; 6]));
        assert!(ended.await.unwrap(), "the store may know of it");
        all.leave_store();
        assert!(all.begin_return().is_empty(), "no later return writes it");
    }
}
