//! How an attempt ended, where every instance sees it: the first outcome that is told stays.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use redis::Value;

use super::AttemptOutcome;
use crate::clock::{Clock, Micros};
use crate::throttle::{CallError, RedisLink, StoreError};

pub type NoteFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Option<AttemptOutcome>, StoreError>> + Send + 'a>>;

/// How long an outcome is remembered. A caller that asks again later is told that the attempt lapsed.
pub const KEPT: Duration = Duration::from_secs(10 * 60);
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// Where outcomes are noted.
pub trait OutcomeMarks: Send + Sync {
    /// Notes the outcome unless there is one, and returns the one that was there before: one atomic step.
    fn note(&self, attempt: [u8; 16], outcome: AttemptOutcome) -> NoteFuture<'_>;
}

/// Outcomes in this process.
pub struct LocalOutcomes {
    clock: Clock,
    noted: Mutex<NotedOutcomes>,
}

struct NotedOutcomes {
    outcomes: HashMap<[u8; 16], (AttemptOutcome, Micros)>,
    swept: Micros,
}

impl LocalOutcomes {
    pub fn new(clock: Clock) -> Self {
        let noted = NotedOutcomes { outcomes: HashMap::new(), swept: clock.now() };
        Self { clock, noted: Mutex::new(noted) }
    }

    fn note_now(&self, attempt: [u8; 16], outcome: AttemptOutcome) -> Option<AttemptOutcome> {
        let now = self.clock.now();
        let mut noted = self.noted.lock();
        if now.since(noted.swept) >= SWEEP_EVERY {
            noted.outcomes.retain(|_, (_, until)| *until > now);
            noted.swept = now;
        }
        match noted.outcomes.get(&attempt) {
            Some((before, until)) if *until > now => Some(*before),
            _ => {
                noted.outcomes.insert(attempt, (outcome, now.plus(KEPT)));
                None
            }
        }
    }
}

impl OutcomeMarks for LocalOutcomes {
    fn note(&self, attempt: [u8; 16], outcome: AttemptOutcome) -> NoteFuture<'_> {
        Box::pin(std::future::ready(Ok(self.note_now(attempt, outcome))))
    }
}

/// Outcomes on Redis.
pub struct RedisOutcomes {
    link: RedisLink,
    prefix: String,
}

impl RedisOutcomes {
    /// Keys are named `{prefix}:attempt:{keyed hash}`.
    pub fn new(link: RedisLink, prefix: impl Into<String>) -> Self {
        Self { link, prefix: prefix.into() }
    }

    async fn set(
        &self,
        attempt: [u8; 16],
        outcome: AttemptOutcome,
    ) -> Result<Option<AttemptOutcome>, StoreError> {
        let mut command = redis::cmd("SET");
        command.arg(format!("{}:attempt:{}", self.prefix, URL_SAFE_NO_PAD.encode(attempt)));
        command.arg(outcome.as_str()).arg("NX").arg("GET").arg("PX").arg(KEPT.as_millis() as u64);
        match self.link.call(&command).await {
            Ok(Value::Nil) => Ok(None),
            Ok(value) => {
                let text: String = redis::from_redis_value(value).unwrap_or_default();
                // Nobody else writes there. What cannot be read is no outcome to agree with.
                Ok(Some(AttemptOutcome::parse(&text).unwrap_or(AttemptOutcome::Lapsed)))
            }
            Err(CallError::Store(error)) => Err(error),
            Err(CallError::Server(error)) => {
                tracing::debug!(%error, "the outcome of an attempt could not be noted");
                Err(StoreError::Down)
            }
        }
    }
}

impl OutcomeMarks for RedisOutcomes {
    fn note(&self, attempt: [u8; 16], outcome: AttemptOutcome) -> NoteFuture<'_> {
        Box::pin(self.set(attempt, outcome))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_outcome_stays_until_it_is_forgotten() {
        let clock = Clock::manual(Micros(1_000_000));
        let outcomes = LocalOutcomes::new(clock.clone());
        assert_eq!(outcomes.note_now([1; 16], AttemptOutcome::Success), None);
        assert_eq!(outcomes.note_now([1; 16], AttemptOutcome::Failure), Some(AttemptOutcome::Success));
        assert_eq!(outcomes.note_now([2; 16], AttemptOutcome::Failure), None, "another attempt");
        clock.advance(KEPT);
        assert_eq!(outcomes.note_now([3; 16], AttemptOutcome::Lapsed), None);
        assert_eq!(outcomes.noted.lock().outcomes.len(), 1, "the others were swept");
    }
}
