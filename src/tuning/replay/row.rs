//! What was recorded, as the replay takes it: 48 bytes an event, subjects by number, in the order of time.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

use crate::clock::Micros;

/// How long after an attempt the same person's success says that it was they who tried.
pub const SOON: Duration = Duration::from_secs(10 * 60);

/// Whom the limits count; the places of [`Recorded::keys`].
pub const ACCOUNT: usize = 0;
pub const ADDRESS: usize = 1;
pub const NETWORK: usize = 2;
pub const PHONE: usize = 3;
pub const PREFIX: usize = 4;
pub const KINDS: usize = 5;

/// The number of nobody.
pub const NOBODY: u32 = u32::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Action {
    SignIn,
    Guess,
    Send,
    Register,
    /// A password from a known device: the device's log alone has it, and that is not replayed.
    Known,
    /// A guess at a code that strangers' log of the number has nothing of: from the browser that asked for it, from
    /// a known device, or where there was no code.
    GuessApart,
    /// A wrong answer to a challenge. Nothing refuses it.
    Answer,
    /// A log was forgotten by an administrator.
    Clear,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// Right, sent, made.
    Ok,
    /// It was compared, and counts.
    Wrong,
    /// A message that the gateway would not have.
    Failed,
    Challenged,
    Throttled,
    /// No limit decided it: too busy, something was out.
    Undecided,
}

/// One row of `events`, as it was read.
#[derive(Debug, Clone, Copy)]
pub struct Recorded {
    pub at: Micros,
    pub until: Micros,
    pub count: u64,
    pub action: Action,
    pub outcome: Outcome,
    /// By its place among [`super::book::NAMES`]; of one that is not replayed none.
    pub limit: Option<u8>,
    pub solved: bool,
    /// Of a clearing: an owner set a new password by a code, which cleared it.
    pub reset: bool,
    /// Of a right password: whether the service meant it to forgive the account's failures, which is known to
    /// whoever verified it. Where it is not recorded it is found out from who else came.
    pub forgave: Option<bool>,
    pub keys: [Option<i64>; KINDS],
}

/// What the row cannot say by itself.
pub const SOLVED: u8 = 1;
pub const RESET: u8 = 2;
/// Right, or soon followed by the right thing from the same place.
pub const HONEST: u8 = 4;
/// Others came to the same account while it was verified: it forgave nothing.
pub const CROWDED: u8 = 8;
/// Perhaps they did.
pub const PERHAPS_CROWDED: u8 = 16;

/// The service did not mean it to forgive.
pub const UNFORGIVING: u8 = 32;
/// It did.
pub const FORGIVING: u8 = 64;

#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub at: Micros,
    pub until: Micros,
    pub count: u32,
    pub subjects: [u32; KINDS],
    pub action: Action,
    pub outcome: Outcome,
    /// Of a clearing: which limit's log; [`NO_LIMIT`] where the row does not say.
    pub limit: u8,
    flags: u8,
}

pub const NO_LIMIT: u8 = u8::MAX;

const _: () = assert!(size_of::<Row>() == 48);

impl Row {
    pub const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub const fn is_refused(&self) -> bool {
        matches!(self.outcome, Outcome::Challenged | Outcome::Throttled)
    }

    /// Where several fell into one microsecond: what counts comes before what it refused, and that before
    /// what forgives; who had solved a challenge, and could come in later, after who had not. The record does
    /// not say; this is an order in which it can have come about.
    fn rank(&self) -> u8 {
        match self.outcome {
            Outcome::Challenged | Outcome::Throttled => 2,
            Outcome::Ok if self.until == self.at => 3,
            _ => u8::from(self.has(SOLVED)),
        }
    }
}

/// Everything that was recorded of a span, and of the time before it that the limits look back over.
#[derive(Debug)]
pub struct Recording {
    pub rows: Vec<Row>,
    /// How many subjects there are of each kind.
    pub subjects: [u32; KINDS],
}

impl Recording {
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
    }
}

/// Takes rows in, in about the order of time.
#[derive(Debug, Default)]
pub struct Intake {
    rows: Vec<Row>,
    numbers: [Numbers; KINDS],
}

type Numbers = HashMap<i64, u32, BuildHasherDefault<Mix>>;

