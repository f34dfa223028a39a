//! Wrong passwords in a row: no more than so many are compared with an account's own, then that is disabled.
//!
//! What counts stands in SQL and is added to when a password was wrong. Until then an attempt is in the air, and
//! those in the air of this process take part: there are never more than could all be wrong. One that would be
//! too many waits for another to end, so that right passwords are not refused for one another. What other
//! instances have in the air is not seen; whatever ends after the password was disabled was wrong, even if right
//! (see [`Accounts::forget_failures`] and where sessions start).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::Counter;
use tokio::sync::Notify;

use super::{Account, AccountId, Accounts, Failure, Username};
use crate::db::DbError;

/// How long an attempt may wait for others to end: with the hashing queue behind it, this stays well under
/// [`HOLD_LIFE`](crate::throttle::window::HOLD_LIFE).
const PATIENCE: Duration = Duration::from_secs(5);

/// For how many names that no password opens it is known how often they were tried.
const NAMES: usize = 100_000;

pub struct Consecutive {
    accounts: Accounts,
    air: Arc<Air>,
    /// Wrong passwords at names that no password opens, so that attempts there wait for each other as they would
    /// at an account. Kept by this process for those that were tried last: nothing hangs on it but how it looks.
    unheld: quick_cache::sync::Cache<Username, u64>,
    disabled: Counter,
    tried: Counter,
}

/// Whom a login names, and the leave to compare one password with theirs.
pub struct Looked {
    pub account: Option<Account>,
    pub turn: Option<Turn>,
}

impl Consecutive {
    pub fn new(accounts: Accounts) -> Self {
        let (disabled, tried) = (counter("disabled"), counter("tried"));
        Self { accounts, air: Arc::default(), unheld: quick_cache::sync::Cache::new(NAMES), disabled, tried }
    }

    /// Looks the account up; `expected` is the one that it is believed to be. None where too many others were in
    /// the air for too long.
    pub async fn look(
        &self,
        login: &Username,
        expected: Option<AccountId>,
        max: u32,
    ) -> Result<Option<Looked>, DbError> {
        if max == 0 {
            return Ok(Some(Looked { account: self.accounts.find(login).await?, turn: None }));
        }
        let whose = expected.map_or_else(|| Whose::Name(login.clone()), Whose::Account);
        let waiting = self.wait_for_turn(login, Turn::new(&self.air, whose), max);
        tokio::time::timeout(PATIENCE, waiting).await.ok().transpose()
    }

    async fn wait_for_turn(&self, login: &Username, mut turn: Turn, max: u32) -> Result<Looked, DbError> {
        loop {
            let ended = turn.ended();
            let account = self.accounts.find(login).await?;
            let Some(failures) = self.failures(login, account.as_ref(), max) else {
                return Ok(Looked { account, turn: None });
            };
            match turn.rise(failures, ended, max) {
                Rise::Risen => return Ok(Looked { account, turn: Some(turn) }),
                Rise::Stale => {}
                Rise::Full => turn.freed.notified().await,
            }
        }
    }

    /// Wrong passwords in a row so far; None where there were too many.
    fn failures(&self, login: &Username, account: Option<&Account>, max: u32) -> Option<u64> {
        match account {
            Some(account) if account.password_disabled_at.is_some() => None,
            Some(account) if account.open_hash().is_some() => {
                Some(u64::try_from(account.password_failures).unwrap_or(0))
            }
            _ => Some(self.unheld.get(login).unwrap_or(0)).filter(|failures| *failures < u64::from(max)),
        }
    }

    /// Whether a password that was compared equal is right still. One statement, where wrong ones stood before.
    /// Where none did, nobody in this process can have disabled it meanwhile, and where another instance has, no
    /// session starts.
    pub async fn confirm(&self, account: &Account) -> Result<bool, DbError> {
        if account.password_failures == 0 {
            return Ok(true);
        }
        self.accounts.forget_failures(account).await
    }

