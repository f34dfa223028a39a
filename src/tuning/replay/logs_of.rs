//! Which limits are replayed, and which logs count an attempt.

use super::row::{ACCOUNT, ADDRESS, DEVICE, NETWORK, PHONE, PREFIX, ReplayAction, ReplayRow, ReplayedLogin};
use crate::config::{LimitName, LimitSubject, LimitUnit, Limits};
use crate::throttle::{Limit, LimitMode, RuleAction};

/// The number of built-in limits; those that are not replayed have empty logs.
pub const COUNT: usize = LimitName::ALL.len();

/// A message that the gateway refused still counts for its requester.
pub const KEPT_ON_FAILURE: [LimitName; 2] = [LimitName::SmsAddress, LimitName::SmsNetwork];

/// Drawn images are not recorded one by one, and messages of other programs are not replayed by program.
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
}

impl LogRef {
    pub const fn new(limit: LimitName, row: &ReplayRow) -> Self {
        let subject = match limit.subject() {
            LimitSubject::Account | LimitSubject::RealmAccount => row.subjects[ACCOUNT],
            LimitSubject::Device | LimitSubject::RealmDevice => row.subjects[DEVICE],
            LimitSubject::Phone => row.subjects[PHONE],
            LimitSubject::Address | LimitSubject::RealmAddress => row.subjects[ADDRESS],
            LimitSubject::Network | LimitSubject::RealmNetwork => row.subjects[NETWORK],
            LimitSubject::Prefix => row.subjects[PREFIX],
            LimitSubject::Everyone | LimitSubject::Program => 0,
        };
        Self { limit, subject }
    }
}

/// The logs that count a row's attempts as this action, in the order in which they are checked.
pub fn logs_of(action: ReplayAction, row: &ReplayRow) -> impl Iterator<Item = LogRef> {
    use LimitName::*;
    let limits: &[LimitName] = match action {
        ReplayAction::SignIn => &[LoginAccount, LoginAddress, LoginNetwork],
        ReplayAction::DeviceSignIn => &[LoginDevice],
        ReplayAction::Attempt => &[GuardAccount, GuardAddress, GuardNetwork],
        ReplayAction::DeviceAttempt => &[GuardDevice],
        ReplayAction::AttemptAnswer => &[GuardAddress, GuardNetwork],
        ReplayAction::Guess => &[SmsGuess, LoginAddress, LoginNetwork],
        ReplayAction::Answer | ReplayAction::GuessApart => &[LoginAddress, LoginNetwork],
        ReplayAction::Send => &[SmsPhone, SmsAddress, SmsNetwork, SmsPrefix, SmsTotal],
        ReplayAction::Register => &[RegisterAddress],
        ReplayAction::DeviceGuess | ReplayAction::Clear => &[],
    };
    limits.iter().map(|limit| LogRef::new(*limit, row))
}
