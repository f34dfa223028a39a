//! Recorded attempts in the form that the replay uses: 36 bytes each, subjects by number, in the order of time; which
//! limits are replayed, and which logs count an attempt.

use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode, MOST_RULES, RuleAction};
use rustc_hash::FxHashMap;

use crate::clock::Micros;
use crate::config::{LimitName, LimitSubject, LimitUnit, Limits};

/// If the same person succeeds within this time after an attempt, the attempt was theirs.
pub const SOON: Duration = Duration::from_secs(10 * 60);

/// The subjects of limits, as indexes of [`RecordedEvent::keys`].
pub const ACCOUNT: usize = 0;
pub const ADDRESS: usize = 1;
pub const NETWORK: usize = 2;
pub const PHONE: usize = 3;
pub const PREFIX: usize = 4;
pub const DEVICE: usize = 5;
/// The place of the number of a message of another program. It is in the place of the device, of which it has none.
pub const PROGRAM_PHONE: usize = DEVICE;
pub const KINDS: usize = 6;

/// The most rows of one recording, and so the most subjects of a kind.
pub const MOST_ROWS: usize = 2_000_000;
/// A number of a subject.
const SUBJECT_BITS: usize = 21;
/// The number for no subject.
pub const NOBODY: u32 = (1 << SUBJECT_BITS) - 1;
const _: () = assert!(MOST_ROWS < NOBODY as usize);

/// Where a password, or what follows it, was tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayedLogin {
    Own,
    /// Another program's.
    Realm,
    /// The second step, by a code of an app.
    Factor,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ReplayAction {
    SignIn,
    /// A password that counts in the log of a known device.
    DeviceSignIn,
    /// A password at another program's login. Its subjects belong to the realm.
    Attempt,
    DeviceAttempt,
    Guess,
    /// A guess at a code from a known device or at another program; no replayed log counts it.
    DeviceGuess,
    /// A guess at a code that the number's own log does not count: it came from the browser that requested
    /// the code, or there was no code.
    GuessApart,
    /// A wrong code of an app. Right ones count nowhere, and are not recorded.
    Factor,
    DeviceFactor,
    /// A wrong recovery code or passkey, which counts for its address and network.
    FactorElsewhere,
    Send,
    /// A message of another program that checks the code here. Its requester and prefix belong to the program.
    VerifySend,
    /// A message of another program that checks the code itself.
    RelaySend,
    Register,
    /// A wrong answer to a challenge, which counted because nothing was refused.
    Answer,
    /// A wrong answer to a challenge at another program's login.
    AttemptAnswer,
    /// A log was cleared: by an administrator, or because a code set a new password.
    Clear,
}

impl ReplayAction {
    /// Whether a password or a code is compared: it takes its slot in the logs before its outcome is known.
    pub const fn is_compared(self) -> bool {
        let is_code = matches!(self, Self::Guess | Self::DeviceGuess | Self::GuessApart);
        self.is_password() || is_code || self.is_factor()
    }

    pub const fn is_password(self) -> bool {
        matches!(self, Self::SignIn | Self::DeviceSignIn | Self::Attempt | Self::DeviceAttempt)
    }

    const fn is_factor(self) -> bool {
        matches!(self, Self::Factor | Self::DeviceFactor | Self::FactorElsewhere)
    }

    pub const fn is_send(self) -> bool {
        matches!(self, Self::Send | Self::VerifySend | Self::RelaySend)
    }

    pub const fn is_answer(self) -> bool {
        matches!(self, Self::Answer | Self::AttemptAnswer)
    }

