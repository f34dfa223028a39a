//! Marks of answered challenges: the trait, the marks of this process, and those on Redis, which every instance sees.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatehouse_limiter::{CallError, RedisLink};
use redis::Value;

use crate::clock::{Clock, Micros};

pub type SpendFuture<'a> = Pin<Box<dyn Future<Output = Result<bool, CallError>> + Send + 'a>>;

/// Where spent challenges are marked for several instances.
pub trait SpentMarks: Send + Sync {
    /// Marks `id_hash` for at least `ttl` and returns whether this call was the first: one atomic step, so of
    /// any number of callers one gets `true`. Waits at most the store's timeout.
    fn spend(&self, id_hash: [u8; 16], ttl: Duration) -> SpendFuture<'_>;
}

const SHARDS: usize = 16;
/// A million marks, about 50 MB: 4,000 answers a second for four minutes.
const MARKS_PER_SHARD: usize = 65_536;
const SWEEP_EVERY: Duration = Duration::from_secs(30);
/// A full shard is not swept for every caller that finds it full.
const SWEEP_WHEN_FULL: Duration = Duration::from_secs(1);

/// Marks in this process. Those of right answers are always kept; the limits of images and proofs bound their number.
/// Strangers make wrong answers as fast as they like: beyond the room for them these leave no mark, so that right answers
/// are refused to nobody. As long as such a flood lasts, an image that was drawn may be guessed at again.
pub struct LocalMarks {
    shards: [Mutex<SpentShard>; SHARDS],
    per_shard: usize,
    clock: Clock,
}

struct SpentShard {
    until: HashMap<[u8; 16], Micros>,
    swept: Micros,
}

impl LocalMarks {
    pub fn new(clock: Clock) -> Self {
        Self::with_capacity(clock, MARKS_PER_SHARD)
    }

    pub(super) fn with_capacity(clock: Clock, per_shard: usize) -> Self {
        let swept = clock.now();
        let shards = std::array::from_fn(|_| Mutex::new(SpentShard { until: HashMap::new(), swept }));
        Self { shards, per_shard, clock }
    }

    /// As [`SpentMarks::spend`]. Of a wrong answer [`LocalMarks::keeps_wrong`] is asked afterwards.
    pub fn spend(&self, id_hash: [u8; 16], ttl: Duration) -> bool {
        let now = self.clock.now();
        let SpentShard { until: marks, swept } = &mut *self.shard(&id_hash);
        if marks.get(&id_hash).is_some_and(|until| *until > now) {
            return false;
        }
        let full = marks.len() >= self.per_shard;
        if now.since(*swept) >= if full { SWEEP_WHEN_FULL } else { SWEEP_EVERY } {
            marks.retain(|_, until| *until > now);
            marks.shrink_to(marks.len() * 2);
            *swept = now;
        }
        marks.insert(id_hash, now.plus(ttl));
        true
    }

    /// Whether there is room for the mark of a wrong answer; otherwise it is taken back.
    pub fn keeps_wrong(&self, id_hash: [u8; 16]) -> bool {
        let mut shard = self.shard(&id_hash);
        let room = shard.until.len() <= self.per_shard;
        if !room {
            shard.until.remove(&id_hash);
        }
        room
    }

    fn shard(&self, id_hash: &[u8; 16]) -> MutexGuard<'_, SpentShard> {
        self.shards[usize::from(id_hash[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().until.len()).sum()
    }
}

pub struct RedisMarks {
    link: RedisLink,
    prefix: String,
}

impl RedisMarks {
    /// Keys are named `{prefix}:spent:{keyed hash}`.
    pub fn new(link: RedisLink, prefix: impl Into<String>) -> Self {
        Self { link, prefix: prefix.into() }
    }
}

impl SpentMarks for RedisMarks {
    fn spend(&self, id_hash: [u8; 16], ttl: Duration) -> SpendFuture<'_> {
        Box::pin(async move {
            let mut command = redis::cmd("SET");
            command.arg(format!("{}:spent:{}", self.prefix, URL_SAFE_NO_PAD.encode(id_hash)));
            command.arg(1).arg("NX").arg("PX").arg(ttl.as_millis() as u64);
            Ok(self.link.call(&command).await? != Value::Nil)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(180);

    fn mark(number: u32) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0] = number as u8;
        bytes[4..8].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    #[test]
    fn marks_are_forgotten_once_they_expire() {
        let clock = Clock::manual(Micros(1_000_000));
        let marks = LocalMarks::new(clock.clone());
        for number in 0..1_000 {
            assert!(marks.spend(mark(number), TTL));
            assert!(!marks.spend(mark(number), TTL));
        }
        assert_eq!(marks.len(), 1_000);
        clock.advance(TTL);
        for number in 1_000..1_016 {
            assert!(marks.spend(mark(number), TTL));
        }
        assert_eq!(marks.len(), 16, "one mark a shard swept it");
    }

    #[test]
    fn a_flood_of_wrong_answers_leaves_room_for_right_ones() {
        let clock = Clock::manual(Micros(1_000_000));
        let marks = LocalMarks::with_capacity(clock, 4);
        for number in 0..1_000 {
            assert!(marks.spend(mark(number), TTL));
            assert_eq!(marks.keeps_wrong(mark(number)), number < 64);
        }
        assert_eq!(marks.len(), 64);
        assert!((0..64).all(|number| !marks.spend(mark(number), TTL)), "while there was room");
        for right in 1_000..2_000 {
            assert!(marks.spend(mark(right), TTL));
        }
        for number in 2_000..3_000 {
            assert!(marks.spend(mark(number), TTL));
            assert!(!marks.keeps_wrong(mark(number)));
        }
        assert!((1_000..2_000).all(|right| !marks.spend(mark(right), TTL)), "no right one is forgotten");
        assert_eq!(marks.len(), 1_064);
    }
}
