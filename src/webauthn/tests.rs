//! The vectors of the standard (Level 3, section 16), an authenticator of our own, and everything that may be wrong with
//! what one says.

use data_encoding::HEXLOWER;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::json;

use super::*;

fn hex(text: &str) -> Vec<u8> {
    HEXLOWER.decode(text.replace(char::is_whitespace, "").as_bytes()).unwrap()
}

fn site() -> RelyingParty {
    RelyingParty { id: "example.org".into(), origin: "https://example.org".into() }
}

const CHALLENGE: &[u8] = b"a challenge of 24 bytes.";

fn client(named: &str) -> Vec<u8> {
    let challenge = URL_SAFE_NO_PAD.encode(CHALLENGE);
    let data = json!({ "type": named, "challenge": challenge, "origin": "https://example.org", "crossOrigin": false });
    data.to_string().into_bytes()
}

fn data(flags: u8, rest: &[u8]) -> Vec<u8> {
    [digest(&SHA256, b"example.org").as_ref(), &[flags], &7_u32.to_be_bytes(), rest].concat()
}

/// The head of an item, with a length of two bytes.
fn head(kind: u8, length: usize) -> Vec<u8> {
    [&[kind << 5 | 25][..], &u16::try_from(length).unwrap().to_be_bytes()].concat()
}

fn bytes(content: &[u8]) -> Vec<u8> {
    [head(2, content.len()), content.to_vec()].concat()
}

/// `{1: 2, 3: -7, -1: 1, -2: x, -3: y}`.
fn p256(point: &[u8]) -> Vec<u8> {
    let (x, y) = point[1..].split_at(32);
    [&[0xa5, 1, 2, 3, 0x26, 0x20, 1, 0x21][..], &bytes(x), &[0x22], &bytes(y)].concat()
}

/// `{1: 1, 3: -8, -1: 6, -2: x}`.
fn ed25519(x: &[u8]) -> Vec<u8> {
    [&[0xa4, 1, 1, 3, 0x27, 0x20, 6, 0x21][..], &bytes(x)].concat()
}

/// `{1: 3, 3: -257, -1: n, -2: e}`.
fn rsa(n: &[u8], e: &[u8]) -> Vec<u8> {
    [&[0xa4, 1, 3, 3, 0x39, 1, 0, 0x20][..], &bytes(n), &[0x21], &bytes(e)].concat()
}

fn attested(id: &[u8], key: &[u8]) -> Vec<u8> {
    [&[9; 16][..], &u16::try_from(id.len()).unwrap().to_be_bytes(), id, key].concat()
}

