//! Turns sums of events into the overview's figures.

use std::time::Duration;

use crate::audit::{Action, EventCount, FiguresStep, MINUTE, Outcome};
use crate::clock::Micros;
use crate::web::console::chart::{Chart, Series};
use crate::web::console::figures::many;
use crate::web::console::figures::total;
use crate::web::console::overview::view::{Charts, Period, RealmUse, Use};

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

pub fn period(sums: &[EventCount]) -> Period {
    let of =
        |action: Action, outcome: Outcome| total(sums, |sum| sum.action == action && sum.outcome == outcome);
    // That no image was shown is no attempt of its own, but part of the one that asked for it. What was tried at the
    // logins of other programs has figures of its own.
    let apart = [Action::Captcha, Action::Attempt];
    let refused =
        |outcome: Outcome| total(sums, |sum| sum.outcome == outcome && !apart.contains(&sum.action));
    let sent = of(Action::Send, Outcome::Ok) + of(Action::Send, Outcome::Unknown);
    Period {
        signed_in: of(Action::SignIn, Outcome::Ok),
        wrong: of(Action::SignIn, Outcome::Wrong),
        challenged: refused(Outcome::Challenged),
        refused: refused(Outcome::Throttled),
        images: of(Action::Captcha, Outcome::Asked),
        solved: of(Action::Captcha, Outcome::Ok).min(of(Action::Captcha, Outcome::Asked)),
        sent,
        // A code sent before the hour may be entered in it.
        entered: of(Action::Guess, Outcome::Ok).min(sent),
        wrong_codes: of(Action::Guess, Outcome::Wrong),
        disabled: of(Action::PasswordDisabled, Outcome::Ok),
        withheld: of(Action::Send, Outcome::Withheld),
    }
}

/// Sign-ins and messages, by the minute and by the quarter hour.
pub fn charts(now: Micros, hour: &[FiguresStep], day: &[FiguresStep]) -> Vec<Charts> {
    const SIGN_INS: [Kind; 4] = [
        ("overview.signed-in", "ok", &[Outcome::Ok]),
        ("overview.wrong", "wrong", &[Outcome::Wrong]),
        ("overview.challenged", "asked", &[Outcome::Challenged]),
        ("overview.refused", "refused", &[Outcome::Throttled, Outcome::Busy]),
    ];
    const MESSAGES: [Kind; 4] = [
        ("overview.sent", "ok", &[Outcome::Ok, Outcome::Unknown]),
        (
            "overview.not-sent",
            "wrong",
            &[Outcome::Failed, Outcome::Withheld, Outcome::Unavailable, Outcome::Busy],
        ),
        ("overview.challenged", "asked", &[Outcome::Challenged]),
        ("overview.refused", "refused", &[Outcome::Throttled]),
    ];
    let (by_minute, by_quarter) = (Grid::hour(now), Grid::day(now));
    let draw = |id, title, grid: Grid, steps: &[FiguresStep], action, kinds: &[Kind]| {
        let series = |(key, tone, outcomes): &Kind| Series {
            key,
            tone,
            counts: grid.counts(steps, |sum| sum.action == action && outcomes.contains(&sum.outcome)),
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

type Kind = (&'static str, &'static str, &'static [Outcome]);

/// The decisions of each limit in the hour and in the day, busiest first. Omits limits without any.
pub fn uses(hour: &[EventCount], day: &[EventCount]) -> Vec<Use> {
    let mut names: Vec<&str> = day.iter().chain(hour).map(|sum| sum.limit.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |name: &str, fits: fn(&EventCount) -> bool| {
        [hour, day].map(|sums| total(sums, |sum| sum.limit == name && fits(sum)))
    };
    let mut uses: Vec<Use> = names
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| Use {
            limit: name.to_owned(),
            challenged: of(name, |sum| !sum.noted && sum.outcome == Outcome::Challenged),
            refused: of(name, |sum| !sum.noted && sum.outcome == Outcome::Throttled),
            noted: of(name, |sum| sum.noted),
        })
        .filter(|it| it.challenged[1] + it.refused[1] + it.noted[1] > 0)
        .collect();
    uses.sort_by_key(|it| std::cmp::Reverse((it.challenged[0] + it.refused[0], it.refused[1])));
    uses
}

/// What became of attempts at the logins of other programs in the hour and in the day, busiest first.
pub fn realms(hour: &[EventCount], day: &[EventCount]) -> Vec<RealmUse> {
    let mut names: Vec<&str> = day.iter().chain(hour).map(|sum| sum.realm.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let of = |realm: &str, ended: &[Outcome]| {
        [hour, day].map(|sums| total(sums, |sum| sum.realm == realm && ended.contains(&sum.outcome)))
    };
    let mut realms: Vec<RealmUse> = names
        .into_iter()
        .filter(|realm| !realm.is_empty())
        .map(|realm| RealmUse {
            realm: realm.to_owned(),
            let_through: of(realm, &[Outcome::Ok, Outcome::Wrong]),
            wrong: of(realm, &[Outcome::Wrong]),
            challenged: of(realm, &[Outcome::Challenged]),
            // By a limit, or because others at the same name did not end.
            waiting: of(realm, &[Outcome::Throttled, Outcome::Busy]),
        })
        .collect();
    realms.sort_by_key(|it| {
        std::cmp::Reverse([0, 1].map(|span| it.let_through[span] + it.challenged[span] + it.waiting[span]))
    });
    realms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::console::figures::hour_of;

    fn sum(action: Action, outcome: Outcome, limit: &str, noted: bool, count: i64) -> EventCount {
        EventCount { action, realm: String::new(), outcome, limit: limit.to_owned(), noted, count }
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
        assert_eq!((found[1].challenged, found[1].waiting), ([0, 5], [0, 4]));
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
        assert_eq!((uses[0].limit.as_str(), uses[0].refused), ("login-account", [7, 7]));
        assert_eq!((uses[1].refused, uses[1].noted), ([0, 0], [5, 5]));
        let period = period(&sums);
        assert_eq!((period.signed_in, period.wrong, period.refused), (3, 5, 7));
        let hour = hour_of("login-account", &sums);
        assert_eq!((hour.admitted, hour.refused), (8, 7));
    }
}