impl Intake {
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn take(&mut self, recorded: &Recorded) {
        let mut subjects = [NOBODY; KINDS];
        for ((place, numbers), key) in subjects.iter_mut().zip(&mut self.numbers).zip(recorded.keys) {
            if let Some(key) = key {
                let next = numbers.len() as u32;
                *place = *numbers.entry(key).or_insert(next);
            }
        }
        let flag = |set: bool, flag| if set { flag } else { 0 };
        self.rows.push(Row {
            at: recorded.at,
            until: recorded.until.max(recorded.at),
            count: u32::try_from(recorded.count).unwrap_or(u32::MAX),
            subjects,
            action: recorded.action,
            outcome: recorded.outcome,
            limit: recorded.limit.unwrap_or(NO_LIMIT),
            flags: flag(recorded.solved, SOLVED)
                | flag(recorded.reset, RESET)
                | flag(recorded.forgave == Some(false), UNFORGIVING)
                | flag(recorded.forgave == Some(true), FORGIVING),
        });
    }

    /// In order, each row with what the others say of it.
    pub fn finish(self) -> Recording {
        let Self { mut rows, numbers } = self;
        let subjects = numbers.map(|numbers| numbers.len() as u32);
        rows.sort_by_key(|row| (row.at, row.rank()));
        rows.shrink_to_fit();
        find_crowds(&mut rows, subjects[ACCOUNT]);
        find_honest(&mut rows);
        Recording { rows, subjects }
    }
}

/// Marks the sign-ins that were right, but not alone at their account: somebody came between their own
/// coming and their end. Of an episode only the first moment and the last are known.
fn find_crowds(rows: &mut [Row], accounts: u32) {
    let mut pending: Vec<u32> = vec![NOBODY; accounts as usize];
    let mut episodes_end: Vec<i64> = vec![i64::MIN; accounts as usize];
    let mut anonymous_end = i64::MIN;
    for index in 0..rows.len() {
        let row = rows[index];
        if row.action != Action::SignIn {
            continue;
        }
        let Some(account) = Some(row.subjects[ACCOUNT]).filter(|account| *account != NOBODY) else {
            anonymous_end = anonymous_end.max(row.until.0);
            continue;
        };
        let account = account as usize;
        if let Some(before) = rows.get_mut(pending[account] as usize)
            && before.at < row.at
            && row.at < before.until
        {
            before.flags |= CROWDED;
        }
        match row.outcome {
            Outcome::Ok => {
                let end = episodes_end[account];
                if (row.at.0 + 1..row.until.0).contains(&end) {
                    rows[index].flags |= CROWDED;
                } else if row.until > row.at && (end >= row.until.0 || anonymous_end > row.at.0) {
                    rows[index].flags |= PERHAPS_CROWDED;
                }
                pending[account] = index as u32;
            }
            Outcome::Wrong | Outcome::Failed => {}
            Outcome::Challenged | Outcome::Throttled | Outcome::Undecided => {
                episodes_end[account] = episodes_end[account].max(row.until.0);
            }
        }
    }
}

/// Marks what honest people did, as far as that can be known: the right thing, or soon after it, from the same
/// address, the right thing. A message counts where its code came back soon.
fn find_honest(rows: &mut [Row]) {
    let mut right: [HashMap<i64, Micros, BuildHasherDefault<Mix>>; 2] = Default::default();
    for row in rows.iter_mut().rev() {
        let who = match row.action {
            Action::SignIn | Action::Known => ACCOUNT,
            Action::Guess | Action::GuessApart | Action::Send => PHONE,
            Action::Register | Action::Answer | Action::Clear => continue,
        };
        let pair = [row.subjects[who], row.subjects[ADDRESS]];
        let known = !pair.contains(&NOBODY);
        let pair = i64::from(pair[0]) << 32 | i64::from(pair[1]);
        let right = &mut right[usize::from(who == PHONE)];
        if row.outcome == Outcome::Ok && row.action != Action::Send {
            row.flags |= HONEST;
            if known {
                right.insert(pair, row.at);
            }
        } else if known && right.get(&pair).is_some_and(|at| at.since(row.until) <= SOON) {
            row.flags |= HONEST;
        }
    }
}

/// Keys are keyed hashes, or numbers that were given one after the other: one multiplication spreads both.
#[derive(Debug, Default)]
pub struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }

    fn write_i64(&mut self, number: i64) {
        self.write_u64(number as u64);
    }
}
