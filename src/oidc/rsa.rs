//! RSA keys of 2048 bits, which ring cannot make: primes by `crypto-primes`, and the file format around them (PKCS#1,
//! RFC 8017, A.1.2).

use crypto_bigint::{NonZero, Odd, U1024, U2048};
use crypto_primes::hazmat::{SetBits, SmallFactorsSieveFactory};
use crypto_primes::{Flavor, is_prime, sieve_and_find};
use rand_core::{Infallible, TryCryptoRng, TryRng};
use zeroize::Zeroizing;

use crate::entropy::Entropy;

const EXPONENT: u32 = 65_537;
/// The two primes differ in the first hundred bits (FIPS 186-5, A.1.3).
const APART: u32 = 1024 - 100;

/// A private key in PKCS#1. Takes a second or so of one core.
pub fn generate(entropy: &Entropy) -> Zeroizing<Vec<u8>> {
    loop {
        // Both have their two highest bits set, so that the product has 2048.
        if let Some(key) = of_primes(&prime(entropy), &prime(entropy)) {
            return key;
        }
    }
}

pub(super) fn prime(entropy: &Entropy) -> Zeroizing<U1024> {
    let sieve = SmallFactorsSieveFactory::new(Flavor::Any, 1024, SetBits::TwoMsb).expect("1024 bits fit");
    let found = sieve_and_find(&mut EntropyRng(entropy), sieve, |_, number| is_prime(Flavor::Any, number));
    Zeroizing::new(found.expect("1024 bits fit").expect("there is another candidate"))
}

/// Makes a key; None if the primes are too close, or the exponent has no inverse.
pub(super) fn of_primes(one: &U1024, other: &U1024) -> Option<Zeroizing<Vec<u8>>> {
    let (p, q) = if one > other { (one, other) } else { (other, one) };
    if p.wrapping_sub(q).bit_width() <= APART {
        return None;
    }
    let before = |prime: &U1024| Zeroizing::new(prime.wrapping_sub(&U1024::ONE));
    let (p_1, q_1) = (before(p), before(q));
    let inverse = |modulus: &U1024| {
        let modulus = NonZero::new(*modulus).into_option()?;
        U1024::from(EXPONENT).invert_mod(&modulus).into_option().map(Zeroizing::new)
    };
    let (dp, dq) = (inverse(&p_1)?, inverse(&q_1)?);
    let qinv = Zeroizing::new(q.invert_odd_mod(&Odd::new(*p).into_option()?).into_option()?);
    let lcm: U2048 = p_1.lcm(&q_1);
    let lcm = Zeroizing::new(NonZero::new(lcm).into_option()?);
    let d = Zeroizing::new(U2048::from(EXPONENT).invert_mod(&lcm).into_option()?);
    let n: U2048 = p.concatenating_mul(q);

    let wide = |number: &U2048| Zeroizing::new(number.to_be_bytes().as_ref().to_vec());
    let half = |number: &U1024| Zeroizing::new(number.to_be_bytes().as_ref().to_vec());
    let e = Zeroizing::new(EXPONENT.to_be_bytes().to_vec());
    Some(pkcs1(&[wide(&n), e, wide(&d), half(p), half(q), half(&dp), half(&dq), half(&qinv)]))
}

/// The numbers in the order of `RSAPrivateKey`: n, e, d, p, q, dP, dQ, qInv.
pub(super) fn pkcs1(numbers: &[Zeroizing<Vec<u8>>; 8]) -> Zeroizing<Vec<u8>> {
    const INTEGER: u8 = 0x02;
    const SEQUENCE: u8 = 0x30;
    // Of such a length that nothing is moved, which would leave copies.
    let mut body = Zeroizing::new(Vec::with_capacity(2048));
    element(&mut body, INTEGER, &[0]);
    for number in numbers {
        // As short as it can be, and positive.
        let zeros = number.iter().take_while(|byte| **byte == 0).count().min(number.len() - 1);
        let shortest = Zeroizing::new([&[0], &number[zeros..]].concat());
        let is_positive = usize::from(shortest[1] & 0x80 == 0);
        element(&mut body, INTEGER, &shortest[is_positive..]);
    }
    let mut key = Zeroizing::new(Vec::with_capacity(2048));
    element(&mut key, SEQUENCE, &body);
    key
}

fn element(out: &mut Vec<u8>, tag: u8, content: &[u8]) {
    let [high, low] = u16::try_from(content.len()).expect("a key has less than 64 KiB").to_be_bytes();
    out.push(tag);
    match (high, low) {
        (0, ..0x80) => out.push(low),
        (0, _) => out.extend([0x81, low]),
        _ => out.extend([0x82, high, low]),
    }
    out.extend(content);
}

/// [`Entropy`] as the crate wants it.
struct EntropyRng<'a>(&'a Entropy);

impl TryRng for EntropyRng<'_> {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(u32::from_le_bytes(self.0.bytes()))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(u64::from_le_bytes(self.0.bytes()))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        for chunk in out.chunks_mut(32) {
            let bytes = Zeroizing::new(self.0.bytes::<32>());
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
        Ok(())
    }
}

impl TryCryptoRng for EntropyRng<'_> {}
