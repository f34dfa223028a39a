//! A botnet that tries the commonest passwords, each at all names before the next, for a month.
//!
//! All accounts are at the same password at the same time, so a run is a list of times: when guess `k` fell at each
//! account. An account is opened by the guess that is its password, unless its owner or its limit is in the way then.

use crate::chance::Chance;
use crate::passwords::{FITS, Fit, REFUSED_BEFORE};
use crate::picture::{Picture, Series};
use crate::table::{Table, count, per_cent};

pub const DAYS: usize = 30;
const DAY: f64 = 86_400.0;
const HOUR: f64 = 3600.0;
const END: f64 = DAYS as f64 * DAY;

/// Enough that one account in 100,000 is seen; the rules are by account, so that shares hold for other numbers.
const ACCOUNTS: usize = 100_000;
/// Networks of the botnet, each with one address at a time.
const NETWORKS: f64 = 10_000.0;
/// What one of its machines sends at most.
const GUESSES_A_SECOND: f64 = 1.0;
/// docs/security.md: passwords compared in an hour. A core hashes 130,000 to 300,000 (docs/sizing.md).
const HASHED_AN_HOUR: f64 = 200_000.0;
/// docs/security.md: challenges that eight cores solve in an hour at the highest price.
const SOLVED_BY_EIGHT_CORES: f64 = 49_000.0;
/// Owners who sign in by password without a device cookie on a day; only that restarts the count of strangers.
const OWNER_TRIES: f64 = 0.2;

/// docs/limits.md
const ADDRESS_AN_HOUR: f64 = 60.0;
const ACCOUNT_AN_HOUR: u64 = 20;
/// docs/account-lockout.md
const IN_A_ROW: usize = 100;
/// login-guess: names, from which on each attempt with a password is challenged.
const HOT_AT: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Pace {
    /// So many guesses at an account, then nothing for the rest of the seconds.
    Every(u64, f64),
    Ever(u64),
    Keycloak,
}

