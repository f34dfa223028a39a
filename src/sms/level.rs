//! How much of the total budget is spent, for the metrics, the events and the console.

use super::SmsCodes;
use super::share::open_part;
use crate::audit::{Action, AuditEvent, Outcome};
use crate::config::{LimitName, LiveSettings};
use crate::throttle::{LimitMode, RuleAction, StoreError};

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
}

impl SpentRule {
    /// A level is left again only when a tenth less is spent, so that a window in which one message leaves
    /// and one arrives is recorded once.
    fn level_after(self, before: BudgetLevel) -> BudgetLevel {
        let with_a_tenth = u64::from(self.count) + (u64::from(self.count) / 9).max(1);
        let falling = Self { count: with_a_tenth.min(self.max.into()) as u32, ..self };
        self.level().max(before.min(falling.level()))
    }
}

impl BudgetLevel {
    /// Its name in the record.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Calm => None,
            Self::Half => Some("half"),
            Self::Short => Some("short"),
        }
    }
}

impl SmsCodes {
    /// None if the total is not limited.
    pub async fn spent(&self, live: &LiveSettings) -> Result<Option<SpentRule>, StoreError> {
        let watched = self.watched(live);
        let [.., total] = watched.whole();
        if total.mode() == LimitMode::Monitor || total.rules().is_empty() {
            return Ok(None);
        }
        let peek = self.0.budgets.spent(&watched).await?;
        let blocks = total.rules().iter().zip(peek.rules).filter(|(rule, _)| rule.then == RuleAction::Block);
        let spent = blocks.map(|(rule, peek)| SpentRule { count: peek.count, max: rule.max });
        Ok(spent.max_by(|one, other| one.part().total_cmp(&other.part())))
    }

    /// Checks how much is spent, for the metrics and the record. Runs periodically, not in a request, because
    /// no requester needs it.
    pub async fn watch_level(&self, live: &LiveSettings) {
        // One at a time, so that levels are recorded in the order in which they were read.
        let mut last = self.0.level.lock().await;
        let Ok(spent) = self.spent(live).await else { return };
        self.0.metrics.spent.set(spent.map_or(0.0, SpentRule::part));
        let level = spent.map_or(BudgetLevel::Calm, |spent| spent.level_after(*last));
        let before = std::mem::replace(&mut *last, level);
        if level > before
            && let Some(name) = level.name()
        {
            let audit = &self.0.audit;
            let event = AuditEvent::new(audit.now(), Action::Budget, Outcome::Ok);
            audit.record(AuditEvent { name: Some(name), limit: Some(LimitName::SmsTotal.as_str()), ..event });
            tracing::warn!(level = name, "a large part of the limit sms-total is used");
        }
    }
}

impl SpentRule {
    fn part(self) -> f64 {
        f64::from(self.count) / f64::from(self.max)
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
