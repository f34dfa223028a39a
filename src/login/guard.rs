//! The limits in front of every password: on the known device, or otherwise on the account and on the
//! client's address and network; and what replaces them while the store is out.
//!
//! ```text
//! hold     admit: a slot in every log of its counting mode (counting.rs), or in none
//!          |- Refused   a limit is full: solve a challenge with it, or wait
//!          |- Busy      others in flight did not end in time
//!          '- Held      AttemptSlot: it counts as if it were wrong, until it is settled
//!               |
//! verify        the account is read and the password compared, in another task: a client that hangs up
//!               |  leaves no slot unsettled
//! settle        |- keep     wrong: the failure is recorded in SQL before the answer, and counts; the same password again
//!               |           is no new guess, and counts for `captcha` rules and at address and network alone
//!               |- succeed  right: the slot is given back, and its own log forgives what asked for challenges
//!               '- refund   nothing was compared: the slot is given back
//! ```
//!
//! A known device is counted in its own log alone (`Known`). If that blocks, it goes on as a stranger, unless only
//! the device may try at all (`device_only`). While the limit on devices is in monitor mode, or the account's limit
//! refuses nobody, it is counted as a stranger (`DeviceMonitored`, `AccountUnlimited`). A device that knew an older
//! password is void (`is_void`): its slot is refunded, and it tries again as a stranger.
//!
//! Whether the store or the record decides is the state of `InFlightAttempts` (slot.rs); the record's decisions
//! are in outage.rs, the way back to the store in return_to_store.rs. While the store is up, the one only refuses after a key
//! was given up, and the other only names the windows.

mod counting;
mod failure_record;
mod outage;
mod return_to_store;
mod slot;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatehouse_limiter::{
    AdmittedHit, Bucket, HitDecision, HitId, HoldDecision, Limit, LogPeek, MemoryStore, OwnedBucket, Refusal,
    Rule, RuleAction, StoreError, SubjectKey, UnclaimedHold,
};
use metrics::Counter;

use self::counting::{OWN, account_key, by_own, enforced};
use self::slot::{InFlightAttempts, SlotHold};
use super::{Guess, RequestOrigin};
use crate::accounts::{Account, AccountId, Accounts, Username};
use crate::audit::{Audit, AuditEvent, EventRule, Outcome};
use crate::clock::Micros;
use crate::config::{Limits, LiveSettings};
use crate::db::{CountedBefore, DbError};
use crate::denied::{ACCESS, Denied};
use crate::throttle::{Limiter, WindowRebuild};

pub use counting::{
    AccountSubject, ClientCapabilities, CountingMode, GuardRequest, GuardedLogin, REALM_VERSION,
    account_subject, all_failures,
};
pub use failure_record::FailureRecord;
pub use slot::AttemptSlot;

/// A store that loses its data more often than this during one request has another problem.
const MOST_TRIES: usize = 3;
/// The retry time of a caller who waited in vain: about as long as the attempts before it take.
pub(super) const BUSY_RETRY: Duration = Duration::from_secs(1);
/// The number of logins whose account is remembered, so that refusals do not need the database.
const KNOWN_LOGINS: usize = 100_000;

/// The refusal that everyone gets while the store is out; no hit causes it.
const ASKED: Refusal =
    Refusal { bucket: OWN, rule: 0, then: RuleAction::Captcha, retry_after: BUSY_RETRY, frees_at: Micros(0) };

pub struct LoginGuard {
    limiter: Limiter,
    /// Windows of addresses in this process, with stricter limits, used while the store is out.
    local_fallback: gatehouse_limiter::Limiter<MemoryStore>,
    /// Decides on accounts while the store is out, and is what the store is rebuilt from.
    failures: Arc<FailureRecord>,
    in_flight: InFlightAttempts,
    rebuild: WindowRebuild,
    returning: AtomicBool,
    accounts: Accounts,
    audit: Audit,
    logins: quick_cache::sync::Cache<Username, AccountSubject>,
    outages: Counter,
    given_up: CountedBefore,
}

pub enum GuardAdmission {
    Held(AttemptSlot),
    /// A CAPTCHA must be solved with it, or it must wait, as the refusal says.
    Refused {
        mode: CountingMode,
        limit: &'static str,
        refusal: Refusal,
    },
    /// Others in flight did not end in time; it may come again after `BUSY_RETRY`.
    Busy,
}