    /// A password was wrong. Whether the account's is disabled by that.
    pub async fn count(
        &self,
        login: &Username,
        account: Option<&Account>,
        max: u32,
    ) -> Result<bool, DbError> {
        if account.is_some_and(|account| account.password_disabled_at.is_some()) {
            self.tried.increment(1);
        }
        if max == 0 {
            return Ok(false);
        }
        let Some(account) = account.filter(|account| account.open_hash().is_some()) else {
            if account.is_none_or(|account| account.password_disabled_at.is_none()) {
                let _one_at_a_time = self.air.lock();
                self.unheld.insert(login.clone(), self.unheld.get(login).unwrap_or(0) + 1);
            }
            self.accounts.count_unheld_failure(login).await?;
            return Ok(false);
        };
        let disabled = self.accounts.count_failure(account, max).await? == Failure::Disabled;
        if disabled {
            self.disabled.increment(1);
        }
        Ok(disabled)
    }
}

/// Of passwords that were disabled and open their accounts again, or were replaced by a code.
pub fn password_enabled_counter() -> Counter {
    counter("enabled")
}

/// `gatehouse_disabled_passwords_total` by outcome: what became of passwords that had too many wrong ones.
fn counter(outcome: &'static str) -> Counter {
    metrics::counter!("gatehouse_disabled_passwords_total", "outcome" => outcome)
}

/// The attempts of this process, by whom they are at.
#[derive(Default)]
struct Air(Mutex<HashMap<Whose, Flights>>);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Whose {
    Account(AccountId),
    /// Of no account.
    Name(Username),
}

#[derive(Default)]
struct Flights {
    /// Being compared.
    aloft: u64,
    /// Ended since this entry is here.
    ended: u64,
    /// Aloft, or waiting for it.
    turns: usize,
    freed: Arc<Notify>,
}

/// A part in the attempts at one account, until it is dropped.
pub struct Turn {
    air: Arc<Air>,
    whose: Whose,
    aloft: bool,
    freed: Arc<Notify>,
}

enum Rise {
    Risen,
    /// Somebody has ended since the failures were read: read them again.
    Stale,
    /// Were all wrong that are aloft, there would be no room for this one.
    Full,
}

impl Air {
    fn lock(&self) -> MutexGuard<'_, HashMap<Whose, Flights>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    fn new(air: &Arc<Air>, whose: Whose) -> Self {
        let mut all = air.lock();
        let flights = all.entry(whose.clone()).or_default();
        flights.turns += 1;
        Self { air: Arc::clone(air), whose, aloft: false, freed: Arc::clone(&flights.freed) }
    }

    /// How many attempts have ended; to be asked before the failures are read.
    fn ended(&self) -> u64 {
        self.air.lock()[&self.whose].ended
    }

    /// Goes up where that is safe. Of those that have ended since, the failures may be read or not.
    fn rise(&mut self, failures: u64, ended: u64, max: u32) -> Rise {
        let mut all = self.air.lock();
        let flights = all.get_mut(&self.whose).expect("here until the last turn is dropped");
        let since = flights.ended - ended;
        // One alone always may: the setting may have been lowered to less than there were failures.
        let room = failures + since + flights.aloft < u64::from(max) || since + flights.aloft == 0;
        if room {
            flights.aloft += 1;
            self.aloft = true;
            // There may be room for the next one, too.
            self.freed.notify_one();
            return Rise::Risen;
        }
        if since > 0 { Rise::Stale } else { Rise::Full }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut all = self.air.lock();
        let Some(flights) = all.get_mut(&self.whose) else { return };
        flights.turns -= 1;
        if self.aloft {
            flights.aloft -= 1;
            flights.ended += 1;
        }
        if flights.turns == 0 {
            all.remove(&self.whose);
        } else {
            // Also by one that never rose: it may have been the one that was told.
            flights.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
