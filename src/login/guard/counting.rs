//! The logs that count one attempt: a stranger's counts for the account, the address and the network; one
//! from a known device for the device only.
//!
//! An account, and a device, has two logs. One has failures whose password was a new guess: every rule reads it. The other
//! has all failures, and the `captcha` rules alone read it: whatever was typed, three in a minute ask for a challenge.

use std::time::Duration;

use gatehouse_limiter::{Bucket, Limit, LimitMode, LogPeek, Refusal, RuleAction, StoreError, WindowStore};

use crate::accounts::{Account, AccountId, KnownDevice, KnownDevices, Username, folded};
use crate::audit;
use crate::config::{LimitName, Limits};
use crate::login::RequestOrigin;
use crate::throttle::Limiter;

/// The account's bucket, or the device's instead, comes first.
pub const OWN: usize = 0;
/// The buckets of address and network, if there are any.
const SHARED: [usize; 2] = [1, 2];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountingMode {
    Stranger,
    /// Not counted for the account, the address or the network: what strangers do there neither stops it nor
    /// is forgiven by it.
    Known(KnownDevice),
    /// Counted as a stranger's, because the limit on devices is in monitor mode; that limit counts it, too.
    DeviceMonitored(KnownDevice),
    /// Counted as a stranger's, because the account's limit refuses nobody; the device still has its own
    /// count of wrong passwords in a row.
    AccountUnlimited(KnownDevice),
}

impl CountingMode {
    /// How an attempt is counted at first, given its known device. A limit that refuses nobody must not be a way
    /// around another one; and if the account's limit refuses nobody, the device's must not be stricter. At the second
    /// step it may: nothing else bounds the guesses of a device there.
    pub fn of(login: GuardedLogin, limits: &Limits, device: Option<KnownDevice>) -> Self {
        let GuardLimits { account, device: own, .. } = login.limits(limits);
        match device {
            Some(device) if enforced(own) && (enforced(account) || login == GuardedLogin::Factor) => {
                Self::Known(device)
            }
            Some(device) if own.mode() == LimitMode::Monitor => Self::DeviceMonitored(device),
            Some(device) if enforced(own) => Self::AccountUnlimited(device),
            Some(_) | None => Self::Stranger,
        }
    }

    /// Whether others count in that log, too: no success forgives what it has.
    pub const fn is_shared(self, bucket: usize) -> bool {
        let [first, second] = SHARED;
        !matches!(self, Self::Known(_)) && (bucket == first || bucket == second)
    }

    /// Whether it is the log of a device whose limit is in monitor mode.
    pub const fn is_monitored_device(self, bucket: usize) -> bool {
        matches!(self, Self::DeviceMonitored(_)) && bucket == SHARED.len() + 1
    }

