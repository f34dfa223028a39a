//! Signing in with a password: a slot is taken before anything is verified, and the outcome settles it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use gatehouse_limiter::{Refusal, RuleAction};
use metrics::Counter;
use serde_json::json;
use tokio::sync::oneshot;

use super::consecutive::{ConsecutiveFailures, LoginLookup};
use super::guard::{
    AccountSubject, AttemptSlot, ClientCapabilities, CountedAttempt, CountingMode, GuardAdmission,
    GuardRequest, GuardedLogin, LoginGuard,
};
use super::{HashCaller, HasherBusy, Password, PasswordHasher, RequestOrigin, VerifyResult};
use crate::accounts::{
    Account, Accounts, DeviceId, KnownDevice, KnownDevices, SignInClient, SignedInBy, Username,
};
use crate::audit::{self, Action, AuditEvent, EventRule, Outcome};
use crate::clock::RecentTimes;
use crate::config::LiveSettings;
use crate::db::DbError;
use crate::denied::Denied;
use crate::request_id;
use crate::telemetry::SIGN_IN_SECONDS;

/// The retry time of a caller who waited in vain for others: about as long as those take.
const BUSY_RETRY: Duration = Duration::from_secs(1);

/// Resolves when the client has hung up.
type HungUp = oneshot::Receiver<Infallible>;

#[derive(Clone)]
pub struct SignInService(Arc<SignInInner>);

struct SignInInner {
    guard: Arc<LoginGuard>,
    accounts: Accounts,
    consecutive: ConsecutiveFailures,
    hasher: PasswordHasher,
    /// How long those took whose password was compared, lately.
    took: RecentTimes,
}

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

/// What came of a slot.
enum VerifyEnd {
    Outcome(SignInOutcome),
    /// It was taken on the wrong subject, and is refunded: try again, from no known device.
    WrongSubject,
}

impl SignInService {
    pub fn new(guard: Arc<LoginGuard>, accounts: Accounts, hasher: PasswordHasher) -> Self {
        let consecutive = ConsecutiveFailures::new(accounts.clone());
        // They are there from the start.
        for outcome in ["signed-in", "rejected", "challenged", "throttled", "busy"] {
            sign_ins(outcome).increment(0);
        }
        let _ = metrics::histogram!(SIGN_IN_SECONDS);
        Self(Arc::new(SignInInner { guard, accounts, consecutive, hasher, took: RecentTimes::default() }))
    }

    pub fn guard(&self) -> &Arc<LoginGuard> {
        &self.0.guard
    }

    /// Lets every answer that follows a comparison leave at one deadline while there are imported passwords. Other
    /// instances import, too: call it every few seconds.
    pub async fn follow_imported(&self) -> Result<(), DbError> {
        let slowest_hash = self.0.accounts.slowest_imported().await?;
        self.0.hasher.update_timing(slowest_hash).await;
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
        sign_ins(outcome.label()).increment(1);
        if !matches!(outcome, SignInOutcome::Denied(_)) {
            let now = self.0.guard.audit().now();
            metrics::histogram!(SIGN_IN_SECONDS).record(now.since(begun));
            self.0.took.record(now, now.since(begun));
        }
        Ok(outcome)
    }

    /// Within this time, 95 of 100 of the last five minutes ended whose password was compared.
    pub fn took(&self) -> Option<Duration> {
        self.0.took.p95(self.0.guard.audit().now())
    }

    async fn decide(
        &self,
        live: &Arc<LiveSettings>,
        mut attempt: SignInAttempt,
    ) -> Result<SignInOutcome, DbError> {
        // Twice if the account was created or removed a moment ago, or its password changed since the device
        // was known; the second time reads the database.
        for _ in 0..2 {
            let (subject, slot) = match self.admit(live, &attempt).await? {
                Ok(held) => held,
                Err(denied) => return Ok(SignInOutcome::Denied(denied)),
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
                VerifyEnd::Outcome(outcome) => return Ok(outcome),
                VerifyEnd::WrongSubject => {
                    attempt = SignInAttempt { client: back.client.known_as(KnownDevices::default()), ..back };
                }
            }
        }
        Ok(SignInOutcome::Denied(Denied::Busy { retry_after: BUSY_RETRY }))
    }

