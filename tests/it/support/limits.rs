//! Limits and limiters, as the tests of the limiter and of the application on it make them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gatehouse_limiter::clock::Micros;
use gatehouse_limiter::entropy::Entropy;
use gatehouse_limiter::{HitId, Limit, LimitMode, Limiter, Rule, RuleAction, SubKey, WindowStore};

/// 2026-03-01 12:00:00 UTC, an even second.
pub const NOON: Micros = Micros(1_772_366_400_000_000);

pub fn limiter<S: WindowStore + 'static>(store: S) -> Limiter<S> {
    Limiter::new(store, SubKey::from_bytes([1; 32]), &Entropy::Os)
}

/// For cases in which the id of a hit does not matter, as long as it is new. Ids increase, so that of two
/// hits in one microsecond every store treats the first as the older.
pub fn fresh_id() -> HitId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let [_, _, id @ ..] = NEXT.fetch_add(1, Ordering::SeqCst).to_be_bytes();
    HitId(id)
}

pub fn sliding(max: u32, window: Duration) -> Rule {
    Rule::sliding(max, window, RuleAction::Block)
}

pub fn limit(name: &str, rules: &[Rule]) -> Limit {
    Limit::new(name, rules.to_vec(), LimitMode::Enforce).unwrap()
}
