//! Which part of a shared budget is open to everybody, and which is reserved for numbers that belong to an
//! account.

use std::future::Future;
use std::pin::Pin;

use super::Phone;
use crate::clock::Micros;
use crate::db::DbError;
use crate::throttle::{Limit, LimitMode, Rule, RuleAction};

/// Knows which numbers belong to an account. Asked for every request in a shortage, and never otherwise.
pub trait PhoneOwners: Send + Sync {
    /// Since when an account has had the number, by the database's clock; None if no account has it.
    fn since<'a>(
        &'a self,
        phone: &'a Phone,
    ) -> Pin<Box<dyn Future<Output = Result<Option<Micros>, DbError>> + Send + 'a>>;
}

/// The part of the shared budgets that a message is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BudgetShare {
    /// The part that everybody may spend.
    Open,
    /// The open part, for a proven number: of an account, and the requester's address or network is used up; or of a
    /// program, under its brake.
    SpentAsker,
    /// The part reserved for numbers of accounts.
    Reserve,
    /// None: the answer said that it was sent, but it was not.
    Withheld,
}

impl BudgetShare {
    const ALL: [Self; 4] = [Self::Open, Self::SpentAsker, Self::Reserve, Self::Withheld];

    /// The value in the ledger.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::SpentAsker => "spent-asker",
            Self::Reserve => "reserve",
            Self::Withheld => "withheld",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|share| share.as_str() == text)
    }
}

/// One of every five messages of a shared budget is reserved: enough for the account owners of a small
/// service through the worst day, and so little that others notice it late. Of the total, as many again are
/// left for programs.
const KEPT_ONE_OF: u32 = 5;

/// The part of a `block` rule's `max` that everybody may spend: four fifths, and at least one.
pub const fn open_part(max: u32) -> u32 {
    let open = max - max.div_ceil(KEPT_ONE_OF);
    if open == 0 { 1 } else { open }
}

/// The part of it that strangers at our own pages may spend: three fifths, and at least one.
pub const fn pages_part(max: u32) -> u32 {
    let pages = max.saturating_sub(2 * max.div_ceil(KEPT_ONE_OF));
    if pages == 0 { 1 } else { pages }
}

/// The same limit with its `block` rules reduced to a part. A limit in monitor mode refuses nobody and stays
/// whole. Same rules in the same order, and the same log.
pub fn reduced(limit: &Limit, part: fn(u32) -> u32) -> Limit {
    let part = |rule: &Rule| match (limit.mode(), rule.then) {
        (LimitMode::Enforce, RuleAction::Block) => Rule { max: part(rule.max), ..rule.clone() },
        _ => rule.clone(),
    };
    of(limit.name(), limit.rules().iter().map(part).collect(), limit.mode()).keeping(limit.capacity())
}

/// The rest, which has a log of its own: other people's waits must not show what is in it. None if nothing is
/// reserved.
pub fn reserve(limit: &Limit, name: &str) -> Option<Limit> {
    let enforced = limit.rules().iter().filter(|_| limit.mode() == LimitMode::Enforce);
    let kept = enforced.filter(|rule| rule.then == RuleAction::Block).map(|rule| {
        let max = rule.max - open_part(rule.max);
        (max > 0).then(|| Rule { max, ..rule.clone() })
    });
    Some(of(name, kept.collect::<Option<_>>()?, LimitMode::Enforce))
}

/// The same limit, which counts but never refuses.
pub fn counting(limit: &Limit) -> Limit {
    of(limit.name(), limit.rules().to_vec(), LimitMode::Monitor).keeping(limit.capacity())
}

fn of(name: &str, rules: Vec<Rule>, mode: LimitMode) -> Limit {
    Limit::new(name, rules, mode).expect("no more than a valid limit has, and within its bounds")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn limit(max: u32, mode: LimitMode) -> Limit {
        let rules =
            vec![Rule::sliding(3, HOUR, RuleAction::Captcha), Rule::sliding(max, HOUR, RuleAction::Block)];
        Limit::new("sms-total", rules, mode).unwrap()
    }

    #[test]
    fn the_two_parts_are_never_more_than_the_whole() {
        for max in 1..1000 {
            let whole = limit(max, LimitMode::Enforce);
            let open = reduced(&whole, open_part).rules()[1].max;
            let kept = reserve(&whole, "kept").map_or(0, |kept| kept.rules()[0].max);
            assert_eq!((open + kept, open), (max, open_part(max)), "{max}");
            assert!((1..=open).contains(&pages_part(max)), "{max}");
        }
        assert_eq!([5, 10, 200, 10_000].map(pages_part), [3, 6, 120, 6_000]);
        assert_eq!([1, 2, 3, 4].map(pages_part), [1, 1, 1, 2]);
        assert_eq!([20, 100, 200, 10_000].map(open_part), [16, 80, 160, 8_000]);
        assert_eq!([1, 2, 3, 4].map(open_part), [1, 1, 2, 3]);
    }

    #[test]
    fn challenges_stay_where_they_were_and_what_only_watches_is_whole() {
        assert_eq!(reduced(&limit(20, LimitMode::Enforce), open_part).rules()[0].max, 3);
        assert_eq!(reduced(&limit(20, LimitMode::Monitor), open_part), limit(20, LimitMode::Monitor));
        assert!(reserve(&limit(20, LimitMode::Monitor), "kept").unwrap().rules().is_empty());
        assert_eq!(reserve(&limit(1, LimitMode::Enforce), "kept"), None);
    }

    #[test]
    fn shares_come_back_from_their_text() {
        assert!(BudgetShare::ALL.iter().all(|share| BudgetShare::parse(share.as_str()) == Some(*share)));
    }
}
