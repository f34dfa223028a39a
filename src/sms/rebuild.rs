//! Writes the windows of messages back into a store that has lost them, from the ledger.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

use super::budgets::MARK;
use super::ledger::{Ledger, Place};
use super::watched::{Keys, Watched};
use crate::clock::Micros;
use crate::db::DbError;
use crate::throttle::{AnyStore, HitId, Kept, Limiter, StoreError};

/// Messages read at once: a page of the ledger, a few scripts of the store.
const PAGE: u32 = 250;
/// A store that loses its data again while it is written back is given so many chances.
const MOST_TRIES: usize = 3;
/// How long a ledger that failed is left alone: so long the first time, twice as long each time after it, and
/// never longer than a minute, so that messages go out again soon after it is mended.
const FIRST_REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(60);

pub struct Rebuild {
    limiter: Limiter<AnyStore>,
    ledger: Ledger,
    turn: Mutex<Rest>,
    /// Runs of this process that failed so far.
    failed: AtomicU64,
}

/// How a ledger that failed is spared.
#[derive(Default)]
struct Rest {
    /// Failures without a success between them.
    failures: u32,
    until: Option<Micros>,
}

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("the window store loses its data as fast as it is written back")]
    LostAgain,
    /// Another's run failed, and this one had waited for it or came soon after.
    #[error("a writing back failed a moment ago")]
    FailedLately,
}

impl Rebuild {
    pub fn new(limiter: Limiter<AnyStore>, ledger: Ledger) -> Self {
        Self { limiter, ledger, turn: Mutex::default(), failed: AtomicU64::new(0) }
    }

    /// Makes the store whole, unless it is; by which writing back. One at a time in this process, and what
    /// fails fails for all who waited for it; two instances that do it at once write the same.
    pub async fn run(&self, watched: &Watched) -> Result<HitId, RebuildError> {
        let failed = self.failed.load(Ordering::SeqCst);
        let mut rest = self.turn.lock().await;
        let now = self.ledger.clock().now();
        if self.failed.load(Ordering::SeqCst) != failed || rest.lasts_at(now) {
            return Err(RebuildError::FailedLately);
        }
        let done = self.make_whole(watched).await;
        match &done {
            Ok(_) => *rest = Rest::default(),
            Err(error) => {
                self.failed.fetch_add(1, Ordering::SeqCst);
                // The store is asked first, and where it is out the next run ends there.
                if let RebuildError::Db(_) = error {
                    *rest = rest.longer(self.ledger.clock().now());
                }
            }
        }
        done
    }

    async fn make_whole(&self, watched: &Watched) -> Result<HitId, RebuildError> {
        let shape = watched.shape();
        if let Some(by) = self.limiter.whole_by(MARK, &shape).await? {
            return Ok(by);
        }
        for _ in 0..MOST_TRIES {
            let by = self.limiter.begin_whole(MARK).await?;
            let messages = self.write_back(watched).await?;
            if self.limiter.set_whole(MARK, &shape, by).await? {
                tracing::info!(messages, "the windows of messages were written back from the ledger");
                return Ok(by);
            }
        }
        Err(RebuildError::LostAgain)
    }

    /// Every message that some window can still see, newest first.
    async fn write_back(&self, watched: &Watched) -> Result<usize, RebuildError> {
        let horizon = watched.horizon(self.ledger.now().await?);
        let (mut place, mut messages) = (Place::NEWEST, 0);
        loop {
            let page = self.ledger.hits(horizon, &place, PAGE).await?;
            let Some(last) = page.last() else { return Ok(messages) };
            place = last.place.clone();
            messages += page.len();
            let mut hits = Vec::with_capacity(6 * page.len());
            for row in &page {
                let keys = Keys::of_row(&self.limiter, watched, row);
                let kept = Kept { at: row.place.at, id: row.hit };
                let counted = watched.all(&keys, row.share).into_iter();
                let counted = counted.filter(|bucket| !(row.excused && bucket.key == keys.phone));
                hits.extend(counted.map(|bucket| (bucket, kept)));
            }
            self.limiter.restore(&hits).await?;
            if page.len() < PAGE as usize {
                return Ok(messages);
            }
        }
    }
}

impl Rest {
    /// One that lies further ahead than any rest does was begun before the clock stepped back.
    fn lasts_at(&self, now: Micros) -> bool {
        self.until.is_some_and(|until| now < until && until.since(now) <= LONGEST_REST)
    }

    fn longer(&self, now: Micros) -> Self {
        let rest = FIRST_REST.saturating_mul(2_u32.saturating_pow(self.failures)).min(LONGEST_REST);
        Self { failures: self.failures.saturating_add(1), until: Some(now.plus(rest)) }
    }
}
