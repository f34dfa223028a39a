//! Where it is kept what was asked: on Redis for all instances, and in this process without it or while it is out.

use std::collections::HashMap;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use super::asked::{AskedBefore, KEPT};
use crate::clock::{Clock, Micros};
use crate::throttle::{CallError, RedisLink, StoreError};

const EXCHANGE: &str = include_str!("../../../lua/exchange.lua");
/// Each try that loses is one that another caller has won; no more than this many share one attempt.
const TRIES: usize = 256;
/// What this process keeps is swept when it has doubled.
const SWEEP_FROM: usize = 1024;

/// The store of what was asked, by a keyed hash of the attempt.
pub struct SavedAsks {
    clock: Clock,
    local: Mutex<LocalAsks>,
    shared: Option<(RedisLink, String)>,
}

#[derive(Default)]
struct LocalAsks {
    asked: HashMap<[u8; 16], (AskedBefore, Micros)>,
    sweep_at: usize,
}

impl SavedAsks {
    /// On Redis, keys are named `{prefix}:asked:{keyed hash}`.
    pub fn new(clock: Clock, shared: Option<(RedisLink, String)>) -> Self {
        Self { clock, local: Mutex::default(), shared }
    }

    /// Changes what is kept, in one step. `change` may run several times.
    pub(super) async fn change<T>(
        &self,
        attempt: [u8; 16],
        change: impl Fn(&mut AskedBefore, Micros) -> T,
    ) -> T {
        let Some((link, prefix)) = &self.shared else { return self.change_here(attempt, change) };
        if self.has_here(&attempt) {
            // It was asked while Redis was out.
            return self.change_here(attempt, change);
        }
        let key = format!("{prefix}:asked:{}", URL_SAFE_NO_PAD.encode(attempt));
        match self.change_on(link, &key, &change).await {
            Ok(done) => done,
            Err(error) => {
                tracing::debug!(%error, "what was asked about an attempt is kept by this process");
                self.change_here(attempt, change)
            }
        }
    }

    async fn change_on<T>(
        &self,
        link: &RedisLink,
        key: &str,
        change: impl Fn(&mut AskedBefore, Micros) -> T,
    ) -> Result<T, StoreError> {
        for _ in 0..TRIES {
            let seen: Option<String> = call(link, redis::cmd("GET").arg(key)).await?;
            // Nobody else writes there.
            let before: AskedBefore =
                seen.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            let mut after = before.clone();
            let done = change(&mut after, self.clock.now());
            if after == before {
                return Ok(done);
            }
            let text = serde_json::to_string(&after).expect("texts and numbers are JSON");
            let mut exchange = redis::cmd("EVAL");
            exchange.arg(EXCHANGE).arg(1).arg(key).arg(seen.unwrap_or_default()).arg(text);
            let exchanged: i64 = call(link, exchange.arg(KEPT.as_millis() as u64)).await?;
            if exchanged == 1 {
                return Ok(done);
            }
        }
        Err(StoreError::TimedOut)
    }

    fn has_here(&self, attempt: &[u8; 16]) -> bool {
        self.local.lock().asked.get(attempt).is_some_and(|(_, until)| *until > self.clock.now())
    }

    fn change_here<T>(&self, attempt: [u8; 16], change: impl Fn(&mut AskedBefore, Micros) -> T) -> T {
        let now = self.clock.now();
        let mut local = self.local.lock();
        if local.asked.len() >= local.sweep_at {
            local.asked.retain(|_, (_, until)| *until > now);
            local.sweep_at = (2 * local.asked.len()).max(SWEEP_FROM);
        }
        let kept = local.asked.remove(&attempt).filter(|(_, until)| *until > now);
        let mut asked = kept.map(|(asked, _)| asked).unwrap_or_default();
        let done = change(&mut asked, now);
        if !asked.is_empty() {
            local.asked.insert(attempt, (asked, now.plus(KEPT)));
        }
        done
    }
}

async fn call<T: redis::FromRedisValue>(link: &RedisLink, command: &redis::Cmd) -> Result<T, StoreError> {
    match link.call(command).await {
        Ok(value) => redis::from_redis_value::<T>(value).map_err(|_| StoreError::Down),
        Err(CallError::Store(error)) => Err(error),
        Err(CallError::Server(error)) => {
            tracing::debug!(%error, "what was asked about an attempt could not be kept");
            Err(StoreError::Down)
        }
    }
}
