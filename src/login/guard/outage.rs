//! Decides on attempts while the window store is out or incomplete: everybody is challenged, and the record
//! of failures in the database decides, together with what this process has in flight. The instances see each
//! other's failures there, and each assumes that the others have as many in flight: together they verify at
//! most one more each than a single instance would.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gatehouse_limiter::window::{GatheredVerdict, TimesLog};
use gatehouse_limiter::{
    Bucket, HitId, HoldDecision, Limit, MemoryStore, OwnedBucket, RebuildError, Refusal, StoreError,
    StoreState, UnclaimedHold, WindowRecord, WindowStore, window,
};

use super::counting::{CountingMode, GuardedLogin, OWN};
use super::failure_record::RecordedFailure;
use super::slot::{AttemptSlot, HeldInOutage, InFlightTicket, NotYet, SlotHold};
use super::{ASKED, GuardAdmission, GuardRequest, LoginGuard, refused, stricter};
use crate::clock::Micros;
use crate::config::Limits;
use crate::db::DbError;

/// How long an attempt without a slot waits before it reads the record again, because another instance may
/// have freed one.
const READ_AGAIN: Duration = Duration::from_millis(200);

enum RecordDecision {
    Allowed(InFlightTicket, Micros),
    Refused(Refusal),
    /// It did not answer, or not in time.
    Busy,
    /// The store decides again.
    StoreIsBack,
}

impl LoginGuard {
    /// None: the store decides again.
    pub(super) async fn admit_in_outage(
        &self,
        limits: &Limits,
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> Option<GuardAdmission> {
        let buckets = mode.buckets(&self.limiter, limits, who);
        let (own, others) = buckets.split_first().expect("the own log stands first");
        let elsewhere = match self.hold_elsewhere(others, who, mode).await {
            Ok(hold) => hold,
            Err(admission) => return Some(admission),
        };
        // Nobody signs in without a challenge while the real windows cannot be read, but for known devices that
        // cannot be shown one.
        let known = mode.device().is_some() && !who.means.challenges;
        let decision = if who.solved || known {
            let buckets: Vec<OwnedBucket> = buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
            let id = self.limiter.fresh_id();
            let asking = self.ask_record(id, own.limit, &buckets, who.solved);
            match tokio::time::timeout(who.means.patience, asking).await {
                Ok(Ok(RecordDecision::Allowed(ticket, at))) => {
                    let elsewhere = elsewhere.map(|hold| Box::new(hold.claim()));
                    let limiter = self.limiter.clone();
                    let hold = SlotHold::Outage(HeldInOutage { id, at, buckets, elsewhere, limiter });
                    let failures = self.failures.clone();
                    return Some(GuardAdmission::Held(AttemptSlot { hold, mode, ticket, failures }));
                }
                Ok(Ok(decision)) => decision,
                Ok(Err(_)) | Err(_) => RecordDecision::Busy,
            }
        } else {
            RecordDecision::Refused(ASKED)
        };
        if let Some(hold) = elsewhere {
            let _ = hold.refund().await;
        }
        match decision {
            RecordDecision::Refused(refusal) => Some(refused(who.guarded, mode, refusal)),
            RecordDecision::Busy => Some(GuardAdmission::Busy),
            RecordDecision::Allowed(..) | RecordDecision::StoreIsBack => None,
        }
    }

    /// The logs of address and network in this process, with half the limits.
    async fn hold_elsewhere(
        &self,
        others: &[Bucket<'_>],
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> Result<Option<UnclaimedHold<MemoryStore>>, GuardAdmission> {
        let others: Vec<OwnedBucket> = others
            .iter()
            .map(|bucket| OwnedBucket { limit: stricter(bucket.limit), key: bucket.key })
            .collect();
        let buckets: Vec<Bucket<'_>> = others.iter().map(OwnedBucket::borrow).collect();
        if buckets.is_empty() {
            return Ok(None);
        }
        match self.local_fallback.hold(&buckets, who.solved, who.means.patience).await {
            Ok(HoldDecision::Held(hold)) => Ok(Some(UnclaimedHold::new(hold))),
            Ok(HoldDecision::Refused(refusal)) => {
                Err(refused(who.guarded, mode, Refusal { bucket: refusal.bucket + 1, ..refusal }))
            }
            Ok(HoldDecision::OutOfPatience) | Err(_) => Err(GuardAdmission::Busy),
        }
    }

    async fn ask_record(
        &self,
        id: HitId,
        limit: &Limit,
        buckets: &[OwnedBucket],
        solved: bool,
    ) -> Result<RecordDecision, DbError> {
        // A failure that cannot be written would count nowhere.
        self.failures.writable()?;
        loop {
            let mut ended = self.in_flight.ended();
            let now = self.failures.now().await?;
            let horizon = window::horizon(limit.rules(), now);
            let times = self.failures.newest(buckets[OWN].key, horizon, limit.capacity()).await?;
            let instances = self.failures.live_instances(now).await?;
            let evaluate = |holds| {
                let mut gathered = GatheredVerdict::default();
                gathered.add(OWN, limit, &TimesLog { times: &times, holds }, now, solved);
                gathered
            };
            if let Some(refusal) = evaluate(0).refused() {
                return Ok(RecordDecision::Refused(refusal));
            }
            // Assumes that each other instance has as many in flight.
            let fits = |in_flight: u32| evaluate(in_flight.saturating_mul(instances)).held.is_none();
            match self.in_flight.begin_by_record((id, now, buckets), &ended, fits) {
                Ok(ticket) => return Ok(RecordDecision::Allowed(ticket, now)),
                Err(NotYet::Returning) if self.in_flight.generation().is_some() => {
                    return Ok(RecordDecision::StoreIsBack);
                }
                Err(NotYet::Returning) => self.in_flight.returned().await,
                Err(NotYet::Stale) => tokio::task::yield_now().await,
                Err(NotYet::Full) => drop(tokio::time::timeout(READ_AGAIN, ended.changed()).await),
            }
        }
    }
}

// The return to the window store: what it lacks is written to it from the record of failures and from the
// attempts in flight here, before it decides again. An instance that was cut off does this even if the store
// has kept its data, because its own failures are missing there.

/// The name in the store for the windows of sign-ins, used to mark them as complete.
pub const NAME: &str = "sign-ins";
/// The same for all limits. A limit that is raised counts what the store has kept; another shape for each set
/// of limits would challenge everybody while two instances run different ones.
pub const SHAPE: &str = "";
/// Failures read at once: a page of the record, a few scripts of the store.
const PAGE: u32 = 250;
/// How long the attempt that starts a return waits for it. The return continues without it, and the attempt
/// is challenged.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much further back than necessary the record is read, for statements in progress and clock differences.
const MARGIN: Duration = Duration::from_secs(60);

struct RecordedFailures<'a> {
    guard: &'a LoginGuard,
    limits: &'a Limits,
}

impl LoginGuard {
    /// Lets the store decide again if possible; returns the rebuild generation. A caller that finds a return
    /// in progress does not wait for it.
    pub(super) async fn return_to_store(self: &Arc<Self>, limits: &Limits) -> Option<HitId> {
        if self.returning.swap(true, Ordering::SeqCst) {
            return None;
        }
        let (guard, limits) = (Arc::clone(self), limits.clone());
        let task = tokio::spawn(async move {
            let _returning = StoreReturn(&guard);
            guard.return_now(&limits).await
        });
        tokio::time::timeout(PATIENCE, task).await.ok()?.ok()?
    }

    /// The same, unless the store decides already, so that no sign-in has to start it.
    pub async fn rebuild_if_lost(self: &Arc<Self>, limits: &Limits) {
        if self.in_flight.generation().is_none() {
            self.return_to_store(limits).await;
        }
    }

    async fn return_now(&self, limits: &Limits) -> Option<HitId> {
        match self.rebuild.run(SHAPE, &RecordedFailures { guard: self, limits }).await {
            Ok(generation) => {
                self.in_flight.end_return(generation);
                return Some(generation);
            }
            Err(
                RebuildError::Store(StoreError::Down | StoreError::TimedOut) | RebuildError::FailedLately,
            ) => {}
            Err(error) => {
                tracing::warn!(%error, "the windows of sign-ins are incomplete; everybody needs a CAPTCHA until they are rebuilt");
            }
        }
        None
    }

    /// Deletes failures that no window counts any more; returns how many.
    pub async fn purge(&self, limits: &Limits, batch: u32) -> Result<u64, DbError> {
        let horizon = horizon(limits, self.failures.now().await?);
        self.failures.purge(horizon.minus(MARGIN), batch).await
    }
}

/// However it ends, another return may be tried.
struct StoreReturn<'g>(&'g LoginGuard);

impl Drop for StoreReturn<'_> {
    fn drop(&mut self) {
        self.0.in_flight.give_up_return();
        self.0.returning.store(false, Ordering::SeqCst);
    }
}

