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
    let strictest = full.max_by_key(|(at, until)| (blocks(&status.limit, *at), *until));
    strictest.filter(|_| status.limit.mode() == LimitMode::Enforce)
}

fn blocks(limit: &Limit, rule: usize) -> bool {
    limit.rules()[rule].then == RuleAction::Block
}

/// Whether the number alone fills the rule: what it shares with others is nothing that its owner can be let past. The pause between two codes
/// and the CAPTCHA after some in a day are ordinary use.
fn is_kept_by(status: &LimitStatus, rule: usize) -> bool {
    let of_number =
        LimitName::parse(status.limit.name()).is_some_and(|name| name.subject() == LimitSubject::Phone);
    let is_pause =
        matches!(status.limit.rules()[rule].span, RuleSpan::Sliding(window) if window <= LONGEST_PAUSE);
    of_number && blocks(&status.limit, rule) && !is_pause
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
        let mut found = Vec::new();
        found.extend(account.disabled_at.map(|since| Hindrance::Disabled { since }));
        found.extend(account.password_disabled_at.map(|since| Hindrance::PasswordDisabled { since }));
        if account.password_hash.is_none() && account.phone.is_none() {
            found.push(Hindrance::NeverEntered);
        }
        for of_number in [false, true] {
            let Some(subject) = subject(account, of_number) else { continue };
            for status in self.all(live, &subject).await? {
                let full = full_rule(&status).filter(|(rule, _)| !of_number || is_kept_by(&status, *rule));
                if let Some((rule, until)) = full {
                    found.push(Hindrance::Full { limit: status.limit, rule, until, of_number });
                }
            }
        }
        // What asks for a CAPTCHA comes last.
        let asks =
            |it: &Hindrance| matches!(it, Hindrance::Full { limit, rule, .. } if !blocks(limit, *rule));
        found.sort_by_key(asks);
        Ok(found)
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
                Hindrance::PasswordDisabled { .. } => match subject(account, false) {
                    Some(subject) => self.enable_password(&subject, by.clone()).await?,
                    None => false,
                },
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
