//! Signing in with a password: a slot is taken before anything is verified, and the outcome settles it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram};
use serde_json::json;
use tokio::sync::oneshot;

use super::consecutive::{ConsecutiveFailures, LoginLookup};
use super::guard::{
    AccountSubject, AttemptSlot, CountedAttempt, GuardAdmission, GuardMeans, GuardRequest, GuardedLogin,
    LoginGuard, SignInPath,
};
use super::{
    Account, Accounts, DeviceId, HashCaller, HasherBusy, KnownDevice, KnownDevices, Password, PasswordHasher,
    RequestOrigin, SignInClient, SignedInBy, Username, VerifyResult,
};
use crate::audit::{Action, AuditEvent, EventRule};
use crate::clock::{Micros, RecentTimes};
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::denied::{ACCESS, Denied};
use crate::telemetry::SIGN_IN_SECONDS;
use crate::throttle::{Refusal, RuleAction};
use crate::{audit, request_id};

/// The retry time of a caller who waited in vain for others: about as long as those take.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Resolves when the client has hung up.
type HungUp = oneshot::Receiver<Infallible>;

/// The sign-in service. Clones share it.
#[derive(Clone)]
pub struct SignInService(Arc<SignInInner>);

struct SignInInner {
    guard: Arc<LoginGuard>,
    accounts: Accounts,
    consecutive: ConsecutiveFailures,
    hasher: PasswordHasher,
    counters: SignInCounters,
}

/// One attempt at one account's password.
pub struct SignInAttempt {
    pub login: Username,
    pub password: Password,
    pub origin: RequestOrigin,
    /// The client as its account's owner sees it, and its known devices.
    pub client: SignInClient,
    /// The client's address is refused: only a known device may try its own account's password.
    pub denied: bool,
    /// A CAPTCHA was solved with this attempt.
    pub solved: bool,
}

#[derive(Debug)]
pub enum SignInOutcome {
    SignedIn(Box<SignedInOwner>),
    /// The name or the password is wrong; the answer does not say which. Says whether the next attempt needs
    /// a CAPTCHA.
    Rejected {
        captcha_required: bool,
    },
    /// Nothing was verified.
    Denied(Denied),
}

/// An account whose password was just verified, and the known device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedInOwner {
    pub account: Account,
    pub device: Option<DeviceId>,
}

impl std::ops::Deref for SignedInOwner {
    type Target = Account;

    fn deref(&self) -> &Account {
        &self.account
    }
}

impl SignedInOwner {
    /// How their session starts.
    pub fn shown(&self) -> SignedInBy {
        self.device.map_or(SignedInBy::Password, SignedInBy::PasswordFrom)
    }
}

impl SignInService {
    pub fn new(guard: Arc<LoginGuard>, accounts: Accounts, hasher: PasswordHasher) -> Self {
        let consecutive = ConsecutiveFailures::new(accounts.clone());
        Self(Arc::new(SignInInner {
            guard,
            accounts,
            consecutive,
            hasher,
            counters: SignInCounters::register(),
        }))
    }

    pub fn guard(&self) -> &Arc<LoginGuard> {
        &self.0.guard
    }

    /// Lets every answer that follows a comparison leave at one deadline while there are imported passwords. Other
    /// instances import, too: call it every few seconds.
    pub async fn follow_imported(&self) -> Result<(), DbError> {
        let dearest = self.0.accounts.dearest_imported().await?;
        self.0.hasher.keep_pace(dearest).await;
        Ok(())
    }

    /// Every password is tried here, whichever page it was typed on, so that one window counts them all.
    pub async fn attempt(
        &self,
        live: &Arc<LiveSettings>,
        attempt: SignInAttempt,
    ) -> Result<SignInOutcome, DbError> {
        let begun = self.0.guard.audit().now();
        let outcome = self.decide(live, attempt).await?;
        self.0.counters.count(&outcome, begun, self.0.guard.audit().now());
        Ok(outcome)
    }

    /// Within this time, 95 of 100 of the last five minutes ended whose password was compared.
    pub fn took(&self) -> Option<Duration> {
        self.0.counters.took.p95(self.0.guard.audit().now())
    }

