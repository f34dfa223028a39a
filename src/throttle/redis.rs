//! The Redis store: the same windows in Lua scripts, one round trip per decision, by the server's clock.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use redis::{Client, Cmd, ErrorKind, Script, ServerErrorKind, Value};

use super::hits::MOST_FORGIVEN;
use super::limit::{Limit, LimitMode, Rule, RuleAction, RuleSpan};
use super::link::{CallError, RedisLink};
use super::remembered::RememberedRefusals;
use super::replies::{ReserveReply, integers, verdict};
use super::scripts::LuaScripts;
use super::store::*;
use super::window::{self, HOLD_LIFE};
use crate::clock::{Clock, Micros};

/// How often a decision is asked again because the server's clock was in another calendar unit than ours, or
/// the server had lost the script. Each normally happens once.
const MOST_TRIES: usize = 3;
/// How many hits one script writes back: well under a millisecond of the server's time.
const RESTORED_AT_ONCE: usize = 100;
/// How long a rebuild may take; what an abandoned one leaves behind expires after that.
const RESTORING_FOR: Duration = Duration::from_secs(60 * 60);

/// Window logs on a Redis (or Valkey) server, shared by every instance that uses it.
pub struct RedisStore {
    link: RedisLink,
    prefix: String,
    scripts: Box<LuaScripts>,
    clock: Clock,
    /// The server's clock minus ours, in microseconds, as last seen when it mattered. It only selects the
    /// calendar unit to ask about first; the server decides.
    skew: AtomicI64,
    /// None: every decision asks the server.
    remembered: Option<RememberedRefusals>,
}

impl RedisStore {
    /// Starts connecting in the background; wait for it with [`RedisStore::link`]. Keys are named
    /// `{prefix}:{limit}:{keyed hash}`. `clock` is the caller's.
    pub fn new(client: Client, timeout: Duration, prefix: impl Into<String>, clock: Clock) -> Self {
        let scripts = Box::<LuaScripts>::default();
        Self {
            link: RedisLink::open(client, timeout, scripts.all().into_iter().cloned().collect()),
            prefix: prefix.into(),
            scripts,
            clock,
            skew: AtomicI64::new(0),
            remembered: None,
        }
    }

    /// Answers an attempt that was refused within the last 50 ms from memory.
    #[must_use]
    pub fn remembering_refusals(self) -> Self {
        Self { remembered: Some(RememberedRefusals::default()), ..self }
    }

    pub const fn remembers(&self) -> bool {
        self.remembered.is_some()
    }

    fn forget_refusals(&self, buckets: &[Bucket<'_>]) {
        if let Some(remembered) = &self.remembered {
            remembered.wrote(buckets);
        }
    }

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
    pub fn reservation(&self, ask: &ReserveRequest<'_>) -> Cmd {
        let buckets = || ask.buckets.iter().filter(|bucket| !bucket.limit.rules().is_empty());
        let now = self.now();
        let mut command = self.command(&self.scripts.reserve, buckets().copied());
        command.arg(&ask.id.0).arg(u8::from(ask.kind == ReserveKind::Hold));
        for bucket in buckets() {
            write_bucket(&mut command, bucket.limit, now, ask.solved);
        }
        command
    }

    /// The key that marks `name` as complete, and the key that exists while a rebuild runs. Neither can be a
    /// log's name: those have a third part.
    fn rebuild_keys(&self, name: &str, by: HitId) -> [String; 2] {
        let by = URL_SAFE_NO_PAD.encode(by.0);
        [self.generation_key(name), format!("{}:restoring-{name}-{by}", self.prefix)]
    }

    fn generation_key(&self, name: &str) -> String {
        format!("{}:whole-{name}", self.prefix)
    }

    fn now(&self) -> Micros {
        Micros(self.clock.now().0 + self.skew.load(Ordering::Relaxed))
    }

    fn learn(&self, server: Micros) {
        self.skew.store(server.0 - self.clock.now().0, Ordering::Relaxed);
    }

    fn command<'b>(&self, script: &Script, buckets: impl Iterator<Item = Bucket<'b>> + Clone) -> Cmd {
        // Room for one bucket of one rule, with a name of 40 bytes.
        let mut command = Cmd::with_capacity(16, 192);
        command.arg("EVALSHA").arg(script.get_hash()).arg(buckets.clone().count());
        for bucket in buckets {
            command.arg(self.key_name(bucket));
        }
        command
    }

