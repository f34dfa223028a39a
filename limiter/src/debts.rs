//! What is to be taken back from a store that did not answer: it is tried again until the store answers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::limiter::LimiterInner;
use crate::store::{Bucket, HitId, HoldOutcome, OwnedBucket, WindowStore};
use crate::window::HOLD_LIFE;

/// The most that one limiter owes. Past it the oldest is given up: its hold counts as a failure.
const MOST_OWED: usize = 4096;
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// A call on a connection that was lost may be on its way still, and be carried out after it was taken back. So
/// everything is taken back once more.
const AGAIN_AFTER: Duration = if cfg!(test) { RETRY_EVERY } else { Duration::from_secs(5) };

/// What a limiter owes to its store.
#[derive(Default)]
pub(crate) struct Debts {
    owed: Mutex<VecDeque<Debt>>,
    /// A task is paying.
    paying: AtomicBool,
}

/// A settlement that takes back a hold or a hit; harmless if repeated.
struct Debt {
    buckets: Vec<OwnedBucket>,
    id: HitId,
    outcomes: Vec<HoldOutcome>,
    due: Instant,
    /// Nothing counts it any more.
    until: Instant,
    is_paid: bool,
}

impl Debt {
    /// What has to be settled again. Returns None if every bucket keeps the hold: one that nobody settles counts by itself.
    fn new(buckets: &[Bucket<'_>], id: HitId, outcomes: &[HoldOutcome]) -> Option<Self> {
        let taken = buckets.iter().zip(outcomes).filter(|(_, outcome)| **outcome != HoldOutcome::Keep);
        let (buckets, outcomes): (Vec<_>, Vec<_>) =
            taken.map(|(bucket, outcome)| (Bucket::to_owned(*bucket), *outcome)).unzip();
        let longest = buckets.iter().map(|bucket: &OwnedBucket| bucket.limit.longest_window()).max()?;
        let now = Instant::now();
        let until = now + longest.max(HOLD_LIFE);
        Some(Self { buckets, id, outcomes, due: now, until, is_paid: false })
    }
}

impl<S: WindowStore + 'static> LimiterInner<S> {
    /// The store did not answer this settlement.
    pub(crate) fn owe(self: &Arc<Self>, buckets: &[Bucket<'_>], id: HitId, outcomes: &[HoldOutcome]) {
        if let Some(debt) = Debt::new(buckets, id, outcomes) {
            self.owe_as(debt);
        }
    }

    /// It did answer, but what is taken back may come after all.
    pub(crate) fn owe_again(self: &Arc<Self>, buckets: &[Bucket<'_>], id: HitId) {
        if let Some(debt) = Debt::new(buckets, id, &vec![HoldOutcome::Refund; buckets.len()]) {
            self.owe_as(Debt { due: debt.due + AGAIN_AFTER, is_paid: true, ..debt });
        }
    }

    fn owe_as(self: &Arc<Self>, debt: Debt) {
        // Without a runtime the program is about to end.
        let Ok(runtime) = Handle::try_current() else { return };
        let mut owed = self.debts.owed.lock();
        if owed.len() == MOST_OWED {
            owed.pop_front();
        }
        owed.push_back(debt);
        if !self.debts.paying.swap(true, Ordering::SeqCst) {
            runtime.spawn(pay(Payer(Arc::downgrade(self))));
        }
    }

    /// Until nothing is due, or the store does not answer.
    async fn pay_due(&self) {
        while let Some(debt) = self.debts.next() {
            let buckets: Vec<Bucket<'_>> = debt.buckets.iter().map(OwnedBucket::borrow).collect();
            let paid = self.settle_once(&buckets, debt.id, &debt.outcomes, false).await.is_ok();
            let now = Instant::now();
            match (paid, debt.is_paid) {
                (true, true) => {}
                (true, false) => {
                    self.debts.owed.lock().push_back(Debt { due: now + AGAIN_AFTER, is_paid: true, ..debt });
                }
                (false, _) => {
                    self.debts.owed.lock().push_back(Debt { due: now + RETRY_EVERY, ..debt });
                    return;
                }
            }
        }
    }
}

impl Debts {
    /// Takes out the next that is due.
    fn next(&self) -> Option<Debt> {
        let (mut owed, now) = (self.owed.lock(), Instant::now());
        owed.retain(|debt| now < debt.until);
        let due = owed.iter().position(|debt| debt.due <= now)?;
        owed.remove(due)
    }

    /// Whether none is left; then nobody pays.
    fn are_paid(&self) -> bool {
        let owed = self.owed.lock();
        if owed.is_empty() {
            // Under the lock, so that whoever adds the next one sees it.
            self.paying.store(false, Ordering::SeqCst);
        }
        owed.is_empty()
    }
}

/// The task that settles debts. If its runtime ends, the next debt starts another.
struct Payer<S: WindowStore + 'static>(Weak<LimiterInner<S>>);

impl<S: WindowStore + 'static> Drop for Payer<S> {
    fn drop(&mut self) {
        if let Some(limiter) = self.0.upgrade() {
            limiter.debts.paying.store(false, Ordering::SeqCst);
        }
    }
}

/// Ends with the last debt, or with the limiter.
async fn pay<S: WindowStore + 'static>(payer: Payer<S>) {
    while let Some(limiter) = payer.0.upgrade() {
        limiter.pay_due().await;
        if limiter.debts.are_paid() {
            return;
        }
        drop(limiter);
        sleep(RETRY_EVERY).await;
    }
}

#[cfg(test)]
mod tests;