    async fn decide(
        &self,
        live: &Arc<LiveSettings>,
        mut attempt: SignInAttempt,
    ) -> Result<SignInOutcome, DbError> {
        // Twice if the account was created or removed a moment ago, or its password changed since the device
        // was known; the second time reads the database.
        for _ in 0..2 {
            let everyone = self.challenges(live, &attempt);
            if attempt.client.devices.is_empty()
                && let Some(outcome) = self.bar_stranger(&attempt, AccountSubject::UNKNOWN, everyone)
            {
                return Ok(outcome);
            }
            let subject = match self.subject(&attempt).await? {
                Ok(subject) => subject,
                Err(busy) => {
                    return Ok(self.record_busy(
                        &attempt,
                        AccountSubject::UNKNOWN,
                        SignInPath::Stranger,
                        busy.retry_after,
                    ));
                }
            };
            let device = subject.known_device(&attempt.client.devices);
            let first = LoginGuard::path(GuardedLogin::Own, &live.limits, device);
            if first == SignInPath::Stranger
                && let Some(outcome) = self.bar_stranger(&attempt, subject, everyone)
            {
                return Ok(outcome);
            }
            if let Err(busy) = self.0.hasher.has_room(&caller(&attempt, first)).await {
                return Ok(self.record_busy(&attempt, subject, first, busy.retry_after));
            }
            // Past its own guesses a known device would go on as a stranger, which is barred.
            let who = GuardRequest { alone: attempt.denied || everyone.is_some(), ..who(&attempt) };
            let admission = self.0.guard.admit_known(&live.limits, subject, who, device).await;
            let slot = match admission {
                GuardAdmission::Held(slot) => slot,
                GuardAdmission::Refused { path, refusal, .. }
                    if !attempt.denied
                        && path.device().is_some()
                        && refusal.then == RuleAction::Block
                        && let Some(outcome) = self.bar_stranger(&attempt, subject, everyone) =>
                {
                    return Ok(outcome);
                }
                GuardAdmission::Refused { path, limit, refusal } => {
                    self.record(&attempt, subject, path, AttemptEnd::Refused(limit, refusal));
                    return Ok(SignInOutcome::Denied(Denied::by(limit, &refusal)));
                }
                GuardAdmission::Busy { retry_after } => {
                    return Ok(self.record_busy(&attempt, subject, SignInPath::Stranger, retry_after));
                }
            };
            // A client that hangs up now must not leave the slot unsettled, so this runs to its end on its
            // own task.
            let (service, live) = (self.clone(), Arc::clone(live));
            let (_here, hung_up) = oneshot::channel();
            let verified = request_id::spawn(async move {
                let verified = service.verify(&live, &attempt, subject, slot, hung_up).await;
                (verified, attempt)
            });
            let (verified, back) = verified.await.expect("verification does not panic");
            match verified? {
                Some(outcome) => return Ok(outcome),
                None => {
                    attempt = SignInAttempt { client: back.client.known_as(KnownDevices::default()), ..back }
                }
            }
        }
        Ok(SignInOutcome::Denied(Denied::Busy { retry_after: BUSY_RETRY }))
    }

    /// None if the slot was taken on the wrong subject; it is refunded.
    async fn verify(
        &self,
        live: &LiveSettings,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        slot: AttemptSlot,
        hung_up: HungUp,
    ) -> Result<Option<SignInOutcome>, DbError> {
        let SignInInner { guard, consecutive, .. } = &*self.0;
        let most = live.login.max_consecutive_failures;
        let path = slot.path();
        let lookup = consecutive.look_up(&attempt.login, subject.account(), path.known(), most).await;
        let Ok(Some(lookup)) = lookup else {
            slot.refund().await;
            lookup?;
            return Ok(Some(self.record_busy(attempt, subject, path, BUSY_RETRY)));
        };
        let found = lookup.account.as_ref();
        if !guard.learn(&attempt.login, found, subject) || path.is_void(found) || lookup.is_spent() {
            slot.refund().await;
            return Ok(None);
        }
        let compared = match self.compare(attempt, path, &lookup, hung_up).await {
            Ok(compared) => compared,
            Err(error) => {
                slot.refund().await;
                return Err(error);
            }
        };
        let answer = compared.as_ref().ok().map(|verified| verified.answer);
        let outcome = self.settle(live, attempt, (subject, path), slot, (lookup, compared)).await;
        if let Some(answer) = answer {
            answer.wait().await;
        }
        outcome
    }

