//! What becomes of one request for a code: the brakes, by the product's own ladder, and the limits, by its own rules.

use std::collections::{HashMap, VecDeque};

use gatehouse::config::{Brake, Limits};
use gatehouse::sms::{
    Ladder, MOST_OF_AN_UNPROVEN_RANGE, PROVEN_OF_FIVE, PrefixTraffic, Rung, WHILE_PEOPLE_ARE_NEW,
    country_asks_from, lasts, most_of_a_network,
};
use gatehouse_limiter::{Limit, RuleAction, RuleSpan};

/// By which requests come. At a relay nobody can be shown a challenge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Pages,
    Verify,
    Relay,
}

#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// A million numbers.
    pub range: u32,
    pub country: u32,
    pub number: u32,
    pub network: u32,
    pub address: u32,
    /// When its code comes back, if it does.
    pub entered_at: Option<f64>,
    /// Since when the number is one of an account, or proven at the program.
    pub proven_since: Option<f64>,
    /// Whether whoever asks solves a challenge.
    pub solves: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// It had to solve a challenge, and did.
    pub challenged: bool,
    pub sent: bool,
}

pub struct House {
    way: Way,
    /// False: each brake lasts an hour, whatever was before, and only blocks and ranges have one.
    learns: bool,
    brake: Brake,
    prefixes: HashMap<Prefix, Traffic>,
    countries: HashMap<u32, Country>,
    /// When the first code of a range came back, and whether another did a day later.
    proven: HashMap<u32, (f64, bool)>,
    /// Codes that will be entered, and when; and whether the range was not proven yet.
    reading: VecDeque<(f64, u32, bool)>,
    /// The same of those that were entered within a day.
    entered: VecDeque<(f64, bool)>,
    entered_in_proven: usize,
    /// Messages of a day to ranges that were never proven.
    unproven: HashMap<u32, VecDeque<f64>>,
    budgets: Option<Budgets>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Prefix {
    /// 10,000 neighbouring numbers.
    Block(u32, u32),
    Range(u32),
    /// All ranges of which no codes came back on two days.
    Unproven,
}

/// What was sent to a prefix and is judged, oldest first, and when its brakes of the last days began and ended.
struct Traffic {
    sent: VecDeque<Sent>,
    brakes: Vec<(f64, f64)>,
    /// When it had nothing against it over a day.
    cleared_at: f64,
}

#[derive(Clone, Copy)]
struct Sent {
    at: f64,
    network: u32,
    solved: bool,
    entered_at: Option<f64>,
}

const DAY: f64 = 86_400.0;
/// As the product: how long such a prefix is not judged over a day again.
const CLEARED_FOR: f64 = 60.0;

/// A brake is on: messages go to numbers that were proven before that time. Or only a challenge is asked for.
#[derive(Clone, Copy)]
enum Found {
    Challenge,
    Brake { proven_before: f64 },
}

impl House {
    pub fn new(way: Way, learns: bool, limits: Option<&Limits>) -> Self {
        Self {
            way,
            learns,
            brake: Brake::default(),
            prefixes: HashMap::new(),
            countries: HashMap::new(),
            proven: HashMap::new(),
            reading: VecDeque::new(),
            entered: VecDeque::new(),
            entered_in_proven: 0,
            unproven: HashMap::new(),
            budgets: limits.map(Budgets::new),
        }
    }

    /// Somebody asks, and solves the challenge that is asked for, or goes away.
    pub fn ask(&mut self, ask: &Ask, now: f64) -> Answer {
        let shows = self.way != Way::Relay;
        self.read(now);
        let found = self.found(ask, now);
        let mut challenged = found.is_some() && shows;
        let mut short = None;
        if let Some(Found::Brake { proven_before }) = found {
            short = Some(proven_before);
        }
        if let (None, Some(budgets)) = (short, &mut self.budgets) {
            let met = budgets.meet(ask, now);
            challenged |= met.is_some();
            short = (met == Some(RuleAction::Block)).then_some(f64::INFINITY);
        }
        if challenged && !ask.solves {
            return Answer { challenged, sent: false };
        }
        if let Some(before) = short {
            let proven = ask.proven_since.is_some_and(|since| since < before);
            let sent = proven && self.budgets.as_mut().is_none_or(|budgets| budgets.reserve(ask, now));
            return Answer { challenged, sent };
        }
        if let Some(budgets) = &mut self.budgets {
            budgets.count(ask, now);
        }
        let sent = Sent { at: now, network: ask.network, solved: challenged, entered_at: ask.entered_at };
        self.countries.entry(ask.country).or_insert_with(Country::new).sent.push_back(sent);
        let spread = self.is_spread(ask, now);
        for prefix in prefixes(ask, spread) {
            self.prefixes.entry(prefix).or_insert_with(Traffic::new).sent.push_back(sent);
        }
        if let Some(at) = ask.entered_at {
            self.reading.push_back((at, ask.range, !self.is_proven(ask)));
        }
        Answer { challenged, sent: true }
    }

