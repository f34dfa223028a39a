//! Sets of limits to try.

use crate::config::Limits;
use crate::throttle::{Limit, Mode, Rule};
use crate::tuning::replay::NAMES;

/// The limits with some of them replaced.
pub fn limits(changed: &[Limit]) -> Limits {
    let mut limits = Limits::default();
    for limit in changed {
        let place = match NAMES.iter().position(|name| *name == limit.name()).expect("a limit") {
            0 => &mut limits.login_account,
            1 => &mut limits.login_address,
            2 => &mut limits.login_network,
            3 => &mut limits.register_address,
            4 => &mut limits.sms_phone,
            5 => &mut limits.sms_address,
            6 => &mut limits.sms_network,
            7 => &mut limits.sms_prefix,
            8 => &mut limits.sms_total,
            _ => &mut limits.sms_guess,
        };
        *place = limit.clone();
    }
    limits
}

pub fn enforced(name: &str, rules: Vec<Rule>) -> Limit {
    Limit::new(name, rules, Mode::Enforce).expect("within bounds")
}
