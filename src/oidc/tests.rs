//! Tokens and their keys: against the examples of RFC 7515, and over three instances of one installation.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::join_all;
use serde_json::{Value, json};
use sqlx::{query, query_scalar};
use zeroize::Zeroizing;

use super::keys::{Jwks, TokenKeys};
use super::signature::{self, PublicKey};
use super::{NotReady, ResealedKeys, jws, rsa};
use crate::audit::{Action, Audit, EventFilter};
use crate::clock::{Clock, Micros};
use crate::config::{AuditSettings, LiveHandle, OidcSettings, SigningAlgorithm};
use crate::db::on_db;
use crate::db::tests::{TestDatabase, on_both_databases};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::secret::MasterKey;

const BOTH: [SigningAlgorithm; 2] = [SigningAlgorithm::Rs256, SigningAlgorithm::Es256];
const NOON: Micros = Micros::from_seconds(1_800_000_000);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SECOND: Duration = Duration::from_secs(1);
const MASTER: [u8; 32] = [7; 32];

// RFC 7515, A.2 (RS256) and A.3 (ES256).

const CLAIMS: &str =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
/// n, e, d, p, q, dp, dq, qi.
const RSA_KEY: [&str; 8] = [
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
    "AQAB",
    "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46sui395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ",
    "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJNPY8cQn7ouZ2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc",
    "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_YwD66t62wDmpe_HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc",
    "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJeDCjn12Sk3vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0",
    "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-NKJnwgjMd2w9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU",
    "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi87w93IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U",
];
const RSA_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
const POINT: [&str; 2] =
    ["f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU", "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"];
const EC_SIGNATURE: &str =
    "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

