//! Numbers by chance that a seed gives again, the same on every machine.

/// xoshiro256** (Blackman and Vigna), seeded by SplitMix64.
#[derive(Debug, Clone)]
pub struct Chance([u64; 4]);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self([1, 2, 3, 4].map(|part| hash(seed.wrapping_mul(4).wrapping_add(part))))
    }

    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// From 0 to 1, without 1.
    pub fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn is(&mut self, probability: f64) -> bool {
        self.part() < probability
    }

    pub fn below(&mut self, end: u64) -> u64 {
        (self.part() * end as f64) as u64
    }

    /// Until the next of events that come with this rate.
    pub fn gap(&mut self, rate: f64) -> f64 {
        -(1.0 - self.part()).ln() / rate
    }
}

/// SplitMix64: stands for a keyed hash.
pub const fn hash(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
