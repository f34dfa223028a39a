use std::convert::Infallible;

use super::*;
use crate::faulty_store::{FaultyStore, limiter};

/// Without entries, by a clock of its own.
struct EmptyRecord(Clock);

impl WindowRecord for EmptyRecord {
    type Error = Infallible;

    async fn now(&self) -> Result<Micros, Infallible> {
        Ok(self.0.now())
    }

    async fn restore(&self, _: StoreState) -> Result<usize, RebuildError<Infallible>> {
        Ok(0)
    }
}

/// A rebuild, the clock of its pauses, and a record by the store's clock.
fn rebuild() -> (WindowRebuild<FaultyStore>, Clock, EmptyRecord) {
    let (clock, record) = (Clock::manual(Micros(0)), EmptyRecord(Clock::manual(Micros(1_000_000))));
    (WindowRebuild::new(limiter().0, "it", clock.clone()), clock, record)
}

#[tokio::test]
async fn windows_that_are_lost_as_they_are_completed_are_left_alone_for_a_while() {
    let (rebuild, clock, record) = rebuild();
    let store = rebuild.limiter.store();
    store.loses_all.store(true, Ordering::SeqCst);
    assert!(matches!(rebuild.run("s", &record).await, Err(RebuildError::LostAgain)));
    for rest in [1, 2, 4] {
        clock.advance(Duration::from_millis(rest * 1000 - 1));
        assert!(matches!(rebuild.run("s", &record).await, Err(RebuildError::FailedLately)), "{rest} s");
        clock.advance(Duration::from_millis(1));
        assert!(matches!(rebuild.run("s", &record).await, Err(RebuildError::LostAgain)), "{rest} s");
    }
    store.loses_all.store(false, Ordering::SeqCst);
    clock.advance(Duration::from_secs(8));
    let generation = rebuild.run("s", &record).await.unwrap();
    assert_eq!(store.rebuild_generation("it", "s").await.unwrap(), Some(generation));
}

#[tokio::test]
async fn a_clock_that_is_ahead_is_told_until_it_is_set() {
    let (rebuild, clock, record) = rebuild();
    let right = record.0.now();
    assert_eq!(rebuild.clock_ahead(), None);
    record.0.set(right.minus(Duration::from_secs(61)));
    let first = rebuild.run("s", &record).await;
    assert!(matches!(first, Err(RebuildError::ClockAhead { .. })), "{first:?}");
    for _ in 0..3 {
        clock.advance(Duration::from_secs(1));
        assert!(matches!(rebuild.run("s", &record).await, Err(RebuildError::FailedLately)), "it is known");
        assert_eq!(rebuild.clock_ahead(), Some(Duration::from_secs(61)));
    }
    record.0.set(right);
    clock.advance(Duration::from_secs(1));
    assert!(rebuild.run("s", &record).await.is_ok());
    assert_eq!(rebuild.clock_ahead(), None);
}