/// When the owner is refused with the right password.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lock {
    Never,
    Gatehouse,
    Keycloak,
    /// At so many failures since the period began.
    Periods(usize, f64),
    /// At so many failures in the seconds before.
    Window(usize, f64),
    Ever(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Filter {
    None,
    /// Passwords that the list has; who has one takes another by the rest of the fit.
    Rest(f64),
    /// Who has one takes another by [`REFUSED_BEFORE`], which the botnet knows as well.
    NewHead(f64),
}

#[derive(Debug, Clone, Copy)]
struct System {
    name: &'static str,
    pace: Pace,
    lock: Lock,
    filter: Filter,
    /// The botnet's guesses at all accounts in a second, and in all.
    most: f64,
    total: f64,
    /// Guesses of one password that need no challenge; none needs one here if infinite.
    unchallenged: usize,
    owner_tries: f64,
}

/// Rivals by their own defaults, as their sources and documentation have them in November 2026.
const SYSTEMS: [System; 19] = [
    GATEHOUSE,
    System { name: "Gatehouse, a filter of 10^6", filter: Filter::Rest(1e6), ..GATEHOUSE },
    System { name: "Gatehouse, a filter of 10^7", filter: Filter::Rest(1e7), ..GATEHOUSE },
    System { name: "Gatehouse, a filter of 10^9 (the whole fit)", filter: Filter::Rest(1e9), ..GATEHOUSE },
    System { name: "Gatehouse, a filter of 10^7, a new head", filter: Filter::NewHead(1e7), ..GATEHOUSE },
    System {
        name: "Gatehouse, all three (10^7)",
        filter: Filter::Rest(1e7),
        unchallenged: HOT_AT,
        ..GATEHOUSE
    },
    System {
        name: "Gatehouse, all three (10^7), eight cores solve",
        filter: Filter::Rest(1e7),
        unchallenged: HOT_AT,
        most: SOLVED_BY_EIGHT_CORES / HOUR,
        ..GATEHOUSE
    },
    System {
        name: "Gatehouse, login-guess without a filter, eight cores solve",
        unchallenged: HOT_AT,
        most: SOLVED_BY_EIGHT_CORES / HOUR,
        ..GATEHOUSE
    },
    // About a hundred between two sign-ins of the owner.
    System {
        name: "Gatehouse, counts alone, a botnet that sends 20 a day",
        pace: Pace::Every(20, DAY),
        ..GATEHOUSE
    },
    // regulation: max_retries 3, find_time 2m, ban_time 5m, modes ['user']. One guess a minute is never banned, and is
    // more than three each five minutes.
    System { name: "Authelia", pace: Pace::Every(1, 60.0), lock: Lock::Never, ..OTHERS },
    System { name: "Keycloak, detection off (default)", ..OTHERS },
    // RealmManager.setupRealmDefaults: failure factor 30, wait increment 60 s, at most 900 s, reset after 12 h,
    // two failures within 1000 ms wait 60 s. Wait = increment × (failures / factor); a success clears the count.
    System { name: "Keycloak, detection on", pace: Pace::Keycloak, lock: Lock::Keycloak, ..OTHERS },
    // AXES_FAILURE_LIMIT 3, AXES_COOLOFF_TIME None, by address.
    System { name: "django-axes by address (default)", total: 3.0 * NETWORKS, ..OTHERS },
    System { name: "django-axes by address, 1 h", most: 3.0 * NETWORKS / HOUR, ..OTHERS },
    System { name: "django-axes by name", pace: Pace::Ever(3), lock: Lock::Ever(3), ..OTHERS },
    System {
        name: "django-axes by name, 1 h",
        pace: Pace::Every(3, HOUR),
        lock: Lock::Periods(3, HOUR),
        ..OTHERS
    },
    // ReputationPolicy: check_ip, check_username, threshold -5; reputation.expiry 86400. With a CAPTCHA stage, as its
    // documentation has it, a botnet that solves is not held at all.
    System {
        name: "authentik, denied at −5",
        pace: Pace::Every(5, DAY),
        lock: Lock::Window(5, DAY),
        most: 5.0 * NETWORKS / DAY,
        ..OTHERS
    },
    System { name: "three strikes a day", pace: Pace::Every(3, DAY), lock: Lock::Periods(3, DAY), ..OTHERS },
    System { name: "three strikes until unlocked", pace: Pace::Ever(3), lock: Lock::Ever(3), ..OTHERS },
];

const GATEHOUSE: System = System {
    name: "Gatehouse, counts alone",
    pace: Pace::Every(ACCOUNT_AN_HOUR, HOUR),
    lock: Lock::Gatehouse,
    filter: Filter::None,
    most: NETWORKS * GUESSES_A_SECOND,
    total: f64::INFINITY,
    unchallenged: usize::MAX,
    owner_tries: OWNER_TRIES,
};
const OTHERS: System =
    System { name: "", pace: Pace::Every(1, ACCOUNTS as f64 / NETWORKS), lock: Lock::Never, ..GATEHOUSE };

#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// Accounts opened by the end of each day.
    opened: [usize; DAYS],
    guesses: f64,
    /// Needed by login-address or login-guess, and the most in an hour.
    challenges: f64,
    challenges_an_hour: f64,
    /// Owners without a known device who were refused though their password was right, and how many tried.
    locked_out: usize,
    tries: usize,
    on_a_day: [usize; DAYS],
}

impl Pace {
    /// The time of guess `k`, from 0, after that of the one before.
    fn time(self, k: usize, before: f64) -> f64 {
        match self {
            Self::Every(burst, seconds) => (k as u64 / burst) as f64 * seconds,
            Self::Ever(most) if k as u64 >= most => f64::INFINITY,
            Self::Ever(_) => before,
            // Slower than quick.
            Self::Keycloak => before + keycloak_wait(k).max(1.0),
        }
    }
}

/// After so many failures.
pub fn keycloak_wait(failures: usize) -> f64 {
    (60.0 * (failures / 30) as f64).min(900.0)
}

impl Lock {
    /// Whether the owner is refused, after guesses at these times, `since` of which a success has reset.
    fn holds(self, times: &[f64], since: usize, now: f64) -> bool {
        let after = |from: f64| times.len() - times.partition_point(|&time| time < from);
        match self {
            Self::Never => false,
            Self::Gatehouse => {
                times.len() - since >= IN_A_ROW || after(now - HOUR) >= ACCOUNT_AN_HOUR as usize
            }
            Self::Keycloak => {
                times.last().is_some_and(|last| now < last + keycloak_wait(times.len() - since))
            }
            Self::Periods(most, seconds) => after((now / seconds).floor() * seconds) >= most,
            Self::Window(most, seconds) => after(now - seconds) >= most,
            Self::Ever(most) => times.len() >= most,
        }
    }
}

