//! Public keys as authenticators tell them (COSE, RFC 9053), and the signatures that they verify.

use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};

use super::PasskeyFault::{self, Algorithm, Malformed};
use super::cbor::{Item, Reader};

const ES256: i64 = -7;
const EDDSA: i64 = -8;
const RS256: i64 = -257;

/// The algorithms that are asked for, the best liked first. RS256 is for Windows Hello.
pub const ALGORITHMS: [i64; 3] = [ES256, EDDSA, RS256];

/// The exponent of every RSA key: none uses another.
const EXPONENT: [u8; 3] = [1, 0, 1];

#[derive(Debug, Clone, Copy)]
pub struct StoredKey<'a> {
    pub algorithm: i64,
    /// A point of P-256 (uncompressed) or of Ed25519, or the modulus of an RSA key.
    pub public_key: &'a [u8],
}

impl StoredKey<'_> {
    pub fn verify(self, message: &[u8], signature: &[u8]) -> Result<(), PasskeyFault> {
        let key = self.public_key;
        let verified = match self.algorithm {
            ES256 => UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key).verify(message, signature),
            EDDSA => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
            RS256 => {
                let key = RsaPublicKeyComponents { n: key, e: &EXPONENT[..] };
                key.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            _ => return Err(Algorithm),
        };
        verified.map_err(|_| PasskeyFault::Signature)
    }
}

/// The algorithm, and the key as [`StoredKey`] has it.
pub fn parse(cose: &[u8]) -> Result<(i64, Vec<u8>), PasskeyFault> {
    let key = Fields::read(cose).ok_or(Malformed("the public key"))?;
    let bytes = match (key.kind, key.algorithm) {
        (2, ES256) => key.p256(),
        (1, EDDSA) => key.ed25519(),
        (3, RS256) => key.rsa(),
        _ => return Err(Algorithm),
    };
    let bytes = bytes.ok_or(Malformed("the public key"))?;
    Ok((key.algorithm, bytes))
}

/// The labels 1 (`kty`), 3 (`alg`), -1, -2 and -3, whose meaning depends on the first.
struct Fields<'a> {
    kind: i64,
    algorithm: i64,
    parameters: [Option<Item<'a>>; 3],
}

impl<'a> Fields<'a> {
    fn read(cose: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(cose);
        let Item::Map(entries) = reader.item()? else { return None };
        let (mut kind, mut algorithm, mut parameters) = (None, None, [None; 3]);
        for _ in 0..entries {
            let Item::Integer(label) = reader.item()? else { return None };
            let slot = match label {
                1 => &mut kind,
                3 => &mut algorithm,
                -1 => &mut parameters[0],
                -2 => &mut parameters[1],
                -3 => &mut parameters[2],
                _ => {
                    reader.skip()?;
                    continue;
                }
            };
            if slot.replace(reader.item()?).is_some() {
                return None;
            }
        }
        match (kind?, algorithm?) {
            (Item::Integer(kind), Item::Integer(algorithm)) => {
                reader.is_empty().then_some(Self { kind, algorithm, parameters })
            }
            _ => None,
        }
    }

    fn bytes(&self, parameter: usize) -> Option<&'a [u8]> {
        if let Some(Item::Bytes(bytes)) = self.parameters[parameter] { Some(bytes) } else { None }
    }

    fn on_curve(&self, curve: i64) -> Option<()> {
        (self.parameters[0] == Some(Item::Integer(curve))).then_some(())
    }

    fn p256(&self) -> Option<Vec<u8>> {
        self.on_curve(1)?;
        let (x, y) = (self.bytes(1)?, self.bytes(2)?);
        (x.len() == 32 && y.len() == 32).then(|| [&[4], x, y].concat())
    }

    fn ed25519(&self) -> Option<Vec<u8>> {
        self.on_curve(6)?;
        let x = self.bytes(1)?;
        (x.len() == 32).then(|| x.to_vec())
    }

    fn rsa(&self) -> Option<Vec<u8>> {
        let (n, e) = (self.bytes(0)?, self.bytes(1)?);
        let fits = (256..=1_024).contains(&n.len()) && n.first() != Some(&0) && e == EXPONENT;
        fits.then(|| n.to_vec())
    }
}
