//! One request, one message: the caller's name for a request has a window log with room for one hit, taken in
//! the same step as the budgets, so that the second of two requests knows immediately that it is the second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedMutexGuard, Semaphore};

use crate::throttle::{AnyStore, Limit, LimitMode, Limiter, Rule, RuleAction, SubjectKey};

pub const NAME: &str = "sms-once";

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

/// Admits requests with the same name one at a time in this process: the second learns how the first ended
/// instead of polling.
#[derive(Debug)]
pub struct OnceQueue {
    doors: Mutex<HashMap<SubjectKey, Arc<tokio::sync::Mutex<()>>>>,
    chairs: Semaphore,
}

/// One request's turn, until it is dropped.
#[derive(Debug)]
pub struct OnceTurn {
    turns: Arc<OnceQueue>,
    key: SubjectKey,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Default for OnceQueue {
    fn default() -> Self {
        Self { doors: Mutex::default(), chairs: Semaphore::new(MOST_WAITING) }
    }
}

impl OnceQueue {
    /// None if too many are waiting already.
    pub async fn wait(self: &Arc<Self>, key: SubjectKey) -> Option<OnceTurn> {
        let door = {
            let mut doors = self.doors();
            let door = doors.entry(key).or_default();
            // The map has one reference, whoever is inside has one, and each who waits has one.
            if Arc::strong_count(door) > 1 + MOST_WAITING_FOR_ONE {
                return None;
            }
            Arc::clone(door)
        };
        // Created before the wait, so that a request that gives up waiting still cleans up.
        let mut turn = OnceTurn { turns: Arc::clone(self), key, guard: None };
        turn.guard = match Arc::clone(&door).try_lock_owned() {
            Ok(guard) => Some(guard),
            Err(_) => {
                let Ok(_chair) = self.chairs.try_acquire() else {
                    // Dropped before the turn, which cleans up if nobody else has it.
                    drop(door);
                    return None;
                };
                Some(door.lock_owned().await)
            }
        };
        Some(turn)
    }

    fn doors(&self) -> std::sync::MutexGuard<'_, HashMap<SubjectKey, Arc<tokio::sync::Mutex<()>>>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OnceTurn {
    fn drop(&mut self) {
        let mut doors = self.turns.doors();
        self.guard = None;
        // New ones come through the map, which is locked: if only the map has a reference, nobody waits.
        if doors.get(&self.key).is_some_and(|door| Arc::strong_count(door) == 1) {
            doors.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_second_waits_for_the_first_and_nothing_is_left_behind() {
        let turns = Arc::new(OnceQueue::default());
        let key = SubjectKey([1; 16]);
        let first = turns.wait(key).await.unwrap();
        let second = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { drop(turns.wait(key).await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(turns.wait(SubjectKey([2; 16])).await);
        drop(first);
        second.await.unwrap();
        assert!(turns.doors().is_empty());
    }

    #[tokio::test]
    async fn no_more_than_so_many_wait_for_one_name_and_who_gives_up_makes_room() {
        let turns = Arc::new(OnceQueue::default());
        let key = SubjectKey([1; 16]);
        let first = turns.wait(key).await.unwrap();
        let wait = || {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.wait(key).await.map(drop) })
        };
        let mut waiting: Vec<_> = (0..MOST_WAITING_FOR_ONE).map(|_| wait()).collect();
        tokio::task::yield_now().await;
        assert!(turns.wait(key).await.is_none(), "every chair is taken");
        let gone = waiting.pop().unwrap();
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        waiting.push(wait());
        tokio::task::yield_now().await;
        drop(first);
        for served in waiting {
            assert!(served.await.unwrap().is_some());
        }
        assert!(turns.doors().is_empty());
    }
}
