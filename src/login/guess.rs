//! Wrong passwords that come again: a few bits of each are remembered, so that the same one counts as no new guess.

pub mod detector;
mod spray;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::accounts::{Username, folded};
use crate::secret::{MasterKey, SubKey};

pub use spray::{Spray, SprayNews, SprayWatch};

/// How long a source's guesses are remembered after its last one.
pub const REMEMBERED_FOR: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// A few bits of a wrong guess: of those that are remembered, another guess is taken for one with a chance of one in a
/// million each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuessTag(u32);

const TAG_BITS: u32 = 20;

/// The keys by which guesses are known again.
pub struct GuessKeys {
    salts: SubKey,
    tags: SubKey,
}

impl GuessKeys {
    pub fn new(secrets: &MasterKey) -> Self {
        Self { salts: secrets.derive("guess.salt"), tags: secrets.derive("guess.tag") }
    }

    /// The salt of a name without a password: the same guess at it has the same tag, too.
    pub fn decoy_salt(&self, login: &Username) -> Vec<u8> {
        self.salt_of(folded(login.as_str()).as_bytes())
    }

    pub fn salt_of(&self, what: &[u8]) -> Vec<u8> {
        self.salts.short_hash(*b"decoy   ", what).to_vec()
    }

    /// `guess`: the output of a hash that is salted by the account, or what a program says of a password at one.
    pub fn tag(&self, guess: &[u8]) -> GuessTag {
        let [a, b, c, ..] = self.tags.hash(&[guess]);
        GuessTag(u32::from_be_bytes([0, a, b, c]) >> (24 - TAG_BITS))
    }
}

/// A wrong guess, and where it came from: only what came from there before is a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guess {
    pub tag: GuessTag,
    pub source: GuessSource,
}

/// Where guesses come from, as a keyed hash: a known device, a browser at an address, or an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuessSource {
    hash: i64,
    is_device: bool,
}

/// So many sources of a subject are remembered, and as many devices. One takes the place of another with the same slot.
const SLOTS: i64 = 8;

impl GuessSource {
    pub fn device(id: &[u8; 16], keys: &GuessKeys) -> Self {
        Self { hash: hash_of(keys, &[b"device", id]), is_device: true }
    }

    /// `browser`: empty for a client that has no cookie.
    pub fn client(address: &[u8], browser: &[u8], keys: &GuessKeys) -> Self {
        Self { hash: hash_of(keys, &[b"client", address, browser]), is_device: false }
    }

    pub const fn hash(self) -> i64 {
        self.hash
    }

    /// The row of its subject that remembers it.
    pub const fn slot(self) -> i64 {
        self.hash.rem_euclid(SLOTS) + if self.is_device { SLOTS } else { 0 }
    }
}

fn hash_of(keys: &GuessKeys, source: &[&[u8]]) -> i64 {
    i64::from_be_bytes(*keys.tags.hash(source).first_chunk().expect("a hash has 32 bytes"))
}

impl std::fmt::Display for GuessTag {
    /// In digits of one width, with a space behind, so that a list of them contains one nowhere else.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{:05x} ", self.0)
    }
}