    /// The limits that count it, in the order of its buckets, of which the log of all failures stands last.
    pub fn limits(self, login: GuardedLogin) -> &'static [LimitName] {
        use LimitName as Name;
        let all: &[LimitName] = match login {
            GuardedLogin::Own => {
                &[Name::LoginAccount, Name::LoginAddress, Name::LoginNetwork, Name::LoginDevice]
            }
            GuardedLogin::Factor => &[Name::FactorAccount, Name::FactorDevice],
            GuardedLogin::Realm => {
                &[Name::GuardAccount, Name::GuardAddress, Name::GuardNetwork, Name::GuardDevice]
            }
        };
        let (_, of_strangers) = all.split_last().expect("the device's stands last");
        match self {
            Self::Stranger | Self::AccountUnlimited(_) => of_strangers,
            Self::Known(_) => &all[all.len() - 1..],
            Self::DeviceMonitored(_) => all,
        }
    }

    /// The device whose log replaces the account's.
    pub const fn device(&self) -> Option<&KnownDevice> {
        match self {
            Self::Known(device) => Some(device),
            Self::Stranger | Self::DeviceMonitored(_) | Self::AccountUnlimited(_) => None,
        }
    }

    /// The device that has its own count of wrong passwords in a row.
    pub const fn known(&self) -> Option<&KnownDevice> {
        match self {
            Self::Known(device) | Self::AccountUnlimited(device) => Some(device),
            Self::Stranger | Self::DeviceMonitored(_) => None,
        }
    }

    /// The known device that it comes from, wherever it counts.
    pub const fn at_device(&self) -> Option<&KnownDevice> {
        match self {
            Self::Known(device) | Self::DeviceMonitored(device) | Self::AccountUnlimited(device) => {
                Some(device)
            }
            Self::Stranger => None,
        }
    }

    /// Whether the device knew another password than the account has now.
    pub fn is_void(&self, account: Option<&Account>) -> bool {
        let version = account.map(|account| account.password_version);
        self.known().is_some_and(|device| Some(device.password_version) != version)
    }

    pub fn buckets<'a>(
        self,
        limiter: &Limiter,
        limits: &'a Limits,
        who: GuardRequest<'_>,
    ) -> Vec<Bucket<'a>> {
        let GuardLimits { account, shared, device } = who.guarded.limits(limits);
        let (own, subject) = match self {
            Self::Known(it) => (device, it.subject().to_vec()),
            _ => (account, account_subject(who.name, who.subject.account())),
        };
        let mut buckets = Vec::with_capacity(SHARED.len() + 3);
        buckets.push(limiter.bucket(own, &subject));
        if let (false, Some([of_address, of_network])) = (matches!(self, Self::Known(_)), shared) {
            let [address, network] = [&who.origin.address, &who.origin.network];
            buckets.extend([limiter.bucket(of_address, address), limiter.bucket(of_network, network)]);
        }
        if let Self::DeviceMonitored(it) = self {
            buckets.push(limiter.bucket(device, &it.subject()));
        }
        buckets.extend(all_failures(limiter, own, &subject));
        buckets
    }
}

/// The log of all failures of a subject that has one of its own, also of those that were no new guess; None if no rule of
/// the limit asks for a challenge.
pub fn all_failures<'a, S: WindowStore + 'static>(
    limiter: &gatehouse_limiter::Limiter<S>,
    own: &'a Limit,
    subject: &[u8],
) -> Option<Bucket<'a>> {
    own.challenging().map(|asks| limiter.bucket(asks, &[b"all ", subject].concat()))
}

/// A refusal as one by the own limit, if it is by the log of all failures, which reads the limit's `captcha` rules alone.
pub fn by_own<'l>(refusal: Refusal, limit: impl Fn(usize) -> &'l Limit) -> Refusal {
    let own = limit(OWN);
    if refusal.bucket == OWN || limit(refusal.bucket).name() != own.name() {
        return refusal;
    }
    let mut rules = own.rules().iter().enumerate().filter(|(_, rule)| rule.then == RuleAction::Captcha);
    let rule = rules.nth(refusal.rule).map_or(0, |(index, _)| index);
    Refusal { bucket: OWN, rule, ..refusal }
}

/// Whether it refuses anybody.
pub fn enforced(limit: &Limit) -> bool {
    limit.mode() == LimitMode::Enforce && !limit.rules().is_empty()
}

/// `states`: of the logs of this mode, in their order.
pub async fn challenges_next(
    limiter: &Limiter,
    limits: &Limits,
    who: GuardRequest<'_>,
    mode: CountingMode,
    states: &[LogPeek],
) -> Result<bool, StoreError> {
    let buckets = mode.buckets(limiter, limits, who);
    if mode.device().is_none() || !asks(&buckets, states, RuleAction::Block) {
        return Ok(asks(&buckets, states, RuleAction::Captcha));
    }
    // Past its own guesses a known device is a stranger.
    let buckets = CountingMode::Stranger.buckets(limiter, limits, who);
    Ok(asks(&buckets, &limiter.peek_all(&buckets).await?, RuleAction::Captcha))
}

/// Whether one of the rules that would refuse the next hit asks for this.
fn asks(buckets: &[Bucket<'_>], states: &[LogPeek], action: RuleAction) -> bool {
    debug_assert_eq!(buckets.len(), states.len());
    buckets.iter().zip(states).filter(|(bucket, _)| enforced(bucket.limit)).any(|(bucket, state)| {
        let mut rules = bucket.limit.rules().iter().zip(&state.rules);
        rules.any(|(rule, state)| rule.then == action && state.count >= rule.max)
    })
}

/// The subject of an account's window. An account that does not exist is counted by its name, so that no
/// difference shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AccountSubject(Option<KnownAccount>);

#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownAccount {
    id: AccountId,
    /// The newest version seen.
    password_version: i64,
}

