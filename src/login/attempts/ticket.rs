//! What a program is given to settle its attempt with. It says, under a keyed hash, everything that settling takes, so
//! that any instance can do it. Of names and addresses it holds keys and masks, as events do.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use crate::clock::Micros;
use crate::config::LimitName;
use crate::login::{AccountId, DeviceId, Realm};
use crate::secret::SigningKeys;
use crate::throttle::{HitId, SubjectKey};

const SIGNATURE: usize = 32;
/// Characters; more is no ticket.
const LONGEST: usize = 2048;

/// An attempt that was admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptTicket {
    pub realm: Realm,
    pub hit: HitId,
    /// When it was admitted, by the clock of the instance that did.
    pub at: Micros,
    /// The logs that count it, in order.
    pub logs: Vec<(LimitName, SubjectKey)>,
    pub account: AccountId,
    /// The device that is known there after a success: the one from which it came, or a new one.
    pub device: DeviceId,
    pub seen: AttemptSeen,
}

/// What its events say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptSeen {
    /// When it was admitted, by the clock that decided.
    pub at: i64,
    pub solved: bool,
    /// The rule of a limit in monitor mode that would have refused it.
    pub noted: Option<NotedRule>,
    /// Masked, as the network.
    pub login: String,
    pub address: i64,
    /// Of the network, which is what a mask shows of an address.
    pub network: i64,
    pub network_mask: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedRule {
    pub limit: String,
    pub rule: usize,
    pub frees_at: i64,
}

#[derive(Serialize, Deserialize)]
struct Written {
    realm: String,
    hit: [u8; 6],
    at: i64,
    logs: Vec<(String, [u8; 16])>,
    account: [u8; 16],
    device: [u8; 16],
    seen: AttemptSeen,
}

impl AttemptTicket {
    /// The device that alone counts it.
    pub fn known_device(&self) -> Option<DeviceId> {
        matches!(self.logs.first(), Some((LimitName::GuardDevice, _))).then_some(self.device)
    }

    pub fn sign(&self, keys: &SigningKeys) -> String {
        let logs = self.logs.iter().map(|(name, key)| (name.as_str().to_owned(), key.0)).collect();
        let written = Written {
            realm: self.realm.as_str().to_owned(),
            hit: self.hit.0,
            at: self.at.0,
            logs,
            account: *self.account.as_bytes(),
            device: *self.device.as_bytes(),
            seen: self.seen.clone(),
        };
        let mut bytes = serde_json::to_vec(&written).expect("texts and numbers are JSON");
        let signature = keys.signing().hash(&[&bytes]);
        bytes.extend_from_slice(&signature);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// None if we have not signed it.
    pub fn read(text: &str, keys: &SigningKeys) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (said, signature) = bytes.split_at_checked(bytes.len().checked_sub(SIGNATURE)?)?;
        keys.signer(signature, |key| key.hash(&[said]))?;
        let written: Written = serde_json::from_slice(said).ok()?;
        let logs = written.logs.into_iter();
        let logs = logs.map(|(name, key)| Some((LimitName::parse(&name)?, SubjectKey(key))));
        Some(Self {
            realm: Realm::parse(&written.realm)?,
            hit: HitId(written.hit),
            at: Micros(written.at),
            logs: logs.collect::<Option<_>>()?,
            account: AccountId::from(written.account),
            device: DeviceId::from(written.device),
            seen: written.seen,
        })
    }
}
