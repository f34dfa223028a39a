//! The limits that stand before every password: on a device that is known at the account, or else on the account
//! and on the client's address and network; and what becomes of them while the store is out.

mod in_flight;
mod outage;
mod path;
mod rebuild;
mod slot;
mod subject;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use metrics::Counter;

use self::in_flight::InFlightAttempts;
use self::path::{BeforePasswords, OWN};
use self::slot::{SlotHold, UnclaimedHold};
use self::subject::account_key;
use super::accounts::{Account, Accounts};
use super::devices::KnownDevice;
use super::failure_record::FailureRecord;
use super::id::AccountId;
use super::{RequestOrigin, Username};
use crate::audit::Audit;
use crate::clock::Micros;
use crate::config::Limits;
use crate::db::DbError;
use crate::throttle::{
    self, AnyStore, HitDecision, HoldDecision, Limit, Limiter, MemoryStore, Refusal, Rule, RuleAction,
    StoreError,
};

pub use path::SignInPath;
pub use slot::AttemptSlot;
pub use subject::{AccountSubject, account_subject};

/// How long an attempt may wait for others in flight to end. With the hashing queue behind it this stays
/// well under [`HOLD_LIFE`](crate::throttle::window::HOLD_LIFE).
const PATIENCE: Duration = Duration::from_secs(5);
/// A store that loses its data more often than this in one question has more wrong with it.
const MOST_TRIES: usize = 3;
/// What a caller who waited in vain is told: about as long as the attempts before it take.
const BUSY_RETRY: Duration = Duration::from_secs(1);
/// Which account a login names, for this many logins: what keeps refusals away from the database.
const KNOWN_LOGINS: usize = 100_000;

/// What everyone meets while the store is out: no hit stands in the way.
const ASKED: Refusal =
    Refusal { bucket: OWN, rule: 0, then: RuleAction::Captcha, retry_after: BUSY_RETRY, frees_at: Micros(0) };

/// Reserves before a password is verified.
pub struct LoginGuard {
    limiter: Limiter<AnyStore>,
    /// Windows of addresses in this process, stricter, for as long as the store is out.
    insurance: Limiter<MemoryStore>,
    /// What decides on accounts meanwhile, and what the store is rebuilt from.
    failures: FailureRecord,
    in_flight: InFlightAttempts,
    rebuild: throttle::WindowRebuild<AnyStore>,
    /// A return to the store is under way.
    returning: AtomicBool,
    accounts: Accounts,
    audit: Audit,
    logins: quick_cache::sync::Cache<Username, AccountSubject>,
    outages: Counter,
}

/// Whether an attempt may be verified.
pub enum GuardAdmission {
    Held(AttemptSlot),
    /// A CAPTCHA must be solved with it, or it must wait, as the refusal says.
    Refused {
        path: SignInPath,
        limit: &'static str,
        refusal: Refusal,
    },
    Busy {
        retry_after: Duration,
    },
}

/// Who tries, and with what.
#[derive(Clone, Copy)]
pub struct GuardRequest<'a> {
    pub login: &'a Username,
    pub origin: &'a RequestOrigin,
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
}

/// Something that was admitted: when, and what a watching limit would have refused.
#[derive(Debug, Clone, Copy)]
pub struct CountedAttempt {
    pub at: Micros,
    pub noted: Option<Refusal>,
}

