//! What really happened, counted as the report counts it.

use gatehouse_limiter::RuleAction;

use super::truth::{Run, asked};
use super::week::Attempt;
use crate::config::{LimitName, Limits};
use crate::tuning::replay::row::{self, ReplayAction};

/// The result of a run in the report's terms, for the attempts that came at `from` or later.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counted {
    pub attempts: u64,
    pub admitted: u64,
    pub challenged: u64,
    pub throttled: u64,
    pub bothered: u64,
    pub guesses_verified: u64,
    pub guesses_stopped: u64,
    pub messages_sent: u64,
    pub messages_stopped: u64,
    pub unknown: u64,
    pub noted: u64,
    pub rules: Vec<u64>,
}

/// All, and each limit.
pub fn count(
    attempts: &[Attempt],
    limits: &Limits,
    recorded: &Run,
    real: &Run,
    from: i64,
) -> (Counted, Vec<Counted>) {
    let mut all = Counted::default();
    let mut each: Vec<Counted> = row::replayed_limits(limits)
        .iter()
        .map(|limit| Counted { rules: vec![0; limit.rules().len()], ..Counted::default() })
        .collect();
    // Wrong answers are in no report: they are no attempts.
    let reported = |(_, attempt): &(usize, &Attempt)| !attempt.action.is_answer() && attempt.at >= from;
    for (number, attempt) in attempts.iter().enumerate().filter(reported) {
        let (was, is) = (&recorded.fates[number], &real.fates[number]);
        let add = |counted: &mut Counted, of: Option<LimitName>| {
            let refused =
                is.refused.filter(|(limit, _)| of.is_none_or(|of| of == *limit)).map(|(_, why)| why);
            let admitted = is.refused.is_none();
            let password = attempt.action != ReplayAction::Send && attempt.action != ReplayAction::Register;
            let known_wrong = password && !attempt.right && was.refused.is_none();
            counted.attempts += 1;
            counted.admitted += u64::from(admitted);
            counted.challenged += u64::from(refused.is_some_and(|why| why.then == RuleAction::Captcha));
            counted.throttled += u64::from(refused.is_some_and(|why| why.then == RuleAction::Block));
            counted.bothered += u64::from(refused.is_some() && recorded.honest[number]);
            counted.guesses_verified += u64::from(admitted && password && !attempt.right);
            counted.guesses_stopped += u64::from(refused.is_some() && known_wrong);
            let message = attempt.action == ReplayAction::Send;
            counted.messages_sent += u64::from(message && admitted);
            counted.messages_stopped += u64::from(message && refused.is_some());
            let asked_now = is.refused.is_some_and(|(_, why)| why.then == RuleAction::Captcha);
            let asked_then = was.refused.is_some_and(|(_, why)| why.then == RuleAction::Captcha);
            let unknown = admitted && was.refused.is_some() || asked_now && !asked_then;
            counted.unknown += u64::from(unknown);
            if let (Some(why), Some(_)) = (refused, of) {
                counted.rules[why.rule] += 1;
            }
            counted.noted += u64::from(of.is_some() && is.noted == of);
        };
        add(&mut all, None);
        for (limit, _) in asked(is.action) {
            add(&mut each[*limit as usize], Some(*limit));
        }
    }
    let replayed = LimitName::ALL.iter().zip(each).filter(|(name, _)| row::is_replayed(**name));
    (all, replayed.map(|(_, counted)| counted).collect())
}
