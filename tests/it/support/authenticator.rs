//! An authenticator in software (ES256), with the browser in front of it: what it answers is that of the standard, byte by
//! byte, and each part can be bent.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};

use super::app::{Answer, Client};

const PRESENT: u8 = 1;
const VERIFIED: u8 = 4;
const NEW_KEY: u8 = 0x40;

pub struct Authenticator {
    /// Of the page.
    pub origin: String,
    pub verifies_user: bool,
    /// It counts its uses from here; 0: it counts none.
    pub count: u32,
}

pub struct Credential {
    pub id: Vec<u8>,
    key: EcdsaKeyPair,
    pub user: Vec<u8>,
}

pub fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

pub fn decoded(value: &Value) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(value.as_str().unwrap()).unwrap()
}

fn client_data(kind: &str, options: &Value, origin: &str) -> Vec<u8> {
    json!({ "type": kind, "challenge": options["challenge"], "origin": origin, "crossOrigin": false })
        .to_string()
        .into_bytes()
}

impl Authenticator {
    pub fn of(client: &Client) -> Self {
        Self { origin: client.url.clone(), verifies_user: true, count: 0 }
    }

    fn data(&self, rp_id: &Value, more: u8, rest: &[u8]) -> Vec<u8> {
        let flags = PRESENT | more | if self.verifies_user { VERIFIED } else { 0 };
        let hash = digest(&SHA256, rp_id.as_str().unwrap().as_bytes());
        [hash.as_ref(), &[flags], &self.count.to_be_bytes(), rest].concat()
    }

    /// `navigator.credentials.create()`, and the key that it made.
    pub fn create(&self, options: &Value) -> (Value, Credential) {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let id: [u8; 16] = gatehouse::entropy::Entropy::Os.bytes();
        let credential = Credential { id: id.to_vec(), key, user: decoded(&options["user"]["id"]) };
        (self.attest(options, &credential), credential)
    }

    /// The same with a key that there is.
    pub fn attest(&self, options: &Value, credential: &Credential) -> Value {
        // A COSE key: {1: 2, 3: -7, -1: 1, -2: x, -3: y}.
        let point = &credential.key.public_key().as_ref()[1..];
        let cose = [
            &[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21, 0x58, 32][..],
            &point[..32],
            &[0x22, 0x58, 32],
            &point[32..],
        ]
        .concat();
        let length = (credential.id.len() as u16).to_be_bytes();
        let attested = [&[0; 16][..], &length, &credential.id, &cose].concat();
        let data = self.data(&options["rp"]["id"], NEW_KEY, &attested);
        let object = [
            &b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x58"[..],
            &[u8::try_from(data.len()).unwrap()],
            &data,
        ]
        .concat();
        json!({
            "id": encoded(&credential.id), "rawId": encoded(&credential.id), "type": "public-key",
            "clientExtensionResults": { "credProps": { "rk": true } },
            "response": {
                "clientDataJSON": encoded(&client_data("webauthn.create", options, &self.origin)),
                "attestationObject": encoded(&object),
                "transports": ["internal"],
            },
        })
    }

    /// `navigator.credentials.get()`.
    pub fn get(&self, options: &Value, credential: &Credential) -> Value {
        let client_data = client_data("webauthn.get", options, &self.origin);
        let data = self.data(&options["rpId"], 0, &[]);
        let signed = [&data, digest(&SHA256, &client_data).as_ref()].concat();
        let signature = credential.key.sign(&SystemRandom::new(), &signed).unwrap();
        json!({
            "id": encoded(&credential.id), "rawId": encoded(&credential.id), "type": "public-key",
            "authenticatorAttachment": "platform", "clientExtensionResults": {},
            "response": {
                "clientDataJSON": encoded(&client_data),
                "authenticatorData": encoded(&data),
                "signature": encoded(signature.as_ref()),
                "userHandle": encoded(&credential.user),
            },
        })
    }
}

impl Client {
    /// The options of a challenge.
    pub async fn passkey_options(&self, purpose: &str) -> Value {
        let answer = self.call("/passkeys/challenge", json!({ "for": purpose })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body
    }

    /// Adds a passkey in a session that was confirmed just now.
    pub async fn add_passkey(&self, label: &str) -> (Credential, Answer) {
        let options = self.passkey_options("add").await;
        let (made, credential) = Authenticator::of(self).create(&options);
        let answer = self.call("/passkeys", json!({ "label": label, "passkey": made })).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        (credential, answer)
    }

    pub async fn assert_passkey(&self, purpose: &str, credential: &Credential) -> Value {
        Authenticator::of(self).get(&self.passkey_options(purpose).await, credential)
    }

    pub async fn login_by_passkey(&self, credential: &Credential) -> Answer {
        let shown = self.assert_passkey("sign-in", credential).await;
        self.call("/passkeys/login", json!({ "passkey": shown })).await
    }
}