    /// Takes a slot, or records why there is none. What `[access]` says comes before what is counted, and room
    /// to hash before the slot.
    async fn admit(
        &self,
        live: &LiveSettings,
        attempt: &SignInAttempt,
    ) -> Result<Result<(AccountSubject, AttemptSlot), Denied>, DbError> {
        let SignInInner { guard, hasher, .. } = &*self.0;
        let everyone = guard.challenges_everyone(live, attempt.solved);
        let check_access_rules = |subject: AccountSubject| {
            let event = self.event(attempt, &subject, CountingMode::Stranger);
            guard.check_access_rules(attempt.denied, everyone, event)
        };
        if attempt.client.devices.is_empty()
            && let Some(denied) = check_access_rules(AccountSubject::UNKNOWN)
        {
            return Ok(Err(denied));
        }
        let subject = match self.subject(attempt).await? {
            Ok(subject) => subject,
            Err(busy) => {
                let (subject, mode) = (AccountSubject::UNKNOWN, CountingMode::Stranger);
                return Ok(Err(self.record_busy(attempt, subject, mode, busy.retry_after)));
            }
        };
        let device = subject.known_device(&attempt.client.devices);
        let first = CountingMode::of(GuardedLogin::Own, &live.limits, device);
        if first == CountingMode::Stranger
            && let Some(denied) = check_access_rules(subject)
        {
            return Ok(Err(denied));
        }
        if let Err(busy) = hasher.has_room(&caller(attempt, first)).await {
            return Ok(Err(self.record_busy(attempt, subject, first, busy.retry_after)));
        }
        // Past its own guesses a known device would go on as a stranger, which is barred.
        let device_only = attempt.denied || everyone.is_some();
        let who = GuardRequest { device_only, ..who(attempt, subject) };
        Ok(match guard.admit(&live.limits, who, first).await {
            GuardAdmission::Held(slot) => Ok((subject, slot)),
            GuardAdmission::Refused { mode, refusal, .. }
                if !attempt.denied
                    && mode.device().is_some()
                    && refusal.then == RuleAction::Block
                    && let Some(denied) = check_access_rules(subject) =>
            {
                Err(denied)
            }
            GuardAdmission::Refused { mode, limit, refusal } => {
                guard.record_refused(self.event(attempt, &subject, mode), limit, &refusal);
                Err(Denied::by(limit, &refusal))
            }
            GuardAdmission::Busy { retry_after } => {
                Err(self.record_busy(attempt, subject, CountingMode::Stranger, retry_after))
            }
        })
    }

    async fn verify(
        &self,
        live: &LiveSettings,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        slot: AttemptSlot,
        hung_up: HungUp,
    ) -> Result<VerifyEnd, DbError> {
        let SignInInner { guard, consecutive, .. } = &*self.0;
        let most = live.login.max_consecutive_failures;
        let mode = slot.mode();
        let busy = |retry_after| {
            let denied = self.record_busy(attempt, subject, mode, retry_after);
            Ok(VerifyEnd::Outcome(SignInOutcome::Denied(denied)))
        };
        let lookup = consecutive.look_up(&attempt.login, subject.account(), mode.known(), most).await;
        let Ok(Some(lookup)) = lookup else {
            slot.refund().await;
            lookup?;
            return busy(BUSY_RETRY);
        };
        let found = lookup.account.as_ref();
        if !guard.learn(&attempt.login, found, subject) || mode.is_void(found) || lookup.is_spent() {
            slot.refund().await;
            return Ok(VerifyEnd::WrongSubject);
        }
        let compared = match self.compare(attempt, mode, &lookup, hung_up).await {
            Ok(Ok(compared)) => compared,
            Ok(Err(none)) => {
                slot.refund().await;
                return busy(none.retry_after);
            }
            Err(error) => {
                slot.refund().await;
                return Err(error);
            }
        };
        let outcome = self.settle(live, attempt, subject, slot, lookup, compared).await;
        compared.wait_for_answer().await;
        outcome.map(VerifyEnd::Outcome)
    }

    /// Settles the slot by what was compared, and records it.
    async fn settle(
        &self,
        live: &LiveSettings,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        slot: AttemptSlot,
        mut lookup: LoginLookup,
        compared: VerifyResult,
    ) -> Result<SignInOutcome, DbError> {
        let SignInInner { guard, consecutive, .. } = &*self.0;
        let (mode, taken) = (slot.mode(), slot.taken());
        if compared.ok
            && let Some(account) = lookup.account.take()
        {
            let (at, forgave) = slot.succeed().await.unwrap_or((taken.at, false));
            let event = self.settled(attempt, &subject, mode, taken);
            let detail = event.detail.or((!forgave).then(|| audit::NOT_FORGIVEN.to_owned()));
            let settled = Some(at);
            guard.audit().record(AuditEvent { outcome: Outcome::Ok, settled, detail, ..event });
            if compared.rehash {
                self.rehash(account.clone(), attempt.password.clone(), caller(attempt, mode));
            }
            let device = lookup.device.map(|from| from.device);
            return Ok(SignInOutcome::SignedIn(Box::new(SignedInOwner { account, device })));
        }
        let kept = slot.keep().await;
        let counts_from = kept.as_ref().ok().copied().flatten().unwrap_or(taken.at);
        let event = self.settled(attempt, &subject, mode, taken);
        guard.audit().record(AuditEvent { outcome: Outcome::Wrong, settled: Some(counts_from), ..event });
        let most = live.login.max_consecutive_failures;
        if consecutive.count(&attempt.login, &lookup, most).await? {
            self.record_disabled(attempt, subject, mode);
        }
        kept?;
        drop(lookup.permit);
        let everyone =
            mode == CountingMode::Stranger && live.access.challenges_everyone(guard.audit().now()).is_some();
        let captcha_required =
            everyone || guard.challenges_next(&live.limits, who(attempt, subject), mode).await;
        Ok(SignInOutcome::Rejected { captcha_required })
    }

