//! Password hashes as they are stored: ours as PHC strings, and imported ones behind a mark.

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Params, Version};

use crate::secret::hidden_debug;

mod foreign;
mod function;

pub use function::{
    BcryptInput, HashCost, HashFunction, ImportedHashError, LONGEST_REPEATED, ScryptCost, ShaDigest,
};

/// Longer than any PHC string of ours.
const MAX_PHC_BYTES: usize = 512;

/// Begins a hash that was imported and not replaced by one of ours yet. Its cost follows, in digits of one width, so
/// that the database finds the slowest: `imported$` milliseconds `$` MiB `$` and the hash as it came. An older version
/// reads it as damaged. Whoever replaces the hash removes the mark with it. See `migrations/0021_imported.sql`.
const IMPORTED: &str = "imported$";
const MILLIS_DIGITS: usize = 5;
const MEMORY_DIGITS: usize = 4;

/// A stored password hash (`$argon2id$v=19$m=…`); never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Phc(String);

crate::db::text_column!(Phc, phc => Self(phc.to_owned()));

/// A parsed hash with parameters within bounds.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct StoredHash {
    pub(crate) function: HashFunction,
    pub(crate) salt: Vec<u8>,
    pub(crate) output: Vec<u8>,
    /// Another system made it, of the password as it was typed.
    pub(crate) imported: bool,
}

impl StoredHash {
    /// Parses a hash; None if it is neither ours nor imported, or exceeds the bounds; `current` always passes.
    pub(crate) fn parse(phc: &str, current: &Params) -> Option<Self> {
        if let Some(marked) = phc.strip_prefix(IMPORTED) {
            return Self::parse_imported(marked.splitn(3, '$').nth(2)?).ok();
        }
        let hash = (phc.len() <= MAX_PHC_BYTES).then(|| PasswordHash::new(phc).ok())??;
        let ours = hash.algorithm == ARGON2ID_IDENT && hash.version == Some(Version::V0x13.into());
        let params = Params::try_from(&hash).ok().filter(|_| ours)?;
        let function = HashFunction::own(params).within_bounds(Some(current)).ok()?;
        let (salt, output) = (hash.salt?, hash.hash?);
        // A short output could be matched by chance.
        let sound = output.len() >= 16 && salt.len() >= argon2::MIN_SALT_LEN;
        let (salt, output) = (salt.to_vec(), output.as_bytes().to_vec());
        sound.then_some(Self { function, salt, output, imported: false })
    }

    pub(crate) fn cost(&self) -> HashCost {
        self.function.cost(self.output.len())
    }
}

impl Phc {
    pub(crate) fn encode(params: &Params, salt: &[u8], output: &[u8]) -> Self {
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
    pub(crate) fn import(foreign: &str) -> Result<Self, ImportedHashError> {
        let HashCost { millis, memory_mib } = StoredHash::parse_imported(foreign)?.cost();
        let cost = format!("{millis:0MILLIS_DIGITS$}${memory_mib:0MEMORY_DIGITS$}");
        Ok(Self(format!("{IMPORTED}{cost}${foreign}")))
    }

    #[cfg(test)]
    pub(crate) const fn stored(phc: String) -> Self {
        Self(phc)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

hidden_debug!(Phc);

#[cfg(test)]
mod tests;
