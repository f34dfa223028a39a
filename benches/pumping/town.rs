//! A made-up month: honest people who ask for codes, and one pumper beside them from the eleventh day on.

use std::collections::HashMap;

use crate::chance::Chance;
use crate::house::{Ask, House};

pub const DAYS: usize = 30;
/// Days without a pumper, at first.
pub const QUIET: usize = 10;
const DAY: f64 = 86_400.0;

/// Ranges of honest people, from the one with most: the r-th has a share of 1 / r.
pub const RANGES: u32 = 2_000;
/// Ranges that there are.
pub const ALL_RANGES: u32 = 10_000;
/// Ranges of one country, so that the honest ones are in 60: those of rank 1 to 34 in the first, and so on.
const RANGES_OF_A_COUNTRY: u32 = 34;
/// What a message costs in the dearest and the cheapest of the 60 countries, in euros. Made up, within what is usual.
const DEAREST: f64 = 0.25;
const CHEAPEST: f64 = 0.01;

/// Of the honest: codes that are entered half a minute later, and requests from numbers with an account.
const ENTERED: f64 = 0.85;
const PROVEN: f64 = 0.8;
const READING: f64 = 30.0;
/// Half of them come by mobile networks, which many share.
const CARRIERS: u64 = 200;
const CARRIER_ADDRESSES: u64 = 64;
const HOMES: u64 = 20_000;
/// By day there are nine times as many as at night.
const SWING: f64 = 0.8;
const NUMBERS: u64 = 1_000_000;
/// Accounts at the beginning, for each honest request of a day.
const ACCOUNTS: f64 = 10.0;
const LONG_AGO: f64 = -1e9;

/// Somebody who is paid for messages, or who wants a range to be braked.
#[derive(Debug, Clone)]
pub struct Pumper {
    pub name: &'static str,
    /// Ranges of which each request takes the next, from the first on.
    pub first: u32,
    pub ranges: u32,
    pub asks_a_day: u32,
    pub networks: u32,
    /// Codes that come back, to make it look honest.
    pub entered: f64,
    /// So many numbers of each range are theirs.
    pub numbers: u64,
    pub solves: bool,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    pub asked: u64,
    pub sent: u64,
    pub challenged: u64,
    /// What the messages cost, in euros.
    pub money: f64,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Day {
    /// In ranges that nobody pumps.
    pub elsewhere: Tally,
    pub beside: Tally,
    pub pumper: Tally,
}

struct Town {
    chance: Chance,
    house: House,
    /// Shares of the ranges up to each.
    shares: Vec<f64>,
    accounts: Vec<Vec<(u32, f64)>>,
    /// Numbers that the pumper has proven.
    theirs: HashMap<(u32, u32), f64>,
    turn: u32,
}

/// The days of a month in a house, of which `honest` is how many people ask on each.
pub fn month(seed: u64, house: House, honest: u64, pumper: Option<&Pumper>) -> Vec<Day> {
    let mut town = Town::new(seed, house, honest);
    (0..DAYS).map(|day| town.live(day as f64 * DAY, honest, pumper.filter(|_| day >= QUIET))).collect()
}

/// All days together.
pub fn sum(days: &[Day]) -> Day {
    days.iter().fold(Day::default(), |sum, day| Day {
        elsewhere: sum.elsewhere.and(&day.elsewhere),
        beside: sum.beside.and(&day.beside),
        pumper: sum.pumper.and(&day.pumper),
    })
}

impl Tally {
    pub fn and(self, other: &Self) -> Self {
        Self {
            asked: self.asked + other.asked,
            sent: self.sent + other.sent,
            challenged: self.challenged + other.challenged,
            money: self.money + other.money,
        }
    }
}

impl Pumper {
    fn pumps(&self, range: u32) -> bool {
        (self.first..self.first + self.ranges).contains(&range)
    }
}

/// All ranges that nobody honest has are in one country.
fn country(range: u32) -> u32 {
    range.min(RANGES) / RANGES_OF_A_COUNTRY
}

/// What a message to the range costs. The ranges that nobody honest has are in the dearest country.
fn price(range: u32) -> f64 {
    let last = f64::from(RANGES / RANGES_OF_A_COUNTRY);
    let country = f64::from(country(range));
    CHEAPEST + (DEAREST - CHEAPEST) * country / last
}

impl Town {
    fn new(seed: u64, house: House, honest: u64) -> Self {
        let whole: f64 = (1..=RANGES).map(|rank| 1.0 / f64::from(rank)).sum();
        let mut up_to = 0.0;
        let share = |rank: u32| {
            up_to += 1.0 / f64::from(rank) / whole;
            up_to
        };
        let shares: Vec<f64> = (1..=RANGES).map(share).collect();
        let mut chance = Chance::new(seed);
        let accounts = |rank: u32| {
            let many = ACCOUNTS * honest as f64 / f64::from(rank) / whole;
            let mut many = many as usize + usize::from(chance.is(many.fract()));
            std::iter::from_fn(|| {
                many = many.checked_sub(1)?;
                Some((chance.below(NUMBERS) as u32, LONG_AGO))
            })
            .collect()
        };
        let accounts = (1..=RANGES).map(accounts).collect();
        Self { chance, house, shares, accounts, theirs: HashMap::new(), turn: 0 }
    }

