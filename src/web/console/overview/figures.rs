//! Turns sums of events into the overview's figures.

use std::time::Duration;

use crate::audit::{Action, EventCount, Fate, FiguresStep, MINUTE};
use crate::clock::Micros;
use crate::web::console::chart::{Chart, Series};
use crate::web::console::figures::{FateSeries, LimitUse, MESSAGES, SIGN_INS, many, total};
use crate::web::console::overview::view::{Charts, RealmUse, Use};

const QUARTER: Duration = Duration::from_secs(15 * 60);

/// A span that ends with the current step, and the length of its steps.
#[derive(Clone, Copy)]
pub struct Grid {
    pub start: Micros,
    pub step: Duration,
    steps: usize,
}

impl Grid {
    pub fn hour(now: Micros) -> Self {
        Self::ending(now, MINUTE, 60)
    }

    pub fn day(now: Micros) -> Self {
        Self::ending(now, QUARTER, 96)
    }

    fn ending(now: Micros, step: Duration, steps: usize) -> Self {
        let size = step.as_micros() as i64;
        let last = now.0 - now.0.rem_euclid(size);
        Self { start: Micros(last - size * (steps as i64 - 1)), step, steps }
    }

    fn counts(&self, series: &[FiguresStep], fits: impl Fn(&EventCount) -> bool) -> Vec<u64> {
        let mut counts = vec![0; self.steps];
        for step in series {
            let place = step.at.0.saturating_sub(self.start.0) / self.step.as_micros() as i64;
            let Some(count) = usize::try_from(place).ok().and_then(|place| counts.get_mut(place)) else {
                continue;
            };
            *count += step.sums.iter().filter(|sum| fits(sum)).map(many).sum::<u64>();
        }
        counts
    }
}

/// Sign-ins and messages, by the minute and by the quarter hour.
pub fn charts(now: Micros, hour: &[FiguresStep], day: &[FiguresStep]) -> Vec<Charts> {
    let (by_minute, by_quarter) = (Grid::hour(now), Grid::day(now));
    let draw = |id, title, grid: Grid, steps: &[FiguresStep], action, kinds: &[FateSeries]| {
        let series = |(key, tone, fates): &FateSeries| Series {
            key,
            tone,
            counts: grid.counts(steps, |sum| sum.action == action && fates.contains(&sum.fate())),
        };
        Chart::new(id, title, grid.start, grid.step, kinds.iter().map(series).collect())
    };
    let (sign_in, send) = (Action::SignIn, Action::Send);
    vec![
        Charts {
            key: "overview.sign-ins",
            hour: draw("sign-ins-hour", "overview.sign-ins-hour", by_minute, hour, sign_in, &SIGN_INS),
            day: draw("sign-ins-day", "overview.sign-ins-day", by_quarter, day, sign_in, &SIGN_INS),
        },
        Charts {
            key: "overview.messages",
            hour: draw("messages-hour", "overview.messages-hour", by_minute, hour, send, &MESSAGES),
            day: draw("messages-day", "overview.messages-day", by_quarter, day, send, &MESSAGES),
        },
    ]
}

/// What each limit did in the hour and in the day, busiest first. Omits those that decided nothing.
pub fn uses(hour: &[EventCount], day: &[EventCount]) -> Vec<Use> {
    let mut names: Vec<&str> = day.iter().chain(hour).map(|sum| sum.limit.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut uses: Vec<Use> = names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| Use { limit: name.to_owned(), spans: [hour, day].map(|sums| LimitUse::of(name, sums)) })
        .filter(|it| it.spans[1].challenged + it.spans[1].refused + it.spans[1].noted > 0)
        .collect();
    uses.sort_by_key(|Use { spans: [hour, day], .. }| {
        std::cmp::Reverse((hour.challenged + hour.refused, day.refused))
    });
    uses
}

