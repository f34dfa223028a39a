//! Proof of work beside the image, after the ALTCHA protocol, version 2: the client tries counters from 0 until
//! the key that is derived with one starts with the prefix that it was given.
//!
//! We choose the counter, evenly from a range that starts at 0. So the work is bounded, and knowing the range
//! saves nobody any of it. The one derivation that this costs us is made ahead (`ready.rs`). A challenge names
//! the id of its image, which carries form, client and expiry; the signature covers that id and all parameters.

mod ready;

use altcha::{ChallengeParameters, CreateChallengeOptions, HmacAlgorithm, Payload};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use crate::clock::Micros;
use crate::entropy::Entropy;
use crate::secret::{KeyGeneration, MasterKey, SigningKeys, SubKey, same};
pub use ready::ReadyProof;
use ready::ReadyProofs;

/// What WebCrypto computes by itself, and phones in hardware: docs/challenges.md has the figures.
const ALGORITHM: &str = "PBKDF2/SHA-256";
/// Iterations of one derivation: enough that calling WebCrypto is a small part of it.
const ITERATIONS: u32 = 5_000;
/// In base64. Four times as long as ours become.
const LONGEST: usize = 4_096;
/// The key in `data` of the id.
const ID: &str = "id";

/// How much work is asked for. The most that it takes a slow phone is in docs/challenges.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    Low,
    Raised,
    High,
    Highest,
}

impl Effort {
    pub const ALL: [Self; 4] = [Self::Low, Self::Raised, Self::High, Self::Highest];

    /// By how much of what is allowed to fail the client's address and network have used up, whichever is more.
    /// If nobody knows, not the least.
    pub fn after(used: Option<f64>) -> Self {
        match used {
            None => Self::Raised,
            Some(used) if used >= 1.0 => Self::Highest,
            Some(used) if used >= 2.0 / 3.0 => Self::High,
            Some(used) if used >= 1.0 / 3.0 => Self::Raised,
            Some(_) => Self::Low,
        }
    }

    /// The largest counter. On average half as many are tried.
    pub const fn most(self) -> u32 {
        const LEAST: u32 = 150;
        match self {
            Self::Low => LEAST,
            Self::Raised => 4 * LEAST,
            Self::High => 8 * LEAST,
            Self::Highest => 16 * LEAST,
        }
    }
}

/// A signed challenge, as clients get it: `parameters` and `signature`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ProofChallenge {
    json: Value,
    /// The largest counter that it can take.
    #[serde(skip)]
    pub most: u32,
}

impl ProofChallenge {
    /// For the description of the API.
    pub fn example() -> Self {
        let digits = |count: usize| "0123456789abcdef".repeat(count / 16);
        let json = json!({
            "parameters": {
                "algorithm": ALGORITHM,
                "cost": ITERATIONS,
                "data": { ID: "Qmx1ZSBzdG9uZXM" },
                "expiresAt": 1_798_761_780,
                "keyLength": 32,
                "keyPrefix": digits(32),
                "keySignature": digits(64),
                "nonce": digits(32),
                "salt": digits(32),
            },
            "signature": digits(64),
        });
        Self { json, most: Effort::Low.most() }
    }

    pub fn to_json(&self) -> String {
        self.json.to_string()
    }
}

/// A solution to a challenge that we signed. Whether it is right is not known yet.
pub struct SignedProof {
    payload: Box<Payload>,
    generation: KeyGeneration,
}

impl SignedProof {
    /// The challenge's id.
    pub fn id(&self) -> &str {
        let data = self.payload.challenge.parameters.data.as_ref();
        data.and_then(|data| data.get(ID)).and_then(Value::as_str).unwrap_or_default()
    }
}

pub struct Proofs {
    keys: SigningKeys,
    entropy: Entropy,
    ready: ReadyProofs,
}

impl Proofs {
    pub fn new(key: &MasterKey, entropy: &Entropy) -> Self {
        Self {
            keys: key.derive_signing("captcha.proof"),
            entropy: entropy.clone(),
            ready: ReadyProofs::default(),
        }
    }

