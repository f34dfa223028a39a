//! The Redis store: the same windows in Lua scripts, one round trip per decision, by the server's clock. In a
//! cluster each log is on a server of its own, and a decision about several takes several steps (slots.rs).

mod connector;
mod info;
mod link;
mod remembered;
mod servers;
mod slots;
mod wire;

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::{join, join3, try_join_all};
use parking_lot::Mutex;
use redis::{Arg, Cmd, ErrorKind, Script, ServerErrorKind, Value};
use tokio::time::Instant;

pub use self::info::Eviction;
use self::info::{SeenClocks, ServersLook};
pub use self::link::{CallError, RedisLink};
use self::remembered::RememberedRefusals;
pub use self::servers::{ClusterServers, RedisServers, RedisUrl, SentinelServers};
use self::wire::{integers, life_millis, millis, states, verdict, write_bucket, write_rules};
use crate::clock::{Clock, Micros};
use crate::hits::MOST_FORGIVEN;
use crate::store::*;
use crate::window::{self, HOLD_LIFE};

/// How often a decision is asked again because the server's clock was in another calendar unit than ours. That
/// normally happens once.
const MOST_TRIES: usize = 3;
/// How many hits one script writes back: well under a millisecond of the server's time.
const RESTORED_AT_ONCE: usize = 100;
/// How many of these scripts are sent before the first is answered. In a cluster each has a single log, of one hit or
/// few; on one server they are done one after the other, and a call that waits for many others times out.
const RESTORING_AT_ONCE: usize = 2;
const RESTORING_IN_CLUSTER: usize = 32;
/// How long a rebuild may take; what an abandoned one leaves behind expires after that.
const RESTORING_FOR: Duration = Duration::from_secs(60 * 60);

/// Window logs on Redis (or Valkey): one server, the master that Sentinels name, or a cluster. Shared by every
/// instance that uses it.
pub struct RedisStore {
    link: RedisLink,
    prefix: String,
    /// The scripts, in the order of [`LuaScript`].
    scripts: Box<[Script]>,
    clock: Clock,
    /// The server's clock minus ours, in microseconds, as last seen when it mattered. It only selects the
    /// calendar unit to ask about first; the server decides.
    skew: AtomicI64,
    /// Refusals of a moment ago; with None every decision asks the server.
    remembered: Option<RememberedRefusals>,
    /// How long a mark stays without being looked at.
    mark_life: Option<Duration>,
    seen: Mutex<SeenClocks>,
    opened: Instant,
}

