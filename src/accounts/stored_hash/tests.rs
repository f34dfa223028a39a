use super::*;

/// The password of every vector below.
const PASSWORD: &str = "correct horse";

/// Made by argon2-cffi, passlib, Django, pyca/bcrypt and libxcrypt ($2y$).
const VECTORS: [&str; 14] = [
    "$argon2id$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$1fXEoXnOeHMsgTtQJoodBe7ITVpx8YGfeCPC5uA9fjw",
    "$argon2i$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$BZcmCWSWXk2RPIA4uUXaks5U+arJLO0hMaMRSyypft0",
    "$argon2d$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$VWEgMK9jo6mCaXepL+fqACRHb2Iv129qD7E0t1sq10k",
    "$argon2id$v=19$m=64,t=1,p=4$c2l4dGVlbiBieXRlcyAhIQ$oJkpThIvCs1gF5KSEkHRUA",
    "$argon2i$v=16$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$9g7tXJXZ6G3l7OKxhHaWQOzZASWcFce2YFs35r6mIRI",
    "$scrypt$ln=4,r=8,p=1$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud/EKGFGPMqWK6wR024ss",
    "$scrypt$ln=4,r=2,p=3$ck4JIUTIeU8phXCuFQLAuA$5RGhuS9hjG+hodp5DJetz0CCNLkHKQNml+U7iGd9Xp4",
    "$pbkdf2-sha256$3$jbE25nyvtbYWohTinBNiTA$nVMjarJS5pvHnk8LKQl4pZJ2q8IUgadNP0lpqTcGGqI",
    "$pbkdf2-sha256$i=3,l=32$jbE25nyvtbYWohTinBNiTA$nVMjarJS5pvHnk8LKQl4pZJ2q8IUgadNP0lpqTcGGqI",
    "$pbkdf2-sha512$3$sbZ2TqnVGsN4j/F.T2kN4Q$2bMm01mhTjEiIghlCFQ0JbN9Gm6be0nDe6TgvWWjCtqVn8.uJVWNMHYFcaOzbjsvd8zOhd/neDGaUN8hHMhq5w",
    "pbkdf2_sha256$3$saltsaltsalt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg=",
    "$2a$04$yiEpz7noaviufPe4rtbb/OSYgZX0jHRh/XH5lDcCqoGC55Ml2ItEq",
    "$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6",
    "$2y$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e",
];

fn matches(hash: &str, password: &[u8]) -> bool {
    let StoredHash { function, salt, output, .. } = StoredHash::parse_imported(hash).unwrap();
    let mut memory = vec![argon2::Block::new(); function.blocks()];
    function.compute(password, &salt, output.len(), &mut memory) == output
}

#[test]
fn hashes_of_other_implementations_match_their_password_only() {
    for hash in VECTORS {
        assert!(matches(hash, PASSWORD.as_bytes()), "{hash}");
        for wrong in ["correct hors", "correct horse ", "Correct horse", ""] {
            assert!(!matches(hash, wrong.as_bytes()), "{hash} {wrong}");
        }
    }
}

#[test]
fn bcrypt_reads_72_bytes_as_it_always_did() {
    let hash = "$2b$04$m47uQs186nxd9UtrPHZgDebeRBGw5xRP2Wdw71szb58E.jzDEvzcC";
    let beginning = format!("{}y", "x".repeat(71));
    for (tail, same) in [("z and more", true), ("", true), ("something else", true)] {
        assert_eq!(matches(hash, format!("{beginning}{tail}").as_bytes()), same, "{tail}");
    }
    assert!(!matches(hash, "x".repeat(71).as_bytes()));
}

#[test]
fn a_password_with_a_nul_matches_no_bcrypt_hash() {
    // What stops reading at the NUL would take it for the right one.
    assert!(!matches(VECTORS[12], format!("{PASSWORD}\0anything").as_bytes()));
    assert!(!matches(VECTORS[12], format!("{PASSWORD}\0").as_bytes()));
}

#[test]
fn letters_are_hashed_as_they_were_typed() {
    let hash = "$2b$04$VMPBwW3vfZwSgnXGGlOVvuqCBSCJkz8k4hgZ.t/geGLX71YmPUrSC";
    assert!(matches(hash, "contraseña 密码 e\u{301}".as_bytes()));
    assert!(!matches(hash, "contraseña 密码 é".as_bytes()));
}

fn refused(hash: &str) -> ImportedHashError {
    match StoredHash::parse_imported(hash) {
        Ok(_) => panic!("{hash} was taken"),
        Err(error) => error,
    }
}

