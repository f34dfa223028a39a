//! Password hashes as text (PHC strings), and which stored ones are accepted.

use std::fmt;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Params, Version};

/// Longer than any PHC string of ours.
const MAX_PHC_BYTES: usize = 512;
/// A stored hash brings its own parameters, and somebody who can write one must not be able to occupy a
/// worker for long (m = 1 GiB takes seconds). RFC 9106's second recommended option is the most expensive that
/// is computed, unless the settings ask for more.
const MAX_STORED_MEMORY_KIB: u32 = 64 * 1024;
const MAX_STORED_WORK_KIB: u64 = 3 * 64 * 1024;
const MAX_STORED_LANES: u32 = 16;

/// A stored password hash (`$argon2id$v=19$m=…`); never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Phc(String);

/// A parsed hash with parameters within bounds.
#[derive(Clone)]
pub(super) struct StoredHash {
    pub(super) params: Params,
    pub(super) salt: Vec<u8>,
    pub(super) output: Vec<u8>,
}

impl StoredHash {
    /// None if it is not an argon2id hash, or exceeds the bounds; `current` always passes.
    pub(super) fn parse(phc: &str, current: &Params) -> Option<Self> {
        let hash = (phc.len() <= MAX_PHC_BYTES).then(|| PasswordHash::new(phc).ok())??;
        let params = Params::try_from(&hash).ok()?;
        let work = |params: &Params| u64::from(params.m_cost()) * u64::from(params.t_cost());
        let sound = hash.algorithm == ARGON2ID_IDENT
            && hash.version == Some(Version::V0x13.into())
            && params.m_cost() <= current.m_cost().max(MAX_STORED_MEMORY_KIB)
            && params.p_cost() <= current.p_cost().max(MAX_STORED_LANES)
            && work(&params) <= work(current).max(MAX_STORED_WORK_KIB);
        let (salt, output) = (hash.salt?, hash.hash?);
        // A short output could be matched by chance.
        (sound && output.len() >= 16 && salt.len() >= argon2::MIN_SALT_LEN).then(|| Self {
            params,
            salt: salt.to_vec(),
            output: output.as_bytes().to_vec(),
        })
    }
}

impl Phc {
    pub(super) fn encode(params: &Params, salt: &[u8], output: &[u8]) -> Self {
        let hash = PasswordHash {
            algorithm: ARGON2ID_IDENT,
            version: Some(Version::V0x13.into()),
            params: ParamsString::try_from(params).expect("three numbers"),
            salt: Some(Salt::new(salt).expect("16 bytes")),
            hash: Some(Output::new(output).expect("32 bytes")),
        };
        Self(hash.to_string())
    }

    pub(super) const fn stored(phc: String) -> Self {
        Self(phc)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Phc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Phc(…)")
    }
}
