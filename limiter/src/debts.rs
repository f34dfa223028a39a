//! What is to be taken back from a store that did not answer: it is tried again until the store answers.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::limiter::LimiterInner;
use crate::store::{Bucket, HitId, HoldOutcome, OwnedBucket, WindowStore};
use crate::window::HOLD_LIFE;

/// The most that one limiter owes. Past it one is given up that was taken back once; if there is none, the oldest, and its
/// hold counts as a failure.
const MOST_OWED: usize = 4096;
const RETRY_EVERY: Duration = Duration::from_millis(250);
/// After so many calls without an answer the others wait as well. Until then they do not: in a cluster, those to the other
/// masters are answered.
const UNANSWERED: usize = 16;
/// A call on a connection that was lost may be on its way still, and be carried out after it was taken back. So
/// everything is taken back once more.
const AGAIN_AFTER: Duration = if cfg!(test) { RETRY_EVERY } else { Duration::from_secs(5) };

/// What a limiter owes to its store.
#[derive(Default)]
pub(crate) struct Debts(Mutex<DebtQueue>);

#[derive(Default)]
struct DebtQueue {
    owed: VecDeque<Debt>,
    /// A task is paying.
    has_payer: bool,
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
        if self.debts.add(debt) {
            runtime.spawn(pay(Payer { limiter: Arc::downgrade(self), has_finished: false }));
        }
    }

    /// Until nothing is due, or too many calls are not answered.
    async fn pay_due(&self) {
        let mut unanswered = 0;
        while unanswered < UNANSWERED
            && let Some(debt) = self.debts.next()
        {
            let buckets: Vec<Bucket<'_>> = debt.buckets.iter().map(OwnedBucket::borrow).collect();
            let paid = self.settle_once(&buckets, debt.id, &debt.outcomes, false).await.is_ok();
            let now = Instant::now();
            match (paid, debt.is_paid) {
                (true, true) => {}
                (true, false) => self.debts.put_back(Debt { due: now + AGAIN_AFTER, is_paid: true, ..debt }),
                (false, _) => {
                    self.debts.put_back(Debt { due: now + RETRY_EVERY, ..debt });
                    unanswered += 1;
                }
            }
        }
    }
}

impl Debts {
    /// Whether a task has to be started that pays.
    fn add(&self, debt: Debt) -> bool {
        let mut queue = self.0.lock();
        queue.push(debt);
        !mem::replace(&mut queue.has_payer, true)
    }

    fn put_back(&self, debt: Debt) {
        self.0.lock().push(debt);
    }

    /// Takes out the next that is due.
    fn next(&self) -> Option<Debt> {
        let (mut queue, now) = (self.0.lock(), Instant::now());
        queue.owed.retain(|debt| now < debt.until);
        let due = queue.owed.iter().position(|debt| debt.due <= now)?;
        queue.owed.remove(due)
    }

    /// Ends the task that pays if nothing is owed; the next debt starts another.
    fn finish_if_empty(&self) -> bool {
        let mut queue = self.0.lock();
        queue.has_payer = !queue.owed.is_empty();
        !queue.has_payer
    }
}

impl DebtQueue {
    fn push(&mut self, debt: Debt) {
        if self.owed.len() >= MOST_OWED {
            match self.owed.iter().position(|debt| debt.is_paid) {
                Some(paid) => drop(self.owed.remove(paid)),
                None if debt.is_paid => return,
                None => drop(self.owed.pop_front()),
            }
        }
        self.owed.push_back(debt);
    }
}

/// The task that settles debts. If its runtime ends, the next debt starts another.
struct Payer<S: WindowStore + 'static> {
    limiter: Weak<LimiterInner<S>>,
    has_finished: bool,
}

impl<S: WindowStore + 'static> Drop for Payer<S> {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.upgrade().filter(|_| !self.has_finished) {
            limiter.debts.0.lock().has_payer = false;
        }
    }
}

/// Ends with the last debt, or with the limiter.
async fn pay<S: WindowStore + 'static>(mut payer: Payer<S>) {
    while let Some(limiter) = payer.limiter.upgrade() {
        limiter.pay_due().await;
        if limiter.debts.finish_if_empty() {
            payer.has_finished = true;
            return;
        }
        drop(limiter);
        sleep(RETRY_EVERY).await;
    }
}

#[cfg(test)]
mod tests;
