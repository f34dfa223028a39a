//! Password hashes as other systems write them.

use std::sync::LazyLock;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Algorithm, Params, Version};
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{Engine as _, alphabet};
use data_encoding::{BitOrder, Encoding, HEXLOWER_PERMISSIVE, Specification};

use super::StoredHash;
use super::function::{BcryptInput, HashFunction, ImportedHashError, ScryptCost, ShaDigest};

/// Longer than any hash of these formats.
const LONGEST: usize = 512;
/// RFC 9106 and RFC 8018 ask for at least 8 bytes; OpenLDAP's have four.
const LEAST_SALT: usize = 8;
const LEAST_LDAP_SALT: usize = 4;
const MOST_SALT: usize = 128;
/// A shorter output could be matched by chance, and no function here has a longer one.
const OUTPUTS: std::ops::RangeInclusive<usize> = 16..=64;
const BCRYPT_OUTPUT: usize = 23;
/// crypt(3): what `$5$` and `$6$` do if they name no rounds.
const SHA_CRYPT_ROUNDS: u32 = 5000;
/// ASP.NET Identity 2 writes no parameters.
const ASPNET_V2_ITERATIONS: u32 = 1000;
const ASPNET_V2_LETTERS: usize = 68;

/// Schemes of Dovecot and OpenLDAP that only say again what follows them.
const SCHEMES: [&str; 6] =
    ["{CRYPT}", "{SHA512-CRYPT}", "{SHA256-CRYPT}", "{BLF-CRYPT}", "{ARGON2ID}", "{ARGON2I}"];

/// The letters of crypt(3) and phpass: the first letter of four is the lowest bits of three bytes.
static CRYPT_LETTERS: LazyLock<Encoding> = LazyLock::new(|| {
    let mut letters = Specification::new();
    letters.symbols.push_str("./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz");
    letters.bit_order = BitOrder::LeastSignificantFirst;
    letters.check_trailing_bits = false;
    letters.encoding().expect("64 letters")
});

/// Function, salt and output.
type HashParts = (HashFunction, Vec<u8>, Vec<u8>);

impl StoredHash {
    /// Reads the formats of `docs/import.md`.
    pub(crate) fn parse_imported(text: &str) -> Result<Self, ImportedHashError> {
        if text.len() > LONGEST {
            return Err(ImportedHashError::Format);
        }
        let (function, salt, mut output) =
            parts(text).ok_or(ImportedHashError::Format)?.ok_or(ImportedHashError::Damaged)?;
        let least_salt = match function {
            HashFunction::SaltedSha { .. } => LEAST_LDAP_SALT,
            _ => LEAST_SALT,
        };
        if !(least_salt..=MOST_SALT).contains(&salt.len()) {
            return Err(ImportedHashError::Salt);
        }
        if !OUTPUTS.contains(&output.len()) {
            return Err(ImportedHashError::Output);
        }
        if let HashFunction::Pbkdf2 { digest, .. } = function {
            // Each further block costs the same again, and only us: whoever guesses computes the first.
            output.truncate(digest.bytes());
        }
        Ok(Self { function: function.within_bounds(None)?, salt, output, imported: true })
    }
}

