//! What servers say about themselves: their histories of writes, what they have evicted, their clocks, and whether they
//! evict at all.

use std::collections::HashMap;
use std::time::Duration;

use redis::{Cmd, Value};

use super::RedisStore;
use super::wire;
use crate::clock::{Clock, Micros};
use crate::store::StoreError;

/// How much further a server's clock may have gone on than ours since the last look: it was set, not slow to answer.
const STEP: Duration = Duration::from_secs(5);

/// What `rebuild_generation` and `begin_rebuild` ask all masters.
pub(super) struct ServersLook {
    /// The exclusive or of their replication ids, in hexadecimal digits. A server draws a new id if it becomes the
    /// master of others, or if it starts again: it may then lack what its predecessor had accepted last, although
    /// everything older is there.
    pub history: String,
    /// How many keys they have evicted since they started.
    pub evicted: u64,
    /// The latest of their times.
    pub now: Micros,
    /// The time of each server, found by the id of its process.
    times: Vec<(String, Micros)>,
    /// Our time before they were asked, and after the last had answered.
    asked: Micros,
    answered: Micros,
}

impl ServersLook {
    fn read(answers: &[Value], asked: Micros, answered: Micros) -> Result<Self, StoreError> {
        let (mut evicted, mut times) = (0_u64, Vec::with_capacity(answers.len()));
        for answer in answers {
            let field = |name| line(answer, name).ok_or_else(|| broken(name));
            let count: u64 = field("evicted_keys")?.parse().map_err(|_| broken("evicted_keys"))?;
            evicted = evicted.wrapping_add(count);
            let now = field("server_time_usec")?.parse().map_err(|_| broken("server_time_usec"))?;
            times.push((field("run_id")?.to_owned(), Micros(now)));
        }
        let now = times.iter().map(|(_, now)| *now).max().unwrap_or_default();
        Ok(Self { history: history(answers)?, evicted, now, times, asked, answered })
    }
}

fn history(answers: &[Value]) -> Result<String, StoreError> {
    let mut history = [0; 20];
    for answer in answers {
        let id = line(answer, "master_replid").and_then(wire::replication_id).ok_or_else(|| {
            StoreError::Broken(
                "INFO replication without a master_replid of 40 lower-case hexadecimal digits".into(),
            )
        })?;
        history.iter_mut().zip(id).for_each(|(all, one)| *all ^= one);
    }
    Ok(history.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn broken(name: &str) -> StoreError {
    StoreError::Broken(format!("INFO without a usable {name}"))
}

/// A field of an answer to `INFO`.
fn line<'a>(answer: &'a Value, name: &str) -> Option<&'a str> {
    let text = match answer {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => text,
        _ => return None,
    };
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    text.lines().find_map(value).map(str::trim_end)
}

/// Where each server's clock was at the last look, for each name that windows are marked by.
#[derive(Default)]
pub(super) struct SeenClocks(HashMap<(String, String), SeenClock>);

struct SeenClock {
    server: Micros,
    /// Our time before it was asked.
    asked: Micros,
}

impl SeenClocks {
    /// Whether a server's clock was set forward since the last look for that name: its keys may have expired before
    /// their time. One that was set back keeps them longer, until it is set right: what was written in between expires
    /// early then.
    fn note(&mut self, name: &str, look: &ServersLook) -> bool {
        let mut stepped = false;
        for (server, now) in &look.times {
            let fresh = SeenClock { server: *now, asked: look.asked };
            if let Some(seen) = self.0.insert((name.to_owned(), server.clone()), fresh) {
                let latest = seen.server.plus(look.answered.since(seen.asked));
                stepped |= *now > latest.plus(STEP);
            }
        }
        // A server that has ended does not come back under its id.
        self.0.retain(|(of, server), _| of != name || look.times.iter().any(|(there, _)| there == server));
        stepped
    }
}

impl RedisStore {
    /// The history of the servers alone; see [`ServersLook`].
    pub(super) async fn history(&self) -> Result<String, StoreError> {
        history(&self.link.call_masters(&history_command()).await?)
    }

    /// What all masters say.
    pub(super) async fn look(&self) -> Result<ServersLook, StoreError> {
        let asked = self.running();
        let answers = self.link.call_masters(&look_command()).await?;
        ServersLook::read(&answers, asked, self.running())
    }

    /// Whether a clock was set forward since windows of that name were looked at.
    pub(super) fn was_set_forward(&self, name: &str, look: &ServersLook) -> bool {
        self.seen.lock().note(name, look)
    }

    /// A time that nobody sets, as the wall clock's may be.
    fn running(&self) -> Micros {
        match &self.clock {
            Clock::System => Micros(0).plus(self.opened.elapsed()),
            Clock::Manual(_) => self.clock.now(),
        }
    }
}

fn history_command() -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    info
}

/// Asks for everything: servers before 7.0 take one section at most, and [`ServersLook::read`] needs three.
fn look_command() -> Cmd {
    redis::cmd("INFO")
}

/// A server that evicts: if its memory is full it forgets logs, and with them what they count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Eviction {
    /// The value of `maxmemory-policy`.
    pub policy: String,
    /// In bytes.
    pub maxmemory: u64,
}

