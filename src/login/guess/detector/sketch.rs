//! Counts different names in 16 bytes, and different networks in four.

/// Registers of a `HyperLogLog`, of four bits each.
const REGISTERS: u32 = 32;
/// The correction of a `HyperLogLog` with 32 registers (Flajolet et al. 2007, figure 3).
const ALPHA: f64 = 0.697;

/// The place of a name or a network, of as many bits as a single keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(pub(super) u32);

/// A `HyperLogLog`: a register holds the longest run of zeros of the names that fell to it, plus one.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NameSketch(u128);

impl Mark {
    /// Register (5 bits), run of zeros plus one (4 bits), and 3 bits that tell names apart.
    pub(super) const fn of_name(name: u64) -> Self {
        let run = (name >> 8).trailing_zeros() + 1;
        let run = if run > 15 { 15 } else { run };
        Self((name & 31) as u32 | run << 5 | ((name >> 5 & 7) as u32) << 9)
    }

    pub(super) const fn of_network(network: u64) -> Self {
        Self((network & 0xff) as u32)
    }
}

impl NameSketch {
    pub(super) const EMPTY: Self = Self(0);
    const BITS: u32 = 4;

    fn register(self, index: u32) -> u32 {
        (self.0 >> (index * Self::BITS)) as u32 & 15
    }

    fn set(&mut self, index: u32, run: u32) {
        let shift = index * Self::BITS;
        self.0 = self.0 & !(15 << shift) | u128::from(run) << shift;
    }

    pub(super) fn add(&mut self, name: Mark) {
        let (index, run) = (name.0 & 31, name.0 >> 5 & 15);
        if run > self.register(index) {
            self.set(index, run);
        }
    }

    pub(super) fn union(mut self, other: Self) -> Self {
        if other.0 != 0 {
            for index in 0..REGISTERS {
                if other.register(index) > self.register(index) {
                    self.set(index, other.register(index));
                }
            }
        }
        self
    }

    /// The number of different names. Of up to eight it says less than one too many, so that `max` to eight is never
    /// reached by fewer names; of five names it says four for 28 %, as two fell to one register.
    pub(super) fn count(self) -> f64 {
        if self.0 == 0 {
            return 0.0;
        }
        let used = (0..REGISTERS).filter(|&index| self.register(index) > 0).count() as u32;
        let size = f64::from(REGISTERS);
        let sum: f64 = (0..REGISTERS).map(|index| 0.5_f64.powi(self.register(index) as i32)).sum();
        let estimate = ALPHA * size * size / sum;
        if estimate <= 2.5 * size && used < REGISTERS {
            return size * (size / f64::from(REGISTERS - used)).ln();
        }
        estimate
    }
}

/// How many marks have been set in a bitmap, if each fell to a bit by chance.
pub(super) fn bits_estimate(bits: u32) -> u32 {
    let size = f64::from(u32::BITS);
    let free = f64::from(bits.count_zeros().max(1));
    (size * (size / free).ln()).round() as u32
}
