//! Our own tokens: JWS in compact form (RFC 7515), signed, and verified when they come back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::signature::{self, PrivateKey, PublicKey};
use crate::config::SigningAlgorithm;

/// What each of ours has and nothing else, so that a `crit`, a `jwk` or a `jku` is refused.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    alg: SigningAlgorithm,
    kid: &'a str,
    typ: &'a str,
}

/// Signs claims; None if they are no JSON, or the key cannot sign.
pub fn sign(
    (alg, kid, key): (SigningAlgorithm, &str, &PrivateKey),
    typ: &str,
    claims: &impl Serialize,
) -> Option<String> {
    let part = |json: Vec<u8>| URL_SAFE_NO_PAD.encode(json);
    let header = part(serde_json::to_vec(&Header { alg, kid, typ }).ok()?);
    let signed = format!("{header}.{}", part(serde_json::to_vec(claims).ok()?));
    let signature = signature::sign(key, signed.as_bytes())?;
    Some(format!("{signed}.{}", part(signature)))
}

/// What a token claims, if the key of its `kid` has signed it. That key says by which algorithm.
pub fn verify<'k, T: DeserializeOwned>(
    token: &str,
    key_of: impl FnOnce(&str) -> Option<(SigningAlgorithm, &'k PublicKey)>,
) -> Option<T> {
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    // Refuses padding, and bits that nothing is read from: one token has one text.
    let part = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
    let header = part(header)?;
    let header: Header<'_> = serde_json::from_slice(&header).ok()?;
    let (algorithm, key) = key_of(header.kid)?;
    let genuine = header.alg == algorithm && signature::verify(key, signed.as_bytes(), &part(signature)?);
    genuine.then(|| serde_json::from_slice(&part(claims)?).ok())?
}