    /// Whether a message counts with those to other ranges that were never proven.
    fn is_spread(&mut self, ask: &Ask, now: f64) -> bool {
        if self.is_proven(ask) {
            self.unproven.remove(&ask.range);
            return false;
        }
        let of_a_day = self.unproven.entry(ask.range).or_default();
        while of_a_day.pop_front_if(|at| *at <= now - DAY).is_some() {}
        of_a_day.push_back(now);
        of_a_day.len() <= MOST_OF_AN_UNPROVEN_RANGE as usize
    }

    fn is_proven(&self, ask: &Ask) -> bool {
        self.proven.get(&ask.range).is_some_and(|(_, proven)| *proven)
    }

    /// Whether nearly all codes that came back within a day are from proven ranges.
    fn mostly_proven(&self) -> bool {
        let all = self.entered.len();
        all > 0 && 5 * self.entered_in_proven >= PROVEN_OF_FIVE as usize * all
    }

    /// Codes that were entered until now.
    fn read(&mut self, now: f64) {
        while let Some((_, is_new)) = self.entered.pop_front_if(|(at, _)| *at <= now - DAY) {
            self.entered_in_proven -= usize::from(!is_new);
        }
        while let Some((at, range, is_new)) = self.reading.pop_front_if(|(at, ..)| *at <= now) {
            self.entered.push_back((at, is_new));
            self.entered_in_proven += usize::from(!is_new);
            let (first, proven) = self.proven.entry(range).or_insert((at, false));
            *proven |= at - *first >= DAY;
        }
    }

    fn found(&mut self, ask: &Ask, now: f64) -> Option<Found> {
        let shows = self.way != Way::Relay;
        let mut found: Option<Found> = None;
        let (unproven, mostly_proven) = (self.learns && !self.is_proven(ask), self.mostly_proven());
        for prefix in prefixes(ask, unproven) {
            let Some(traffic) = self.prefixes.get_mut(&prefix) else { continue };
            let lately = traffic.brakes_before(&self.brake, now);
            let before = if self.learns && !matches!(prefix, Prefix::Block(..)) { lately } else { 0 };
            let ladder = match prefix {
                Prefix::Block(..) => Ladder::of_block(&self.brake, shows),
                Prefix::Unproven if !mostly_proven => {
                    Ladder::of_range(&self.brake, shows, before).times(WHILE_PEOPLE_ARE_NEW)
                }
                Prefix::Range(_) | Prefix::Unproven => Ladder::of_range(&self.brake, shows, before),
            };
            let window = self.brake.window.as_secs_f64();
            let (spans, longest) = match prefix {
                Prefix::Block(..) => (vec![window], window),
                Prefix::Range(_) if !self.learns => (vec![window], window),
                Prefix::Range(_) if before == 0 => (vec![window, DAY], DAY),
                Prefix::Range(_) | Prefix::Unproven => (vec![DAY], DAY),
            };
            match (found, traffic.judge(&ladder, &self.brake, (before, &spans, longest), now)) {
                (Some(Found::Brake { proven_before: one }), Some(Found::Brake { proven_before: other })) => {
                    found = Some(Found::Brake { proven_before: one.min(other) });
                }
                (Some(Found::Brake { .. }), _) | (_, None) => {}
                (_, more) => found = more,
            }
        }
        if found.is_none() && self.learns && shows {
            let country = self.countries.entry(ask.country).or_insert_with(Country::new);
            found = country.asks(&self.brake, now).then_some(Found::Challenge);
        }
        found
    }
}

/// What was sent to a country within a day, oldest first, and how many codes came back on each day before.
struct Country {
    sent: VecDeque<Sent>,
    days: HashMap<u64, u32>,
    /// When it was judged, and what it asked.
    judged: (f64, bool),
}

impl Country {
    fn new() -> Self {
        Self { sent: VecDeque::new(), days: HashMap::new(), judged: (f64::NEG_INFINITY, false) }
    }

