//! The functions that stored passwords were hashed with: ours, and those of imported ones. What each costs, and how
//! much of it is computed at most.

use aes::Aes256;
use aes::cipher::{BlockCipherEncrypt as _, KeyInit as _};
use argon2::{Algorithm, Argon2, Block, Params, Version};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;
use hmac::{Hmac, Mac as _};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

/// RFC 9106's second recommended option uses 64 MiB, and so does everybody who follows it. More of an imported hash only,
/// which is weighed: Django's default is 100 MiB, and scrypt has as much.
const MOST_OWN_KIB: u32 = 64 * 1024;
const MOST_ARGON2_KIB: u32 = 128 * 1024;
/// Memory times passes: PHP's default has four over 64 MiB, Django's two over 100. About 0.2 s.
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
/// N × r of yescrypt: 128 MiB. About 0.4 s.
const MOST_YESCRYPT_SPACE: u64 = 1 << 20;
/// crypt(3) has at least 1,000 rounds and by default 5,000, passlib 656,000. About 0.7 s.
const SHA_CRYPT_ROUNDS: std::ops::RangeInclusive<u32> = 1000..=1_000_000;
/// Logarithms: phpBB's is 11, WordPress's 13, passlib's 19. About 0.4 s.
const PHPASS_ROUNDS: std::ops::RangeInclusive<u32> = 4..=20;
/// bcrypt reads no more of a password, with its final NUL.
const BCRYPT_READS: usize = 72;
/// SHA-crypt and phpass hash the password anew in each round, so a long one would take longer, and tell by it. One that is
/// longer than this is wrong, after the work of one as long as this.
pub const LONGEST_REPEATED: usize = 128;

/// Why a hash of another system cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ImportedHashError {
    #[error("is in no known format; docs/import.md lists those that are, and what to do with others")]
    Format,
    #[error("is damaged: its parameters, salt or hash cannot be read")]
    Damaged,
    #[error("has a salt of fewer than 8 ({{SSHA}}: 4) or more than 128 bytes")]
    Salt,
    #[error("has a hash of fewer than 16 or more than 64 bytes")]
    Output,
    #[error("has parameters of argon2 beyond m = 131072 (128 MiB), m × t = 262144 and p = 16")]
    Argon2,
    #[error("has parameters of scrypt beyond N × r × p = 2^20 (128 MiB)")]
    Scrypt,
    #[error("has parameters of yescrypt beyond N × r = 2^20 (128 MiB), or others than N and r")]
    Yescrypt,
    #[error("has a cost of bcrypt that is not 4 to 14")]
    Bcrypt,
    #[error("has iterations of PBKDF2 that are not 1 to 2000000")]
    Pbkdf2,
    #[error("has rounds of SHA-crypt that are not 1000 to 1000000")]
    ShaCrypt,
    #[error("has rounds of phpass that are not 2^4 to 2^20")]
    Phpass,
}

/// A function with its parameters, within bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashFunction {
    Argon2 {
        algorithm: Algorithm,
        version: Version,
        params: Params,
    },
    Scrypt(ScryptCost),
    /// What scrypt derives is a key, and the output what AES-256-CTR makes with it.
    FirebaseScrypt(ScryptCost),
    Yescrypt {
        params: yescrypt::Params,
    },
    Bcrypt {
        cost: u32,
        input: BcryptInput,
    },
    Pbkdf2 {
        digest: ShaDigest,
        iterations: u32,
    },
    /// crypt(3): `$5$` and `$6$`.
    ShaCrypt {
        digest: ShaDigest,
        rounds: u32,
    },
    /// MD5, again and again.
    Phpass {
        log_rounds: u32,
    },
    /// LDAP's: once, with a salt after the password.
    SaltedSha {
        digest: ShaDigest,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScryptCost {
    pub log_n: u8,
    pub r: u32,
    pub p: u32,
}

/// What bcrypt is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BcryptInput {
    Typed,
    /// Django: the SHA-256 of the password, in hexadecimal letters.
    Sha256Hex,
    /// WordPress since 6.8: an HMAC with SHA-384 of the password without spaces at its edges, in base64.
    WordPress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShaDigest {
    Sha1,
    Sha256,
    Sha512,
}

impl ShaDigest {
    pub const fn bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }
}

impl ScryptCost {
    fn is_within_bounds(self) -> bool {
        let Self { log_n, r, p } = self;
        let space = 1_u64.checked_shl(log_n.into()).and_then(|n| n.checked_mul(r.into()));
        let work = space.and_then(|space| space.checked_mul(p.into()));
        let lanes = Some(u64::from(r) * u64::from(p));
        let within = |value: Option<u64>, most| value.is_some_and(|value| (1..=most).contains(&value));
        (1..=20).contains(&log_n)
            && within(space, MOST_SCRYPT_SPACE)
            && within(work, MOST_SCRYPT_WORK)
            && within(lanes, MOST_SCRYPT_LANES)
    }