/// What became of attempts at the logins of other programs in the hour and in the day, busiest first.
pub fn realms(hour: &[EventCount], day: &[EventCount]) -> Vec<RealmUse> {
    let mut names: Vec<&str> = day.iter().chain(hour).map(|sum| sum.realm.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |realm: &str, fates: &[Fate]| {
        [hour, day].map(|sums| total(sums, |sum| sum.realm == realm && fates.contains(&sum.fate())))
    };
    let mut realms: Vec<RealmUse> = names
        .into_iter()
        .filter(|realm| !realm.is_empty())
        .map(|realm| RealmUse {
            realm: realm.to_owned(),
            let_through: of(realm, &[Fate::Done, Fate::Wrong]),
            wrong: of(realm, &[Fate::Wrong]),
            challenged: of(realm, &[Fate::Challenged]),
            refused: of(realm, &[Fate::Refused]),
        })
        .collect();
    realms.sort_by_key(|it| {
        std::cmp::Reverse([0, 1].map(|span| it.let_through[span] + it.challenged[span] + it.refused[span]))
    });
    realms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::Outcome;
    use crate::web::console::figures::period;

    fn sum(action: Action, outcome: Outcome, limit: &str, noted: bool, count: i64) -> EventCount {
        {
            let (limit, counted_by) = (limit.to_owned(), if noted { "" } else { limit }.to_owned());
            EventCount { action, realm: String::new(), outcome, limit, counted_by, noted, count }
        }
    }

    #[test]
    fn each_realm_has_figures_of_its_own_and_our_sign_in_is_none() {
        let at = |realm: &str, outcome, count| EventCount {
            realm: realm.to_owned(),
            ..sum(Action::Attempt, outcome, "", false, count)
        };
        let own = sum(Action::SignIn, Outcome::Wrong, "", false, 100);
        let hour = [at("mail", Outcome::Wrong, 2), at("mail", Outcome::Ok, 1), own.clone()];
        let day = [
            at("mail", Outcome::Wrong, 2),
            at("mail", Outcome::Ok, 1),
            at("shop", Outcome::Challenged, 5),
            at("shop", Outcome::Throttled, 3),
            at("shop", Outcome::Busy, 1),
            own.clone(),
        ];
        let found = realms(&hour, &day);
        let names: Vec<_> = found.iter().map(|it| it.realm.as_str()).collect();
        assert_eq!(names, ["mail", "shop"], "busiest in the hour first");
        assert_eq!((found[0].let_through, found[0].wrong), ([3, 3], [2, 2]));
        assert_eq!((found[1].challenged, found[1].refused), ([0, 5], [0, 4]));
        let here = period(&day);
        assert_eq!((here.wrong, here.challenged, here.refused), (100, 0, 0), "nothing is told twice");
        assert!(realms(std::slice::from_ref(&own), std::slice::from_ref(&own)).is_empty());
    }

    #[test]
    fn a_step_is_drawn_where_it_was_and_the_last_one_is_now() {
        let now = Micros::from_seconds(100 * 3600 + 59);
        let grid = Grid::hour(now);
        let at = |minutes: i64| Micros::from_seconds((100 * 60 - minutes) * 60);
        let step = |minutes| FiguresStep {
            at: at(minutes),
            sums: vec![sum(Action::SignIn, Outcome::Ok, "", false, 2)],
        };
        let counts = grid.counts(&[step(70), step(59), step(0)], |_| true);
        assert_eq!((counts[0], counts[59], counts.iter().sum::<u64>()), (2, 2, 4), "70 minutes ago is past");
    }

    #[test]
    fn what_a_watching_limit_notes_is_no_refusal() {
        let sums = [
            sum(Action::SignIn, Outcome::Wrong, "login-address", true, 5),
            sum(Action::SignIn, Outcome::Throttled, "login-account", false, 7),
            sum(Action::SignIn, Outcome::Ok, "", false, 3),
        ];
        let uses = uses(&sums, &sums);
        assert_eq!(uses.len(), 2);
        let of = |limit| LimitUse::of(limit, &sums);
        assert_eq!((uses[0].limit.as_str(), uses[0].spans), ("login-account", [of("login-account"); 2]));
        assert_eq!((of("login-address").refused, of("login-address").noted), (0, 5));
        let period = period(&sums);
        assert_eq!((period.signed_in, period.wrong, period.refused), (3, 5, 7));
        let account = of("login-account");
        assert_eq!((account.counted, account.refused), (Some(5), 7), "a success is no hit");
    }
}
