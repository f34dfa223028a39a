//! Password hashes as they are stored: ours as PHC strings, and imported ones behind a mark.

use std::fmt;

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Params, Version};

use super::foreign::{ForeignHash, ForeignHashError};
use super::hash_function::{HashCost, HashFunction};

/// Longer than any PHC string of ours.
const MAX_PHC_BYTES: usize = 512;

/// Begins a hash that was imported and not replaced by one of ours yet. Its cost follows, in digits of one width, so
/// that the database finds the dearest: `imported$` milliseconds `$` MiB `$` and the hash as it came. An older version
/// reads it as damaged. Whoever replaces the hash removes the mark with it. See `migrations/0021_imported.sql`.
const IMPORTED: &str = "imported$";
const MILLIS_DIGITS: usize = 5;
const MEMORY_DIGITS: usize = 4;

/// A stored password hash (`$argon2id$v=19$m=…`); never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Phc(String);

/// A parsed hash with parameters within bounds.
#[derive(Clone)]
pub(super) struct StoredHash {
    pub(super) function: HashFunction,
    pub(super) salt: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// Another system made it, of the password as it was typed.
    pub(super) imported: bool,
}

impl StoredHash {
    /// None if it is neither ours nor imported, or exceeds the bounds; `current` always passes.
    pub(super) fn parse(phc: &str, current: &Params) -> Option<Self> {
        if let Some(marked) = phc.strip_prefix(IMPORTED) {
            let ForeignHash { function, salt, output } =
                ForeignHash::parse(marked.splitn(3, '$').nth(2)?).ok()?;
            return Some(Self { function, salt, output, imported: true });
        }
        let hash = (phc.len() <= MAX_PHC_BYTES).then(|| PasswordHash::new(phc).ok())??;
        let ours = hash.algorithm == ARGON2ID_IDENT && hash.version == Some(Version::V0x13.into());
        let params = Params::try_from(&hash).ok().filter(|_| ours)?;
        let function = HashFunction::own(params).within_bounds(Some(current)).ok()?;
        let (salt, output) = (hash.salt?, hash.hash?);
        // A short output could be matched by chance.
        (output.len() >= 16 && salt.len() >= argon2::MIN_SALT_LEN).then(|| Self {
            function,
            salt: salt.to_vec(),
            output: output.as_bytes().to_vec(),
            imported: false,
        })
    }

    pub(super) fn cost(&self) -> HashCost {
        self.function.cost(self.output.len())
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

    /// A hash that another system made.
    pub(super) fn import(foreign: &str) -> Result<Self, ForeignHashError> {
        let hash = ForeignHash::parse(foreign)?;
        let HashCost { millis, memory_mib } = hash.function.cost(hash.output.len());
        let cost = format!("{millis:0MILLIS_DIGITS$}${memory_mib:0MEMORY_DIGITS$}");
        Ok(Self(format!("{IMPORTED}{cost}${foreign}")))
    }

    pub(crate) const fn stored(phc: String) -> Self {
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
