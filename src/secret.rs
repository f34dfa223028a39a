//! The master key, and the keys derived from it: one for each purpose, so that hashes for one purpose reveal
//! nothing about another.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

pub use gatehouse_limiter::SubKey;

use crate::entropy::Entropy;

mod key_file;
mod seal;

pub use key_file::{KeyFile, KeyFileError, KeyStep};
pub use seal::Seal;

/// Implements `Debug` by the name alone: what the type holds must be in no log line.
macro_rules! hidden_debug {
    ($type:ident) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($type), "(…)"))
            }
        }
    };
}
pub(crate) use hidden_debug;

/// What every key is derived from.
///
/// What is stored to be found again (windows, the ledger, events, sessions, tokens) is hashed under a key that
/// stays, because nobody has the plain text to hash it anew. What others bring back to be believed (cookies, form
/// tokens, challenges, codes, delivery reports) is signed under one that can be replaced: for a while two are
/// accepted, see [`KeyFile`].
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey {
    stored: [u8; 32],
    signing: [u8; 32],
    accepted: Option<[u8; 32]>,
}

impl MasterKey {
    pub fn random(entropy: &Entropy) -> Self {
        Self::from_bytes(entropy.bytes())
    }

    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self { stored: bytes, signing: bytes, accepted: None }
    }

    /// Reads the key, or creates it (mode 0600) if there is none. Two processes that start at once end with
    /// the same key.
    pub fn load_or_create(path: &Path, entropy: &Entropy) -> Result<Self, KeyFileError> {
        KeyFile::load_or_create(path, entropy).map(|file| file.master())
    }

    /// The key for one purpose, named as `area.use` (`throttle.subject`, `audit.subject`), of what is stored.
    pub fn derive(&self, purpose: &str) -> SubKey {
        derived(&self.stored, purpose)
    }

    /// A keyed hash of a constant, under the key of what is stored: equal for equal keys. A rotation of the signing key does
    /// not change it.
    pub fn check_value(&self) -> String {
        data_encoding::HEXLOWER.encode(&self.derive("key.check").hash(&[b"what is stored"]))
    }

    /// The keys for one purpose (`web.csrf`, `captcha.answer`) of what others bring back soon.
    pub fn derive_signing(&self, purpose: &str) -> SigningKeys {
        SigningKeys {
            signing: derived(&self.signing, purpose),
            accepted: self.accepted.as_ref().map(|key| derived(key, purpose)),
        }
    }
}

fn derived(key: &[u8; 32], purpose: &str) -> SubKey {
    let mut hasher = blake3::Hasher::new_derive_key(&format!("gatehouse 2026 {purpose}"));
    hasher.update(key);
    SubKey::from_bytes(*hasher.finalize().as_bytes())
}

/// Which of the keys has signed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyGeneration {
    Signing,
    /// The one before it, or the next one, which other instances may sign with already.
    Accepted,
}

/// Keys that sign what others bring back: one signs, and during a rotation another is accepted besides.
#[derive(Clone)]
pub struct SigningKeys {
    signing: SubKey,
    accepted: Option<SubKey>,
}

impl SigningKeys {
    pub const fn signing(&self) -> &SubKey {
        &self.signing
    }

    /// The key of a generation that [`SigningKeys::signer`] has found.
    pub fn of(&self, generation: KeyGeneration) -> &SubKey {
        match generation {
            KeyGeneration::Signing => &self.signing,
            KeyGeneration::Accepted => self.accepted.as_ref().unwrap_or(&self.signing),
        }
    }

    /// Which key has made `signature`; None if neither has. `sign` must have no other secret.
    pub fn signer<const LENGTH: usize>(
        &self,
        signature: &[u8],
        sign: impl Fn(&SubKey) -> [u8; LENGTH],
    ) -> Option<KeyGeneration> {
        if same(signature, &sign(&self.signing)) {
            return Some(KeyGeneration::Signing);
        }
        let accepted = self.accepted.as_ref()?;
        same(signature, &sign(accepted)).then_some(KeyGeneration::Accepted)
    }
}

/// Makes 128 bits that nobody can guess and that never repeat, in a tenth of the time that the system's
/// generator takes: a counter, hashed under a key of this process.
pub struct UniqueIds {
    key: SubKey,
    made: AtomicU64,
}

impl UniqueIds {
    pub fn new(entropy: &Entropy, purpose: &str) -> Self {
        Self { key: MasterKey::random(entropy).derive(purpose), made: AtomicU64::new(0) }
    }

    pub fn make(&self) -> [u8; 16] {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.key.short_hash(*b"counter ", &number.to_le_bytes())
    }
}

/// Whether two secrets are equal, in constant time.
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}
