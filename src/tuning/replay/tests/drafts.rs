//! Sets of limits to try.

use gatehouse_limiter::{Limit, LimitMode, Rule};

use crate::config::{LimitName, Limits};

/// The limits with some of them replaced.
pub fn limits(changed: &[Limit]) -> Limits {
    let mut limits = Limits::default();
    for limit in changed {
        let place = match LimitName::parse(limit.name()).expect("a limit") {
            LimitName::LoginAccount => &mut limits.login_account,
            LimitName::LoginDevice => &mut limits.login_device,
            LimitName::LoginAddress => &mut limits.login_address,
            LimitName::LoginNetwork => &mut limits.login_network,
            LimitName::FactorAccount => &mut limits.factor_account,
            LimitName::FactorDevice => &mut limits.factor_device,
            LimitName::GuardAccount => &mut limits.guard_account,
            LimitName::GuardDevice => &mut limits.guard_device,
            LimitName::GuardAddress => &mut limits.guard_address,
            LimitName::GuardNetwork => &mut limits.guard_network,
            LimitName::RegisterAddress => &mut limits.register_address,
            LimitName::SmsPhone => &mut limits.sms_phone,
            LimitName::SmsAddress => &mut limits.sms_address,
            LimitName::SmsNetwork => &mut limits.sms_network,
            LimitName::SmsPrefix => &mut limits.sms_prefix,
            LimitName::SmsTotal => &mut limits.sms_total,
            LimitName::ProgramAddress => &mut limits.program_address,
            LimitName::ProgramNetwork => &mut limits.program_network,
            LimitName::ProgramPrefix => &mut limits.program_prefix,
            LimitName::SmsGuess => &mut limits.sms_guess,
            name => panic!("{name:?} is not replayed"),
        };
        *place = limit.clone();
    }
    limits
}

pub fn enforced(name: &str, rules: Vec<Rule>) -> Limit {
    Limit::new(name, rules, LimitMode::Enforce).expect("within bounds")
}