fn bytes(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

fn signed(header: &str) -> Vec<u8> {
    format!("{}.{CLAIMS}", URL_SAFE_NO_PAD.encode(header)).into_bytes()
}

#[test]
fn the_examples_of_rfc_7515_verify_and_no_other_signature_does() {
    let rsa = PublicKey::Rsa { n: bytes(RSA_KEY[0]), e: bytes(RSA_KEY[1]) };
    let ec = PublicKey::P256 { crv: "P-256", x: bytes(POINT[0]), y: bytes(POINT[1]) };
    for (key, header, signature) in
        [(&rsa, r#"{"alg":"RS256"}"#, RSA_SIGNATURE), (&ec, r#"{"alg":"ES256"}"#, EC_SIGNATURE)]
    {
        let (message, signature) = (signed(header), bytes(signature));
        assert!(signature::verify(key, &message, &signature), "{header}");
        for at in 0..signature.len() {
            let mut other = signature.clone();
            other[at] ^= 1;
            assert!(!signature::verify(key, &message, &other), "{header}: byte {at}");
        }
        assert!(!signature::verify(key, &message[1..], &signature));
        assert!(!signature::verify(key, &message, &signature[1..]));
        assert!(!signature::verify(key, &message, &[]));
    }
    let signature = bytes(EC_SIGNATURE);
    assert!(!signature::verify(&rsa, &signed(r#"{"alg":"ES256"}"#), &signature));
}

#[test]
fn the_key_of_rfc_7515_in_our_file_format_signs_what_the_rfc_signs() {
    let file = rsa::pkcs1(&RSA_KEY.map(|number| Zeroizing::new(bytes(number))));
    let key = signature::load(SigningAlgorithm::Rs256, &file).expect("a key");
    let signature = signature::sign(&key, &signed(r#"{"alg":"RS256"}"#)).unwrap();
    assert_eq!(URL_SAFE_NO_PAD.encode(signature), RSA_SIGNATURE);
}

#[test]
fn an_rsa_key_has_2048_bits_and_a_jwk_without_leading_zeros() {
    let (one, again) = (rsa::generate(&Entropy::seeded(1)), rsa::generate(&Entropy::seeded(1)));
    assert_eq!(*one, *again, "it is made of nothing but the randomness it is given");
    let other = rsa::generate(&Entropy::seeded(2));
    assert_ne!(*one, *other);
    for file in [one, other] {
        let key = signature::load(SigningAlgorithm::Rs256, &file).expect("ring takes it");
        let PublicKey::Rsa { n, e } = signature::public(&key) else { panic!("no RSA key") };
        assert_eq!((n.len(), n[0] >> 7, e), (256, 1, vec![1, 0, 1]));
        // With one number changed it is no key, or signs nothing.
        for at in (20..file.len()).step_by(97) {
            let mut broken = file.to_vec();
            broken[at] ^= 1;
            let key = signature::load(SigningAlgorithm::Rs256, &broken);
            let signature = key.as_ref().and_then(|key| signature::sign(key, b"x"));
            let public = PublicKey::Rsa { n: n.clone(), e: vec![1, 0, 1] };
            // Nothing is computed with d: ring takes the other numbers.
            let is_in_d = (270..540).contains(&at);
            assert!(
                is_in_d || !signature.is_some_and(|signature| signature::verify(&public, b"x", &signature)),
                "byte {at}"
            );
        }
    }
    assert!(signature::load(SigningAlgorithm::Rs256, b"").is_none());
    assert!(signature::load(SigningAlgorithm::Es256, b"").is_none());
}

/// Primes that are too close, equal, or one more than a multiple of the exponent make no key.
#[test]
fn unfit_primes_are_refused() {
    use crypto_bigint::U1024;
    let prime = rsa::prime(&Entropy::seeded(3));
    let other = rsa::prime(&Entropy::seeded(4));
    assert!(rsa::of_primes(&prime, &other).is_some());
    assert!(rsa::of_primes(&prime, &prime).is_none());
    let close = prime.wrapping_add(&U1024::ONE.shl(923));
    assert!(rsa::of_primes(&prime, &close).is_none(), "their first hundred bits are the same");
    let far = prime.wrapping_sub(&U1024::ONE.shl(1000));
    assert!(rsa::of_primes(&prime, &far).is_some(), "for the bound: primes or not is not checked here");
    let multiple = U1024::from(65_537_u32).shl(1000).wrapping_add(&U1024::ONE);
    assert!(rsa::of_primes(&prime, &multiple).is_none(), "the exponent has no inverse");
}

/// An instance of the installation that has this database.
struct KeyKeeper {
    keys: TokenKeys,
    audit: Audit,
    signing: SigningAlgorithm,
}

async fn instance(
    database: &TestDatabase,
    clock: &Clock,
    signing: SigningAlgorithm,
    master: [u8; 32],
) -> KeyKeeper {
    instance_with(database, clock, (signing, None), master).await
}

async fn instance_with(
    database: &TestDatabase,
    clock: &Clock,
    (signing, live): (SigningAlgorithm, Option<LiveHandle>),
    master: [u8; 32],
) -> KeyKeeper {
    let foundation = Foundation::keyed(master, &database.open().await, clock);
    let audit = Audit::new(&foundation, AuditSettings::default());
    let settings = OidcSettings { signing, ..OidcSettings::default() };
    let keys = TokenKeys::new(&foundation, audit.clone(), (settings, live));
    KeyKeeper { keys, audit, signing }
}

impl KeyKeeper {
    async fn follow(&self) {
        self.keys.follow().await.unwrap();
    }

    fn sign(&self) -> String {
        self.sign_by(self.signing)
    }

    fn sign_by(&self, algorithm: SigningAlgorithm) -> String {
        self.keys.sign(algorithm, &json!({ "sub": "alice" }), "JWT").unwrap()
    }

    /// Whether it believes this token.
    fn takes(&self, token: &str) -> bool {
        self.keys.verify::<Value>(token).is_some_and(|claims| claims == json!({ "sub": "alice" }))
    }

    fn published(&self) -> Vec<String> {
        kids(&self.keys.jwks())
    }
}

fn kids(set: &Jwks) -> Vec<String> {
    set.keys.iter().map(|key| key.kid.clone()).collect()
}

fn header(token: &str) -> Value {
    serde_json::from_slice(&bytes(token.split('.').next().unwrap())).unwrap()
}

fn kid(token: &str) -> String {
    header(token)["kid"].as_str().unwrap().to_owned()
}

async fn rows(database: &TestDatabase) -> i64 {
    const SQL: &str = "SELECT COUNT(*) FROM oidc_keys";
    on_db!(&database.open().await, pool => query_scalar(SQL).fetch_one(pool).await).unwrap()
}

on_both_databases!(
    three_instances_agree_on_one_key,
    a_key_is_published_a_day_before_it_signs_and_a_day_after,
    clocks_a_minute_apart_harm_nothing,
    after_a_change_of_the_algorithm_the_other_key_signs_at_once,
    of_each_algorithm_that_a_client_wants_the_newest_key_stays,
    without_the_key_file_another_key_signs_and_with_it_the_old_one_again,
);

async fn three_instances_agree_on_one_key(database: TestDatabase) {
    for algorithm in BOTH {
        let clock = Clock::manual(NOON);
        let three = join_all((0..3).map(|_| instance(&database, &clock, algorithm, MASTER))).await;
        for one in &three {
            assert_eq!(one.published(), [""; 0]);
            assert_eq!(one.keys.sign(one.signing, &json!({}), "JWT"), Err(NotReady));
        }
        join_all(three.iter().map(KeyKeeper::follow)).await;
        join_all(three.iter().map(KeyKeeper::follow)).await;
        assert_eq!(three[0].published().len(), rows(&database).await as usize);
        for (one, other) in [(0, 1), (1, 2), (2, 0)] {
            let (one, other) = (&three[one], &three[other]);
            assert_eq!(one.published(), other.published());
            let token = one.sign();
            assert!(one.takes(&token) && other.takes(&token));
            assert_eq!(header(&token)["alg"], json!(algorithm));
        }
        for one in &three {
            one.audit.flush().await;
        }
        let filter = EventFilter { actions: vec![Action::KeyRotated], ..EventFilter::default() };
        let events = three[0].audit.log().page(&filter, None, 10).await.unwrap().entries;
        let ours = events.iter().filter(|event| event.name.as_deref() == Some(algorithm.into_str()));
        assert_eq!(ours.count(), 1, "one of them has made it");
        const CLEAR: &str = "DELETE FROM oidc_keys";
        on_db!(&database.open().await, pool => query(CLEAR).execute(pool).await.map(drop)).unwrap();
    }
}

async fn a_key_is_published_a_day_before_it_signs_and_a_day_after(database: TestDatabase) {
    let clock = Clock::manual(NOON);
    let (one, two) = (
        instance(&database, &clock, SigningAlgorithm::Es256, MASTER).await,
        instance(&database, &clock, SigningAlgorithm::Es256, MASTER).await,
    );
    one.keys.want();
    // Both look as often as they like: it changes nothing.
    let look = async || {
        one.follow().await;
        two.follow().await;
        one.follow().await;
        assert_eq!(one.published(), two.published());
        (kid(&one.sign()), one.published())
    };
    let (first, published) = look().await;
    assert_eq!(published, std::slice::from_ref(&first));
    let token = one.sign();

    clock.advance(DAY * 89 - SECOND);
    assert_eq!(look().await, (first.clone(), vec![first.clone()]), "a second before the day before");
    clock.advance(SECOND);
    let (signing, published) = look().await;
    assert_eq!((signing, published.len(), &published[0]), (first.clone(), 2, &first));
    let second = published[1].clone();

    clock.advance(DAY - SECOND);
    assert_eq!(kid(&one.sign()), first);
    let last = two.sign();
    clock.advance(SECOND);
    assert_eq!(kid(&one.sign()), second, "at its time, whether or not anybody looks");
    assert_eq!(look().await, (second.clone(), vec![first.clone(), second.clone()]));

    clock.advance(DAY - SECOND);
    assert!(one.takes(&token) && two.takes(&last), "for a day");
    assert_eq!(look().await.1.len(), 2);
    clock.advance(SECOND);
    assert!(!one.takes(&token) && !two.takes(&last), "and no longer, also before anybody looks");
    assert_eq!(one.published(), std::slice::from_ref(&second));
    assert_eq!(look().await, (second.clone(), vec![second.clone()]));
    assert_eq!((one.keys.purge(10).await.unwrap(), rows(&database).await), (1, 1));

    // Nobody was there for a year: the key goes on until the next has been published for a day.
    clock.advance(DAY * 365);
    let (signing, published) = look().await;
    assert_eq!((signing, published.len(), &published[0]), (second.clone(), 2, &second));
    clock.advance(DAY);
    assert_eq!(look().await, (published[1].clone(), published));
}

async fn clocks_a_minute_apart_harm_nothing(database: TestDatabase) {
    let minute = SECOND * 60;
    let clocks = [NOON.plus(minute), NOON, NOON.minus(minute)].map(Clock::manual);
    let three =
        join_all(clocks.iter().map(|clock| instance(&database, clock, SigningAlgorithm::Es256, MASTER)))
            .await;
    three[0].keys.want();
    let look = async || {
        for one in &three {
            one.follow().await;
        }
        for one in &three {
            one.follow().await;
        }
        for signer in &three {
            let token = signer.sign();
            assert!(three.iter().all(|one| one.takes(&token)), "each takes what each signs");
        }
    };
    // In steps around each moment at which something changes, over two rotations.
    look().await;
    for first in [DAY * 89 - minute * 2, DAY * 88 - minute * 4] {
        // Published, begun, gone: each two minutes before to two minutes after.
        for step in [first, DAY - minute * 4, DAY - minute * 4] {
            clocks.iter().for_each(|clock| clock.advance(step));
            look().await;
            for _ in 0..4 {
                clocks.iter().for_each(|clock| clock.advance(minute));
                look().await;
            }
        }
    }
    assert!(rows(&database).await <= 3);
}

async fn after_a_change_of_the_algorithm_the_other_key_signs_at_once(database: TestDatabase) {
    let clock = Clock::manual(NOON);
    let before = instance(&database, &clock, SigningAlgorithm::Rs256, MASTER).await;
    before.keys.want();
    before.follow().await;
    let old = before.sign();
    let after = instance(&database, &clock, SigningAlgorithm::Es256, MASTER).await;
    after.follow().await;
    let new = after.sign();
    assert_eq!((&header(&old)["alg"], &header(&new)["alg"]), (&json!("RS256"), &json!("ES256")));
    assert_eq!(header(&new)["typ"], "JWT");
    before.follow().await;
    assert!(before.takes(&new) && after.takes(&old), "while instances are restarted one by one");
    assert_eq!(header(&before.sign())["alg"], "RS256");

    // Once the last of the old ones has gone, its key is published for a day.
    after.follow().await;
    clock.advance(DAY - SECOND);
    after.follow().await;
    assert!(after.takes(&old));
    assert_eq!(after.published().len(), 2);
    clock.advance(SECOND);
    after.follow().await;
    assert!(!after.takes(&old));
    assert_eq!(after.published(), [kid(&new)]);

    // Back, and to and fro within the day: the key that is still published signs again, and goes on.
    let back = instance(&database, &clock, SigningAlgorithm::Rs256, MASTER).await;
    back.follow().await;
    let rsa = kid(&back.sign());
    assert_ne!(rsa, kid(&old));
    after.follow().await;
    assert_eq!(after.sign().split('.').next(), new.split('.').next());
    back.follow().await;
    clock.advance(DAY * 3);
    back.follow().await;
    assert_eq!((kid(&back.sign()), back.published()), (rsa.clone(), vec![rsa]));
}

async fn of_each_algorithm_that_a_client_wants_the_newest_key_stays(database: TestDatabase) {
    use SigningAlgorithm::{Es256, Rs256};
    let clock = Clock::manual(NOON);
    let client =
        "[[apps]]\nname = 'wiki'\nwho = ['everyone']\n[apps.oidc]\nredirect_uris = ['https://a.example/']\n";
    let live = |more: &str| {
        let config = crate::config::parse("gatehouse.toml".as_ref(), &format!("{client}{more}"), &[]);
        Some(LiveHandle::fixed(config.unwrap().live))
    };
    let two = async |more: &str| instance_with(&database, &clock, (Rs256, live(more)), MASTER).await;
    let (one, other) = (two("signing = 'ES256'").await, two("signing = 'ES256'").await);
    one.keys.want();
    for _ in 0..2 {
        one.follow().await;
        other.follow().await;
    }
    let first = [Rs256, Es256].map(|algorithm| kid(&one.sign_by(algorithm)));
    assert_eq!((one.published().len(), one.published()), (2, other.published()));
    for algorithm in [Rs256, Es256] {
        let token = other.sign_by(algorithm);
        assert_eq!(header(&token)["alg"], json!(algorithm));
        assert!(one.takes(&token));
    }
    // Each is followed by one of its own.
    clock.advance(DAY * 89);
    one.follow().await;
    assert_eq!(one.published().len(), 4);
    clock.advance(DAY * 2);
    one.follow().await;
    let second = [Rs256, Es256].map(|algorithm| kid(&one.sign_by(algorithm)));
    assert!(first.iter().all(|kid| !second.contains(kid) && !one.published().contains(kid)));
    // What no client wants any more ends in a day.
    let without = two("").await;
    without.follow().await;
    clock.advance(DAY);
    without.follow().await;
    assert_eq!(without.published(), [second[0].clone()]);
}

async fn without_the_key_file_another_key_signs_and_with_it_the_old_one_again(database: TestDatabase) {
    let clock = Clock::manual(NOON);
    let algorithm = SigningAlgorithm::Es256;
    let first = instance(&database, &clock, algorithm, MASTER).await;
    first.keys.want();
    first.follow().await;
    let old = first.sign();
    clock.advance(SECOND);

    // The file is lost: nobody asks, and there is a key.
    let second = instance(&database, &clock, algorithm, [8; 32]).await;
    second.follow().await;
    let new = second.sign();
    assert_ne!(kid(&new), kid(&old));
    assert!(!second.takes(&old));
    assert_eq!(second.published(), [kid(&new)]);
    second.follow().await;
    assert_eq!(rows(&database).await, 2, "one is enough");

    // The key file was replaced and the old one is at hand.
    let old_master = MasterKey::from_bytes(MASTER);
    let done = second.keys.reseal(&old_master).await.unwrap();
    assert_eq!(done, ResealedKeys { sealed: 1, kept: 1, lost: 0 });
    second.follow().await;
    assert!(second.takes(&old) && second.takes(&new));
    let again = second.keys.reseal(&old_master).await.unwrap();
    assert_eq!(again, ResealedKeys { sealed: 0, kept: 2, lost: 0 });
    let third = instance(&database, &clock, algorithm, [9; 32]).await;
    assert_eq!(third.keys.reseal(&old_master).await.unwrap(), ResealedKeys { sealed: 0, kept: 0, lost: 2 });
}

#[tokio::test]
async fn nothing_but_the_token_as_it_was_signed_is_taken() {
    for algorithm in BOTH {
        let (database, clock) = (TestDatabase::sqlite(), Clock::manual(NOON));
        let ours = instance(&database, &clock, algorithm, MASTER).await;
        ours.keys.want();
        ours.follow().await;
        let token = ours.sign();
        assert!(ours.takes(&token));
        assert_eq!(ours.keys.verify::<u32>(&token), None, "not the claims that are wanted");
        for at in 0..token.len() {
            for other in [b'A', b'B', b'-', b'.', b'=', b' ', b'"'] {
                let mut changed = token.clone().into_bytes();
                if changed[at] != other {
                    changed[at] = other;
                    let changed = String::from_utf8(changed).unwrap();
                    assert!(ours.keys.verify::<Value>(&changed).is_none(), "{algorithm:?}: byte {at}");
                }
            }
            let mut shorter = token.clone();
            shorter.remove(at);
            assert!(ours.keys.verify::<Value>(&shorter).is_none(), "{algorithm:?}: without byte {at}");
        }
        for odd in ["", ".", "..", "...", &format!("{token}."), &format!(".{token}"), &format!("{token}=")] {
            assert!(ours.keys.verify::<Value>(odd).is_none(), "{odd}");
        }
    }
}

#[tokio::test]
async fn the_key_says_the_algorithm_and_a_header_that_is_not_ours_is_refused() {
    let (database, clock) = (TestDatabase::sqlite(), Clock::manual(NOON));
    let rsa = instance(&database, &clock, SigningAlgorithm::Rs256, MASTER).await;
    rsa.keys.want();
    rsa.follow().await;
    let ec = instance(&database, &clock, SigningAlgorithm::Es256, MASTER).await;
    ec.follow().await;
    rsa.follow().await;
    let (by_rsa, by_ec) = (rsa.sign(), ec.sign());
    let (rsa_kid, ec_kid) = (kid(&by_rsa), kid(&by_ec));
    // Signed by our own keys, but for the header.
    let claims = by_rsa.split('.').nth(1).unwrap();
    let stranger = {
        let elsewhere = TestDatabase::sqlite();
        let other = instance(&elsewhere, &clock, SigningAlgorithm::Es256, MASTER).await;
        other.keys.want();
        other.follow().await;
        other.sign()
    };
    assert!(!ec.takes(&stranger), "an unknown kid");
    let encode = |header: Value| URL_SAFE_NO_PAD.encode(header.to_string());
    let with = |header: Value, signature: &str| format!("{}.{claims}.{signature}", encode(header));
    let signature = |token: &str| token.rsplit('.').next().unwrap().to_owned();
    for (header, signed) in [
        (json!({ "alg": "none", "kid": rsa_kid, "typ": "JWT" }), String::new()),
        (json!({ "alg": "none", "typ": "JWT" }), String::new()),
        (json!({ "alg": "HS256", "kid": rsa_kid, "typ": "JWT" }), signature(&by_rsa)),
        (json!({ "alg": "ES256", "kid": rsa_kid, "typ": "JWT" }), signature(&by_ec)),
        (json!({ "alg": "RS256", "kid": ec_kid, "typ": "JWT" }), signature(&by_rsa)),
        (json!({ "alg": "ES256", "kid": ec_kid, "typ": "JWT" }), signature(&stranger)),
        (json!({ "alg": "RS256", "typ": "JWT" }), signature(&by_rsa)),
    ] {
        let token = with(header.clone(), &signed);
        assert!(rsa.keys.verify::<Value>(&token).is_none(), "{header}");
    }
    // A right signature over a header that has more, or another algorithm than the key.
    let secret = signature::generate_es256().unwrap();
    let key = signature::load(SigningAlgorithm::Es256, &secret).unwrap();
    let public = signature::public(&key);
    let own = |header: Value| {
        let message = format!("{}.{claims}", encode(header));
        let signature = signature::sign(&key, message.as_bytes()).unwrap();
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature));
        jws::verify::<Value>(&token, |kid| (kid == "k").then_some((SigningAlgorithm::Es256, &public)))
    };
    assert!(own(json!({ "alg": "ES256", "kid": "k", "typ": "JWT" })).is_some());
    for header in [
        json!({ "alg": "RS256", "kid": "k", "typ": "JWT" }),
        json!({ "alg": "none", "kid": "k", "typ": "JWT" }),
        json!({ "alg": "ES256", "kid": "other", "typ": "JWT" }),
        json!({ "alg": "ES256", "kid": "k", "typ": "JWT", "crit": ["b64"], "b64": false }),
        json!({ "alg": "ES256", "kid": "k", "typ": "JWT", "jwk": {} }),
        json!({ "alg": "ES256", "kid": "k" }),
    ] {
        assert!(own(header.clone()).is_none(), "{header}");
    }
}

/// Whoever asks for an unknown key has it read; without anybody who asks, no key is made.
#[tokio::test]
async fn a_key_is_made_when_it_is_asked_for_and_read_when_it_is_unknown() {
    let (database, clock) = (TestDatabase::sqlite(), Clock::manual(NOON));
    let maker = Arc::new(instance(&database, &clock, SigningAlgorithm::Es256, MASTER).await);
    maker.follow().await;
    assert_eq!(rows(&database).await, 0);
    let reader = Arc::new(instance(&database, &clock, SigningAlgorithm::Es256, MASTER).await);
    let running: Vec<_> = [&maker, &reader]
        .map(Arc::clone)
        .map(|one| tokio::spawn(async move { one.keys.run().await }))
        .into_iter()
        .collect();
    let until = async |what: &dyn Fn() -> bool| {
        for _ in 0..600 {
            if what() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await; // both read by timers of their own
        }
        panic!("it did not come");
    };
    assert!(maker.keys.jwks().keys.is_empty());
    until(&|| maker.keys.is_ready(maker.signing)).await;
    let token = maker.sign();
    until(&|| reader.takes(&token)).await;
    assert_eq!(rows(&database).await, 1);
    running.iter().for_each(tokio::task::JoinHandle::abort);
}
