//! What a program is given to settle its attempt with. It says, under a keyed hash, everything that settling takes, so
//! that any instance can do it. Of names and addresses it holds keys and masks, as events do. It is part of a path, where
//! each character is looked at several times: so its bytes are few (postcard), and its fields have no names.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatehouse_limiter::{CallError, RedisLink, StoreError};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::AttemptOutcome;
use crate::accounts::DeviceId;
use crate::clock::{Clock, Micros};
use crate::config::LimitName;
use crate::login::Guess;
use crate::secret::SigningKeys;

/// The purpose of the keys that sign tickets. A change of a field of tickets changes this, too: its bytes do not name
/// the fields.
pub const PURPOSE: &str = "guard.attempt.3";
const SIGNATURE: usize = 32;
/// Characters; more is no ticket.
const LONGEST: usize = 2048;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptTicket {
    pub realm: String,
    pub hit: [u8; 6],
    /// When it was admitted, by the clock of the instance that did.
    pub at: i64,
    /// The limits that count it, in order, and its keys there.
    pub logs: Vec<(String, [u8; 16])>,
    pub account: [u8; 16],
    /// What the program said of the password, in a few bits.
    pub guess: Option<Guess>,
    /// The device that is known there after a success: the one from which it came, or a new one.
    pub device: [u8; 16],
    pub seen: AttemptSeen,
}

/// What its events say.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttemptSeen {
    /// When it was admitted, by the clock that decided.
    pub at: i64,
    pub solved: bool,
    /// The rule of a limit in monitor mode that would have refused it.
    pub noted: Option<NotedRule>,
    /// Masked, as the network.
    pub login: String,
    pub address: i64,
    /// The key of the network, which is what a mask shows of an address.
    pub network: i64,
    pub network_mask: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NotedRule {
    pub limit: String,
    pub rule: usize,
    pub frees_at: i64,
}

impl AttemptTicket {
    /// The device that alone counts it.
    pub fn known_device(&self) -> Option<DeviceId> {
        let (first, _) = self.logs.first()?;
        (first == LimitName::GuardDevice.as_str()).then(|| DeviceId::from(self.device))
    }

    /// The guess that failed: of an attempt that lapsed nobody knows whether it did.
    pub fn guess_of(&self, outcome: AttemptOutcome) -> Option<Guess> {
        self.guess.filter(|_| outcome == AttemptOutcome::Failure)
    }

    pub fn age(&self, now: Micros) -> Duration {
        now.since(Micros(self.at))
    }

    pub fn sign(&self, keys: &SigningKeys) -> String {
        let mut bytes = postcard::to_allocvec(self).expect("there is memory for it");
        let signature = keys.signing().hash(&[&bytes]);
        bytes.extend_from_slice(&signature);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a ticket; None if we have not signed it.
    pub fn read(text: &str, keys: &SigningKeys) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (said, signature) = bytes.split_at_checked(bytes.len().checked_sub(SIGNATURE)?)?;
        keys.signer(signature, |key| key.hash(&[said]))?;
        let ticket: Self = postcard::from_bytes(said).ok()?;
        ticket.logs.iter().all(|(limit, _)| LimitName::parse(limit).is_some()).then_some(ticket)
    }
}

/// How long an attempt is remembered. A caller that asks later for its outcome is told that it lapsed.
pub const KEPT: Duration = Duration::from_secs(10 * 60);
const SWEEP_EVERY: Duration = Duration::from_secs(30);

/// What this process remembers of attempts.
pub struct RecentAttempts<T> {
    clock: Clock,
    kept: Mutex<KeptAttempts<T>>,
}

struct KeptAttempts<T> {
    /// Each until that time.
    attempts: HashMap<[u8; 16], (T, Micros)>,
    swept: Micros,
}

impl<T> RecentAttempts<T> {
    pub fn new(clock: Clock) -> Self {
        let kept = KeptAttempts { attempts: HashMap::new(), swept: clock.now() };
        Self { clock, kept: Mutex::new(kept) }
    }

    pub fn now(&self) -> Micros {
        self.clock.now()
    }

    pub fn has(&self, attempt: &[u8; 16]) -> bool {
        self.kept.lock().attempts.get(attempt).is_some_and(|(_, until)| *until > self.now())
    }

    /// Changes what is remembered of an attempt, in one step.
    pub fn change<R>(&self, attempt: [u8; 16], change: impl FnOnce(&mut Option<T>) -> R) -> R {
        let now = self.now();
        let KeptAttempts { attempts, swept } = &mut *self.kept.lock();
        if now.since(*swept) >= SWEEP_EVERY {
            attempts.retain(|_, (_, until)| *until > now);
            *swept = now;
        }
        let mut known = attempts.remove(&attempt).filter(|(_, until)| *until > now).map(|(known, _)| known);
        let done = change(&mut known);
        if let Some(known) = known {
            attempts.insert(attempt, (known, now.plus(KEPT)));
        }
        done
    }
}