/// Parses a hash; None if it is in no known format, Some(None) if it is damaged.
fn parts(text: &str) -> Option<Option<HashParts>> {
    use ShaDigest::{Sha1, Sha256, Sha512};
    let text = SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme)).unwrap_or(text);
    let fields: Vec<&str> = text.split('$').collect();
    Some(match fields[..] {
        ["", "argon2id" | "argon2i" | "argon2d", ..] => argon2_hash(text),
        // Django's, as the three with a name before their `$$`.
        ["argon2", "argon2id" | "argon2i" | "argon2d", ..] => argon2_hash(text.strip_prefix("argon2")?),
        ["", "scrypt", params, salt, output] => scrypt_hash(params, salt, output),
        ["scrypt", n, salt, r, p, output] => {
            with_text_salt(scrypt_of_words(n, r, p), salt, base64_of(output))
        }
        ["", "fbscrypt", params, salt, output] => firebase_hash(params, salt, output),
        ["", "2a" | "2b" | "2y", cost, rest] | ["bcrypt", "", "2a" | "2b" | "2y", cost, rest] => {
            bcrypt_hash(BcryptInput::Typed, cost, rest)
        }
        ["bcrypt_sha256", "", "2a" | "2b" | "2y", cost, rest] => {
            bcrypt_hash(BcryptInput::Sha256Hex, cost, rest)
        }
        ["", "wp", "2y", cost, rest] => bcrypt_hash(BcryptInput::WordPress, cost, rest),
        ["", "pbkdf2-sha256", rounds, salt, output] => pbkdf2_hash(Sha256, rounds, salt, output),
        ["", "pbkdf2-sha512", rounds, salt, output] => pbkdf2_hash(Sha512, rounds, salt, output),
        ["", "pbkdf2" | "pbkdf2-sha1", rounds, salt, output] => pbkdf2_hash(Sha1, rounds, salt, output),
        ["pbkdf2_sha256", rounds, salt, output] => django(Sha256, rounds, salt, output),
        ["pbkdf2_sha512", rounds, salt, output] => django(Sha512, rounds, salt, output),
        ["pbkdf2_sha1", rounds, salt, output] => django(Sha1, rounds, salt, output),
        [method, salt, output] if method.starts_with("scrypt:") || method.starts_with("pbkdf2:") => {
            werkzeug(method, salt, output)
        }
        ["{PBKDF2}", "1", salt, rounds, output] => with_text_salt(pbkdf2(Sha1, rounds), salt, hex(output)),
        ["", "5", ref rest @ ..] => sha_crypt_hash(Sha256, rest),
        ["", "6", ref rest @ ..] => sha_crypt_hash(Sha512, rest),
        ["", "y", params, salt, output] => yescrypt_hash(params, salt, output),
        ["", "P" | "H", rest] => phpass_hash(rest),
        [word] => return one_word(word),
        _ => return None,
    })
}

/// What has no `$` in it: of LDAP, and of ASP.NET Identity.
fn one_word(text: &str) -> Option<Option<HashParts>> {
    for (scheme, digest) in
        [("{SSHA}", ShaDigest::Sha1), ("{SSHA256}", ShaDigest::Sha256), ("{SSHA512}", ShaDigest::Sha512)]
    {
        if let Some(rest) = text.strip_prefix(scheme) {
            return Some(salted_sha(digest, rest));
        }
    }
    if text.starts_with("AQAAAA") {
        return Some(aspnet_v3(text));
    }
    let older = text.len() == ASPNET_V2_LETTERS && text.starts_with("A");
    older.then(|| aspnet_v2(text))
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
    parts.next().is_none().then_some(())?;
    let function = HashFunction::Scrypt(ScryptCost { log_n: u8::try_from(log_n).ok()?, r, p });
    Some((function, base64_of(salt)?, base64_of(output)?))
}

/// With N itself, as Django and Werkzeug write it.
fn scrypt_of_words(n: &str, r: &str, p: &str) -> Option<HashFunction> {
    let n = number(n).filter(|n| n.is_power_of_two())?;
    let log_n = u8::try_from(n.trailing_zeros()).ok()?;
    Some(HashFunction::Scrypt(ScryptCost { log_n, r: number(r)?, p: number(p)? }))
}

