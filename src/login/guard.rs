//! The limits that stand before every password: on the account and on the client's address, and what
//! becomes of them while the store is out.

use std::time::Duration;

use metrics::Counter;

use super::Username;
use super::accounts::{Account, Accounts};
use super::id::AccountId;
use crate::audit::{self, Audit};
use crate::clock::Micros;
use crate::config::Limits;
use crate::db::DbError;
use crate::throttle::{
    self, AnyStore, Attempt, Bucket, Decision, Hold, Limit, Limiter, MemoryStore, Mode, Refusal, Rule,
    StoreError, Then,
};

/// How long an attempt may wait for others in flight to end. With the hashing queue behind it this stays
/// well under [`HOLD_LIFE`](crate::throttle::window::HOLD_LIFE).
const PATIENCE: Duration = Duration::from_secs(5);
/// What a caller who waited in vain is told: about as long as the attempts before it take.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// Which account a login names, for this many logins: what keeps refusals away from the database.
const KNOWN_LOGINS: usize = 100_000;

/// The account's bucket stands first, the address's second.
pub const ACCOUNT: usize = 0;
pub const LIMITS: [&str; 2] = ["login-account", "login-address"];
/// What everyone meets while the store is out: no hit stands in the way.
const ASKED: Refusal =
    Refusal { bucket: ACCOUNT, rule: 0, then: Then::Captcha, retry_after: BUSY_RETRY, frees_at: Micros(0) };

/// Reserves before a password is verified.
pub struct Guard {
    limiter: Limiter<AnyStore>,
    /// Windows of this process, stricter, for as long as the store is out.
    insurance: Limiter<MemoryStore>,
    accounts: Accounts,
    audit: Audit,
    logins: quick_cache::sync::Cache<Username, Option<AccountId>>,
    outages: Counter,
}

/// Whether an attempt may be verified.
pub enum Admission {
    Held(Slot),
    /// A CAPTCHA must be solved with it, or it must wait, as the refusal says.
    Refused {
        limit: &'static str,
        refusal: Refusal,
    },
    Busy {
        retry_after: Duration,
    },
}

/// A slot in the store that gave it.
pub enum Slot {
    Store(Hold<AnyStore>),
    Insurance(Hold<MemoryStore>),
}

/// Who tries, and with what.
#[derive(Clone, Copy)]
pub struct Who<'a> {
    pub login: &'a Username,
    /// The client's address as it is counted.
    pub address: &'a [u8],
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
}

/// Something that was admitted: when, and what a watching limit would have refused.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    pub at: Micros,
    pub noted: Option<Refusal>,
}

/// Whom an account's window counts. One that does not exist is counted by its name, so that nothing
/// tells it apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Subject(Option<AccountId>);

impl Subject {
    pub const fn account(self) -> Option<AccountId> {
        self.0
    }

    /// As an event names it.
    pub fn recorded<'a>(&'a self, login: &'a Username) -> audit::Subject<'a> {
        match &self.0 {
            Some(id) => audit::Subject::Account { id: id.as_bytes(), login: login.as_str() },
            None => audit::Subject::Login(login.as_str()),
        }
    }
}

impl Guard {
    pub fn new(
        limiter: Limiter<AnyStore>,
        insurance: Limiter<MemoryStore>,
        accounts: Accounts,
        audit: Audit,
    ) -> Self {
        Self {
            limiter,
            insurance,
            accounts,
            audit,
            logins: quick_cache::sync::Cache::new(KNOWN_LOGINS),
            outages: metrics::counter!("gatehouse_store_errors_total"),
        }
    }

    /// Where what becomes of attempts is recorded.
    pub const fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Whom the login names, from memory where it was seen before. Memory may be out of date; whoever
    /// acts on it finds out by [`Guard::learn`].
    pub async fn subject(&self, login: &Username) -> Result<Subject, DbError> {
        if let Some(known) = self.logins.get(login) {
            return Ok(Subject(known));
        }
        let found = self.accounts.find(login).await?.map(|account| account.id);
        self.logins.insert(login.clone(), found);
        Ok(Subject(found))
    }