impl LoginGuard {
    pub fn new(
        limiter: Limiter<AnyStore>,
        insurance: Limiter<MemoryStore>,
        failures: FailureRecord,
        accounts: Accounts,
        audit: Audit,
    ) -> Self {
        let clock = failures.clock().clone();
        Self {
            rebuild: throttle::WindowRebuild::new(limiter.clone(), rebuild::NAME, clock.clone()),
            in_flight: InFlightAttempts::new(clock),
            returning: AtomicBool::new(false),
            limiter,
            insurance,
            failures,
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
    /// acts on it finds out by [`LoginGuard::learn`].
    pub async fn subject(&self, login: &Username) -> Result<AccountSubject, DbError> {
        if let Some(known) = self.remembered(login) {
            return Ok(known);
        }
        let found = AccountSubject::of(self.accounts.find(login).await?.as_ref());
        self.logins.insert(login.clone(), found);
        Ok(found)
    }

    /// The same, from memory alone.
    pub fn remembered(&self, login: &Username) -> Option<AccountSubject> {
        self.logins.get(login)
    }

    /// By which way an attempt comes first, from a device that is known there.
    pub fn path(limits: &Limits, device: Option<KnownDevice>) -> SignInPath {
        SignInPath::of(device, limits.into())
    }

    /// What the database says of a login just now. Whether it is of whom `assumed` said.
    pub fn learn(&self, login: &Username, found: Option<&Account>, assumed: AccountSubject) -> bool {
        let found = AccountSubject::of(found);
        if assumed != found {
            self.logins.insert(login.clone(), found);
        }
        assumed.account() == found.account()
    }

    /// An account was made just now. It starts afresh, whatever was tried at its name before.
    pub fn made(&self, account: &Account) {
        self.logins.insert(account.login.clone(), AccountSubject::of(Some(account)));
    }

    /// Takes a slot on the account, the address and the network, or says why there is none. In an outage of the
    /// store: stricter windows of this process, and a CAPTCHA for everyone.
    pub async fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        subject: AccountSubject,
        who: GuardRequest<'_>,
    ) -> GuardAdmission {
        self.admit_known(limits, subject, who, None).await
    }

    /// The same for who comes from a device that is known there: on the device, as long as that has a slot.
    pub async fn admit_known(
        self: &Arc<Self>,
        limits: &Limits,
        subject: AccountSubject,
        who: GuardRequest<'_>,
        device: Option<KnownDevice>,
    ) -> GuardAdmission {
        let before = BeforePasswords::from(limits);
        let path = SignInPath::of(device, before);
        for _ in 0..MOST_TRIES {
            if let Some(admission) = self.admit_by_store(limits, (subject, who), path).await {
                return admission;
            }
            // Boxed, as what is hardly ever run would make every attempt's future larger.
            if let Some(admission) = Box::pin(self.admit_in_outage(before, (subject, who), path)).await {
                return admission;
            }
        }
        GuardAdmission::Busy { retry_after: BUSY_RETRY }
    }

    /// By windows that are whole, and were when the slot was taken. None: the store is out, or lacks something.
    async fn admit_by_store(
        self: &Arc<Self>,
        limits: &Limits,
        (subject, who): (AccountSubject, GuardRequest<'_>),
        path: SignInPath,
    ) -> Option<GuardAdmission> {
        for _ in 0..MOST_TRIES {
            let generation = match self.in_flight.generation() {
                Some(generation) => generation,
                None => Box::pin(self.return_to_store(limits)).await?,
            };
            let error = match path::hold(&self.limiter, limits.into(), (subject, who), path).await {
                Ok((path, HoldDecision::Refused(refusal))) => return Some(refused(path, refusal)),
                Ok((_, HoldDecision::OutOfPatience)) => {
                    return Some(GuardAdmission::Busy { retry_after: BUSY_RETRY });
                }
                Ok((path, HoldDecision::Held(hold))) => {
                    let ticket = self.in_flight.begin(hold.id(), hold.at, hold.buckets().to_vec());
                    let hold = UnclaimedHold::new(hold);
                    let now = self.rebuild.generation(rebuild::SHAPE).await;
                    if let Ok(Some(now)) = now
                        && now == generation
                    {
                        let failures = self.failures.clone();
                        return Some(GuardAdmission::Held(AttemptSlot::new(
                            SlotHold::Store(hold.claim()),
                            path,
                            ticket,
                            failures,
                        )));
                    }
                    // It was given by windows with holes, or nobody can say that it was not.
                    match (hold.refund().await, now) {
                        (Ok(()), Ok(_)) => None,
                        (Err(error), _) | (Ok(()), Err(error)) => Some(error),
                    }
                }
                Err(error) => Some(error),
            };
            self.in_flight.leave_store();
            if let Some(error) = error {
                self.note_outage(&error);
                return None;
            }
        }
        None
    }

    /// Whether the next attempt of the same kind would be asked for a CAPTCHA. The same question for an
    /// account that does not exist.
    pub async fn challenges_next(
        &self,
        limits: &Limits,
        subject: AccountSubject,
        who: GuardRequest<'_>,
        path: SignInPath,
    ) -> bool {
        self.in_flight.generation().is_none()
            || path::challenges_next(&self.limiter, limits.into(), (subject, who), path).await.unwrap_or(true)
    }

    /// Counts one thing that an address did, where the outcome does not matter; or says why it may not.
    /// In an outage: a stricter window of this process.
    pub async fn count_address(
        &self,
        limit: &Limit,
        address: &[u8],
        solved: bool,
    ) -> Result<CountedAttempt, Refusal> {
        let decision = match self.limiter.reserve(&[self.limiter.bucket(limit, address)], solved).await {
            Ok(decision) => decision,
            Err(error) => {
                self.note_outage(&error);
                let limit = stricter(limit);
                let bucket = self.insurance.bucket(&limit, address);
                self.insurance.reserve(&[bucket], solved).await.unwrap_or(HitDecision::Held)
            }
        };
        match decision {
            HitDecision::Refused(refusal) => Err(refusal),
            HitDecision::Admitted(throttle::AdmittedHit { at, noted, .. }) => {
                Ok(CountedAttempt { at, noted })
            }
            // Nothing here takes holds, and the in-process store does not fail.
            HitDecision::Held => Ok(CountedAttempt { at: self.audit.now(), noted: None }),
        }
    }

    /// Counts a wrong answer to a challenge, as a failure of its address and network. It brings on challenges and
    /// nothing else: a limit with a `block` rule does not count it, or answers, which take no account and no
    /// hash, would be the cheapest way to shut an address that many share. In an outage, when everybody is asked
    /// anyway, nothing counts it.
    pub async fn count_answer(&self, limits: &Limits, origin: &RequestOrigin) -> Option<CountedAttempt> {
        let asks = |limit: &Limit| limit.rules().iter().all(|rule| rule.then == RuleAction::Captcha);
        let counting = [(&limits.login_address, &origin.address), (&limits.login_network, &origin.network)];
        let counting = counting.into_iter().filter(|(limit, _)| !limit.rules().is_empty() && asks(limit));
        let buckets: Vec<_> = counting.map(|(limit, subject)| self.limiter.bucket(limit, subject)).collect();
        if buckets.is_empty() {
            return None;
        }
        // As solved: rules that ask for an answer do not stand in the way of counting one.
        match self.limiter.reserve(&buckets, true).await {
            Ok(HitDecision::Admitted(throttle::AdmittedHit { at, noted, .. })) => {
                Some(CountedAttempt { at, noted })
            }
            Ok(HitDecision::Refused(_) | HitDecision::Held) => None,
            Err(error) => {
                self.note_outage(&error);
                None
            }
        }
    }

    /// Forgets an account's failures: its owner has proven themselves another way. In the record first, so that
    /// a store that is being rebuilt does not get back what is forgiven.
    pub async fn forgive(&self, limits: &Limits, account: AccountId) -> Result<(), StoreError> {
        let bucket = self.limiter.bucket(&limits.login_account, &account_key(account));
        if let Err(error) = self.failures.forget(bucket.key).await {
            tracing::warn!(%error, "forgiven failures could not be removed from the record; a rebuild brings them back");
        }
        self.limiter.clear(bucket).await
    }

    fn note_outage(&self, error: &StoreError) {
        self.outages.increment(1);
        tracing::debug!(%error, "the window store failed; this process's own windows decide");
    }
}

fn refused(path: SignInPath, refusal: Refusal) -> GuardAdmission {
    GuardAdmission::Refused { path, limit: path.limits()[refusal.bucket].as_str(), refusal }
}

/// Half of everything, for one instance that cannot see what the others admit.
fn stricter(limit: &Limit) -> Limit {
    let halved = |rule: &Rule| Rule { max: (rule.max / 2).max(1), ..rule.clone() };
    let rules = limit.rules().iter().map(halved).collect();
    Limit::new(limit.name(), rules, limit.mode()).expect("half of what is allowed is allowed")
}