/// `v=1,n=14,r=8,p=1,ss=…,sk=…`, as Supabase writes Firebase's: n is the logarithm. The output is the project's key, which
/// was encrypted with what scrypt derives. What is compared is the stream that did it, which holds nothing of the key; a hash
/// without a key is that stream.
fn firebase_hash(params: &str, salt: &str, output: &str) -> Option<HashParts> {
    let mut parts = params.strip_prefix("v=1,")?.split(',');
    let log_n = number(parts.next()?.strip_prefix("n=")?)?;
    let r = number(parts.next()?.strip_prefix("r=")?)?;
    let p = number(parts.next()?.strip_prefix("p=")?)?;
    let separator = base64_of(parts.next()?.strip_prefix("ss=")?)?;
    let key = base64_of(parts.next()?.strip_prefix("sk=")?)?;
    parts.next().is_none().then_some(())?;
    let output = base64_of(output)?;
    let stream = match key.len() {
        0 => output,
        length if length == output.len() => output.iter().zip(key).map(|(one, other)| one ^ other).collect(),
        _ => return None,
    };
    let function = HashFunction::FirebaseScrypt(ScryptCost { log_n: u8::try_from(log_n).ok()?, r, p });
    Some((function, [base64_of(salt)?, separator].concat(), stream))
}

/// Two digits, then 22 letters of salt and 31 of hash.
fn bcrypt_hash(input: BcryptInput, cost: &str, rest: &str) -> Option<HashParts> {
    // The last letter of each holds bits that belong to no byte, and some implementations set them.
    const LETTERS: GeneralPurpose = engine(&alphabet::BCRYPT);
    if cost.len() != 2 || rest.len() != 53 || !rest.is_ascii() {
        return None;
    }
    let (salt, output) = rest.split_at(22);
    let function = HashFunction::Bcrypt { cost: number(cost)?, input };
    let (salt, output) = (LETTERS.decode(salt).ok()?, LETTERS.decode(output).ok()?);
    (output.len() == BCRYPT_OUTPUT).then_some((function, salt, output))
}

/// `i=600000,l=32` (PHC) or `29000` (passlib).
fn pbkdf2_hash(digest: ShaDigest, rounds: &str, salt: &str, output: &str) -> Option<HashParts> {
    let output = base64_of(output)?;
    let rounds = match rounds.strip_prefix("i=") {
        None => rounds,
        Some(rest) => match rest.split_once(",l=") {
            None => rest,
            Some((rounds, length)) if usize::try_from(number(length)?).ok()? == output.len() => rounds,
            Some(_) => return None,
        },
    };
    Some((pbkdf2(digest, rounds)?, base64_of(salt)?, output))
}

fn pbkdf2(digest: ShaDigest, rounds: &str) -> Option<HashFunction> {
    Some(HashFunction::Pbkdf2 { digest, iterations: number(rounds)? })
}

fn django(digest: ShaDigest, rounds: &str, salt: &str, output: &str) -> Option<HashParts> {
    with_text_salt(pbkdf2(digest, rounds), salt, base64_of(output))
}

/// `scrypt:32768:8:1` or `pbkdf2:sha256:1000000`.
fn werkzeug(method: &str, salt: &str, output: &str) -> Option<HashParts> {
    let function = match method.split(':').collect::<Vec<_>>()[..] {
        ["scrypt", n, r, p] => scrypt_of_words(n, r, p),
        ["pbkdf2", "sha256", rounds] => pbkdf2(ShaDigest::Sha256, rounds),
        ["pbkdf2", "sha512", rounds] => pbkdf2(ShaDigest::Sha512, rounds),
        ["pbkdf2", "sha1", rounds] => pbkdf2(ShaDigest::Sha1, rounds),
        _ => None,
    };
    with_text_salt(function, salt, hex(output))
}

/// The salt is a text, and hashed as it stands there.
fn with_text_salt(function: Option<HashFunction>, salt: &str, output: Option<Vec<u8>>) -> Option<HashParts> {
    Some((function?, salt.as_bytes().to_vec(), output?))
}

/// The digest, and the salt after it.
fn salted_sha(digest: ShaDigest, text: &str) -> Option<HashParts> {
    let mut output = base64_of(text)?;
    let salt = (output.len() > digest.bytes()).then(|| output.split_off(digest.bytes()))?;
    Some((HashFunction::SaltedSha { digest }, salt, output))
}

