//! Keys that hash: what is stored reveals nothing of what it was made from.

use std::hash::Hasher;

use siphasher::sip128::SipHasher24;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::entropy::Entropy;

/// A key for one purpose.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct SubKey([u8; 32]);

impl SubKey {
    /// A new key. Windows that were counted under another one are not found again.
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes())
    }

    /// A key that is kept elsewhere: every instance on one store needs the same.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_inputs_are_hashed_alike() {
        let key = SubKey::from_bytes([7; 32]);
        for length in [0, 1, 100, 239, 240, 241, 1000] {
            let long = vec![b'x'; length];
            assert_eq!(key.hash(&[b"a", &long]), key.hash_long(&[b"a", &long]), "{length} bytes");
        }
        assert_ne!(key.hash(&[b"ab", b"c"]), key.hash(&[b"a", b"bc"]));
    }

    /// The vector of 15 bytes from the authors' `vectors.h`, with its key 00 01 … 0f.
    #[test]
    fn the_short_hash_is_siphash_2_4_128() {
        let key = SubKey::from_bytes(std::array::from_fn(|index| index as u8));
        let hash = key.short_hash([0, 1, 2, 3, 4, 5, 6, 7], &[8, 9, 10, 11, 12, 13, 14]);
        let expected =
            [0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3, 0xd9];
        assert_eq!(hash, expected);
    }
}
