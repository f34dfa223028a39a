//! One request, one message: what its caller calls a request is itself a window log with room for one,
//! taken in the same step as the budgets, so that the second of two knows at once that it is the second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use crate::throttle::{AnyStore, Key, Limit, Limiter, Mode, Rule, Then};

pub const NAME: &str = "sms-once";

/// A repetition is known for one as long as its code is good: after that there is nothing left that its
/// answer could stand for.
pub fn limit(code_ttl: Duration) -> Limit {
    let rules = vec![Rule::sliding(1, code_ttl, Then::Block)];
    Limit::new(NAME, rules, Mode::Enforce).expect("one rule, within bounds")
}

/// The parts: whom it is for, what for, and the caller's own name for it.
pub fn key(limiter: &Limiter<AnyStore>, limit: &Limit, parts: &[&[u8]]) -> Key {
    let mut subject = Vec::new();
    for part in parts {
        subject.extend((part.len() as u64).to_le_bytes());
        subject.extend(*part);
    }
    limiter.bucket(limit, &subject).key
}

/// Lets the requests of this process that share a name in one at a time: the second finds out how the
/// first ended instead of asking again and again.
#[derive(Debug, Default)]
pub struct Turns(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>);

/// One request's turn, until it is dropped.
pub struct Turn<'a> {
    turns: &'a Turns,
    key: Key,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    pub async fn wait(&self, key: Key) -> Turn<'_> {
        let door = Arc::clone(self.doors().entry(key).or_default());
        // Made before the wait: who gives up waiting tidies up all the same.
        let mut turn = Turn { turns: self, key, guard: None };
        turn.guard = Some(door.lock_owned().await);
        turn
    }

    fn doors(&self) -> std::sync::MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut doors = self.turns.doors();
        self.guard = None;
        // New ones come by the map, which is locked: where only the map has it, nobody waits.
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
        let turns = Arc::new(Turns::default());
        let key = Key([1; 16]);
        let first = turns.wait(key).await;
        let second = tokio::spawn({
            let turns = Arc::clone(&turns);
            async move { drop(turns.wait(key).await) }
        });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(turns.wait(Key([2; 16])).await);
        drop(first);
        second.await.unwrap();
        assert!(turns.doors().is_empty());
    }
}