    fn live(&mut self, begun: f64, honest: u64, pumper: Option<&Pumper>) -> Day {
        let mut asks: Vec<(f64, bool)> = Vec::new();
        for _ in 0..honest {
            asks.push((self.waking(), true));
        }
        let pumped = pumper.map_or(0, |pumper| pumper.asks_a_day);
        let gap = DAY / f64::from(pumped.max(1));
        asks.extend((0..pumped).map(|turn| (f64::from(turn) * gap, false)));
        asks.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut day = Day::default();
        for (at, is_honest) in asks {
            let now = begun + at;
            let (ask, tally) = match pumper.filter(|_| !is_honest) {
                Some(pumper) => (self.pump(pumper, now), &mut day.pumper),
                None => {
                    let ask = self.honest(now);
                    let beside = pumper.is_some_and(|pumper| pumper.pumps(ask.range));
                    (ask, if beside { &mut day.beside } else { &mut day.elsewhere })
                }
            };
            let answer = self.house.ask(&ask, now);
            tally.asked += 1;
            tally.challenged += u64::from(answer.challenged);
            if answer.sent {
                tally.sent += 1;
                tally.money += price(ask.range);
                self.read(&ask, is_honest);
            }
        }
        day
    }

    /// A time of the day, of which more are by day.
    fn waking(&mut self) -> f64 {
        loop {
            let at = self.chance.part();
            let busy = 1.0 - SWING * (at * std::f64::consts::TAU).cos();
            if self.chance.is(busy / (1.0 + SWING)) {
                return at * DAY;
            }
        }
    }

    fn honest(&mut self, now: f64) -> Ask {
        let part = self.chance.part();
        let range = self.shares.partition_point(|up_to| *up_to < part).min(RANGES as usize - 1) as u32;
        let accounts = &self.accounts[range as usize];
        let known = (self.chance.is(PROVEN) && !accounts.is_empty())
            .then(|| accounts[self.chance.below(accounts.len() as u64) as usize]);
        let (number, proven_since) = match known {
            Some((number, since)) => (number, Some(since)),
            None => (self.chance.below(NUMBERS) as u32, None),
        };
        let (network, address) = if self.chance.is(0.5) {
            let carrier = self.chance.below(CARRIERS);
            (carrier, carrier * CARRIER_ADDRESSES + self.chance.below(CARRIER_ADDRESSES))
        } else {
            let home = self.chance.below(HOMES);
            (CARRIERS + home, CARRIERS * CARRIER_ADDRESSES + home)
        };
        let entered_at = self.chance.is(ENTERED).then_some(now + READING);
        let (network, address, country) = (network as u32, address as u32, country(range));
        Ask { range, country, number, network, address, entered_at, proven_since, solves: true }
    }

    fn pump(&mut self, pumper: &Pumper, now: f64) -> Ask {
        const THEIRS: u32 = 1_000_000;
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        let range = pumper.first + turn % pumper.ranges;
        let number = (self.chance.below(pumper.numbers) * (NUMBERS / pumper.numbers)) as u32;
        // By chance, or each range would see few of them.
        let network = THEIRS + self.chance.below(pumper.networks.into()) as u32;
        let address = network * 16 + self.chance.below(16) as u32;
        let entered_at = self.chance.is(pumper.entered).then_some(now + READING);
        let proven_since = self.theirs.get(&(range, number)).copied();
        let (country, solves) = (country(range), pumper.solves);
        Ask { range, country, number, network, address, entered_at, proven_since, solves }
    }

    /// Whoever enters the code of a number that is new has an account from then on.
    fn read(&mut self, ask: &Ask, is_honest: bool) {
        let (Some(at), None) = (ask.entered_at, ask.proven_since) else { return };
        if is_honest {
            self.accounts[ask.range as usize].push((ask.number, at));
        } else {
            self.theirs.insert((ask.range, ask.number), at);
        }
    }
}
