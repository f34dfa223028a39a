//! Proof of work beside the image, after the ALTCHA protocol, version 2: the client tries counters from 0 until the
//! key that is derived with one starts with the prefix that it was given.
//!
//! A challenge follows from the id of its image, which carries form, client and expiry, and from its price. So giving
//! one out costs two hashes, and nothing is kept: an answer's challenge is made once more, and must be the same.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};

use super::id::VerifiedId;
use crate::secret::{MasterKey, SigningKeys, same};

/// What WebCrypto computes by itself, and phones in hardware: docs/challenges.md has the figures.
const ALGORITHM: &str = "PBKDF2/SHA-256";
/// How the derived key begins, in hexadecimal digits: one in 256 keys starts with it.
const PREFIX: &str = "00";
const KEY_BYTES: usize = 32;
/// A nonce, a salt or a signature.
type Number = [u8; 16];
/// In base64. Four times as long as ours become.
const LONGEST: usize = 4_096;

/// How much work is asked for. What it takes a slow phone is in docs/challenges.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    Low,
    Raised,
    High,
    Highest,
}

impl Effort {
    pub const ALL: [Self; 4] = [Self::Low, Self::Raised, Self::High, Self::Highest];

    /// The price by how much of what is allowed the client's address and network have used up, whichever is more. If
    /// nobody knows, not the least.
    pub fn after(used: Option<f64>) -> Self {
        match used {
            None => Self::Raised,
            Some(used) if used >= 1.0 => Self::Highest,
            Some(used) if used >= 2.0 / 3.0 => Self::High,
            Some(used) if used >= 1.0 / 3.0 => Self::Raised,
            Some(_) => Self::Low,
        }
    }

    /// Iterations of one derivation. The least are enough that calling WebCrypto is a small part of it; the most take
    /// this server, which derives one key for an answer, 2.3 ms.
    pub const fn cost(self) -> u32 {
        match self {
            Self::Low => 5_000,
            Self::Raised => 10_000,
            Self::High => 15_000,
            Self::Highest => 20_000,
        }
    }
}

/// A signed challenge, as clients get it and send it back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProofChallenge {
    parameters: ProofParameters,
    signature: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ProofParameters {
    algorithm: Cow<'static, str>,
    cost: u32,
    data: ProofData,
    expires_at: i64,
    key_length: usize,
    key_prefix: Cow<'static, str>,
    nonce: String,
    salt: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProofData {
    id: String,
}

impl ProofChallenge {
    fn new(id: &str, expires_at: i64, effort: Effort, [nonce, salt, signature]: [Number; 3]) -> Self {
        let parameters = ProofParameters {
            algorithm: ALGORITHM.into(),
            cost: effort.cost(),
            data: ProofData { id: id.to_owned() },
            expires_at,
            key_length: KEY_BYTES,
            key_prefix: PREFIX.into(),
            nonce: HEXLOWER.encode(&nonce),
            salt: HEXLOWER.encode(&salt),
        };
        Self { parameters, signature: HEXLOWER.encode(&signature) }
    }

    /// For the description of the API.
    pub fn example() -> Self {
        const DIGITS: Number = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes();
        Self::new("Qmx1ZSBzdG9uZXM", 1_798_761_780, Effort::Low, [DIGITS; 3])
    }

    fn id(&self) -> &str {
        &self.parameters.data.id
    }

    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers")
    }
}

/// The answer as the ALTCHA widget encodes it.
#[derive(Deserialize)]
pub struct ProofAnswer {
    challenge: ProofChallenge,
    solution: ProofSolution,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProofSolution {
    counter: u32,
    derived_key: String,
}

/// An answer to a challenge that we signed. Whether it is right is not known yet.
pub struct SignedProof {
    pub effort: Effort,
    nonce: Number,
    salt: Number,
    solution: ProofSolution,
}

pub struct Proofs(SigningKeys);

impl Proofs {
    pub fn new(key: &MasterKey) -> Self {
        Self(key.derive_signing("captcha.proof"))
    }

    /// The challenge with that id, which it expires with.
    pub fn challenge(&self, id: &str, body: &VerifiedId, effort: Effort) -> ProofChallenge {
        ProofChallenge::new(id, body.expires().seconds(), effort, self.numbers(body, effort))
    }

    /// The answer with its challenge as it should be; None if we did not give that one out.
    pub fn signed(&self, answer: ProofAnswer, body: &VerifiedId) -> Option<SignedProof> {
        let ProofAnswer { challenge: sent, solution } = answer;
        let effort = Effort::ALL.into_iter().find(|effort| effort.cost() == sent.parameters.cost)?;
        let own = self.challenge(sent.id(), body, effort);
        let ours = same(own.signature.as_bytes(), sent.signature.as_bytes());
        let [nonce, salt, _] = self.numbers(body, effort);
        (ours && own.parameters == sent.parameters).then_some(SignedProof { effort, nonce, salt, solution })
    }

    /// Its nonce, its salt and its signature.
    fn numbers(&self, body: &VerifiedId, effort: Effort) -> [Number; 3] {
        let of =
            |part: &[u8]| self.0.of(body.generation).hash(&[part, &body.nonce, &effort.cost().to_be_bytes()]);
        let number = |bytes: &[u8]| *bytes.first_chunk().expect("16 of 32 bytes");
        let (shown, signature) = (of(b"shown"), of(b"signature"));
        [number(&shown), number(&shown[16..]), number(&signature)]
    }
}

impl ProofAnswer {
    pub fn read(text: &str) -> Option<Self> {
        if text.len() > LONGEST {
            return None;
        }
        serde_json::from_slice(&STANDARD.decode(text).ok()?).ok()
    }

    pub fn id(&self) -> &str {
        self.challenge.id()
    }
}

impl SignedProof {
    /// Whether the key is one that could be right. Derives nothing.
    pub fn is_likely(&self) -> bool {
        let key = &self.solution.derived_key;
        key.len() == 2 * KEY_BYTES && key.starts_with(PREFIX)
    }

    pub fn is_right(&self) -> bool {
        let password = [&self.nonce[..], &self.solution.counter.to_be_bytes()].concat();
        let mut key = [0; KEY_BYTES];
        pbkdf2::pbkdf2_hmac::<sha2::Sha256>(&password, &self.salt, self.effort.cost(), &mut key);
        let digits = HEXLOWER.encode(&key);
        digits.starts_with(PREFIX) && digits == self.solution.derived_key
    }
}
