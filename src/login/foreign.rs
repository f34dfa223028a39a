//! Password hashes as other systems write them.

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Params, Version};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::hash_function::{HashFunction, OutOfBounds, Pbkdf2Digest};

/// Longer than any hash of these formats.
const LONGEST: usize = 512;
/// RFC 9106 and RFC 8018 ask for at least 8 bytes.
const SALTS: std::ops::RangeInclusive<usize> = 8..=128;
/// A shorter output could be matched by chance, and no function here has a longer one.
const OUTPUTS: std::ops::RangeInclusive<usize> = 16..=64;
const BCRYPT_OUTPUT: usize = 23;

/// A hash with its function, whose parameters are within bounds.
#[derive(Clone, PartialEq, Eq)]
pub struct ForeignHash {
    pub function: HashFunction,
    pub salt: Vec<u8>,
    pub output: Vec<u8>,
}

/// Why a text is no hash that can be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ForeignHashError {
    #[error(
        "is in no known format; write an argon2, scrypt, bcrypt ($2a$, $2b$, $2y$) or PBKDF2 (SHA-256, SHA-512) hash"
    )]
    Format,
    #[error("is damaged: its parameters, salt or hash cannot be read")]
    Damaged,
    #[error("has a salt of fewer than 8 or more than 128 bytes")]
    Salt,
    #[error("has a hash of fewer than 16 or more than 64 bytes")]
    Output,
    #[error(transparent)]
    Bounds(#[from] OutOfBounds),
}

impl ForeignHash {
    /// Reads PHC strings of argon2 and scrypt, bcrypt, and PBKDF2 as PHC, passlib and Django write it.
    pub fn parse(text: &str) -> Result<Self, ForeignHashError> {
        if text.len() > LONGEST {
            return Err(ForeignHashError::Format);
        }
        let fields: Vec<&str> = text.split('$').collect();
        let Self { function, salt, output } = match fields[..] {
            ["", "argon2id" | "argon2i" | "argon2d", ..] => argon2_hash(text),
            ["", "scrypt", params, salt, output] => scrypt_hash(params, salt, output),
            ["", "2a" | "2b" | "2y", cost, rest] => bcrypt_hash(cost, rest),
            ["", "pbkdf2-sha256", rounds, salt, output] => {
                pbkdf2_hash(Pbkdf2Digest::Sha256, rounds, salt, output)
            }
            ["", "pbkdf2-sha512", rounds, salt, output] => {
                pbkdf2_hash(Pbkdf2Digest::Sha512, rounds, salt, output)
            }
            ["pbkdf2_sha256", rounds, salt, output] => django(Pbkdf2Digest::Sha256, rounds, salt, output),
            ["pbkdf2_sha512", rounds, salt, output] => django(Pbkdf2Digest::Sha512, rounds, salt, output),
            _ => return Err(ForeignHashError::Format),
        }
        .ok_or(ForeignHashError::Damaged)?;
        if !SALTS.contains(&salt.len()) {
            return Err(ForeignHashError::Salt);
        }
        if !OUTPUTS.contains(&output.len()) {
            return Err(ForeignHashError::Output);
        }
        Ok(Self { function: function.within_bounds(None)?, salt, output })
    }
}

fn argon2_hash(text: &str) -> Option<ForeignHash> {
    let hash = PasswordHash::new(text).ok()?;
    let params = Params::try_from(&hash).ok()?;
    // A secret key beside the password, which is not in the hash.
    if !params.keyid().is_empty() || !params.data().is_empty() {
        return None;
    }
    // Hashes of before 2016 name no version.
    let version = hash.version.map_or(Ok(Version::V0x10), Version::try_from).ok()?;
    let algorithm = Algorithm::new(hash.algorithm.as_str()).ok()?;
    let function = HashFunction::Argon2 { algorithm, version, params };
    Some(ForeignHash { function, salt: hash.salt?.to_vec(), output: hash.hash?.as_bytes().to_vec() })
}

/// `ln=17,r=8,p=1`, in this order, as passlib writes it, too.
fn scrypt_hash(params: &str, salt: &str, output: &str) -> Option<ForeignHash> {
    let mut parts = params.split(',');
    let log_n = number(parts.next()?.strip_prefix("ln=")?)?;
    let r = number(parts.next()?.strip_prefix("r=")?)?;
    let p = number(parts.next()?.strip_prefix("p=")?)?;
    let function = HashFunction::Scrypt { log_n: u8::try_from(log_n).ok()?, r, p };
    parts.next().is_none().then_some(())?;
    Some(ForeignHash { function, salt: base64_of(salt)?, output: base64_of(output)? })
}

/// Two digits, then 22 letters of salt and 31 of hash.
fn bcrypt_hash(cost: &str, rest: &str) -> Option<ForeignHash> {
    // The last letter of each holds bits that belong to no byte, and some implementations set them.
    const LETTERS: GeneralPurpose = engine(&alphabet::BCRYPT);
    if cost.len() != 2 || rest.len() != 53 || !rest.is_ascii() {
        return None;
    }
    let (salt, output) = rest.split_at(22);
    let function = HashFunction::Bcrypt { cost: number(cost)? };
    let (salt, output) = (LETTERS.decode(salt).ok()?, LETTERS.decode(output).ok()?);
    (output.len() == BCRYPT_OUTPUT).then_some(ForeignHash { function, salt, output })
}

/// `i=600000,l=32` (PHC) or `29000` (passlib).
fn pbkdf2_hash(digest: Pbkdf2Digest, rounds: &str, salt: &str, output: &str) -> Option<ForeignHash> {
    let output = base64_of(output)?;
    let iterations = match rounds.strip_prefix("i=") {
        None => number(rounds)?,
        Some(rest) => match rest.split_once(",l=") {
            None => number(rest)?,
            Some((rounds, length)) if usize::try_from(number(length)?).ok()? == output.len() => {
                number(rounds)?
            }
            Some(_) => return None,
        },
    };
    let function = HashFunction::Pbkdf2 { digest, iterations };
    Some(ForeignHash { function, salt: base64_of(salt)?, output })
}

/// The salt is a text, and hashed as it stands there.
fn django(digest: Pbkdf2Digest, rounds: &str, salt: &str, output: &str) -> Option<ForeignHash> {
    let function = HashFunction::Pbkdf2 { digest, iterations: number(rounds)? };
    Some(ForeignHash { function, salt: salt.as_bytes().to_vec(), output: base64_of(output)? })
}

/// Digits only, without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

/// With or without padding; passlib writes `.` for `+`.
fn base64_of(text: &str) -> Option<Vec<u8>> {
    const LETTERS: GeneralPurpose = engine(&alphabet::STANDARD);
    LETTERS.decode(text.replace('.', "+")).ok()
}

const fn engine(alphabet: &alphabet::Alphabet) -> GeneralPurpose {
    let config = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true);
    GeneralPurpose::new(alphabet, config)
}

#[cfg(test)]
mod tests;
