//! What keeps the owner of an account out now, and its end at one stroke.

use std::iter;
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
    /// A code of its earlier address has frozen the account. Only what it had before opens it.
    Frozen { since: Micros },
    /// It has neither a password nor a number yet.
    NeverEntered,
    /// This rule of a limit is full, for the name, or for the number or the mailbox that gets its codes.
    Full { limit: Limit, rule: usize, until: Micros, of_codes: bool },
}

impl Hindrance {
    /// In the API.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Disabled { .. } => "disabled",
            Self::PasswordDisabled { .. } => "password-disabled",
            Self::Frozen { .. } => "frozen",
            Self::NeverEntered => "never-entered",
            Self::Full { of_codes: true, .. } => "codes",
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
    found.extend(statuses.filter_map(|(status, of_codes)| full(status, of_codes)));
    let asks = |it: &Hindrance| matches!(it, Hindrance::Full { limit, rule, .. } if !blocks(limit, *rule));
    found.sort_by_key(asks);
    found
}

/// The strictest full rule of an enforced limit. Of a number or a mailbox only what it alone fills: what it shares with
/// others is nothing that its owner can be let past, and the pause between two codes and the CAPTCHA after some are ordinary
/// use.
fn full(status: &LimitStatus, of_codes: bool) -> Option<Hindrance> {
    let limit = &status.limit;
    let is_pause = |rule: usize| matches!(limit.rules()[rule].span, RuleSpan::Sliding(window) if window <= LONGEST_PAUSE);
    let counts = |rule: usize| !of_codes || (blocks(limit, rule) && !is_pause(rule));
    let subject = LimitName::parse(limit.name()).map(LimitName::subject);
    let is_its_own = !of_codes || matches!(subject, Some(LimitSubject::Phone | LimitSubject::Mailbox));
    if limit.mode() != LimitMode::Enforce || !is_its_own {
        return None;
    }
    let full = status.rules.iter().enumerate().filter_map(|(at, rule)| Some((at, rule.frees_at?)));
    let full = full.filter(|(at, _)| counts(*at));
    let (rule, until) = full.max_by_key(|(at, until)| (blocks(limit, *at), *until))?;
    Some(Hindrance::Full { limit: limit.clone(), rule, until, of_codes })
}

fn blocks(limit: &Limit, rule: usize) -> bool {
    limit.rules()[rule].then == RuleAction::Block
}

/// Between two codes to one number or mailbox.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

const fn subject(value: LookupValue) -> LookupSubject {
    LookupSubject { scope: LookupScope::Pages, value }
}

fn name_of(account: &Account) -> LookupSubject {
    subject(LookupValue::Login(LookupLogin::Account(account.login.clone())))
}

impl Lookup {
    /// What keeps the owner of an account out, the strictest first; empty if nothing does. From a known device they may
    /// get in all the same. By the counts that the look-up of the name, of the number and of the mailbox show.
    pub async fn hindrances(
        &self,
        live: &LiveSettings,
        account: &Account,
    ) -> Result<Vec<Hindrance>, LookupError> {
        let mut statuses = Vec::new();
        for (subject, of_codes) in self.subjects_of(account).await? {
            statuses.extend(self.all(live, &subject).await?.into_iter().map(|status| (status, of_codes)));
        }
        let statuses = statuses.iter().map(|(status, of_codes)| (status, *of_codes));
        Ok(hindrances_of(Some(account), statuses))
    }

    /// What limits count an account by: its name; and, with true, where its codes go.
    async fn subjects_of(&self, account: &Account) -> Result<Vec<(LookupSubject, bool)>, LookupError> {
        let email = self.0.emails.of(account.id).await?;
        let codes_go_to = [account.phone.clone().map(LookupValue::Phone), email.map(LookupValue::Mailbox)];
        let codes_go_to = codes_go_to.into_iter().flatten().map(|value| (subject(value), true));
        Ok(iter::once((name_of(account), false)).chain(codes_go_to).collect())
    }

    /// Ends whatever keeps the owner out and can be unlocked, each with a record of its own. Returns how much that was. A
    /// program's token gives no budget of messages and no guesses at codes back, which takes another scope; nor does it lift
    /// a freeze, of which somebody has to talk with the owner.
    pub async fn unlock(
        &self,
        live: &Arc<LiveSettings>,
        account: &Account,
        by: &LookupActor,
    ) -> Result<usize, LookupError> {
        let (mut ended, subjects) = (0, self.subjects_of(account).await?);
        for hindrance in self.hindrances(live, account).await? {
            let done = match &hindrance {
                Hindrance::PasswordDisabled { .. } => {
                    self.enable_password(&name_of(account), by.clone()).await?
                }
                Hindrance::Frozen { .. } if by.token.is_some() => false,
                Hindrance::Frozen { .. } => self.unfreeze(account, by.clone()).await?,
                Hindrance::Full { of_codes: true, .. } if by.token.is_some() => false,
                Hindrance::Full { limit, .. } => {
                    let counted = subjects.iter().find(|(subject, _)| subject.is_counted_by(limit.name()));
                    match counted {
                        Some((subject, _)) => self.clear(live, limit.name(), subject, by.clone()).await?,
                        None => false,
                    }
                }
                Hindrance::Disabled { .. } | Hindrance::NeverEntered => false,
            };
            ended += usize::from(done);
        }
        Ok(ended)
    }
}
