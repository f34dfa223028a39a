//! People without an attack: who is blocked by what they themselves send, and who is bothered.

use std::collections::VecDeque;

use crate::attack::{DAYS, keycloak_wait};
use crate::chance::Chance;
use crate::picture::{Picture, Series};
use crate::table::{Table, count, per_cent};

const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;
const MONTH: f64 = DAYS as f64 * DAY;

const PEOPLE: usize = 20_000;
/// Brostoff and Sasse 2003: 10 % of people's attempts fail. Half of the failures repeat the one before.
const WRONG: f64 = 0.1;
const REPEATED: f64 = 0.5;
/// Sign-ins from a browser that is not known at the account, half of them at home.
const STRANGER: f64 = 0.2;
const AT_HOME: f64 = 0.5;
/// Between two attempts of one sign-in, and how often somebody tries.
const RETRY: f64 = 15.0;
const TRIES: usize = 10;

/// What sends the old password from home, and the share of people who have it. 5 % in all for a week after a change.
const HABITS: [(Habit, f64); 4] = [
    (Habit { name: "no old password", every: f64::INFINITY, for_time: 0.0 }, 0.949),
    (Habit { name: "a phone, every 2 h, a week", every: 2.0 * HOUR, for_time: 7.0 * DAY }, 0.04),
    (Habit { name: "a phone, every 2 h, the month", every: 2.0 * HOUR, for_time: MONTH }, 0.01),
    (Habit { name: "a mail client, every 30 s, a week", every: 30.0, for_time: 7.0 * DAY }, 0.001),
];
/// Of each habit, however rare, as many people are simulated.
const LEAST: usize = 500;

