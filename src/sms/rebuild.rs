//! Rebuilds the windows of messages and of wrong codes from the ledger, in a store that has lost them.

use super::ledger::{Ledger, LedgerPosition};
use super::watched::{MessageKeys, SmsLimits};
use crate::clock::Micros;
use crate::db::DbError;
use crate::throttle::{self, AnyStore, Bucket, HitId, KeptHit, Limiter, StoreState, WindowRecord};

/// Rows read at once: a page of the ledger, a few scripts of the store.
const PAGE: u32 = 250;

/// The name in the store for all windows of messages, used to mark them as complete.
pub const MARK: &str = "sms";

pub type LedgerRebuildError = throttle::RebuildError<DbError>;

pub struct LedgerRebuild {
    limiter: Limiter<AnyStore>,
    ledger: Ledger,
    rebuild: throttle::WindowRebuild<AnyStore>,
}

/// The ledger, for the limits of one moment.
struct RecordedMessages<'a> {
    limiter: &'a Limiter<AnyStore>,
    ledger: &'a Ledger,
    watched: &'a SmsLimits,
}

impl LedgerRebuild {
    pub fn new(limiter: Limiter<AnyStore>, ledger: Ledger) -> Self {
        let rebuild = throttle::WindowRebuild::new(limiter.clone(), MARK, ledger.clock().clone());
        Self { limiter, ledger, rebuild }
    }

    /// Completes the store's windows if necessary; returns the rebuild generation.
    pub async fn run(&self, watched: &SmsLimits) -> Result<HitId, LedgerRebuildError> {
        let recorded = RecordedMessages { limiter: &self.limiter, ledger: &self.ledger, watched };
        self.rebuild.run(&watched.shape(), &recorded).await
    }
}

impl WindowRecord for RecordedMessages<'_> {
    type Error = DbError;

    /// Every message and every wrong code that a window can still count, newest first.
    async fn restore(&self, found: StoreState) -> Result<usize, LedgerRebuildError> {
        let Self { ledger, watched, .. } = self;
        if found == StoreState::Marked {
            return Ok(0);
        }
        let horizon = watched.horizon(ledger.now().await.map_err(LedgerRebuildError::Record)?);
        Ok(self.restore_guesses(horizon).await? + self.restore_messages(horizon).await?)
    }
}

impl RecordedMessages<'_> {
    async fn restore_guesses(&self, horizon: Micros) -> Result<usize, LedgerRebuildError> {
        let Self { limiter, ledger, watched } = self;
        let (mut place, mut guesses) = (LedgerPosition::NEWEST, 0);
        loop {
            let page =
                ledger.wrong_guesses(horizon, &place, PAGE).await.map_err(LedgerRebuildError::Record)?;
            let bucket = |key| Bucket { limit: &watched.guess, key };
            let hits: Vec<_> = page.iter().map(|guess| (bucket(guess.log), guess.kept)).collect();
            limiter.restore(&hits).await?;
            guesses += page.len();
            match page.into_iter().last() {
                Some(last) if hits.len() == PAGE as usize => place = last.place,
                _ => return Ok(guesses),
            }
        }
    }

    async fn restore_messages(&self, horizon: Micros) -> Result<usize, LedgerRebuildError> {
        let Self { limiter, ledger, watched } = self;
        let (mut place, mut messages) = (LedgerPosition::NEWEST, 0);
        loop {
            let page = ledger.hits(horizon, &place, PAGE).await.map_err(LedgerRebuildError::Record)?;
            let Some(last) = page.last() else { return Ok(messages) };
            place = last.place.clone();
            messages += page.len();
            let waived = ledger.waived().await.map_err(LedgerRebuildError::Record)?;
            let mut hits = Vec::with_capacity(8 * page.len());
            for row in &page {
                let subjects = [row.phone, row.address, row.network];
                let program = row.purpose.program();
                let keys = MessageKeys::new(limiter, watched, subjects, row.once, &row.block, program);
                let kept = KeptHit { at: row.place.at, id: row.hit };
                let mut counted = watched.all(&keys, row.share);
                counted.retain(|bucket| waived.get(&bucket.key).is_none_or(|up_to| kept.at > *up_to));
                hits.extend(counted.into_iter().map(|bucket| (bucket, kept)));
            }
            limiter.restore(&hits).await?;
            if page.len() < PAGE as usize {
                return Ok(messages);
            }
        }
    }
}
