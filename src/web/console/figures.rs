//! Sums of events for the overview and the limits.

use std::time::Duration;

use crate::audit::{Action, EventCount, Outcome};
use crate::config::{LimitName, LimitUnit};

pub const HOUR: Duration = Duration::from_secs(60 * 60);
pub const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The decisions of a limit in the last hour.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hour {
    pub admitted: u64,
    pub challenged: u64,
    pub refused: u64,
    pub noted: u64,
}

/// The decisions of one limit.
pub fn hour_of(name: &str, sums: &[EventCount]) -> Hour {
    let unit = LimitName::parse(name).map(LimitName::unit);
    let action = unit.map(|unit| match unit {
        LimitUnit::SignIn => Action::SignIn,
        LimitUnit::Attempt => Action::Attempt,
        LimitUnit::Registration => Action::Register,
        LimitUnit::Image => Action::Captcha,
        LimitUnit::Message => Action::Send,
        LimitUnit::Guess => Action::Guess,
    });
    let counts = |sum: &EventCount| action == Some(sum.action);
    let passed = [Outcome::Ok, Outcome::Wrong, Outcome::Unknown, Outcome::Asked];
    let images = unit == Some(LimitUnit::Image);
    let mine = |sum: &EventCount| sum.limit == name;
    // The device's limit counts what comes from known devices, and the others count the rest.
    let devices = [LimitName::LoginDevice.as_str(), LimitName::GuardDevice.as_str()];
    let theirs = |sum: &EventCount| devices.contains(&sum.limit.as_str()) == devices.contains(&name);
    Hour {
        admitted: total(sums, |sum| {
            counts(sum)
                && theirs(sum)
                && passed.contains(&sum.outcome)
                && (!images || sum.outcome == Outcome::Asked)
        }),
        challenged: total(sums, |sum| mine(sum) && !sum.noted && sum.outcome == Outcome::Challenged),
        refused: total(sums, |sum| mine(sum) && !sum.noted && sum.outcome == Outcome::Throttled),
        noted: total(sums, |sum| mine(sum) && sum.noted),
    }
}

pub fn total(sums: &[EventCount], fits: impl Fn(&EventCount) -> bool) -> u64 {
    sums.iter().filter(|sum| fits(sum)).map(many).sum()
}

pub fn many(sum: &EventCount) -> u64 {
    u64::try_from(sum.count).unwrap_or(0)
}
