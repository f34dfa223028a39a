//! How much of the total budget is spent, for the metrics, the events and the console.

use super::share::open_part;

/// How far the part that everybody may spend is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum BudgetLevel {
    #[default]
    Calm,
    /// Half of the whole.
    Half,
    /// The open part is used up.
    Short,
}

/// The rule of `sms-total` of which the largest part is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentRule {
    pub count: u32,
    /// The rule's `max`, including the reserve.
    pub max: u32,
}

impl SpentRule {
    pub const fn level(self) -> BudgetLevel {
        if self.count >= open_part(self.max) {
            BudgetLevel::Short
        } else if self.count as u64 * 2 >= self.max as u64 {
            BudgetLevel::Half
        } else {
            BudgetLevel::Calm
        }
    }

    /// A level is left again only when a tenth less is spent, so that a window in which one message leaves
    /// and one arrives is recorded once.
    pub fn level_after(self, before: BudgetLevel) -> BudgetLevel {
        let with_a_tenth = u64::from(self.count) + (u64::from(self.count) / 9).max(1);
        let falling = Self { count: with_a_tenth.min(self.max.into()) as u32, ..self };
        self.level().max(before.min(falling.level()))
    }

    pub fn part(self) -> f64 {
        f64::from(self.count) / f64::from(self.max)
    }
}

impl BudgetLevel {
    /// Its name in the record.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Self::Calm => None,
            Self::Half => Some("half"),
            Self::Short => Some("short"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_and_four_fifths_are_told_apart() {
        let level = |count| SpentRule { count, max: 10 }.level();
        let levels =
            [BudgetLevel::Calm, BudgetLevel::Calm, BudgetLevel::Half, BudgetLevel::Half, BudgetLevel::Short];
        assert_eq!([0, 4, 5, 7, 8].map(level), levels);
    }

    #[test]
    fn a_level_is_left_when_a_tenth_less_is_spent() {
        let after = |count| SpentRule { count, max: 100 }.level_after(BudgetLevel::Short);
        assert_eq!(
            [79, 72, 71, 50, 45, 44].map(after),
            [
                BudgetLevel::Short,
                BudgetLevel::Short,
                BudgetLevel::Half,
                BudgetLevel::Half,
                BudgetLevel::Half,
                BudgetLevel::Calm
            ]
        );
        assert_eq!(SpentRule { count: 79, max: 100 }.level_after(BudgetLevel::Half), BudgetLevel::Half);
    }
}
