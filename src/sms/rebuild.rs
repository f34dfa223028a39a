//! Writes the windows of messages back into a store that has lost them, from the ledger.

use tokio::sync::Mutex;

use super::budgets::{Keys, MARK, Watched};
use super::ledger::{Ledger, Place};
use crate::db::DbError;
use crate::throttle::{AnyStore, HitId, Kept, Limiter, StoreError};

/// The subject of the budget that everyone shares.
pub const EVERYONE: &[u8] = b"everyone";
/// Messages read at once: a page of the ledger, a few scripts of the store.
const PAGE: u32 = 250;
/// A store that loses its data again while it is written back is given so many chances.
const MOST_TRIES: usize = 3;

pub struct Rebuild {
    limiter: Limiter<AnyStore>,
    ledger: Ledger,
    turn: Mutex<()>,
}

#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("the window store loses its data as fast as it is written back")]
    LostAgain,
}

impl Rebuild {
    pub fn new(limiter: Limiter<AnyStore>, ledger: Ledger) -> Self {
        Self { limiter, ledger, turn: Mutex::default() }
    }

    /// Makes the store whole, unless it is; by which writing back. One at a time in this process; two
    /// instances that do it at once write the same.
    pub async fn run(&self, watched: &Watched) -> Result<HitId, RebuildError> {
        let _turn = self.turn.lock().await;
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
                let counted = watched.buckets(&keys).into_iter();
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
