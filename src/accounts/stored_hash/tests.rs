use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::*;

/// The password of every vector below.
const PASSWORD: &str = "correct horse";

/// Made by argon2-cffi, passlib, Django 5.2, Werkzeug 3.1, pyca/bcrypt, libxcrypt 4.4 (`$2y$`, `$5$`, `$6$`, `$y$`), Dovecot
/// (`{…}`), and by the lines of WordPress 6.8 on PHP 8.2 (`$wp$`).
const VECTORS: &[&str] = &[
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
    "argon2$argon2id$v=19$m=64,t=2,p=2$dlNTRWhMRkdMdFVTTkV6UGlvTDhnNQ$EqJ3kNkFmMgxRbMoh5VW2LIfPI2IDH5EmVzIxJBvSuo",
    "bcrypt_sha256$$2b$04$O5FR/zVg1qMDhoZ9/WxtreSkq/YY.a2WOiuKCDMNEniJT08N1hf.m",
    "bcrypt$$2b$04$DVwbhRf2fH2E.PAP/DFx3egVCx.Z9Lvkt9vnfuycxQsDMLM8W4rqG",
    "scrypt$16$wfVmeQT4GdtbQhhDiqLl8m$8$5$m1aBt1k3w5Zr5m6YqrY1h37H6EaTHAaYIHJ1R8QphTCHRL2/vmdAUHevEwo0PN7UokKiprH2y9npUECuxZsN+Q==",
    "pbkdf2_sha1$3$saltsaltsalt$Km0nLE0KqnXqz9pMk4yyE1hZY8k=",
    "scrypt:1024:8:1$8PFMjg4xm9TnzPuf$076f48e4b4fb6afee8fd219749904050affb88fc625c04a4e2811077936f3e79258a37b98fa2710b57daed67f0745b21527d3afb4841c94ce271f8ec5fa559a7",
    "pbkdf2:sha256:3$yBc7P86HWo1uPGcn$ca0e613126e705df0ecada99a4b8279555a1f37110f31ff6569a8a9ed4c3bff8",
    "pbkdf2:sha512:3$VTFi9z36ibwR5ps2$b813f04062605e03b8e2798617df387fca8d73c2ee6b5f5df30133bfd503e4b214a57b02d04aa754e7e4a45b6e1376949810721df2b950cb719678fd6d2bf643",
    "pbkdf2:sha1:3$XswX0YfqlhfKbqhd$5d9d36a0d94c6541264ba1962b20dedc1a4baae8",
    "$pbkdf2$3$lVIqpTSG8L43JsSYk7KWcg$6ZuTxBy.5aFr2kKf1W.RI.O7PfA",
    "$P$52XbcV.oR4pwKfm3LBXFgYQIlPDwZL.",
    "$H$5mfyZKH2Ogm967.uRH1BAMcd8lvWwy.",
    "$wp$2y$04$XkNXLcQti/yBfWzA1LJdK.JGvpBGdTkEEqvuhv.x3Q9pSHRmq0rt.",
    "$5$abcdefgh$ruMep1ijHnJPZbETDNiumskxcX3kN4lzZd5VlsqE7eB",
    "$5$rounds=1000$0123456789abcdef$nR1521U8IXcSFtheYoCuDMlX/ICPi621L7rO.MJ27x2",
    "$6$abcdefgh$yIZAF3gQPvtKZO/9qOJKffAKKbtS3ef3qmwyugk4uWVjX8YZf/GV3A8SkFxEPY0T56CcilGrHKLffBsp6dLMG.",
    "$6$rounds=1000$0123456789abcdef$GaScwcscdzvyk7gzZmxXAHiJAYBdSzwVcphgrsQJGOjgOegLlrTs5rVDD6z0u4r1gcbw2MjFIR1AQnAH5uLeW0",
    "$y$j75$abcdefghijklmnopqrstu.$qCj3FJAOxenL84GhXQA.5yo90njyP/oqBzssCfadkhA",
    "{SSHA}adrk8txUzDwIv/fXCATG+nV3fGLqyiHa",
    "{SSHA256}w14elXJbSJuLsTF+sCEdvnGjSgRf4IeQl9Jb4Z1ZaMafpLts",
    "{SSHA512}9EHTVbRojXp6ORkQBKXcghH1MIbBpB9yst3oqt0Q2fEq2p0DAyG88clKerfXJiSIbqdXANXUcrzQIU/hDq/D4U4SioY=",
    "{SHA512-CRYPT}$6$rounds=1000$5HzI3sAJX6150Bav$yTuBoJwxbBd3PIqpSx8Ee8xVYZAogvJ8CaAPqVZmajK4SzJnL7a4ygjMAhsT//SQMUkv6mjVQ4D3tWQkVP0qS/",
    "{BLF-CRYPT}$2y$05$6LNoAl6izgC2pOOUz0SCA.E7MvZScFDLdJqS1UmuVctvymrJNjacG",
    "{PBKDF2}$1$WBDiganyj4WDAnav$5$952d256ec9c9e7dc8c647abeb2c1cf85db64e87f",
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
        for wrong in ["correct hors", "correct horse.", "Correct horse", ""] {
            assert!(!matches(hash, wrong.as_bytes()), "{hash} {wrong}");
        }
    }
}

