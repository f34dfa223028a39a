//! The master key, and the keys derived from it: one for each purpose, so that hashes for one purpose reveal
//! nothing about another.

use std::hash::Hasher;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip128::SipHasher24;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::entropy::Entropy;

mod key_file;
mod signing;

pub use key_file::{KeyFile, KeyFileError, KeyStep};
pub use signing::{KeyGeneration, SigningKeys};

/// What every key is derived from.
///
/// What is stored to be found again (windows, the ledger, events, sessions, tokens) is hashed under a key that
/// stays, because nobody has the plain text to hash it anew. What others bring back to be believed (cookies, form
/// tokens, challenges, codes, delivery reports) is signed under one that can be replaced: for a while two are
/// accepted, see [`KeyFile`].
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct MasterKey {
    stored: [u8; 32],
    /// The one that signs.
    signing: [u8; 32],
    /// One that is accepted besides.
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

    /// The keys for one purpose (`web.csrf`, `captcha.answer`) of what others bring back soon.
    pub fn derive_signing(&self, purpose: &str) -> SigningKeys {
        SigningKeys::new(
            derived(&self.signing, purpose),
            self.accepted.as_ref().map(|key| derived(key, purpose)),
        )
    }
}

fn derived(key: &[u8; 32], purpose: &str) -> SubKey {
    let mut hasher = blake3::Hasher::new_derive_key(&format!("gatehouse 2026 {purpose}"));
    hasher.update(key);
    SubKey(*hasher.finalize().as_bytes())
}

/// A key for one purpose.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SubKey([u8; 32]);

impl SubKey {
    /// A keyed hash (BLAKE3) of the parts, each with its length, so that different lists of parts never have
    /// the same input.
    pub fn hash(&self, parts: &[&[u8]]) -> [u8; 32] {
        // Nearly all inputs fit one block on the stack, for which the one-shot call is three times as fast.
        let mut whole = [0; 256];
        let mut end = 0;
        for part in parts {
            let Some(place) = whole.get_mut(end..end + 8 + part.len()) else { return self.hash_long(parts) };
            place[..8].copy_from_slice(&(part.len() as u64).to_le_bytes());
            place[8..].copy_from_slice(part);
            end += 8 + part.len();
        }
        *blake3::keyed_hash(&self.0, &whole[..end]).as_bytes()
    }

    /// A keyed hash (SipHash-2-4 with 128 bits) of `input` under `tag`: a pseudorandom function for short
    /// inputs, in a third of the time. Use a key for only one of the two hashes.
    pub fn short_hash(&self, tag: [u8; 8], input: &[u8]) -> [u8; 16] {
        let key = self.0.first_chunk().expect("32 bytes hold 16");
        let mut hasher = SipHasher24::new_with_key(key);
        hasher.write_u64(u64::from_le_bytes(tag));
        hasher.hash(input).as_bytes()
    }

    fn hash_long(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        *hasher.finalize().as_bytes()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_inputs_are_hashed_alike() {
        let key = MasterKey::from_bytes([7; 32]).derive("test.hash");
        for length in [0, 1, 100, 239, 240, 241, 1000] {
            let long = vec![b'x'; length];
            assert_eq!(key.hash(&[b"a", &long]), key.hash_long(&[b"a", &long]), "{length} bytes");
        }
        assert_ne!(key.hash(&[b"ab", b"c"]), key.hash(&[b"a", b"bc"]));
    }

    /// The vector of 15 bytes from the authors' `vectors.h`, with its key 00 01 … 0f.
    #[test]
    fn the_short_hash_is_siphash_2_4_128() {
        let key = SubKey(std::array::from_fn(|index| index as u8));
        let hash = key.short_hash([0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12, 13, 14]);
        let expected =
            [0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9];
        assert_eq!(hash, expected);
    }
}
