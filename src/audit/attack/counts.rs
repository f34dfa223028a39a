//! The attackers and the attacked, as far as the record knows; and whether an attack that goes on has become another
//! one: from or at somebody else. Pure.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::rule::{self, MINUTE_MICROS};
use crate::audit::{AttackKind, Fate, Outcome};
use crate::clock::Micros;
use crate::origins::{OriginFiles, OriginKey};

/// A subject counts as dominant from this share of the attempts on; on the other side of a turn it has less than half of
/// that.
const DOMINANT_PERCENT: u64 = 50;
/// Networks that are named.
const LARGEST: usize = 3;

/// The figures of an attack. Numbers of subjects are lower bounds: a flood of refusals names only whom the
/// limit counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttackFigures {
    /// Attempts in the last five minutes.
    pub recent: u64,
    /// What is usual in an hour, at this time of day.
    pub usual: u64,
    pub attempts: u64,
    /// The ones among them that an answer to it (`[access]`) challenged, and refused.
    pub answer_challenged: u64,
    pub answer_refused: u64,
    /// Attempts in the last minute, those of them that an answer met, and attempts in the minute before.
    pub minute: u64,
    pub minute_answered: u64,
    pub minute_before: u64,
    /// The last time that it was busy, in microseconds.
    pub busy_until: i64,
    pub addresses: u64,
    pub networks: u64,
    /// Accounts and names without one.
    pub names: u64,
    pub numbers: u64,
    pub prefixes: u64,
    /// Passwords of strangers that were compared, messages that were sent, or accounts that were created.
    pub done: u64,
    /// The ones among them since an answer first met an attempt; None before that.
    pub done_since: Option<u64>,
    pub entered: u64,
    /// Honest people who were asked for a CAPTCHA: an attempt from a known device, or soon followed by a right
    /// one for the same name from the same address (of messages: whose code was entered; of registrations:
    /// from whose address an account was created later).
    pub honest: u64,
    /// Only the newest rows were read, so that numbers of subjects are of a part of it.
    pub partial: bool,
    pub top_address: Option<AttackShare>,
    pub top_network: Option<AttackShare>,
    pub top_prefix: Option<AttackShare>,
    pub top_name: Option<AttackShare>,
    /// The busiest first, whatever their share.
    pub largest_networks: Vec<AttackShare>,
    /// Where most of it comes from, as the files in `[origins]` tell it: operators, then a country, then a list.
    pub origins: Vec<OriginShare>,
}

/// An origin of at least a tenth of the attempts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OriginShare {
    /// The origin, in the form that `[access] deny` takes.
    pub key: String,
    pub name: String,
    pub percent: u64,
}