impl std::fmt::Display for Eviction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "maxmemory-policy {} with maxmemory {}", self.policy, self.maxmemory)
    }
}

/// Asks for what [`EvictionPolicy::read`] reads.
pub(super) fn policy_command() -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg("memory");
    info
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EvictionPolicy {
    /// Nothing is evicted.
    Keeps,
    Evicts(Eviction),
    /// The server does not say.
    Unknown,
}

impl EvictionPolicy {
    pub fn read(answer: &Value) -> Self {
        let Some(policy) = line(answer, "maxmemory_policy") else { return Self::Unknown };
        let Some(maxmemory) = line(answer, "maxmemory").and_then(|most| most.parse().ok()) else {
            return Self::Unknown;
        };
        match (policy, maxmemory) {
            ("noeviction", _) | (_, 0) => Self::Keeps,
            _ => Self::Evicts(Eviction { policy: policy.to_owned(), maxmemory }),
        }
    }

    /// The one to tell of several servers.
    pub fn worst(all: impl IntoIterator<Item = Self>) -> Self {
        let rank = |policy: &Self| match policy {
            Self::Keeps => 0,
            Self::Unknown => 1,
            Self::Evicts(_) => 2,
        };
        all.into_iter().max_by_key(rank).unwrap_or(Self::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn only_a_policy_other_than_noeviction_with_a_bound_evicts() {
        let read = |policy: &str, most: &str| {
            let text = format!(
                "# Memory\r\nmaxmemory:{most}\r\nmaxmemory_human:1M\r\nmaxmemory_policy:{policy}\r\n"
            );
            EvictionPolicy::read(&info(&text))
        };
        assert_eq!(read("noeviction", "1048576"), EvictionPolicy::Keeps);
        assert_eq!(read("allkeys-lru", "0"), EvictionPolicy::Keeps, "memory without a bound is never full");
        for policy in ["volatile-lru", "volatile-ttl", "allkeys-lru", "allkeys-lfu", "allkeys-random", "new"]
        {
            let eviction = Eviction { policy: policy.to_owned(), maxmemory: 1_048_576 };
            assert_eq!(read(policy, "1048576"), EvictionPolicy::Evicts(eviction));
        }
        assert_eq!(EvictionPolicy::read(&info("# Memory\r\n")), EvictionPolicy::Unknown);
        assert_eq!(EvictionPolicy::read(&Value::Okay), EvictionPolicy::Unknown);
    }

    /// What a server said between two moments of ours.
    fn look(server: &str, theirs: i64, [asked, answered]: [i64; 2]) -> ServersLook {
        let [theirs, asked, answered] = [theirs, asked, answered].map(Micros::from_seconds);
        let times = vec![(server.to_owned(), theirs)];
        ServersLook { history: String::new(), evicted: 0, now: theirs, times, asked, answered }
    }

    #[test]
    fn a_clock_that_is_set_forward_is_noticed_once_for_each_name() {
        let mut seen = SeenClocks::default();
        let mut at =
            |name: &str, server: &str, theirs, ours| seen.note(name, &look(server, theirs, [ours; 2]));
        assert!(!at("a", "one", 1_000, 0), "the first look");
        assert!(!at("a", "one", 1_011, 10), "a second is no step");
        assert!(!at("b", "one", 1_011, 10));
        assert!(at("a", "one", 8_000, 11), "it was set forward");
        assert!(!at("a", "one", 8_001, 12), "and noticed");
        assert!(at("b", "one", 8_001, 12), "for each name");
        assert!(!at("a", "two", 90_000, 15), "another server has a clock of its own");
    }

    #[test]
    fn a_clock_that_was_set_back_is_noticed_when_it_is_set_right() {
        let mut seen = SeenClocks::default();
        let mut at = |theirs, ours| seen.note("a", &look("one", theirs, [ours; 2]));
        assert!(!at(8_000, 0));
        assert!(!at(1_001, 1), "set back, nothing expires");
        assert!(!at(1_002, 2));
        assert!(at(8_003, 3), "what was written meanwhile expires early");
        assert!(!at(8_004, 4));
    }

    #[test]
    fn an_answer_that_took_long_is_no_step() {
        let mut seen = SeenClocks::default();
        let mut at = |theirs, ours| seen.note("a", &look("one", theirs, ours));
        assert!(!at(1_000, [0, 30]), "read as soon as it was asked");
        assert!(!at(1_060, [31, 60]), "and as late as it answered");
        assert!(!at(1_061, [61, 90]));
        assert!(at(1_097, [91, 91]));
    }

    #[test]
    fn one_section_or_all_are_asked_for_at_once() {
        for command in [policy_command(), history_command(), look_command()] {
            assert!(command.args_iter().count() <= 2, "more than one section takes Redis 7");
        }
        let text = "# Server\r\nrun_id:aa\r\nserver_time_usec:5\r\n\r\n# Stats\r\nevicted_keys:7\r\n\r\n\
                    # Replication\r\nmaster_replid:00000000000000000000000000000000000000ff\r\n";
        let look = ServersLook::read(&[info(text), info(text)], Micros(1), Micros(2)).unwrap();
        assert_eq!((look.evicted, look.now, look.times.len()), (14, Micros(5), 2));
    }
}
