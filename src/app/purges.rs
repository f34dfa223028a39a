//! Deletes what has expired from the database: a few rows at a time, and for a tenth of the time at most. Every
//! instance does, so that none has to know whether another one can. While a clock may be wrong, none of it is deleted.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use strum::VariantArray;

use super::AppParts;
use super::clock_steps::ClockWatch;
use crate::clock::Uptime;
use crate::db::DbError;
use crate::stop::StopSignal;
use crate::web::http::Services;
use crate::webhooks;

/// Between two looks for what has expired.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// A purge is followed by this many times as long without one: SQLite has one writer, which every sign-in needs.
const REST: u32 = 9;
/// How long a purge should take, because a sign-in may have to wait for it. Its next one has as many rows as fit.
const TAKES: Duration = Duration::from_millis(5);
/// Rows of the first one, and the fewest of any: the call itself, and the wait for the writer, may take longer than they.
const FEWEST: u32 = 50;
/// More would be many at once where a row is large.
const MOST: u32 = 1_000;
/// What hangs is given up, and what took long is not paid for without end.
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);
const LONGEST_REST: Duration = Duration::from_secs(60);

/// Runs until it is stopped.
pub async fn run(parts: Arc<AppParts>, services: Data<Services>, mut stop: StopSignal) {
    let (time, mut turns) = (Uptime::begin(), PurgeTurns::default());
    let mut clocks = ClockWatch::begin(&parts).await;
    while stop.pause(turns.wait(time.now())).await {
        if turns.is_sweep(time.now()) {
            turns.add_all();
        }
        let Some((what, rows)) = turns.next() else { continue };
        let begun = time.now();
        if !clocks.believes(&parts).await {
            continue;
        }
        // What could not be deleted is tried again at the next sweep.
        let gone = tokio::time::timeout(GIVEN_UP_AFTER, what.purge(&parts, &services, rows)).await;
        let gone = gone.map(Result::unwrap_or_default).unwrap_or_default();
        turns.done(what, rows, gone, begun, time.now());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, VariantArray)]
enum Expired {
    Sessions,
    Forms,
    HalfSignIns,
    Invitations,
    Challenges,
    OfGate,
    OfGrants,
    DeviceFailures,
    KnownPairs,
    Failures,
    Guesses,
    Events,
    EventSums,
    Pending,
    OfMessages,
    Mails,
    Deliveries,
    TokenKeys,
}

impl Expired {
    /// At most so many rows of a table; returns how many. As many means that there may be more.
    async fn purge(self, parts: &AppParts, services: &Services, rows: u32) -> Result<u64, DbError> {
        let live = services.live.snapshot();
        match self {
            Self::Sessions => services.sessions.purge_expired(rows).await,
            Self::Forms => services.sessions.purge_forms(rows).await,
            Self::HalfSignIns => services.half_sign_ins.purge(rows).await,
            Self::Invitations => services.invitations.purge(rows).await,
            Self::Challenges => services.factor_verifier.passkeys().purge(rows).await,
            Self::OfGate => services.gate.purge(rows).await,
            Self::OfGrants => services.grants.purge(rows).await,
            Self::DeviceFailures => services.accounts.purge_device_failures(rows).await,
            Self::KnownPairs => services.policy.purge(rows).await,
            Self::Failures => services.sign_in.guard().purge(&live.limits, rows).await,
            Self::Guesses => services.sign_in.guard().purge_guesses(rows).await,
            Self::Events => services.audit.purge(rows).await,
            Self::EventSums => services.audit.purge_sums(rows).await,
            Self::Pending => services.codes.ledger().give_up(rows).await,
            Self::OfMessages => services.codes.purge(&live, rows).await,
            Self::Mails => services.codes.purge_mail(rows).await,
            Self::Deliveries => webhooks::purge(&parts.db, &parts.clock, rows).await,
            Self::TokenKeys => services.token_keys.purge(rows).await,
        }
    }
}

/// What is due, with how many rows at once, and when the next purge may begin. Times are those of [`Uptime`].
#[derive(Debug, Default)]
struct PurgeTurns {
    due: VecDeque<(Expired, u32)>,
    rested_at: Duration,
    swept_at: Duration,
}

impl PurgeTurns {
    /// How long there is nothing to do.
    fn wait(&self, now: Duration) -> Duration {
        let sweep = self.swept_at + SWEEP_EVERY;
        let next = if self.due.is_empty() { sweep.max(self.rested_at) } else { self.rested_at };
        next.saturating_sub(now)
    }

    /// Whether it is time to look for everything; once.
    fn is_sweep(&mut self, now: Duration) -> bool {
        let is_sweep = now >= self.swept_at + SWEEP_EVERY;
        if is_sweep {
            self.swept_at = now;
        }
        is_sweep
    }

    fn add_all(&mut self) {
        for &what in Expired::VARIANTS {
            if self.due.iter().all(|(due, _)| *due != what) {
                self.due.push_back((what, FEWEST));
            }
        }
    }

    fn next(&mut self) -> Option<(Expired, u32)> {
        self.due.pop_front()
    }