#[derive(Debug, Clone, Copy)]
struct Habit {
    name: &'static str,
    every: f64,
    for_time: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Source {
    Device,
    BrowserAtHome,
    BrowserElsewhere,
    Phone,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Answer {
    Go,
    Challenge,
    Block,
}

type Guess = u32;
/// The password that the phone sends.
const OLD: Guess = 0;

/// One person's account, as one system counts it.
trait Rules {
    fn ask(&mut self, source: Source, now: f64) -> Answer;
    fn failed(&mut self, source: Source, guess: Guess, now: f64);
    fn succeeded(&mut self, source: Source, now: f64);
    /// The owner was refused with the right password, and has gone the way back if there is one.
    fn refused(&mut self) {}
}

/// Times of failures, oldest first.
#[derive(Debug, Default)]
struct Log(VecDeque<f64>);

impl Log {
    fn add(&mut self, now: f64) {
        while self.0.front().is_some_and(|&time| now - time > DAY) {
            self.0.pop_front();
        }
        self.0.push_back(now);
    }

    /// Failures of the last `seconds`, and not before `since`.
    fn count(&self, seconds: f64, since: f64, now: f64) -> usize {
        self.0.iter().rev().take_while(|&&time| now - time < seconds && time >= since).count()
    }
}

/// docs/limits.md and docs/account-lockout.md.
#[derive(Debug, Default)]
struct Gatehouse {
    /// Whether a repeat is no new guess.
    repeats: bool,
    /// All failures, and those that were no repeats: of strangers, and of the known device.
    all: [Log; 2],
    fresh: [Log; 2],
    forgiven: [f64; 2],
    home: Log,
    in_a_row: [usize; 2],
    /// The last three different wrong passwords of each source.
    tags: [VecDeque<(Guess, f64)>; 4],
}

impl Gatehouse {
    /// The counts on which a source is: a known device past its ten an hour is a stranger.
    fn side(&self, source: Source, now: f64) -> usize {
        let known =
            source == Source::Device && self.fresh[1].count(HOUR, 0.0, now) < 10 && self.in_a_row[1] < 100;
        usize::from(known)
    }

    fn is_repeat(&mut self, source: Source, guess: Guess, now: f64) -> bool {
        let tags = &mut self.tags[source as usize];
        tags.retain(|&(_, time)| now - time < MONTH);
        let known = tags.iter().position(|&(tag, _)| tag == guess);
        if let Some(at) = known {
            tags.remove(at);
        }
        tags.push_back((guess, now));
        if tags.len() > 3 {
            tags.pop_front();
        }
        known.is_some() && self.repeats
    }
}

impl Rules for Gatehouse {
    fn ask(&mut self, source: Source, now: f64) -> Answer {
        let side = self.side(source, now);
        if side == 0 && (self.fresh[0].count(HOUR, 0.0, now) >= 20 || self.in_a_row[0] >= 100) {
            return Answer::Block;
        }
        let at_home = side == 0 && source != Source::BrowserElsewhere;
        let address =
            at_home && (self.home.count(MINUTE, 0.0, now) >= 20 || self.home.count(HOUR, 0.0, now) >= 60);
        if address || self.all[side].count(MINUTE, self.forgiven[side], now) >= 3 {
            return Answer::Challenge;
        }
        Answer::Go
    }

    fn failed(&mut self, source: Source, guess: Guess, now: f64) {
        let side = self.side(source, now);
        self.all[side].add(now);
        if side == 0 && source != Source::BrowserElsewhere {
            self.home.add(now);
        }
        if !self.is_repeat(source, guess, now) {
            self.fresh[side].add(now);
            self.in_a_row[side] += 1;
        }
    }

    fn succeeded(&mut self, source: Source, now: f64) {
        let side = self.side(source, now);
        self.forgiven[side] = now;
        self.in_a_row[side] = 0;
    }

    /// A disabled password is replaced.
    fn refused(&mut self) {
        if self.in_a_row[0] >= 100 {
            self.in_a_row[0] = 0;
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Peer {
    Authelia,
    Keycloak,
    /// By address; the seconds of a lock.
    Axes(f64),
    /// Whether the score denies or challenges.
    Authentik(Answer),
    /// The seconds of a lock; it ends with the day if a day.
    Strikes(f64),
}

#[derive(Debug)]
struct PeerRules {
    peer: Peer,
    log: Log,
    success: f64,
    failures: usize,
    last: f64,
    locked_until: f64,
    score: i32,
    score_since: f64,
}

impl PeerRules {
    fn new(peer: Peer) -> Self {
        Self {
            peer,
            log: Log::default(),
            success: 0.0,
            failures: 0,
            last: f64::NEG_INFINITY,
            locked_until: 0.0,
            score: 0,
            score_since: f64::NEG_INFINITY,
        }
    }

    /// The row of a name and an address lives for a day.
    fn add_score(&mut self, by: i32, now: f64) {
        if now - self.score_since >= DAY {
            (self.score, self.score_since) = (0, now);
        }
        self.score = (self.score + by).clamp(-5, 5);
    }
}

impl Rules for PeerRules {
    fn ask(&mut self, source: Source, now: f64) -> Answer {
        match self.peer {
            Peer::Axes(_) if source == Source::BrowserElsewhere => Answer::Go,
            Peer::Authentik(then) => {
                if now - self.score_since < DAY && self.score <= -5 {
                    then
                } else {
                    Answer::Go
                }
            }
            _ if now < self.locked_until => Answer::Block,
            _ => Answer::Go,
        }
    }

    fn failed(&mut self, source: Source, _guess: Guess, now: f64) {
        match self.peer {
            Peer::Authelia => {
                self.log.add(now);
                if self.log.count(2.0 * MINUTE, self.success, now) >= 3 {
                    self.locked_until = now + 5.0 * MINUTE;
                }
            }
            Peer::Keycloak => {
                if now - self.last > 12.0 * HOUR {
                    self.failures = 0;
                }
                (self.failures, self.last) = (self.failures + 1, now);
                self.locked_until = now + keycloak_wait(self.failures);
            }
            // AXES_RESET_ON_SUCCESS is off.
            Peer::Axes(_) if source == Source::BrowserElsewhere => {}
            Peer::Axes(seconds) => {
                if now - self.last >= seconds {
                    self.failures = 0;
                }
                (self.failures, self.last) = (self.failures + 1, now);
                if self.failures >= 3 {
                    self.locked_until = now + seconds;
                }
            }
            Peer::Authentik(_) => self.add_score(-1, now),
            Peer::Strikes(seconds) => {
                if (now / DAY).floor() > (self.last / DAY).floor() {
                    self.failures = 0;
                }
                (self.failures, self.last) = (self.failures + 1, now);
                if self.failures >= 3 {
                    self.locked_until =
                        if seconds == DAY { ((now / DAY).floor() + 1.0) * DAY } else { now + seconds };
                }
            }
        }
    }

    fn succeeded(&mut self, _source: Source, now: f64) {
        self.success = now;
        match self.peer {
            Peer::Axes(_) => {}
            Peer::Authentik(_) => self.add_score(1, now),
            _ => self.failures = 0,
        }
    }
}

#[derive(Debug, Default, Clone)]
struct Month {
    blocked: bool,
    challenged: bool,
    /// Blocked or challenged on each day.
    bothered: [bool; DAYS],
    refused: usize,
    attempts: usize,
}

/// One person's month. The sign-ins are at the same times in every system.
fn month(habit: Habit, rules: &mut dyn Rules, seed: u64) -> Month {
    let mut chance = Chance::new(seed);
    let mut events: Vec<(f64, Source)> = Vec::new();
    for day in 0..DAYS {
        // Waking hours.
        for _ in 0..=chance.below(3) {
            let source = if !chance.is(STRANGER) {
                Source::Device
            } else if chance.is(AT_HOME) {
                Source::BrowserAtHome
            } else {
                Source::BrowserElsewhere
            };
            events.push((day as f64 * DAY + (7.0 + 16.0 * chance.part()) * HOUR, source));
        }
    }
    let mut phone = chance.part() * habit.every.min(DAY);
    while phone < habit.for_time {
        events.push((phone, Source::Phone));
        phone += habit.every;
    }
    events.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut month = Month::default();
    let (mut last, mut next) = (None, OLD + 1);
    for (time, source) in events {
        if source == Source::Phone {
            if rules.ask(source, time) == Answer::Go {
                rules.failed(source, OLD, time);
            }
            continue;
        }
        let mut now = time;
        for _ in 0..TRIES {
            month.attempts += 1;
            let wrong = chance.is(WRONG);
            let again = chance.is(REPEATED);
            match rules.ask(source, now) {
                Answer::Go => {}
                Answer::Challenge => {
                    month.challenged = true;
                    month.bothered[(time / DAY) as usize] = true;
                }
                Answer::Block => {
                    month.blocked = true;
                    month.refused += 1;
                    month.bothered[(time / DAY) as usize] = true;
                    rules.refused();
                    break;
                }
            }
            if !wrong {
                rules.succeeded(source, now);
                break;
            }
            let guess = last.filter(|_| again).unwrap_or_else(|| {
                next += 1;
                next
            });
            last = Some(guess);
            rules.failed(source, guess, now);
            now += RETRY;
        }
    }
    month
}

type NewRules = fn() -> Box<dyn Rules>;

const SYSTEMS: [(&str, NewRules); 10] = [
    ("Gatehouse, counts alone", || Box::new(Gatehouse::default())),
    ("Gatehouse, repeats are no guesses", || Box::new(Gatehouse { repeats: true, ..Gatehouse::default() })),
    ("Authelia", || Box::new(PeerRules::new(Peer::Authelia))),
    ("Keycloak, detection on", || Box::new(PeerRules::new(Peer::Keycloak))),
    ("django-axes by address (default)", || Box::new(PeerRules::new(Peer::Axes(f64::INFINITY)))),
    ("django-axes by address, 1 h", || Box::new(PeerRules::new(Peer::Axes(HOUR)))),
    ("authentik, CAPTCHA at −5", || Box::new(PeerRules::new(Peer::Authentik(Answer::Challenge)))),
    ("authentik, denied at −5", || Box::new(PeerRules::new(Peer::Authentik(Answer::Block)))),
    ("three strikes a day", || Box::new(PeerRules::new(Peer::Strikes(DAY)))),
    ("three strikes until unlocked", || Box::new(PeerRules::new(Peer::Strikes(f64::INFINITY)))),
];

/// Prints the tables, draws the picture; returns the bars that were missed.
pub fn show(seed: u64, picture: &std::path::Path) -> std::io::Result<Vec<String>> {
    let mut missed = Vec::new();
    let mut series = Vec::new();
    println!("\n## Honest people, {DAYS} days, no attack\n");
    let mut titles = vec!["blocked at least once".to_owned()];
    titles.extend(HABITS.iter().map(|(habit, share)| format!("{} ({})", habit.name, per_cent(*share))));
    titles.push("of all people".into());
    titles.extend(["right or wrong attempts refused".into(), "challenged or blocked at least once".into()]);
    titles.push("on a day, on average".into());
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for (name, rules) in SYSTEMS {
        let mut cells = vec![name.to_owned()];
        let (mut blocked, mut bothered, mut refused) = (0.0, 0.0, 0.0);
        let mut by_day = vec![0.0; DAYS];
        for (number, (habit, share)) in HABITS.into_iter().enumerate() {
            let people = ((PEOPLE as f64 * share) as usize).max(LEAST);
            let months: Vec<Month> = (0..people)
                .map(|person| {
                    month(habit, &mut *rules(), crate::chance::hash(seed ^ (number * PEOPLE + person) as u64))
                })
                .collect();
            let part = |of: usize| of as f64 / people as f64;
            let own = months.iter().filter(|month| month.blocked).count();
            cells.push(if own == 0 { "0".into() } else { per_cent(part(own)) });
            if own > 0 && name.contains("repeats") {
                missed
                    .push(format!("{own} of {people} people with {} were blocked by themselves", habit.name));
            }
            blocked += share * part(own);
            bothered += share * part(months.iter().filter(|month| month.blocked || month.challenged).count());
            let attempts: usize = months.iter().map(|month| month.attempts).sum();
            let refusals: usize = months.iter().map(|month| month.refused).sum();
            refused += share * refusals as f64 / attempts as f64;
            for (day, sum) in by_day.iter_mut().enumerate() {
                *sum += share * part(months.iter().filter(|month| month.bothered[day]).count());
            }
        }
        let mean = by_day.iter().sum::<f64>() / DAYS as f64;
        cells.extend([blocked, refused, bothered, mean].map(per_cent));
        table.row(cells);
        if name != "authentik, CAPTCHA at −5" {
            let values = by_day.iter().map(|part| part * 100_000.0).collect();
            series.push(Series { name: name.replace(" (default)", ""), values });
        }
    }
    table.print();
    println!("\nSimulated: {} people, and at least {LEAST} of each kind.", count(PEOPLE as f64));
    Picture {
        title: "People challenged or blocked on a day, of 100,000, without an attack".into(),
        x: "day after the change of the password".into(),
        y: "people".into(),
        logarithmic: true,
        below: Vec::new(),
        series,
    }
    .write(picture)?;
    Ok(missed)
}