/// How attempts ended, where every instance sees it: on Redis, or in this process if there is none. The first
/// outcome that is told stays.
pub struct AttemptOutcomes {
    here: RecentAttempts<AttemptOutcome>,
    shared: Option<(RedisLink, String)>,
}

impl AttemptOutcomes {
    /// On Redis, keys are named `{prefix}:attempt:{keyed hash}`.
    pub fn new(clock: Clock, shared: Option<(RedisLink, String)>) -> Self {
        Self { here: RecentAttempts::new(clock), shared }
    }

    /// Notes the outcome unless there is one, and returns the one that was there before: one atomic step.
    pub(super) async fn note(
        &self,
        attempt: [u8; 16],
        outcome: AttemptOutcome,
    ) -> Result<Option<AttemptOutcome>, StoreError> {
        let Some((link, prefix)) = &self.shared else { return Ok(self.note_here(attempt, outcome)) };
        let mut command = redis::cmd("SET");
        command.arg(format!("{prefix}:attempt:{}", URL_SAFE_NO_PAD.encode(attempt)));
        command.arg(outcome.into_str()).arg("NX").arg("GET").arg("PX").arg(KEPT.as_millis() as u64);
        let before: Option<String> = call(link, &command).await?;
        // No other program writes there. What cannot be read is no outcome to agree with.
        Ok(before.map(|text| text.parse().unwrap_or(AttemptOutcome::Lapsed)))
    }

    fn note_here(&self, attempt: [u8; 16], outcome: AttemptOutcome) -> Option<AttemptOutcome> {
        self.here.change(attempt, |known| {
            let before = *known;
            *known = before.or(Some(outcome));
            before
        })
    }
}

/// What Redis keeps of an attempt.
pub async fn call<T: redis::FromRedisValue>(link: &RedisLink, command: &redis::Cmd) -> Result<T, StoreError> {
    match link.call(command).await {
        Ok(value) => redis::from_redis_value::<T>(value).map_err(|_| StoreError::Down),
        Err(CallError::Store(error)) => Err(error),
        Err(CallError::Server(error)) => {
            tracing::debug!(%error, "what was said about an attempt could not be kept");
            Err(StoreError::Down)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::MasterKey;

    /// If this fails, [`PURPOSE`] has to change.
    #[test]
    fn another_instance_reads_what_was_signed() {
        let noted = NotedRule { limit: "guard-account".into(), rule: 1, frees_at: -3 };
        let seen = AttemptSeen {
            at: 2,
            solved: true,
            noted: Some(noted),
            login: "a…".into(),
            address: -4,
            network: 5,
            network_mask: "203.0.113.0/24".into(),
        };
        let ticket = AttemptTicket {
            realm: "wiki".into(),
            hit: *b"6bytes",
            at: 1,
            logs: vec![("guard-account".into(), *b"the account's id")],
            account: *b"sixteen of bytes",
            guess: None,
            device: *b"16 of the device",
            seen,
        };
        let bytes =
            b"\x04wiki6bytes\x02\x01\x0dguard-accountthe account's idsixteen of bytes\x0016 of the device\
            \x04\x01\x01\x0dguard-account\x01\x05\x04a\xe2\x80\xa6\x07\x0a\x0e203.0.113.0/24";
        assert_eq!(postcard::to_allocvec(&ticket).unwrap(), bytes);
        let keys = MasterKey::from_bytes([7; 32]).derive_signing(PURPOSE);
        let text = ticket.sign(&keys);
        assert_eq!(text.len(), ((bytes.len() + SIGNATURE) * 4).div_ceil(3));
        let read = AttemptTicket::read(&text, &keys).expect("it was signed");
        assert_eq!(postcard::to_allocvec(&read).unwrap(), bytes);
        assert!(AttemptTicket::read(&text[..text.len() - 4], &keys).is_none());
    }

    #[test]
    fn the_first_outcome_stays_until_it_is_forgotten() {
        let clock = Clock::manual(Micros(1_000_000));
        let outcomes = AttemptOutcomes::new(clock.clone(), None);
        assert_eq!(outcomes.note_here([1; 16], AttemptOutcome::Success), None);
        assert_eq!(outcomes.note_here([1; 16], AttemptOutcome::Failure), Some(AttemptOutcome::Success));
        assert_eq!(outcomes.note_here([2; 16], AttemptOutcome::Failure), None, "another attempt");
        clock.advance(KEPT);
        assert_eq!(outcomes.note_here([3; 16], AttemptOutcome::Lapsed), None);
        assert_eq!(outcomes.here.kept.lock().attempts.len(), 1, "the others were swept");
    }
}
