//! Finds one password that is wrong at many names. Pure: no clock, no I/O, no randomness.
//!
//! It sees failures only: a tag of the password, of the name and of the network, each a keyed hash. It is a detector
//! with an error, not a count: it may be late or miss a spray, and after a restart it knows nothing. Its memory is
//! allocated once ([`GuessDetector::BYTES`]), whatever comes.
//!
//! - A password that was wrong at one name only takes 8 bytes, among the **singles**. Most passwords never leave them.
//! - At a second name it gets a **cell**, which counts names (`HyperLogLog`, 32 registers) and networks (a bitmap) in
//!   four sub-windows. The window is the current sub-window and the three before it: with 20 minutes each, between 60
//!   and 80 minutes.
//! - Both are tables of eight ways. What is new overwrites the least interesting of its eight: the oldest single, the
//!   cell with the fewest names.
//!
//! **Usual** is what a cell learns of its own password: the names in a window, on average over a day. Some passwords
//! are typed by many people, and wrong at many of their accounts; a threshold for all of them would have to be above
//! the commonest. A password is hot at `max` names more than three times its usual number. What is no longer in the
//! window is learned, unless the password was hot after it.
//!
//! Until it has learned for [`LEARNING`] sub-windows it takes [`HEAD_SHARE`] of all failures for usual. Small
//! installations do not notice; large ones are told of large sprays only. Where keys of tags change, the next key needs
//! a detector of its own that learns before the change.

mod sketch;

use sketch::{Mark, NameSketch, bits_estimate};

pub type Micros = i64;

const SUB_WINDOWS: usize = 4;
const WAYS: usize = 8;
const SINGLES: usize = 1 << 17;
const CELLS: usize = 1 << 13;

/// Singles are ordered by 32nds of a sub-window.
const TICKS: i64 = 32;
const TICK_BITS: u32 = 12;

/// One name in one network is an office; two may be an office with a branch.
const NETWORKS_OF_ONE: u32 = 2;
/// How many times the usual number of names is still usual. At 2, honest people are challenged forty times as often with
/// 10,000,000 sign-ins a day (benches/guesses.rs).
const TIMES_USUAL: f32 = 3.0;
/// Learning is an average of as many sub-windows, a day of 20 minutes each.
const REMEMBERED: u32 = 72;
/// Sub-windows until `usual` is trusted. They are learned once they left the window: 5 h 20 min with 20 minutes each.
pub const LEARNING: u32 = 12;
/// The share of all failures that the commonest password has, while nothing is learned: 0.6 × 0.0622, the share of the first
/// password in the fit of Tianya's list, the most of the lists in benches/guesses.rs.
pub const HEAD_SHARE: f32 = 0.0373;
/// More failures than on average make as many more names usual, but not more than so many times: a flood hides nothing.
const BUSIEST: f32 = 3.0;
/// A cell that expects fewer names is freed when its window is empty.
const FORGOTTEN: f32 = 0.05;

#[derive(Debug, Clone, Copy)]
pub struct DetectorSettings {
    /// The number of names, beside what is usual, at which a password is hot.
    pub max: u32,
    /// Microseconds of a sub-window; the window is three to four of them.
    pub sub_window: Micros,
    /// Microseconds for which a password stays hot after the last failure that was too many.
    pub hot_for: Micros,
}

/// Keyed hashes, each uniform over all 64 bits.
#[derive(Debug, Clone, Copy)]
pub struct Failure {
    pub password: u64,
    pub name: u64,
    pub network: u64,
}

/// Estimates: names within a quarter, networks at most 111.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spray {
    pub names: u32,
    pub networks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    Quiet,
    /// This failure made the password hot.
    Began(Spray),
    /// The password was hot before.
    GoesOn(Spray),
}

pub struct GuessDetector {
    settings: DetectorSettings,
    /// The number of the current sub-window, from the first failure on.
    current: u32,
    start: Option<Micros>,
    now: Micros,
    /// Failures in each sub-window.
    failures: [u32; SUB_WINDOWS],
    /// Failures in a window, on average.
    usual_failures: f32,
    learned: u32,
    singles: Box<[Single]>,
    cells: Box<[Cell]>,
}

/// One failure: 32 bits of the password, 12 of the name, 8 of the network, 12 of the time. 0 is none.
#[derive(Debug, Clone, Copy, Default)]
struct Single(u64);

#[derive(Debug, Clone, Copy)]
struct Cell {
    names: [NameSketch; SUB_WINDOWS],
    networks: [u32; SUB_WINDOWS],
    hot_until: Micros,
    password: u32,
    /// Names in a window, on average.
    usual: f32,
}

impl Default for DetectorSettings {
    fn default() -> Self {
        const MINUTE: Micros = 60_000_000;
        Self { max: 5, sub_window: 20 * MINUTE, hot_for: 60 * MINUTE }
    }
}