/// `rounds=…` if they are not the usual ones, the salt as a text, and the hash with its bytes in an order of its own.
fn sha_crypt_hash(digest: ShaDigest, fields: &[&str]) -> Option<HashParts> {
    let (rounds, salt, output) = match fields {
        [salt, output] => (SHA_CRYPT_ROUNDS, salt, output),
        [rounds, salt, output] => (number(rounds.strip_prefix("rounds=")?)?, salt, output),
        _ => return None,
    };
    let letters = CRYPT_LETTERS.decode(output.as_bytes()).ok()?;
    // More of the salt is not read.
    if letters.len() != digest.bytes() || salt.len() > 16 {
        return None;
    }
    let mut output = vec![0; letters.len()];
    for (letter, at) in letters.into_iter().zip(sha_crypt_order(digest.bytes())) {
        output[at] = letter;
    }
    let function = HashFunction::ShaCrypt { digest, rounds };
    Some((function, salt.as_bytes().to_vec(), output))
}

/// Where each byte of the letters belongs: three at a time, from three parts whose order turns with every step; then what
/// is left.
fn sha_crypt_order(bytes: usize) -> impl Iterator<Item = usize> {
    let third = bytes / 3;
    let threes = (0..third).flat_map(move |at| {
        let mut parts = [2 * third, third, 0];
        if bytes == ShaDigest::Sha512.bytes() {
            parts.rotate_right(at % 3)
        } else {
            parts.rotate_left(at % 3)
        }
        parts.map(|part| part + at)
    });
    threes.chain(3 * third..bytes)
}

/// Parses what yescrypt's native mode writes for its default parameters: N and r, and nothing else.
fn yescrypt_hash(params: &str, salt: &str, output: &str) -> Option<HashParts> {
    let params = params.parse().ok()?;
    let output = CRYPT_LETTERS.decode(output.as_bytes()).ok().filter(|output| output.len() == 32)?;
    let salt = CRYPT_LETTERS.decode(salt.as_bytes()).ok()?;
    Some((HashFunction::Yescrypt { params }, salt, output))
}

/// One letter of rounds, eight of salt (a text), 22 of hash.
fn phpass_hash(rest: &str) -> Option<HashParts> {
    if rest.len() != 31 || !rest.is_ascii() {
        return None;
    }
    let (rounds, rest) = rest.split_at(1);
    let (salt, output) = rest.split_at(8);
    let log_rounds = CRYPT_LETTERS.specification().symbols.find(rounds)?;
    let function = HashFunction::Phpass { log_rounds: log_rounds as u32 };
    Some((function, salt.as_bytes().to_vec(), CRYPT_LETTERS.decode(output.as_bytes()).ok()?))
}

/// 1; then the digest, iterations and bytes of salt, each in four bytes; then salt and hash.
fn aspnet_v3(text: &str) -> Option<HashParts> {
    let bytes = base64_of(text)?;
    let word = |at: usize| Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
    let digest = match word(1)? {
        0 => ShaDigest::Sha1,
        1 => ShaDigest::Sha256,
        2 => ShaDigest::Sha512,
        _ => return None,
    };
    let function = HashFunction::Pbkdf2 { digest, iterations: word(5)? };
    let (salt, output) = bytes.get(13..)?.split_at_checked(usize::try_from(word(9)?).ok()?)?;
    Some((function, salt.to_vec(), output.to_vec()))
}

/// 0, 16 bytes of salt, 32 of hash.
fn aspnet_v2(text: &str) -> Option<HashParts> {
    let bytes = base64_of(text)?;
    let (salt, output) = bytes.strip_prefix(&[0])?.split_at_checked(16)?;
    let function = HashFunction::Pbkdf2 { digest: ShaDigest::Sha1, iterations: ASPNET_V2_ITERATIONS };
    Some((function, salt.to_vec(), output.to_vec()))
}

/// Digits only, without a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse().ok())?
}

fn hex(text: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()
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
