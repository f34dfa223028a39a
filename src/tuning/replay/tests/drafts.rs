//! Sets of limits to try.

use gatehouse_limiter::{Limit, LimitMode, Rule};

use crate::config::{LimitName, Limits};
use crate::tuning::replay::row::is_replayed;

/// The limits with some of them replaced.
pub fn limits(changed: &[Limit]) -> Limits {
    let replayed = |limit: &Limit| LimitName::parse(limit.name()).is_some_and(is_replayed);
    assert!(changed.iter().all(replayed), "{changed:?}");
    Limits::default()
        .map(|name, limit| changed.iter().find(|it| it.name() == name.as_str()).unwrap_or(limit).clone())
}

pub fn enforced(name: &str, rules: Vec<Rule>) -> Limit {
    Limit::new(name, rules, LimitMode::Enforce).expect("within bounds")
}