#[test]
fn parameters_beyond_the_bounds_are_refused() {
    const ARGON2: &str = "c2l4dGVlbiBieXRlcyAhIQ$1fXEoXnOeHMsgTtQJoodBe7ITVpx8YGfeCPC5uA9fjw";
    for params in ["m=65537,t=1,p=1", "m=65536,t=5,p=1", "m=8,t=4294967295,p=1", "m=800,t=1,p=17"] {
        let error = refused(&format!("$argon2id$v=19${params}${ARGON2}"));
        assert_eq!(error, ImportedHashError::Argon2, "{params}");
    }
    assert!(
        StoredHash::parse_imported(&format!("$argon2id$v=19$m=65536,t=4,p=1${ARGON2}")).is_ok(),
        "PHP's default"
    );
    const SCRYPT: &str = "B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud/EKGFGPMqWK6wR024ss";
    for params in
        ["ln=18,r=8,p=1", "ln=17,r=9,p=1", "ln=17,r=8,p=2", "ln=63,r=1,p=1", "ln=255,r=8,p=1", "ln=0,r=8,p=1"]
    {
        assert_eq!(refused(&format!("$scrypt${params}${SCRYPT}")), ImportedHashError::Scrypt, "{params}");
    }
    for params in ["ln=1,r=0,p=1", "ln=1,r=1,p=0", "ln=10,r=4294967295,p=4294967295"] {
        assert_eq!(refused(&format!("$scrypt${params}${SCRYPT}")), ImportedHashError::Scrypt, "{params}");
    }
    assert!(
        StoredHash::parse_imported(&format!("$scrypt$ln=17,r=8,p=1${SCRYPT}")).is_ok(),
        "OWASP's strongest"
    );
    let bcrypt = |cost| format!("$2b${cost}$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6");
    for cost in ["00", "03", "15", "31", "99"] {
        assert_eq!(refused(&bcrypt(cost)), ImportedHashError::Bcrypt, "{cost}");
    }
    assert!(StoredHash::parse_imported(&bcrypt("14")).is_ok());
    for (iterations, taken) in [("0", false), ("2000000", true), ("2000001", false), ("4294967295", false)] {
        let hash =
            format!("pbkdf2_sha256${iterations}$saltsaltsalt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg=");
        assert_eq!(StoredHash::parse_imported(&hash).is_ok(), taken, "{iterations}");
    }
}

#[test]
fn what_is_no_hash_is_refused_by_its_reason() {
    use ImportedHashError::{Damaged, Format, Output, Salt};
    for (hash, reason) in [
        ("", Format),
        ("hunter2", Format),
        ("5f4dcc3b5aa765d61d8327deb882cf99", Format),
        ("$2$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6", Format),
        ("$2x$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6", Format),
        ("$6$salt$hash", Format),
        ("imported$00001$0001$$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6", Format),
        ("$2b$4$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6", Damaged),
        ("$2b$+4$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6", Damaged),
        ("$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc", Damaged),
        ("$2b$04$9GAjsXD.2ikRqsIemgkUBe4fAvHKSR3hpyOBv/UIWlB5zhv88oRc66", Damaged),
        ("$2b$04$9GAjsXD.2ikRqsIemgkUBé4fAvHKSR3hpyOBv/UIWlB5zhv88oRc6", Damaged),
        ("$argon2id$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ", Damaged),
        ("$argon2id$v=19$m=64,t=0,p=1$c2l4dGVlbiBieXRlcyAhIQ$AAAAAAAAAAAAAAAAAAAAAA", Damaged),
        ("$scrypt$ln=4,r=8$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud", Damaged),
        ("$scrypt$ln=4,r=8,p=1,x=1$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud", Damaged),
        ("$scrypt$ln=4,r=8,p=-1$B2CslTIm5HwPYexday2FsA$pFh5nsACIsxx78Hif1QJlCud", Damaged),
        (
            "$pbkdf2-sha256$i=3,l=31$jbE25nyvtbYWohTinBNiTA$nVMjarJS5pvHnk8LKQl4pZJ2q8IUgadNP0lpqTcGGqI",
            Damaged,
        ),
        ("$pbkdf2-sha256$3$jbE25nyvtbYWohTinBNiTA$nVMja!", Damaged),
        ("pbkdf2_sha256$$saltsaltsalt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg=", Damaged),
        ("pbkdf2_sha256$3$salt$/YtbtpFO9qZpGwawxMfTioK8PTH3oHQCEIStXnku4gg=", Salt),
        ("pbkdf2_sha256$3$saltsaltsalt$/YtbtpFO9qY=", Output),
    ] {
        assert_eq!(refused(hash), reason, "{hash}");
    }
    assert_eq!(refused(&"$".repeat(10_000_000)), Format);
}

#[test]
fn damaged_hashes_panic_nowhere() {
    // Each vector with each letter left out, doubled or replaced.
    for hash in VECTORS {
        for at in 0..hash.len() {
            let (before, after) = hash.split_at(at);
            let letter = &after[..1];
            for changed in ["", "$", "=", "9", "é", &letter.repeat(2)] {
                let _ = StoredHash::parse_imported(&format!("{before}{changed}{}", &after[1..]));
            }
        }
    }
}