    /// Settles the slot by what was compared, and records it.
    async fn settle(
        &self,
        live: &LiveSettings,
        attempt: &SignInAttempt,
        (subject, path): (AccountSubject, SignInPath),
        slot: AttemptSlot,
        (mut lookup, compared): (LoginLookup, Result<VerifyResult, HasherBusy>),
    ) -> Result<Option<SignInOutcome>, DbError> {
        let SignInInner { guard, consecutive, .. } = &*self.0;
        let (most, taken) = (live.login.max_consecutive_failures, slot.taken());
        match (compared, lookup.account.take()) {
            (Ok(verified), Some(account)) if verified.ok => {
                let (at, forgave) = slot.succeed().await.unwrap_or((taken.at, false));
                self.record(attempt, subject, path, AttemptEnd::Right(taken, at, forgave));
                if verified.rehash {
                    self.rehash(account.clone(), attempt.password.clone(), caller(attempt, path));
                }
                let device = lookup.device.map(|from| from.device);
                Ok(Some(SignInOutcome::SignedIn(Box::new(SignedInOwner { account, device }))))
            }
            (Ok(_), account) => {
                let kept = slot.keep().await;
                let counts_from = kept.as_ref().ok().copied().flatten().unwrap_or(taken.at);
                self.record(attempt, subject, path, AttemptEnd::Wrong(taken, counts_from));
                lookup.account = account;
                if consecutive.count(&attempt.login, &lookup, most).await? {
                    self.record_disabled(attempt, subject, path);
                }
                kept?;
                drop(lookup.permit);
                let everyone = path == SignInPath::Stranger
                    && live.access.challenges_everyone(guard.audit().now()).is_some();
                let captcha_required =
                    everyone || guard.challenges_next(&live.limits, subject, who(attempt), path).await;
                Ok(Some(SignInOutcome::Rejected { captcha_required }))
            }
            (Err(busy), _) => {
                slot.refund().await;
                Ok(Some(self.record_busy(attempt, subject, path, busy.retry_after)))
            }
        }
    }

    /// How long everybody without a solved challenge is challenged; None if this attempt is not.
    fn challenges(&self, live: &LiveSettings, attempt: &SignInAttempt) -> Option<Duration> {
        live.access.challenges_everyone(self.0.guard.audit().now()).filter(|_| !attempt.solved)
    }

    /// What `[access]` answers to an attempt that does not come from the account's known device. Nothing is counted,
    /// and the answer is the same for a name without an account.
    fn bar_stranger(
        &self,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        everyone: Option<Duration>,
    ) -> Option<SignInOutcome> {
        let (end, denied) = match everyone {
            _ if attempt.denied => (AttemptEnd::Denied, Denied::AddressDenied),
            Some(left) => (AttemptEnd::ChallengedWithEveryone, Denied::challenged_with_everyone(left)),
            None => return None,
        };
        self.record(attempt, subject, SignInPath::Stranger, end);
        Some(SignInOutcome::Denied(denied))
    }

    /// With the account's own password if it is usable for this client, otherwise with a decoy.
    async fn compare(
        &self,
        attempt: &SignInAttempt,
        path: SignInPath,
        lookup: &LoginLookup,
        hung_up: HungUp,
    ) -> Result<Result<VerifyResult, HasherBusy>, DbError> {
        let SignInInner { consecutive, hasher, .. } = &*self.0;
        let hung_up = async { drop(hung_up.await) };
        let caller = caller(attempt, path);
        let mut compared = hasher.verify(&caller, hung_up, &attempt.password, lookup.open_hash()).await;
        if let Ok(VerifyResult { ok: ok @ true, .. }) = &mut compared {
            *ok = consecutive.confirm(lookup).await?;
        }
        Ok(compared)
    }

