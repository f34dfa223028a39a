//! What an authenticator says is read or refused, and never a panic or an endless loop: a key that is accepted is one of
//! those asked for, and verifies nothing that was not signed.
#![no_main]

use gatehouse::webauthn::{ALGORITHMS, RelyingParty, StoredKey, challenge_of};
use libfuzzer_sys::fuzz_target;

const CREATE: &[u8] =
    br#"{"type":"webauthn.create","challenge":"AAAA","origin":"https://example.org","crossOrigin":false}"#;
const GET: &[u8] =
    br#"{"type":"webauthn.get","challenge":"AAAA","origin":"https://example.org","crossOrigin":false}"#;

fuzz_target!(|bytes: &[u8]| {
    let site = RelyingParty { id: "example.org".into(), origin: "https://example.org".into() };
    let _ = challenge_of(bytes);
    // The hash of the domain is no guess, so it is put where it belongs.
    let domain = b"\xbf\xab\xc3\x74\x32\x95\x8b\x06\x33\x60\xd3\xad\x64\x61\xc9\xc4\x73\x5a\xe7\xf8\xed\xd4\x65\x92\
        \xa5\xe0\xf0\x14\x52\xb2\xe4\xb5";
    let data = [&domain[..], bytes].concat();
    let length = u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes();
    let object = [&b"\xa3\x63fmt\x64none\x67attStmt\xa0\x68authData\x59"[..], &length, &data].concat();
    for object in [&object[..], bytes] {
        let Ok(made) = site.register(&[0; 3], CREATE, object) else { continue };
        assert!(ALGORITHMS.contains(&made.algorithm) && !made.id.is_empty() && !made.public_key.is_empty());
        let key = StoredKey { algorithm: made.algorithm, public_key: &made.public_key };
        assert!(site.assert(&[0; 3], key, GET, &data[..37], bytes).is_err());
    }
});
