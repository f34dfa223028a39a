//! What keeps the owner of an account out now, and its end at one stroke.

use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::{Limit, LimitMode, RuleAction, RuleSpan};

use super::{
    LimitStatus, Lookup, LookupActor, LookupError, LookupLogin, LookupScope, LookupSubject, LookupValue,
};
use crate::accounts::Account;
use crate::clock::Micros;
use crate::config::{LimitName, LimitSubject, LiveSettings};

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Hindrance {
    /// An administrator has disabled the account.
    Disabled { since: Micros },
    /// There were too many wrong passwords in a row: only known devices get in by it.
    PasswordDisabled { since: Micros },
    /// Whoever had its address before froze it: no code opens it.
    Frozen { since: Micros },
    /// It has neither a password nor a number yet.
    NeverEntered,
    /// This rule of a limit is full, for the name or for the number.
    Full { limit: Limit, rule: usize, until: Micros, of_number: bool },
}

impl Hindrance {
    /// In the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Disabled { .. } => "disabled",
            Self::PasswordDisabled { .. } => "password-disabled",
            Self::Frozen { .. } => "frozen",
            Self::NeverEntered => "never-entered",
            Self::Full { of_number: true, .. } => "codes",
            Self::Full { limit, .. } if limit.name() == LimitName::FactorAccount.as_str() => "factor",
            Self::Full { limit, rule, .. } => match limit.rules()[*rule].then {
                RuleAction::Captcha => "captcha",
                RuleAction::Block => "refused",
            },
        }
    }

    /// Whether unlocking ends it. What an administrator has done, another act undoes.
    pub const fn can_be_unlocked(&self) -> bool {
        matches!(self, Self::PasswordDisabled { .. } | Self::Frozen { .. } | Self::Full { .. })
    }
}

/// What the counts of a subject and its account tell, if it has one; what asks for a CAPTCHA comes last.
pub fn hindrances_of<'a>(
    account: Option<&Account>,
    statuses: impl Iterator<Item = (&'a LimitStatus, bool)>,
) -> Vec<Hindrance> {
    let mut found = Vec::new();
    if let Some(account) = account {
        found.extend(account.disabled_at.map(|since| Hindrance::Disabled { since }));
        found.extend(account.password_disabled_at.map(|since| Hindrance::PasswordDisabled { since }));
        found.extend(account.frozen_at.map(|since| Hindrance::Frozen { since }));
        let is_new = account.password_hash.is_none() && account.phone.is_none();
        found.extend(is_new.then_some(Hindrance::NeverEntered));
    }
    found.extend(statuses.filter_map(|(status, of_number)| full(status, of_number)));
    let asks = |it: &Hindrance| matches!(it, Hindrance::Full { limit, rule, .. } if !blocks(limit, *rule));
    found.sort_by_key(asks);
    found
}

/// The strictest full rule of an enforced limit. Of a number only what it alone fills: what it shares with others is nothing
/// that its owner can be let past, and the pause between two codes and the CAPTCHA after some are ordinary use.
fn full(status: &LimitStatus, of_number: bool) -> Option<Hindrance> {
    let limit = &status.limit;
    let is_pause = |rule: usize| matches!(limit.rules()[rule].span, RuleSpan::Sliding(window) if window <= LONGEST_PAUSE);
    let counts = |rule: usize| !of_number || (blocks(limit, rule) && !is_pause(rule));
    let is_its_own =
        !of_number || LimitName::parse(limit.name()).is_some_and(|it| it.subject() == LimitSubject::Phone);
    if limit.mode() != LimitMode::Enforce || !is_its_own {
        return None;
    }
    let full = status.rules.iter().enumerate().filter_map(|(at, rule)| Some((at, rule.frees_at?)));
    let full = full.filter(|(at, _)| counts(*at));
    let (rule, until) = full.max_by_key(|(at, until)| (blocks(limit, *at), *until))?;
    Some(Hindrance::Full { limit: limit.clone(), rule, until, of_number })
}

fn blocks(limit: &Limit, rule: usize) -> bool {
    limit.rules()[rule].then == RuleAction::Block
}

/// Between two codes to one number.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

fn subject(account: &Account, of_number: bool) -> Option<LookupSubject> {
    let value = match of_number {
        false => LookupValue::Login(LookupLogin::Account(account.login.clone())),
        true => LookupValue::Phone(account.phone.clone()?),
    };
    Some(LookupSubject { scope: LookupScope::Pages, value })
}

impl Lookup {
    /// What keeps the owner of an account out, the strictest first; empty if nothing does. From a known device they may
    /// get in all the same. By the counts that the look-up of the name and of the number show.
    pub async fn hindrances(
        &self,
        live: &LiveSettings,
        account: &Account,
    ) -> Result<Vec<Hindrance>, LookupError> {
        let mut statuses = Vec::new();
        for of_number in [false, true] {
            let Some(subject) = subject(account, of_number) else { continue };
            statuses.extend(self.all(live, &subject).await?.into_iter().map(|status| (status, of_number)));
        }
        let statuses = statuses.iter().map(|(status, of_number)| (status, *of_number));
        Ok(hindrances_of(Some(account), statuses))
    }

    /// Ends whatever keeps the owner out and can be unlocked, each with a record of its own. Returns how much that was. A
    /// program's token gives no budget of messages and no guesses at codes back: that takes another scope.
    pub async fn unlock(
        &self,
        live: &Arc<LiveSettings>,
        account: &Account,
        by: &LookupActor,
    ) -> Result<usize, LookupError> {
        let mut ended = 0;
        for hindrance in self.hindrances(live, account).await? {
            let done = match &hindrance {
                Hindrance::PasswordDisabled { .. } | Hindrance::Frozen { .. } => {
                    match subject(account, false) {
                        Some(subject) => self.enable_password(&subject, by.clone()).await?,
                        None => false,
                    }
                }
                Hindrance::Full { of_number: true, .. } if by.token.is_some() => false,
                Hindrance::Full { limit, of_number, .. } => match subject(account, *of_number) {
                    Some(subject) => self.clear(live, limit.name(), &subject, by.clone()).await?,
                    None => false,
                },
                Hindrance::Disabled { .. } | Hindrance::NeverEntered => false,
            };
            ended += usize::from(done);
        }
        Ok(ended)
    }
}