/// Published by those who made the function, each with its password: firebase/scrypt (README), ASP.NET Core
/// (PasswordHasherTest), phpass (test.php), crypt(3)'s SHA-crypt (Drepper), and yescrypt's default by libxcrypt.
const PUBLISHED: [(&str, &str); 9] = [
    (
        "user1password",
        "$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==,sk=jxspr8Ki0RYycVU8zykbdLGjFQ3McFUH0uiiTvC8pVMXAn210wjLNmdZJzxUECKbm0QsEmYUSDzZvpjeJ9WmXA==$42xEC+ixf3L2lw==$lSrfV15cpx95/sZS2W9c9Kp6i/LVgQNDNC/qzrCnh1SAyZvqmZqAjTdn3aoItz+VHjoZilo78198JAdRuid5lQ==",
    ),
    ("my password", "ANXrDknc7fGPpigibZXXZFMX4aoqz44JveK6jQuwY3eH/UyPhvr5xTPeGYEckLxz9A=="),
    ("my password", "AQAAAAIAAAAyAAAAEOMwvh3+FZxqkdMBz2ekgGhwQ4B6pZWND6zgESBuWiHw"),
    (
        "my password",
        "AQAAAAIAAAD6AAAAIJbVi5wbMR+htSfFp8fTw8N8GOS/Sje+S/4YZcgBfU7EQuqv4OkVYmc4VJl9AGZzmRTxSkP7LtVi9IWyUxX8IAAfZ8v+ZfhjCcudtC1YERSqE1OEdXLW9VukPuJWBBjLuw==",
    ),
    ("my password", "AQAAAAAAAAD6AAAAEAhftMyfTJylOlZT+eEotFXd1elee8ih5WsjXaR3PA9M"),
    ("my password", "AQAAAAEAACcQAAAAEAABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw=="),
    ("test12345", "$P$9IQRaTwmfeRo7ud9Fh4E2PdI0S3r.L0"),
    (
        "Hello world!",
        "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1",
    ),
    ("correct horse", "$y$j9T$abcdefghijklmnopqrstu.$pk06PwnbQa631foWNYhw6N.E9wx6lICleH/SnT.xzi0"),
];

#[test]
fn published_hashes_match_their_password_only() {
    for (password, hash) in PUBLISHED {
        assert!(matches(hash, password.as_bytes()), "{hash}");
        assert!(!matches(hash, format!("{password}.").as_bytes()), "{hash}");
    }
}

#[test]
fn a_hash_of_firebase_without_the_key_of_its_project_is_the_same_hash() {
    let whole = StoredHash::parse_imported(PUBLISHED[0].1).unwrap();
    let letters = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
    let (salt, stream) = (letters(&whole.salt), letters(&whole.output));
    let without = format!("$fbscrypt$v=1,n=14,r=8,p=1,ss=,sk=${salt}${stream}");
    assert!(StoredHash::parse_imported(&without).unwrap() == whole);
}

