//! The share of one network in a total that all networks share.
//!
//! The share shrinks with what is left, as the buffers of switches are shared (Choudhury and Hahne, "Dynamic
//! Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM ToN 6(2), 1998): a network that has
//! that much already waits, one that has less does not. The number of networks need not be known, and
//! something is left for one that comes late.

use crate::throttle::{Limit, Rule, RulePeek};

/// Their threshold is linear. With the fifth power, one network alone gets a quarter of the total, ten that
/// ask for all they can get have 275 of 6,000 each, and a thousand have four each, with a quarter still left
/// for new ones.
const POWER: i32 = 5;

/// The total's rules as they apply to one network. One image is always allowed: the total itself decides
/// whether any is left.
pub fn of(total: &Limit, spent: &[RulePeek]) -> Limit {
    let shared = |(rule, spent): (&Rule, &RulePeek)| {
        let left = f64::from(rule.max.saturating_sub(spent.count)) / f64::from(rule.max);
        let max = (f64::from(rule.max) * left.powi(POWER)) as u32;
        Rule { max: max.max(1), ..rule.clone() }
    };
    let rules = total.rules().iter().zip(spent).map(shared).collect();
    Limit::new(total.name(), rules, total.mode()).expect("its rules are the total's, but for a smaller max")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::throttle::{LimitMode, RuleAction};

    /// Of 6,000, if every network asks for all that it can get: what each has, and what is left.
    fn settled(networks: u32) -> (u32, u32) {
        let rule = Rule::sliding(6_000, Duration::from_secs(60), RuleAction::Block);
        let total = Limit::new("total", vec![rule], LimitMode::Enforce).unwrap();
        let (mut each, mut spent) = (0, 0);
        while spent + networks <= 6_000 {
            let share = of(&total, &[RulePeek { count: spent, retry_after: Duration::ZERO }]);
            if share.rules()[0].max <= each {
                break;
            }
            each += 1;
            spent += networks;
        }
        (each, 6_000 - spent)
    }

    #[test]
    fn a_share_shrinks_with_what_is_left() {
        assert_eq!(settled(1), (1_471, 4_529));
        assert_eq!(settled(10), (276, 3_240));
        assert_eq!(settled(1_000), (5, 1_000));
        assert_eq!(settled(5_000), (1, 1_000));
    }
}
