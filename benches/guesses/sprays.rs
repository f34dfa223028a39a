//! How soon the detector of one password at many names tells a spray, and whom it challenges.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use gatehouse::login::spray_detector::{DetectorSettings, Failure, Finding, GuessDetector, Micros};

use crate::chance::{Chance, hash};
use crate::passwords::{FITS, Fit, ROCKYOU};
use crate::table::{Table, count, per_cent};

const SECOND: f64 = 1.0;
const MINUTE: f64 = 60.0;
const HOUR: f64 = 3600.0;
const DAY: f64 = 86_400.0;

/// Sign-ins a day.
const TRAFFIC: [f64; 3] = [1e3, 1e5, 1e7];
const SIGN_INS_OF_ONE: f64 = 2.0;
const PEOPLE_OF_A_NETWORK: f64 = 4.0;
/// As in honest.rs: attempts that are wrong, and failures that repeat an earlier one of the same name.
const WRONG: f64 = 0.1;
const REPEATED: f64 = 0.5;
/// Wrong passwords that are another of the person's own, or were; the others are typos, and no two are the same.
const OTHER_OWN: f64 = 0.6;
/// Failures that a repeat may repeat.
const RECENT: usize = 64;
/// The rate at noon is 1.8 times the average, that at midnight 0.2 times.
const SWING: f64 = 0.8;

const NETWORKS: u64 = 10_000;
/// No spray begins before.
const LEARNED: f64 = 12.0 * HOUR;
/// After a spray. Its names leave the window after 80 minutes, and an hour later its password is hot no more.
const SILENCE: f64 = 2.5 * HOUR;
const SAMPLES: usize = 7;

/// Seconds between two guesses, the bar of the time until it is told, and how long it goes on. The first is that of
/// attack.rs, with 200,000 an hour.
const PACES: [(&str, f64, f64, f64); 4] = [
    ("55.6 a second", 3600.0 / 200_000.0, MINUTE, HOUR),
    ("1 a second", SECOND, MINUTE, HOUR),
    ("1 a minute", MINUTE, 10.0 * MINUTE, 2.0 * HOUR),
    ("1 in 10 minutes", 10.0 * MINUTE, 2.0 * HOUR, SLOWEST),
];
const SLOWEST: f64 = 3.0 * HOUR;
/// Ranks of the sprayed password. Past the list of a filter are those that somebody may still have.
const RANKS: [f64; 6] = [1.0, 10.0, 100.0, 1e3, 1e4, PAST_THE_FILTER];
const FILTERED: f64 = 1e6;
const PAST_THE_FILTER: f64 = FILTERED + 1.0;
/// Passwords rarer than this have to be told in time; commoner ones are honest people's, too.
const TOLD_FROM: f64 = 1e3;
const MOST_CHALLENGED: f64 = 0.001;

/// Honest attempts, one after the other.
struct Traffic {
    chance: Chance,
    /// At noon, in a second.
    peak: f64,
    people: u64,
    networks: u64,
    now: f64,
    recent: Vec<(u64, u64, f64)>,
    typos: u64,
    fit: Fit,
}

struct Attempt {
    password: u64,
    rank: f64,
    name: u64,
    network: u64,
    wrong: bool,
}

const fn tag(kind: u64, number: u64) -> u64 {
    hash(hash(number) ^ kind)
}

fn password(rank: f64) -> u64 {
    tag(1, rank as u64)
}

fn micros(seconds: f64) -> Micros {
    (seconds * 1e6) as Micros
}

impl Traffic {
    fn new(sign_ins: f64, fit: Fit, seed: u64) -> Self {
        let people = (sign_ins / SIGN_INS_OF_ONE) as u64;
        Self {
            chance: Chance::new(seed),
            peak: sign_ins / (1.0 - WRONG) / DAY * (1.0 + SWING),
            people,
            networks: ((people as f64 / PEOPLE_OF_A_NETWORK) as u64).max(3),
            now: 0.0,
            recent: Vec::new(),
            typos: 0,
            fit,
        }
    }

    fn next(&mut self) -> Attempt {
        loop {
            self.now += self.chance.gap(self.peak);
            let rate = 1.0 - SWING * (self.now / DAY * std::f64::consts::TAU).cos();
            if self.chance.is(rate / (1.0 + SWING)) {
                break;
            }
        }
        let wrong = self.chance.is(WRONG);
        let person = self.chance.below(self.people);
        let (person, password, rank) = match wrong {
            false => {
                let rank = self.fit.draw(&mut Chance::new(person));
                (person, password(rank), rank)
            }
            true => self.wrong(person),
        };
        Attempt {
            password,
            rank,
            name: tag(2, person),
            network: tag(3, tag(4, person) % self.networks),
            wrong,
        }
    }