/// An attempt could not be settled, and its outcome is not noted; tell it again.
#[derive(Debug, thiserror::Error)]
pub enum SettleError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A limit, and the address or network that it counts.
pub type CountedSubject<'a> = (&'a Limit, &'a [u8]);

/// An admitted attempt: when, and what a limit in monitor mode would have refused.
#[derive(Debug, Clone, Copy)]
pub struct CountedAttempt {
    pub at: Micros,
    pub noted: Option<Refusal>,
}

impl LoginGuard {
    pub fn new(
        limiter: Limiter,
        local_fallback: gatehouse_limiter::Limiter<MemoryStore>,
        failures: Arc<FailureRecord>,
        accounts: Accounts,
        audit: Audit,
        given_up: CountedBefore,
    ) -> Self {
        let clock = failures.clock().clone();
        Self {
            rebuild: WindowRebuild::new(limiter.clone(), return_to_store::NAME, clock.clone()),
            in_flight: InFlightAttempts::new(clock),
            returning: AtomicBool::new(false),
            limiter,
            local_fallback,
            failures,
            accounts,
            audit,
            logins: quick_cache::sync::Cache::new(KNOWN_LOGINS),
            outages: metrics::counter!("gatehouse_store_errors_total"),
            given_up,
        }
    }

    pub const fn audit(&self) -> &Audit {
        &self.audit
    }

    /// How far the clock of the store is ahead of the database's, if that keeps lost windows from being rebuilt.
    pub fn store_clock_ahead(&self) -> Option<Duration> {
        self.rebuild.clock_ahead()
    }

    pub async fn account(&self, id: AccountId) -> Result<Option<Account>, DbError> {
        self.accounts.by_id(id).await
    }

    /// The account of the login, from memory if it was seen before. Memory may be out of date, which
    /// [`LoginGuard::learn`] detects.
    pub async fn subject(&self, login: &Username) -> Result<AccountSubject, DbError> {
        if let Some(known) = self.remembered(login) {
            return Ok(known);
        }
        let found = AccountSubject::of(self.accounts.find(login).await?.as_ref());
        self.logins.insert(login.clone(), found);
        Ok(found)
    }

    /// Finds the account of a login in memory alone.
    pub fn remembered(&self, login: &Username) -> Option<AccountSubject> {
        self.logins.get(login)
    }

    /// Remembers what the database says about a login. Returns whether that is what was `assumed`.
    pub fn learn(&self, login: &Username, found: Option<&Account>, assumed: AccountSubject) -> bool {
        let found = AccountSubject::of(found);
        if assumed != found {
            self.logins.insert(login.clone(), found);
        }
        assumed.account() == found.account()
    }

    /// How long everybody without a solved challenge is challenged (`[access]`); None if this attempt is not.
    pub fn challenges_everyone(&self, live: &LiveSettings, solved: bool) -> Option<Duration> {
        live.access.challenges_everyone(self.audit.now()).filter(|_| !solved)
    }

    /// What `[access]` answers to an attempt that does not come from the account's known device: `denied` if its
    /// address is refused, or while everybody is challenged. It is recorded as `event`. Nothing is counted, and
    /// the answer is the same for a name without an account.
    pub fn check_access_rules(
        &self,
        denied: bool,
        everyone: Option<Duration>,
        event: AuditEvent<'_>,
    ) -> Option<Denied> {
        let (outcome, denied) = match everyone {
            _ if denied => (Outcome::Refused, Denied::AddressDenied),
            Some(left) => (Outcome::Challenged, Denied::challenged_with_everyone(left)),
            None => return None,
        };
        let (at, why) = (self.audit.now(), Some(EventRule::by_nobody(ACCESS)));
        self.audit.record(AuditEvent { at, outcome, why, ..event });
        Some(denied)
    }

    pub fn record_refused(&self, event: AuditEvent<'_>, limit: &'static str, refusal: &Refusal) {
        let (at, outcome) = (self.audit.decided(refusal), Outcome::refused(refusal));
        let why = Some(EventRule::refused(limit, refusal));
        self.audit.record(AuditEvent { at, outcome, why, ..event });
    }

    /// An account was just created. It starts without the failures at its name.
    pub fn account_created(&self, account: &Account) {
        self.logins.insert(account.login.clone(), AccountSubject::of(Some(account)));
    }