impl GuessDetector {
    pub const BYTES: usize = size_of::<Self>() + SINGLES * size_of::<Single>() + CELLS * size_of::<Cell>();

    pub fn new(settings: DetectorSettings) -> Self {
        Self {
            settings,
            current: 0,
            start: None,
            now: Micros::MIN,
            failures: [0; SUB_WINDOWS],
            usual_failures: 0.0,
            learned: 0,
            singles: vec![Single::default(); SINGLES].into(),
            cells: vec![Cell::FREE; CELLS].into(),
        }
    }

    /// Counts a wrong password. A clock that steps back stands still here.
    pub fn observe(&mut self, failure: Failure, now: Micros) -> Finding {
        self.advance(now);
        let slot = self.slot();
        self.failures[slot] = self.failures[slot].saturating_add(1);
        let Some(cell) = self.cell_of(failure) else { return Finding::Quiet };
        self.cells[cell].add(slot, Mark::of_name(failure.name), Mark::of_network(failure.network));
        self.judge(cell)
    }

    /// The clock goes on from what it was told before.
    pub const fn set_max(&mut self, max: u32) {
        self.settings.max = max;
    }

    /// Whether attempts with this password are to be challenged.
    pub fn is_hot(&self, password: u64, now: Micros) -> bool {
        self.find(password).is_some_and(|cell| now.max(self.now) < self.cells[cell].hot_until)
    }

    /// The cell of the password, if it has one or this failure gives it one.
    fn cell_of(&mut self, failure: Failure) -> Option<usize> {
        if let Some(cell) = self.find(failure.password) {
            return Some(cell);
        }
        let tick = self.tick();
        let new = Single::new(failure, tick);
        let ways = set_of(failure.password, SINGLES);
        let Some(single) = self.singles[ways.clone()].iter_mut().find(|single| single.is_same_password(new))
        else {
            let oldest = self.singles[ways].iter_mut().max_by_key(|single| single.age(tick))?;
            *oldest = new;
            return None;
        };
        let first = std::mem::take(single);
        if first.is_same_name(new) {
            *single = new;
            return None;
        }
        let cell = self.least_interesting(failure.password);
        self.cells[cell] = Cell { password: low(failure.password), ..Cell::FREE };
        let since = (i64::from(first.age(tick)) + TICKS - 1 - self.tick_in_sub_window()) / TICKS;
        let slot =
            (self.current as usize + SUB_WINDOWS - (since as usize).min(SUB_WINDOWS - 1)) % SUB_WINDOWS;
        self.cells[cell].add(slot, first.name(), first.network());
        Some(cell)
    }

    fn find(&self, password: u64) -> Option<usize> {
        set_of(password, CELLS).find(|&cell| self.cells[cell].password == low(password))
    }

    fn least_interesting(&self, password: u64) -> usize {
        let interest = |cell: usize| self.cells[cell].interest(self.now);
        let ways = set_of(password, CELLS);
        ways.clone().min_by(|a, b| interest(*a).total_cmp(&interest(*b))).unwrap_or(ways.start)
    }

    fn judge(&mut self, cell: usize) -> Finding {
        let threshold = self.threshold(self.cells[cell].usual);
        let now = self.now;
        let cell = &mut self.cells[cell];
        let names = cell.all_names().count();
        let networks = cell.all_networks();
        let spray = Spray { names: names as u32, networks: bits_estimate(networks) };
        let was_hot = now < cell.hot_until;
        if names >= f64::from(threshold) && networks.count_ones() > NETWORKS_OF_ONE {
            cell.hot_until = now.saturating_add(self.settings.hot_for);
            return if was_hot { Finding::GoesOn(spray) } else { Finding::Began(spray) };
        }
        if was_hot { Finding::GoesOn(spray) } else { Finding::Quiet }
    }

    /// The number of names at which a password with this usual number is hot.
    fn threshold(&self, usual: f32) -> f32 {
        let failures: f32 = self.failures.iter().map(|&failures| failures as f32).sum();
        let busy = if self.usual_failures > 0.0 { failures / self.usual_failures } else { 1.0 };
        let mut expected = usual * busy.clamp(1.0, BUSIEST);
        if self.learned < LEARNING {
            expected = expected.max(HEAD_SHARE * failures);
        }
        self.settings.max as f32 + TIMES_USUAL * expected
    }

    /// Ends the sub-windows that are over.
    fn advance(&mut self, now: Micros) {
        self.now = self.now.max(now);
        let start = *self.start.get_or_insert(now);
        let number = self.now.saturating_sub(start) / self.settings.sub_window;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        if number <= self.current {
            return;
        }
        let over = number - self.current;
        // After a pause of a day everything is forgotten.
        for step in 1..=over.min(REMEMBERED) {
            self.current = number - over.min(REMEMBERED) + step;
            self.leave();
        }
        let (tick, window) = (self.tick(), SUB_WINDOWS as u32 * TICKS as u32);
        for single in &mut self.singles {
            if over >= SUB_WINDOWS as u32 || single.age(tick) >= window {
                *single = Single::default();
            }
        }
    }

