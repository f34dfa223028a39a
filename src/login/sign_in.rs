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
    AccountSubject, AttemptSlot, BUSY_RETRY, ClientCapabilities, CountedAttempt, CountingMode,
    GuardAdmission, GuardRequest, GuardedLogin, LoginGuard,
};
use super::{
    Guess, GuessKeys, GuessSource, HashCaller, HasherBusy, Password, PasswordHasher, RequestOrigin, Spray,
    SprayNews, SprayWatch, VerifyResult,
};
use crate::accounts::{Account, Accounts, DeviceId, FirstFactor, KnownDevice, KnownDevices, Username};
use crate::audit::{self, Action, AuditEvent, EventRule, Outcome};
use crate::clock::{Micros, RecentTimes};
use crate::config::{BreachedAction, LimitName, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::entropy::Entropy;
use crate::request_id;
use crate::telemetry::SIGN_IN_SECONDS;

/// Resolves when the client has hung up.
type HungUp = oneshot::Receiver<Infallible>;

#[derive(Clone)]
pub struct SignInService(Arc<SignInInner>);

struct SignInInner {
    guard: Arc<LoginGuard>,
    accounts: Accounts,
    consecutive: ConsecutiveFailures,
    hasher: PasswordHasher,
    sprays: SprayWatch,
    /// How long those took whose password was compared, lately.
    took: RecentTimes,
}

pub struct SignInAttempt {
    pub login: Username,
    pub password: Password,
    pub origin: RequestOrigin,
    /// The devices of the browser that it comes from.
    pub devices: KnownDevices,
    /// The browser's id, if it has one.
    pub browser: Option<[u8; 16]>,
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

/// An attempt, and for whom and how it is counted.
#[derive(Clone, Copy)]
struct CountedSignIn<'a> {
    attempt: &'a SignInAttempt,
    subject: AccountSubject,
    mode: CountingMode,
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
    pub fn shown(&self) -> FirstFactor {
        self.device.map_or(FirstFactor::Password, FirstFactor::PasswordFrom)
    }
}

enum VerifyEnd {
    Outcome(SignInOutcome),
    /// It was taken on the wrong subject, and is refunded: try again, from no known device.
    WrongSubject,
}

impl SignInService {
    pub fn new(
        guard: Arc<LoginGuard>,
        accounts: Accounts,
        hasher: PasswordHasher,
        entropy: &Entropy,
    ) -> Self {
        let consecutive = ConsecutiveFailures::new(accounts.clone());
        // They are there from the start.
        for outcome in ["signed-in", "rejected", "challenged", "throttled", "busy"] {
            sign_ins(outcome).increment(0);
        }
        let _ = metrics::histogram!(SIGN_IN_SECONDS);
        let (sprays, took) = (SprayWatch::new(entropy), RecentTimes::default());
        Self(Arc::new(SignInInner { guard, accounts, consecutive, hasher, sprays, took }))
    }

    /// One password that is tried at many names, as far as this instance sees.
    pub fn spray(&self) -> Option<Spray> {
        self.0.sprays.newest(self.0.guard.audit().now())
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
                let counted = CountedSignIn { attempt: &attempt, subject, mode: slot.mode() };
                let verified = service.verify(&live, counted, slot, hung_up).await;
                (verified, attempt)
            });
            let (verified, back) = verified.await.expect("verification does not panic");
            match verified? {
                VerifyEnd::Outcome(outcome) => return Ok(outcome),
                VerifyEnd::WrongSubject => {
                    attempt = SignInAttempt { devices: KnownDevices::default(), ..back };
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
        let mut counted =
            CountedSignIn { attempt, subject: AccountSubject::UNKNOWN, mode: CountingMode::Stranger };
        let check_access_rules = |counted: CountedSignIn<'_>| {
            let stranger = CountedSignIn { mode: CountingMode::Stranger, ..counted };
            guard.check_access_rules(attempt.denied, everyone, stranger.event(guard.audit().now()))
        };
        if attempt.devices.is_empty()
            && let Some(denied) = check_access_rules(counted)
        {
            return Ok(Err(denied));
        }
        counted.subject = match self.subject(counted).await? {
            Ok(subject) => subject,
            Err(busy) => return Ok(Err(self.record_busy(counted, busy.retry_after))),
        };
        let device = counted.subject.known_device(&attempt.devices);
        counted.mode = CountingMode::of(GuardedLogin::Own, &live.limits, device);
        if counted.mode == CountingMode::Stranger
            && let Some(denied) = check_access_rules(counted)
        {
            return Ok(Err(denied));
        }
        if let Err(busy) = hasher.has_room(&counted.caller()).await {
            return Ok(Err(self.record_busy(counted, busy.retry_after)));
        }
        // Past its own guesses a known device would go on as a stranger, which is barred.
        let device_only = attempt.denied || everyone.is_some();
        let who = GuardRequest { device_only, ..counted.who() };
        Ok(match guard.admit(&live.limits, who, counted.mode).await {
            // Once it has a slot: where a limit refuses, nobody tries for nothing which passwords are challenged.
            GuardAdmission::Held(slot) if self.is_sprayed(live, attempt, slot.mode()) => {
                let counted = CountedSignIn { mode: slot.mode(), ..counted };
                tokio::spawn(slot.refund()).await.expect("a refund does not panic");
                Err(self.record_sprayed(counted))
            }
            GuardAdmission::Held(slot) => Ok((counted.subject, slot)),
            GuardAdmission::Refused { mode, refusal, .. }
                if !attempt.denied
                    && mode.device().is_some()
                    && refusal.then == RuleAction::Block
                    && let Some(denied) = check_access_rules(counted) =>
            {
                Err(denied)
            }
            GuardAdmission::Refused { mode, limit, refusal } => {
                let counted = CountedSignIn { mode, ..counted };
                guard.record_refused(counted.event(guard.audit().now()), limit, &refusal);
                Err(Denied::by(limit, &refusal))
            }
            GuardAdmission::Busy => {
                Err(self.record_busy(CountedSignIn { mode: CountingMode::Stranger, ..counted }, BUSY_RETRY))
            }
        })
    }

    async fn verify(
        &self,
        live: &LiveSettings,
        counted: CountedSignIn<'_>,
        slot: AttemptSlot,
        hung_up: HungUp,
    ) -> Result<VerifyEnd, DbError> {
        let SignInInner { guard, consecutive, .. } = &*self.0;
        let most = live.login.max_consecutive_failures;
        let CountedSignIn { attempt, subject, mode } = counted;
        let busy = |retry_after| {
            let denied = self.record_busy(counted, retry_after);
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
        let compared = match self.compare(counted, &lookup, hung_up).await {
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
        let outcome = self.settle(live, counted, slot, lookup, compared).await;
        compared.wait_for_answer().await;
        outcome.map(VerifyEnd::Outcome)
    }

    async fn settle(
        &self,
        live: &LiveSettings,
        counted: CountedSignIn<'_>,
        slot: AttemptSlot,
        mut lookup: LoginLookup,
        compared: VerifyResult,
    ) -> Result<SignInOutcome, DbError> {
        let SignInInner { guard, consecutive, hasher, sprays, .. } = &*self.0;
        let taken = slot.taken();
        if compared.ok
            && let Some(account) = lookup.account.take()
        {
            let (at, forgave) = slot.succeed().await.unwrap_or((taken.at, false));
            let event = counted.settled(taken);
            let detail = event.detail.or((!forgave).then(|| audit::NOT_FORGIVEN.to_owned()));
            let settled = Some(at);
            guard.audit().record(AuditEvent { outcome: Outcome::Ok, settled, detail, ..event });
            if compared.rehash {
                self.rehash(account.clone(), counted.attempt.password.clone(), counted.caller());
            }
            let (limit, password) = (&live.limits.login_guess, &counted.attempt.password);
            let sprayed =
                counted.mode.at_device().is_none() && sprays.is_hot(limit, password, guard.audit().now());
            let known = (compared.breached.unwrap_or_default(), sprayed);
            let account = self.note_breached(live, counted, account, known).await;
            let device = lookup.device.map(|from| from.device);
            return Ok(SignInOutcome::SignedIn(Box::new(SignedInOwner { account, device })));
        }
        if compared.tag.is_some() {
            self.note_wrong(live, counted);
        }
        let guess = compared.tag.map(|tag| Guess { tag, source: counted.source(hasher.guesses()) });
        let kept = slot.keep_and_peek(guess).await;
        let settled = kept.as_ref().ok().and_then(|(settled, _)| settled.as_ref());
        let counts_from = settled.map_or(taken.at, |settled| settled.at);
        let repeat = kept.as_ref().is_ok_and(|(_, repeat)| *repeat);
        let mut event = counted.settled(taken);
        if repeat {
            event.detail = Some(audit::with_repeat(event.detail));
        }
        guard.audit().record(AuditEvent { outcome: Outcome::Wrong, settled: Some(counts_from), ..event });
        let most = live.login.max_consecutive_failures;
        if consecutive.count(&counted.attempt.login, &lookup, most, repeat).await? {
            self.record_disabled(counted);
        }
        let (kept, _) = kept?;
        drop(lookup.permit);
        let everyone = counted.mode == CountingMode::Stranger
            && live.access.challenges_everyone(guard.audit().now()).is_some();
        let captcha_required = match kept.and_then(|settled| settled.states) {
            Some(states) if !everyone => {
                guard.challenges_next(&live.limits, counted.who(), counted.mode, &states).await
            }
            // Everybody is asked in an outage, too.
            _ => true,
        };
        Ok(SignInOutcome::Rejected { captcha_required })
    }

    /// With the account's own password if it is usable for this client, otherwise with a decoy.
    async fn compare(
        &self,
        counted: CountedSignIn<'_>,
        lookup: &LoginLookup,
        hung_up: HungUp,
    ) -> Result<Result<VerifyResult, HasherBusy>, DbError> {
        let SignInInner { consecutive, hasher, .. } = &*self.0;
        let hung_up = async { drop(hung_up.await) };
        let (login, password) = (&counted.attempt.login, &counted.attempt.password);
        let mut compared = hasher.verify(&counted.caller(), hung_up, password, lookup.compared(login)).await;
        if let Ok(VerifyResult { ok: ok @ true, .. }) = &mut compared {
            *ok = consecutive.confirm(lookup).await?;
        }
        Ok(compared)
    }

    /// Whether a browser with these devices may try an account's password at all: once it is disabled, only from a
    /// known device that is not spent. Only for somebody who is signed in to the account.
    pub async fn is_open_to(
        &self,
        live: &LiveSettings,
        account: &Account,
        devices: &KnownDevices,
    ) -> Result<bool, DbError> {
        if account.password_disabled_at.is_none() {
            return Ok(true);
        }
        let mode = CountingMode::of(GuardedLogin::Own, &live.limits, devices.at(account.id));
        match mode.known() {
            Some(device) if !mode.is_void(Some(account)) => {
                self.0.accounts.is_device_spent(device.account, device.id).await.map(|spent| !spent)
            }
            _ => Ok(false),
        }
    }

    /// The subject of the login. Not looked up if there is no room for a stranger, so that a flood does not
    /// reach the database.
    async fn subject(
        &self,
        stranger: CountedSignIn<'_>,
    ) -> Result<Result<AccountSubject, HasherBusy>, DbError> {
        let SignInInner { guard, hasher, .. } = &*self.0;
        let attempt = stranger.attempt;
        if let Some(subject) = guard.remembered(&attempt.login) {
            return Ok(Ok(subject));
        }
        if attempt.devices.is_empty()
            && let Err(busy) = hasher.has_room(&stranger.caller()).await
        {
            return Ok(Err(busy));
        }
        guard.subject(&attempt.login).await.map(Ok)
    }

    /// Remembers of an account that others know its password, which was right: it is a lost one, or is being tried at many
    /// names. Returns the account as it is then. If `[login]` asks for another password first, that is put in force where
    /// the session begins, after the second factor: whoever has the password alone must not keep its owner out.
    async fn note_breached(
        &self,
        live: &LiveSettings,
        counted: CountedSignIn<'_>,
        mut account: Account,
        (lost, sprayed): (bool, bool),
    ) -> Account {
        let SignInInner { guard, accounts, .. } = &*self.0;
        let may_be_new = (lost && !account.password_lost) || (sprayed && !account.password_breached);
        let is_new = match may_be_new {
            false => Ok(false),
            true => accounts.note_breached(&account, lost, sprayed).await,
        };
        // It is advice: the next sign-in finds it again.
        let is_new = is_new.inspect_err(|error| {
            tracing::warn!(%error, "it could not be noted that others know a password");
        });
        if is_new.unwrap_or(false) {
            let now = guard.audit().now();
            guard.audit().record(AuditEvent {
                account: Some(counted.subject.recorded(&counted.attempt.login)),
                address: Some(audit::EventSubject::Address(&counted.attempt.origin.address)),
                detail: (!lost).then(|| json!({ "sprayed": true }).to_string()),
                ..AuditEvent::new(now, Action::PasswordBreached, Outcome::Ok)
            });
        }
        account.password_breached |= lost || sprayed;
        account.password_lost |= lost;
        account.must_change_password |=
            account.password_lost && live.login.breached_then == BreachedAction::Change;
        account
    }

    /// Whether its password is being tried at many names, and a challenge comes before the hash. Known devices pass, and so
    /// does whoever has solved one.
    fn is_sprayed(&self, live: &LiveSettings, attempt: &SignInAttempt, mode: CountingMode) -> bool {
        let SignInInner { guard, sprays, .. } = &*self.0;
        mode.at_device().is_none()
            && !attempt.solved
            && sprays.challenges(&live.limits.login_guess, &attempt.password, guard.audit().now())
    }

    /// The client is asked as it is where there is no room: it does not learn why.
    fn record_sprayed(&self, counted: CountedSignIn<'_>) -> Denied {
        let (audit, limit) = (self.0.guard.audit(), LimitName::LoginGuess.as_str());
        let (outcome, why) = (Outcome::Challenged, Some(EventRule::by_nobody(limit)));
        audit.record(AuditEvent { outcome, why, ..counted.event(audit.now()) });
        Denied::no_room(false, BUSY_RETRY)
    }

    /// Only a password that was compared and is wrong comes here.
    fn note_wrong(&self, live: &LiveSettings, CountedSignIn { attempt, .. }: CountedSignIn<'_>) {
        let SignInInner { guard, sprays, .. } = &*self.0;
        let (audit, limit) = (guard.audit(), &live.limits.login_guess);
        let tried = (&attempt.login, &attempt.password);
        let Some(SprayNews { spray, others }) = sprays.note(limit, tried, &attempt.origin, audit.now())
        else {
            return;
        };
        let detail = json!({ "names": spray.names, "networks": spray.networks, "others": others });
        audit.record(AuditEvent {
            limit: Some(LimitName::LoginGuess.as_str()),
            detail: Some(detail.to_string()),
            ..AuditEvent::new(audit.now(), Action::Spray, Outcome::Began)
        });
    }

    /// Nothing was hashed: a client without a solved challenge is asked for one, so that a flood has to pay.
    fn record_busy(&self, counted: CountedSignIn<'_>, retry_after: Duration) -> Denied {
        let audit = self.0.guard.audit();
        audit.record(counted.event(audit.now()));
        Denied::no_room(counted.attempt.solved, retry_after)
    }

    fn record_disabled(&self, CountedSignIn { attempt, subject, mode }: CountedSignIn<'_>) {
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

impl CountedSignIn<'_> {
    /// The caller of the hash: its lane follows from how it is counted.
    fn caller(&self) -> HashCaller {
        HashCaller::of(&self.attempt.origin, self.attempt.solved, self.mode.known())
    }

    /// Where its guess comes from.
    fn source(&self, keys: &GuessKeys) -> GuessSource {
        match self.mode.at_device() {
            Some(device) => GuessSource::device(device.id.as_bytes(), keys),
            None => {
                let browser = self.attempt.browser.as_ref().map_or(&[][..], |browser| browser);
                GuessSource::client(&self.attempt.origin.address, browser, keys)
            }
        }
    }

    fn who(&self) -> GuardRequest<'_> {
        GuardRequest {
            guarded: GuardedLogin::Own,
            subject: self.subject,
            name: self.attempt.login.as_str(),
            origin: &self.attempt.origin,
            solved: self.attempt.solved,
            device_only: false,
            means: ClientCapabilities::BROWSER,
        }
    }

    /// The event if there is no room for it. What ended otherwise says so with `..`.
    fn event(&self, at: Micros) -> AuditEvent<'_> {
        let (name, detail) = from_device(self.mode.device());
        AuditEvent {
            account: Some(self.subject.recorded(&self.attempt.login)),
            address: Some(audit::EventSubject::Address(&self.attempt.origin.address)),
            network: Some(audit::EventSubject::Network(&self.attempt.origin.network)),
            solved: self.attempt.solved,
            name,
            detail,
            ..AuditEvent::new(at, Action::SignIn, Outcome::Busy)
        }
    }

    /// The event of an attempt that took a slot.
    fn settled(&self, CountedAttempt { at, noted }: CountedAttempt) -> AuditEvent<'_> {
        let limit = |refusal: &Refusal| self.mode.limits(GuardedLogin::Own)[refusal.bucket].as_str();
        let why = noted.map(|refusal| EventRule::noted(limit(&refusal), &refusal));
        AuditEvent { why, ..self.event(at) }
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

fn from_device(device: Option<&KnownDevice>) -> (Option<&'static str>, Option<String>) {
    let detail = device.map(|device| json!({ "device": device.id.to_string() }).to_string());
    (device.map(|_| audit::FROM_DEVICE), detail)
}
