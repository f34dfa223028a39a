//! Codes of an app by the vectors of RFC 6238, and what is sealed.

use super::*;

/// "12345678901234567890", the secret of the RFC's appendix B.
fn secret() -> TotpSecret {
    TotpSecret::of(*b"12345678901234567890")
}

#[test]
fn the_vectors_of_the_rfc_are_right() {
    for (second, code) in [
        (59, "287082"),
        (1_111_111_109, "081804"),
        (1_111_111_111, "050471"),
        (1_234_567_890, "005924"),
        (2_000_000_000, "279037"),
        (20_000_000_000, "353130"),
    ] {
        let at = Micros(second * 1_000_000);
        let code = TotpCode::parse(code).unwrap();
        assert_eq!(secret().step_of(&code, at), Some(second / 30), "{second}");
    }
}

#[test]
fn a_code_is_of_one_step_and_its_neighbours_only() {
    let code = TotpCode::parse("287 082").unwrap();
    let seen = |second: i64| secret().step_of(&code, Micros(second * 1_000_000));
    assert_eq!([seen(0), seen(29), seen(30), seen(89), seen(90)], [Some(1), Some(1), Some(1), Some(1), None]);
}

#[test]
fn what_is_no_code_is_not_read_as_one() {
    for text in ["", "12345", "1234567", "12345a", "١٢٣٤٥", "123456789012"] {
        assert!(TotpCode::parse(text).is_none(), "{text}");
    }
    for text in ["", "abcd", "abcd-efgh-ijkl-mno1", "abcd-efgh-ijkl-mnop-q", "äbcd-efgh-ijkl-mnop"] {
        assert!(RecoveryCode::parse(text).is_none(), "{text}");
    }
}

#[test]
fn a_recovery_code_is_read_as_it_is_shown_and_as_people_type_it() {
    let code = RecoveryCode([0x5a; 10]);
    let shown = code.expose();
    assert_eq!(shown.len(), 19);
    for typed in [shown.clone(), shown.to_uppercase(), shown.replace('-', ""), shown.replace('-', " ")] {
        assert!(RecoveryCode::parse(&typed) == Some(code.clone()), "{typed}");
    }
}

#[test]
fn a_sealed_secret_opens_for_its_account_under_its_key_only() {
    let (entropy, account) = (Entropy::seeded(7), AccountId::from([1; 16]));
    let seal = |key| SecretSeal::new(SubKey::from_bytes([key; 32]));
    let sealed = seal(1).seal(account, &secret(), &entropy);
    assert!(seal(1).open(account, &sealed) == Some(secret()));
    assert!(sealed != seal(1).seal(account, &secret(), &entropy), "two of the same differ");
    assert!(seal(2).open(account, &sealed).is_none(), "another key");
    assert!(seal(1).open(AccountId::from([2; 16]), &sealed).is_none(), "another account's");
    for at in 0..sealed.len() {
        let mut bytes = sealed.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        assert!(changed == sealed || seal(1).open(account, &changed).is_none(), "{at}");
    }
    assert!(seal(1).open(account, "").is_none() && seal(1).open(account, "not base64!").is_none());
}

#[test]
fn a_secret_of_another_system_is_read_as_it_is_written_there() {
    let letters = "GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
    let uri = secret().uri("Shop", "ada");
    for text in [
        letters.to_owned(),
        letters.to_lowercase(),
        "gezd gnbv gy3t qojq gezd gnbv gy3t qojq".to_owned(),
        format!("{letters}===="),
        uri.to_string(),
        format!("{}&algorithm=SHA1&digits=6&period=30&image=x", *uri),
        format!("OTPAUTH://TOTP/ada?secret={}", letters.to_lowercase()),
    ] {
        assert!(TotpSecret::import(&text) == Ok(secret()), "{text}");
    }
    let old = TotpSecret::import("GEZDGNBVGY3TQOJQ").expect("80 bits, as the first apps had");
    assert_eq!(*old.base32(), "GEZDGNBVGY3TQOJQ");
    let (entropy, account) = (Entropy::seeded(7), AccountId::from([1; 16]));
    let seal = SecretSeal::new(SubKey::from_bytes([1; 32]));
    assert!(seal.open(account, &seal.seal(account, &old, &entropy)) == Some(old));
}

#[test]
fn a_secret_whose_codes_would_be_others_is_refused() {
    let with = |more: &str| format!("otpauth://totp/ada?secret=GEZDGNBVGY3TQOJQ{more}");
    for (text, reason) in [
        (with("&algorithm=SHA256"), "must have the algorithm SHA1"),
        (with("&digits=8"), "must have 6 digits"),
        (with("&period=60"), "must have a period of 30 seconds"),
        (with("&secret=GEZDGNBVGY3TQOJQ"), "has more than one secret"),
        ("otpauth://totp/ada?issuer=x".into(), "has no secret"),
        ("otpauth://hotp/ada?secret=GEZDGNBVGY3TQOJQ".into(), "is not of the kind otpauth://totp/"),
        ("GEZDGNBVGY3TQOJ0".into(), "is neither base32 nor an otpauth: address"),
        ("GEZDGNBVGY3TQ".into(), "must have 10 to 64 bytes, which are 16 to 103 letters in base32"),
        (String::new(), "must have 10 to 64 bytes, which are 16 to 103 letters in base32"),
        ("A".repeat(112), "must have 10 to 64 bytes, which are 16 to 103 letters in base32"),
    ] {
        assert_eq!(TotpSecret::import(&text).err(), Some(reason), "{text}");
    }
}

#[test]
fn the_address_for_an_app_escapes_what_it_holds() {
    let uri = secret().uri("Shop & Söhne", "ada lovelace");
    assert_eq!(
        *uri,
        "otpauth://totp/Shop%20%26%20S%C3%B6hne:ada%20lovelace?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
         &issuer=Shop%20%26%20S%C3%B6hne"
    );
}