    fn wrong(&mut self, person: u64) -> (u64, u64, f64) {
        if self.recent.len() == RECENT && self.chance.is(REPEATED) {
            return self.recent[self.chance.below(RECENT as u64) as usize];
        }
        let new = if self.chance.is(OTHER_OWN) {
            let rank = self.fit.draw(&mut self.chance);
            (person, password(rank), rank)
        } else {
            self.typos += 1;
            (person, tag(5, self.typos), f64::INFINITY)
        };
        if self.recent.len() == RECENT {
            let at = self.chance.below(RECENT as u64) as usize;
            self.recent[at] = new;
        } else {
            self.recent.push(new);
        }
        new
    }
}

/// What a run of honest attempts saw.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    attempts: u64,
    challenged: u64,
    /// Of them right ones with a password that a filter would not let anybody have.
    filtered: u64,
    alarms: u64,
}

impl Seen {
    fn share(self) -> f64 {
        self.challenged as f64 / self.attempts.max(1) as f64
    }

    fn share_with_filter(self) -> f64 {
        (self.challenged - self.filtered) as f64 / self.attempts.max(1) as f64
    }
}

struct Run {
    traffic: Traffic,
    detector: GuessDetector,
    waiting: Option<Attempt>,
    guesses: u64,
}

impl Run {
    fn new(sign_ins: f64, fit: Fit, settings: DetectorSettings, seed: u64) -> Self {
        Self {
            traffic: Traffic::new(sign_ins, fit, seed),
            detector: GuessDetector::new(settings),
            waiting: None,
            guesses: 0,
        }
    }

    fn observe(&mut self, attempt: &Attempt, now: f64) -> Finding {
        let &Attempt { password, name, network, .. } = attempt;
        self.detector.observe(Failure { password, name, network }, micros(now))
    }

    /// The honest attempts until then; alarms for a password other than `sprayed` are counted.
    fn honest(&mut self, until: f64, sprayed: u64, seen: &mut Seen) {
        loop {
            let attempt = self.waiting.take().unwrap_or_else(|| self.traffic.next());
            let now = self.traffic.now;
            if now >= until {
                self.waiting = Some(attempt);
                return;
            }
            seen.attempts += 1;
            if self.detector.is_hot(attempt.password, micros(now)) {
                seen.challenged += 1;
                seen.filtered += u64::from(!attempt.wrong && attempt.rank <= FILTERED);
            }
            if attempt.wrong {
                let found = self.observe(&attempt, now);
                seen.alarms += u64::from(matches!(found, Finding::Began(_)) && attempt.password != sprayed);
            }
        }
    }

    /// A guess of the botnet.
    fn guess(&mut self, password: u64, name: u64, now: f64) -> Finding {
        self.guesses += 1;
        let network = tag(3, self.traffic.networks + self.guesses % NETWORKS);
        self.observe(&Attempt { password, rank: 0.0, name: tag(2, name), network, wrong: true }, now)
    }

    /// One password, at another name each time; when it was told, and what honest people met from then on.
    fn spray(&mut self, rank: f64, from: f64, gap: f64, length: f64) -> (Option<f64>, Seen) {
        let (mut now, mut told) = (from, None);
        let (mut before, mut after) = (Seen::default(), Seen::default());
        while now < from + length {
            self.honest(now, password(rank), if told.is_none() { &mut before } else { &mut after });
            let name = self.guesses % self.traffic.people;
            self.guess(password(rank), name, now);
            if told.is_none() && self.detector.is_hot(password(rank), micros(now)) {
                told = Some(now - from);
            }
            now += gap;
        }
        (told, after)
    }
}

/// Prints the tables; returns the bars that were missed.
pub fn show(seed: u64) -> Vec<String> {
    let mut missed = Vec::new();
    println!("\n## The detector: {} KiB, whatever comes\n", count(GuessDetector::BYTES as f64 / 1024.0));
    needed(seed);
    quiet(seed, &mut missed);
    for sign_ins in TRAFFIC {
        told(sign_ins, seed, &mut missed);
    }
    flood(seed, &mut missed);
    longer(seed);
    if GuessDetector::BYTES > 4 << 20 {
        missed.push(format!("the detector takes {} bytes", GuessDetector::BYTES));
    }
    missed
}