/// Hashes of libxcrypt: lengths around the blocks of the digests, and the longest that is read.
#[test]
fn sha_crypt_matches_passwords_of_every_length_that_it_reads() {
    for (length, hash) in [
        (
            1,
            "$6$rounds=1000$0123456789abcdef$orYUVNlB6t/g6oveNE9blxPCvsPk/NSLDZ27tAeYj2k/5mnlngpVNSyiY9i2bozdPEidOxpnAw1gYDrJjero3/",
        ),
        (1, "$5$rounds=1000$0123456789abcdef$uzoBNOx9qcLdEHuaTw92YmcA6P86CqL/qtsq1qkFkf6"),
        (31, "$5$rounds=1000$0123456789abcdef$UoemPsi/nJDK/.3J/bm7e/ersAnPkl2Z5QqVVHfgxSD"),
        (32, "$5$rounds=1000$0123456789abcdef$eoNHK.EHo/05lsAFczWw0sxaBrcqisTFVTLW42pSfS2"),
        (
            63,
            "$6$rounds=1000$0123456789abcdef$SkuAvS3u2VPjXag.W2r4XW0FXL4zaHFYjIcH3pDYQ3BVVyOXtUJ2FcgsPspC7QVmbB2RqLHSV/BZql3tQ6D7l1",
        ),
        (
            64,
            "$6$rounds=1000$0123456789abcdef$Jy32oIX7bhLrD2LI9bX8r0X9AUCl/Ve7LTK9qMJJ.ZUjzFIS/xkOqx.gMlE7oqnt0PjxWvY5YX.iBWm9Yt2vn/",
        ),
        (
            65,
            "$6$rounds=1000$0123456789abcdef$jbKaEDvU2cd5OLLI9cw./NgLSvVkXxEr.D.Mc7gCgqy1To4dCy1SRlQuRxcZj1BwO7R02eJNP3X69pZ38Gcm41",
        ),
        (
            128,
            "$6$rounds=1000$0123456789abcdef$n4SH0ZrEJi4/pp45XzlfKdFT.lXFPJGRUwrX//i66lyUEqWcD24eu3TIcVUykUXDgXYyjLuL0/UdYRQadGSyZ1",
        ),
        (128, "$5$rounds=1000$0123456789abcdef$b2B5j6HCrCoA9QvKesgAraRX1tYvqht1CNjKSrF.d3."),
    ] {
        let long = "xy".repeat(100);
        assert!(matches(hash, &long.as_bytes()[..length]), "{length} {hash}");
        assert!(!matches(hash, &long.as_bytes()[..length + 1]), "{length} {hash}");
    }
}

/// Its work would grow with it, and its time would tell whose hash it is.
#[test]
fn a_longer_password_than_is_read_in_each_round_matches_nothing() {
    for hash in VECTORS {
        let StoredHash { function, salt, output, .. } = StoredHash::parse_imported(hash).unwrap();
        let mut memory = vec![argon2::Block::new(); function.blocks()];
        let computed = function.compute(&[b'x'; LONGEST_REPEATED + 1], &salt, output.len(), &mut memory);
        let repeated = matches!(function, HashFunction::ShaCrypt { .. } | HashFunction::Phpass { .. });
        assert_eq!(computed.is_empty(), repeated, "{hash}");
    }
}

#[test]
fn wordpress_and_django_hash_all_of_a_password_and_wordpress_trims_it() {
    let wordpress = VECTORS.iter().find(|hash| hash.starts_with("$wp$")).unwrap();
    assert!(matches(wordpress, b" \tcorrect horse\r\n"));
    assert!(!matches(wordpress, b"correct  horse"));
    // Django made these of "x" × 71 and "yz and more".
    let django = "bcrypt_sha256$$2b$04$ITok02Nnso92TYt3aXYfhO7gKECmIelcuyBaLDxVGRfVe4OZCU52K";
    assert!(matches(django, format!("{}yz and more", "x".repeat(71)).as_bytes()));
    assert!(!matches(django, format!("{}yz and less", "x".repeat(71)).as_bytes()));
}

