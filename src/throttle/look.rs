//! A look before the script: whoever was refused a moment ago most likely is again, and plain reads in
//! one transaction tell so at a third of the script's price. A look only ever refuses, by the same time,
//! the same log and the same arithmetic; whoever may pass is the script's to decide.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, Pipeline, Value};

use super::store::{Ask, Bucket, Key, Verdict};
use super::window::{Gathered, Log};
use crate::clock::Micros;

/// How many refused logs are remembered at most; a power of two.
const PLACES: usize = 4096;
/// What stands this far up or further is a hold in flight, as in `lua/window.lua`.
const HOLDS: i64 = 4_000_000_000_000_000;

/// Which logs refused last time. It may forget, and it may be wrong: it only chooses what to ask first.
pub struct LastRefused(Box<[AtomicU64]>);

impl Default for LastRefused {
    fn default() -> Self {
        Self((0..PLACES).map(|_| AtomicU64::new(0)).collect())
    }
}

impl LastRefused {
    pub fn note(&self, key: Key) {
        self.place(key).store(mark(key), Ordering::Relaxed);
    }

    pub fn forget(&self, key: Key) {
        let _ = self.place(key).compare_exchange(mark(key), 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    pub fn contains(&self, key: Key) -> bool {
        self.place(key).load(Ordering::Relaxed) == mark(key)
    }

    fn place(&self, key: Key) -> &AtomicU64 {
        &self.0[mark(key) as usize % PLACES]
    }
}

/// Half of a keyed hash tells logs apart well enough for that.
fn mark(key: Key) -> u64 {
    let (half, _) = key.0.split_first_chunk().expect("16 bytes hold 8");
    u64::from_le_bytes(*half)
}

/// What a look asks: the time, then of each log its newest hit and the one that makes each rule full.
pub fn questions<'b>(buckets: impl Iterator<Item = (Bucket<'b>, String)>) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(4);
    pipeline.atomic().add_command(roomy(1, "TIME"));
    for (bucket, name) in buckets {
        let ranks = bucket.limit.rules().iter().map(|rule| -i64::from(rule.max));
        for rank in std::iter::once(-1).chain(ranks) {
            let mut question = roomy(5, "ZRANGE");
            question.arg(&name).arg(rank).arg(rank).arg("WITHSCORES");
            pipeline.add_command(question);
        }
    }
    pipeline
}

/// A command with room for its arguments from the start.
fn roomy(arguments: usize, name: &str) -> Cmd {
    let mut command = Cmd::with_capacity(arguments, 24 * arguments);
    command.arg(name);
    command
}

/// The refusal that the answers prove; none where they leave room, or anything for the script to do.
pub fn refusal(ask: &Ask<'_>, answers: &Value) -> Option<Verdict> {
    let Value::Array(answers) = answers else { return None };
    let mut answers = answers.iter();
    let Value::Array(time) = answers.next()? else { return None };
    let clock = integer(time.first()?)? * 1_000_000 + integer(time.get(1)?)?;
    let mut gathered = Gathered::default();
    let mut at = Micros(clock);
    let asked = ask.buckets.iter().enumerate().filter(|(_, bucket)| !bucket.limit.rules().is_empty());
    for (index, bucket) in asked {
        let newest = score(answers.next()?)?;
        if newest.is_some_and(|newest| newest >= HOLDS) {
            return None;
        }
        let now = Micros(newest.map_or(clock, |newest| newest.max(clock)));
        at = at.max(now);
        let mut log = Seen(Vec::with_capacity(bucket.limit.rules().len()));
        for rule in bucket.limit.rules() {
            log.0.push((rule.max, score(answers.next()?)?.map(Micros)));
        }
        gathered.add(index, bucket.limit, &log, now, ask.solved);
    }
    gathered.refused.map(|refusal| Verdict::Refused { at, refusal })
}

/// The hits of a log that make its rules full, by their ranks.
struct Seen(Vec<(u32, Option<Micros>)>);

impl Log for Seen {
    fn nth_newest(&self, n: u32) -> Option<Micros> {
        self.0.iter().find(|(rank, _)| *rank == n).and_then(|(_, at)| *at)
    }

    /// Not asked: how much room there is does not matter to a refusal.
    fn newer_than(&self, _: Micros) -> u32 {
        0
    }

    fn holds(&self) -> u32 {
        0
    }
}

/// The score in the answer to a rank look-up. Outer `None`: not such an answer.
fn score(answer: &Value) -> Option<Option<i64>> {
    match answer {
        Value::Array(found) if found.is_empty() => Some(None),
        Value::Array(found) => Some(Some(integer(found.get(1)?)?)),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    let Value::BulkString(text) = value else { return None };
    std::str::from_utf8(text).ok()?.parse().ok()
}