    fn asks(&mut self, brake: &Brake, now: f64) -> bool {
        /// As the product.
        const DAYS: u64 = 14;
        /// The product's ten seconds would take six times as long, and change no figure.
        const JUDGED_EVERY: f64 = 60.0;
        if let (at, asks) = self.judged
            && at > now - JUDGED_EVERY
        {
            return asks;
        }
        while let Some(old) = self.sent.pop_front_if(|sent| sent.at <= now - DAY) {
            if old.entered_at.is_some() {
                *self.days.entry((old.at / DAY) as u64).or_default() += 1;
            }
        }
        let today = (now / DAY) as u64;
        self.days.retain(|day, _| day + DAYS >= today);
        let (mut networks, mut returned): (HashMap<u32, u32>, _) = (HashMap::new(), 0);
        for sent in &self.sent {
            if sent.entered_at.is_some_and(|at| at <= now) {
                returned += 1;
            } else {
                *networks.entry(sent.network).or_default() += if sent.solved { 1 } else { 2 };
            }
        }
        let most = 2 * most_of_a_network(brake.min_sent_country);
        let unreturned: u32 = networks.values().map(|weight| weight.min(&most)).sum::<u32>() / 2;
        let best_day = self.days.values().max().copied().unwrap_or_default().max(returned);
        self.judged = (now, unreturned >= country_asks_from(brake, best_day));
        self.judged.1
    }
}

fn prefixes(ask: &Ask, unproven: bool) -> impl Iterator<Item = Prefix> {
    let own = [Prefix::Block(ask.range, ask.number / 10_000), Prefix::Range(ask.range)];
    own.into_iter().chain(unproven.then_some(Prefix::Unproven))
}

impl Traffic {
    const fn new() -> Self {
        Self { sent: VecDeque::new(), brakes: Vec::new(), cleared_at: f64::NEG_INFINITY }
    }

    fn brakes_before(&mut self, brake: &Brake, now: f64) -> usize {
        self.brakes.retain(|(_, ends)| *ends > now - brake.again_within.as_secs_f64());
        self.brakes.iter().filter(|(_, ends)| *ends <= now).count()
    }

    fn judge(
        &mut self,
        ladder: &Ladder,
        brake: &Brake,
        (before, spans, longest): (usize, &[f64], f64),
        now: f64,
    ) -> Option<Found> {
        let under = |began: f64| Found::Brake { proven_before: began - longest };
        let last = self.brakes.last().copied();
        if let Some((began, ends)) = last
            && ends > now
        {
            return Some(under(began));
        }
        while self.sent.front().is_some_and(|sent| sent.at <= now - DAY) {
            self.sent.pop_front();
        }
        let mut found = None;
        for span in spans {
            let is_second = spans.len() == 2 && *span == DAY;
            if is_second && found.is_none() && self.cleared_at > now - CLEARED_FOR {
                continue;
            }
            let since = last.map_or(now - span, |(_, ended)| ended.max(now - span));
            let traffic = self.weigh(ladder, brake, since, now);
            match traffic.and_then(|traffic| ladder.rung(&traffic, brake.min_entered)) {
                None if is_second && found.is_none() => self.cleared_at = now,
                None => {}
                Some(Rung::Challenge) => found = Some(Found::Challenge),
                Some(Rung::Brake) => {
                    self.brakes.push((now, now + lasts(brake, before).as_secs_f64()));
                    return Some(under(now));
                }
            }
        }
        found
    }

