//! Wrong passwords in a row: at most a maximum number are compared with an account's own hash, then the
//! password is disabled. Strangers share one count, and each known device has its own: failures of strangers
//! lock out no known device, and failures from a known device give strangers nothing.
//!
//! The counts are in SQL, where each wrong password is added. Until then an attempt is in flight, and this
//! process counts its attempts in flight as if all of them were wrong. An attempt that could be one too many
//! waits for another to end, so that right passwords are not refused because of each other. Attempts in
//! flight at other instances are not seen; an attempt that ends after the password was disabled counts as
//! wrong, even if it is right (see [`Accounts::forget_failures`], [`Accounts::forget_device_failures`] and
//! the start of sessions).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::Counter;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::accounts::{
    Account, AccountId, Accounts, DeviceFailures, DeviceId, FailureResult, KnownDevice, Phc, Username,
};
use crate::db::DbError;
use crate::login::ComparedHash;

/// How long an attempt may wait for others to end. With the hashing queue (5 s) and the time of an answer (4 s) this
/// stays under [`HOLD_LIFE`](gatehouse_limiter::window::HOLD_LIFE).
const PATIENCE: Duration = Duration::from_secs(5);

/// The number of names without a password for which failures are remembered.
const NAMES: usize = 100_000;

pub struct ConsecutiveFailures {
    accounts: Accounts,
    in_flight: Arc<InFlightTable>,
    patience: Duration,
    /// Wrong passwords at names without a password, so that attempts there wait for each other as they would
    /// at an account. Kept in this process for the names tried last; only the observable behaviour depends on
    /// it.
    unheld: quick_cache::sync::Cache<Username, u64>,
    disabled: Counter,
    tried: Counter,
    spent: Counter,
}

/// The account of a login, and permission to compare one password with it.
pub struct LoginLookup {
    pub account: Option<Account>,
    /// The failures of the known device that the attempt comes from.
    pub device: Option<DeviceFailures>,
    pub permit: Option<ComparisonPermit>,
}

impl LoginLookup {
    /// What the password is compared with; None for a decoy.
    pub fn open_hash(&self) -> Option<&Phc> {
        let account = self.account.as_ref()?;
        if self.device.is_some() { account.device_hash() } else { account.open_hash() }
    }

    /// What a password is compared with: the hash that is open to this client, or otherwise one that nothing matches, of
    /// the account's own salt if it has a password, so that the same guess is known again whether it is disabled or not.
    pub fn compared<'a>(&'a self, login: &'a Username) -> ComparedHash<'a> {
        let shut = self.account.as_ref().and_then(|account| account.password_hash.as_ref());
        match (self.open_hash(), shut) {
            (Some(open), _) => ComparedHash::Open(open),
            (None, Some(shut)) => ComparedHash::Shut(shut),
            (None, None) => ComparedHash::Decoy(login),
        }
    }

    /// The device has had too many wrong passwords.
    pub fn is_spent(&self) -> bool {
        self.device.is_some_and(|device| device.spent)
    }
}

impl ConsecutiveFailures {
    pub fn new(accounts: Accounts) -> Self {
        let [disabled, tried, spent] = ["disabled", "tried", "device"].map(counter);
        let unheld = quick_cache::sync::Cache::new(NAMES);
        Self { accounts, in_flight: Arc::default(), patience: PATIENCE, unheld, disabled, tried, spent }
    }

    /// Looks the account up; `expected` is the account that the login is believed to name, `device` the known
    /// device of the attempt. None if too many others were in flight for too long.
    pub async fn look_up(
        &self,
        login: &Username,
        expected: Option<AccountId>,
        device: Option<&KnownDevice>,
        max: u32,
    ) -> Result<Option<LoginLookup>, DbError> {
        if max == 0 {
            return self.find(login, device).await.map(Some);
        }
        let key = match (device, expected) {
            (Some(device), _) => InFlightKey::Device(device.account, device.id),
            (None, Some(account)) => InFlightKey::Account(account),
            (None, None) => InFlightKey::Name(login.clone()),
        };
        let mut permit = ComparisonPermit::new(&self.in_flight, key);
        let waiting = self.wait_for_permit(login, device, &mut permit, max);
        match tokio::time::timeout(self.patience, waiting).await {
            Ok(lookup) => Ok(Some(LoginLookup { permit: permit.comparing.then_some(permit), ..lookup? })),
            Err(_) if permit.waited => Ok(None),
            // The database took all of the time.
            Err(_) => Err(sqlx::Error::PoolTimedOut.into()),
        }
    }

    async fn wait_for_permit(
        &self,
        login: &Username,
        device: Option<&KnownDevice>,
        permit: &mut ComparisonPermit,
        max: u32,
    ) -> Result<LoginLookup, DbError> {
        loop {
            let ended = permit.ended();
            let lookup = self.find(login, device).await?;
            let Some(failures) = self.failures(login, &lookup, max) else { return Ok(lookup) };
            match permit.try_start(failures, ended, max) {
                StartResult::Started => return Ok(lookup),
                StartResult::Stale => {}
                StartResult::Full => permit.freed.notified().await,
            }
        }
    }

    async fn find(&self, login: &Username, device: Option<&KnownDevice>) -> Result<LoginLookup, DbError> {
        let (account, device) = match device {
            Some(device) => self.accounts.find_from(login, device.id).await?.unzip(),
            None => (self.accounts.find(login).await?, None),
        };
        Ok(LoginLookup { account, device, permit: None })
    }