    /// What the database says of a login just now. Whether it is what `assumed` said.
    pub fn learn(&self, login: &Username, found: Option<AccountId>, assumed: Subject) -> bool {
        if assumed.0 != found {
            self.logins.insert(login.clone(), found);
        }
        assumed.0 == found
    }

    /// An account was made just now. It starts afresh, whatever was tried at its name before.
    pub fn made(&self, account: &Account) {
        self.logins.insert(account.login.clone(), Some(account.id));
    }

    /// Takes a slot on the account and on the address, or says why there is none. In an outage of the
    /// store: stricter windows of this process, and a CAPTCHA for everyone.
    pub async fn admit(&self, limits: &Limits, subject: Subject, who: Who<'_>) -> Admission {
        let [account, address] = [&limits.login_account, &limits.login_address];
        let buckets = buckets(&self.limiter, account, address, subject, who);
        match self.limiter.hold(&buckets, who.solved, PATIENCE).await {
            Ok(Attempt::Held(hold)) => Admission::Held(Slot::Store(hold)),
            Ok(Attempt::Refused(refusal)) => refused(refusal),
            Ok(Attempt::OutOfPatience) => Admission::Busy { retry_after: BUSY_RETRY },
            Err(error) => {
                self.note_outage(&error);
                self.admit_in_outage(account, address, subject, who).await
            }
        }
    }

    async fn admit_in_outage(
        &self,
        account: &Limit,
        address: &Limit,
        subject: Subject,
        who: Who<'_>,
    ) -> Admission {
        let (account, address) = (stricter(account), stricter(address));
        let buckets = buckets(&self.insurance, &account, &address, subject, who);
        match self.insurance.hold(&buckets, who.solved, PATIENCE).await {
            Ok(Attempt::Refused(refusal)) => refused(refusal),
            // Nobody signs in unchallenged while the windows that count are out of sight.
            Ok(Attempt::Held(hold)) if !who.solved => {
                let _ = hold.refund().await;
                refused(ASKED)
            }
            Ok(Attempt::Held(hold)) => Admission::Held(Slot::Insurance(hold)),
            Ok(Attempt::OutOfPatience) | Err(_) => Admission::Busy { retry_after: BUSY_RETRY },
        }
    }

    /// Whether the next attempt of the same kind would be asked for a CAPTCHA. The same question for an
    /// account that does not exist.
    pub async fn challenges_next(&self, limits: &Limits, subject: Subject, who: Who<'_>) -> bool {
        let buckets = buckets(&self.limiter, &limits.login_account, &limits.login_address, subject, who);
        for bucket in buckets.into_iter().filter(|bucket| bucket.limit.mode() == Mode::Enforce) {
            let Ok(peek) = self.limiter.peek(bucket).await else { return true };
            let full = |(rule, state): (&Rule, _)| rule.then == Then::Captcha && full(state, rule);
            if bucket.limit.rules().iter().zip(&peek.rules).any(full) {
                return true;
            }
        }
        false
    }

    /// Counts one thing that an address did, where the outcome does not matter; or says why it may not.
    /// In an outage: a stricter window of this process.
    pub async fn count_address(
        &self,
        limit: &Limit,
        address: &[u8],
        solved: bool,
    ) -> Result<Counted, Refusal> {
        let decision = match self.limiter.reserve(&[self.limiter.bucket(limit, address)], solved).await {
            Ok(decision) => decision,
            Err(error) => {
                self.note_outage(&error);
                let limit = stricter(limit);
                let bucket = self.insurance.bucket(&limit, address);
                self.insurance.reserve(&[bucket], solved).await.unwrap_or(Decision::Held)
            }
        };
        match decision {
            Decision::Refused(refusal) => Err(refusal),
            Decision::Admitted(throttle::Admission { at, noted, .. }) => Ok(Counted { at, noted }),
            // Nothing here takes holds, and the in-process store does not fail.
            Decision::Held => Ok(Counted { at: self.audit.now(), noted: None }),
        }
    }

