//! The signatures of tokens, by ring. No other file of this module names it, so that another library can replace it.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

use crate::config::SigningAlgorithm;

pub enum PrivateKey {
    Rsa(Box<RsaKeyPair>),
    P256(Box<EcdsaKeyPair>),
}

/// A public key as a JWK tells it (RFC 7518, 6.2 and 6.3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kty")]
pub enum PublicKey {
    #[serde(rename = "RSA")]
    Rsa {
        #[serde(serialize_with = "base64url")]
        n: Vec<u8>,
        #[serde(serialize_with = "base64url")]
        e: Vec<u8>,
    },
    #[serde(rename = "EC")]
    P256 {
        crv: &'static str,
        #[serde(serialize_with = "base64url")]
        x: Vec<u8>,
        #[serde(serialize_with = "base64url")]
        y: Vec<u8>,
    },
}

fn base64url<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&URL_SAFE_NO_PAD.encode(bytes))
}

/// A private key for ES256, in PKCS#8. None if the system has no randomness: ring takes none from elsewhere.
pub fn generate_es256() -> Option<Zeroizing<Vec<u8>>> {
    let made = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new()).ok()?;
    Some(Zeroizing::new(made.as_ref().to_vec()))
}

/// From PKCS#1 (RS256) or PKCS#8 (ES256), with checks of what belongs together.
pub fn load(algorithm: SigningAlgorithm, private: &[u8]) -> Option<PrivateKey> {
    match algorithm {
        SigningAlgorithm::Rs256 => {
            RsaKeyPair::from_der(private).ok().map(|key| PrivateKey::Rsa(Box::new(key)))
        }
        SigningAlgorithm::Es256 => {
            let random = SystemRandom::new();
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, private, &random)
                .ok()
                .map(|key| PrivateKey::P256(Box::new(key)))
        }
    }
}

pub fn sign(key: &PrivateKey, message: &[u8]) -> Option<Vec<u8>> {
    let random = SystemRandom::new();
    match key {
        PrivateKey::Rsa(key) => {
            let mut signature = vec![0; key.public().modulus_len()];
            key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).ok()?;
            Some(signature)
        }
        PrivateKey::P256(key) => key.sign(&random, message).ok().map(|signature| signature.as_ref().to_vec()),
    }
}

pub fn public(key: &PrivateKey) -> PublicKey {
    match key {
        PrivateKey::Rsa(key) => {
            // Without leading zeros, as a JWK wants them.
            let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(key.public());
            PublicKey::Rsa { n, e }
        }
        PrivateKey::P256(key) => {
            // 4, then both coordinates.
            let (x, y) = key.public_key().as_ref()[1..].split_at(32);
            PublicKey::P256 { crv: "P-256", x: x.to_vec(), y: y.to_vec() }
        }
    }
}

pub fn verify(key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
    match key {
        PublicKey::Rsa { n, e } => {
            RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
        }
        PublicKey::P256 { x, y, .. } => {
            let point = [&[4], &x[..], y].concat();
            UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
        }
    }
    .is_ok()
}