    /// For a guess from a known device: whose login it is at, and what it counts as if devices are strangers.
    pub const fn from_device(self) -> Option<(ReplayedLogin, Self)> {
        match self {
            Self::DeviceSignIn => Some((ReplayedLogin::Own, Self::SignIn)),
            Self::DeviceAttempt => Some((ReplayedLogin::Realm, Self::Attempt)),
            Self::DeviceFactor => Some((ReplayedLogin::Factor, Self::Factor)),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ReplayOutcome {
    /// Right, sent, or created.
    Ok,
    /// It was compared, and counts.
    Wrong,
    /// Taken back: a message that the gateway refused, a registration whose name was not looked up.
    Failed,
    Challenged,
    Throttled,
    /// Not decided by a replayed limit: too busy, or a dependency was out.
    Undecided,
}

/// The decision on an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayDecision {
    /// `noted`: the limit in monitor mode that would have refused it.
    Admitted { noted: Option<LimitName> },
    /// It was refused by that rule of that limit.
    Refused { limit: LimitName, rule: usize, then: RuleAction },
    /// Refused for another reason than a limit.
    Undecided,
}

/// One row of `events`, as read.
#[derive(Debug, Clone, Copy)]
pub struct RecordedEvent {
    pub at: Micros,
    pub until: Micros,
    pub count: u64,
    pub action: ReplayAction,
    pub outcome: ReplayOutcome,
    /// The limit that refused it, would have refused it (noted), or was cleared.
    pub limit: Option<LimitName>,
    pub rule: u8,
    pub noted: bool,
    pub solved: bool,
    /// For a right password: whether the account's failures were to be forgiven. For a known device it is not
    /// recorded, and is true.
    pub forgave: bool,
    pub keys: [Option<i64>; KINDS],
}

/// Two million of them are to fit into 69 MiB, so nothing in it is wider than it must be.
#[derive(Debug, Clone, Copy)]
pub struct ReplayRow {
    at: [u32; 2],
    /// Until the last attempt of an episode, or until its outcome was known: microseconds.
    lasts: u32,
    pub count: u32,
    /// Three in each half.
    subjects: [[u32; 2]; 2],
    pub action: ReplayAction,
    pub outcome: ReplayOutcome,
    /// The limit that refused it, would have refused it, or was cleared.
    pub limit: Option<LimitName>,
    /// The rule, and what else is true of it.
    bits: u8,
}

const RULE: u8 = 0b1111;
/// A limit in monitor mode would have refused it.
const NOTED: u8 = 0b1_0000;
const SOLVED: u8 = 0b10_0000;
const FORGAVE: u8 = 0b100_0000;
/// Right, or soon followed by the right one from the same place.
const HONEST: u8 = 0b1000_0000;

const _: () = assert!(size_of::<ReplayRow>() == 36 && MOST_RULES <= RULE as usize);

const fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}

const fn whole([low, high]: [u32; 2]) -> u64 {
    low as u64 | (high as u64) << 32
}

impl ReplayRow {
    pub const fn at(&self) -> Micros {
        Micros(whole(self.at) as i64)
    }

    pub const fn subject(&self, kind: usize) -> u32 {
        (whole(self.subjects[kind / 3]) >> (kind % 3 * SUBJECT_BITS)) as u32 & NOBODY
    }

    pub const fn lasts(&self) -> Duration {
        Duration::from_micros(self.lasts as u64)
    }

    pub fn until(&self) -> Micros {
        self.at().plus(self.lasts())
    }

    pub const fn solved(&self) -> bool {
        self.bits & SOLVED != 0
    }

    pub const fn forgave(&self) -> bool {
        self.bits & FORGAVE != 0
    }

    pub const fn honest(&self) -> bool {
        self.bits & HONEST != 0
    }

    pub const fn is_refused(&self) -> bool {
        matches!(self.outcome, ReplayOutcome::Challenged | ReplayOutcome::Throttled)
    }