    fn compute(self, password: &[u8], salt: &[u8], output: &mut [u8]) {
        let params = scrypt::Params::new(self.log_n, self.r, self.p).expect("parameters were checked");
        scrypt::scrypt(password, salt, &params, output).expect("the length was checked");
    }
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
        let most_kib = if own.is_some() { MOST_OWN_KIB } else { MOST_ARGON2_KIB };
        let own = |bound: u64, of: &dyn Fn(&Params) -> u64| own.map_or(bound, |own| bound.max(of(own)));
        let (sound, error) = match &self {
            Self::Argon2 { params, .. } => (
                u64::from(params.m_cost()) <= own(most_kib.into(), &|own| own.m_cost().into())
                    && u64::from(params.p_cost()) <= own(MOST_LANES.into(), &|own| own.p_cost().into())
                    && work(params) <= own(MOST_ARGON2_WORK_KIB, &work),
                ImportedHashError::Argon2,
            ),
            Self::Scrypt(cost) | Self::FirebaseScrypt(cost) => {
                (cost.is_within_bounds(), ImportedHashError::Scrypt)
            }
            Self::Yescrypt { params } => {
                let plain = yescrypt::Params::new(yescrypt::Mode::Rw, params.n(), params.r(), 1);
                let space = params.n().checked_mul(params.r().into());
                let sound = plain == Ok(*params) && space.is_some_and(|space| space <= MOST_YESCRYPT_SPACE);
                (sound, ImportedHashError::Yescrypt)
            }
            Self::Bcrypt { cost, .. } => {
                ((LEAST_BCRYPT_COST..=MOST_BCRYPT_COST).contains(cost), ImportedHashError::Bcrypt)
            }
            Self::Pbkdf2 { iterations, .. } => {
                ((1..=MOST_ITERATIONS).contains(iterations), ImportedHashError::Pbkdf2)
            }
            Self::ShaCrypt { rounds, .. } => (SHA_CRYPT_ROUNDS.contains(rounds), ImportedHashError::ShaCrypt),
            Self::Phpass { log_rounds } => (PHPASS_ROUNDS.contains(log_rounds), ImportedHashError::Phpass),
            Self::SaltedSha { .. } => return Ok(self),
        };
        if sound { Ok(self) } else { Err(error) }
    }

    /// What it takes to compute `length` bytes.
    pub fn cost(&self, length: usize) -> HashCost {
        let memory_kib = match self {
            Self::Argon2 { params, .. } => u64::from(params.m_cost()),
            Self::Scrypt(cost) | Self::FirebaseScrypt(cost) => (u64::from(cost.r) << cost.log_n) / 8,
            Self::Yescrypt { params } => params.n() * u64::from(params.r()) / 8,
            Self::Bcrypt { .. }
            | Self::Pbkdf2 { .. }
            | Self::ShaCrypt { .. }
            | Self::Phpass { .. }
            | Self::SaltedSha { .. } => 4,
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
        const PBKDF2_SHA1: f64 = 0.1;
        const PBKDF2_SHA256: f64 = 0.113;
        const PBKDF2_SHA512: f64 = 0.66;
        const SCRYPT_BLOCK: f64 = 0.35;
        const ARGON2_KIB: f64 = 0.8;
        // Measured with the longest password that is read.
        const SHA256_CRYPT_ROUND: f64 = 0.2;
        const SHA512_CRYPT_ROUND: f64 = 0.65;
        const PHPASS_ROUND: f64 = 0.31;
        const SALTED_SHA: f64 = 10.0;
        match self {
            Self::Argon2 { params, .. } => {
                ARGON2_KIB * f64::from(params.m_cost()) * f64::from(params.t_cost())
            }
            Self::Scrypt(cost) | Self::FirebaseScrypt(cost) => {
                SCRYPT_BLOCK * f64::from(cost.r) * f64::from(cost.p) * f64::from(1_u32 << cost.log_n)
            }
            Self::Yescrypt { params } => SCRYPT_BLOCK * params.n() as f64 * f64::from(params.r()),
            Self::Bcrypt { cost, .. } => BCRYPT_ROUND * f64::from(1_u32 << cost),
            Self::Pbkdf2 { digest, iterations } => {
                let round = match digest {
                    ShaDigest::Sha1 => PBKDF2_SHA1,
                    ShaDigest::Sha256 => PBKDF2_SHA256,
                    ShaDigest::Sha512 => PBKDF2_SHA512,
                };
                round * f64::from(*iterations) * length.div_ceil(digest.bytes()) as f64
            }
            Self::ShaCrypt { digest: ShaDigest::Sha512, rounds } => SHA512_CRYPT_ROUND * f64::from(*rounds),
            Self::ShaCrypt { rounds, .. } => SHA256_CRYPT_ROUND * f64::from(*rounds),
            Self::Phpass { log_rounds } => PHPASS_ROUND * f64::from(1_u32 << log_rounds),
            Self::SaltedSha { .. } => SALTED_SHA,
        }
    }

    /// The memory that the caller provides for it, in blocks of 1 KiB. scrypt and yescrypt take their own.
    pub const fn blocks(&self) -> usize {
        match self {
            Self::Argon2 { params, .. } => params.block_count(),
            _ => 0,
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
            Self::Scrypt(cost) => cost.compute(password, salt, &mut output),
            Self::FirebaseScrypt(cost) => firebase_stream(*cost, password, salt, &mut output),
            Self::Yescrypt { params } => {
                yescrypt::yescrypt(password, salt, params, &mut output).expect("parameters were checked");
            }
            Self::Bcrypt { cost, input } => {
                let salt = salt.first_chunk().expect("the length was checked");
                let full = bcrypt::bcrypt(*cost, *salt, &bcrypt_key(*input, password));
                output.copy_from_slice(&full[..length]);
                // Implementations differ in what they do with a NUL, and some read no further.
                if *input == BcryptInput::Typed && password.contains(&0) {
                    output.clear();
                }
            }
            Self::Pbkdf2 { digest, iterations } => match digest {
                ShaDigest::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, *iterations, &mut output),
                ShaDigest::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, *iterations, &mut output),
                ShaDigest::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, *iterations, &mut output),
            },
            Self::ShaCrypt { digest, rounds } => {
                let params = sha_crypt::Params::new(*rounds).expect("rounds were checked");
                match digest {
                    ShaDigest::Sha512 => {
                        let full = sha_crypt::sha512_crypt(read_again(password), salt, params);
                        output.copy_from_slice(&full[..length]);
                    }
                    _ => {
                        let full = sha_crypt::sha256_crypt(read_again(password), salt, params);
                        output.copy_from_slice(&full[..length]);
                    }
                }
            }
            Self::Phpass { log_rounds } => {
                let hash = |before: &[u8]| Md5::new_with_prefix(before).chain_update(read_again(password));
                let first = hash(salt).finalize();
                let last = (0..1_u32 << log_rounds).fold(first, |last, _| hash(&last).finalize());
                output.copy_from_slice(&last[..length]);
            }
            Self::SaltedSha { digest } => {
                let full = match digest {
                    ShaDigest::Sha1 => Sha1::new_with_prefix(password).chain_update(salt).finalize().to_vec(),
                    ShaDigest::Sha256 => {
                        Sha256::new_with_prefix(password).chain_update(salt).finalize().to_vec()
                    }
                    ShaDigest::Sha512 => {
                        Sha512::new_with_prefix(password).chain_update(salt).finalize().to_vec()
                    }
                };
                output.copy_from_slice(&full[..length]);
            }
        }
        if self.reads_again() && password.len() > LONGEST_REPEATED {
            output.clear();
        }
        output
    }

    const fn reads_again(&self) -> bool {
        matches!(self, Self::ShaCrypt { .. } | Self::Phpass { .. })
    }
}

