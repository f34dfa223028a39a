//! What really happened, counted as the report counts it.

use gatehouse_limiter::RuleAction;

use super::truth::{Run, asked};
use super::week::Attempt;
use crate::config::{LimitName, Limits};
use crate::tuning::replay::row::{ReplayAction, replayed_limits};
use crate::tuning::replay::tally::ReplayTally;
use crate::tuning::replay::{AttemptCounts, ComparisonSide};

/// The result of a run as a report, for the attempts that came at `from` or later. Only its names and rules are the
/// replay's own.
pub fn count(attempts: &[Attempt], limits: &Limits, recorded: &Run, real: &Run, from: i64) -> ComparisonSide {
    let mut truth = ReplayTally::new(replayed_limits(limits)).finish();
    // Wrong answers are in no report: they are no attempts.
    let reported = |(_, attempt): &(usize, &Attempt)| !attempt.action.is_answer() && attempt.at >= from;
    for (number, attempt) in attempts.iter().enumerate().filter(reported) {
        let (was, is) = (&recorded.fates[number], &real.fates[number]);
        let add = |counted: &mut AttemptCounts, of: Option<LimitName>| {
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
        };
        add(&mut truth.all, None);
        for (limit, _) in asked(is.action) {
            let each = truth.limits.iter_mut().find(|it| it.name == limit.as_str()).expect("it is replayed");
            add(&mut each.counts, Some(*limit));
            each.noted += u64::from(is.noted == Some(*limit));
            if let Some((_, why)) = is.refused.filter(|(of, _)| of == limit) {
                each.rules[why.rule].refused += 1;
            }
        }
    }
    truth
}