    /// Runs a script, and loads it again if the server has lost it (`SCRIPT FLUSH`, a restart behind a
    /// proxy).
    async fn run(&self, command: &Cmd, script: &Script) -> Result<Vec<i64>, StoreError> {
        for _ in 0..MOST_TRIES {
            match self.link.call(command).await {
                Ok(value) => return integers(value),
                Err(CallError::Server(error))
                    if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) =>
                {
                    let mut load = redis::cmd("SCRIPT");
                    load.arg("LOAD").arg(self.scripts.text_of(script));
                    self.link.call(&load).await.map_err(fault)?;
                }
                Err(error) => return Err(fault(error)),
            }
        }
        Err(StoreError::Broken("it forgets scripts as soon as they are loaded".into()))
    }
}

impl WindowStore for RedisStore {
    async fn reserve(&self, ask: &ReserveRequest<'_>) -> Result<StoreVerdict, StoreError> {
        let buckets =
            || ask.buckets.iter().enumerate().filter(|(_, bucket)| !bucket.limit.rules().is_empty());
        if buckets().next().is_none() {
            return Ok(StoreVerdict::Admitted { at: self.now(), room: None, noted: None });
        }
        let memory = self.remembered.as_ref().map(|remembered| (remembered, remembered.writes(ask.buckets)));
        if let Some(refused) = memory.and_then(|(remembered, _)| remembered.recall(ask, self.clock.now())) {
            return Ok(refused);
        }
        for _ in 0..MOST_TRIES {
            let reply = self.run(&self.reservation(ask), &self.scripts.reserve).await?;
            // The script counts the buckets that were sent to it; the caller counts those that it asked for.
            let place = |sent: i64| buckets().nth(sent as usize).map(|(index, _)| index);
            match verdict(&reply, ask, place)? {
                ReserveReply::Verdict(verdict) => {
                    if let Some((remembered, writes)) = memory {
                        match verdict {
                            StoreVerdict::Refused { at, refusal } => {
                                remembered.note(ask, at, refusal, self.clock.now(), writes);
                            }
                            StoreVerdict::Admitted { .. } => remembered.wrote(ask.buckets),
                            StoreVerdict::Held { .. } => {}
                        }
                    }
                    return Ok(verdict);
                }
                ReserveReply::OtherUnit(at) => self.learn(at),
            }
        }
        Err(StoreError::Broken("its clock runs from one calendar unit to the next".into()))
    }

