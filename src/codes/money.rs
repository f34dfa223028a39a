//! A budget in money: what of it is left for whom, by what the last 24 hours have cost.

use std::collections::{BTreeSet, HashMap};

use super::decide::BudgetShare;
use super::message_limits::{open_part, pages_part};
use super::spent::BudgetLevel;
use crate::config::{Money, SmsTunables};

/// What the last 24 hours have cost, as it was counted last.
#[derive(Debug, Clone, Default)]
pub struct MoneySpent {
    /// What was told last.
    pub level: BudgetLevel,
    pub spent: Money,
    /// The part of it that everybody may spend, by side and country.
    open: HashMap<(MoneySide, String), Money>,
    /// The part of it that went to numbers of accounts alone.
    kept: Money,
}

/// Who has messages sent. Neither side spends all that is open to both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MoneySide {
    Pages,
    Programs,
}

/// For whom something is left, if the budget is kept to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoneyLeft {
    /// For everybody. Nothing that accounts are sent changes this, since everybody sees it.
    pub open: bool,
    /// For numbers of accounts. Nobody sees this.
    pub kept: bool,
}

impl MoneyLeft {
    pub const ALL: Self = Self { open: true, kept: true };
}

/// A country takes one in so many parts of the budget at most, or one in as many as there are countries.
const PARTS: usize = 4;

/// Messages of a share to a country.
pub type SentRow = (BudgetShare, String, i64, i64, i64);

impl MoneySpent {
    pub fn of(rows: &[SentRow], sms: &SmsTunables) -> Self {
        let mut all = Self::default();
        for (share, country, program, sent, _) in rows {
            let cost = sms.price_to(country).times(sent.unsigned_abs());
            all.spent.0 += cost.0;
            let side = if *program == 0 { MoneySide::Pages } else { MoneySide::Programs };
            match share {
                BudgetShare::Open => all.open.entry((side, country.clone())).or_default().0 += cost.0,
                BudgetShare::SpentAsker | BudgetShare::Reserve | BudgetShare::Withheld => {
                    all.kept.0 += cost.0;
                }
            }
        }
        all
    }

    pub fn left(&self, sms: &SmsTunables, side: MoneySide, country: &str) -> MoneyLeft {
        let Some(budget) = sms.budget.as_ref().map(|budget| budget.amount) else { return MoneyLeft::ALL };
        let spent = |of: &[MoneySide]| {
            let costs = self.open.iter().filter(|((side, _), _)| of.contains(side)).map(|(_, cost)| cost.0);
            Money(costs.sum()).hundredths()
        };
        let max = budget.hundredths();
        let all = spent(&[MoneySide::Pages, MoneySide::Programs]) >= open_part(max);
        let pages = side == MoneySide::Pages && spent(&[MoneySide::Pages]) >= pages_part(max);
        MoneyLeft {
            open: !all && !pages && !self.is_full(sms, side, country),
            kept: self.spent < budget || self.kept.times(5) < budget,
        }
    }

    /// Whether the country has taken its part at that side.
    fn is_full(&self, sms: &SmsTunables, side: MoneySide, country: &str) -> bool {
        let parts = if sms.countries.is_empty() { PARTS } else { PARTS.min(sms.countries.len()) };
        let cost = self.open.get(&(side, country.to_owned())).copied().unwrap_or_default();
        !cost.is_zero() && sms.budget.as_ref().is_some_and(|budget| cost.times(parts as u64) >= budget.amount)
    }

    /// Countries that have taken their part.
    pub fn full(&self, sms: &SmsTunables) -> BTreeSet<String> {
        let full = self.open.keys().filter(|(side, country)| self.is_full(sms, *side, country));
        full.map(|(_, country)| country.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DailyBudget;

    fn money(units: u64) -> Money {
        Money(units * 1_000_000)
    }

    fn settings(countries: &[&str]) -> SmsTunables {
        let budget = DailyBudget { amount: money(200), currency: "EUR".to_owned() };
        let countries = countries.iter().map(|&code| code.to_owned()).collect();
        SmsTunables { price: money(1), budget: Some(budget), countries, ..SmsTunables::default() }
    }

    fn spent(sms: &SmsTunables, rows: &[(BudgetShare, &str, i64, i64)]) -> MoneySpent {
        let rows: Vec<_> = rows
            .iter()
            .map(|&(share, country, program, sent)| (share, country.to_owned(), program, sent, 0))
            .collect();
        MoneySpent::of(&rows, sms)
    }

    #[test]
    fn a_country_takes_a_quarter_or_its_part_of_few_at_each_side() {
        use BudgetShare::Open;
        let (all, one, two) = (settings(&[]), settings(&["CN"]), settings(&["CN", "US"]));
        let left = |sms: &SmsTunables, sent, side| spent(sms, &[(Open, "CN", 0, sent)]).left(sms, side, "CN");
        let open = |sms, sent, side| left(sms, sent, side).open;
        let (pages, programs) = (MoneySide::Pages, MoneySide::Programs);
        assert_eq!([49, 50].map(|sent| open(&all, sent, pages)), [true, false]);
        assert!(open(&all, 50, programs));
        assert_eq!([99, 100].map(|sent| open(&two, sent, pages)), [true, false]);
        // Three fifths are for our pages.
        assert_eq!([119, 120].map(|sent| open(&one, sent, pages)), [true, false]);
        assert_eq!([159, 160].map(|sent| open(&one, sent, programs)), [true, false]);
        assert_eq!(
            spent(&all, &[(Open, "CN", 0, 50), (Open, "US", 1, 49)]).full(&all),
            BTreeSet::from(["CN".to_owned()])
        );
    }

    #[test]
    fn strangers_spend_nothing_of_what_is_kept_and_accounts_nothing_of_what_is_open() {
        use BudgetShare::{Open, Reserve, SpentAsker};
        let sms = settings(&[]);
        let left = |rows: &[_]| {
            let MoneyLeft { open, kept } = spent(&sms, rows).left(&sms, MoneySide::Pages, "FR");
            (open, kept)
        };
        assert_eq!(left(&[(Open, "CN", 0, 1_000)]), (false, true), "whatever strangers spend");
        assert_eq!(left(&[(Open, "CN", 0, 1_000), (Reserve, "CN", 0, 39)]), (false, true));
        assert_eq!(left(&[(Open, "CN", 0, 1_000), (Reserve, "CN", 0, 40)]), (false, false));
        assert_eq!(left(&[(SpentAsker, "FR", 0, 199)]), (true, true));
        assert_eq!(left(&[(SpentAsker, "FR", 0, 200)]), (true, false), "nobody sees what accounts are sent");
        assert_eq!(left(&[(Open, "", 0, 1_000)]), (true, true), "from before countries were kept");
    }
}