    /// Takes a slot on the account, the address and the network, or returns why there is none. In an outage
    /// of the store: a CAPTCHA for everyone, the record in SQL for accounts, and stricter windows of this
    /// process for addresses and networks. For a known device: on the device, as long as that has a slot.
    pub async fn admit(
        self: &Arc<Self>,
        limits: &Limits,
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> GuardAdmission {
        if let Some(refused) = self.refuse_by_given_up(limits, who.guarded, mode) {
            return refused;
        }
        let admission = self.admit_as(limits, who, mode).await;
        // If the device's log blocks, the client is treated as a stranger, so that a cookie never makes things
        // worse: of two refusals the milder is returned. A CAPTCHA that the device's log asks for is required, as
        // it would be for a stranger with as many failures.
        match &admission {
            GuardAdmission::Refused { refusal, .. }
                if mode.device().is_some() && refusal.then == RuleAction::Block && !who.device_only =>
            {
                match Box::pin(self.admit_as(limits, who, CountingMode::Stranger)).await {
                    GuardAdmission::Refused { refusal: other, .. } if is_milder(refusal, &other) => admission,
                    as_stranger => as_stranger,
                }
            }
            _ => admission,
        }
    }

    async fn admit_as(
        self: &Arc<Self>,
        limits: &Limits,
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> GuardAdmission {
        for _ in 0..MOST_TRIES {
            if let Some(admission) = self.admit_by_store(limits, who, mode).await {
                return admission;
            }
            // Boxed, because it rarely runs and would make the future of every attempt larger.
            if let Some(admission) = Box::pin(self.admit_in_outage(limits, who, mode)).await {
                return admission;
            }
        }
        GuardAdmission::Busy
    }

    /// Decides by windows that are complete when the slot is taken; this is all that happens while the store is up.
    /// None: the store is out or incomplete, and the record decides (outage.rs).
    async fn admit_by_store(
        self: &Arc<Self>,
        limits: &Limits,
        who: GuardRequest<'_>,
        mode: CountingMode,
    ) -> Option<GuardAdmission> {
        for _ in 0..MOST_TRIES {
            let term = match self.in_flight.term() {
                Some(term) => term,
                None => Box::pin(self.return_to_store(limits)).await?,
            };
            let buckets = mode.buckets(&self.limiter, limits, who);
            let (complete, patience) = (return_to_store::windows(term.generation), who.means.patience);
            let held = match self.limiter.hold_if_complete(complete, &buckets, who.solved, patience).await {
                Ok(HoldDecision::Refused(refusal)) => {
                    let refusal = by_own(refusal, |bucket| buckets[bucket].limit);
                    return Some(refused(who.guarded, mode, refusal));
                }
                Ok(HoldDecision::OutOfPatience) => {
                    return Some(GuardAdmission::Busy);
                }
                Ok(HoldDecision::Held(hold)) => {
                    if let Some(ticket) = self.in_flight.begin(term, (hold.id(), hold.at, hold.buckets())) {
                        let (hold, failures) = (SlotHold::Store(hold), self.failures.clone());
                        return Some(GuardAdmission::Held(AttemptSlot { hold, mode, ticket, failures }));
                    }
                    Box::pin(UnclaimedHold::new(hold).refund()).await
                }
                Err(error) => Err(error),
            };
            match held {
                Ok(()) => {}
                Err(StoreError::Incomplete) => self.in_flight.end_term(term),
                Err(error) => {
                    self.in_flight.leave_store();
                    self.note_outage(&error);
                    return None;
                }
            }
        }
        None
    }

    /// Whether the next attempt of this kind would be asked for a CAPTCHA, by the states of the logs in which one
    /// has just failed. The same check for an account that does not exist.
    pub async fn challenges_next(
        &self,
        limits: &Limits,
        who: GuardRequest<'_>,
        mode: CountingMode,
        states: &[LogPeek],
    ) -> bool {
        self.in_flight.term().is_none()
            || counting::challenges_next(&self.limiter, limits, who, mode, states).await.unwrap_or(true)
    }

    /// Counts one action of an address, and of its network if there is a limit for that, and returns what takes it back; or
    /// why it is refused. In an outage: by stricter windows of this process.
    pub async fn count_at(
        &self,
        counted: &[CountedSubject<'_>],
        solved: bool,
    ) -> Result<(CountedAttempt, HitId), Refusal> {
        let buckets: Vec<_> =
            counted.iter().map(|(limit, subject)| self.limiter.bucket(limit, subject)).collect();
        let decision = match self.limiter.reserve(&buckets, solved).await {
            Ok(decision) => decision,
            Err(error) => {
                self.note_outage(&error);
                let limits: Vec<Limit> = counted.iter().map(|(limit, _)| stricter(limit)).collect();
                let buckets: Vec<_> = limits
                    .iter()
                    .zip(counted)
                    .map(|(limit, (_, subject))| self.local_fallback.bucket(limit, subject))
                    .collect();
                self.local_fallback
                    .reserve(&buckets, solved)
                    .await
                    .expect("the in-process store does not fail")
            }
        };
        match decision {
            HitDecision::Refused(refusal) => Err(refusal),
            HitDecision::Admitted(AdmittedHit { at, noted, id, .. }) => {
                Ok((CountedAttempt { at, noted }, id))
            }
        }
    }

    /// Takes back what [`LoginGuard::count_at`] counted, whichever windows those were. Harmless if repeated.
    pub async fn uncount_at(&self, counted: &[CountedSubject<'_>], hit: HitId) {
        let local: Vec<_> =
            counted.iter().map(|(limit, subject)| self.local_fallback.bucket(limit, subject)).collect();
        self.local_fallback.refund(&local, hit).await.expect("the in-process store does not fail");
        let buckets: Vec<_> =
            counted.iter().map(|(limit, subject)| self.limiter.bucket(limit, subject)).collect();
        if let Err(error) = self.limiter.refund(&buckets, hit).await {
            self.note_outage(&error);
        }
    }

    /// Counts a wrong answer to a challenge as a failure of its address and network, until a challenge is asked for
    /// there: strangers make answers, which need no account and no hash, as fast as they like, and one that counts is a
    /// row of its own in the record. It only ever leads to challenges: a limit with a `block` rule does not count it;
    /// otherwise it would be the cheapest way to block an address that many share. In an outage nothing counts it,
    /// because everybody is asked anyway.
    pub async fn count_answer(
        &self,
        login: GuardedLogin,
        limits: &Limits,
        origin: &RequestOrigin,
    ) -> Option<Micros> {
        let asks = |limit: &Limit| limit.rules().iter().all(|rule| rule.then == RuleAction::Captcha);
        let [address, network] = login.limits(limits).shared?;
        let counting = [(address, &origin.address), (network, &origin.network)];
        let counting = counting.into_iter().filter(|(limit, _)| !limit.rules().is_empty() && asks(limit));
        let buckets: Vec<_> = counting.map(|(limit, subject)| self.limiter.bucket(limit, subject)).collect();
        if buckets.is_empty() {
            return None;
        }
        match self.limiter.reserve(&buckets, false).await {
            Ok(HitDecision::Admitted(AdmittedHit { at, noted: None, .. })) => Some(at),
            Ok(HitDecision::Refused(_)) => None,
            // In monitor mode nothing is refused, and this one would have been.
            Ok(HitDecision::Admitted(AdmittedHit { id, .. })) => {
                if let Err(error) = self.limiter.refund(&buckets, id).await {
                    self.note_outage(&error);
                }
                None
            }
            Err(error) => {
                self.note_outage(&error);
                None
            }
        }
    }

    /// Deletes guesses that are remembered no longer; returns how many.
    pub async fn purge_guesses(&self, batch: u32) -> Result<u64, DbError> {
        self.failures.purge_guesses(batch).await
    }

    /// Deletes an account's failures, because its owner has proved who they are in another way. First in the
    /// record, so that a rebuild does not bring back what was forgiven.
    pub async fn forgive(
        &self,
        login: GuardedLogin,
        limits: &Limits,
        account: AccountId,
    ) -> Result<(), StoreError> {
        let (limit, key) = (login.limits(limits).account, account_key(account));
        let bucket = self.limiter.bucket(limit, &key);
        if let Err(error) = self.failures.forget(bucket.key).await {
            tracing::warn!(%error, "forgiven failures could not be removed from the record; a rebuild brings them back");
        }
        if let Some(all) = all_failures(&self.limiter, limit, &key) {
            self.limiter.clear(all).await?;
        }
        self.limiter.clear(bucket).await
    }

    /// Settles an attempt that another instance has admitted: kept as a failure, or taken back. Nothing is forgiven,
    /// because only that instance knows who else came meanwhile. Returns whether it failed by the same password again.
    pub async fn settle_elsewhere(
        &self,
        limits: &Limits,
        logs: &[(String, [u8; 16])],
        hit: HitId,
        (failed, guess): (bool, Option<Guess>),
    ) -> Result<bool, SettleError> {
        let bucket = |(name, key): &(String, [u8; 16])| {
            limits
                .get(name)
                .map(|limit| Bucket { limit, key: SubjectKey(*key) })
                .expect("each name has a limit")
        };
        let buckets: Vec<Bucket<'_>> = logs.iter().map(bucket).collect();
        if !failed {
            self.limiter.refund(&buckets, hit).await?;
            return Ok(false);
        }
        let owned: Vec<OwnedBucket> = buckets.iter().map(|bucket| Bucket::to_owned(*bucket)).collect();
        let repeat = self.failures.write(hit, &owned, guess).await?;
        let (own, others) = buckets.split_at(OWN + 1);
        let kept = match repeat {
            false => self.limiter.keep(&buckets, hit).await.map(drop),
            true => {
                let refunded = self.limiter.refund(own, hit).await;
                refunded.and(self.limiter.keep(others, hit).await.map(drop))
            }
        };
        // It is in the record; a store that did not hear of it has it as a hold, which counts in a while.
        if let Err(error) = kept {
            self.note_outage(&error);
            self.in_flight.leave_store();
        }
        Ok(repeat)
    }

    fn note_outage(&self, error: &StoreError) {
        self.outages.increment(1);
        tracing::debug!(%error, "the window store failed; this process's own windows decide");
    }
}

/// Whether the first of two refusals ends sooner.
fn is_milder(refusal: &Refusal, other: &Refusal) -> bool {
    (refusal.then, refusal.retry_after) < (other.then, other.retry_after)
}

fn refused(login: GuardedLogin, mode: CountingMode, refusal: Refusal) -> GuardAdmission {
    GuardAdmission::Refused { mode, limit: mode.limits(login)[refusal.bucket].as_str(), refusal }
}

/// Half of everything, because one instance does not see what the others admit.
fn stricter(limit: &Limit) -> Limit {
    let halved = |rule: &Rule| Rule { max: (rule.max / 2).max(1), ..rule.clone() };
    let rules = limit.rules().iter().map(halved).collect();
    let half = Limit::new(limit.name(), rules, limit.mode()).expect("half of what is allowed is allowed");
    half.keeping(limit.capacity())
}

/// The most that a network counts for: strangers share it, and one of them must not set the price of all others to the
/// highest.
const MOST_OF_NETWORK: f64 = 0.5;

impl LoginGuard {
    /// How much of its limits the failures at a login have used.
    pub async fn limit_usage(
        &self,
        login: GuardedLogin,
        limits: &Limits,
        origin: &RequestOrigin,
    ) -> Option<f64> {
        self.limit_usage_on(login.limits(limits).shared?, origin).await
    }

    /// From 0 to 1: that of the fullest rule of a limit of addresses and one of networks. None while the store does not
    /// answer.
    pub async fn limit_usage_on(
        &self,
        [address, network]: [&Limit; 2],
        origin: &RequestOrigin,
    ) -> Option<f64> {
        let shares = [(address, &origin.address, 1.0), (network, &origin.network, MOST_OF_NETWORK)];
        let shares = shares.into_iter().filter(|(limit, ..)| enforced(limit));
        let (buckets, most): (Vec<Bucket<'_>>, Vec<f64>) =
            shares.map(|(limit, subject, most)| (self.limiter.bucket(limit, subject), most)).unzip();
        let states = self.limiter.peek_all(&buckets).await.ok()?;
        let used = buckets.iter().zip(&states).map(|(bucket, state)| used(bucket.limit, state));
        Some(used.zip(most).map(|(used, most)| used.min(most)).fold(0.0, f64::max))
    }
}

/// What part of its fullest rule is used.
fn used(limit: &Limit, state: &LogPeek) -> f64 {
    let rules = limit.rules().iter().zip(&state.rules);
    let used = rules.map(|(rule, counted)| f64::from(counted.count) / f64::from(rule.max));
    used.fold(0.0, f64::max)
}