/// The version of every password in a realm: other programs do not say that one was changed.
pub const REALM_VERSION: i64 = 0;

impl AccountSubject {
    /// Not looked up yet.
    pub const UNKNOWN: Self = Self(None);

    pub fn of(account: Option<&Account>) -> Self {
        let known =
            |account: &Account| KnownAccount { id: account.id, password_version: account.password_version };
        Self(account.map(known))
    }

    /// A name in a realm. Nobody here knows whether it has an account.
    pub const fn in_realm(id: AccountId) -> Self {
        Self(Some(KnownAccount { id, password_version: REALM_VERSION }))
    }

    pub fn account(self) -> Option<AccountId> {
        self.0.map(|known| known.id)
    }

    pub fn recorded<'a>(&'a self, login: &'a Username) -> audit::EventSubject<'a> {
        match &self.0 {
            Some(known) => audit::EventSubject::Account { id: known.id.as_bytes(), login: login.as_str() },
            None => audit::EventSubject::Login(login.as_str()),
        }
    }

    /// The browser's known device there. A newer password than the one remembered is accepted, because our
    /// cookies are authentic. An older one is void without a look at the database, so that refusals need
    /// none.
    pub fn known_device(&self, devices: &KnownDevices) -> Option<KnownDevice> {
        let known = self.0?;
        devices.at(known.id).filter(|device| device.password_version >= known.password_version)
    }
}

/// The subject of an account in its limit; for one that does not exist, its name, however it is spelt: an account has one
/// budget for all spellings, too.
pub fn account_subject(name: &str, account: Option<AccountId>) -> Vec<u8> {
    match account {
        Some(id) => account_key(id).to_vec(),
        None => [b"name ", folded(name).as_bytes()].concat(),
    }
}

pub(super) fn account_key(id: AccountId) -> [u8; 19] {
    let mut key = *b"id ................";
    key[3..].copy_from_slice(id.as_bytes());
    key
}

/// How long an attempt may wait for others in flight to end. Meanwhile it holds no slot.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuardedLogin {
    Own,
    /// The second step, by a code of an app. Whoever gets there had the first factor: address and network counted that.
    Factor,
    /// Another program's; its subjects belong to its realm.
    Realm,
}

/// What counts the attempts at a login.
#[derive(Clone, Copy)]
pub struct GuardLimits<'a> {
    pub account: &'a Limit,
    /// The limits of the address and the network, where they count it.
    pub shared: Option<[&'a Limit; 2]>,
    pub device: &'a Limit,
}

impl GuardedLogin {
    pub const fn limits(self, limits: &Limits) -> GuardLimits<'_> {
        match self {
            Self::Own => GuardLimits {
                account: &limits.login_account,
                shared: Some([&limits.login_address, &limits.login_network]),
                device: &limits.login_device,
            },
            Self::Factor => {
                GuardLimits { account: &limits.factor_account, shared: None, device: &limits.factor_device }
            }
            Self::Realm => GuardLimits {
                account: &limits.guard_account,
                shared: Some([&limits.guard_address, &limits.guard_network]),
                device: &limits.guard_device,
            },
        }
    }
}

#[derive(Clone, Copy)]
pub struct GuardRequest<'a> {
    pub guarded: GuardedLogin,
    pub subject: AccountSubject,
    /// The name that was tried; it is counted by this while no account is known by it.
    pub name: &'a str,
    pub origin: &'a RequestOrigin,
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
    /// A known device whose own log blocks is not treated as a stranger.
    pub device_only: bool,
    pub means: ClientCapabilities,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientCapabilities {
    /// How long it may wait for others in flight to end.
    pub patience: Duration,
    /// It can be shown a challenge. A known device that cannot is not asked for one while the store is out: the
    /// record decides on it.
    pub challenges: bool,
}

impl ClientCapabilities {
    pub const BROWSER: Self = Self { patience: PATIENCE, challenges: true };
}