#[test]
fn of_pbkdf2_the_first_block_is_compared() {
    for (hash, bytes) in [
        (
            "$pbkdf2-sha256$i=3$c2l4dGVlbiBieXRlcyAhIQ$QeweazMLVXt+8GrlRY9pq6eMBGkgMJPjDWkn4jKq1ofXyC8dUhNYD5cjPwjRX1V3NZiRYD7a7vvDbWLSPISNhg",
            32,
        ),
        (PUBLISHED[1].1, 20),
        (PUBLISHED[3].1, 64),
    ] {
        let stored = StoredHash::parse_imported(hash).unwrap();
        assert_eq!(stored.output.len(), bytes, "{hash}");
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
    for params in
        ["m=131073,t=1,p=1", "m=131072,t=3,p=1", "m=65536,t=5,p=1", "m=8,t=4294967295,p=1", "m=800,t=1,p=17"]
    {
        let error = refused(&format!("$argon2id$v=19${params}${ARGON2}"));
        assert_eq!(error, ImportedHashError::Argon2, "{params}");
    }
    assert!(
        StoredHash::parse_imported(&format!("$argon2id$v=19$m=65536,t=4,p=1${ARGON2}")).is_ok(),
        "PHP's default"
    );
    let django = "argon2$argon2id$v=19$m=102400,t=2,p=8$ekNYRFVldm5waTVuZkNwbnRvUkhCSg$K2KN2kAIF1nCkvlNTUnkiVBFfITG3dC7hy/W2d2YDEM";
    assert_eq!(StoredHash::parse_imported(django).ok().unwrap().cost().memory_mib, 100, "Django's default");
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
    let tail = "GaScwcscdzvyk7gzZmxXAHiJAYBdSzwVcphgrsQJGOjgOegLlrTs5rVDD6z0u4r1gcbw2MjFIR1AQnAH5uLeW0";
    for (rounds, taken) in [("999", false), ("1000", true), ("1000000", true), ("1000001", false)] {
        let hash = format!("$6$rounds={rounds}$0123456789abcdef${tail}");
        assert_eq!(StoredHash::parse_imported(&hash).is_ok(), taken, "{rounds}");
    }
    // "2" is 4, "I" is 20.
    for (rounds, taken) in [("1", false), ("2", true), ("I", true), ("J", false), ("z", false)] {
        let hash = format!("$P${rounds}2XbcV.oR4pwKfm3LBXFgYQIlPDwZL.");
        assert_eq!(StoredHash::parse_imported(&hash).is_ok(), taken, "{rounds}");
    }
    // N = 2^15 and 2^16 with r = 32; N = 2^12 with p = 4, with t = 1, and in the older mode.
    for (params, taken) in [("jCT", true), ("jDT", false), ("j95.0", false), ("j9T/.", false), ("/9T", false)]
    {
        let hash = format!("$y${params}$abcdefghijklmnopqrstu.$qCj3FJAOxenL84GhXQA.5yo90njyP/oqBzssCfadkhA");
        assert_eq!(StoredHash::parse_imported(&hash).is_ok(), taken, "{params}");
    }
    for (hash, reason) in [
        (
            "scrypt$262144$wfVmeQT4GdtbQhhDiqLl8m$8$1$m1aBt1k3w5Zr5m6YqrY1h37H6EaTHAaYIHJ1R8QphTA=",
            ImportedHashError::Scrypt,
        ),
        ("scrypt:32768:8:5$8PFMjg4xm9TnzPuf$076f48e4b4fb6afee8fd219749904050", ImportedHashError::Scrypt),
        (
            "$fbscrypt$v=1,n=18,r=8,p=1,ss=,sk=$c2l4dGVlbiBieXRlcyAhIQ==$c2l4dGVlbiBieXRlcyAhIQ==",
            ImportedHashError::Scrypt,
        ),
        (
            "bcrypt_sha256$$2b$15$O5FR/zVg1qMDhoZ9/WxtreSkq/YY.a2WOiuKCDMNEniJT08N1hf.m",
            ImportedHashError::Bcrypt,
        ),
        (
            "AQAAAAEAMnoAAAAAEAABAgMEBQYHCAkKCwwNDg+yWU7rLgUwPZb1Itsmra7cbxw2EFpwpVFIEtP+JIuUEw==",
            ImportedHashError::Pbkdf2,
        ),
    ] {
        assert_eq!(refused(hash), reason, "{hash}");
    }
}

/// What one comparison may take, by the bounds: of memory, and of time on the machine on which it was measured.
#[test]
fn the_dearest_of_each_kind_takes_about_a_second() {
    let (n, r) = (1 << 15, 32);
    for function in [
        HashFunction::Scrypt(ScryptCost { log_n: 17, r: 8, p: 1 }),
        HashFunction::FirebaseScrypt(ScryptCost { log_n: 17, r: 8, p: 1 }),
        HashFunction::Yescrypt { params: yescrypt::Params::new(yescrypt::Mode::Rw, n, r, 1).unwrap() },
        HashFunction::ShaCrypt { digest: ShaDigest::Sha512, rounds: 1_000_000 },
        HashFunction::ShaCrypt { digest: ShaDigest::Sha256, rounds: 1_000_000 },
        HashFunction::Phpass { log_rounds: 20 },
        HashFunction::SaltedSha { digest: ShaDigest::Sha512 },
        HashFunction::Bcrypt { cost: 14, input: BcryptInput::WordPress },
        HashFunction::Pbkdf2 { digest: ShaDigest::Sha1, iterations: 2_000_000 },
        HashFunction::Pbkdf2 { digest: ShaDigest::Sha512, iterations: 2_000_000 },
    ] {
        let within = function.within_bounds(None).unwrap();
        let cost = within.cost(16);
        assert!((1..=1400).contains(&cost.millis) && cost.memory_mib <= 128, "{within:?}: {cost:?}");
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
        ("$1$salt$hash", Format),
        ("$7$C6..../....SodiumChloride$kBGj9fHznVYFQMEn/qDCfrDevf9YDtcDdKvEqHJLV8D", Format),
        ("$sha1$40000$abcdefgh$hash", Format),
        ("{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", Format),
        ("{CRYPT}hunter2", Format),
        ("argon2$$argon2id$v=19$m=64,t=2,p=1$c2l4dGVlbiBieXRlcyAhIQ$AAAAAAAAAAAAAAAAAAAAAA", Format),
        ("$6$salt$hash", Damaged),
        ("$6$rounds=x$0123456789abcdef$GaScwcscdzvyk7gzZmxXAHiJAYBdSz", Damaged),
        ("$5$abcd$ruMep1ijHnJPZbETDNiumskxcX3kN4lzZd5VlsqE7eB", Salt),
        ("$y$j9T$abcdefgh$KTqJZjt8xJv9BRyTKH5Glf1f8I9A6xrAWsdX4oq3Sx1", Salt),
        ("$y$j953/2$abcdefghijklmnopqrstu.$qCj3FJAOxenL84GhXQA.5yo90njyP/oqBzssCfadkhA", Damaged),
        ("{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=", Damaged),
        ("{SSHA}W6ph5Mm5Pz8GgiULbPgzG37mj9gAAAA=", Salt),
        ("scrypt:1000:8:1$8PFMjg4xm9TnzPuf$076f48e4b4fb6afee8fd219749904050", Damaged),
        ("pbkdf2:md5:3$yBc7P86HWo1uPGcn$ca0e613126e705df0ecada99a4b82795", Damaged),
        ("AQAAAAMAAAAyAAAAEOMwvh3+FZxqkdMBz2ekgGhwQ4B6pZWND6zgESBuWiHw", Damaged),
        ("AQAAAAIAAAAyAAAA/+Mwvh3+FZxqkdMBz2ekgGhwQ4B6pZWND6zgESBuWiHw", Damaged),
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
