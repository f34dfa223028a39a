//! The common parts of the benches: rounds taken in turn, medians, tables with their bars, and a pinned core.
#![expect(dead_code, reason = "each bench is a program of its own and uses its own part of this")]

pub mod contest;
pub mod cores;
/// The tests' own servers.
#[path = "../../tests/it/support"]
pub mod harness {
    pub mod ports;
    pub mod redis;
    pub mod steered;
}
pub mod load;
pub mod redis;

use std::time::Duration;

use gatehouse::entropy::Entropy;
use gatehouse::secret::MasterKey;
use gatehouse_limiter::*;

pub const HOUR: Duration = Duration::from_secs(3600);

/// At most `max` in `window`, as an owner would set it.
pub fn limit(max: u32, window: Duration) -> Limit {
    let rules = vec![Rule::sliding(max, window, RuleAction::Block)];
    Limit::new("login-account", rules, LimitMode::Enforce).expect("within what a limit may ask")
}

pub fn limiter<S: WindowStore + 'static>(store: S) -> Limiter<S> {
    Limiter::new(store, MasterKey::from_bytes([1; 32]).derive("throttle.subject"), &Entropy::seeded(1))
}

/// Subjects of the length that an e-mail address has.
pub fn subjects(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("user-{number:08}@example.org")).collect()
}

/// The same subjects in another order, each stored after the one before it: callers do not come back in the
/// order in which they first came, but the memory of their request was just read.
pub fn scattered(subjects: &[String]) -> Vec<String> {
    let mut order: Vec<usize> = (0..subjects.len()).collect();
    order.sort_by_key(|place| id(*place as u64).0);
    order.into_iter().map(|place| subjects[place].clone()).collect()
}

/// Another id at every call, as a limiter makes them.
pub fn id(number: u64) -> HitId {
    let [id @ .., _, _] = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    HitId(id)
}
