//! Device cookies (OWASP, "Slow Down Online Guessing Attacks with Device Cookies"): where an account was signed
//! in to before, its owner is counted apart from strangers, so that nobody keeps them out by failing.
//!
//! Nothing is stored: an entry says of which account it is, of which device, of which password, and since
//! when, under a keyed hash. It opens nothing by itself, and ends with the password or after [`LIFE`].

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::id::random_id;
use super::{Account, AccountId};
use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;
use crate::secret::{SubKey, same};

/// How long a device is known after the last sign-in on it: for who signs in twice a year. Browsers keep a
/// cookie 400 days at most (RFC 6265bis), but a machine that was given away is to be a stranger's before that.
pub const LIFE: Duration = Duration::from_secs(180 * 24 * 60 * 60);
/// Accounts that one browser is known at; past that, the one that signed in longest ago goes.
const MOST: usize = 5;

/// Account, device, version of the password, time; each as long as it is.
const SAID: usize = 16 + 16 + 8 + 8;
/// What is said, and the hash over it.
const ENTRY: usize = SAID + 32;
/// The same in base64url.
const TEXT: usize = (ENTRY * 4).div_ceil(3);
const SEPARATOR: char = '.';

random_id! {
    /// One browser at one account. Opens nothing, and says nothing of the machine.
    DeviceId
}

/// A browser that somebody has signed in to this account from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownDevice {
    pub account: AccountId,
    pub id: DeviceId,
    /// Of the password that was in force then. With another it is a stranger's.
    pub password_version: i64,
    issued_at: Micros,
}

/// As what a browser has shown itself: at most one device for each account, the newest sign-in first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownDevices(Vec<KnownDevice>);

/// Writes the cookie, and reads it.
#[derive(Clone)]
pub struct DeviceCookies {
    key: SubKey,
    clock: Clock,
    entropy: Entropy,
}

impl DeviceCookies {
    pub const fn new(key: SubKey, clock: Clock, entropy: Entropy) -> Self {
        Self { key, clock, entropy }
    }

    /// What a cookie shows. Of what is forged, cut off, too long or too old there is nothing to say: whoever
    /// sends it is a stranger.
    pub fn recognise(&self, cookie: &str) -> KnownDevices {
        let mut known = KnownDevices::default();
        if cookie.len() > MOST * (TEXT + SEPARATOR.len_utf8()) {
            return known;
        }
        for device in cookie.split(SEPARATOR).take(MOST).filter_map(|text| self.read(text)) {
            if known.at(device.account).is_none() {
                known.0.push(device);
            }
        }
        known
    }

    /// The cookie for a browser that somebody has proven an account to be theirs from. A device that is known
    /// there already stays the same one: whoever has a copy of its cookie shares its guesses, and gets no more.
    pub fn remember(&self, known: &KnownDevices, account: &Account) -> String {
        let id = known
            .at(account.id)
            .filter(|device| device.password_version == account.password_version)
            .map_or_else(|| DeviceId::random(&self.entropy), |device| device.id);
        let newest = KnownDevice {
            account: account.id,
            id,
            password_version: account.password_version,
            issued_at: self.clock.now(),
        };
        let others = known.0.iter().filter(|device| device.account != account.id);
        let entries: Vec<String> =
            [&newest].into_iter().chain(others).take(MOST).map(|device| self.write(device)).collect();
        entries.join(&SEPARATOR.to_string())
    }

    fn read(&self, text: &str) -> Option<KnownDevice> {
        let mut entry = [0; ENTRY];
        let length = (text.len() == TEXT).then(|| URL_SAFE_NO_PAD.decode_slice(text, &mut entry).ok())??;
        let (said, hash) = entry.split_at(SAID);
        if length != ENTRY || !same(hash, &self.key.hash(&[said])) {
            return None;
        }
        let device = KnownDevice::parse(said)?;
        (self.clock.now().since(device.issued_at) < LIFE).then_some(device)
    }

    fn write(&self, device: &KnownDevice) -> String {
        let said = device.said();
        URL_SAFE_NO_PAD.encode([&said[..], &self.key.hash(&[&said])].concat())
    }
}

impl KnownDevice {
    /// Whom the limit on devices counts: the device at its account.
    pub fn subject(&self) -> [u8; 32] {
        device_subject(self.account, self.id)
    }

    fn said(&self) -> [u8; SAID] {
        let mut said = [0; SAID];
        said[..32].copy_from_slice(&self.subject());
        said[32..40].copy_from_slice(&self.password_version.to_be_bytes());
        said[40..].copy_from_slice(&self.issued_at.0.to_be_bytes());
        said
    }

    fn parse(said: &[u8]) -> Option<Self> {
        let (account, rest) = said.split_first_chunk::<16>()?;
        let (id, rest) = rest.split_first_chunk::<16>()?;
        let (version, rest) = rest.split_first_chunk()?;
        Some(Self {
            account: AccountId::from(*account),
            id: DeviceId::from(*id),
            password_version: i64::from_be_bytes(*version),
            issued_at: Micros(i64::from_be_bytes(*rest.first_chunk()?)),
        })
    }
}

impl KnownDevices {
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// As what it is known at an account.
    pub fn at(&self, account: AccountId) -> Option<KnownDevice> {
        self.0.iter().copied().find(|device| device.account == account)
    }
}

/// What stands for a device in its limit.
pub fn device_subject(account: AccountId, device: DeviceId) -> [u8; 32] {
    let mut subject = [0; 32];
    subject[..16].copy_from_slice(account.as_bytes());
    subject[16..].copy_from_slice(device.as_bytes());
    subject
}

impl fmt::Debug for KnownDevices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KnownDevices({})", self.0.len())
    }
}

#[cfg(test)]
mod tests;
