//! Rebuilds windows that a store has lost from a record elsewhere. The store keeps a mark, the rebuild
//! generation, that says which rebuild completed its windows; the mark is lost with the rest of the data.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::clock::{Clock, Micros};
use crate::limiter::Limiter;
use crate::store::{HitId, StoreError, WindowStore};

/// How often a rebuild starts again if the store loses its data during it.
const MOST_TRIES: usize = 3;
/// How long a record that failed is not read again: this long the first time, doubled with each failure, and
/// at most a minute, so that the rebuild succeeds soon after the record works again. A store that reads and does
/// not write (its disk is full, its replica is away), or whose clock is ahead, is asked again after the first rest each
/// time: it can be like that for long, and nothing else notices that it is over.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);
/// How far the store's clock may be ahead of the record's. By one that is further ahead, hits that still count would be
/// left out as too old. One that is behind counts them for longer.
const AHEAD_AT_MOST: Duration = Duration::from_secs(60);
/// A rebuild that takes longer says so.
const MOMENT: Duration = Duration::from_millis(500);

/// What windows are rebuilt from.
pub trait WindowRecord: Sync {
    /// Why the record cannot be read.
    type Error: Send;

    /// The time that its entries are recorded by.
    fn now(&self) -> impl Future<Output = Result<Micros, Self::Error>> + Send;

    /// Writes the missing entries into the store and returns how many there were. Harmless if repeated.
    fn restore(
        &self,
        found: StoreState,
    ) -> impl Future<Output = Result<usize, RebuildError<Self::Error>>> + Send;
}

/// The state in which the store's windows were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreState {
    /// They are marked as complete: an earlier rebuild finished, and the data has been there since.
    Marked,
    /// The mark is missing, and with it data.
    Lost,
}

/// Why windows were not rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError<E> {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The record failed.
    #[error("its record in the database failed: {0}")]
    Record(E),
    /// The store's clock is ahead of the record's: its windows would be short of what they must count.
    #[error("the window store's clock is {} ahead of its record's in the database; set the clocks", humantime::format_duration(Duration::from_secs(.by.as_secs())))]
    ClockAhead {
        /// How far.
        by: Duration,
    },
    /// The store lost its data again and again.
    #[error("the window store loses its data as fast as it is rebuilt")]
    LostAgain,
    /// Another caller's run failed, and this one had waited for it or came soon after; or the store refuses as it
    /// did before.
    #[error("a rebuild failed a moment ago")]
    FailedLately,
}

/// Rebuilds the windows of one name.
pub struct WindowRebuild<S> {
    limiter: Limiter<S>,
    name: &'static str,
    clock: Clock,
    turn: Mutex<RebuildBackoff>,
    /// Runs in this process that have failed so far.
    failed: AtomicU64,
    /// How far the store's clock was ahead at the last run, in seconds; 0 if that did not end it.
    ahead: AtomicU64,
}

impl<S: WindowStore + 'static> WindowRebuild<S> {
    /// Rebuilds the windows that the store knows by `name`.
    pub fn new(limiter: Limiter<S>, name: &'static str, clock: Clock) -> Self {
        let (failed, ahead) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { limiter, name, clock, turn: Mutex::default(), failed, ahead }
    }

    /// How far the store's clock was ahead of the record's, if that is why the last run rebuilt nothing. Windows that were
    /// lost stay lost until the clocks are set, and [`run`](Self::run) tells the reason only once.
    pub fn clock_ahead(&self) -> Option<Duration> {
        let by = self.ahead.load(Ordering::Relaxed);
        (by > 0).then(|| Duration::from_secs(by))
    }

    /// The rebuild generation in which the windows are complete; see [`WindowStore::rebuild_generation`].
    async fn generation(&self, shape: &str) -> Result<Option<HitId>, StoreError> {
        self.limiter.store().rebuild_generation(self.name, shape).await
    }

    /// Rebuilds the windows if they are incomplete and returns the rebuild generation. Runs once at a time in
    /// this process, and a failure fails everybody who waited for it. Two instances that run at once write
    /// the same.
    pub async fn run<R: WindowRecord>(
        &self,
        shape: &str,
        record: &R,
    ) -> Result<HitId, RebuildError<R::Error>> {
        let failed = self.failed.load(Ordering::SeqCst);
        let mut rest = self.turn.lock().await;
        let now = self.clock.now();
        if self.failed.load(Ordering::SeqCst) != failed || rest.lasts_at(now) {
            return Err(RebuildError::FailedLately);
        }
        let done = self.rebuild_windows(shape, record).await;
        if done.is_err() {
            self.failed.fetch_add(1, Ordering::SeqCst);
        }
        let ahead = if let Err(RebuildError::ClockAhead { by }) = &done { by.as_secs() } else { 0 };
        self.ahead.store(ahead, Ordering::Relaxed);
        match &done {
            Ok(_) => *rest = RebuildBackoff::default(),
            // A store that is out ends the next run at its first call.
            Err(RebuildError::Store(StoreError::Down | StoreError::TimedOut)) => {}
            Err(RebuildError::Store(StoreError::Broken(_)) | RebuildError::ClockAhead { .. }) => {
                let known = rest.refused;
                *rest = RebuildBackoff::of_store(self.clock.now());
                if known {
                    return Err(RebuildError::FailedLately);
                }
            }
            Err(_) => *rest = rest.longer(self.clock.now()),
        }
        done
    }

    async fn rebuild_windows<R: WindowRecord>(
        &self,
        shape: &str,
        record: &R,
    ) -> Result<HitId, RebuildError<R::Error>> {
        for _ in 0..MOST_TRIES {
            if let Some(generation) = self.generation(shape).await? {
                if record.restore(StoreState::Marked).await? == 0
                    || self.generation(shape).await? == Some(generation)
                {
                    return Ok(generation);
                }
                continue;
            }
            let generation = self.limiter.fresh_id();
            let theirs = self.limiter.store().begin_rebuild(self.name, generation).await?;
            let by = theirs.since(record.now().await.map_err(RebuildError::Record)?);
            if by > AHEAD_AT_MOST {
                return Err(RebuildError::ClockAhead { by });
            }
            let mut restoring = pin!(record.restore(StoreState::Lost));
            let entries = match timeout(MOMENT, &mut restoring).await {
                Ok(entries) => entries?,
                Err(_) => {
                    tracing::info!(windows = self.name, "windows are being rebuilt from their record");
                    restoring.await?
                }
            };
            // A store that is full may have evicted some while it took the others.
            if self.limiter.store().finish_rebuild(self.name, shape, generation).await?
                && self.generation(shape).await? == Some(generation)
            {
                tracing::info!(windows = self.name, entries, "windows were rebuilt from their record");
                return Ok(generation);
            }
        }
        Err(RebuildError::LostAgain)
    }
}

/// How long a record that failed is left alone.
#[derive(Default)]
struct RebuildBackoff {
    failures: u32,
    until: Option<Micros>,
    /// The last of them was the store's refusal, or its clock.
    refused: bool,
}

impl RebuildBackoff {
    /// A pause that ends further ahead than any pause lasts began before the clock stepped back.
    fn lasts_at(&self, now: Micros) -> bool {
        self.until.is_some_and(|until| now < until && until.since(now) <= LONGEST_REST)
    }

    fn of_store(now: Micros) -> Self {
        Self { refused: true, ..Self::default().longer(now) }
    }

    fn longer(&self, now: Micros) -> Self {
        let rest = FIRST_REST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_REST);
        Self { failures: self.failures.saturating_add(1), until: Some(now.plus(rest)), refused: false }
    }
}

#[cfg(test)]
mod tests;
