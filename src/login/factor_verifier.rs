//! The second step of a sign-in: a code of an authenticator app, or a recovery code. A slot is taken before a code of an
//! app is compared, as for a password; strangers have a budget for each account, and each known device its own.

use std::sync::Arc;

use metrics::Counter;
use serde_json::json;

use super::RequestOrigin;
use super::guard::{
    AccountSubject, AttemptSlot, BUSY_RETRY, ClientCapabilities, CountingMode, GuardAdmission, GuardRequest,
    GuardedLogin, LoginGuard,
};
use crate::accounts::{
    Account, Factor, Factors, KnownDevice, KnownDevices, RecoveryCode, TotpCode, TotpResult,
};
use crate::audit::{self, Action, AuditEvent, EventRule, EventSubject, Outcome};
use crate::config::{LimitName, LiveSettings};
use crate::db::DbError;
use crate::denied::Denied;
use crate::request_id;

#[derive(Clone)]
pub struct FactorVerifier(Arc<FactorVerifierInner>);

struct FactorVerifierInner {
    guard: Arc<LoginGuard>,
    factors: Factors,
}

/// Who proves what, after a right first factor or in a session.
#[derive(Clone)]
pub struct FactorRequest {
    pub account: Account,
    pub guess: FactorGuess,
    pub origin: RequestOrigin,
    pub devices: KnownDevices,
    /// A CAPTCHA was solved with it.
    pub solved: bool,
}

#[derive(Debug, Clone)]
pub enum FactorGuess {
    Totp(TotpCode),
    Recovery(RecoveryCode),
}

#[derive(Debug)]
pub enum FactorOutcome {
    Proved(Factor),
    /// Wrong, or used before.
    Wrong,
    /// The account's app is not asked from here: there were too many wrong codes, or it has none.
    Closed,
    Denied(Denied),
}

impl FactorGuess {
    const fn factor(&self) -> Factor {
        match self {
            Self::Totp(_) => Factor::Totp,
            Self::Recovery(_) => Factor::Recovery,
        }
    }

    /// Six digits are of an app, everything else is a recovery code.
    pub fn parse(text: &str) -> Option<Self> {
        let totp = TotpCode::parse(text).map(Self::Totp);
        totp.or_else(|| RecoveryCode::parse(text).map(Self::Recovery))
    }
}

impl FactorVerifier {
    pub fn new(guard: Arc<LoginGuard>, factors: Factors) -> Self {
        // They are there from the start.
        for outcome in ["proved", "wrong", "refused"] {
            second_steps(outcome).increment(0);
        }
        Self(Arc::new(FactorVerifierInner { guard, factors }))
    }

    pub fn factors(&self) -> &Factors {
        &self.0.factors
    }

    pub async fn check(
        &self,
        live: &Arc<LiveSettings>,
        request: FactorRequest,
    ) -> Result<FactorOutcome, DbError> {
        let outcome = match &request.guess {
            FactorGuess::Totp(_) => self.check_totp(live, request).await?,
            FactorGuess::Recovery(_) => self.check_recovery(live, request).await?,
        };
        second_steps(match &outcome {
            FactorOutcome::Proved(_) => "proved",
            FactorOutcome::Wrong => "wrong",
            FactorOutcome::Closed | FactorOutcome::Denied(_) => "refused",
        })
        .increment(1);
        Ok(outcome)
    }

    async fn check_totp(
        &self,
        live: &Arc<LiveSettings>,
        request: FactorRequest,
    ) -> Result<FactorOutcome, DbError> {
        let guard = &self.0.guard;
        let subject = AccountSubject::of(Some(&request.account));
        let device = subject.known_device(&request.devices);
        let mode = CountingMode::of(GuardedLogin::Factor, &live.limits, device);
        let who = GuardRequest {
            guarded: GuardedLogin::Factor,
            subject,
            name: request.account.login.as_str(),
            origin: &request.origin,
            solved: false,
            device_only: true,
            means: ClientCapabilities { challenges: false, ..ClientCapabilities::BROWSER },
        };
        let slot = match guard.admit(&live.limits, who, mode).await {
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
        let FactorVerifierInner { guard, factors } = &*self.0;
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
            TotpResult::Right => {
                slot.succeed().await;
                return Ok(FactorOutcome::Proved(Factor::Totp));
            }
            TotpResult::Closed => {
                slot.refund().await;
                return Ok(FactorOutcome::Closed);
            }
            TotpResult::Wrong | TotpResult::WrongAndDisabled => {}
        }
        let kept = slot.keep().await;
        let settled = Some(kept.as_ref().ok().copied().flatten().unwrap_or(taken.at));
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

    /// A recovery code has 80 bits: guesses count for their address alone, so that whoever knows the password cannot
    /// keep the owner from them.
    async fn check_recovery(
        &self,
        live: &Arc<LiveSettings>,
        request: FactorRequest,
    ) -> Result<FactorOutcome, DbError> {
        let FactorVerifierInner { guard, factors } = &*self.0;
        let FactorGuess::Recovery(code) = &request.guess else { return Ok(FactorOutcome::Wrong) };
        let (limit, address) = (&live.limits.login_address, &request.origin.address);
        let (counted, hit) = match guard.count_address(limit, address, request.solved).await {
            Ok(counted) => counted,
            Err(refusal) => {
                let limit = LimitName::LoginAddress.as_str();
                guard.record_refused(request.event(guard, None), limit, &refusal);
                return Ok(FactorOutcome::Denied(Denied::by(limit, &refusal)));
            }
        };
        let spent = factors.spend_recovery_code(request.account.id, code).await;
        if !matches!(spent, Ok(false)) {
            guard.uncount_address(limit, address, hit).await;
        }
        if spent? {
            let (action, outcome) = (Action::FactorRemoved, Outcome::Ok);
            guard.audit().record(AuditEvent { action, outcome, ..request.event(guard, None) });
            return Ok(FactorOutcome::Proved(Factor::Recovery));
        }
        guard.audit().record(AuditEvent {
            at: counted.at,
            outcome: Outcome::Wrong,
            ..request.event(guard, None)
        });
        Ok(FactorOutcome::Wrong)
    }
}

impl FactorRequest {
    /// `device`: the known device whose limit counted it.
    fn event(&self, guard: &LoginGuard, device: Option<&KnownDevice>) -> AuditEvent<'_> {
        AuditEvent {
            name: Some(self.guess.factor().into()),
            detail: device.map(|device| json!({ (audit::DEVICE): device.id.to_string() }).to_string()),
            solved: self.solved,
            account: Some(self.account.recorded()),
            address: Some(EventSubject::Address(&self.origin.address)),
            network: Some(EventSubject::Network(&self.origin.network)),
            ..AuditEvent::new(guard.audit().now(), Action::FactorFailed, Outcome::Busy)
        }
    }
}

/// Second steps, by how they ended.
fn second_steps(outcome: &'static str) -> Counter {
    metrics::counter!("gatehouse_second_steps_total", "outcome" => outcome)
}
