//! Device cookies (OWASP, "Slow Down Online Guessing Attacks with Device Cookies"): in a browser in which an
//! account has signed in before, failures are counted apart from those of strangers, so that nobody can lock
//! its owner out by failing.
//!
//! Nothing is stored: an entry names the account, the device, the version of the password and a time, under a
//! keyed hash. It opens nothing by itself, and expires with the password or after [`DEVICE_LIFE`].

use std::fmt;
use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gatehouse_limiter::middleware::{ClientAddress, TrustedProxies};

use super::{Account, AccountId, DEVICE_LIFE, DeviceId};
use crate::clock::{Clock, Micros};
use crate::entropy::Entropy;
use crate::secret::SigningKeys;

/// The number of accounts at which one browser is known; beyond it, the one that signed in longest ago is
/// dropped.
const MOST: usize = 5;

/// Account, device, version of the password, time, by their lengths.
const SAID: usize = 16 + 16 + 8 + 8;
/// The data and its hash.
const ENTRY: usize = SAID + 32;
/// The length of an entry in base64url.
const TEXT: usize = (ENTRY * 4).div_ceil(3);
const SEPARATOR: char = '.';

/// A browser in which somebody has signed in to this account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownDevice {
    pub account: AccountId,
    pub id: DeviceId,
    /// The password that was in force then. With another version it is a stranger's.
    pub password_version: i64,
    issued_at: Micros,
}

/// The known devices of a browser: at most one for each account, the newest sign-in first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KnownDevices(Vec<KnownDevice>);

#[derive(Clone)]
pub struct DeviceCookies {
    keys: SigningKeys,
    clock: Clock,
    entropy: Entropy,
}

impl DeviceCookies {
    pub const fn new(keys: SigningKeys, clock: Clock, entropy: Entropy) -> Self {
        Self { keys, clock, entropy }
    }

    /// The devices that a cookie proves. A cookie that is forged, truncated, too long or too old proves none:
    /// its sender is a stranger.
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

    /// The entry of one device alone, as a program keeps it for its user.
    pub fn entry(&self, account: AccountId, id: DeviceId, password_version: i64) -> String {
        self.write(&self.known(account, id, password_version))
    }

    /// A device that is known by something else than a cookie.
    pub fn known(&self, account: AccountId, id: DeviceId, password_version: i64) -> KnownDevice {
        KnownDevice { account, id, password_version, issued_at: self.clock.now() }
    }

    /// The cookie for a browser in which somebody has proved that an account is theirs. A device that is
    /// already known there keeps its id: a copy of its cookie shares its guesses and gets no more.
    pub fn remember(&self, known: &KnownDevices, account: &Account) -> String {
        self.renew(known, account).1
    }

    /// Renews the cookie, and returns what the device is called there.
    pub fn renew(&self, known: &KnownDevices, account: &Account) -> (DeviceId, String) {
        let id = known
            .at(account.id)
            .filter(|device| device.password_version == account.password_version)
            .map_or_else(|| DeviceId::random(&self.entropy), |device| device.id);
        let newest = self.known(account.id, id, account.password_version);
        let others = known.0.iter().filter(|device| device.account != account.id);
        let entries: Vec<String> =
            [&newest].into_iter().chain(others).take(MOST).map(|device| self.write(device)).collect();
        (id, entries.join(&SEPARATOR.to_string()))
    }

    fn read(&self, text: &str) -> Option<KnownDevice> {
        let mut entry = [0; ENTRY];
        let length = (text.len() == TEXT).then(|| URL_SAFE_NO_PAD.decode_slice(text, &mut entry).ok())??;
        let (said, hash) = entry.split_at(SAID);
        if length != ENTRY || self.keys.signer(hash, |key| key.hash(&[said])).is_none() {
            return None;
        }
        let device = KnownDevice::parse(said)?;
        (self.clock.now().since(device.issued_at) < DEVICE_LIFE).then_some(device)
    }

    fn write(&self, device: &KnownDevice) -> String {
        let said = device.said();
        URL_SAFE_NO_PAD.encode([&said[..], &self.keys.signing().hash(&[&said])].concat())
    }
}

impl KnownDevice {
    /// The subject of the limit on devices: the device at its account.
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

    pub fn at(&self, account: AccountId) -> Option<KnownDevice> {
        self.0.iter().copied().find(|device| device.account == account)
    }
}

/// The subject of a device in its limit.
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

// What is stored about a sign-in's client: enough to recognise a place, too little to find it.

const MAX_USER_AGENT_CHARS: usize = 200;

/// The client of one request: as its account's owner sees it later, and its known devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInClient {
    pub(crate) network: String,
    pub(crate) user_agent: String,
    pub(crate) devices: KnownDevices,
}

impl SignInClient {
    /// Masks the address to its /24 (IPv6: /48) and cuts the user agent to 200 characters, so that nothing
    /// that must not be stored goes further.
    pub fn new(address: IpAddr, user_agent: &str) -> Self {
        let user_agent = user_agent.chars().filter(|c| !c.is_control()).take(MAX_USER_AGENT_CHARS).collect();
        Self {
            network: ClientAddress::at(address, &TrustedProxies::default()).masked(),
            user_agent,
            devices: KnownDevices::default(),
        }
    }

    /// The browser has signed in before.
    pub fn known_as(self, devices: KnownDevices) -> Self {
        Self { devices, ..self }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod client_tests;