impl WindowRecord for RecordedFailures<'_> {
    type Error = DbError;

    async fn restore(&self, found: StoreState) -> Result<usize, RebuildError<DbError>> {
        let LoginGuard { limiter, failures, in_flight, .. } = self.guard;
        let begun = failures.now().await.map_err(RebuildError::Record)?;
        let horizon = horizon(self.limits, begun);
        let missed = begun.minus(in_flight.away_for()).minus(MARGIN);
        // Most of it is written while the record still decides.
        let from = if found == StoreState::Lost { horizon } else { horizon.max(missed) };
        let mut entries = self.restore_since(from).await?;
        // In flight first: an attempt is in the record before it stops being in flight.
        let in_flight = in_flight.begin_return();
        let hits: Vec<_> = in_flight.iter().map(|(bucket, kept)| (bucket.borrow(), *kept)).collect();
        limiter.store().restore(&hits).await?;
        entries += self.restore_since(begun.minus(MARGIN)).await?;
        Ok(entries)
    }
}

impl RecordedFailures<'_> {
    /// Restores every failure after that time, newest first.
    async fn restore_since(&self, from: Micros) -> Result<usize, RebuildError<DbError>> {
        let LoginGuard { limiter, failures, .. } = self.guard;
        let (mut last, mut entries) = (None, 0);
        loop {
            let page = failures.page(from, last, PAGE).await.map_err(RebuildError::Record)?;
            let Some(oldest) = page.last() else { return Ok(entries) };
            last = Some(oldest.kept);
            entries += page.len();
            let counted = |failure: &RecordedFailure| {
                let kept = failure.kept;
                let limits =
                    failure.logs.iter().filter_map(|(name, key)| Some((self.limits.get(name)?, *key)));
                limits.map(move |(limit, key)| (Bucket { limit, key }, kept)).collect::<Vec<_>>()
            };
            let hits: Vec<_> = page.iter().flat_map(counted).collect();
            limiter.store().restore(&hits).await?;
            if page.len() < PAGE as usize {
                return Ok(entries);
            }
        }
    }
}

/// The longest that any window of sign-ins looks back from `now`.
fn horizon(limits: &Limits, now: Micros) -> Micros {
    let logins = [GuardedLogin::Own, GuardedLogin::Realm];
    let limits = logins.into_iter().flat_map(|login| login.limits(limits));
    window::horizon(limits.flat_map(|limit| limit.rules()), now)
}
