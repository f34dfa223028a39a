//! The challenge's id: its contents, its signature, and the client that it is bound to.
//!
//! base64url of `nonce 12 | expiry 4 | flags 1 | client tag 8 | counted 18 | MAC 16`, 79 characters. No nonce is used
//! twice; the MAC covers everything before it. `counted` is zero at our own forms: there an image counts on whoever
//! fetches it. A program fetches images for all of its clients, so theirs count on the client that it stated: on
//! hashes of the address, the network and the realm, which nobody else can read.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{CaptchaClient, CaptchaForm, Difficulty, Provider};
use crate::clock::Micros;
use crate::secret::{KeyGeneration, MasterKey, SigningKeys, SubKey, same};
use crate::typed;

pub type ChallengeNonce = [u8; 12];

const SIGNED: usize = 25 + COUNTED;
const BYTES: usize = SIGNED + 16;
const CHARS: usize = 79;
/// Six bytes for each of the three, which no address, network or total of our own forms has.
const COUNTED: usize = 18;
/// The flag for a client tag that covers a cookie; form and difficulty are in the bits below it.
const WITH_COOKIE: u8 = 0x80;

pub struct ChallengeIds {
    mac: SigningKeys,
    client: SubKey,
    spent: SubKey,
}

/// An id with a valid MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VerifiedId {
    pub nonce: ChallengeNonce,
    /// The generation of the key that signed it, which its letters come from, too.
    pub generation: KeyGeneration,
    /// Seconds since the epoch; 32 bits last until 2106.
    expiry: u32,
    flags: u8,
    tag: [u8; 8],
    counted: [u8; COUNTED],
}

/// A program's client: hashes of its address and its network, and of the realm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CountedClient([u8; COUNTED]);

impl CountedClient {
    pub fn client(&self) -> CaptchaClient<'_> {
        let [address, network, realm] = [&self.0[..6], &self.0[6..12], &self.0[12..]];
        CaptchaClient { address, network, realm: Some(realm), cookie: None }
    }
}

impl VerifiedId {
    pub const fn expires(&self) -> Micros {
        Micros::from_seconds(self.expiry as i64)
    }

    pub fn expired(&self, now: Micros) -> bool {
        now >= self.expires()
    }

    pub const fn difficulty(&self) -> Difficulty {
        match (self.flags >> 4) & 0x03 {
            0 => Difficulty::Easy,
            1 => Difficulty::Medium,
            _ => Difficulty::Hard,
        }
    }

    pub fn form(&self) -> CaptchaForm {
        CaptchaForm::from_repr(self.flags & 0x0f).unwrap_or(CaptchaForm::PasswordChange)
    }

    fn to_bytes(self) -> [u8; SIGNED] {
        let mut bytes = [0; SIGNED];
        bytes[..12].copy_from_slice(&self.nonce);
        bytes[12..16].copy_from_slice(&self.expiry.to_be_bytes());
        bytes[16] = self.flags;
        bytes[17..25].copy_from_slice(&self.tag);
        bytes[25..].copy_from_slice(&self.counted);
        bytes
    }
}

impl ChallengeIds {
    pub fn new(key: &MasterKey) -> Self {
        Self {
            mac: key.derive_signing("captcha.id"),
            client: key.derive("captcha.client"),
            spent: key.derive("captcha.spent"),
        }
    }

    /// Expiry is rounded up to a whole second, so that nobody gets less time than was promised.
    pub fn sign(
        &self,
        nonce: ChallengeNonce,
        expires: Micros,
        form: CaptchaForm,
        difficulty: Difficulty,
        client: &CaptchaClient<'_>,
    ) -> (String, VerifiedId) {
        let with_cookie = if client.cookie.is_some() { WITH_COOKIE } else { 0 };
        let flags = form as u8 | ((difficulty as u8) << 4) | with_cookie;
        let seconds = Micros(expires.0.saturating_add(999_999)).seconds();
        let expiry = u32::try_from(seconds.max(0)).unwrap_or(u32::MAX);
        let (generation, tag) = (KeyGeneration::Signing, self.tag(&nonce, client));
        let counted = self.counted(client).map_or([0; COUNTED], |counted| self.masked(&nonce, counted));
        let body = VerifiedId { nonce, generation, expiry, flags, tag, counted };
        let signed = body.to_bytes();
        let mut bytes = [0; BYTES];
        bytes[..SIGNED].copy_from_slice(&signed);
        bytes[SIGNED..].copy_from_slice(&id_mac(self.mac.signing(), &signed));
        (URL_SAFE_NO_PAD.encode(bytes), body)
    }

