//! The second step of a sign-in: a code of an authenticator app, a recovery code or a passkey; and a sign-in by a passkey
//! alone. A slot is taken before a code of an app is compared, as for a password; strangers have a budget for each
//! account, and each known device its own.

use std::future::Future;
use std::sync::Arc;

use metrics::Counter;
use serde_json::json;

use super::RequestOrigin;
use super::guard::{
    AccountSubject, AttemptSlot, BUSY_RETRY, ClientCapabilities, CountedAttempt, CountingMode,
    GuardAdmission, GuardRequest, GuardedLogin, LoginGuard,
};
use super::sign_in::sign_ins;
use crate::accounts::{
    Account, AccountId, ChallengePurpose, Factor, FactorProof, Factors, KnownDevice, KnownDevices,
    PasskeyRefusal, Passkeys, RecoveryCode, TotpCode, TotpResult,
};
use crate::audit::{self, Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::clock::Micros;
use crate::config::{LimitName, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::request_id;
use crate::webauthn::Assertion;

#[derive(Clone)]
pub struct FactorVerifier(Arc<FactorVerifierInner>);

struct FactorVerifierInner {
    guard: Arc<LoginGuard>,
    factors: Factors,
    passkeys: Passkeys,
}

/// A proof that somebody shows, after a right first factor or in a session.
#[derive(Clone)]
pub struct FactorRequest {
    pub account: Account,
    pub guess: FactorGuess,
    /// The random name of the browser.
    pub browser: Option<[u8; 16]>,
    pub origin: RequestOrigin,
    pub devices: KnownDevices,
    /// A CAPTCHA was solved with it.
    pub solved: bool,
}

#[derive(Debug, Clone)]
pub enum FactorGuess {
    Totp(TotpCode),
    Recovery(RecoveryCode),
    /// The answer to a challenge for this.
    Passkey(Box<Assertion>, ChallengePurpose),
}

#[derive(Debug)]
pub enum FactorOutcome {
    Proved(FactorProof),
    /// Wrong, or used before.
    Wrong,
    /// The account's app is not asked from here: there were too many wrong codes, or it has none.
    Closed,
    Denied(Denied),
}

/// A sign-in by a passkey alone.
#[derive(Debug)]
pub enum PasskeyOutcome {
    SignedIn(Box<Account>, FactorProof),
    /// It is wrong, or nobody has that passkey, or its account is disabled.
    Wrong,
    Denied(Denied),
}

impl FactorGuess {
    const fn factor(&self) -> Factor {
        match self {
            Self::Totp(_) => Factor::Totp,
            Self::Recovery(_) => Factor::Recovery,
            Self::Passkey(..) => Factor::Passkey,
        }
    }

    /// Six digits are of an app, everything else is a recovery code.
    pub fn parse(text: &str) -> Option<Self> {
        let totp = TotpCode::parse(text).map(Self::Totp);
        totp.or_else(|| RecoveryCode::parse(text).map(Self::Recovery))
    }
}

impl FactorVerifier {
    pub fn new(guard: Arc<LoginGuard>, factors: Factors, passkeys: Passkeys) -> Self {
        // They are there from the start.
        for outcome in ["proved", "wrong", "refused"] {
            second_steps(outcome).increment(0);
        }
        Self(Arc::new(FactorVerifierInner { guard, factors, passkeys }))
    }

    pub fn factors(&self) -> &Factors {
        &self.0.factors
    }

    pub fn passkeys(&self) -> &Passkeys {
        &self.0.passkeys
    }

    pub async fn check(
        &self,
        live: &Arc<LiveSettings>,
        request: FactorRequest,
    ) -> Result<FactorOutcome, DbError> {
        let account = request.account.id;
        let known = AccountSubject::of(Some(&request.account)).known_device(&request.devices);
        let outcome = match &request.guess {
            FactorGuess::Totp(_) => self.check_totp(live, request).await?,
            FactorGuess::Recovery(_) | FactorGuess::Passkey(..) => {
                match self.slot_of_device(live, known, &request.account, &request.origin).await {
                    Some(slot) => {
                        // A client that hangs up now must not leave the slot unsettled.
                        let service = self.clone();
                        let checked =
                            request_id::spawn(async move { service.check_from_device(&request, slot).await });
                        checked.await.expect("checking does not panic")?
                    }
                    None => self.check_at_address(live, &request).await?,
                }
            }
        };
        second_steps(match &outcome {
            FactorOutcome::Proved(_) => "proved",
            FactorOutcome::Wrong => "wrong",
            FactorOutcome::Closed | FactorOutcome::Denied(_) => "refused",
        })
        .increment(1);
        if let (FactorOutcome::Proved(proof), Some(device)) = (&outcome, known) {
            self.0.factors.note_device(account, device.id, proof).await?;
        }
        Ok(outcome)
    }

    async fn check_totp(
        &self,
        live: &Arc<LiveSettings>,
        request: FactorRequest,
    ) -> Result<FactorOutcome, DbError> {
        let guard = &self.0.guard;
        let device = match AccountSubject::of(Some(&request.account)).known_device(&request.devices) {
            Some(device) if self.0.factors.has_proved(request.account.id, device.id).await? => Some(device),
            _ => None,
        };
        let mode = CountingMode::of(GuardedLogin::Factor, &live.limits, device);
        let asked = asking(&request.account, &request.origin);
        let slot = match guard.admit(&live.limits, asked, mode).await {
            GuardAdmission::Held(slot) => slot,
            GuardAdmission::Refused { limit, refusal, .. } => {
                guard.record_refused(request.event(guard, mode.device()), limit, &refusal);
                return Ok(FactorOutcome::Denied(Denied::by(limit, &refusal)));
            }
            GuardAdmission::Busy => {
                return Ok(FactorOutcome::Denied(Denied::Busy { retry_after: BUSY_RETRY }));
            }
        };
        // A client that hangs up now must not leave the slot unsettled, so this runs to its end on its own task.
        let service = self.clone();
        let compared = request_id::spawn(async move { service.compare(request, slot).await });
        compared.await.expect("comparing does not panic")
    }

    async fn compare(&self, request: FactorRequest, slot: AttemptSlot) -> Result<FactorOutcome, DbError> {
        let FactorVerifierInner { guard, factors, .. } = &*self.0;
        let FactorGuess::Totp(code) = &request.guess else { return Ok(FactorOutcome::Wrong) };
        let (taken, mode) = (slot.taken(), slot.mode());
        let stranger = mode.known().is_none();
        let compared = match factors.check_totp(request.account.id, code, stranger).await {
            Ok(compared) => compared,
            Err(error) => {
                slot.refund().await;
                return Err(error);
            }
        };
        match compared {
            TotpResult::Right(proof) => {
                slot.succeed().await;
                return Ok(FactorOutcome::Proved(proof));
            }
            TotpResult::Closed => {
                slot.refund().await;
                return Ok(FactorOutcome::Closed);
            }
            TotpResult::Wrong | TotpResult::WrongAndDisabled => {}
        }
        let kept = slot.keep(None).await;
        let settled = Some(kept.as_ref().ok().and_then(|(at, _)| *at).unwrap_or(taken.at));
        let limit = |rule: usize| mode.limits(GuardedLogin::Factor)[rule].as_str();
        let why = taken.noted.map(|refusal| EventRule::noted(limit(refusal.bucket), &refusal));
        let wrong = AuditEvent {
            at: taken.at,
            settled,
            why,
            outcome: Outcome::Wrong,
            ..request.event(guard, mode.device())
        };
        guard.audit().record(wrong);
        if compared == TotpResult::WrongAndDisabled {
            let action = Action::TotpDisabled;
            guard.audit().record(AuditEvent {
                action,
                outcome: Outcome::Ok,
                ..request.event(guard, mode.device())
            });
        }
        kept?;
        Ok(FactorOutcome::Wrong)
    }

    /// A slot of the account's own known device, whatever strangers did at its address: what is wrong counts at the device.
    /// Returns None if it has none left, and is a stranger, or if nothing bounds the guesses of a device.
    async fn slot_of_device(
        &self,
        live: &LiveSettings,
        known: Option<KnownDevice>,
        account: &Account,
        origin: &RequestOrigin,
    ) -> Option<AttemptSlot> {
        let mode = CountingMode::of(GuardedLogin::Factor, &live.limits, known);
        mode.device()?;
        match self.0.guard.admit(&live.limits, asking(account, origin), mode).await {
            GuardAdmission::Held(slot) => Some(slot),
            GuardAdmission::Refused { .. } | GuardAdmission::Busy => None,
        }
    }

    /// What a slot of a device counts of a check: what is wrong, and from when.
    async fn settle_from_device<T, E>(
        slot: AttemptSlot,
        checked: Result<Result<T, E>, DbError>,
    ) -> Result<Result<T, (CountedAttempt, E)>, DbError> {
        let taken = slot.taken();
        match checked {
            Ok(Ok(right)) => {
                slot.succeed().await;
                Ok(Ok(right))
            }
            Ok(Err(wrong)) => {
                let at = slot.keep(None).await?.0.unwrap_or(taken.at);
                Ok(Err((CountedAttempt { at, ..taken }, wrong)))
            }
            Err(error) => {
                slot.refund().await;
                Err(error)
            }
        }
    }

    async fn check_from_device(
        &self,
        request: &FactorRequest,
        slot: AttemptSlot,
    ) -> Result<FactorOutcome, DbError> {
        let (guard, mode) = (&self.0.guard, slot.mode());
        let event = request.event(guard, mode.device());
        match Self::settle_from_device(slot, self.compare_unguessable(request).await).await? {
            Ok(proof) => Ok(self.proved(proof, event)),
            Err((CountedAttempt { at, .. }, why)) => {
                let (outcome, settled) = (Outcome::Wrong, Some(at));
                let detail = both(event.detail.clone(), why);
                guard.audit().record(AuditEvent { outcome, at, settled, detail, ..event });
                Ok(FactorOutcome::Wrong)
            }
        }
    }

    /// A recovery code or a passkey: what it proves, or what else is recorded of a wrong one.
    async fn compare_unguessable(
        &self,
        request: &FactorRequest,
    ) -> Result<Result<FactorProof, Option<String>>, DbError> {
        let (account, browser) = (request.account.id, request.browser.as_ref());
        match &request.guess {
            FactorGuess::Totp(_) => Ok(Err(None)),
            FactorGuess::Recovery(code) => {
                Ok(self.0.factors.spend_recovery_code(account, code).await?.ok_or(None))
            }
            FactorGuess::Passkey(shown, purpose) => {
                let accepted = Box::pin(self.0.passkeys.accept(shown, *purpose, browser, Some(account)));
                Ok(accepted.await?.map(|(_, proof)| proof).map_err(|why| why.detail()))
            }
        }
    }

    fn proved(&self, proof: FactorProof, event: AuditEvent<'_>) -> FactorOutcome {
        // Each of these codes works once.
        if proof.factor == Factor::Recovery {
            let (action, outcome) = (Action::FactorRemoved, Outcome::Ok);
            self.0.guard.audit().record(AuditEvent { action, outcome, ..event });
        }
        FactorOutcome::Proved(proof)
    }

    async fn check_at_address(
        &self,
        live: &Arc<LiveSettings>,
        request: &FactorRequest,
    ) -> Result<FactorOutcome, DbError> {
        let guard = &self.0.guard;
        let event = request.event(guard, None);
        let check = self.compare_unguessable(request);
        match self.count_at_address(live, &request.origin, &event, check).await? {
            Ok(proof) => Ok(self.proved(proof, event)),
            Err(Refused::Wrong(at, detail)) => {
                guard.audit().record(AuditEvent { outcome: Outcome::Wrong, at, detail, ..event });
                Ok(FactorOutcome::Wrong)
            }
            Err(Refused::Denied(denied)) => Ok(FactorOutcome::Denied(denied)),
        }
    }

    /// The known device of the account whose passkey an answer says that it is, and the account's name. Nothing tells whether
    /// that is true: who says so spends what their own device has, and only that account's passkeys are then right.
    async fn named_device(
        &self,
        shown: &Assertion,
        devices: &KnownDevices,
    ) -> Result<Option<(KnownDevice, Account)>, DbError> {
        let handle = shown.response.user_handle.as_ref();
        let named = handle.and_then(|handle| <[u8; 16]>::try_from(&handle.0[..]).ok()).map(AccountId::from);
        // Asked only of who shows a cookie for it, so that strangers cost nothing.
        let Some(named) = named.filter(|named| devices.at(*named).is_some()) else { return Ok(None) };
        let Some(account) = self.0.guard.account(named).await? else { return Ok(None) };
        let known = AccountSubject::of(Some(&account)).known_device(devices);
        Ok(known.map(|known| (known, account)))
    }

    /// Signs in whoever has the passkey. A wrong answer is recorded at an account only if its signature is right: anybody
    /// can name a passkey.
    pub async fn sign_in(
        &self,
        live: &Arc<LiveSettings>,
        shown: &Assertion,
        browser: Option<&[u8; 16]>,
        (origin, devices): (&RequestOrigin, &KnownDevices),
        solved: bool,
    ) -> Result<PasskeyOutcome, DbError> {
        let FactorVerifierInner { guard, passkeys, .. } = &*self.0;
        let event = AuditEvent {
            name: Some(Factor::Passkey.into()),
            solved,
            address: Some(EventSubject::Address(&origin.address)),
            network: Some(EventSubject::Network(&origin.network)),
            ..AuditEvent::new(guard.audit().now(), Action::FactorFailed, Outcome::Busy)
        };
        let named = self.named_device(shown, devices).await?;
        let slot = match &named {
            Some((device, account)) => self.slot_of_device(live, Some(*device), account, origin).await,
            None => None,
        };
        let (checked, event) = match slot {
            Some(slot) => {
                let detail = slot.mode().device().map(of_device);
                let accepted =
                    self.accept_from_device(slot, shown, browser, named.map(|(_, account)| account.id));
                (accepted.await?, AuditEvent { detail, ..event })
            }
            None => {
                let check = Box::pin(passkeys.accept(shown, ChallengePurpose::SignIn, browser, None));
                (self.count_at_address(live, origin, &event, check).await?, event)
            }
        };
        let (outcome, label) = match checked {
            Ok((account, proof)) => {
                let (action, outcome) = (Action::SignIn, Outcome::Ok);
                let account_key = Some(account.recorded());
                guard.audit().record(AuditEvent {
                    action,
                    outcome,
                    account: account_key,
                    detail: None,
                    ..event
                });
                (PasskeyOutcome::SignedIn(Box::new(account), proof), "signed-in")
            }
            Err(Refused::Wrong(at, why)) => {
                let (outcome, account) = (Outcome::Wrong, why.account().map(Account::recorded));
                let (settled, detail) =
                    (event.detail.is_some().then_some(at), both(event.detail.clone(), why.detail()));
                guard.audit().record(AuditEvent { at, settled, outcome, account, detail, ..event });
                (PasskeyOutcome::Wrong, "rejected")
            }
            Err(Refused::Denied(denied)) => {
                let challenged = matches!(denied, Denied::Challenged { .. });
                (PasskeyOutcome::Denied(denied), if challenged { "challenged" } else { "throttled" })
            }
        };
        sign_ins(label).increment(1);
        Ok(outcome)
    }

    /// On its own task: a client that hangs up now must not leave the slot unsettled.
    async fn accept_from_device(
        &self,
        slot: AttemptSlot,
        shown: &Assertion,
        browser: Option<&[u8; 16]>,
        whose: Option<AccountId>,
    ) -> Result<Result<(Account, FactorProof), Refused<PasskeyRefusal>>, DbError> {
        let (service, shown, browser) = (self.clone(), shown.clone(), browser.copied());
        let settled = request_id::spawn(async move {
            let passkeys = &service.0.passkeys;
            let checked = passkeys.accept(&shown, ChallengePurpose::SignIn, browser.as_ref(), whose).await;
            Self::settle_from_device(slot, checked).await
        });
        let settled = settled.await.expect("checking does not panic")?;
        Ok(settled.map_err(|(counted, why)| Refused::Wrong(counted.at, why)))
    }

    /// Recovery codes have 80 bits and passkeys more: guesses of strangers count for their address and its network, as wrong
    /// passwords do, and not for the account, so that whoever knows the password cannot keep the owner from them. What is
    /// right is given back.
    async fn count_at_address<T, E>(
        &self,
        live: &Arc<LiveSettings>,
        origin: &RequestOrigin,
        event: &AuditEvent<'_>,
        check: impl Future<Output = Result<Result<T, E>, DbError>>,
    ) -> Result<Result<T, Refused<E>>, DbError> {
        let guard = &self.0.guard;
        let limits = &live.limits;
        let counting = [(&limits.login_address, &*origin.address), (&limits.login_network, &*origin.network)];
        let (counted, hit) = match guard.count_at(&counting, event.solved).await {
            Ok(counted) => counted,
            Err(refusal) => {
                let limit = [LimitName::LoginAddress, LimitName::LoginNetwork][refusal.bucket].as_str();
                guard.record_refused(event.clone(), limit, &refusal);
                return Ok(Err(Refused::Denied(Denied::by(limit, &refusal))));
            }
        };
        let checked = check.await;
        if !matches!(checked, Ok(Err(_))) {
            guard.uncount_at(&counting, hit).await;
        }
        Ok(checked?.map_err(|wrong| Refused::Wrong(counted.at, wrong)))
    }
}

/// Why what was shown proves nothing.
enum Refused<E> {
    /// From when it counts, and why.
    Wrong(Micros, E),
    Denied(Denied),
}

impl FactorRequest {
    /// `device`: the known device whose limit counted it.
    fn event(&self, guard: &LoginGuard, device: Option<&KnownDevice>) -> AuditEvent<'_> {
        AuditEvent {
            name: Some(self.guess.factor().into()),
            detail: device.map(of_device),
            solved: self.solved,
            account: Some(self.account.recorded()),
            address: Some(EventSubject::Address(&self.origin.address)),
            network: Some(EventSubject::Network(&self.origin.network)),
            ..AuditEvent::new(guard.audit().now(), Action::FactorFailed, Outcome::Busy)
        }
    }
}

/// A second step is shown no challenge.
fn asking<'a>(account: &'a Account, origin: &'a RequestOrigin) -> GuardRequest<'a> {
    GuardRequest {
        guarded: GuardedLogin::Factor,
        subject: AccountSubject::of(Some(account)),
        name: account.login.as_str(),
        origin,
        solved: false,
        device_only: true,
        means: ClientCapabilities { challenges: false, ..ClientCapabilities::BROWSER },
    }
}

fn of_device(device: &KnownDevice) -> String {
    json!({ (audit::DEVICE): device.id.to_string() }).to_string()
}

/// The fields of both.
fn both(device: Option<String>, why: Option<String>) -> Option<String> {
    match (device, why) {
        (Some(device), Some(why)) => Some(format!("{},{}", device.trim_end_matches('}'), &why[1..])),
        (device, why) => device.or(why),
    }
}

/// Second steps, by how they ended.
fn second_steps(outcome: &'static str) -> Counter {
    metrics::counter!("gatehouse_second_steps_total", "outcome" => outcome)
}
