//! Codes of authenticator apps (RFC 6238): SHA-1, six digits, 30 seconds, which is what all of them can.

use std::ops::RangeInclusive;

use data_encoding::BASE32_NOPAD;
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use url::Url;
use url::form_urlencoded::byte_serialize;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::accounts::AccountId;
use crate::clock::Micros;
use crate::entropy::Entropy;
use crate::secret::{Seal, SubKey, hidden_debug, same};
use crate::typed;

const STEP_MICROS: i64 = 30_000_000;
/// Codes of the step before and the step after are right, too: clocks differ, and typing takes a while.
const STEPS_BESIDE: i64 = 1;

/// Bytes of a secret from another system: from the 80 bits of the first apps to the block of SHA-1.
const IMPORTED: RangeInclusive<usize> = 10..=64;

/// 160 random bits, as RFC 4226 recommends; from another system, what that has made.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct TotpSecret(Vec<u8>);

hidden_debug!(TotpSecret);

/// Six digits, as typed from an app.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct TotpCode(String);

hidden_debug!(TotpCode);

impl TotpCode {
    /// Apps show the digits in two groups.
    pub fn parse(text: &str) -> Option<Self> {
        typed::digits(text, 6).map(|mut digits| Self(std::mem::take(&mut *digits)))
    }
}

impl TotpSecret {
    pub fn random(entropy: &Entropy) -> Self {
        Self(entropy.bytes::<20>().to_vec())
    }

    #[cfg(test)]
    pub(super) fn of(bytes: [u8; 20]) -> Self {
        Self(bytes.to_vec())
    }

    /// From another system: in base32, or an `otpauth:` address, of the one kind that is compared here. An error says
    /// what is wrong with it, without a part of it.
    pub fn import(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let secret = match text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("otpauth:")) {
            true => secret_of_uri(text)?,
            false => Zeroizing::new(text.to_owned()),
        };
        let bytes = read_base32(secret.trim_end_matches('='));
        let secret = Self(bytes.ok_or("is neither base32 nor an otpauth: address")?);
        match IMPORTED.contains(&secret.0.len()) {
            true => Ok(secret),
            false => Err("must have 10 to 64 bytes, which are 16 to 103 letters in base32"),
        }
    }

    /// The secret as it is typed into an app.
    pub fn base32(&self) -> Zeroizing<String> {
        Zeroizing::new(BASE32_NOPAD.encode(&self.0))
    }

    /// What the image for an app says (Google's "Key Uri Format").
    pub fn uri(&self, issuer: &str, login: &str) -> Zeroizing<String> {
        let escaped = |text: &str| byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20");
        let (issuer, login) = (escaped(issuer), escaped(login));
        let secret = self.base32();
        Zeroizing::new(format!("otpauth://totp/{issuer}:{login}?secret={}&issuer={issuer}", *secret))
    }

    /// The step whose code it is; None if it is none of those around `now`.
    pub fn step_of(&self, code: &TotpCode, now: Micros) -> Option<i64> {
        let step = now.0.div_euclid(STEP_MICROS);
        // All are compared, whichever it is.
        let beside = step - STEPS_BESIDE..=step + STEPS_BESIDE;
        beside.fold(None, |found, step| {
            if same(self.code(step).as_bytes(), code.0.as_bytes()) { Some(step) } else { found }
        })
    }

    fn code(&self, step: i64) -> String {
        let mut mac = Hmac::<Sha1>::new_from_slice(&self.0).expect("HMAC takes a key of any length");
        mac.update(&step.to_be_bytes());
        let hash = mac.finalize().into_bytes();
        let start = usize::from(hash[hash.len() - 1] & 0xf);
        let word = hash[start..].first_chunk().copied().expect("20 bytes hold 4 from the 16th");
        format!("{:06}", (u32::from_be_bytes(word) & 0x7fff_ffff) % 1_000_000)
    }
}

/// In groups or not, in any case and any script's digits.
pub(super) fn read_base32(text: &str) -> Option<Vec<u8>> {
    let letters = text.chars().filter(|letter| !typed::is_separator(*letter));
    let letters = letters.map(|letter| typed::plain(letter).to_ascii_uppercase());
    let letters: Zeroizing<String> = Zeroizing::new(letters.collect());
    BASE32_NOPAD.decode(letters.as_bytes()).ok()
}

/// What an address of Google's "Key Uri Format" has, if its codes are those that are compared here.
fn secret_of_uri(text: &str) -> Result<Zeroizing<String>, &'static str> {
    let uri = Url::parse(text).map_err(|_| "is not an address that can be read")?;
    if !uri.host_str().is_some_and(|kind| kind.eq_ignore_ascii_case("totp")) {
        return Err("is not of the kind otpauth://totp/");
    }
    let mut secret = None;
    for (name, value) in uri.query_pairs() {
        match &*name {
            "secret" if secret.is_some() => return Err("has more than one secret"),
            "secret" => secret = Some(Zeroizing::new(value.into_owned())),
            "algorithm" if !value.eq_ignore_ascii_case("SHA1") => return Err("must have the algorithm SHA1"),
            "digits" if value != "6" => return Err("must have 6 digits"),
            "period" if value != "30" => return Err("must have a period of 30 seconds"),
            _ => {}
        }
    }
    secret.ok_or("has no secret")
}

/// Seals secrets for the database, each for its account.
#[derive(Clone)]
pub struct SecretSeal(Seal);

impl SecretSeal {
    pub const fn new(key: SubKey) -> Self {
        Self(Seal::new(key))
    }

    pub fn seal(&self, account: AccountId, secret: &TotpSecret, entropy: &Entropy) -> String {
        self.0.seal(account.as_bytes(), &secret.0, entropy)
    }

    /// Opens a secret; None if it was sealed under another key, or for another account.
    pub fn open(&self, account: AccountId, sealed: &str) -> Option<TotpSecret> {
        self.0.open(account.as_bytes(), sealed).map(|secret| TotpSecret(secret.to_vec()))
    }
}