    /// Whether this client may try an account's password at all: once it is disabled, only from a known
    /// device that is not spent. Only for somebody who is signed in to the account.
    pub async fn is_open_to(
        &self,
        live: &LiveSettings,
        account: &Account,
        client: &SignInClient,
    ) -> Result<bool, DbError> {
        if account.password_disabled_at.is_none() {
            return Ok(true);
        }
        let path = SignInPath::at(account, &client.devices, &live.limits);
        match path.known() {
            Some(device) if !path.is_void(Some(account)) => {
                self.0.accounts.is_device_spent(device.account, device.id).await.map(|spent| !spent)
            }
            _ => Ok(false),
        }
    }

    /// The subject of the login. Not looked up if there is no room for a stranger, so that a flood does not
    /// reach the database.
    async fn subject(&self, attempt: &SignInAttempt) -> Result<Result<AccountSubject, HasherBusy>, DbError> {
        let SignInInner { guard, hasher, .. } = &*self.0;
        if let Some(subject) = guard.remembered(&attempt.login) {
            return Ok(Ok(subject));
        }
        if attempt.client.devices.is_empty()
            && let Err(busy) = hasher.has_room(&caller(attempt, SignInPath::Stranger)).await
        {
            return Ok(Err(busy));
        }
        guard.subject(&attempt.login).await.map(Ok)
    }

    /// This password was imported, or the parameters have changed since it was hashed. Nobody waits for this; if it
    /// fails, the next sign-in tries again.
    fn rehash(&self, account: Account, password: Password, caller: HashCaller) {
        let service = self.clone();
        tokio::spawn(async move {
            let SignInInner { accounts, hasher, .. } = &*service.0;
            let (Some(old), Ok(new)) = (&account.password_hash, hasher.hash(&caller, &password).await) else {
                return;
            };
            if let Err(error) = accounts.rehash(account.id, old, &new).await {
                tracing::warn!(%error, "a password could not be hashed again");
            }
        });
    }
}

/// The caller of the hash: its lane follows from the path on which it was admitted.
fn caller(attempt: &SignInAttempt, path: SignInPath) -> HashCaller {
    HashCaller::of(&attempt.origin, attempt.solved, path.known())
}

fn who(attempt: &SignInAttempt) -> GuardRequest<'_> {
    GuardRequest {
        guarded: GuardedLogin::Own,
        name: attempt.login.as_str(),
        origin: &attempt.origin,
        solved: attempt.solved,
        alone: false,
        means: GuardMeans::BROWSER,
    }
}

// `gatehouse_sign_ins_total`: how sign-ins ended; and how long those took whose password was compared.

/// Every successful sign-in, by any method.
pub fn signed_in_counter() -> Counter {
    metrics::counter!("gatehouse_sign_ins_total", "outcome" => "signed-in")
}

/// By outcome. The handles are kept, because refusals come by the million.
pub struct SignInCounters {
    signed_in: Counter,
    rejected: Counter,
    challenged: Counter,
    throttled: Counter,
    busy: Counter,
    seconds: Histogram,
    /// The same, lately.
    pub took: RecentTimes,
}

impl SignInCounters {
    pub fn register() -> Self {
        let counter = |outcome| metrics::counter!("gatehouse_sign_ins_total", "outcome" => outcome);
        Self {
            signed_in: signed_in_counter(),
            rejected: counter("rejected"),
            challenged: counter("challenged"),
            throttled: counter("throttled"),
            busy: counter("busy"),
            seconds: metrics::histogram!(SIGN_IN_SECONDS),
            took: RecentTimes::default(),
        }
    }

    pub fn count(&self, outcome: &SignInOutcome, begun: Micros, now: Micros) {
        let counter = match outcome {
            SignInOutcome::SignedIn(_) => &self.signed_in,
            SignInOutcome::Rejected { .. } => &self.rejected,
            SignInOutcome::Denied(Denied::Challenged { .. }) => &self.challenged,
            SignInOutcome::Denied(Denied::Throttled { .. } | Denied::AddressDenied) => &self.throttled,
            SignInOutcome::Denied(Denied::Busy { .. } | Denied::Unavailable { .. }) => &self.busy,
        };
        counter.increment(1);
        if !matches!(outcome, SignInOutcome::Denied(_)) {
            self.seconds.record(now.since(begun));
            self.took.record(now, now.since(begun));
        }
    }
}

