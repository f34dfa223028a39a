//! Whose image is drawn next: among those who wait, the one with the fewest recent images; among several, the
//! first to come.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::available_parallelism;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// An image takes about 2 ms in a release build: the last one waits about two seconds.
const MOST_WAITING: usize = 1_024;

/// Clones share everything.
#[derive(Clone)]
pub struct DrawingQueue(Arc<Mutex<DrawingSlots>>);

struct DrawingSlots {
    free: usize,
    most: usize,
    arrivals: u64,
    /// By the number of recent images, then by arrival.
    waiting: BTreeMap<(u32, u64), oneshot::Sender<DrawingPermit>>,
}

/// A core to draw on, until this is dropped.
pub struct DrawingPermit(Option<DrawingQueue>);

enum JoinResult {
    Now(DrawingPermit),
    Waits(oneshot::Receiver<DrawingPermit>),
    Full,
}

impl DrawingQueue {
    /// Half of the cores, so that the other half answers requests.
    pub fn for_this_machine() -> Self {
        let at_once = available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Self::new(at_once, MOST_WAITING)
    }

    fn new(at_once: usize, most: usize) -> Self {
        let waiting = BTreeMap::new();
        Self(Arc::new(Mutex::new(DrawingSlots { free: at_once, most, arrivals: 0, waiting })))
    }

    /// Waits for a turn; None if too many wait, none of whom had more images.
    pub async fn take(&self, had: u32) -> Option<DrawingPermit> {
        let joined = self.0.lock().join(had);
        match joined {
            JoinResult::Full => None,
            JoinResult::Now(DrawingPermit(_)) => Some(DrawingPermit(Some(self.clone()))),
            // Dropped without an answer if somebody with fewer images came and there was no room for both.
            JoinResult::Waits(turn) => turn.await.ok(),
        }
    }

    /// Passes the core to the next, or keeps it free.
    fn pass_on(self) {
        loop {
            let mut board = self.0.lock();
            let Some((_, next)) = board.waiting.pop_first() else {
                board.free += 1;
                return;
            };
            drop(board);
            match next.send(DrawingPermit(Some(self.clone()))) {
                Ok(()) => return,
                // The receiver is gone; the core is still ours to pass on.
                Err(mut unwanted) => drop(unwanted.0.take()),
            }
        }
    }
}

impl DrawingSlots {
    fn join(&mut self, had: u32) -> JoinResult {
        if self.free > 0 {
            self.free -= 1;
            return JoinResult::Now(DrawingPermit(None));
        }
        if self.waiting.len() >= self.most {
            self.waiting.retain(|_, waiting| !waiting.is_closed());
        }
        if self.waiting.len() >= self.most {
            match self.waiting.last_key_value() {
                Some((&(most, _), _)) if most > had => drop(self.waiting.pop_last()),
                _ => return JoinResult::Full,
            }
        }
        let (sender, receiver) = oneshot::channel();
        self.waiting.insert((had, self.arrivals), sender);
        self.arrivals += 1;
        JoinResult::Waits(receiver)
    }
}

impl Drop for DrawingPermit {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Waiting<'a> = Pin<Box<dyn Future<Output = Option<DrawingPermit>> + 'a>>;

    fn wait(turns: &DrawingQueue, had: u32) -> Waiting<'_> {
        let mut waiting: Waiting<'_> = Box::pin(turns.take(had));
        assert!(poll(&mut waiting).is_pending());
        waiting
    }

    fn poll(waiting: &mut Waiting<'_>) -> Poll<Option<DrawingPermit>> {
        pin!(waiting).poll(&mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test]
    async fn who_had_least_goes_first_and_of_equals_who_came_first() {
        let turns = DrawingQueue::new(1, 8);
        let first = turns.take(9).await.unwrap();
        let (mut greedy, mut one, mut two) = (wait(&turns, 5), wait(&turns, 0), wait(&turns, 0));
        drop(first);
        assert!(poll(&mut greedy).is_pending() && poll(&mut two).is_pending());
        let Poll::Ready(Some(turn)) = poll(&mut one) else { panic!("their turn") };
        drop(turn);
        assert!(poll(&mut greedy).is_pending());
        let Poll::Ready(Some(turn)) = poll(&mut two) else { panic!("their turn") };
        drop(turn);
        assert!(poll(&mut greedy).is_ready());
    }

    #[tokio::test]
    async fn who_comes_when_all_is_full_takes_the_place_of_who_had_more() {
        let turns = DrawingQueue::new(1, 2);
        let _drawing = turns.take(0).await.unwrap();
        let (mut greedy, _fair) = (wait(&turns, 5), wait(&turns, 1));
        assert!(turns.take(5).await.is_none(), "who had as much does not");
        let _new = wait(&turns, 0);
        assert!(matches!(poll(&mut greedy), Poll::Ready(None)));
    }

    #[tokio::test]
    async fn who_goes_away_leaves_neither_place_nor_core_taken() {
        let turns = DrawingQueue::new(1, 2);
        let drawing = turns.take(0).await.unwrap();
        drop((wait(&turns, 0), wait(&turns, 0)));
        let (gone, mut stays) = (wait(&turns, 0), wait(&turns, 1));
        drop(drawing);
        drop(gone);
        assert!(matches!(poll(&mut stays), Poll::Ready(Some(_))), "the turn of who left is theirs");
        assert!(turns.take(0).await.is_some(), "and the core is free after them");
    }
}
