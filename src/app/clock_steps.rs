//! Whether wall clocks can be believed. A clock that was set days ahead for a moment makes everything look expired, and what
//! is deleted then is not there when the clock is right again.

use std::time::Duration;

use super::AppParts;
use crate::clock::{Clock, Micros, running};
use crate::db::DbError;

/// How far a wall clock may go on in another way than time does between two looks. Time servers correct by less.
const STEP: Duration = Duration::from_secs(60);
/// How long clocks are not believed after a step; and how far they may be ahead of the newest row at a start.
const DOUBT: Duration = Duration::from_secs(60 * 60);

/// This process's clock and the database's, beside time that nobody can set.
#[derive(Debug, Default)]
pub struct ClockWatch {
    /// The clocks as last seen, and when.
    seen: Option<(Vec<Micros>, Duration)>,
    doubted_until: Duration,
}

impl ClockWatch {
    /// Compares the clocks with the newest row: they may have been set while nothing ran.
    pub async fn begin(parts: &AppParts) -> Self {
        let mut watch = Self::default();
        let now = running(&parts.clock);
        let (Ok(newest), Ok(walls)) = (parts.db.newest_row().await, walls(parts).await) else {
            watch.doubted_until = now + DOUBT;
            return watch;
        };
        watch.note(&walls, now);
        if let Some(by) = newest.and_then(|newest| watch.compare(newest, &walls, now)) {
            tracing::info!(
                by = %humantime::format_duration(by),
                "nothing was written for a while, or a clock is ahead: nothing that has expired is deleted for an hour"
            );
        }
        watch
    }

    /// Whether something may be deleted because of what the clocks say.
    pub async fn believes(&mut self, parts: &AppParts) -> bool {
        // Before the database is asked, which may take its time.
        let now = running(&parts.clock);
        let Ok(walls) = walls(parts).await else { return false };
        if let Some(by) = self.note(&walls, now) {
            tracing::warn!(
                by = %humantime::format_duration(by),
                "a clock was set: nothing that has expired is deleted for an hour; see that the clocks of this machine and of the database are right"
            );
        }
        now >= self.doubted_until
    }

    /// Whether this process's clock was set since the last look.
    pub fn was_set(&mut self, clock: &Clock) -> bool {
        self.note(&[clock.now()], running(clock)).is_some()
    }

    /// How far a clock is ahead of the newest row, if that is too far. One that is behind deletes nothing too early.
    fn compare(&mut self, newest: Micros, walls: &[Micros], now: Duration) -> Option<Duration> {
        let by = walls.iter().map(|wall| wall.since(newest)).max().filter(|by| *by > DOUBT)?;
        self.doubted_until = now + DOUBT;
        Some(Duration::from_secs(by.as_secs()))
    }

    /// How far a clock was set since the last look, if one was.
    fn note(&mut self, walls: &[Micros], now: Duration) -> Option<Duration> {
        let (before, then) = self.seen.replace((walls.to_vec(), now))?;
        let expected = before.iter().map(|wall| wall.plus(now.saturating_sub(then)));
        let by = walls.iter().zip(expected).map(|(wall, expected)| apart(*wall, expected)).max();
        let by = by.filter(|by| *by > STEP)?;
        self.doubted_until = now + DOUBT;
        Some(Duration::from_secs(by.as_secs()))
    }
}

fn apart(one: Micros, other: Micros) -> Duration {
    one.since(other).max(other.since(one))
}

async fn walls(parts: &AppParts) -> Result<[Micros; 2], DbError> {
    Ok([parts.clock.now(), parts.db.now(&parts.clock).await?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const HUNDRED_DAYS: Duration = Duration::from_secs(100 * 86_400);
    const NOON: Micros = Micros::from_seconds(1_800_000_000);

    /// Clocks that go on evenly, but for how far each is ahead.
    struct SteppedMachine {
        watch: ClockWatch,
        now: Duration,
        ahead: [Duration; 2],
    }

    impl SteppedMachine {
        fn new() -> Self {
            Self { watch: ClockWatch::default(), now: DOUBT, ahead: [Duration::ZERO; 2] }
        }

        fn believes_after(&mut self, span: Duration) -> bool {
            self.now += span;
            self.watch.note(&self.ahead.map(|ahead| NOON.plus(self.now + ahead)), self.now);
            self.now >= self.watch.doubted_until
        }
    }

    #[test]
    fn clocks_that_go_on_evenly_are_believed_however_long_nobody_looked() {
        let mut machine = SteppedMachine::new();
        for span in [SECOND, 10 * SECOND, DOUBT, HUNDRED_DAYS] {
            assert!(machine.believes_after(span), "{span:?}");
        }
        machine.ahead = [SECOND * 50, Duration::ZERO];
        assert!(machine.believes_after(SECOND), "as a time server corrects it");
    }

    #[test]
    fn a_clock_that_was_set_is_believed_an_hour_after_the_last_step() {
        for clock in [0, 1] {
            let mut machine = SteppedMachine::new();
            assert!(machine.believes_after(SECOND));
            machine.ahead[clock] = HUNDRED_DAYS;
            assert!(!machine.believes_after(SECOND), "it was set forward");
            assert!(!machine.believes_after(25 * SECOND));
            machine.ahead[clock] = Duration::ZERO;
            assert!(!machine.believes_after(SECOND), "and back");
            assert!(!machine.believes_after(DOUBT - SECOND));
            assert!(machine.believes_after(SECOND), "an hour after that");
        }
    }

    #[test]
    fn a_start_more_than_an_hour_after_the_newest_row_waits_an_hour() {
        for (newest, is_doubted) in [
            (NOON, false),
            (NOON.minus(DOUBT), false),
            (NOON.minus(HUNDRED_DAYS), true),
            (NOON.plus(HUNDRED_DAYS), false),
        ] {
            let mut watch = ClockWatch::default();
            assert_eq!(watch.compare(newest, &[NOON; 2], SECOND).is_some(), is_doubted, "{newest:?}");
            assert_eq!(watch.doubted_until > SECOND, is_doubted);
        }
        let mut watch = ClockWatch::default();
        assert!(
            watch.compare(NOON, &[NOON, NOON.plus(HUNDRED_DAYS)], SECOND).is_some(),
            "the database's, too"
        );
    }
}
