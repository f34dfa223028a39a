//! The services that the handlers call, created once by the composition root.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use utoipa::ToSchema;

use crate::accounts::{
    Accounts, ApiTokens, Emails, Grants, HalfSignIns, Invitations, Profiles, Sessions, SubmittedForms,
};
use crate::audit::{AttackWatch, Audit};
use crate::captcha::CaptchaService;
use crate::codes::CodeService;
use crate::config::{LiveHandle, Server};
use crate::custom::{CustomLimits, TokenGate};
use crate::gate::Gate;
use crate::login::{
    AuthPolicy, ByCode, FactorVerifier, GuardedAttempts, PasswordHasher, Registration, SignInService,
};
use crate::lookup::Lookup;
use crate::oidc::{ClientSecrets, RefusedRequests, TokenKeys, WrongCalls};
use crate::sms::Outbox;
use crate::tuning::Tuning;
use crate::web::http::client::TrustedProxies;
use crate::webhooks::SignedHooks;

pub struct Services {
    pub live: LiveHandle,
    pub tuning: Tuning,
    pub audit: Audit,
    pub attacks: AttackWatch,
    pub sign_in: SignInService,
    pub attempts: GuardedAttempts,
    /// Attempts, as a policy server of mail servers.
    pub policy: AuthPolicy,
    pub registration: Registration,
    pub by_code: ByCode,
    pub codes: CodeService,
    /// The messages of the development gateway, kept on this machine.
    pub outbox: Option<Outbox>,
    pub public_url: String,
    pub server: Server,
    pub accounts: Accounts,
    pub emails: Emails,
    pub sessions: Sessions,
    pub half_sign_ins: HalfSignIns,
    pub factor_verifier: FactorVerifier,
    pub profiles: Profiles,
    pub invitations: Invitations,
    pub gate: Gate,
    /// Sign tokens for applications.
    pub token_keys: TokenKeys,
    pub grants: Grants,
    /// The secrets that are kept for clients.
    pub client_secrets: ClientSecrets,
    pub refused_requests: RefusedRequests,
    pub wrong_calls: WrongCalls,
    pub forms: SubmittedForms,
    pub tokens: ApiTokens,
    pub token_gate: TokenGate,
    pub custom: CustomLimits,
    /// Recognises the calls of identity providers that sign them.
    pub hooks: SignedHooks,
    pub lookup: Lookup,
    /// The longest lifetime of a session, for its cookie.
    pub session_lasts: Duration,
    pub captchas: CaptchaService,
    pub hasher: PasswordHasher,
    pub health: Arc<dyn Health>,
    pub metrics: PrometheusHandle,
    pub metrics_from: TrustedProxies,
}

pub type ServicesData = Data<Services>;

/// The state of what this instance depends on.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Readiness, example = json!({
    "database": "up", "store": "up", "limits": { "version": 1, "refused": false }
}))]
pub struct Report {
    /// It answers, and accepts writes. Without it nothing works: 503.
    pub database: State,
    /// Without it, sign-ins continue with a CAPTCHA for everyone, and the database limits the wrong passwords for each
    /// account: 200.
    pub store: State,
    /// By which policy Redis forgets what is counted when its memory is full, if it does. It is used only with
    /// `store.allow_eviction`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<String>,
    /// Seconds by which the clock of Redis is ahead of the database's, if Redis has lost what it counted and that keeps it
    /// from being rebuilt. Meanwhile it counts as down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_clock_ahead: Option<u64>,
    /// Hits are counted in this process alone.
    #[serde(skip)]
    pub counts_alone: bool,
    pub limits: Limits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ServiceState)]
pub enum State {
    Up,
    Down,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = ReadinessLimits)]
pub struct Limits {
    /// One more with each change that was applied.
    #[schema(minimum = 1)]
    pub version: u64,
    /// Whether the last change was refused; the log says why.
    pub refused: bool,
    /// Whether the service that keeps the limits answers. While it does not, its last answer is in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<State>,
}

/// Looks at the dependencies. Each look waits at most a second.
pub trait Health: Send + Sync {
    fn report(&self) -> Pin<Box<dyn Future<Output = Report> + Send + '_>>;
}