impl System {
    /// What the botnet tries as its guess number so-and-so; none if it never does.
    fn password(&self, fit: Fit, chance: &mut Chance) -> Option<f64> {
        let rank = fit.draw(chance);
        match self.filter {
            Filter::None => Some(rank),
            Filter::Rest(list) if rank <= list => Some(fit.draw_past(list, chance)? - list),
            Filter::Rest(list) => Some(rank - list),
            Filter::NewHead(list) => (rank <= list).then(|| REFUSED_BEFORE.draw(chance)),
        }
    }

    fn run(&self, fit: Fit, seed: u64) -> Outcome {
        let mut chance = Chance::new(seed);
        let passwords: Vec<Option<f64>> = (0..ACCOUNTS).map(|_| self.password(fit, &mut chance)).collect();
        let mut outcome = Outcome::default();
        let times = self.spend(&passwords, &mut outcome);
        for (number, &password) in passwords.iter().enumerate() {
            // The last password, if it was not tried at all names, was tried at the first ones.
            let reached = number as f64 >= self.total % ACCOUNTS as f64 && self.total.is_finite();
            let own = if reached { &times[..times.len().saturating_sub(1)] } else { &times };
            self.account(password, own, fit, &mut chance, &mut outcome);
        }
        for day in 1..DAYS {
            outcome.opened[day] += outcome.opened[day - 1];
        }
        outcome
    }

    /// When each password was tried, and what that took.
    fn spend(&self, passwords: &[Option<f64>], outcome: &mut Outcome) -> Vec<f64> {
        let mut ranks: Vec<f64> = passwords.iter().map(|rank| rank.unwrap_or(f64::INFINITY)).collect();
        ranks.sort_unstable_by(f64::total_cmp);
        let (mut times, mut time, mut open) = (Vec::new(), 0.0_f64, 0);
        let mut by_hour = vec![[0.0_f64; 2]; DAYS * 24];
        loop {
            let k = times.len();
            while open < ranks.len() && ranks[open] <= k as f64 {
                open += 1;
            }
            let left = (ranks.len() - open) as f64;
            time = self.pace.time(k, time).max(time);
            if time >= END || left == 0.0 || outcome.guesses >= self.total {
                break;
            }
            times.push(time);
            let guesses = left.min(self.total - outcome.guesses);
            outcome.guesses += guesses;
            let hot = guesses - guesses.min(self.unchallenged as f64);
            let until = time + left / self.most;
            spread(&mut by_hour, time..until, [guesses, hot]);
            time = until;
        }
        for [guesses, hot] in by_hour {
            let at_addresses = (guesses - ADDRESS_AN_HOUR * NETWORKS).max(0.0);
            let challenges = if self.lock == Lock::Gatehouse { hot.max(at_addresses) } else { 0.0 };
            outcome.challenges += challenges;
            outcome.challenges_an_hour = outcome.challenges_an_hour.max(challenges);
        }
        times
    }

    /// One account's month: its guesses, and its owner's sign-ins between them.
    fn account(
        &self,
        password: Option<f64>,
        times: &[f64],
        fit: Fit,
        chance: &mut Chance,
        outcome: &mut Outcome,
    ) {
        let (mut password, mut since) = (password, 0);
        let opened_from = |password: Option<f64>, since: usize| {
            let k = password.filter(|&rank| rank <= times.len() as f64)? as usize - 1;
            let compared = self.lock != Lock::Gatehouse || k < since + IN_A_ROW;
            (k >= since && compared).then_some(times[k])
        };
        for day in 0..DAYS {
            let tries = chance.is(self.owner_tries).then(|| (day as f64 + chance.part()) * DAY);
            let until = tries.unwrap_or((day + 1) as f64 * DAY);
            if opened_from(password, since).is_some_and(|time| time < until) {
                outcome.opened[day] += 1;
                return;
            }
            let Some(now) = tries else { continue };
            let so_far = times.partition_point(|&time| time <= now);
            outcome.tries += 1;
            if !self.lock.holds(&times[..so_far], since, now) {
                since = so_far;
                continue;
            }
            outcome.locked_out += 1;
            outcome.on_a_day[day] += 1;
            if self.lock == Lock::Gatehouse && so_far - since >= IN_A_ROW {
                // A new password by SMS.
                (password, since) = (self.password(fit, chance), so_far);
            }
        }
    }
}