    /// Parses an id; None for anything that we did not sign; a huge id is refused by its length.
    pub fn parse(&self, id: &str) -> Option<VerifiedId> {
        if id.len() != CHARS {
            return None;
        }
        let bytes: [u8; BYTES] = URL_SAFE_NO_PAD.decode(id).ok()?.try_into().ok()?;
        let (signed, mac) = bytes.split_at(SIGNED);
        Some(VerifiedId {
            generation: self.mac.signer(mac, |key| id_mac(key, signed))?,
            nonce: signed[..12].try_into().ok()?,
            expiry: u32::from_be_bytes(signed[12..16].try_into().ok()?),
            flags: signed[16],
            tag: signed[17..25].try_into().ok()?,
            counted: signed[25..].try_into().ok()?,
        })
    }

    /// A name that is the same for one address, whatever its length.
    pub fn short(&self, kind: &str, address: &[u8]) -> [u8; 16] {
        *self.client.hash(&[b"short", kind.as_bytes(), address]).first_chunk().expect("32 bytes hold 16")
    }

    /// What an image of a program's client is counted as, wherever it is fetched from; None at our own forms.
    pub fn counted(&self, client: &CaptchaClient<'_>) -> Option<CountedClient> {
        let realm = client.realm?;
        let hash = |kind: &[u8], name: &[u8]| self.client.hash(&[b"counted", kind, name]);
        let mut counted = [0; COUNTED];
        for (place, name) in counted.chunks_exact_mut(6).zip([client.address, client.network, realm]) {
            place.copy_from_slice(&hash(realm, name)[..6]);
        }
        Some(CountedClient(counted))
    }

    /// The client that a challenge was counted at.
    pub fn counted_by(&self, body: &VerifiedId) -> Option<CountedClient> {
        let of_a_program = matches!(body.form(), CaptchaForm::Attempt | CaptchaForm::Verification);
        of_a_program.then(|| CountedClient(self.masked(&body.nonce, CountedClient(body.counted))))
    }

    /// Differs from one challenge to the next, as the tag does.
    fn masked(&self, nonce: &ChallengeNonce, CountedClient(counted): CountedClient) -> [u8; COUNTED] {
        let mask = self.client.hash(&[b"mask", nonce]);
        std::array::from_fn(|place| counted[place] ^ mask[place])
    }

    /// Whether the challenge was issued to this client for this form. If it was issued without a cookie, a
    /// later cookie is ignored.
    pub fn belongs(&self, body: &VerifiedId, form: CaptchaForm, client: &CaptchaClient<'_>) -> bool {
        let with_cookie = body.flags & WITH_COOKIE != 0;
        if with_cookie && client.cookie.is_none() {
            return false;
        }
        let cookie = client.cookie.filter(|_| with_cookie);
        let tag = self.tag(&body.nonce, &CaptchaClient { cookie, ..*client });
        body.flags & 0x0f == form as u8 && same(&tag, &body.tag)
    }

    /// The mark of the challenge as spent: a keyed hash, so that a store's keys are of no use elsewhere.
    pub fn mark(&self, body: &VerifiedId) -> [u8; 16] {
        *self.spent.hash(&[&body.nonce]).first_chunk().expect("32 bytes hold 16")
    }

