//! Passkeys (W3C Web Authentication Level 3): what an authenticator answered, as browsers write it, against what it was
//! asked. Pure: it reads no clock and no database. The user is always verified (PIN, finger, face), and no attestation is
//! read.

mod cbor;
mod cose;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Deserializer};

use cbor::{Item, Reader};
pub use cose::{ALGORITHMS, StoredKey};

/// The most that the standard allows to a credential's id.
const MOST_ID_BYTES: usize = 1_023;

/// The site that a passkey is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelyingParty {
    /// A domain: of the origin, or above it.
    pub id: String,
    /// `https://accounts.example`, as browsers write it.
    pub origin: String,
}

/// Bytes in base64url.
#[derive(Debug, Clone)]
pub struct Base64Bytes(pub Vec<u8>);

impl<'de> Deserialize<'de> for Base64Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        URL_SAFE_NO_PAD.decode(text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// `PublicKeyCredential.toJSON()` of an answer; browsers add fields to it.
#[derive(Debug, Clone, Deserialize)]
pub struct Assertion {
    pub id: Base64Bytes,
    pub response: AssertionResponse,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AssertionResponse {
    #[serde(rename = "clientDataJSON")]
    pub client_data: Base64Bytes,
    pub authenticator_data: Base64Bytes,
    pub signature: Base64Bytes,
    /// The account of which the authenticator says that it is.
    pub user_handle: Option<Base64Bytes>,
}

impl Assertion {
    /// Whether the authenticator says that it has checked its user: what it says is verified elsewhere.
    pub fn is_user_verified(&self) -> bool {
        self.response.authenticator_data.0.get(32).is_some_and(|flags| flags & USER_VERIFIED != 0)
    }
}

/// The registration of a new passkey.
#[derive(Debug, Deserialize)]
pub struct Attestation {
    pub response: AttestationResponse,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttestationResponse {
    #[serde(rename = "clientDataJSON")]
    pub client_data: Base64Bytes,
    pub attestation_object: Base64Bytes,
    #[serde(default)]
    pub transports: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCredential {
    pub id: Vec<u8>,
    /// The algorithm, as COSE numbers them.
    pub algorithm: i64,
    pub public_key: Vec<u8>,
    pub sign_count: u32,
    /// It is kept by a password manager or a cloud, too.
    pub backed_up: bool,
    /// The authenticator's model; zeros if it does not tell.
    pub aaguid: [u8; 16],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asserted {
    pub sign_count: u32,
    pub backed_up: bool,
}

/// Why an answer is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasskeyFault {
    #[error("{0} cannot be read")]
    Malformed(&'static str),
    #[error("it answers another question")]
    WrongType,
    #[error("it answers another challenge")]
    WrongChallenge,
    #[error("it is from another origin")]
    WrongOrigin,
    #[error("it is from a frame in another site")]
    CrossOrigin,
    #[error("it is for another domain")]
    WrongRp,
    #[error("nobody touched the authenticator")]
    NotPresent,
    #[error("the authenticator did not verify its user")]
    NotVerified,
    #[error("the key's algorithm is none of those asked for")]
    Algorithm,
    #[error("the signature is wrong")]
    Signature,
}

use PasskeyFault::Malformed;

/// What the browser says about the ceremony; more fields may come.
#[derive(Deserialize)]
struct ClientData {
    r#type: String,
    challenge: String,
    origin: String,
    #[serde(default, rename = "crossOrigin")]
    cross_origin: bool,
}

impl ClientData {
    fn parse(json: &[u8]) -> Result<Self, PasskeyFault> {
        serde_json::from_slice(json).map_err(|_| Malformed("clientDataJSON"))
    }

    fn challenge(&self) -> Result<Vec<u8>, PasskeyFault> {
        URL_SAFE_NO_PAD.decode(&self.challenge).map_err(|_| Malformed("challenge"))
    }
}

/// The challenge that is answered: whether it was asked, and of whom, is for the caller to say.
pub fn challenge_of(client_data: &[u8]) -> Result<Vec<u8>, PasskeyFault> {
    ClientData::parse(client_data)?.challenge()
}

impl RelyingParty {
    /// A new passkey, from what `navigator.credentials.create` gave.
    pub fn register(
        &self,
        challenge: &[u8],
        client_data: &[u8],
        attestation_object: &[u8],
    ) -> Result<NewCredential, PasskeyFault> {
        self.check_client("webauthn.create", challenge, client_data)?;
        let bytes = data_in(attestation_object).ok_or(Malformed("attestationObject"))?;
        let data = AuthenticatorData::parse(bytes).ok_or(Malformed("authData"))?;
        self.check_authenticator(&data)?;
        let attested = data.attested.as_ref().ok_or(Malformed("authData"))?;
        let (algorithm, public_key) = cose::parse(attested.key)?;
        Ok(NewCredential {
            id: attested.id.to_vec(),
            algorithm,
            public_key,
            sign_count: data.sign_count,
            backed_up: data.has(BACKED_UP),
            aaguid: *attested.aaguid,
        })
    }

    /// A use of a passkey, from what `navigator.credentials.get` gave.
    pub fn assert(
        &self,
        challenge: &[u8],
        key: StoredKey,
        client_data: &[u8],
        authenticator_data: &[u8],
        signature: &[u8],
    ) -> Result<Asserted, PasskeyFault> {
        self.check_client("webauthn.get", challenge, client_data)?;
        let data = AuthenticatorData::parse(authenticator_data).ok_or(Malformed("authenticatorData"))?;
        self.check_authenticator(&data)?;
        let signed = [authenticator_data, digest(&SHA256, client_data).as_ref()].concat();
        key.verify(&signed, signature)?;
        Ok(Asserted { sign_count: data.sign_count, backed_up: data.has(BACKED_UP) })
    }

    fn check_client(&self, ceremony: &str, challenge: &[u8], json: &[u8]) -> Result<(), PasskeyFault> {
        let data = ClientData::parse(json)?;
        if data.r#type != ceremony {
            return Err(PasskeyFault::WrongType);
        }
        if data.challenge()? != challenge {
            return Err(PasskeyFault::WrongChallenge);
        }
        if data.origin != self.origin {
            return Err(PasskeyFault::WrongOrigin);
        }
        if data.cross_origin {
            return Err(PasskeyFault::CrossOrigin);
        }
        Ok(())
    }

    fn check_authenticator(&self, data: &AuthenticatorData) -> Result<(), PasskeyFault> {
        if data.rp_id_hash != digest(&SHA256, self.id.as_bytes()).as_ref() {
            return Err(PasskeyFault::WrongRp);
        }
        if !data.has(USER_PRESENT) {
            return Err(PasskeyFault::NotPresent);
        }
        if !data.has(USER_VERIFIED) {
            return Err(PasskeyFault::NotVerified);
        }
        Ok(())
    }
}

const USER_PRESENT: u8 = 0x01;
const USER_VERIFIED: u8 = 0x04;
const MAY_BE_BACKED_UP: u8 = 0x08;
const BACKED_UP: u8 = 0x10;
const ATTESTED: u8 = 0x40;
const EXTENSIONS: u8 = 0x80;

struct AuthenticatorData<'a> {
    rp_id_hash: &'a [u8; 32],
    flags: u8,
    sign_count: u32,
    attested: Option<Attested<'a>>,
}

struct Attested<'a> {
    aaguid: &'a [u8; 16],
    id: &'a [u8],
    key: &'a [u8],
}

impl<'a> AuthenticatorData<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (rp_id_hash, rest) = bytes.split_first_chunk()?;
        let (&flags, rest) = rest.split_first()?;
        let (count, rest) = rest.split_first_chunk()?;
        let mut data = Self { rp_id_hash, flags, sign_count: u32::from_be_bytes(*count), attested: None };
        let mut rest = Reader::new(rest);
        if data.has(ATTESTED) {
            data.attested = Some(Attested::take(&mut rest)?);
        }
        if data.has(EXTENSIONS) {
            matches!(rest.clone().item()?, Item::Map(_)).then_some(())?;
            rest.skip()?;
        }
        let whole = rest.is_empty() && (data.has(MAY_BE_BACKED_UP) || !data.has(BACKED_UP));
        whole.then_some(data)
    }

    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

impl<'a> Attested<'a> {
    fn take(from: &mut Reader<'a>) -> Option<Self> {
        let aaguid = from.bytes(16)?.try_into().ok()?;
        let length = u16::from_be_bytes(from.bytes(2)?.try_into().ok()?);
        let id = from.bytes(length.into())?;
        (1..=MOST_ID_BYTES).contains(&id.len()).then_some(())?;
        Some(Self { aaguid, id, key: from.skip()? })
    }
}

/// The authenticator data in an attestation object: `fmt`, `attStmt` and `authData`. What it attests is not read.
fn data_in(object: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(object);
    let Item::Map(entries) = reader.item()? else { return None };
    let mut data = None;
    for _ in 0..entries {
        let Item::Text(name) = reader.item()? else { return None };
        match (name, data) {
            ("authData", None) => match reader.item()? {
                Item::Bytes(bytes) => data = Some(bytes),
                _ => return None,
            },
            ("authData", Some(_)) => return None,
            _ => drop(reader.skip()?),
        }
    }
    reader.is_empty().then_some(data)?
}

#[cfg(test)]
mod tests;
