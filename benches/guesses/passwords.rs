//! What people take for passwords, and chance by a seed.

/// Wang, Cheng, Wang, Huang, Jian: "Zipf's Law in Passwords", IEEE TIFS 12 (11), 2017, the CDF-Zipf model
/// F(r) = C · r^s: the share of people who have one of the `r` commonest passwords. It fits each list within 0.49 % to
/// 4.59 % of the people (its abstract). It overstates the first ranks: 3.7 % for the first of Rockyou's, which 0.9 %
/// had (290,729 of 32.6 million).
#[derive(Debug, Clone, Copy)]
pub struct Fit {
    pub list: &'static str,
    c: f64,
    s: f64,
}

/// C and s of CDF-Zipf fits. Those of Tianya and 000webhost have not been held against the paper's table.
pub const FITS: [Fit; 3] = [
    Fit { list: "Rockyou", c: 0.037433, s: 0.187227 },
    Fit { list: "Tianya", c: 0.062239, s: 0.155478 },
    Fit { list: "000webhost", c: 0.005858, s: 0.281557 },
];
pub const ROCKYOU: Fit = FITS[0];
/// That site required letters and digits: how people choose where the commonest passwords are refused.
pub const REFUSED_BEFORE: Fit = FITS[2];

impl Fit {
    /// The share of people with one of the `rank` commonest passwords.
    pub fn share(&self, rank: f64) -> f64 {
        (self.c * rank.powf(self.s)).min(1.0)
    }

    pub fn draw(&self, chance: &mut Chance) -> f64 {
        self.rank_of(chance.part())
    }

    /// A password past the first `list` ones; none if the fit ends before.
    pub fn draw_past(&self, list: f64, chance: &mut Chance) -> Option<f64> {
        let known = self.share(list);
        (known < 1.0).then(|| self.rank_of(known + (1.0 - known) * chance.part()).max(list + 1.0))
    }

    fn rank_of(&self, share: f64) -> f64 {
        (share / self.c).powf(1.0 / self.s).ceil().max(1.0)
    }
}

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