// What the record of events holds of sign-ins.

/// How an attempt ended, for the record.
#[derive(Clone, Copy)]
enum AttemptEnd {
    Refused(&'static str, Refusal),
    Busy,
    /// The client's address is refused.
    Denied,
    ChallengedWithEveryone,
    /// When it was taken and when it was refunded, and whether forgiveness was requested.
    Right(CountedAttempt, Micros, bool),
    /// When it was taken, and from when it counts.
    Wrong(CountedAttempt, Micros),
}

impl SignInService {
    /// Nothing was hashed: a client without a solved challenge is asked for one, so that a flood has to pay.
    fn record_busy(
        &self,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        path: SignInPath,
        retry_after: Duration,
    ) -> SignInOutcome {
        self.record(attempt, subject, path, AttemptEnd::Busy);
        SignInOutcome::Denied(Denied::no_room(attempt.solved, retry_after))
    }

    fn record_disabled(&self, attempt: &SignInAttempt, subject: AccountSubject, path: SignInPath) {
        let audit = self.0.guard.audit();
        let (name, detail) = from_device(path.known());
        audit.record(AuditEvent {
            name,
            detail,
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::EventSubject::Address(&attempt.origin.address)),
            ..AuditEvent::new(audit.now(), Action::PasswordDisabled, audit::Outcome::Ok)
        });
    }

    fn record(&self, attempt: &SignInAttempt, subject: AccountSubject, path: SignInPath, ended: AttemptEnd) {
        let audit = self.0.guard.audit();
        let (at, outcome) = match ended {
            AttemptEnd::Refused(_, refusal) => (audit.decided(&refusal), audit::Outcome::refused(&refusal)),
            AttemptEnd::Busy => (audit.now(), audit::Outcome::Busy),
            AttemptEnd::Denied => (audit.now(), audit::Outcome::Refused),
            AttemptEnd::ChallengedWithEveryone => (audit.now(), audit::Outcome::Challenged),
            AttemptEnd::Right(taken, ..) => (taken.at, audit::Outcome::Ok),
            AttemptEnd::Wrong(taken, _) => (taken.at, audit::Outcome::Wrong),
        };
        let (name, detail) = from_device(path.device());
        let event = AuditEvent {
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::EventSubject::Address(&attempt.origin.address)),
            network: Some(audit::EventSubject::Network(&attempt.origin.network)),
            solved: attempt.solved,
            name,
            detail,
            ..AuditEvent::new(at, Action::SignIn, outcome)
        };
        audit.record(match ended {
            AttemptEnd::Refused(limit, refusal) => {
                AuditEvent { why: Some(EventRule::refused(limit, &refusal)), ..event }
            }
            AttemptEnd::Busy => event,
            AttemptEnd::Denied | AttemptEnd::ChallengedWithEveryone => {
                AuditEvent { why: Some(EventRule::by_nobody(ACCESS)), ..event }
            }
            AttemptEnd::Right(taken, at, forgave) => {
                let detail = event.detail.or((!forgave).then(|| audit::NOT_FORGIVEN.to_owned()));
                AuditEvent { settled: Some(at), detail, why: why_noted(path, &taken), ..event }
            }
            AttemptEnd::Wrong(taken, at) => {
                AuditEvent { settled: Some(at), why: why_noted(path, &taken), ..event }
            }
        });
    }
}

/// The event fields for an attempt from a known device.
fn from_device(device: Option<&KnownDevice>) -> (Option<&'static str>, Option<String>) {
    let detail = device.map(|device| json!({ "device": device.id.to_string() }).to_string());
    (device.map(|_| audit::FROM_DEVICE), detail)
}

fn why_noted(path: SignInPath, taken: &CountedAttempt) -> Option<EventRule<'static>> {
    taken
        .noted
        .as_ref()
        .map(|refusal| EventRule::noted(path.limits(GuardedLogin::Own)[refusal.bucket].as_str(), refusal))
}