/// What a threshold without `usual` would challenge, by exact counts of an hour at noon.
fn needed(seed: u64) {
    println!("### An hour at noon, counted exactly\n");
    let mut table = Table::new(&[
        "sign-ins a day",
        "failures",
        "names at which the commonest password was wrong",
        "passwords wrong at 5 names",
        "attempts with one of these",
        "a spray of 1 a second at 3 × the commonest",
    ]);
    for sign_ins in TRAFFIC {
        let mut traffic = Traffic::new(sign_ins, ROCKYOU, seed);
        traffic.now = 11.5 * HOUR;
        let mut names: HashMap<u64, HashSet<u64>> = HashMap::new();
        let (mut attempts, mut failures) = (Vec::new(), 0);
        while traffic.now < 12.5 * HOUR {
            let attempt = traffic.next();
            attempts.push(attempt.password);
            if attempt.wrong {
                failures += 1;
                names.entry(attempt.password).or_default().insert(attempt.name);
            }
        }
        let most = names.values().map(HashSet::len).max().unwrap_or(0);
        let is_hot = |password: &u64| names.get(password).is_some_and(|names| names.len() >= 5);
        let hot = names.keys().filter(|password| is_hot(password)).count();
        let met = attempts.iter().filter(|password| is_hot(password)).count();
        table.row([
            count(sign_ins),
            count(f64::from(failures)),
            count(most as f64),
            count(hot as f64),
            per_cent(met as f64 / attempts.len() as f64),
            time(Some((3 * most).max(5) as f64)),
        ]);
    }
    table.print();
}

fn quiet(seed: u64, missed: &mut Vec<String>) {
    println!("\n### No spray\n");
    let mut table = Table::new(&[
        "sign-ins a day, passwords",
        "alarms in the first 12 h",
        "challenged",
        "alarms a day then",
        "challenged",
        "the same, nobody has one of 10^6",
    ]);
    let large = TRAFFIC[TRAFFIC.len() - 1];
    let others = FITS[1..].iter().map(|&fit| (large, fit));
    for (sign_ins, fit) in TRAFFIC.into_iter().map(|sign_ins| (sign_ins, ROCKYOU)).chain(others) {
        let mut run = Run::new(sign_ins, fit, DetectorSettings::default(), seed);
        let days = if sign_ins == large { 2.0 } else { 14.0 };
        let (mut learning, mut seen) = (Seen::default(), Seen::default());
        run.honest(LEARNED, 0, &mut learning);
        run.honest(LEARNED + days * DAY, 0, &mut seen);
        table.row([
            format!("{}, {}", count(sign_ins), fit.list),
            count(learning.alarms as f64),
            per_cent(learning.share()),
            format!("{:.1}", seen.alarms as f64 / days),
            per_cent(seen.share()),
            per_cent(seen.share_with_filter()),
        ]);
        for (when, share) in [("while it learns", learning.share()), ("without a spray", seen.share())] {
            if share > MOST_CHALLENGED {
                missed.push(format!(
                    "{} sign-ins a day, {when}: {} challenged",
                    count(sign_ins),
                    per_cent(share)
                ));
            }
        }
    }
    table.print();
}

fn told(sign_ins: f64, seed: u64, missed: &mut Vec<String>) {
    println!(
        "\n### Time until a spray is told, {} sign-ins a day: median, worst of {SAMPLES}\n",
        count(sign_ins)
    );
    let mut titles = vec!["rank of the password".to_owned()];
    titles.extend(PACES.iter().map(|(pace, ..)| (*pace).to_owned()));
    titles.extend(["honest attempts challenged meanwhile".into(), "the same, nobody has one of 10^6".into()]);
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    let mut run = Run::new(sign_ins, ROCKYOU, DetectorSettings::default(), seed);
    let mut start = LEARNED;
    for (number, rank) in RANKS.into_iter().enumerate() {
        let mut cells = vec![if rank > FILTERED { "past 10^6".to_owned() } else { count(rank) }];
        let mut all = Seen::default();
        for (pace, gap, bar, length) in PACES {
            let mut times: Vec<Option<f64>> = Vec::new();
            for sample in 0..SAMPLES {
                // Neighbours of the rank, but for the first.
                let rank = if number == 0 { rank } else { rank + sample as f64 };
                let (told, seen) = run.spray(rank, start, gap, length);
                times.push(told);
                all.attempts += seen.attempts;
                all.challenged += seen.challenged;
                all.filtered += seen.filtered;
                start += length + SILENCE;
                run.honest(start, password(rank), &mut Seen::default());
            }
            times.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
            let worst = times[SAMPLES - 1];
            cells.push(format!("{}, {}", time(times[SAMPLES / 2]), time(worst)));
            if rank >= TOLD_FROM && worst.is_none_or(|worst| worst > bar) {
                missed.push(format!(
                    "{} sign-ins a day, rank {}, {pace}: told after {}, worst {}",
                    count(sign_ins),
                    count(rank),
                    time(times[SAMPLES / 2]),
                    time(worst)
                ));
            }
        }
        cells.extend([all.share(), all.share_with_filter()].map(per_cent));
        table.row(cells);
        if rank >= TOLD_FROM && all.share() > MOST_CHALLENGED {
            missed.push(format!(
                "{} sign-ins a day, rank {}: {} challenged",
                count(sign_ins),
                count(rank),
                per_cent(all.share())
            ));
        }
    }
    table.print();
}

