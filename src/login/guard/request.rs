//! Who asks for a slot, and what they can do before they are refused.

use std::time::Duration;

use crate::login::RequestOrigin;

/// How long an attempt may wait for others in flight to end. Together with the hashing queue this stays well
/// under [`HOLD_LIFE`](crate::throttle::window::HOLD_LIFE).
const PATIENCE: Duration = Duration::from_secs(5);

/// Whose passwords are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedLogin {
    Own,
    /// Another program's; its subjects belong to its realm.
    Realm,
}

/// The client of an attempt.
#[derive(Clone, Copy)]
pub struct GuardRequest<'a> {
    pub guarded: GuardedLogin,
    /// The name that was tried; it is counted by this while no account is known by it.
    pub name: &'a str,
    pub origin: &'a RequestOrigin,
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
    /// A known device whose own log blocks is not treated as a stranger.
    pub alone: bool,
    pub means: GuardMeans,
}

/// What a client can do before it is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardMeans {
    /// How long it may wait for others in flight to end.
    pub patience: Duration,
    /// It can be shown a challenge. A known device that cannot is not asked for one while the store is out: the
    /// record decides on it.
    pub challenges: bool,
}

impl GuardMeans {
    /// Of a browser.
    pub const BROWSER: Self = Self { patience: PATIENCE, challenges: true };
}
