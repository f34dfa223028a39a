//! Whether an attack that goes on has become another one: from or at somebody else. Pure.
//!
//! Its minutes are looked at from the newest back, for as long as the same network (or none) is dominant. If those on
//! this side and those on the other side of the turn would each be an attack by themselves, and differ clearly, they
//! are two. The same holds for the name that they are at, and for the prefix that messages go to.

use std::collections::HashMap;

use super::figures::FigureRow;
use super::rule::{self, MINUTE_MICROS};
use crate::audit::attack_kind::AttackKind;
use crate::clock::Micros;

/// A subject dominates from this share on; on the other side of a turn it has less than half of that.
const DOMINANT_PERCENT: u64 = 50;

type SubjectOf = fn(&FigureRow) -> Option<i64>;

/// The attempts of one minute, or of several.
#[derive(Default)]
struct Attempts {
    all: u64,
    by_subject: HashMap<i64, u64>,
}

impl Attempts {
    fn of<'a>(rows: impl IntoIterator<Item = &'a FigureRow>, subject: SubjectOf) -> Self {
        let mut attempts = Self::default();
        for row in rows {
            attempts.all += row.count;
            if let Some(key) = subject(row) {
                *attempts.by_subject.entry(key).or_default() += row.count;
            }
        }
        attempts
    }

    fn percent(&self, key: i64) -> u64 {
        self.by_subject.get(&key).map_or(0, |count| count * 100 / self.all.max(1))
    }

    fn dominant(&self) -> Option<i64> {
        let (key, _) = self.by_subject.iter().max_by_key(|(key, count)| (**count, **key))?;
        (self.percent(*key) >= DOMINANT_PERCENT).then_some(*key)
    }
}

/// When an attack of another shape began; rows are newest first, and all of what counts in the attack.
pub fn turned(kind: AttackKind, rows: &[FigureRow]) -> Option<Micros> {
    let subjects: &[SubjectOf] = match kind {
        AttackKind::SignIns | AttackKind::Attempts => &[|row| row.network, |row| row.account],
        AttackKind::Messages => &[|row| row.network, |row| row.prefix],
        AttackKind::Registrations => &[|row| row.network],
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
    let now = minutes.iter().map(of).find(busy)?.dominant();
    // The last of the busy minutes in which the same is dominant.
    let same = minutes.iter().map(of).take_while(|attempts| !busy(attempts) || attempts.dominant() == now);
    let same = same.enumerate().filter(|(_, attempts)| busy(attempts)).last()?.0 + 1;
    let (late, early) = minutes.split_at(same);
    let late_attempts = Attempts::of(late.iter().copied().flatten(), subject);
    let early_attempts = Attempts::of(early.iter().copied().flatten(), subject);
    if late_attempts.all < kind.floor() || early_attempts.all < kind.floor() {
        return None;
    }
    let before = early_attempts.dominant();
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