    /// With the account's own password if it is usable for this client, otherwise with a decoy.
    async fn compare(
        &self,
        attempt: &SignInAttempt,
        mode: CountingMode,
        lookup: &LoginLookup,
        hung_up: HungUp,
    ) -> Result<Result<VerifyResult, HasherBusy>, DbError> {
        let SignInInner { consecutive, hasher, .. } = &*self.0;
        let hung_up = async { drop(hung_up.await) };
        let caller = caller(attempt, mode);
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
        let mode = CountingMode::of(GuardedLogin::Own, &live.limits, client.devices.at(account.id));
        match mode.known() {
            Some(device) if !mode.is_void(Some(account)) => {
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
            && let Err(busy) = hasher.has_room(&caller(attempt, CountingMode::Stranger)).await
        {
            return Ok(Err(busy));
        }
        guard.subject(&attempt.login).await.map(Ok)
    }

    /// The event of an attempt for which there is no room. What ended otherwise says so with `..`.
    fn event<'a>(
        &self,
        attempt: &'a SignInAttempt,
        subject: &'a AccountSubject,
        mode: CountingMode,
    ) -> AuditEvent<'a> {
        let (name, detail) = from_device(mode.device());
        AuditEvent {
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::EventSubject::Address(&attempt.origin.address)),
            network: Some(audit::EventSubject::Network(&attempt.origin.network)),
            solved: attempt.solved,
            name,
            detail,
            ..AuditEvent::new(self.0.guard.audit().now(), Action::SignIn, Outcome::Busy)
        }
    }

    /// The event of an attempt that took a slot.
    fn settled<'a>(
        &self,
        attempt: &'a SignInAttempt,
        subject: &'a AccountSubject,
        mode: CountingMode,
        CountedAttempt { at, noted }: CountedAttempt,
    ) -> AuditEvent<'a> {
        let limit = |refusal: &Refusal| mode.limits(GuardedLogin::Own)[refusal.bucket].as_str();
        let why = noted.map(|refusal| EventRule::noted(limit(&refusal), &refusal));
        AuditEvent { at, why, ..self.event(attempt, subject, mode) }
    }

    /// Nothing was hashed: a client without a solved challenge is asked for one, so that a flood has to pay.
    fn record_busy(
        &self,
        attempt: &SignInAttempt,
        subject: AccountSubject,
        mode: CountingMode,
        retry_after: Duration,
    ) -> Denied {
        self.0.guard.audit().record(self.event(attempt, &subject, mode));
        Denied::no_room(attempt.solved, retry_after)
    }

    fn record_disabled(&self, attempt: &SignInAttempt, subject: AccountSubject, mode: CountingMode) {
        let audit = self.0.guard.audit();
        let (name, detail) = from_device(mode.known());
        audit.record(AuditEvent {
            name,
            detail,
            account: Some(subject.recorded(&attempt.login)),
            address: Some(audit::EventSubject::Address(&attempt.origin.address)),
            ..AuditEvent::new(audit.now(), Action::PasswordDisabled, Outcome::Ok)
        });
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

/// The caller of the hash: its lane follows from how it is counted.
fn caller(attempt: &SignInAttempt, mode: CountingMode) -> HashCaller {
    HashCaller::of(&attempt.origin, attempt.solved, mode.known())
}

fn who(attempt: &SignInAttempt, subject: AccountSubject) -> GuardRequest<'_> {
    GuardRequest {
        guarded: GuardedLogin::Own,
        subject,
        name: attempt.login.as_str(),
        origin: &attempt.origin,
        solved: attempt.solved,
        device_only: false,
        means: ClientCapabilities::BROWSER,
    }
}

/// Sign-ins by any method, by how they ended.
pub fn sign_ins(outcome: &'static str) -> Counter {
    metrics::counter!("gatehouse_sign_ins_total", "outcome" => outcome)
}

impl SignInOutcome {
    const fn label(&self) -> &'static str {
        match self {
            Self::SignedIn(_) => "signed-in",
            Self::Rejected { .. } => "rejected",
            Self::Denied(Denied::Challenged { .. }) => "challenged",
            Self::Denied(Denied::Throttled { .. } | Denied::AddressDenied) => "throttled",
            Self::Denied(Denied::Busy { .. } | Denied::Unavailable { .. }) => "busy",
        }
    }
}

/// The event fields for an attempt from a known device.
fn from_device(device: Option<&KnownDevice>) -> (Option<&'static str>, Option<String>) {
    let detail = device.map(|device| json!({ "device": device.id.to_string() }).to_string());
    (device.map(|_| audit::FROM_DEVICE), detail)
}