    /// The recorded decision.
    pub fn decision(&self) -> ReplayDecision {
        let refused = |then| match self.limit {
            Some(limit) => ReplayDecision::Refused { limit, rule: usize::from(self.bits & RULE), then },
            None => ReplayDecision::Undecided,
        };
        match self.outcome {
            ReplayOutcome::Ok | ReplayOutcome::Wrong | ReplayOutcome::Failed => {
                ReplayDecision::Admitted { noted: self.limit.filter(|_| self.bits & NOTED != 0) }
            }
            ReplayOutcome::Challenged => refused(RuleAction::Captcha),
            ReplayOutcome::Throttled => refused(RuleAction::Block),
            ReplayOutcome::Undecided => ReplayDecision::Undecided,
        }
    }

    /// Whether the record cannot know how it would have ended with this decision instead.
    pub fn is_unknown_if(&self, decision: ReplayDecision) -> bool {
        match decision {
            ReplayDecision::Admitted { .. } => self.is_refused(),
            ReplayDecision::Refused { then: RuleAction::Captcha, .. } => {
                self.outcome != ReplayOutcome::Challenged
            }
            ReplayDecision::Refused { then: RuleAction::Block, .. } | ReplayDecision::Undecided => false,
        }
    }

    /// The order within one microsecond: what counts comes before what it refused, and that before what
    /// forgives; a solved challenge comes last. The record does not say; this order is possible.
    fn rank(&self) -> u8 {
        match self.outcome {
            ReplayOutcome::Challenged | ReplayOutcome::Throttled => 2,
            ReplayOutcome::Ok if self.lasts == 0 => 3,
            _ => u8::from(self.solved()),
        }
    }
}

/// Collects rows, nearly in the order of time.
#[derive(Debug, Default)]
pub struct RowIntake {
    rows: Vec<ReplayRow>,
    numbers: [FxHashMap<i64, u32>; KINDS],
}

impl RowIntake {
    pub fn take(&mut self, recorded: &RecordedEvent) {
        let mut subjects = [0; 2];
        for (kind, (numbers, key)) in self.numbers.iter_mut().zip(recorded.keys).enumerate() {
            let next = (numbers.len() as u32).min(NOBODY);
            let number = key.map_or(NOBODY, |key| *numbers.entry(key).or_insert(next));
            subjects[kind / 3] |= u64::from(number) << (kind % 3 * SUBJECT_BITS);
        }
        // Refused by no replayed limit: no draft admits it.
        let foreign = matches!(recorded.outcome, ReplayOutcome::Challenged | ReplayOutcome::Throttled)
            && recorded.limit.is_none();
        let bit = |is, bit| if is { bit } else { 0 };
        self.rows.push(ReplayRow {
            at: halves(recorded.at.0 as u64),
            lasts: u32::try_from(recorded.until.since(recorded.at).as_micros()).unwrap_or(u32::MAX),
            count: u32::try_from(recorded.count).unwrap_or(u32::MAX),
            subjects: subjects.map(halves),
            action: recorded.action,
            outcome: if foreign { ReplayOutcome::Undecided } else { recorded.outcome },
            limit: recorded.limit,
            bits: recorded.rule.min(RULE)
                | bit(recorded.noted, NOTED)
                | bit(recorded.solved, SOLVED)
                | bit(recorded.forgave, FORGAVE),
        });
    }

    pub const fn is_full(&self) -> bool {
        self.rows.len() >= MOST_ROWS
    }

