//! The functions that stored passwords were hashed with: ours, and those of imported ones. What each costs, and how
//! much of it is computed at most.

use argon2::{Algorithm, Argon2, Block, Params, Version};
use sha2::{Sha256, Sha512};

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

/// Parameters beyond the bounds: says which are within.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfBounds {
    #[error("has parameters of argon2 beyond m = 65536 (64 MiB), m × t = 262144 and p = 16")]
    Argon2,
    #[error("has parameters of scrypt beyond N × r × p = 2^20 (128 MiB)")]
    Scrypt,
    #[error("has a cost of bcrypt that is not 4 to 14")]
    Bcrypt,
    #[error("has iterations of PBKDF2 that are not 1 to 2000000")]
    Pbkdf2,
}

impl HashFunction {
    /// argon2id, as this server hashes.
    pub const fn own(params: Params) -> Self {
        Self::Argon2 { algorithm: Algorithm::Argon2id, version: Version::V0x13, params }
    }

    /// A stored hash brings its own parameters, and somebody who can write one must not be able to occupy a worker for
    /// long, or much memory (m = 1 GiB takes seconds). `own` always passes.
    pub fn within_bounds(self, own: Option<&Params>) -> Result<Self, OutOfBounds> {
        let work = |params: &Params| u64::from(params.m_cost()) * u64::from(params.t_cost());
        let own = |bound: u64, of: &dyn Fn(&Params) -> u64| own.map_or(bound, |own| bound.max(of(own)));
        let (sound, error) = match &self {
            Self::Argon2 { params, .. } => (
                u64::from(params.m_cost()) <= own(MOST_ARGON2_KIB.into(), &|own| own.m_cost().into())
                    && u64::from(params.p_cost()) <= own(MOST_LANES.into(), &|own| own.p_cost().into())
                    && work(params) <= own(MOST_ARGON2_WORK_KIB, &work),
                OutOfBounds::Argon2,
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
                (sound, OutOfBounds::Scrypt)
            }
            Self::Bcrypt { cost } => {
                ((LEAST_BCRYPT_COST..=MOST_BCRYPT_COST).contains(cost), OutOfBounds::Bcrypt)
            }
            Self::Pbkdf2 { iterations, .. } => {
                ((1..=MOST_ITERATIONS).contains(iterations), OutOfBounds::Pbkdf2)
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
