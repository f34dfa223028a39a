//! The return to the window store: what it lacks is written to it from the record of failures and from the
//! attempts in flight here, before it decides again. An instance that was cut off does this even if the store
//! has kept its data, because its own failures are missing there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gatehouse_limiter::{
    Bucket, CompleteWindows, HitId, RebuildError, StoreError, StoreState, WindowRecord, WindowStore, window,
};

use super::LoginGuard;
use super::counting::{GuardLimits, GuardedLogin};
use super::failure_record::RecordedFailure;
use super::slot::StoreTerm;
use crate::clock::Micros;
use crate::config::Limits;
use crate::db::DbError;

/// The name in the store for the windows of sign-ins, used to mark them as complete.
pub const NAME: &str = "sign-ins";
/// The shape of the windows of all limits. A limit that is raised counts what the store has kept; another shape for
/// each set of limits would challenge everybody while two instances run different ones.
const SHAPE: &str = "";

pub(super) const fn windows(generation: HitId) -> CompleteWindows<'static> {
    CompleteWindows { name: NAME, shape: SHAPE, generation }
}

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
    /// Lets the store decide again if possible. A caller that finds a return
    /// in progress does not wait for it.
    pub(super) async fn return_to_store(self: &Arc<Self>, limits: &Limits) -> Option<StoreTerm> {
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

    /// Rebuilds the windows, unless the store decides already and has all of its windows, so that no sign-in has to
    /// start it.
    pub async fn rebuild_if_lost(self: &Arc<Self>, limits: &Limits) {
        if let Some(term) = self.in_flight.term() {
            match self.limiter.store().rebuild_generation(NAME, SHAPE).await {
                Ok(found) if found != Some(term.generation) => self.in_flight.end_term(term),
                // If it is out, the attempts notice.
                Ok(_) | Err(_) => return,
            }
        }
        self.return_to_store(limits).await;
    }

    async fn return_now(&self, limits: &Limits) -> Option<StoreTerm> {
        // Another return ended a moment ago. A second one would write attempts that the store has, and that may end
        // meanwhile, as failures.
        if let Some(term) = self.in_flight.term() {
            return Some(term);
        }
        match self.rebuild.run(SHAPE, &RecordedFailures { guard: self, limits }).await {
            Ok(generation) => {
                self.in_flight.end_return(generation);
                return self.in_flight.term();
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
        let now = self.failures.now().await?;
        // There are few of factors, which are looked back at for longer.
        let passwords = horizon(&[GuardedLogin::Own, GuardedLogin::Realm], limits, now);
        let factors = horizon(&[GuardedLogin::Factor], limits, now);
        self.failures.purge(passwords.minus(MARGIN), factors.minus(MARGIN), batch).await
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

    async fn now(&self) -> Result<Micros, DbError> {
        self.guard.failures.now().await
    }

    async fn restore(&self, found: StoreState) -> Result<usize, RebuildError<DbError>> {
        let LoginGuard { limiter, failures, in_flight, .. } = self.guard;
        let begun = failures.now().await.map_err(RebuildError::Record)?;
        let horizon = horizon(&ALL, self.limits, begun);
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

const ALL: [GuardedLogin; 3] = [GuardedLogin::Own, GuardedLogin::Factor, GuardedLogin::Realm];

/// The longest that any window of these logins looks back from `now`.
fn horizon(logins: &[GuardedLogin], limits: &Limits, now: Micros) -> Micros {
    let limits = logins.iter().flat_map(|login| {
        let GuardLimits { account, shared, device } = login.limits(limits);
        [account, device].into_iter().chain(shared.into_iter().flatten())
    });
    window::horizon(limits.flat_map(|limit| limit.rules()), now)
}