    /// Differs from one challenge to the next, so that two ids do not reveal that they have one client.
    fn tag(&self, nonce: &ChallengeNonce, client: &CaptchaClient<'_>) -> [u8; 8] {
        let hash = match client.cookie {
            Some(cookie) => self.client.hash(&[nonce, client.address, cookie]),
            None => self.client.hash(&[nonce, client.address]),
        };
        *hash.first_chunk().expect("32 bytes hold 8")
    }
}

fn id_mac(key: &SubKey, signed: &[u8]) -> [u8; 16] {
    key.short_hash(*b"id      ", signed)
}

/// Letters that a reader told apart in 39 of 40 images, turned and over each other's edges, in either case, because some
/// are drawn small. Left out: I J L (each other, and 1), O Q (each other, and 0), U V (each other), G (C), B S Z (8 5 2),
/// F (an E without its foot), N (H and M), K and Y (H, T and X that lean); and every digit, so that a phone's keyboard
/// need not switch.
pub const ALPHABET: &[u8; 11] = b"ACDEHMPRTWX";

/// In bytes. A longer answer is always wrong, including a fixed one.
const LONGEST_ANSWER: usize = 128;

/// Answers: derived from the challenge's nonce, never stored, compared as keyed hashes.
pub struct CaptchaAnswers {
    letters: SigningKeys,
    compare: SubKey,
    provider: Provider,
}

impl CaptchaAnswers {
    pub fn new(key: &MasterKey, provider: Provider) -> Self {
        Self {
            letters: key.derive_signing("captcha.answer"),
            compare: key.derive("captcha.compare"),
            provider,
        }
    }

    pub fn text(&self, body: &VerifiedId) -> String {
        match &self.provider {
            Provider::Image => self.draw_letters(body),
            Provider::Fixed { answer } => answer.clone(),
        }
    }

    /// Whether a typed answer is right, in constant time.
    pub fn accepts(&self, body: &VerifiedId, typed: &str) -> bool {
        let Some(typed) = normalise(typed) else { return false };
        let Some(right) = normalise(&self.text(body)) else { return false };
        let digest = |answer: &str| self.compare.hash(&[&body.nonce, answer.as_bytes()]);
        same(&digest(&typed), &digest(&right))
    }

    fn draw_letters(&self, body: &VerifiedId) -> String {
        let count = match body.difficulty() {
            Difficulty::Easy | Difficulty::Medium => 5,
            Difficulty::Hard => 6,
        };
        // Eight words of 32 bits; their remainder favours a letter by less than 1 in 10^8.
        let stream = self.letters.of(body.generation).hash(&[&body.nonce]);
        let words =
            stream.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]));
        words.take(count).map(|word| char::from(ALPHABET[word as usize % ALPHABET.len()])).collect()
    }
}

/// Upper case without white space; full-width forms, as Chinese input methods type them, become plain. None
/// if it cannot be an answer: empty, or too long.
fn normalise(answer: &str) -> Option<String> {
    if answer.len() > LONGEST_ANSWER {
        return None;
    }
    let letters = answer.chars().filter(|letter| !typed::is_separator(*letter));
    let answer: String = letters.map(|letter| typed::plain(letter).to_ascii_uppercase()).collect();
    (!answer.is_empty()).then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_spaces_and_full_width_do_not_matter() {
        for typed in ["HKTX", " hk tx\n", "h\u{a0}K\tT x", "ｈＫＴｘ"] {
            assert_eq!(normalise(typed).as_deref(), Some("HKTX"), "{typed:?}");
        }
    }

    #[test]
    fn no_two_letters_of_the_alphabet_look_alike() {
        for pair in [
            "O0", "QO", "I1", "IL", "IJ", "UV", "CG", "B8", "S5", "Z2", "EF", "GQ", "VY", "NH", "NM", "XY",
            "KX", "KH",
        ] {
            let there = pair.bytes().filter(|letter| ALPHABET.contains(letter)).count();
            assert!(there < 2, "{pair}");
        }
        assert!(ALPHABET.iter().all(u8::is_ascii_uppercase));
    }
}