    pub const fn ready(&self) -> &ReadyProofs {
        &self.ready
    }

    /// The challenge with that id. It expires with it.
    pub fn sign(&self, proof: ReadyProof, id: &str, expires: Micros) -> Option<ProofChallenge> {
        let ReadyProof { mut parameters, effort } = proof;
        parameters.data = Some([(ID.to_owned(), id.into())].into());
        parameters.expires_at = Some(Micros(expires.0.saturating_add(999_999)).seconds());
        let challenge = signed(self.keys.signing(), &parameters, None)?;
        let json = serde_json::to_value(challenge).ok()?;
        Some(ProofChallenge { json, most: effort.most() })
    }

    /// None for anything whose challenge we did not sign. Derives nothing.
    pub fn read(&self, solution: &str) -> Option<SignedProof> {
        if solution.len() > LONGEST {
            return None;
        }
        let payload: Box<Payload> = serde_json::from_slice(&STANDARD.decode(solution).ok()?).ok()?;
        let sent = payload.challenge.signature.as_deref()?;
        let ours = |generation: &KeyGeneration| {
            signed(self.keys.of(*generation), &payload.challenge.parameters, None)
                .and_then(|challenge| challenge.signature)
                .is_some_and(|signature| same(signature.as_bytes(), sent.as_bytes()))
        };
        let generation = [KeyGeneration::Signing, KeyGeneration::Accepted].into_iter().find(ours)?;
        Some(SignedProof { payload, generation })
    }

    /// Whether the key is the one that the counter leads to, by our signature of it: nothing is derived again.
    pub fn accepts(&self, proof: &SignedProof) -> bool {
        let parameters = &proof.payload.challenge.parameters;
        let Some(key) = from_hex(&proof.payload.solution.derived_key) else { return false };
        let own = signed(self.keys.of(proof.generation), parameters, Some(&key));
        let own = own.and_then(|challenge| challenge.parameters.key_signature);
        match (own, parameters.key_signature.as_deref()) {
            (Some(own), Some(sent)) => same(own.as_bytes(), sent.as_bytes()),
            _ => false,
        }
    }

    /// Makes one derivation ahead, on a thread where it is in nobody's way. False if nothing is missing.
    pub async fn prepare(&self) -> bool {
        let Some(effort) = self.ready.lacking() else { return false };
        let counter = u64::from_le_bytes(self.entropy.bytes()) % (u64::from(effort.most()) + 1);
        let options = CreateChallengeOptions {
            algorithm: ALGORITHM.to_owned(),
            cost: ITERATIONS,
            counter: Some(counter as u32),
            hmac_signature_secret: Some(secret(self.keys.signing(), b"challenge")),
            hmac_key_signature_secret: Some(secret(self.keys.signing(), b"solution")),
            ..CreateChallengeOptions::default()
        };
        match tokio::task::spawn_blocking(|| altcha::create_challenge(options)).await {
            Ok(Ok(challenge)) => {
                self.ready.put(ReadyProof { parameters: challenge.parameters, effort });
                true
            }
            Ok(Err(error)) => {
                tracing::error!(%error, "captcha: no proof of work can be made; images come alone");
                false
            }
            // The runtime ends.
            Err(_) => false,
        }
    }
}

/// The challenge with its signature; given the derived key, with our signature of that, too.
fn signed(
    key: &SubKey,
    parameters: &ChallengeParameters,
    derived: Option<&[u8]>,
) -> Option<altcha::Challenge> {
    let (challenge, solution) = (secret(key, b"challenge"), secret(key, b"solution"));
    altcha::sign_challenge(
        &HmacAlgorithm::Sha256,
        &mut parameters.clone(),
        derived,
        &challenge,
        Some(&solution),
    )
    .ok()
}

fn secret(key: &SubKey, of: &[u8]) -> String {
    STANDARD.encode(key.hash(&[of]))
}

fn from_hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.len().is_multiple_of(2) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}
