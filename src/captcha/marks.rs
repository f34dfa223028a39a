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
/// A million marks of wrong answers, about 50 MB: 4,000 a second for four minutes.
const MARKS_PER_SHARD: usize = 65_536;
const SWEEP_EVERY: Duration = Duration::from_secs(30);

type Marks = HashMap<[u8; 16], Micros>;

/// Marks in this process. Those of right answers are always kept; the limits of images and proofs bound their number.
/// Strangers make wrong answers as fast as they like: of these the newest are kept, so that right answers are refused to
/// nobody, and an image that was drawn cannot be guessed at again before half a million others were wrong.
pub struct LocalMarks {
    shards: [Mutex<SpentShard>; SHARDS],
    per_shard: usize,
    clock: Clock,
}

struct SpentShard {
    /// Marks of answers that were right, or are not judged yet.
    right: Marks,
    /// Marks of wrong answers: the newest, at most half of the room for them, and those before.
    wrong: [Marks; 2],
    /// Until when some that were forgotten would have been kept.
    flooded_until: Micros,
    swept: Micros,
}

impl LocalMarks {
    pub fn new(clock: Clock) -> Self {
        Self::with_capacity(clock, MARKS_PER_SHARD)
    }

    pub(super) fn with_capacity(clock: Clock, per_shard: usize) -> Self {
        let swept = clock.now();
        let shard = |_| SpentShard {
            right: Marks::new(),
            wrong: Default::default(),
            flooded_until: Micros(0),
            swept,
        };
        Self { shards: std::array::from_fn(|index| Mutex::new(shard(index))), per_shard, clock }
    }

    /// Marks it as [`SpentMarks::spend`] does. Of a wrong answer [`LocalMarks::was_wrong`] is told afterwards.
    pub fn spend(&self, id_hash: [u8; 16], ttl: Duration) -> bool {
        let now = self.clock.now();
        let mut shard = self.shard(&id_hash);
        if shard.all().any(|marks| marks.get(&id_hash).is_some_and(|until| *until > now)) {
            return false;
        }
        if now.since(shard.swept) >= SWEEP_EVERY {
            for marks in shard.all() {
                marks.retain(|_, until| *until > now);
                marks.shrink_to(marks.len() * 2);
            }
            shard.swept = now;
        }
        shard.right.insert(id_hash, now.plus(ttl));
        true
    }

    /// Makes room for right answers; false if there are more wrong ones than there is room for.
    pub fn was_wrong(&self, id_hash: [u8; 16]) -> bool {
        let mut shard = self.shard(&id_hash);
        let SpentShard { right, wrong: [newest, before], flooded_until, .. } = &mut *shard;
        newest.extend(right.remove_entry(&id_hash));
        if newest.len() >= self.per_shard / 2 {
            let forgotten = std::mem::replace(before, std::mem::take(newest));
            *flooded_until = forgotten.into_values().max().unwrap_or(*flooded_until);
        }
        *flooded_until <= self.clock.now()
    }

    fn shard(&self, id_hash: &[u8; 16]) -> MutexGuard<'_, SpentShard> {
        self.shards[usize::from(id_hash[0]) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        let marks =
            |shard: &Mutex<SpentShard>| shard.lock().unwrap().all().map(|marks| marks.len()).sum::<usize>();
        self.shards.iter().map(marks).sum()
    }
}

impl SpentShard {
    fn all(&mut self) -> impl Iterator<Item = &mut Marks> {
        std::iter::once(&mut self.right).chain(&mut self.wrong)
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
        let wrong = |number| marks.spend(mark(number), TTL) && marks.was_wrong(mark(number));
        assert_eq!(
            (0..1_000).filter(|number| wrong(*number)).count(),
            48,
            "then the newest two or three of a shard"
        );
        assert!(marks.len() <= 64);
        assert!((968..1_000).all(|number| !marks.spend(mark(number), TTL)), "an image is guessed at once");
        for right in 1_000..2_000 {
            assert!(marks.spend(mark(right), TTL));
        }
        assert_eq!((2_000..3_000).filter(|number| wrong(*number)).count(), 0);
        assert!((1_000..2_000).all(|right| !marks.spend(mark(right), TTL)), "no right one is forgotten");
        assert!(marks.len() <= 1_064);
    }
}