    /// What the ledger's query counts. None if so many codes were entered that no network's share matters.
    fn weigh(&self, ladder: &Ladder, brake: &Brake, since: f64, now: f64) -> Option<PrefixTraffic> {
        let is_entered = |sent: &&Sent| sent.entered_at.is_some_and(|at| at <= now);
        let first = self.sent.partition_point(|sent| sent.at <= since);
        let judged = || self.sent.range(first..);
        let (sent, entered) = (judged().len() as i64, judged().filter(is_entered).count() as i64);
        if entered as f64 >= brake.min_entered * sent as f64 {
            return None;
        }
        let mut networks: HashMap<u32, (i64, i64)> = HashMap::new();
        for one in judged().filter(|sent| !is_entered(sent)) {
            let (weight, solved) = networks.entry(one.network).or_default();
            *weight += 2 - i64::from(one.solved);
            *solved += i64::from(one.solved);
        }
        let (most, most_solved) = (2 * i64::from(ladder.most), i64::from(ladder.most_solved));
        let weight = networks.values().map(|(weight, _)| weight.min(&most)).sum();
        let solved = networks.values().map(|(_, solved)| solved.min(&most_solved)).sum();
        Some(PrefixTraffic { sent, entered, weight, solved, oldest: None })
    }
}

/// The default limits on messages of our own pages, but for `sms-phone`: nobody here asks twice for one number.
struct Budgets {
    address: Rules,
    network: Rules,
    prefix: Rules,
    total: Rules,
    pages: Rules,
    kept: [Rules; 2],
    logs: HashMap<(u8, u64), VecDeque<f64>>,
}

/// The rules of a limit: how many within how many seconds, and what then.
type Rules = Vec<(usize, f64, RuleAction)>;

/// docs/sms.md, "When codes are short": what is open to everybody, and what of the total to our pages.
const OPEN: f64 = 0.8;
const OPEN_TO_PAGES: f64 = 0.6;

fn rules(limit: &Limit, part: f64) -> Rules {
    let rule = |rule: &gatehouse_limiter::Rule| {
        let RuleSpan::Sliding(window) = rule.span else { panic!("a limit on messages slides") };
        let part = if rule.then == RuleAction::Block { part } else { 1.0 };
        ((f64::from(rule.max) * part).round() as usize, window.as_secs_f64(), rule.then)
    };
    limit.rules().iter().map(rule).collect()
}

impl Budgets {
    fn new(limits: &Limits) -> Self {
        let kept = |limit| {
            let mut kept = rules(limit, 1.0 - OPEN);
            kept.retain(|(.., then)| *then == RuleAction::Block);
            kept
        };
        Self {
            address: rules(&limits.sms_address, OPEN),
            network: rules(&limits.sms_network, OPEN),
            prefix: rules(&limits.sms_prefix, OPEN),
            total: rules(&limits.sms_total, OPEN),
            pages: rules(&limits.sms_total, OPEN_TO_PAGES),
            kept: [kept(&limits.sms_prefix), kept(&limits.sms_total)],
            logs: HashMap::new(),
        }
    }

    fn open(&self, ask: &Ask) -> [(&Rules, (u8, u64)); 5] {
        let block = u64::from(ask.range) * 100 + u64::from(ask.number / 10_000);
        [
            (&self.address, (0, ask.address.into())),
            (&self.network, (1, ask.network.into())),
            (&self.prefix, (2, block)),
            (&self.total, (3, 0)),
            (&self.pages, (4, 0)),
        ]
    }

    /// What the fullest of the logs asks for.
    fn meet(&self, ask: &Ask, now: f64) -> Option<RuleAction> {
        let full = self.open(ask).into_iter().flat_map(|(rules, log)| self.full(rules, log, now));
        full.max_by_key(|then| *then == RuleAction::Block)
    }

    fn full(&self, rules: &Rules, log: (u8, u64), now: f64) -> impl Iterator<Item = RuleAction> {
        let log = self.logs.get(&log);
        rules.iter().filter_map(move |(max, window, then)| {
            let log = log?;
            let newest = log.len().checked_sub(*max)?;
            (log[newest] > now - window).then_some(*then)
        })
    }

    fn count(&mut self, ask: &Ask, now: f64) {
        let logs = self.open(ask).map(|(rules, log)| (longest(rules), log));
        for (longest, key) in logs {
            self.add(key, longest, now);
        }
    }

    fn add(&mut self, key: (u8, u64), longest: f64, now: f64) {
        let log = self.logs.entry(key).or_default();
        while log.front().is_some_and(|at| *at <= now - longest) {
            log.pop_front();
        }
        log.push_back(now);
    }

    /// Takes one of what is kept for accounts.
    fn reserve(&mut self, ask: &Ask, now: f64) -> bool {
        let block = u64::from(ask.range) * 100 + u64::from(ask.number / 10_000);
        let keys = [(5, block), (6, 0)];
        let has_room =
            self.kept.iter().zip(keys).all(|(rules, key)| self.full(rules, key, now).next().is_none());
        if has_room {
            let longest = self.kept.each_ref().map(longest);
            for (key, longest) in keys.into_iter().zip(longest) {
                self.add(key, longest, now);
            }
        }
        has_room
    }
}

fn longest(rules: &Rules) -> f64 {
    rules.iter().map(|(_, window, _)| *window).fold(0.0, f64::max)
}
