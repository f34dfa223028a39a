//! What keeps the owner of an account out now, and its end at one stroke.

use std::sync::Arc;

use gatehouse_limiter::{Limit, LimitMode, RuleAction};

use super::{
    LimitStatus, Lookup, LookupActor, LookupError, LookupLogin, LookupScope, LookupSubject, LookupValue,
};
use crate::accounts::Account;
use crate::clock::Micros;
use crate::config::{LimitName, LiveSettings};

/// One of them.
#[derive(Debug, Clone, PartialEq)]
pub enum Hindrance {
    /// An administrator has disabled the account.
    Disabled { since: Micros },
    /// There were too many wrong passwords in a row: only known devices get in by it.
    PasswordDisabled { since: Micros },
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
        matches!(self, Self::PasswordDisabled { .. } | Self::Full { .. })
    }
}

/// The strictest rule of an enforced limit that is full, by its position, and until when.
pub fn full_rule(status: &LimitStatus) -> Option<(usize, Micros)> {
    let full = status.rules.iter().enumerate().filter_map(|(at, rule)| Some((at, rule.frees_at?)));
    // A rule that refuses hides one that asks for a CAPTCHA.
    let blocks = |at: usize| status.limit.rules()[at].then == RuleAction::Block;
    let strictest = full.max_by_key(|(at, until)| (blocks(*at), *until));
    strictest.filter(|_| status.limit.mode() == LimitMode::Enforce)
}

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
        let mut found = Vec::new();
        found.extend(account.disabled_at.map(|since| Hindrance::Disabled { since }));
        found.extend(account.password_disabled_at.map(|since| Hindrance::PasswordDisabled { since }));
        if account.password_hash.is_none() && account.phone.is_none() {
            found.push(Hindrance::NeverEntered);
        }
        for of_number in [false, true] {
            let Some(subject) = subject(account, of_number) else { continue };
            for status in self.all(live, &subject).await? {
                if let Some((rule, until)) = full_rule(&status) {
                    found.push(Hindrance::Full { limit: status.limit, rule, until, of_number });
                }
            }
        }
        Ok(found)
    }

    /// Ends whatever keeps the owner out and can be unlocked, each with a record of its own. Returns how much that was.
    pub async fn unlock(
        &self,
        live: &Arc<LiveSettings>,
        account: &Account,
        by: &LookupActor,
    ) -> Result<usize, LookupError> {
        let mut ended = 0;
        for hindrance in self.hindrances(live, account).await? {
            let done = match &hindrance {
                Hindrance::PasswordDisabled { .. } => match subject(account, false) {
                    Some(subject) => self.enable_password(&subject, by.clone()).await?,
                    None => false,
                },
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
