//! Slots for what costs this process time, an image or a derivation: among those who wait, the owner that was served
//! least recently is next.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::fair_queue::{FairQueue, JobId, QueueOwner};

/// Clones share everything.
#[derive(Clone)]
pub struct Slots(Arc<Mutex<SlotBoard>>);

struct SlotBoard {
    free: usize,
    arrivals: u32,
    waiting: FairQueue<oneshot::Sender<Slot>>,
}

/// A slot, until this is dropped.
pub struct Slot(Option<Slots>);

/// A position in the queue, until this is dropped.
struct SlotPosition<'a> {
    slots: &'a Slots,
    owner: QueueOwner,
    id: JobId,
}

impl Slots {
    pub fn new(at_once: usize, most_waiting: usize) -> Self {
        let waiting = FairQueue::new(most_waiting);
        Self(Arc::new(Mutex::new(SlotBoard { free: at_once, arrivals: 0, waiting })))
    }

    /// Waits for a slot; None if there is no room to wait, or an owner that has fewer waiting, or somebody of the same
    /// with a lower rank, needed it. Of one owner's, those with the lowest `rank` are next; of these, who came first.
    pub async fn take(&self, owner: QueueOwner, rank: u32) -> Option<Slot> {
        let (slot, _waiting) = {
            let mut board = self.0.lock();
            if board.free > 0 {
                board.free -= 1;
                return Some(Slot(Some(self.clone())));
            }
            board.arrivals = board.arrivals.wrapping_add(1);
            let id = (JobId::from(rank) << 32) | JobId::from(board.arrivals);
            let (sender, slot) = oneshot::channel();
            board.waiting.push(owner, id, None, sender).ok()?;
            (slot, SlotPosition { slots: self, owner, id })
        };
        // Dropped without an answer if another needed the room.
        slot.await.ok()
    }

    /// Passes the slot to the next, or keeps it free.
    fn pass_on(self) {
        loop {
            let mut board = self.0.lock();
            let Some(next) = board.waiting.take() else {
                board.free += 1;
                return;
            };
            drop(board);
            match next.job.send(Slot(Some(self.clone()))) {
                Ok(()) => return,
                // The receiver is gone; the slot is still ours to pass on.
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

impl Slot {
    /// Does work off the async threads, and passes the slot on only when it has rested so long that it is `at_work` for
    /// this part of the time. It does so even if the caller leaves.
    pub async fn derive(self, at_work: f64, work: impl FnOnce() -> bool + Send + 'static) -> bool {
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let measured = tokio::task::spawn_blocking(move || {
                let start = now();
                (work(), start.elapsed())
            });
            let (outcome, worked) = measured.await.unwrap_or_default();
            let _ = tell.send(outcome);
            tokio::time::sleep(worked.mul_f64(1.0 / at_work - 1.0)).await;
            drop(self);
        });
        told.await.unwrap_or(false)
    }
}

#[expect(clippy::disallowed_methods, reason = "measures how long work takes, to bound its part of the time")]
fn now() -> Instant {
    Instant::now()
}

impl Drop for SlotPosition<'_> {
    fn drop(&mut self) {
        let left = self.slots.0.lock().waiting.remove(self.owner, self.id);
        drop(left);
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Turn<'a> = Pin<Box<dyn Future<Output = Option<Slot>> + 'a>>;

    fn wait(slots: &Slots, owner: u8, rank: u32) -> Turn<'_> {
        let mut turn: Turn<'_> = Box::pin(slots.take(QueueOwner::of(&[owner]), rank));
        assert!(poll(&mut turn).is_pending());
        turn
    }

    fn poll(turn: &mut Turn<'_>) -> Poll<Option<Slot>> {
        pin!(turn).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn next(turn: &mut Turn<'_>) -> Slot {
        let Poll::Ready(Some(slot)) = poll(turn) else { panic!("their turn") };
        slot
    }

    #[tokio::test]
    async fn who_was_served_least_recently_goes_first_and_of_equals_who_came_first() {
        let slots = Slots::new(1, 8);
        let busy = slots.take(QueueOwner::of(&[9]), 0).await.unwrap();
        let (mut greedy, mut again) = (wait(&slots, 1, 0), wait(&slots, 1, 0));
        let (mut one, mut two) = (wait(&slots, 2, 0), wait(&slots, 3, 0));
        drop(busy);
        drop(next(&mut greedy));
        drop(next(&mut one));
        assert!(poll(&mut again).is_pending());
        drop(next(&mut two));
        drop(next(&mut again));
    }

    #[tokio::test]
    async fn of_one_owners_who_had_least_goes_first() {
        let slots = Slots::new(1, 8);
        let busy = slots.take(QueueOwner::of(&[1]), 0).await.unwrap();
        let (mut busy_browser, mut quiet) = (wait(&slots, 1, 5), wait(&slots, 1, 0));
        drop(busy);
        drop(next(&mut quiet));
        drop(next(&mut busy_browser));
    }

    #[tokio::test]
    async fn who_comes_when_all_is_full_takes_the_place_of_who_has_more() {
        let slots = Slots::new(1, 2);
        let _busy = slots.take(QueueOwner::of(&[1]), 0).await.unwrap();
        let (mut first, mut second) = (wait(&slots, 1, 3), wait(&slots, 1, 7));
        assert!(slots.take(QueueOwner::of(&[1]), 7).await.is_none(), "who has as many does not");
        let _new = wait(&slots, 2, 0);
        assert!(matches!(poll(&mut second), Poll::Ready(None)));
        let _quiet = wait(&slots, 1, 0);
        assert!(matches!(poll(&mut first), Poll::Ready(None)), "of one owner's, who had more gives way");
    }

    #[tokio::test]
    async fn who_goes_away_leaves_neither_place_nor_slot_taken() {
        let slots = Slots::new(1, 2);
        let busy = slots.take(QueueOwner::of(&[1]), 0).await.unwrap();
        drop((wait(&slots, 1, 0), wait(&slots, 2, 0)));
        let (gone, mut stays) = (wait(&slots, 1, 0), wait(&slots, 2, 0));
        drop(busy);
        drop(gone);
        drop(next(&mut stays));
        assert!(slots.take(QueueOwner::of(&[1]), 0).await.is_some(), "and it is free after them");
    }
}