/// Adds what happens evenly over this time to the hours in which it does.
fn spread(by_hour: &mut [[f64; 2]], during: std::ops::Range<f64>, numbers: [f64; 2]) {
    let length = during.end - during.start;
    let mut at = during.start;
    while at < during.end {
        let hour = (at / HOUR) as usize;
        let next = ((hour + 1) as f64 * HOUR).min(during.end);
        let Some(sums) = by_hour.get_mut(hour) else { return };
        sums[0] += numbers[0] * (next - at) / length;
        sums[1] += numbers[1] * (next - at) / length;
        at = next;
    }
}

/// Prints the tables, draws the picture; returns the bars that were missed.
pub fn show(seed: u64, picture: &std::path::Path) -> std::io::Result<Vec<String>> {
    let mut missed = Vec::new();
    let mut drawn: Vec<Series> = Vec::new();
    for (fit, number) in FITS.into_iter().zip(0_u64..) {
        println!(
            "\n## Accounts opened, of {}: the rules alone, passwords as in {}\n",
            count(ACCOUNTS as f64),
            fit.list
        );
        let outcomes = table(&SYSTEMS, fit, seed + 1000 * number);
        let opened = |system: usize| outcomes[system].opened[DAYS - 1] as f64;
        for (filter, system) in SYSTEMS.iter().enumerate().take(4).skip(1) {
            let taken = 1.0 - opened(filter) / opened(0);
            println!("\n{} takes {} of them.", system.name, per_cent(taken));
            if taken < 0.9 {
                missed.push(format!("{}, {}: {} of 90 %", fit.list, system.name, per_cent(taken)));
            }
        }
        println!("\nWith a new head: {}.", per_cent(1.0 - opened(4) / opened(0)));
        if number == 0 {
            drawn = [0, 1, 4, 9, 10, 11, 14, 15, 16, 17]
                .map(|at| Series {
                    name: short(SYSTEMS[at].name),
                    values: outcomes[at].opened.iter().map(|&opened| opened as f64).collect(),
                })
                .into();
        }
    }
    let hashed: Vec<System> = SYSTEMS
        .iter()
        .map(|&system| System { most: system.most.min(HASHED_AN_HOUR / HOUR), ..system })
        .collect();
    println!(
        "\n## Accounts opened: the server compares {} passwords an hour, Rockyou\n",
        count(HASHED_AN_HOUR)
    );
    table(&hashed, FITS[0], seed);
    println!(
        "\n## Gatehouse, counts alone, by how many owners sign in without a known device on a day, Rockyou\n"
    );
    let owners = [("nobody", 0.0), ("5 %", 0.05), ("20 %", 0.2), ("50 %", 0.5), ("everybody", 1.0)];
    table(&owners.map(|(name, owner_tries)| System { name, owner_tries, ..GATEHOUSE }), FITS[0], seed);
    Picture {
        title: format!(
            "Accounts opened, of {}, passwords as in Rockyou; on the axis: one or none",
            count(ACCOUNTS as f64)
        ),
        x: "day".into(),
        y: "accounts".into(),
        logarithmic: true,
        below: Vec::new(),
        series: drawn,
    }
    .write(picture)?;
    Ok(missed)
}

fn short(name: &str) -> String {
    name.replace(" (default)", "").replace("10^7, a new head", "10^7, new head")
}

fn table(systems: &[System], fit: Fit, seed: u64) -> Vec<Outcome> {
    let mut table = Table::new(&[
        "",
        "day 1",
        "day 7",
        "day 30",
        "share",
        "guesses an account",
        "challenges solved",
        "cores that solve them",
        "owners locked out a day",
        "of those who try",
    ]);
    let outcomes: Vec<Outcome> = systems.iter().map(|system| system.run(fit, seed)).collect();
    for (system, outcome) in systems.iter().zip(&outcomes) {
        let cores = outcome.challenges_an_hour / (SOLVED_BY_EIGHT_CORES / 8.0);
        table.row([
            system.name.to_owned(),
            count(outcome.opened[0] as f64),
            count(outcome.opened[6] as f64),
            count(outcome.opened[DAYS - 1] as f64),
            per_cent(outcome.opened[DAYS - 1] as f64 / ACCOUNTS as f64),
            format!("{:.1}", outcome.guesses / ACCOUNTS as f64),
            count(outcome.challenges),
            if cores == 0.0 { "–".into() } else { count(cores.ceil()) },
            count(outcome.locked_out as f64 / DAYS as f64),
            per_cent(outcome.locked_out as f64 / outcome.tries.max(1) as f64),
        ]);
    }
    table.print();
    outcomes
}