/// What is hashed in each round.
fn read_again(password: &[u8]) -> &[u8] {
    &password[..password.len().min(LONGEST_REPEATED)]
}

/// What bcrypt hashes, with a NUL after it, and no more than it reads.
fn bcrypt_key(input: BcryptInput, password: &[u8]) -> Zeroizing<Vec<u8>> {
    let read = Zeroizing::new(match input {
        BcryptInput::Typed => password.to_vec(),
        BcryptInput::Sha256Hex => HEXLOWER.encode(&Sha256::digest(password)).into_bytes(),
        BcryptInput::WordPress => {
            let mut mac = Hmac::<Sha384>::new_from_slice(b"wp-sha384").expect("a key of any length");
            mac.update(trimmed_by_php(password));
            BASE64_STANDARD.encode(mac.finalize().into_bytes()).into_bytes()
        }
    });
    Zeroizing::new(read.iter().copied().chain([0]).take(BCRYPT_READS).collect())
}

/// Trims as PHP's `trim` does, which WordPress applies to each password, new or tried.
fn trimmed_by_php(password: &[u8]) -> &[u8] {
    let edge = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0 | 0x0b);
    let start = password.iter().position(|byte| !edge(byte)).unwrap_or(password.len());
    let end = password.iter().rposition(|byte| !edge(byte)).map_or(start, |last| last + 1);
    &password[start..end]
}

/// AES-256-CTR from zero, with the key that scrypt derives.
fn firebase_stream(cost: ScryptCost, password: &[u8], salt: &[u8], output: &mut [u8]) {
    let mut key = Zeroizing::new([0; 32]);
    cost.compute(password, salt, &mut *key);
    let cipher = Aes256::new_from_slice(&*key).expect("32 bytes");
    for (counter, part) in (0_u128..).zip(output.chunks_mut(16)) {
        let mut block = counter.to_be_bytes().into();
        cipher.encrypt_block(&mut block);
        part.copy_from_slice(&block[..part.len()]);
    }
}