/// `{"fmt": "none", "attStmt": {}, "authData": data}`.
fn object(data: &[u8]) -> Vec<u8> {
    [&b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData"[..], &bytes(data)].concat()
}

const VERIFIED: u8 = USER_PRESENT | USER_VERIFIED;

fn register(data: &[u8]) -> Result<NewCredential, PasskeyFault> {
    site().register(CHALLENGE, &client("webauthn.create"), &object(data))
}

fn pair() -> EcdsaKeyPair {
    let (random, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_ASN1_SIGNING);
    let document = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(kind, document.as_ref(), &random).unwrap()
}

fn signed(pair: &EcdsaKeyPair, data: &[u8], client: &[u8]) -> Vec<u8> {
    let message = [data, digest(&SHA256, client).as_ref()].concat();
    pair.sign(&SystemRandom::new(), &message).unwrap().as_ref().to_vec()
}

#[test]
fn the_vectors_of_the_standard_are_read_and_verified() {
    // "ES256 Credential with Self Attestation": the user is verified when it is made, not when it is used.
    let challenge = hex("7869c2b772d4b58eba9378cf8f29e26cf935aa77df0da89fa99c0bdc0a76f7e5");
    let client = hex("7b2274797065223a22776562617574686e2e637265617465222c226368616c6c656e6765223a2265476e4374334c55745936
        366b336a506a796e6962506b31716e666644616966715a774c33417032392d55222c226f726967696e223a2268747470733a2f2f6578616d70
        6c652e6f7267222c2263726f73734f726967696e223a66616c73652c22657874726144617461223a22636c69656e74446174614a534f4e206d
        617920626520657874656e6465642077697468206164646974696f6e616c206669656c647320696e20746865206675747572652c2073756368
        20617320746869733a205539685458764b453255526b4d6e625f307859485667227d");
    let object = hex("a363666d74667061636b65646761747453746d74a263616c672663736967584630440220067a20754ab925005dbf378097c9
        2120031581c73228d1fb4f5b881bcd7da98302207fc7b147558c7c0eba3af18bd9d121fa3d3a26d17fe3f220272178f473b6006d6861757468
        4461746158a4bfabc37432958b063360d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b55d00000000df850e09db6afbdfab5169779150
        6cfc0020455ef34e2043a87db3d4afeb39bbcb6cc32df9347c789a865ecdca129cbef58ca5010203262001215820eb151c8176b225cc651559
        fecf07af450fd85802046656b34c18f6cf193843c5225820927b8aa427a2be1b8834d233a2d34f61f13bfd44119c325d5896e183fee484f2");
    let made = site().register(&challenge, &client, &object).unwrap();
    assert_eq!(made.aaguid.to_vec(), hex("df850e09db6afbdfab51697791506cfc"));
    assert_eq!(made.id, hex("455ef34e2043a87db3d4afeb39bbcb6cc32df9347c789a865ecdca129cbef58c"));
    assert_eq!((made.algorithm, made.sign_count, made.backed_up), (-7, 0, true));
    let challenge = hex("4478a10b1352348dd160c1353b0d469b5db19eb91c27f7dfa6fed39fe26af20b");
    let data = hex("bfabc37432958b063360d3ad6461c9c4735ae7f8edd46592a5e0f01452b2e4b50900000000");
    let client = hex("7b2274797065223a22776562617574686e2e676574222c226368616c6c656e6765223a225248696843784e534e493352594d
        45314f7731476d3132786e726b634a5f6666707637546e2d4a71386773222c226f726967696e223a2268747470733a2f2f6578616d706c652e
        6f7267222c2263726f73734f726967696e223a66616c73652c22657874726144617461223a22636c69656e74446174614a534f4e206d617920
        626520657874656e6465642077697468206164646974696f6e616c206669656c647320696e20746865206675747572652c2073756368206173
        20746869733a206754623533727a36456853576f6d58477a696d433151227d");
    let signature = hex(
        "304402203310b9431903c401f1be2bdc8d23a4007682dbbddcf846994947b7f465daf84002204e94dd00047b316061b3
        b99772b7efd95994a83ef584b3b6b825ea3550251b66",
    );
    let key = StoredKey { algorithm: made.algorithm, public_key: &made.public_key };
    let used = site().assert(&challenge, key, &client, &data, &signature);
    assert_eq!(used, Err(PasskeyFault::NotVerified));
    key.verify(&[&data, digest(&SHA256, &client).as_ref()].concat(), &signature).unwrap();
}

#[test]
fn keys_of_each_algorithm_verify_what_other_software_signed() {
    let n = hex("b2d9cfd66d0cd7eabf7e47c13bfe0641b4e81e2bf710e16d97656871d17b329af0049e39682576c57fbccb156d0134d57a0723933dbc
        37f6f73c8c0524f4658c81f5d45128ffd805f58eddf95c4356e9696ba8380a906403c86627ee9294aec55ec8e97dc706f646707ab5fdef31a7
        832846ae2ad29fd8c48dd7066395c9a4a70833f40267fcf425fd65441b2de3112f6c5fefbf5de3e5022bf4282b344d0a28de396d86211d0cd5
        01ad4d61d0b77a32d46a244529fccb6b3e72bd14f92f928bc7052c26f3267c766cbbd0565009ddc0e41a66042924009e37b21983c85f0f7df0
        090dff8c70c256094c8bc9d1bc548caaa7186fd618604eb8b39444e7c3d007");
    let signature = hex("6b0df2c063e233c9f7de6a9fd6af30a43a2b36ccab850aa0b06d42fd698df695a72d2e552699c1f64573a3d81cff653b4e13
        0a9d4b5da2cb36dd4a356142ae3597722a5aba532d57bf2426a88fae2f67c0df8e8e6f9834deb9b439a978c35881cd85280886685dd2db201f
        a20867da550553cc976d1c6064e7e7e04433c4f909e9b74872d80587c435cee3347733c7d7da847f4e13d4d50899a6b14c2ca85ca2b73ddb37
        9a1084865846f5744af3d1ec4469a2a22de9d8327f228d2c67ba2b32e137f8d39a5b85e0b3b8f4ab982d162c8fdfe4566a456fd33bd74fd8f1
        0de28759ca3caef06d066ef6e867f1b78df651c02f5edd935cbdaf53231fd559f5d35b");
    let x = hex("03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8");
    let by_x = hex("a4b35e4213363532b4e38c0d9e47feff8e344e72bbbd64382cbee05b8304881ffabb287984abd500294ee0c97dd1735de81dcf3b
        d37fdeee9b83d56662b4fc0d");
    for (cose, signature) in [(rsa(&n, &EXPONENT), signature), (ed25519(&x), by_x)] {
        let made = register(&data(VERIFIED | ATTESTED, &attested(b"id", &cose))).unwrap();
        let key = StoredKey { algorithm: made.algorithm, public_key: &made.public_key };
        assert_eq!(key.verify(b"passkeys", &signature), Ok(()));
        assert_eq!(key.verify(b"passkey", &signature), Err(PasskeyFault::Signature));
    }
    let pair = Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap();
    let key = StoredKey { algorithm: -7, public_key: pair.public_key().as_ref() };
    assert_eq!(
        key.verify(b"", pair.sign(b"").as_ref()),
        Err(PasskeyFault::Signature),
        "of another algorithm"
    );
}

const EXPONENT: [u8; 3] = [1, 0, 1];

#[test]
fn no_byte_of_an_assertion_can_be_another() {
    let pair = pair();
    let made =
        register(&data(VERIFIED | ATTESTED, &attested(b"id", &p256(pair.public_key().as_ref())))).unwrap();
    let key = StoredKey { algorithm: made.algorithm, public_key: &made.public_key };
    let (client, data) = (client("webauthn.get"), data(VERIFIED | MAY_BE_BACKED_UP | BACKED_UP, &[]));
    let signature = signed(&pair, &data, &client);
    let parts = [client, data, signature];
    let used = |parts: &[Vec<u8>; 3]| site().assert(CHALLENGE, key, &parts[0], &parts[1], &parts[2]);
    assert_eq!(used(&parts), Ok(Asserted { sign_count: 7, backed_up: true }));
    for part in 0..parts.len() {
        for at in 0..parts[part].len() {
            for change in [0x01, 0x20, 0x80, 0xff] {
                let mut changed = parts.clone();
                changed[part][at] ^= change;
                assert!(used(&changed).is_err(), "part {part}, byte {at}, {change:#x}");
            }
            let mut shorter = parts.clone();
            shorter[part].truncate(at);
            assert!(used(&shorter).is_err(), "part {part}, cut at {at}");
        }
        let mut longer = parts.clone();
        longer[part].push(b' ');
        assert!(used(&longer).is_err(), "part {part}, longer");
    }
}

#[test]
fn each_condition_is_refused_by_its_name() {
    let pair = pair();
    let public = pair.public_key().as_ref();
    let key = StoredKey { algorithm: -7, public_key: public };
    let good = data(VERIFIED, &[]);
    let asserted = |site: RelyingParty, client: &[u8], data: &[u8]| {
        site.assert(CHALLENGE, key, client, data, &signed(&pair, data, client)).unwrap_err()
    };
    let get = client("webauthn.get");
    let said = |change: (&str, &str)| {
        String::from_utf8(get.clone()).unwrap().replace(change.0, change.1).into_bytes()
    };
    let of_client = |change| asserted(site(), &said(change), &good);
    assert_eq!(of_client(("webauthn.get", "webauthn.create")), PasskeyFault::WrongType);
    assert_eq!(of_client(("webauthn.get", "payment.get")), PasskeyFault::WrongType);
    assert_eq!(of_client(("example.org", "example.org.evil")), PasskeyFault::WrongOrigin);
    assert_eq!(of_client(("https://", "http://")), PasskeyFault::WrongOrigin);
    assert_eq!(of_client(("false", "true")), PasskeyFault::CrossOrigin);
    assert_eq!(of_client(("\"challenge\":\"Y", "\"challenge\":\"Z")), PasskeyFault::WrongChallenge);
    assert_eq!(of_client(("\"challenge\":\"Y", "\"challenge\":\"=")), Malformed("challenge"));
    assert_eq!(of_client(("{", "{\"type\":\"webauthn.get\",")), Malformed("clientDataJSON"), "twice");
    let of_data = |flags, rest: &[u8]| asserted(site(), &get, &data(flags, rest));
    assert_eq!(of_data(USER_VERIFIED, &[]), PasskeyFault::NotPresent);
    assert_eq!(of_data(USER_PRESENT, &[]), PasskeyFault::NotVerified);
    let malformed = Malformed("authenticatorData");
    assert_eq!(of_data(VERIFIED | BACKED_UP, &[]), malformed, "backed up, and cannot be");
    assert_eq!(of_data(VERIFIED | EXTENSIONS, &[]), malformed);
    assert_eq!(of_data(VERIFIED | EXTENSIONS, &[0x80]), malformed, "no map");
    assert_eq!(of_data(VERIFIED, &[0xa0]), malformed, "more than it says");
    assert_eq!(of_data(VERIFIED | ATTESTED, &[]), malformed);
    let parent = RelyingParty { id: "org".into(), ..site() };
    assert_eq!(asserted(parent, &get, &good), PasskeyFault::WrongRp);
    let below = RelyingParty { id: "example.org".into(), origin: "https://accounts.example.org".into() };
    assert_eq!(asserted(below.clone(), &get, &good), PasskeyFault::WrongOrigin);
    let there = said(("https://", "https://accounts."));
    assert!(below.assert(CHALLENGE, key, &there, &good, &signed(&pair, &good, &there)).is_ok());
    let unknown = StoredKey { algorithm: -37, ..key };
    assert_eq!(site().assert(CHALLENGE, unknown, &get, &good, &[]).unwrap_err(), PasskeyFault::Algorithm);
    // Extensions that nobody asked for are no fault.
    let extended = data(VERIFIED | EXTENSIONS, b"\xa1\x67appidjs\xf5");
    assert!(site().assert(CHALLENGE, key, &get, &extended, &signed(&pair, &extended, &get)).is_ok());
}

#[test]
fn a_new_key_is_one_of_those_asked_for() {
    let made =
        |key: &[u8]| register(&data(VERIFIED | ATTESTED, &attested(b"id", key))).map(|made| made.algorithm);
    let malformed = Err(Malformed("the public key"));
    let point = [[4; 33], [5; 33]].concat();
    let p256 = p256(&point[..65]);
    assert_eq!(made(&p256), Ok(-7));
    let changed = |at: usize, byte: u8| {
        let mut changed = p256.clone();
        changed[at] = byte;
        made(&changed)
    };
    assert_eq!(changed(2, 3), Err(PasskeyFault::Algorithm), "the kind of another");
    assert_eq!(changed(4, 0x25), Err(PasskeyFault::Algorithm), "-6");
    assert_eq!(changed(6, 2), malformed, "P-384");
    assert_eq!(changed(5, 1), malformed, "a label twice");
    let short = self::p256(&point[..64]);
    assert_eq!(made(&short), malformed);
    assert_eq!(made(&ed25519(&[1; 33])), malformed);
    assert_eq!(made(&ed25519(&[1; 32])), Ok(-8));
    let modulus = [1; 256];
    assert_eq!(made(&rsa(&modulus, &EXPONENT)), Ok(-257));
    assert_eq!(made(&rsa(&modulus[1..], &EXPONENT)), malformed, "2,040 bits");
    assert_eq!(made(&rsa(&[0; 257], &EXPONENT)), malformed);
    assert_eq!(made(&rsa(&modulus, &[3])), malformed);
}

#[test]
fn what_is_too_short_too_deep_or_endless_is_refused() {
    let key = p256(&[4; 65]);
    let good = data(VERIFIED | ATTESTED, &attested(b"id", &key));
    assert!(register(&good).is_ok());
    let whole = object(&good);
    let create = client("webauthn.create");
    for end in 0..whole.len() {
        assert!(site().register(CHALLENGE, &create, &whole[..end]).is_err(), "{end}");
    }
    assert!(register(&data(VERIFIED, &[])).is_err(), "no key");
    assert!(register(&data(VERIFIED | ATTESTED, &attested(&[], &key))).is_err(), "no id");
    assert!(register(&data(VERIFIED | ATTESTED, &attested(&[1; 1_023], &key))).is_ok());
    assert!(register(&data(VERIFIED | ATTESTED, &attested(&[1; 1_024], &key))).is_err());
    let skipped = |bytes: &[u8]| Reader::new(bytes).skip().map(<[u8]>::len);
    assert_eq!(skipped(&[0x81, 0x81, 0x81, 0x81, 0x00]), Some(5));
    assert_eq!(skipped(&[0x81, 0x81, 0x81, 0x81, 0x81, 0x00]), None, "deeper than any");
    assert_eq!(skipped(&[0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00]), None, "2^64 items");
    assert_eq!(skipped(&[0xbb, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00]), None, "2^64 entries");
    assert_eq!(skipped(&[0x5b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00]), None, "2^64 bytes");
    assert_eq!(skipped(&[0x5f, 0x41, 0x00, 0xff]), None, "no length told");
    assert_eq!(skipped(&[0xc0, 0x00]), None, "a tag");
    assert_eq!(skipped(&[0x61, 0xff]), None, "no UTF-8");
    assert_eq!(skipped(&[0xfb, 0, 0, 0, 0, 0, 0, 0, 0]), Some(9), "a number with a fraction");
}