impl RedisStore {
    /// Starts connecting in the background; outside of a Tokio runtime, at the first call. A call that comes before the
    /// first attempt to connect has ended waits for it, at most the timeout; [`RedisLink::ready`] of
    /// [`RedisStore::link`] waits longer. Keys are named `{prefix}:{limit}:{keyed hash}`. `clock` is the caller's.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use gatehouse_limiter::{Limiter, RedisStore, RedisUrl, SubKey, clock::Clock, entropy::Entropy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let servers = RedisUrl::parse("redis://127.0.0.1:6379/0")?.servers(None)?;
    /// let store = RedisStore::new(servers, Duration::from_millis(200), "limits", Clock::System);
    /// assert!(store.link().ready(Duration::from_secs(5)).await);
    /// // The key is the same in every instance on these servers.
    /// let limiter = Limiter::new(store, SubKey::from_bytes([7; 32]), &Entropy::Os);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(
        servers: impl Into<RedisServers>,
        timeout: Duration,
        prefix: impl Into<String>,
        clock: Clock,
    ) -> Self {
        Self::open(servers.into(), timeout, prefix.into(), clock, false)
    }

    /// Opens a store on servers that may evict: see [`Eviction`]. Each decision that demands complete windows then asks
    /// whether anything was evicted since they were, which is a loss of all of them.
    pub fn allowing_eviction(
        servers: impl Into<RedisServers>,
        timeout: Duration,
        prefix: impl Into<String>,
        clock: Clock,
    ) -> Self {
        Self::open(servers.into(), timeout, prefix.into(), clock, true)
    }

    fn open(
        servers: RedisServers,
        timeout: Duration,
        prefix: String,
        clock: Clock,
        allow_eviction: bool,
    ) -> Self {
        let scripts = SOURCES.map(Script::new);
        Self {
            link: RedisLink::open_to(servers, timeout, scripts.to_vec(), allow_eviction),
            prefix,
            scripts: scripts.into(),
            clock,
            skew: AtomicI64::new(0),
            remembered: None,
            mark_life: None,
            seen: Mutex::default(),
            opened: Instant::now(),
        }
    }

    /// Marks of complete windows expire unless somebody asks for them ([`WindowStore::rebuild_generation`]) within this
    /// time. If the server's clock is set forward by as much, they are gone before a decision is made by it: the hits that
    /// it lets expire are missed at once.
    #[must_use]
    pub fn expiring_marks(self, unseen: Duration) -> Self {
        Self { mark_life: Some(unseen), ..self }
    }

    /// Answers an attempt that was refused within the last 50 ms from memory.
    #[must_use]
    pub fn remembering_refusals(self) -> Self {
        Self { remembered: Some(RememberedRefusals::default()), ..self }
    }

    /// Whether refusals are remembered for a moment.
    // Hidden: for the suite of every store.
    #[doc(hidden)]
    pub const fn remembers(&self) -> bool {
        self.remembered.is_some()
    }

    fn forget_refusals(&self, buckets: &[Bucket<'_>]) {
        if let Some(remembered) = &self.remembered {
            remembered.wrote(buckets);
        }
    }

    /// The connection to its servers.
    pub fn link(&self) -> &RedisLink {
        &self.link
    }

    /// The name of a bucket's key.
    pub fn key_name(&self, bucket: Bucket<'_>) -> String {
        let mut name = String::with_capacity(self.prefix.len() + bucket.limit.name().len() + 24);
        name.push_str(&self.prefix);
        name.push(':');
        name.push_str(bucket.limit.name());
        name.push(':');
        URL_SAFE_NO_PAD.encode_string(bucket.key.0, &mut name);
        name
    }

    /// The command that a reservation sends, for benchmarks of everything else.
    // Hidden: for that alone.
    #[doc(hidden)]
    pub fn reservation(&self, ask: &ReserveRequest<'_>) -> Cmd {
        self.reservation_as(ask, None, ask.kind as u8)
    }

    /// `only`: of one bucket, by its place.
    fn reservation_as(&self, ask: &ReserveRequest<'_>, only: Option<usize>, kind: u8) -> Cmd {
        let buckets = || sent(ask.buckets, only).map(|(_, bucket)| *bucket);
        let now = self.now();
        // In a cluster the mark is on another server than a log.
        let complete = ask.complete.filter(|_| !self.link.is_cluster());
        let (marks, kind) = match complete {
            None => (vec![], kind),
            Some(CompleteWindows { name, .. }) if self.link.allows_eviction() => {
                (vec![self.generation_key(name), self.evicted_key(name)], kind + EVICTING)
            }
            Some(CompleteWindows { name, .. }) => (vec![self.generation_key(name)], kind + MARKED),
        };
        let mut command = self.command(LuaScript::Reserve, buckets(), &marks);
        command.arg(&ask.id.0).arg(kind);
        for bucket in buckets() {
            write_bucket(&mut command, bucket.limit, now, ask.solved);
        }
        if let Some(CompleteWindows { shape, generation, .. }) = complete {
            command.arg([&generation.0[..], shape.as_bytes()].concat());
        }
        command
    }

    /// The key that marks `name` as complete. It cannot be a log's name: those have a third part. The braces put
    /// it into one slot of a cluster with [`Self::rebuild_key`].
    fn generation_key(&self, name: &str) -> String {
        format!("{}:complete-{{{name}}}", self.prefix)
    }

    /// The key that says how much had been evicted when they were completed, after the id of the rebuild.
    fn evicted_key(&self, name: &str) -> String {
        format!("{}:evicted-{{{name}}}", self.prefix)
    }

    /// The key that exists while a rebuild runs.
    fn rebuild_key(&self, name: &str, by: HitId) -> String {
        format!("{}:restoring-{{{name}}}-{}", self.prefix, URL_SAFE_NO_PAD.encode(by.0))
    }

    fn now(&self) -> Micros {
        Micros(self.clock.now().0 + self.skew.load(Ordering::Relaxed))
    }

    fn learn(&self, server: Micros) {
        self.skew.store(server.0 - self.clock.now().0, Ordering::Relaxed);
    }

    /// `marks`: keys after those of the buckets.
    fn command<'b>(
        &self,
        script: LuaScript,
        buckets: impl Iterator<Item = Bucket<'b>> + Clone,
        marks: &[String],
    ) -> Cmd {
        // Room for one bucket of one rule, with a name of 40 bytes.
        let mut command = Cmd::with_capacity(16, 192);
        command.arg("EVALSHA").arg(self.scripts[script as usize].get_hash());
        command.arg(buckets.clone().count() + marks.len());
        for bucket in buckets {
            command.arg(self.key_name(bucket));
        }
        command.arg(marks);
        command
    }

    /// Runs a script; if the server does not have it (`SCRIPT FLUSH`, another master), by its text.
    async fn run(&self, command: &Cmd, script: LuaScript) -> Result<Vec<i64>, StoreError> {
        match self.link.call(command).await {
            Err(CallError::Server(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                let mut whole = redis::cmd("EVAL");
                whole.arg(SOURCES[script as usize]);
                for arg in command.args_iter().skip(2) {
                    if let Arg::Simple(bytes) = arg {
                        whole.arg(bytes);
                    }
                }
                integers(self.link.call(&whole).await?)
            }
            answer => integers(answer?),
        }
    }

    /// One atomic decision by one script, about every bucket or only one.
    async fn decide(
        &self,
        ask: &ReserveRequest<'_>,
        only: Option<usize>,
        kind: u8,
    ) -> Result<StoreVerdict, StoreError> {
        for _ in 0..MOST_TRIES {
            let reply = self.run(&self.reservation_as(ask, only, kind), LuaScript::Reserve).await?;
            match reply[..] {
                [OTHER_UNIT, at] => {
                    self.learn(Micros(at));
                    continue;
                }
                [INCOMPLETE] => return Err(StoreError::Incomplete),
                _ => {}
            }
            // The script counts the buckets that were sent to it; the caller counts those that it asked for.
            let place = |number: i64| sent(ask.buckets, only).nth(number as usize).map(|(index, _)| index);
            return verdict(&reply, ask, place);
        }
        Err(StoreError::Broken("its clock runs from one calendar unit to the next".into()))
    }

    /// An error unless those windows are complete.
    async fn demand(&self, windows: Option<CompleteWindows<'_>>) -> Result<(), StoreError> {
        let Some(windows) = windows else { return Ok(()) };
        self.are_complete(windows).await?.then_some(()).ok_or(StoreError::Incomplete)
    }

    /// Settles by one script.
    async fn settle_at_once(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let mut command = self.command(LuaScript::Settle, buckets.iter().copied(), &[]);
        command.arg(&id.0);
        for (bucket, outcome) in buckets.iter().zip(outcomes) {
            let (letter, up_to) = match outcome {
                HoldOutcome::Keep => ("K", 0),
                HoldOutcome::Refund => ("R", 0),
                HoldOutcome::Forgive { up_to } if bucket.limit.challenges() => ("F", up_to.0),
                HoldOutcome::Forgive { .. } => ("R", 0),
            };
            command.arg(letter).arg(bucket.limit.capacity()).arg(life_millis(bucket.limit)).arg(up_to);
        }
        if peek {
            let now = self.now();
            buckets.iter().for_each(|bucket| write_rules(&mut command, bucket.limit, now, false));
        }
        let reply = self.run(&command, LuaScript::Settle).await?;
        let [at, now, rest @ ..] = reply.as_slice() else {
            return Err(StoreError::Broken(format!("{reply:?} to a settlement")));
        };
        let states = match rest {
            _ if !peek => None,
            // In another calendar unit than we thought. It is settled, whatever becomes of the look.
            [] => {
                self.learn(Micros(*now));
                self.peek_at_once(buckets).await.ok()
            }
            rest => states(rest, buckets, Micros(*now)),
        };
        Ok(Settlement { at: Micros(*at), states })
    }

    /// Peeks by one script.
    async fn peek_at_once(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        for _ in 0..MOST_TRIES {
            let now = self.now();
            let mut command = self.command(LuaScript::Peek, buckets.iter().copied(), &[]);
            for bucket in buckets {
                write_rules(&mut command, bucket.limit, now, false);
            }
            let reply = self.run(&command, LuaScript::Peek).await?;
            let broken = || StoreError::Broken(format!("{reply:?} to a peek"));
            match reply.as_slice() {
                [-1, at] => self.learn(Micros(*at)),
                [at, rest @ ..] => return states(rest, buckets, Micros(*at)).ok_or_else(broken),
                [] => return Err(broken()),
            }
        }
        Err(StoreError::Broken("its clock runs from one calendar unit to the next".into()))
    }

    /// Writes hits back by one script, log by log: any number of logs, but in a cluster only one.
    async fn restore_at_once(&self, logs: &[&[&(Bucket<'_>, KeptHit)]]) -> Result<(), StoreError> {
        let mut command = self.command(LuaScript::Restore, logs.iter().map(|hits| hits[0].0), &[]);
        for hits in logs {
            command.arg(hits[0].0.limit.capacity()).arg(hits.len());
            for (bucket, hit) in *hits {
                command.arg(millis(window::life(bucket.limit, hit.at))).arg(hit.at.0).arg(&hit.id.0);
            }
        }
        self.run(&command, LuaScript::Restore).await.map(drop)
    }
}

/// The buckets that a script is asked about.
fn sent<'a, 'b>(
    buckets: &'a [Bucket<'b>],
    only: Option<usize>,
) -> impl Iterator<Item = (usize, &'a Bucket<'b>)> + Clone {
    logged(buckets).filter(move |(index, _)| only.is_none_or(|only| only == *index))
}

/// The buckets that have a log, with their places.
fn logged<'a, 'b>(buckets: &'a [Bucket<'b>]) -> impl Iterator<Item = (usize, &'a Bucket<'b>)> + Clone {
    buckets.iter().enumerate().filter(|(_, bucket)| !bucket.limit.rules().is_empty())
}

impl WindowStore for RedisStore {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        if logged(ask.buckets).next().is_none() {
            Box::pin(self.demand(ask.complete)).await?;
            return Ok(StoreVerdict::Admitted { at: self.now(), room: None, noted: None });
        }
        let memory = self.remembered.as_ref().map(|remembered| (remembered, remembered.writes(ask.buckets)));
        if let Some(refusal) = memory.and_then(|(remembered, _)| remembered.recall(ask, self.clock.now())) {
            return Ok(StoreVerdict::Refused { refusal });
        }
        let verdict = match self.link.is_cluster() {
            true => Box::pin(self.reserve_in_cluster(ask)).await?,
            false => self.decide(ask, None, ask.kind as u8).await?,
        };
        if let Some((remembered, writes)) = memory {
            match verdict {
                StoreVerdict::Refused { refusal } => remembered.note(ask, refusal, self.clock.now(), writes),
                StoreVerdict::Admitted { .. } => remembered.wrote(ask.buckets),
                StoreVerdict::Held { .. } => {}
            }
        }
        Ok(verdict)
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
        peek: bool,
    ) -> Result<Settlement, StoreError> {
        let (sent, ends): (Vec<Bucket<'_>>, Vec<HoldOutcome>) =
            logged(buckets).map(|(index, bucket)| (*bucket, outcomes[index])).unzip();
        let settled = match self.link.is_cluster() {
            _ if sent.is_empty() => Ok(Settlement { at: self.now(), states: peek.then(Vec::new) }),
            true => Box::pin(self.settle_by_slot(&sent, id, &ends, peek)).await,
            false => self.settle_at_once(&sent, id, &ends, peek).await,
        };
        self.forget_refusals(&sent);
        let Settlement { at, states } = settled?;
        let all = |states: Vec<LogPeek>| {
            let mut states = states.into_iter();
            let state = |bucket: &Bucket<'_>| match bucket.limit.rules() {
                [] => LogPeek { at, holds: 0, rules: Vec::new() },
                _ => states.next().expect("a state for each that was sent"),
            };
            buckets.iter().map(state).collect()
        };
        Ok(Settlement { at, states: states.map(all) })
    }

    async fn peek(&self, buckets: &[Bucket<'_>]) -> Result<Vec<LogPeek>, StoreError> {
        match self.link.is_cluster() {
            true => Box::pin(self.peek_by_slot(buckets)).await,
            false => self.peek_at_once(buckets).await,
        }
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        let mut command = self.command(LuaScript::Read, [bucket].into_iter(), &[]);
        command.arg(MOST_READ);
        match self.run(&command, LuaScript::Read).await?.as_slice() {
            [at, holds, hits @ ..] => Ok(LogReading {
                at: Micros(*at),
                holds: *holds as u32,
                hits: hits.iter().map(|at| Micros(*at)).collect(),
            }),
            other => Err(StoreError::Broken(format!("{other:?} to a reading"))),
        }
    }

    async fn clear(&self, bucket: Bucket<'_>) -> Result<(), StoreError> {
        let mut command = redis::cmd("UNLINK");
        command.arg(self.key_name(bucket));
        let cleared = self.link.call(&command).await;
        self.forget_refusals(&[bucket]);
        cleared?;
        Ok(())
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        let mut logs: HashMap<SubjectKey, Vec<&(Bucket<'_>, KeptHit)>> = HashMap::new();
        for hit in hits.iter().filter(|(bucket, _)| bucket.limit.capacity() > 0) {
            logs.entry(hit.0.key).or_default().push(hit);
        }
        let is_cluster = self.link.is_cluster();
        let (mut scripts, mut room) = (Vec::<Vec<_>>::new(), 0);
        for some in logs.values().flat_map(|hits| hits.chunks(RESTORED_AT_ONCE)) {
            match scripts.last_mut() {
                Some(script) if some.len() <= room && !is_cluster => script.push(some),
                _ => {
                    room = RESTORED_AT_ONCE;
                    scripts.push(vec![some]);
                }
            }
            room -= some.len();
        }
        for some in scripts.chunks(if is_cluster { RESTORING_IN_CLUSTER } else { RESTORING_AT_ONCE }) {
            try_join_all(some.iter().map(|logs| self.restore_at_once(logs))).await?;
        }
        Ok(())
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        let get = |key| {
            let mut get = redis::cmd("GET");
            get.arg(key);
            get
        };
        if let Some(life) = self.mark_life {
            let mut stay = redis::cmd("PEXPIRE");
            stay.arg(self.generation_key(name)).arg(millis(life));
            self.link.call(&stay).await?;
        }
        let (mark, evicted) = (get(self.generation_key(name)), get(self.evicted_key(name)));
        // Asked in this order on one connection, so that a mark is never judged by what was so before it.
        let (mark, evicted, look) = join3(self.link.call(&mark), self.link.call(&evicted), self.look()).await;
        let (mark, evicted, look) = (mark?, evicted?, look?);
        if self.was_set_forward(name, &look) {
            tracing::warn!(
                windows = name,
                "the clock of redis was set forward, and its windows are not believed"
            );
            let mut forget = redis::cmd("UNLINK");
            forget.arg(self.generation_key(name)).arg(self.evicted_key(name));
            self.link.call(&forget).await?;
            return Ok(None);
        }
        let mark = match mark {
            Value::Nil => return Ok(None),
            Value::BulkString(bytes) => bytes,
            other => return Err(StoreError::Broken(format!("{other:?} instead of an id"))),
        };
        let Some((id, of)) = mark.split_first_chunk::<6>() else {
            return Err(StoreError::Broken(format!("{} bytes for an id", mark.len())));
        };
        let since = [&id[..], look.evicted.to_string().as_bytes()].concat();
        let current = of == [shape, &look.history].concat().as_bytes() && evicted == Value::BulkString(since);
        Ok(current.then_some(HitId(*id)))
    }

    async fn are_complete(&self, windows: CompleteWindows<'_>) -> Result<bool, StoreError> {
        let CompleteWindows { name, shape, generation } = windows;
        if self.link.allows_eviction() {
            return Ok(self.rebuild_generation(name, shape).await? == Some(generation));
        }
        let mut get = redis::cmd("GET");
        get.arg(self.generation_key(name));
        // In this order, as there.
        let (mark, history) = join(self.link.call(&get), self.history()).await;
        let whole = [&generation.0[..], shape.as_bytes(), history?.as_bytes()].concat();
        Ok(mark? == Value::BulkString(whole))
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<Micros, StoreError> {
        let ServersLook { history, evicted, now, .. } = self.look().await?;
        let mut command = redis::cmd("SET");
        command.arg(self.rebuild_key(name, by)).arg(format!("{history}{evicted}"));
        command.arg("PX").arg(RESTORING_FOR.as_millis() as u64);
        self.link.call(&command).await?;
        Ok(now)
    }

    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.scripts[LuaScript::FinishRebuild as usize].get_hash()).arg(3);
        command.arg(self.generation_key(name)).arg(self.rebuild_key(name, by)).arg(self.evicted_key(name));
        command.arg([&by.0[..], shape.as_bytes()].concat());
        command.arg(self.mark_life.map_or(0, millis));
        Ok(self.run(&command, LuaScript::FinishRebuild).await? == [1])
    }
}

/// The scripts contain these constants, too.
const _: () = assert!(HOLD_LIFE.as_micros() == 15_000_000 && MOST_FORGIVEN == 1000);

#[derive(Clone, Copy)]
enum LuaScript {
    Reserve,
    Settle,
    Peek,
    Read,
    Restore,
    FinishRebuild,
}

/// The kind of a reservation that judges, and writes nothing; the others are those of [`ReserveKind`].
const LOOK: u8 = 2;
/// Added to the kind of a reservation that names a rebuild.
const MARKED: u8 = 3;
/// Added instead if it must also be refused after an eviction.
const EVICTING: u8 = 6;
/// Begins a reply: the server's clock is in another calendar unit than the caller thought.
const OTHER_UNIT: i64 = 3;
/// The reply: windows are not complete.
const INCOMPLETE: i64 = 4;

macro_rules! with_log {
    ($script:expr) => {
        concat!(include_str!("../lua/window.lua"), include_str!("../lua/log.lua"), $script)
    };
}

/// In the order of [`LuaScript`], each with their common beginning.
const SOURCES: [&str; 6] = [
    concat!(
        include_str!("../lua/window.lua"),
        include_str!("../lua/refuse.lua"),
        include_str!("../lua/log.lua"),
        include_str!("../lua/reserve.lua"),
    ),
    with_log!(concat!(include_str!("../lua/state.lua"), include_str!("../lua/settle.lua"))),
    with_log!(concat!(include_str!("../lua/state.lua"), include_str!("../lua/peek.lua"))),
    with_log!(include_str!("../lua/read.lua")),
    with_log!(include_str!("../lua/restore.lua")),
    include_str!("../lua/finish_rebuild.lua"),
];