    async fn settle(
        &self,
        buckets: &[Bucket<'_>],
        id: HitId,
        outcomes: &[HoldOutcome],
    ) -> Result<Micros, StoreError> {
        let pairs = || buckets.iter().zip(outcomes).filter(|(bucket, _)| !bucket.limit.rules().is_empty());
        let sent: Vec<Bucket<'_>> = pairs().map(|(bucket, _)| *bucket).collect();
        if sent.is_empty() {
            return Ok(self.now());
        }
        let now = self.now();
        let mut command = self.command(&self.scripts.settle, sent.iter().copied());
        command.arg(&id.0);
        for (bucket, outcome) in pairs() {
            let (letter, up_to) = match outcome {
                HoldOutcome::Keep => ("K", 0),
                HoldOutcome::Refund => ("R", 0),
                HoldOutcome::Forgive { up_to } if bucket.limit.challenges() => ("F", up_to.0),
                HoldOutcome::Forgive { .. } => ("R", 0),
            };
            command.arg(letter).arg(bucket.limit.capacity()).arg(life_millis(bucket.limit, now)).arg(up_to);
        }
        let settled = self.run(&command, &self.scripts.settle).await;
        self.forget_refusals(buckets);
        match settled?.as_slice() {
            [at] => Ok(Micros(*at)),
            other => Err(StoreError::Broken(format!("{other:?} to a settlement"))),
        }
    }

    async fn peek(&self, bucket: Bucket<'_>) -> Result<LogPeek, StoreError> {
        for _ in 0..MOST_TRIES {
            let now = self.now();
            let mut command = self.command(&self.scripts.peek, [bucket].into_iter());
            for rule in bucket.limit.rules() {
                write_rule(&mut command, rule, bucket.limit, now, false);
            }
            match self.run(&command, &self.scripts.peek).await?.as_slice() {
                [-1, at] => self.learn(Micros(*at)),
                [at, holds, rules @ ..] => {
                    let rules = rules.chunks_exact(2).map(|pair| RulePeek {
                        count: pair[0] as u32,
                        retry_after: Duration::from_micros(pair[1].max(0) as u64),
                    });
                    return Ok(LogPeek { at: Micros(*at), holds: *holds as u32, rules: rules.collect() });
                }
                other => return Err(StoreError::Broken(format!("{other:?} to a peek"))),
            }
        }
        Err(StoreError::Broken("its clock runs from one calendar unit to the next".into()))
    }

    async fn read(&self, bucket: Bucket<'_>) -> Result<LogReading, StoreError> {
        let mut command = self.command(&self.scripts.read, [bucket].into_iter());
        command.arg(MOST_READ);
        match self.run(&command, &self.scripts.read).await?.as_slice() {
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
        let cleared = self.link.call(&command).await.map(drop).map_err(fault);
        self.forget_refusals(&[bucket]);
        cleared
    }

    async fn restore(&self, hits: &[(Bucket<'_>, KeptHit)]) -> Result<(), StoreError> {
        let logged: Vec<_> = hits.iter().filter(|(bucket, _)| bucket.limit.capacity() > 0).collect();
        for some in logged.chunks(RESTORED_AT_ONCE) {
            let mut command = self.command(&self.scripts.restore, some.iter().map(|(bucket, _)| *bucket));
            for (bucket, hit) in some {
                command.arg(bucket.limit.capacity()).arg(life_millis(bucket.limit, hit.at));
                command.arg(hit.at.0).arg(&hit.id.0);
            }
            self.run(&command, &self.scripts.restore).await?;
        }
        Ok(())
    }

    async fn rebuild_generation(&self, name: &str, shape: &str) -> Result<Option<HitId>, StoreError> {
        let mut command = redis::cmd("GET");
        command.arg(self.generation_key(name));
        match self.link.call(&command).await.map_err(fault)? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => match bytes.split_first_chunk() {
                Some((id, of)) => Ok((of == shape.as_bytes()).then_some(HitId(*id))),
                None => Err(StoreError::Broken(format!("{} bytes for an id", bytes.len()))),
            },
            other => Err(StoreError::Broken(format!("{other:?} instead of an id"))),
        }
    }

    async fn begin_rebuild(&self, name: &str, by: HitId) -> Result<(), StoreError> {
        let [_, restoring] = self.rebuild_keys(name, by);
        let mut command = redis::cmd("SET");
        command.arg(restoring).arg(1).arg("PX").arg(RESTORING_FOR.as_millis() as u64);
        self.link.call(&command).await.map(drop).map_err(fault)
    }

    async fn finish_rebuild(&self, name: &str, shape: &str, by: HitId) -> Result<bool, StoreError> {
        let [whole, restoring] = self.rebuild_keys(name, by);
        let mut command = redis::cmd("EVALSHA");
        command.arg(self.scripts.finish_rebuild.get_hash()).arg(2).arg(whole).arg(restoring);
        command.arg([&by.0[..], shape.as_bytes()].concat());
        let answer = self.run(&command, &self.scripts.finish_rebuild).await?;
        Ok(answer == [1])
    }
}

fn write_bucket(command: &mut Cmd, limit: &Limit, now: Micros, solved: bool) {
    let of_a_rule = |rule: &Rule| if matches!(rule.span, RuleSpan::Calendar { .. }) { 4 } else { 3 };
    let arguments: usize = limit.rules().iter().map(of_a_rule).sum();
    command.arg(limit.capacity()).arg(life_millis(limit, now)).arg(arguments);
    for rule in limit.rules() {
        write_rule(command, rule, limit, now, solved);
    }
}

/// Few arguments, because each costs the server a twentieth of a look-up: what is rare is sent if it is there.
fn write_rule(command: &mut Cmd, rule: &Rule, limit: &Limit, now: Micros, solved: bool) {
    let captcha = rule.then == RuleAction::Captcha;
    let calendar = matches!(rule.span, RuleSpan::Calendar { .. });
    let monitored = limit.mode() == LimitMode::Monitor;
    let marks = [captcha, monitored, limit.challenges(), solved && captcha, calendar];
    let bits = marks.iter().rev().fold(0, |bits, mark| bits * 2 + u8::from(*mark));
    command.arg(rule.max).arg(bits);
    match &rule.span {
        RuleSpan::Sliding(window) => {
            command.arg(window.as_micros() as i64);
        }
        RuleSpan::Calendar { unit, zone } => {
            let stretch = window::stretch(*unit, zone, now);
            command.arg(stretch.start.0).arg(stretch.end.0);
        }
    }
}

fn life_millis(limit: &Limit, now: Micros) -> u64 {
    window::life(limit, now).as_millis() as u64 + 1
}

fn fault(error: CallError) -> StoreError {
    match error {
        CallError::Store(error) => error,
        CallError::Server(error) => StoreError::Broken(error.to_string()),
    }
}

/// The scripts contain these constants, too.
const _: () = assert!(HOLD_LIFE.as_micros() == 15_000_000 && MOST_FORGIVEN == 1000);
