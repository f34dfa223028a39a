//! One request, one message: the caller's name for a request has a window log with room for one hit, taken in
//! the same step as the budgets, so that the second of two requests knows immediately that it is the second.

use std::sync::Arc;
use std::time::Duration;

use crate::throttle::wait_queue::{QueuePosition, WaitQueue};
use crate::throttle::{AnyStore, Limit, LimitMode, Limiter, Rule, RuleAction, SubjectKey};

pub const NAME: &str = "sms-once";

/// How long a request of a relay is recognised: longer than its signature is accepted.
pub const RELAYED: Duration = Duration::from_secs(10 * 60);

/// A repetition is recognised as long as the code is valid: after that, the earlier answer is of no use.
pub fn limit(code_ttl: Duration) -> Limit {
    let rules = vec![Rule::sliding(1, code_ttl, RuleAction::Block)];
    Limit::new(NAME, rules, LimitMode::Enforce).expect("one rule, within bounds")
}

/// The parts: the number, the purpose, and the caller's own name for the request.
pub fn key(limiter: &Limiter<AnyStore>, limit: &Limit, parts: &[&[u8]]) -> SubjectKey {
    let mut subject = Vec::new();
    for part in parts {
        subject.extend((part.len() as u64).to_le_bytes());
        subject.extend(*part);
    }
    limiter.bucket(limit, &subject).key
}

/// How many requests may wait for their turn, for one name and in all. Each holds a client's connection; any
/// more are told to come back later.
const MOST_WAITING_FOR_ONE: usize = 8;
const MOST_WAITING: usize = 256;

/// A request's turn among those with its name, until it is dropped.
pub type OnceTurn = QueuePosition<SubjectKey>;

pub fn queue() -> Arc<WaitQueue<SubjectKey>> {
    WaitQueue::new(MOST_WAITING, 1 + MOST_WAITING_FOR_ONE)
}

/// Admits requests with the same name one at a time in this process: the second learns how the first ended
/// instead of polling. None if too many are waiting already.
pub async fn turn(queue: &Arc<WaitQueue<SubjectKey>>, name: SubjectKey) -> Option<OnceTurn> {
    queue.join(name)?.turn().await.ok()
}