    /// Forgets an account's failures: its owner has proven themselves another way.
    pub async fn forgive(&self, limits: &Limits, account: AccountId) -> Result<(), StoreError> {
        self.limiter.clear(self.limiter.bucket(&limits.login_account, &account_key(account))).await
    }

    fn note_outage(&self, error: &StoreError) {
        self.outages.increment(1);
        tracing::debug!(%error, "the window store failed; this process's own windows decide");
    }
}

impl Slot {
    /// When it was taken, and what a watching limit would have refused.
    pub const fn taken(&self) -> Counted {
        match self {
            Self::Store(hold) => Counted { at: hold.at, noted: hold.noted },
            Self::Insurance(hold) => Counted { at: hold.at, noted: hold.noted },
        }
    }

    /// The attempt failed and counts; from when, where the store could say.
    pub async fn keep(self) -> Option<Micros> {
        settled(match self {
            Self::Store(hold) => hold.keep().await,
            Self::Insurance(hold) => hold.keep().await,
        })
    }

    /// Nothing was verified: it never was.
    pub async fn refund(self) {
        let _ = settled(match self {
            Self::Store(hold) => hold.refund().await,
            Self::Insurance(hold) => hold.refund().await,
        });
    }

    /// The owner signed in: the account's failures from before are forgiven. The address's stay, or an
    /// attacker's own account would wipe them. When that was, and whether it was asked for, where the store
    /// could say.
    pub async fn succeed(self) -> Option<(Micros, bool)> {
        settled(match self {
            Self::Store(hold) => hold.succeed(|bucket| bucket == ACCOUNT).await,
            Self::Insurance(hold) => hold.succeed(|bucket| bucket == ACCOUNT).await,
        })
    }
}

/// A hold that could not be settled counts as a failure until it expires: the store errs towards refusing.
fn settled<T>(result: Result<T, StoreError>) -> Option<T> {
    result
        .inspect_err(|error| tracing::debug!(%error, "an attempt's outcome did not reach the window store"))
        .ok()
}

fn full(state: &crate::throttle::RulePeek, rule: &Rule) -> bool {
    state.count >= rule.max
}

fn buckets<'a, S: crate::throttle::WindowStore + 'static>(
    limiter: &Limiter<S>,
    account: &'a Limit,
    address: &'a Limit,
    subject: Subject,
    who: Who<'_>,
) -> [Bucket<'a>; 2] {
    let account = match subject.0 {
        Some(id) => limiter.bucket(account, &account_key(id)),
        None => limiter.bucket(account, &account_subject(who.login, None)),
    };
    [account, limiter.bucket(address, who.address)]
}

/// What stands for an account in its limit; for one that does not exist, its name.
pub fn account_subject(login: &Username, account: Option<AccountId>) -> Vec<u8> {
    match account {
        Some(id) => account_key(id).to_vec(),
        None => [b"name ", login.as_str().as_bytes()].concat(),
    }
}

fn account_key(id: AccountId) -> [u8; 19] {
    let mut key = *b"id ................";
    key[3..].copy_from_slice(id.as_bytes());
    key
}

fn refused(refusal: Refusal) -> Admission {
    Admission::Refused { limit: LIMITS[refusal.bucket], refusal }
}

/// Half of everything, for one instance that cannot see what the others admit.
fn stricter(limit: &Limit) -> Limit {
    let halved = |rule: &Rule| Rule { max: (rule.max / 2).max(1), ..rule.clone() };
    let rules = limit.rules().iter().map(halved).collect();
    Limit::new(limit.name(), rules, limit.mode()).expect("half of what is allowed is allowed")
}