/// A busy subject; as a `top_` one only if at least half of the attempts are its.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttackShare {
    pub key: i64,
    pub mask: String,
    pub percent: u64,
    /// The row that has the mask.
    #[serde(skip)]
    pub place: (i64, i64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttackState {
    /// More in the last minute than in the one before, by a tenth at least.
    Rising,
    Steady,
    /// An answer met at least half of the last minute's attempts.
    Answered,
    /// The last minute had less than its share of the floor.
    Quiet,
}

impl AttackFigures {
    pub const fn state(&self, kind: AttackKind) -> AttackState {
        if !rule::is_busy(kind, self.minute) {
            AttackState::Quiet
        } else if self.minute_answered * 2 >= self.minute {
            AttackState::Answered
        } else if self.minute * 10 > self.minute_before * 11 {
            AttackState::Rising
        } else {
            AttackState::Steady
        }
    }
}

/// One row of the record, of the action of the attack.
#[derive(Debug, Clone, Copy)]
pub struct FigureRow {
    pub place: (i64, i64),
    pub count: u64,
    pub outcome: Outcome,
    pub from_device: bool,
    /// An answer to an attack decided.
    pub by_answer: bool,
    pub account: Option<i64>,
    pub address: Option<i64>,
    pub network: Option<i64>,
    pub phone: Option<i64>,
    pub prefix: Option<i64>,
}

/// From rows that are newest first, and the numbers whose code was entered; without the masks of the busiest subjects.
pub fn figures(kind: AttackKind, rows: &[FigureRow], entered: &HashSet<i64>, now: Micros) -> AttackFigures {
    let counted = || rows.iter().filter(|row| kind.counts(kind.action(), row.outcome));
    let sum = |fits: &dyn Fn(&FigureRow) -> bool| -> u64 {
        counted().filter(|row| fits(row)).map(|row| row.count).sum()
    };
    let all = sum(&|_| true);
    let age = |row: &FigureRow| now.0 - row.place.0;
    let answered = |row: &FigureRow, fate: Fate| row.by_answer && row.outcome.fate(false) == fate;
    let ranked = |subject: SubjectOf| Attempts::of(counted(), subject);
    let (addresses, networks) = (ranked(|row| row.address), ranked(|row| row.network));
    let (names, numbers, prefixes) =
        (ranked(|row| row.account), ranked(|row| row.phone), ranked(|row| row.prefix));
    let done = |row: &&FigureRow| match kind {
        AttackKind::SignIns | AttackKind::Attempts => {
            matches!(row.outcome, Outcome::Ok | Outcome::Wrong) && !row.from_device
        }
        AttackKind::Messages | AttackKind::Mails => matches!(row.outcome, Outcome::Ok | Outcome::Unknown),
        AttackKind::Registrations => row.outcome == Outcome::Ok,
    };
    // Rows are newest first.
    let since = rows.iter().rposition(|row| row.by_answer);
    let done_in = |rows: &[FigureRow]| rows.iter().filter(done).map(|row| row.count).sum();
    AttackFigures {
        attempts: all,
        answer_challenged: sum(&|row| answered(row, Fate::Challenged)),
        answer_refused: sum(&|row| answered(row, Fate::Refused)),
        minute: sum(&|row| age(row) < MINUTE_MICROS),
        minute_answered: sum(&|row| age(row) < MINUTE_MICROS && row.by_answer),
        minute_before: sum(&|row| (MINUTE_MICROS..2 * MINUTE_MICROS).contains(&age(row))),
        busy_until: busy_until(kind, &counted().collect::<Vec<_>>()),
        addresses: addresses.by_subject.len() as u64,
        networks: networks.by_subject.len() as u64,
        names: names.by_subject.len() as u64,
        numbers: numbers.by_subject.len() as u64,
        prefixes: prefixes.by_subject.len() as u64,
        done: done_in(rows),
        done_since: since.map(|first| done_in(&rows[..first])),
        entered: rows.iter().filter_map(|row| row.phone).collect::<HashSet<_>>().intersection(entered).count()
            as u64,
        honest: honest(kind, rows, entered),
        top_address: addresses.dominant(),
        top_network: networks.dominant(),
        top_prefix: prefixes.dominant(),
        top_name: names.dominant(),
        largest_networks: networks.largest(LARGEST),
        ..AttackFigures::default()
    }
}

/// The largest origins of networks, of which each has its number of attempts.
pub fn origin_shares(files: &OriginFiles, networks: &[(String, i64)]) -> Vec<OriginShare> {
    const LEAST_PERCENT: u64 = 10;
    let mut counts: HashMap<OriginKey, u64> = HashMap::new();
    let mut all = 0;
    for (mask, count) in networks {
        all += count.unsigned_abs();
        // A row that names no address has no mask.
        let Ok(network) = mask.parse::<IpNet>() else { continue };
        files.of_network(network).for_each(|key| *counts.entry(key).or_default() += count.unsigned_abs());
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_unstable_by_key(|(key, count)| (Reverse(*count), key.to_string()));
    let largest = |most: usize, is_kind: fn(&OriginKey) -> bool| {
        counts.iter().filter(move |(key, _)| is_kind(key)).take(most)
    };
    let share = |(key, count): &(OriginKey, u64)| OriginShare {
        key: key.to_string(),
        name: files.name(key),
        percent: count * 100 / all.max(1),
    };
    let largest = largest(2, |key| matches!(key, OriginKey::Asn(_)))
        .chain(largest(1, |key| matches!(key, OriginKey::Country(_))))
        .chain(largest(1, |key| matches!(key, OriginKey::List(_))));
    largest.map(share).filter(|share| share.percent >= LEAST_PERCENT).collect()
}

/// The newest row with which the minute up to it is busy.
fn busy_until(kind: AttackKind, rows: &[&FigureRow]) -> i64 {
    let (mut minute, mut oldest) = (0, 0);
    for row in rows {
        while let Some(next) = rows.get(oldest).filter(|next| row.place.0 - next.place.0 < MINUTE_MICROS) {
            minute += next.count;
            oldest += 1;
        }
        if rule::is_busy(kind, minute) {
            return row.place.0;
        }
        minute -= row.count;
    }
    rows.first().map_or(0, |row| row.place.0)
}

/// People who were challenged and are known to be honest. Later attempts come first.
fn honest(kind: AttackKind, rows: &[FigureRow], entered: &HashSet<i64>) -> u64 {
    let challenged = |row: &&FigureRow| row.outcome == Outcome::Challenged;
    match kind {
        AttackKind::SignIns | AttackKind::Attempts => {
            let pair = |row: &FigureRow| Some((row.account?, row.address?));
            let mut known: HashSet<i64> = right_later(rows, pair).into_iter().map(|(name, _)| name).collect();
            known.extend(
                rows.iter().filter(challenged).filter(|row| row.from_device).filter_map(|row| row.account),
            );
            known.len() as u64
        }
        AttackKind::Messages | AttackKind::Mails => {
            let asked: HashSet<i64> = rows.iter().filter(challenged).filter_map(|row| row.phone).collect();
            asked.intersection(entered).count() as u64
        }
        AttackKind::Registrations => right_later(rows, |row| row.address).len() as u64,
    }
}

fn right_later<Who: Eq + Hash>(rows: &[FigureRow], who: impl Fn(&FigureRow) -> Option<Who>) -> HashSet<Who> {
    let (mut right, mut found) = (HashSet::new(), HashSet::new());
    for row in rows {
        let Some(who) = who(row) else { continue };
        match row.outcome {
            Outcome::Ok => {
                right.insert(who);
            }
            Outcome::Challenged if right.contains(&who) => {
                found.insert(who);
            }
            _ => {}
        }
    }
    found
}

type SubjectOf = fn(&FigureRow) -> Option<i64>;

/// Attempts, in all and by subject; for each of those also the row that first named it.
#[derive(Default)]
struct Attempts {
    all: u64,
    by_subject: HashMap<i64, (u64, (i64, i64))>,
}

impl Attempts {
    fn of<'a>(rows: impl IntoIterator<Item = &'a FigureRow>, subject: SubjectOf) -> Self {
        let mut attempts = Self::default();
        for row in rows {
            attempts.all += row.count;
            if let Some(key) = subject(row) {
                attempts.by_subject.entry(key).or_insert((0, row.place)).0 += row.count;
            }
        }
        attempts
    }

    fn percent(&self, key: i64) -> u64 {
        self.by_subject.get(&key).map_or(0, |(count, _)| count * 100 / self.all.max(1))
    }

    fn share(&self, (&key, &(_, place)): (&i64, &(u64, (i64, i64)))) -> AttackShare {
        AttackShare { key, mask: String::new(), percent: self.percent(key), place }
    }

    fn largest(&self, most: usize) -> Vec<AttackShare> {
        let mut all: Vec<_> = self.by_subject.iter().collect();
        all.sort_unstable_by_key(|(key, (count, _))| Reverse((*count, **key)));
        all.into_iter().take(most).map(|subject| self.share(subject)).collect()
    }

    fn dominant(&self) -> Option<AttackShare> {
        let top = self.by_subject.iter().max_by_key(|(key, (count, _))| (*count, **key))?;
        Some(self.share(top)).filter(|top| top.percent >= DOMINANT_PERCENT)
    }

    fn dominant_key(&self) -> Option<i64> {
        self.dominant().map(|top| top.key)
    }
}

/// When an attack of another shape began; rows are newest first, and all of what counts in the attack.
///
/// Its minutes are looked at from the newest back, for as long as the same network (or none) is dominant. If those on
/// this side and those on the other side of the turn would each be an attack by themselves, and differ clearly, they
/// are two. The same holds for the name that they are at, and for the prefix that messages go to.
pub fn turned(kind: AttackKind, rows: &[FigureRow]) -> Option<Micros> {
    let subjects: &[SubjectOf] = match kind {
        AttackKind::SignIns | AttackKind::Attempts => &[|row| row.network, |row| row.account],
        AttackKind::Messages => &[|row| row.network, |row| row.prefix],
        AttackKind::Mails | AttackKind::Registrations => &[|row| row.network],
    };
    let rows: Vec<FigureRow> =
        rows.iter().filter(|row| kind.counts(kind.action(), row.outcome)).copied().collect();
    subjects.iter().filter_map(|subject| turned_by(kind, &rows, *subject)).max()
}

fn turned_by(kind: AttackKind, rows: &[FigureRow], subject: SubjectOf) -> Option<Micros> {
    let minute = |row: &FigureRow| row.place.0.div_euclid(MINUTE_MICROS);
    let minutes: Vec<&[FigureRow]> = rows.chunk_by(|one, other| minute(one) == minute(other)).collect();
    let busy = |attempts: &Attempts| rule::is_busy(kind, attempts.all);
    let of = |rows: &&[FigureRow]| Attempts::of(*rows, subject);
    let now = minutes.iter().map(of).find(busy)?.dominant_key();
    // The last of the busy minutes in which the same is dominant.
    let same =
        minutes.iter().map(of).take_while(|attempts| !busy(attempts) || attempts.dominant_key() == now);
    let same = same.enumerate().filter(|(_, attempts)| busy(attempts)).last()?.0 + 1;
    let (late, early) = minutes.split_at(same);
    let late_attempts = Attempts::of(late.iter().copied().flatten(), subject);
    let early_attempts = Attempts::of(early.iter().copied().flatten(), subject);
    if late_attempts.all < kind.floor() || early_attempts.all < kind.floor() {
        return None;
    }
    let before = early_attempts.dominant_key();
    let rare = |attempts: &Attempts, key| attempts.percent(key) * 2 < DOMINANT_PERCENT;
    let differs = match (now, before) {
        (Some(key), _) => rare(&early_attempts, key),
        (None, Some(key)) => rare(&late_attempts, key),
        (None, None) => false,
    };
    // In the minute of the turn there may be some of both.
    let new = |row: &&FigureRow| if now.is_some() { subject(row) == now } else { subject(row) != before };
    let (turn, older) = early.split_first()?;
    let older = Attempts::of(older.iter().copied().flatten(), subject);
    let is_new = now.is_some_and(|key| older.percent(key) == 0);
    let at_turn = turn.iter().rfind(new).filter(|_| is_new);
    let first = at_turn.or_else(|| late.last()?.iter().rfind(new));
    first.filter(|_| differs).map(|row| Micros(row.place.0))
}
