//! One time for every comparison, while there are imported passwords: theirs cost another time than ours, and a clock
//! must not tell the names of one from the names of the other.
//!
//! An answer leaves at a fixed time after its turn began, whatever was compared: our hash, an imported one or a decoy.
//! Its place in the queue must not tell either. So a stranger's turn ends at a fixed time, too, as if it had computed
//! the slowest of the stored hashes, and as many have turns at once as there is memory for that one.
//! The deadline does not follow the time that hashes take: only imported ones come near it, so a deadline that moved
//! would tell their names.
//! What is left is that other work on the same processors is slowed a little by a hash that is computed.

use std::time::{Duration, Instant};

use argon2::{Algorithm, Params, Version};

use crate::accounts::stored_hash::{
    BcryptInput, HashCost, HashFunction, LONGEST_REPEATED, ScryptCost, ShaDigest,
};

/// An answer leaves after twice the time that the slowest hash takes here, so that other load does not delay it beyond.
const ROOM: f64 = 2.0;
/// With both queues this stays within [`HOLD_LIFE`](gatehouse_limiter::window::HOLD_LIFE).
const LONGEST: Duration = Duration::from_secs(4);
/// Stored hashes have always been allowed so much memory for each worker.
const MEMORY_MIB: u32 = 64;

/// What every comparison takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ResponseTiming {
    /// The slowest stored hash.
    pub slowest_hash: HashCost,
    /// What that one is expected to take here.
    pub expected: Duration,
    /// From the start of a turn to its end, for strangers.
    pub turn: Duration,
    /// From the start of a turn to the answer.
    pub answer: Duration,
    /// Strangers' turns at once.
    pub strangers: usize,
}

impl ResponseTiming {
    /// `own` is the cost of our hash, `slowness` this machine's.
    pub fn of(slowest_hash: HashCost, own: HashCost, slowness: f64, workers: usize) -> Self {
        let expected =
            Duration::from_secs_f64(f64::from(slowest_hash.millis.max(own.millis)) * slowness / 1000.0);
        let weight = slowest_hash.memory_mib.div_ceil(own.memory_mib.max(MEMORY_MIB)).max(1);
        Self {
            slowest_hash,
            expected,
            turn: expected.min(LONGEST),
            answer: expected.mul_f64(ROOM).min(LONGEST),
            strangers: (workers / weight as usize).max(1),
        }
    }

    /// Whether the slowest hash is expected to leave after the deadline.
    pub fn is_too_slow(&self) -> bool {
        self.expected > LONGEST
    }

    /// When to answer what has taken this long: at the deadline, or at the next multiple of it.
    pub fn answer_after(&self, taken: Duration) -> Duration {
        let whole = taken.as_nanos().div_ceil(self.answer.as_nanos().max(1)).max(1);
        self.answer.saturating_mul(u32::try_from(whole).unwrap_or(u32::MAX))
    }
}

pub fn note_deadline(timing: Option<ResponseTiming>) {
    metrics::gauge!("gatehouse_sign_in_deadline_seconds")
        .set(timing.map_or(0.0, |timing| timing.answer.as_secs_f64()));
}

/// How much longer hashes take here than on the machine on which [`HashFunction::micros`] was measured: the most that any
/// of them does. Takes about 0.1 s.
pub fn measure_slowness() -> f64 {
    const RUNS: usize = 3;
    let samples = [
        HashFunction::Bcrypt { cost: 6, input: BcryptInput::Typed },
        HashFunction::Scrypt(ScryptCost { log_n: 11, r: 8, p: 1 }),
        HashFunction::Yescrypt { params: "j85".parse().expect("N = 2048, r = 8") },
        HashFunction::Pbkdf2 { digest: ShaDigest::Sha1, iterations: 10_000 },
        HashFunction::Pbkdf2 { digest: ShaDigest::Sha256, iterations: 10_000 },
        HashFunction::Pbkdf2 { digest: ShaDigest::Sha512, iterations: 3_000 },
        HashFunction::ShaCrypt { digest: ShaDigest::Sha256, rounds: 5_000 },
        HashFunction::ShaCrypt { digest: ShaDigest::Sha512, rounds: 2_000 },
        HashFunction::Phpass { log_rounds: 12 },
        HashFunction::Argon2 {
            algorithm: Algorithm::Argon2id,
            version: Version::V0x13,
            params: Params::DEFAULT,
        },
    ];
    let slowness = |function: &HashFunction| {
        const LENGTH: usize = 16;
        let mut memory = vec![argon2::Block::new(); function.blocks()];
        let shortest = (0..RUNS)
            .map(|_| {
                let started = now();
                std::hint::black_box(function.compute(
                    &[b'a'; LONGEST_REPEATED],
                    &[7; 16],
                    LENGTH,
                    &mut memory,
                ));
                started.elapsed().as_secs_f64()
            })
            .fold(f64::INFINITY, f64::min);
        shortest * 1_000_000.0 / function.micros(LENGTH)
    };
    samples.iter().map(slowness).fold(0.1, f64::max)
}

#[expect(clippy::disallowed_methods, reason = "measures how long a hash takes on this machine")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOWEST: HashCost = HashCost { millis: 250, memory_mib: 1 };
    const OWN: HashCost = HashCost { millis: 30, memory_mib: 19 };

    #[test]
    fn an_answer_takes_twice_the_dearest_hash_and_a_turn_once() {
        let timing = ResponseTiming::of(SLOWEST, OWN, 1.5, 4);
        assert_eq!((timing.turn, timing.answer), (Duration::from_millis(375), Duration::from_millis(750)));
        let cheap = ResponseTiming::of(HashCost { millis: 1, memory_mib: 1 }, OWN, 1.0, 4);
        assert_eq!(cheap.turn, Duration::from_millis(30), "ours is the slowest");
    }

    #[test]
    fn what_overruns_leaves_at_a_multiple() {
        let timing = ResponseTiming::of(SLOWEST, OWN, 1.0, 4);
        for (taken, leaves) in [(0, 500), (1, 500), (499, 500), (500, 500), (501, 1000), (1700, 2000)] {
            assert_eq!(
                timing.answer_after(Duration::from_millis(taken)),
                Duration::from_millis(leaves),
                "{taken}"
            );
        }
    }

    #[test]
    fn strangers_share_the_memory_by_weight() {
        let strangers = |memory_mib, workers| {
            ResponseTiming::of(HashCost { memory_mib, ..SLOWEST }, OWN, 1.0, workers).strangers
        };
        assert_eq!(strangers(1, 4), 4);
        assert_eq!(strangers(64, 4), 4);
        assert_eq!(strangers(128, 4), 2);
        assert_eq!(strangers(128, 1), 1, "one at least");
        let large = HashCost { memory_mib: 1024, ..OWN };
        assert_eq!(ResponseTiming::of(SLOWEST, large, 1.0, 4).strangers, 4, "ours uses more");
    }

    #[test]
    fn the_slowest_machine_answers_within_the_life_of_a_hold() {
        let timing = ResponseTiming::of(HashCost { millis: 99_999, memory_mib: 1 }, OWN, 20.0, 1);
        assert_eq!((timing.turn, timing.answer), (LONGEST, LONGEST));
        assert!(timing.is_too_slow());
        assert!(!ResponseTiming::of(SLOWEST, OWN, 16.0, 1).is_too_slow());
    }
}
