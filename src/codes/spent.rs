//! How much of a budget of a day is spent, and the levels at which that is told.

use strum::IntoStaticStr;

use super::message_limits::{open_part, pages_part};

/// How far the part that everybody may spend is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, IntoStaticStr)]
#[strum(serialize_all = "lowercase", const_into_str)]
pub enum BudgetLevel {
    #[default]
    Calm,
    Half,
    /// The open part is used up, or that of our own pages is.
    Short,
}

/// The rule of `sms-total` of which the largest part is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpentRule {
    pub count: u32,
    /// How many of them our own pages have sent.
    pub pages: u32,
    /// The rule's `max`, including the reserve.
    pub max: u32,
}

impl SpentRule {
    pub const fn level(self) -> BudgetLevel {
        if self.count >= open_part(self.max) || self.pages >= pages_part(self.max) {
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
        let with_a_tenth = |count: u32| {
            let more = u64::from(count) + u64::from((count / 9).max(count.min(1)));
            more.min(self.max.into()) as u32
        };
        let falling = Self { count: with_a_tenth(self.count), pages: with_a_tenth(self.pages), ..self };
        self.level().max(before.min(falling.level()))
    }

    pub fn part(self) -> f64 {
        f64::from(self.count) / f64::from(self.max)
    }

    /// The used part of what our own pages may send: 1 if it is used up.
    pub fn part_of_pages(self) -> f64 {
        f64::from(self.pages) / f64::from(pages_part(self.max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_and_four_fifths_are_told_apart() {
        let level = |count, pages| SpentRule { count, pages, max: 10 }.level();
        let levels =
            [BudgetLevel::Calm, BudgetLevel::Calm, BudgetLevel::Half, BudgetLevel::Half, BudgetLevel::Short];
        assert_eq!([0, 4, 5, 7, 8].map(|count| level(count, 0)), levels);
        assert_eq!([level(6, 5), level(6, 6)], [BudgetLevel::Half, BudgetLevel::Short]);
    }

    #[test]
    fn a_level_is_left_when_a_tenth_less_is_spent() {
        let after = |count| SpentRule { count, pages: 0, max: 100 }.level_after(BudgetLevel::Short);
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
        assert_eq!(
            SpentRule { count: 79, pages: 0, max: 100 }.level_after(BudgetLevel::Half),
            BudgetLevel::Half
        );
    }
}