    /// In the order of time: those of one row may have come between those of others. Those of one microsecond sorted, each
    /// with what the others reveal about it.
    pub fn finish(self) -> Vec<ReplayRow> {
        let mut rows = self.rows;
        rows.sort_by_key(ReplayRow::at);
        for same in rows.chunk_by_mut(|one, other| one.at == other.at) {
            same.sort_by_key(ReplayRow::rank);
        }
        rows.shrink_to_fit();
        find_honest(&mut rows);
        rows
    }
}

/// Marks attempts of honest people, as far as that can be known: a right one, or one soon followed by a right
/// one from the same address. A message counts if its code was entered soon.
fn find_honest(rows: &mut [ReplayRow]) {
    let mut right: [FxHashMap<[u32; 2], Micros>; 2] = Default::default();
    for row in rows.iter_mut().rev() {
        let who = match row.action {
            ReplayAction::SignIn
            | ReplayAction::DeviceSignIn
            | ReplayAction::Attempt
            | ReplayAction::DeviceAttempt => ACCOUNT,
            ReplayAction::Guess
            | ReplayAction::DeviceGuess
            | ReplayAction::GuessApart
            | ReplayAction::Send
            | ReplayAction::VerifySend
            | ReplayAction::RelaySend => PHONE,
            // A guesser of factors has the right password, so that a right one soon tells nothing of them.
            ReplayAction::Factor
            | ReplayAction::DeviceFactor
            | ReplayAction::FactorElsewhere
            | ReplayAction::Register
            | ReplayAction::Answer
            | ReplayAction::AttemptAnswer
            | ReplayAction::Clear => continue,
        };
        let pair = [row.subject(who), row.subject(ADDRESS)];
        let known = !pair.contains(&NOBODY);
        let right = &mut right[usize::from(who == PHONE)];
        if row.outcome == ReplayOutcome::Ok && !row.action.is_send() {
            row.bits |= HONEST;
            if known {
                right.insert(pair, row.at());
            }
        } else if known && right.get(&pair).is_some_and(|at| at.since(row.until()) <= SOON) {
            row.bits |= HONEST;
        }
    }
}

/// The number of built-in limits; those that are not replayed have empty logs.
pub const COUNT: usize = LimitName::ALL.len();

/// A message that the gateway refused still counts for its requester.
pub const KEPT_ON_FAILURE: [LimitName; 4] =
    [LimitName::SmsAddress, LimitName::SmsNetwork, LimitName::ProgramAddress, LimitName::ProgramNetwork];

/// Mails are not replayed. No event tells which password was tried. Drawn images and wrong calls of clients are not recorded
/// one by one, nor is whose grant a token repeats; the budgets of programs are not replayed.
pub fn is_replayed(limit: LimitName) -> bool {
    use LimitUnit::{ClientCall, Image, Mail, Name, Repeat};
    !matches!(limit.unit(), Image | ClientCall | Repeat | Name | Mail)
        && !matches!(limit.subject(), LimitSubject::Program | LimitSubject::Mailbox)
}

/// The limits that a replay knows, by their numbers.
pub fn replayed_limits(limits: &Limits) -> [&Limit; COUNT] {
    let mut limits = limits.iter();
    std::array::from_fn(|_| limits.next().expect("each name has a limit"))
}

/// Whether known devices are counted separately from strangers, and recorded so: at our own sign-in, or at the logins
/// of other programs.
pub fn counts_devices(limits: &Limits, login: ReplayedLogin) -> bool {
    let enforced = |limit: &Limit| limit.mode() == LimitMode::Enforce && !limit.rules().is_empty();
    match login {
        ReplayedLogin::Own => enforced(&limits.login_device) && enforced(&limits.login_account),
        ReplayedLogin::Realm => enforced(&limits.guard_device) && enforced(&limits.guard_account),
        ReplayedLogin::Factor => enforced(&limits.factor_device),
    }
}

/// Whether a limit counts wrong answers to challenges: only if none of its rules blocks.
pub fn counts_answers(limit: &Limit) -> bool {
    limit.rules().iter().all(|rule| rule.then == RuleAction::Captcha)
}

/// One subject's log under one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogRef {
    pub limit: LimitName,
    /// [`NOBODY`] if the record does not name it.
    pub subject: u32,
    pub part: LogPart,
}

/// Which rules of its limit a log is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogPart {
    All,
    /// The others refuse nobody here.
    Blocks,
    /// It counts beside the log for the others: what one sender sent.
    Challenges,
}

/// The number of the log of `sms-total` that counts what our own pages sent.
const PAGES: u32 = 1;