    /// Wrong passwords in a row so far; None if there were too many.
    fn failures(&self, login: &Username, lookup: &LoginLookup, max: u32) -> Option<u64> {
        let counted = |failures: i64| u64::try_from(failures).unwrap_or(0);
        match (&lookup.account, &lookup.device) {
            (Some(_), Some(device)) => Some(counted(device.failures)).filter(|_| !device.spent),
            (Some(account), None) if account.password_disabled_at.is_some() => None,
            (Some(account), None) if account.open_hash().is_some() => {
                Some(counted(account.password_failures))
            }
            _ => Some(self.unheld.get(login).unwrap_or(0)).filter(|failures| *failures < u64::from(max)),
        }
    }

    /// Whether a password that was compared equal is still right. Takes one statement if there were wrong
    /// ones before. If not, nobody in this process can have disabled it, and if another instance has, no
    /// session starts. A right password from a known device does not reset the count of strangers.
    pub async fn confirm(&self, lookup: &LoginLookup) -> Result<bool, DbError> {
        match (&lookup.account, lookup.device) {
            (Some(_), Some(DeviceFailures { failures: 0, .. })) => Ok(true),
            (Some(account), Some(from)) => self.accounts.forget_device_failures(account, from.device).await,
            (Some(account), None) if account.password_failures > 0 => {
                self.accounts.forget_failures(account).await
            }
            (Some(_), None) => Ok(true),
            (None, _) => Ok(false),
        }
    }

    /// Counts a wrong password; the same one again costs as much, and counts nothing. Returns whether it was the last one
    /// allowed to strangers, or to its device.
    pub async fn count(
        &self,
        login: &Username,
        lookup: &LoginLookup,
        max: u32,
        repeat: bool,
    ) -> Result<bool, DbError> {
        let more = i64::from(!repeat);
        let account = lookup.account.as_ref();
        let is_disabled = account.is_some_and(|account| account.password_disabled_at.is_some());
        if is_disabled && lookup.device.is_none() {
            self.tried.increment(1);
        }
        if max == 0 {
            return Ok(false);
        }
        let (counted, disabled) = match (account, lookup.device) {
            (Some(account), Some(from)) => {
                (self.accounts.count_device_failure(account, from.device, max, more).await?, &self.spent)
            }
            (Some(account), None) if account.open_hash().is_some() => {
                (self.accounts.count_failure(account, max, more).await?, &self.disabled)
            }
            _ => {
                if !is_disabled {
                    let _one_at_a_time = self.in_flight.lock();
                    let failures = self.unheld.get(login).unwrap_or(0) + u64::from(!repeat);
                    self.unheld.insert(login.clone(), failures);
                }
                self.accounts.count_unheld_failure(login).await?;
                return Ok(false);
            }
        };
        let is_last = counted == FailureResult::Disabled;
        disabled.increment(u64::from(is_last));
        Ok(is_last)
    }
}

/// Counts disabled passwords that were re-enabled or replaced.
pub fn password_enabled_counter() -> Counter {
    counter("enabled")
}

/// `gatehouse_disabled_passwords_total` by outcome: passwords with too many wrong ones in a row, and known
/// devices with too many (`device`).
fn counter(outcome: &'static str) -> Counter {
    metrics::counter!("gatehouse_disabled_passwords_total", "outcome" => outcome)
}

/// The attempts in flight in this process, by the count that they belong to.
type InFlightTable = Mutex<HashMap<InFlightKey, InFlightCount>>;

#[derive(Clone, PartialEq, Eq, Hash)]
enum InFlightKey {
    Account(AccountId),
    Device(AccountId, DeviceId),
    /// At a name without an account.
    Name(Username),
}

#[derive(Default)]
struct InFlightCount {
    comparing: u64,
    ended: u64,
    /// Being compared, or waiting for it.
    holders: usize,
    freed: Arc<Notify>,
}

/// Membership in the attempts at one account, until it is dropped.
pub struct ComparisonPermit {
    table: Arc<InFlightTable>,
    key: InFlightKey,
    comparing: bool,
    /// Others were in its way.
    waited: bool,
    freed: Arc<Notify>,
}

enum StartResult {
    Started,
    /// An attempt has ended since the failures were read: read them again.
    Stale,
    /// If all that are being compared were wrong, there would be no room for this one.
    Full,
}

impl ComparisonPermit {
    fn new(table: &Arc<InFlightTable>, key: InFlightKey) -> Self {
        let mut all = table.lock();
        let count = all.entry(key.clone()).or_default();
        count.holders += 1;
        let (table, freed) = (Arc::clone(table), Arc::clone(&count.freed));
        Self { table, key, comparing: false, waited: false, freed }
    }

    /// How many attempts have ended; must be read before the failures.
    fn ended(&self) -> u64 {
        self.table.lock()[&self.key].ended
    }

    /// Starts to compare if that is safe. Attempts that have ended since may or may not be among the failures
    /// that were read.
    fn try_start(&mut self, failures: u64, ended: u64, max: u32) -> StartResult {
        let mut all = self.table.lock();
        let count = all.get_mut(&self.key).expect("here until the last permit is dropped");
        let since = count.ended - ended;
        // A single attempt always may: the setting may have been lowered below the number of failures.
        let room = failures + since + count.comparing < u64::from(max) || since + count.comparing == 0;
        if room {
            count.comparing += 1;
            self.comparing = true;
            // There may be room for the next one, too.
            self.freed.notify_one();
            return StartResult::Started;
        }
        self.waited = true;
        if since > 0 { StartResult::Stale } else { StartResult::Full }
    }
}

impl Drop for ComparisonPermit {
    fn drop(&mut self) {
        let mut all = self.table.lock();
        let Some(count) = all.get_mut(&self.key) else { return };
        count.holders -= 1;
        if self.comparing {
            count.comparing -= 1;
            count.ended += 1;
        }
        if count.holders == 0 {
            all.remove(&self.key);
        } else {
            // One that never started notifies, too: it may have been the one that was notified.
            count.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