    fn done(&mut self, what: Expired, rows: u32, gone: u64, begun: Duration, now: Duration) {
        let took = now.saturating_sub(begun);
        self.rested_at = now + (took * REST).min(LONGEST_REST);
        if gone >= u64::from(rows) {
            let fitting = f64::from(rows) * TAKES.as_secs_f64() / took.as_secs_f64().max(1e-6);
            let fitting = (fitting as u32).clamp(rows / 2, rows * 2).clamp(FEWEST, MOST);
            self.due.push_back((what, fitting));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What purges would meet: so many rows due, which take so long each.
    struct Tables {
        due: [(Expired, u64, Duration); 2],
        purges: Vec<(Expired, u64, Duration)>,
        spent: Duration,
    }

    impl Tables {
        fn new(first: (Expired, u64, Duration), other: (Expired, u64, Duration)) -> Self {
            Self { due: [first, other], purges: Vec::new(), spent: Duration::ZERO }
        }

        fn purge(&mut self, what: Expired, rows: u32) -> (u64, Duration) {
            // The call itself takes this without any row.
            let (mut gone, mut took) = (0, Duration::from_micros(200));
            for (_, due, each) in self.due.iter_mut().filter(|(table, ..)| *table == what) {
                gone = (*due).min(rows.into());
                *due -= gone;
                took += *each * gone as u32;
            }
            self.purges.push((what, gone, took));
            self.spent += took;
            (gone, took)
        }

        /// Runs as in operation, by a clock that each step moves.
        fn run(&mut self, until: Duration) {
            let (mut turns, mut now) = (PurgeTurns::default(), Duration::ZERO);
            while now < until {
                now += turns.wait(now);
                if turns.is_sweep(now) {
                    turns.add_all();
                }
                let Some((what, rows)) = turns.next() else { continue };
                let (gone, took) = self.purge(what, rows);
                turns.done(what, rows, gone, now, now + took);
                now += took;
            }
        }

        fn longest(&self, what: Expired) -> Duration {
            let purges = self.purges.iter().filter(|purge| purge.0 == what);
            // The first ones find out how many rows fit.
            purges.skip(10).map(|purge| purge.2).max().unwrap_or_default()
        }

        fn count(&self, what: Expired) -> usize {
            self.purges.iter().filter(|purge| purge.0 == what).count()
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);
    const ENDLESS: u64 = u64::MAX / 2;
    const NONE: (Expired, u64, Duration) = (Expired::Pending, 0, Duration::ZERO);

    #[test]
    fn purges_take_a_tenth_of_the_time_and_each_a_few_milliseconds_however_long_a_row_takes() {
        for micros in [5, 90, 400, 2_000] {
            let each = Duration::from_micros(micros);
            let mut tables = Tables::new((Expired::Events, ENDLESS, each), NONE);
            tables.run(HOUR);
            let bound = TAKES.max(each * FEWEST) + Duration::from_millis(1);
            assert!(tables.spent <= HOUR / 10 + bound, "{micros}: {:?}", tables.spent);
            assert!(
                tables.longest(Expired::Events) <= bound,
                "{micros}: {:?}",
                tables.longest(Expired::Events)
            );
            let gone: u64 = tables.purges.iter().map(|purge| purge.1).sum();
            let most = HOUR.as_micros() as u64 / 10 / micros;
            assert!(gone >= most * 8 / 10, "{micros}: {gone} of {most}");
        }
    }

    #[test]
    fn a_purge_that_took_long_is_not_paid_for_without_end() {
        let mut turns = PurgeTurns::default();
        turns.done(Expired::Events, FEWEST, 0, Duration::ZERO, HOUR);
        assert_eq!(turns.wait(HOUR), LONGEST_REST);
    }

    #[test]
    fn slow_calls_are_not_paid_for_with_few_rows() {
        let mut turns = PurgeTurns::default();
        turns.done(Expired::Events, 200, 200, Duration::ZERO, Duration::from_millis(100));
        assert_eq!(turns.next(), Some((Expired::Events, 100)));
        turns.done(Expired::Events, FEWEST, FEWEST.into(), Duration::ZERO, Duration::from_millis(100));
        assert_eq!(turns.next(), Some((Expired::Events, FEWEST)));
    }

    #[test]
    fn what_has_much_to_delete_keeps_nothing_else_from_its_turn() {
        let each = Duration::from_micros(100);
        let mut tables = Tables::new((Expired::Events, ENDLESS, each), (Expired::OfMessages, 20_000, each));
        tables.run(HOUR);
        assert_eq!(tables.due[1].1, 0);
        let sweeps = (HOUR.as_secs() / SWEEP_EVERY.as_secs()) as usize;
        for what in [Expired::Sessions, Expired::Failures, Expired::Pending] {
            let count = tables.count(what);
            assert!((sweeps - 10..=sweeps).contains(&count), "{what:?}: {count} of {sweeps}");
        }
    }

    #[test]
    fn with_nothing_to_delete_each_is_asked_once_a_sweep() {
        let mut tables = Tables::new(NONE, NONE);
        tables.run(HOUR);
        assert!(Expired::VARIANTS.iter().all(|what| tables.count(*what).abs_diff(359) <= 1));
    }
}
