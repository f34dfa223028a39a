//! Which limits are replayed, and which logs count an attempt.

use super::row::{
    ACCOUNT, ADDRESS, DEVICE, NETWORK, PHONE, PREFIX, PROGRAM_PHONE, ReplayAction, ReplayRow, ReplayedLogin,
    SOLVED,
};
use crate::config::{LimitName, LimitSubject, LimitUnit, Limits};
use crate::throttle::{Limit, LimitMode, RuleAction};

/// The number of built-in limits; those that are not replayed have empty logs.
pub const COUNT: usize = LimitName::ALL.len();

/// A message that the gateway refused still counts for its requester.
pub const KEPT_ON_FAILURE: [LimitName; 4] =
    [LimitName::SmsAddress, LimitName::SmsNetwork, LimitName::ProgramAddress, LimitName::ProgramNetwork];

/// Drawn images are not recorded one by one, and the budgets of programs are not replayed.
pub fn is_replayed(limit: LimitName) -> bool {
    limit.unit() != LimitUnit::Image && limit.subject() != LimitSubject::Program
}

/// By their numbers.
pub fn limits(limits: &Limits) -> [&Limit; COUNT] {
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
    /// [`NOBODY`](super::row::NOBODY) if the record does not name it.
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
            LimitSubject::Phone if matches!(part, LogPart::Challenges) => row.subjects[PROGRAM_PHONE],
            LimitSubject::Everyone if matches!(part, LogPart::Challenges) => PAGES,
            LimitSubject::Account | LimitSubject::RealmAccount => row.subjects[ACCOUNT],
            LimitSubject::Device | LimitSubject::RealmDevice => row.subjects[DEVICE],
            LimitSubject::Phone => row.subjects[PHONE],
            LimitSubject::Address | LimitSubject::RealmAddress | LimitSubject::ProgramAddress => {
                row.subjects[ADDRESS]
            }
            LimitSubject::Network | LimitSubject::RealmNetwork | LimitSubject::ProgramNetwork => {
                row.subjects[NETWORK]
            }
            LimitSubject::Prefix | LimitSubject::ProgramPrefix => row.subjects[PREFIX],
            LimitSubject::Everyone | LimitSubject::Program => 0,
        };
        Self { limit, subject, part }
    }

    /// Whether `captcha` rules let an attempt pass here.
    pub const fn spares(self, row: &ReplayRow) -> bool {
        row.has(SOLVED) || matches!(self.part, LogPart::Blocks)
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
        ReplayAction::AttemptAnswer => &[(GuardAddress, All), (GuardNetwork, All)],
        ReplayAction::Guess => &[(SmsGuess, All), (LoginAddress, All), (LoginNetwork, All)],
        ReplayAction::Answer | ReplayAction::GuessApart => &[(LoginAddress, All), (LoginNetwork, All)],
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
