//! Password hashes as they are stored: ours as PHC strings, and imported ones behind a mark.

use argon2::password_hash::phc::{Output, ParamsString, PasswordHash, Salt};
use argon2::{ARGON2ID_IDENT, Algorithm, Argon2, Block, Params, Version};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use sha2::{Sha256, Sha512};

use crate::secret::hidden_debug;

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
    /// None if it is neither ours nor imported, or exceeds the bounds; `current` always passes.
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

// Password hashes as other systems write them.

/// Longer than any hash of these formats.
const LONGEST: usize = 512;
/// RFC 9106 and RFC 8018 ask for at least 8 bytes.
const SALTS: std::ops::RangeInclusive<usize> = 8..=128;
/// A shorter output could be matched by chance, and no function here has a longer one.
const OUTPUTS: std::ops::RangeInclusive<usize> = 16..=64;
const BCRYPT_OUTPUT: usize = 23;

/// Function, salt and output.
type HashParts = (HashFunction, Vec<u8>, Vec<u8>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportedHashError {
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
    #[error("has parameters of argon2 beyond m = 65536 (64 MiB), m × t = 262144 and p = 16")]
    Argon2,
    #[error("has parameters of scrypt beyond N × r × p = 2^20 (128 MiB)")]
    Scrypt,
    #[error("has a cost of bcrypt that is not 4 to 14")]
    Bcrypt,
    #[error("has iterations of PBKDF2 that are not 1 to 2000000")]
    Pbkdf2,
}

impl StoredHash {
    /// Reads PHC strings of argon2 and scrypt, bcrypt, and PBKDF2 as PHC, passlib and Django write it.
    pub(crate) fn parse_imported(text: &str) -> Result<Self, ImportedHashError> {
        if text.len() > LONGEST {
            return Err(ImportedHashError::Format);
        }
        let fields: Vec<&str> = text.split('$').collect();
        let (function, salt, output) = match fields[..] {
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
            _ => return Err(ImportedHashError::Format),
        }
        .ok_or(ImportedHashError::Damaged)?;
        if !SALTS.contains(&salt.len()) {
            return Err(ImportedHashError::Salt);
        }
        if !OUTPUTS.contains(&output.len()) {
            return Err(ImportedHashError::Output);
        }
        Ok(Self { function: function.within_bounds(None)?, salt, output, imported: true })
    }
}

fn argon2_hash(text: &str) -> Option<HashParts> {
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
    Some((function, hash.salt?.to_vec(), hash.hash?.as_bytes().to_vec()))
}

/// `ln=17,r=8,p=1`, in this order, as passlib writes it, too.
fn scrypt_hash(params: &str, salt: &str, output: &str) -> Option<HashParts> {
    let mut parts = params.split(',');
    let log_n = number(parts.next()?.strip_prefix("ln=")?)?;
    let r = number(parts.next()?.strip_prefix("r=")?)?;
    let p = number(parts.next()?.strip_prefix("p=")?)?;
    let function = HashFunction::Scrypt { log_n: u8::try_from(log_n).ok()?, r, p };
    parts.next().is_none().then_some(())?;
    Some((function, base64_of(salt)?, base64_of(output)?))
}

/// Two digits, then 22 letters of salt and 31 of hash.
fn bcrypt_hash(cost: &str, rest: &str) -> Option<HashParts> {
    // The last letter of each holds bits that belong to no byte, and some implementations set them.
    const LETTERS: GeneralPurpose = engine(&alphabet::BCRYPT);
    if cost.len() != 2 || rest.len() != 53 || !rest.is_ascii() {
        return None;
    }
    let (salt, output) = rest.split_at(22);
    let function = HashFunction::Bcrypt { cost: number(cost)? };
    let (salt, output) = (LETTERS.decode(salt).ok()?, LETTERS.decode(output).ok()?);
    (output.len() == BCRYPT_OUTPUT).then_some((function, salt, output))
}

/// `i=600000,l=32` (PHC) or `29000` (passlib).
fn pbkdf2_hash(digest: Pbkdf2Digest, rounds: &str, salt: &str, output: &str) -> Option<HashParts> {
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
    Some((function, base64_of(salt)?, output))
}

/// The salt is a text, and hashed as it stands there.
fn django(digest: Pbkdf2Digest, rounds: &str, salt: &str, output: &str) -> Option<HashParts> {
    let function = HashFunction::Pbkdf2 { digest, iterations: number(rounds)? };
    Some((function, salt.as_bytes().to_vec(), base64_of(output)?))
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

// The functions that stored passwords were hashed with: ours, and those of imported ones. What each costs, and how
// much of it is computed at most.

/// RFC 9106's second recommended option uses 64 MiB, and so does everybody who follows it.
const MOST_ARGON2_KIB: u32 = 64 * 1024;
/// Memory times passes: PHP's default has four over 64 MiB. About 0.2 s.
const MOST_ARGON2_WORK_KIB: u64 = 4 * 64 * 1024;
const MOST_LANES: u32 = 16;
/// N × r: 128 MiB, OWASP's strongest option (N = 2^17, r = 8).
const MOST_SCRYPT_SPACE: u64 = 1 << 20;
/// r × p: scrypt prepares 128 bytes for each at once, beside its main table, whatever N is.
const MOST_SCRYPT_LANES: u64 = 1 << 10;
/// N × r × p: the work of the same. About 0.4 s.
const MOST_SCRYPT_WORK: u64 = 1 << 20;
/// 16 times OWASP's minimum of 10. About 1 s.
const MOST_BCRYPT_COST: u32 = 14;
const LEAST_BCRYPT_COST: u32 = 4;
/// Django's default is 1,200,000 (6.0), OWASP's minimum 600,000 for SHA-256 and 210,000 for SHA-512. About 1.3 s.
const MOST_ITERATIONS: u32 = 2_000_000;
/// bcrypt reads no more of a password, with its final NUL.
const BCRYPT_READS: usize = 72;

/// A function with its parameters, within bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashFunction {
    Argon2 { algorithm: Algorithm, version: Version, params: Params },
    Scrypt { log_n: u8, r: u32, p: u32 },
    Bcrypt { cost: u32 },
    Pbkdf2 { digest: Pbkdf2Digest, iterations: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pbkdf2Digest {
    Sha256,
    Sha512,
}

/// What a function takes: time on the machine on which the constants below were measured, and memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct HashCost {
    pub millis: u32,
    pub memory_mib: u32,
}

impl HashFunction {
    /// argon2id, as this server hashes.
    pub const fn own(params: Params) -> Self {
        Self::Argon2 { algorithm: Algorithm::Argon2id, version: Version::V0x13, params }
    }

    /// A stored hash brings its own parameters, and somebody who can write one must not be able to occupy a worker for
    /// long, or much memory (m = 1 GiB takes seconds). `own` always passes.
    pub fn within_bounds(self, own: Option<&Params>) -> Result<Self, ImportedHashError> {
        let work = |params: &Params| u64::from(params.m_cost()) * u64::from(params.t_cost());
        let own = |bound: u64, of: &dyn Fn(&Params) -> u64| own.map_or(bound, |own| bound.max(of(own)));
        let (sound, error) = match &self {
            Self::Argon2 { params, .. } => (
                u64::from(params.m_cost()) <= own(MOST_ARGON2_KIB.into(), &|own| own.m_cost().into())
                    && u64::from(params.p_cost()) <= own(MOST_LANES.into(), &|own| own.p_cost().into())
                    && work(params) <= own(MOST_ARGON2_WORK_KIB, &work),
                ImportedHashError::Argon2,
            ),
            &Self::Scrypt { log_n, r, p } => {
                let space = 1_u64.checked_shl(log_n.into()).and_then(|n| n.checked_mul(r.into()));
                let work = space.and_then(|space| space.checked_mul(p.into()));
                let lanes = Some(u64::from(r) * u64::from(p));
                let within =
                    |value: Option<u64>, most| value.is_some_and(|value| (1..=most).contains(&value));
                let sound = (1..=20).contains(&log_n)
                    && within(space, MOST_SCRYPT_SPACE)
                    && within(work, MOST_SCRYPT_WORK)
                    && within(lanes, MOST_SCRYPT_LANES);
                (sound, ImportedHashError::Scrypt)
            }
            Self::Bcrypt { cost } => {
                ((LEAST_BCRYPT_COST..=MOST_BCRYPT_COST).contains(cost), ImportedHashError::Bcrypt)
            }
            Self::Pbkdf2 { iterations, .. } => {
                ((1..=MOST_ITERATIONS).contains(iterations), ImportedHashError::Pbkdf2)
            }
        };
        if sound { Ok(self) } else { Err(error) }
    }

    /// What it takes to compute `length` bytes.
    pub fn cost(&self, length: usize) -> HashCost {
        let memory_kib = match self {
            Self::Argon2 { params, .. } => u64::from(params.m_cost()),
            Self::Scrypt { log_n, r, .. } => (u64::from(*r) << log_n) / 8,
            Self::Bcrypt { .. } | Self::Pbkdf2 { .. } => 4,
        };
        HashCost {
            millis: (self.micros(length) / 1000.0).ceil() as u32,
            memory_mib: memory_kib.div_ceil(1024) as u32,
        }
    }

    /// Measured in an optimised build on one core of a small virtual machine with SHA extensions, 2026. It is compared
    /// with the machine at hand before it is used, so only the relations matter.
    pub fn micros(&self, length: usize) -> f64 {
        const BCRYPT_ROUND: f64 = 60.0;
        const PBKDF2_SHA256: f64 = 0.113;
        const PBKDF2_SHA512: f64 = 0.66;
        const SCRYPT_BLOCK: f64 = 0.35;
        const ARGON2_KIB: f64 = 0.8;
        match self {
            Self::Argon2 { params, .. } => {
                ARGON2_KIB * f64::from(params.m_cost()) * f64::from(params.t_cost())
            }
            &Self::Scrypt { log_n, r, p } => {
                SCRYPT_BLOCK * f64::from(r) * f64::from(p) * f64::from(1_u32 << log_n)
            }
            Self::Bcrypt { cost } => BCRYPT_ROUND * f64::from(1_u32 << cost),
            Self::Pbkdf2 { digest, iterations } => {
                let (round, bytes) = match digest {
                    Pbkdf2Digest::Sha256 => (PBKDF2_SHA256, 32),
                    Pbkdf2Digest::Sha512 => (PBKDF2_SHA512, 64),
                };
                round * f64::from(*iterations) * length.div_ceil(bytes) as f64
            }
        }
    }

    /// The memory that the caller provides for it, in blocks of 1 KiB. scrypt takes its own.
    pub const fn blocks(&self) -> usize {
        match self {
            Self::Argon2 { params, .. } => params.block_count(),
            Self::Scrypt { .. } | Self::Bcrypt { .. } | Self::Pbkdf2 { .. } => 0,
        }
    }

    /// The hash of a password, in `length` bytes; none, after the same work, if the function cannot have hashed it.
    pub fn compute(&self, password: &[u8], salt: &[u8], length: usize, memory: &mut [Block]) -> Vec<u8> {
        let mut output = vec![0; length];
        match self {
            Self::Argon2 { algorithm, version, params } => {
                Argon2::new(*algorithm, *version, params.clone())
                    .hash_password_into_with_memory(password, salt, &mut output, memory)
                    .expect("parameters and lengths were checked");
            }
            &Self::Scrypt { log_n, r, p } => {
                let params = scrypt::Params::new(log_n, r, p).expect("parameters were checked");
                scrypt::scrypt(password, salt, &params, &mut output).expect("the length was checked");
            }
            Self::Bcrypt { cost } => {
                let salt = salt.first_chunk().expect("the length was checked");
                let full = bcrypt::bcrypt(*cost, *salt, &bcrypt_key(password));
                output.copy_from_slice(&full[..length]);
                // Implementations differ in what they do with a NUL, and some read no further.
                if password.contains(&0) {
                    output.clear();
                }
            }
            Self::Pbkdf2 { digest: Pbkdf2Digest::Sha256, iterations } => {
                pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, *iterations, &mut output);
            }
            Self::Pbkdf2 { digest: Pbkdf2Digest::Sha512, iterations } => {
                pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, *iterations, &mut output);
            }
        }
        output
    }
}

/// What bcrypt hashes: the password with a NUL after it, and no more than it reads.
fn bcrypt_key(password: &[u8]) -> zeroize::Zeroizing<Vec<u8>> {
    zeroize::Zeroizing::new(password.iter().copied().chain([0]).take(BCRYPT_READS).collect())
}

#[cfg(test)]
mod tests;
