//! What people take for passwords.

use crate::chance::Chance;

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
