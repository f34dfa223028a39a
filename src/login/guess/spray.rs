//! One password at many names: a detector, with the error that `detector.rs` states, of this process alone.

use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode, RuleSpan};
use parking_lot::Mutex;

use super::detector::{self, Failure, Finding, GuessDetector};
use crate::accounts::{Username, folded};
use crate::clock::Micros;
use crate::entropy::Entropy;
use crate::login::{Password, RequestOrigin};
use crate::secret::{MasterKey, SubKey};

pub use detector::Spray;

/// The detector's window is three of these, and the one that runs.
const SUB_WINDOWS: u32 = 3;
/// How long a password stays hot after the last failure that was too many.
const HOT_FOR: Duration = Duration::from_secs(60 * 60);
/// Between two that are told: whoever sprays many passwords must not fill the record.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Watches wrong passwords for one that is tried at many names. Nothing of it is stored: the key is of this process alone,
/// and so is what it has seen. No right password comes here.
pub struct SprayWatch {
    key: SubKey,
    state: Mutex<SprayState>,
}

struct SprayState {
    detector: GuessDetector,
    window: Duration,
    told_at: Option<Micros>,
    /// How many began since, and were not told.
    untold: u32,
    newest: Option<(Micros, Spray)>,
}

/// A spray that began, and how many others did since the last one that was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SprayNews {
    pub spray: Spray,
    pub others: u32,
}

impl SprayWatch {
    pub fn new(entropy: &Entropy) -> Self {
        let window = Duration::from_secs(60 * 60);
        let state = SprayState { detector: detector(window), window, told_at: None, untold: 0, newest: None };
        Self { key: MasterKey::random(entropy).derive("guess.spray"), state: Mutex::new(state) }
    }

    /// Notes a wrong password. Returns a spray that it began, if that is to be told.
    pub fn note(
        &self,
        limit: &Limit,
        (login, password): (&Username, &Password),
        origin: &RequestOrigin,
        now: Micros,
    ) -> Option<SprayNews> {
        let failure = Failure {
            password: self.tag(password),
            name: self.hash(b"name", folded(login.as_str()).as_bytes()),
            network: self.hash(b"network", &origin.network),
        };
        let state = &mut *self.state.lock();
        state.follow(limit)?;
        let finding = state.detector.observe(failure, now.0);
        let (Finding::Began(spray) | Finding::GoesOn(spray)) = finding else { return None };
        state.newest = Some((now, spray));
        if !matches!(finding, Finding::Began(_)) {
            return None;
        }
        if state.told_at.is_some_and(|told| now.since(told) < TOLD_EVERY) {
            state.untold += 1;
            return None;
        }
        state.told_at = Some(now);
        Some(SprayNews { spray, others: std::mem::take(&mut state.untold) })
    }

    /// Whether this password is being tried at many names, however the limit is enforced.
    pub fn is_hot(&self, limit: &Limit, password: &Password, now: Micros) -> bool {
        !limit.rules().is_empty() && self.state.lock().detector.is_hot(self.tag(password), now.0)
    }

    /// Whether attempts with it are challenged.
    pub fn challenges(&self, limit: &Limit, password: &Password, now: Micros) -> bool {
        limit.mode() == LimitMode::Enforce && self.is_hot(limit, password, now)
    }

    /// The newest spray, while it is not over for longer than a password stays hot.
    pub fn newest(&self, now: Micros) -> Option<Spray> {
        let newest = self.state.lock().newest;
        newest.filter(|(at, _)| now.since(*at) < HOT_FOR).map(|(_, spray)| spray)
    }

    fn tag(&self, password: &Password) -> u64 {
        self.hash(b"password", password.bytes())
    }

    fn hash(&self, kind: &[u8], what: &[u8]) -> u64 {
        u64::from_be_bytes(*self.key.hash(&[kind, what]).first_chunk().expect("a hash has 32 bytes"))
    }
}

impl SprayState {
    /// Takes the limit as it is now. None if it is switched off. Another window begins anew.
    fn follow(&mut self, limit: &Limit) -> Option<()> {
        let rule = limit.rules().first()?;
        if let RuleSpan::Sliding(window) = rule.span
            && window != self.window
        {
            (self.detector, self.window) = (detector(window), window);
        }
        self.detector.set_max(rule.max);
        Some(())
    }
}

fn detector(window: Duration) -> GuessDetector {
    let micros = |span: Duration| i64::try_from(span.as_micros()).unwrap_or(i64::MAX);
    GuessDetector::new(detector::DetectorSettings {
        sub_window: micros(window / SUB_WINDOWS),
        hot_for: micros(HOT_FOR),
        ..detector::DetectorSettings::default()
    })
}