    /// Learns the oldest sub-window, and clears it for the one that begins.
    fn leave(&mut self) {
        let slot = self.slot();
        if self.current < SUB_WINDOWS as u32 {
            return;
        }
        self.learned = self.learned.saturating_add(1);
        let part = 1.0 / self.learned.min(REMEMBERED) as f32;
        let whole = |part: f32| part * SUB_WINDOWS as f32;
        let began = i64::from(self.current - SUB_WINDOWS as u32).saturating_mul(self.settings.sub_window);
        let began = began.saturating_add(self.start.unwrap_or(self.now));
        self.usual_failures += (whole(self.failures[slot] as f32) - self.usual_failures) * part;
        self.failures[slot] = 0;
        for cell in self.cells.iter_mut().filter(|cell| !cell.is_free()) {
            // Nothing of a spray is learned, not even of its beginning.
            if began > cell.hot_until.saturating_sub(self.settings.hot_for) {
                let learned = cell.usual + (whole(cell.names[slot].count() as f32) - cell.usual) * part;
                // No password that people type by mistake has a larger share.
                cell.usual = learned.min(HEAD_SHARE * self.usual_failures);
            }
            cell.names[slot] = NameSketch::default();
            cell.networks[slot] = 0;
            if cell.usual < FORGOTTEN && cell.all_networks() == 0 && self.now >= cell.hot_until {
                *cell = Cell::FREE;
            }
        }
    }

    const fn slot(&self) -> usize {
        self.current as usize % SUB_WINDOWS
    }

    fn since_start(&self) -> Micros {
        self.now.saturating_sub(self.start.unwrap_or(self.now))
    }

    fn tick(&self) -> u32 {
        (self.since_start() / (self.settings.sub_window / TICKS)) as u32 & ((1 << TICK_BITS) - 1)
    }

    fn tick_in_sub_window(&self) -> i64 {
        self.since_start() / (self.settings.sub_window / TICKS) % TICKS
    }
}

impl Single {
    fn new(failure: Failure, tick: u32) -> Self {
        let (name, network) = (Mark::of_name(failure.name).0, Mark::of_network(failure.network).0);
        Self(
            u64::from(low(failure.password)) << 32
                | u64::from(name) << 20
                | u64::from(network) << 12
                | u64::from(tick),
        )
    }

    const fn is_same_password(self, other: Self) -> bool {
        self.0 >> 32 == other.0 >> 32
    }

    const fn is_same_name(self, other: Self) -> bool {
        self.0 >> 20 == other.0 >> 20
    }

    const fn name(self) -> Mark {
        Mark((self.0 >> 20) as u32 & 0xfff)
    }

    const fn network(self) -> Mark {
        Mark((self.0 >> 12) as u32 & 0xff)
    }

    /// In ticks; a free one is the oldest.
    const fn age(self, tick: u32) -> u32 {
        if self.0 == 0 {
            return u32::MAX;
        }
        tick.wrapping_sub(self.0 as u32) & ((1 << TICK_BITS) - 1)
    }
}

impl Cell {
    const FREE: Self = Self {
        names: [NameSketch::EMPTY; SUB_WINDOWS],
        networks: [0; SUB_WINDOWS],
        hot_until: Micros::MIN,
        password: 0,
        usual: 0.0,
    };

    const fn is_free(&self) -> bool {
        self.password == 0
    }

    fn add(&mut self, slot: usize, name: Mark, network: Mark) {
        self.names[slot].add(name);
        self.networks[slot] |= 1 << (network.0 % u32::BITS);
    }

    fn all_names(&self) -> NameSketch {
        self.names.iter().fold(NameSketch::default(), |all, one| all.union(*one))
    }

    fn all_networks(&self) -> u32 {
        self.networks.iter().fold(0, |all, one| all | one)
    }

    fn interest(&self, now: Micros) -> f64 {
        if self.is_free() {
            return -1.0;
        }
        let hot = if now < self.hot_until { 1e6 } else { 0.0 };
        hot + self.all_names().count() + f64::from(self.usual)
    }
}

/// What a table keeps of a password, never 0; the set is taken from the other half.
const fn low(password: u64) -> u32 {
    let low = password as u32;
    if low == 0 { 1 } else { low }
}

const fn set_of(password: u64, entries: usize) -> std::ops::Range<usize> {
    let first = (password >> 32) as usize % (entries / WAYS) * WAYS;
    first..first + WAYS
}

#[cfg(test)]
mod tests;