/// 2,000,000 failures an hour, among 100,000 sign-ins a day.
fn flood(seed: u64, missed: &mut Vec<String>) {
    println!("\n### Two hours of 2,000,000 failures an hour, among 100,000 sign-ins a day\n");
    let mut titles =
        vec!["each password at".to_owned(), "honest attempts challenged".into(), "alarms".into()];
    titles.extend(PACES[1..].iter().map(|(pace, ..)| format!("a spray of {pace} is told after")));
    let mut table = Table::new(&titles.iter().map(String::as_str).collect::<Vec<_>>());
    for names in [1, 2, 4] {
        let mut seen = Seen::default();
        let mut cells = Vec::new();
        for (_, gap, ..) in &PACES[1..] {
            let mut run = Run::new(1e5, ROCKYOU, DetectorSettings::default(), seed);
            run.honest(LEARNED, 0, &mut Seen::default());
            let sprayed = password(PAST_THE_FILTER);
            let (mut told, mut next) = (None, LEARNED);
            for number in 0..4_000_000_u64 {
                let now = LEARNED + number as f64 * HOUR / 2e6;
                run.honest(now, sprayed, &mut seen);
                let flooded = tag(6, number / names);
                let found = run.guess(flooded, hash(number) % run.traffic.people, now);
                seen.alarms += u64::from(matches!(found, Finding::Began(_)));
                if now >= next {
                    next += gap;
                    run.guess(sprayed, hash(number) % run.traffic.people, now);
                    if told.is_none() && run.detector.is_hot(sprayed, micros(now)) {
                        told = Some(now - LEARNED);
                    }
                }
            }
            cells.push(time(told));
        }
        let mut row = vec![
            format!("{names} name{}", if names == 1 { "" } else { "s" }),
            per_cent(seen.share()),
            count(seen.alarms as f64),
        ];
        row.append(&mut cells);
        table.row(row);
        if seen.share() > MOST_CHALLENGED {
            missed.push(format!(
                "a flood at {names} names each: {} of honest attempts challenged",
                per_cent(seen.share())
            ));
        }
    }
    table.print();
}

/// Windows of one, two and four hours, for slower sprays.
fn longer(seed: u64) {
    println!(
        "\n### Longer windows: a spray of a password past 10^6 among 100,000 sign-ins a day, median, worst of {SAMPLES}\n"
    );
    let mut table = Table::new(&[
        "window",
        "1 in 10 minutes",
        "1 in 20 minutes",
        "1 in 30 minutes",
        "no spray, 10,000,000 sign-ins a day: alarms a day",
        "challenged",
    ]);
    for hours in [1.0, 2.0, 4.0] {
        let settings = DetectorSettings {
            sub_window: micros(hours * HOUR / 3.0),
            hot_for: micros(hours * HOUR),
            ..DetectorSettings::default()
        };
        let mut row = vec![format!("{hours} h")];
        let mut run = Run::new(1e5, ROCKYOU, settings, seed);
        let mut start = LEARNED * hours;
        run.honest(start, 0, &mut Seen::default());
        for gap in [10.0 * MINUTE, 20.0 * MINUTE, 30.0 * MINUTE] {
            let mut times: Vec<f64> = Vec::new();
            for sample in 0..SAMPLES {
                let rank = PAST_THE_FILTER + start + sample as f64;
                times.push(run.spray(rank, start, gap, SLOWEST).0.unwrap_or(f64::INFINITY));
                start += SLOWEST + SILENCE;
            }
            times.sort_by(f64::total_cmp);
            let said = |at: usize| time(Some(times[at]).filter(|time| time.is_finite()));
            row.push(format!("{}, {}", said(SAMPLES / 2), said(SAMPLES - 1)));
        }
        let mut large = Run::new(TRAFFIC[2], ROCKYOU, settings, seed);
        let mut quiet = Seen::default();
        large.honest(LEARNED * hours, 0, &mut Seen::default());
        large.honest(LEARNED * hours + DAY, 0, &mut quiet);
        row.extend([count(quiet.alarms as f64), per_cent(quiet.share())]);
        table.row(row);
    }
    table.print();
}

fn time(seconds: Option<f64>) -> String {
    let Some(seconds) = seconds else { return "not".into() };
    let mut text = String::new();
    let _ = match seconds {
        ..1.0 => write!(text, "{seconds:.2} s"),
        ..120.0 => write!(text, "{seconds:.0} s"),
        ..7200.0 => write!(text, "{:.0} min", seconds / MINUTE),
        _ => write!(text, "{:.1} h", seconds / HOUR),
    };
    text
}