impl LogRef {
    pub const fn new(limit: LimitName, row: &ReplayRow) -> Self {
        Self::part(limit, LogPart::All, row)
    }

    const fn part(limit: LimitName, part: LogPart, row: &ReplayRow) -> Self {
        let subject = match limit.subject() {
            LimitSubject::Phone if matches!(part, LogPart::Challenges) => row.subject(PROGRAM_PHONE),
            LimitSubject::Everyone if matches!(part, LogPart::Challenges) => PAGES,
            LimitSubject::Account | LimitSubject::RealmAccount => row.subject(ACCOUNT),
            LimitSubject::Device | LimitSubject::RealmDevice => row.subject(DEVICE),
            LimitSubject::Phone => row.subject(PHONE),
            LimitSubject::Address | LimitSubject::RealmAddress | LimitSubject::ProgramAddress => {
                row.subject(ADDRESS)
            }
            LimitSubject::Network | LimitSubject::RealmNetwork | LimitSubject::ProgramNetwork => {
                row.subject(NETWORK)
            }
            LimitSubject::Prefix | LimitSubject::ProgramPrefix => row.subject(PREFIX),
            LimitSubject::Everyone
            | LimitSubject::Program
            | LimitSubject::Grant
            | LimitSubject::Password
            | LimitSubject::Mailbox
            | LimitSubject::MailDomain => 0,
        };
        Self { limit, subject, part }
    }

    /// Whether `captcha` rules let an attempt pass here.
    pub const fn spares(self, row: &ReplayRow) -> bool {
        row.solved() || matches!(self.part, LogPart::Blocks)
    }
}

/// The logs that count a row's attempts as this action, in the order in which they are checked.
pub fn logs_of(action: ReplayAction, row: &ReplayRow) -> impl Iterator<Item = LogRef> {
    use LimitName::*;
    use LogPart::{All, Blocks, Challenges};
    let logs: &[(LimitName, LogPart)] = match action {
        ReplayAction::SignIn => &[(LoginAccount, All), (LoginAddress, All), (LoginNetwork, All)],
        ReplayAction::DeviceSignIn => &[(LoginDevice, All)],
        ReplayAction::Attempt => &[(GuardAccount, All), (GuardAddress, All), (GuardNetwork, All)],
        ReplayAction::DeviceAttempt => &[(GuardDevice, All)],
        ReplayAction::Factor => &[(FactorAccount, All)],
        ReplayAction::DeviceFactor => &[(FactorDevice, All)],
        ReplayAction::AttemptAnswer => &[(GuardAddress, All), (GuardNetwork, All)],
        ReplayAction::Guess => &[(SmsGuess, All), (LoginAddress, All), (LoginNetwork, All)],
        ReplayAction::FactorElsewhere | ReplayAction::Answer | ReplayAction::GuessApart => {
            &[(LoginAddress, All), (LoginNetwork, All)]
        }
        ReplayAction::Send => &[
            (SmsPhone, All),
            (SmsAddress, All),
            (SmsNetwork, All),
            (SmsPrefix, All),
            (SmsTotal, Blocks),
            (SmsTotal, Challenges),
        ],
        ReplayAction::VerifySend => &[
            (SmsPhone, Blocks),
            (SmsPhone, Challenges),
            (ProgramAddress, All),
            (ProgramNetwork, All),
            (ProgramPrefix, All),
            (SmsTotal, Blocks),
        ],
        ReplayAction::RelaySend => &[
            (SmsPhone, Blocks),
            (ProgramAddress, Blocks),
            (ProgramNetwork, Blocks),
            (ProgramPrefix, Blocks),
            (SmsTotal, Blocks),
        ],
        ReplayAction::Register => &[(RegisterAddress, All)],
        ReplayAction::DeviceGuess | ReplayAction::Clear => &[],
    };
    logs.iter().map(|(limit, part)| LogRef::part(*limit, *part, row))
}
