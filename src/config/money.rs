//! What messages may cost: prices, and an amount a day.

use std::fmt;

use super::document::{ConfigValue, ValueNode};
use super::reader::ParseResult;

/// An amount in millionths of a unit, of the currency that the budget names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Money(pub u64);

/// `"200 EUR / day"`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyBudget {
    pub amount: Money,
    /// Three capital letters (ISO 4217).
    pub currency: String,
}

const UNIT: u64 = 1_000_000;
/// More is a mistake: a message costs cents.
const DEAREST: f64 = 100.0;
const LARGEST: f64 = 10_000_000.0;

impl Money {
    fn of(units: f64) -> Self {
        Self((units * UNIT as f64).round() as u64)
    }

    pub fn times(self, count: u64) -> Self {
        Self(self.0.saturating_mul(count))
    }

    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// In hundredths of a unit, as budgets are judged.
    pub fn hundredths(self) -> u32 {
        u32::try_from(self.0 / (UNIT / 100)).unwrap_or(u32::MAX)
    }
}

/// Two decimals.
impl fmt::Display for Money {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (self.0 + UNIT / 200) / (UNIT / 100);
        write!(out, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

pub(super) fn price(node: ValueNode) -> ParseResult<Money> {
    let value = match node.typed().value {
        ConfigValue::Fraction(value) => value,
        ConfigValue::Integer(Ok(value)) => value as f64,
        ConfigValue::Integer(Err(digits)) => {
            return Err(format!("{digits} is out of range; it must be from 0 to {DEAREST}"));
        }
        other => return Err(format!("is {}; it must be what a message costs, such as 0.05", other.kind())),
    };
    if (0.0..=DEAREST).contains(&value) {
        Ok(Money::of(value))
    } else {
        Err(format!("{value} is out of range; it must be from 0 to {DEAREST}"))
    }
}

pub(super) fn daily_budget(node: ValueNode) -> ParseResult<DailyBudget> {
    let text = node.text()?;
    let wrong = || format!("{text:?} is not an amount a day; write it as \"200 EUR / day\"");
    let (sum, span) = text.split_once('/').ok_or_else(wrong)?;
    let (amount, currency) = sum.trim().split_once(' ').ok_or_else(wrong)?;
    let currency = currency.trim();
    let is_code = currency.len() == 3 && currency.bytes().all(|letter| letter.is_ascii_uppercase());
    let amount: f64 = amount.parse().map_err(|_| wrong())?;
    if span.trim() != "day" || !is_code {
        return Err(wrong());
    }
    if !(0.01..=LARGEST).contains(&amount) {
        return Err(format!("{amount} is out of range; a day may cost from 0.01 to {LARGEST}"));
    }
    Ok(DailyBudget { amount: Money::of(amount), currency: currency.to_owned() })
}
