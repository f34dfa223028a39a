//! The parts of a server, each built on the base and on the parts that it needs, in the order of the start.

use std::sync::Arc;

use gatehouse_limiter::{MemoryStore, RedisLink};
use metrics_exporter_prometheus::PrometheusHandle;

use super::{AppParts, REDIS_PREFIX, StartError, TimeAndEntropy, instance_name, open_key, open_store};
use crate::accounts::{
    Accounts, ApiTokens, AppSessions, Emails, Factors, Grants, HalfSignIns, Invitations, Passkeys, Profiles,
    Sessions, SubmittedForms,
};
use crate::audit::{AttackWatch, Audit};
use crate::captcha::{CaptchaService, RedisMarks};
use crate::codes::{CodeService, CodesDeps};
use crate::config::{LiveHandle, Settings};
use crate::custom::{CustomLimits, TokenGate};
use crate::db::{CountedBefore, Db};
use crate::foundation::Foundation;
use crate::gate::Gate;
use crate::login::{
    AuthPolicy, BreachedList, ByCode, FactorVerifier, FailureRecord, GuardedAttempts, LoginGuard,
    PasswordHasher, Registration, SignInService,
};
use crate::lookup::{Lookup, LookupParts};
use crate::mail::{MailQueue, MailSeal, MailTransport, Mailer};
use crate::oidc::{ClientSecrets, LogoutNotices, RefusedRequests, TokenKeys, WrongCalls};
use crate::sms::gateway::{self, GatewayDeps};
use crate::sms::{Gateways, Outbox};
use crate::throttle::Limiter;
use crate::tuning::Tuning;
use crate::web::http::{Services, TrustedProxies, WebContext};
use crate::webhooks::{NoticeSources, SignedHooks, Webhooks};

/// What every part is built on: the database, the key, the record of events and the window store.
pub(super) struct Base {
    pub settings: Settings,
    live: LiveHandle,
    foundation: Foundation,
    /// What was counted under a key that was given up.
    given_up: CountedBefore,
    audit: Audit,
    /// Windows in the store that every instance shares.
    limiter: Limiter,
    /// This process's windows, used while the store is out.
    local_fallback: gatehouse_limiter::Limiter<MemoryStore>,
    link: Option<RedisLink>,
}

impl Base {
    pub async fn open(
        settings: Settings,
        live: LiveHandle,
        world: TimeAndEntropy,
    ) -> Result<Self, StartError> {
        let TimeAndEntropy { clock, entropy } = world;
        let db = Db::connect(&super::database_url(&settings.database.url)).await?;
        let (secrets, given_up) = open_key(&settings, &db, &entropy).await?;
        let foundation = Foundation { db, clock, entropy, secrets };
        let audit = Audit::new(&foundation, settings.audit.clone());
        let (store, link) = open_store(&settings.store, &foundation.clock).await?;
        let subjects = foundation.secrets.derive("throttle.subject");
        let limiter = Limiter::new(store, subjects, &foundation.entropy);
        let local_fallback = in_process(&foundation);
        Ok(Self { settings, live, foundation, given_up, audit, limiter, local_fallback, link })
    }

    /// Where instances share what no limit counts, and how keys begin there.
    fn shared(&self) -> Option<(RedisLink, String)> {
        self.link.clone().map(|link| (link, REDIS_PREFIX.to_owned()))
    }

    fn public_url(&self) -> String {
        self.settings.server.public_url.as_str().trim_end_matches('/').to_owned()
    }

    /// `issuing` is what limits the challenges that are drawn.
    fn captchas(&self, issuing: gatehouse_limiter::Limiter<MemoryStore>) -> CaptchaService {
        let Foundation { clock, entropy, secrets, .. } = &self.foundation;
        let (provider, proving) = (self.settings.captcha.provider.clone(), in_process(&self.foundation));
        let captchas = CaptchaService::new(secrets, provider, clock.clone(), entropy, issuing, proving);
        match &self.link {
            Some(link) => captchas.with_shared_marks(Arc::new(RedisMarks::new(link.clone(), REDIS_PREFIX))),
            None => captchas,
        }
    }

    async fn factor_verifier(&self, guard: &Arc<LoginGuard>) -> FactorVerifier {
        let Self { settings, foundation, .. } = self;
        let (factors, site) = (Factors::new(foundation), settings.passkeys.site(&settings.server.public_url));
        let passkeys = Passkeys::new(foundation, site, factors.clone());
        warn_of_foreign(&passkeys).await;
        FactorVerifier::new(Arc::clone(guard), factors, passkeys)
    }

    async fn token_keys(&self) -> TokenKeys {
        let live = Some(self.live.clone());
        let keys = TokenKeys::new(&self.foundation, self.audit.clone(), (self.settings.oidc, live));
        // What cannot be read now is read as soon as the database answers.
        let _ = keys.load().await;
        if self.live.snapshot().apps.all().iter().any(|app| app.oidc.is_some()) {
            keys.want();
        }
        keys
    }

    fn gateways(&self) -> Result<(Gateways, Option<Outbox>), gateway::OpenError> {
        let Self { settings, foundation, .. } = self;
        let deps = GatewayDeps {
            master: &foundation.secrets,
            public_url: &settings.server.public_url,
            timeout: settings.sms.timeout,
            clock: foundation.clock.clone(),
            entropy: foundation.entropy.clone(),
        };
        Gateways::open(&settings.sms.gateways, &deps)
    }

    fn mailer(&self) -> Result<Mailer, StartError> {
        let Self { settings, foundation, .. } = self;
        Ok(Mailer {
            queue: MailQueue::new(foundation.db.clone(), foundation.clock.clone()),
            seal: MailSeal::new(&foundation.secrets),
            transport: MailTransport::open(
                &settings.mail,
                (&settings.server, &settings.sms),
                &foundation.clock,
            )?,
            public_url: self.public_url(),
        })
    }

    async fn codes(&self, (gateways, mailer): (Gateways, Mailer), accounts: &Accounts) -> CodeService {
        let relays = self.settings.relay.iter();
        let deps = CodesDeps {
            limiter: self.limiter.clone(),
            gateways,
            owners: Arc::new(Emails::new(&self.foundation, accounts.clone())),
            audit: self.audit.clone(),
            site: self.settings.server.domain(),
            given_up: self.given_up,
            programs: self.settings.verify.clone(),
            relays: relays.map(|(name, relay)| (name.clone(), relay.text.clone())).collect(),
            mailer,
        };
        let codes = CodeService::new(&self.foundation, deps);
        // If it fails, the first request for a code tries again.
        let _ = codes.rebuild_windows(&self.live.snapshot()).await;
        codes.watch_costs(&self.live.snapshot()).await;
        codes
    }

    pub fn web_context(&self, services: &Services) -> WebContext {
        let (server, Foundation { clock, entropy, secrets, .. }) = (&self.settings.server, &self.foundation);
        let trusted = TrustedProxies::new(server.trusted_proxies.iter().copied())
            .with_nat64(server.nat64.iter().copied());
        WebContext {
            sends_codes: self.settings.sms.sends(),
            sends_mail: self.settings.mail.sends(server, &self.settings.sms),
            passkeys: services.factor_verifier.passkeys().site().is_some(),
            outbox: services.outbox.as_ref().map(|_| server.bind),
            alarm: services.attacks.alarm(),
            ..WebContext::new(&server.public_url, trusted, secrets, clock.clone(), entropy.clone())
        }
    }
}

/// Windows that this process counts for itself.
fn in_process(foundation: &Foundation) -> gatehouse_limiter::Limiter<MemoryStore> {
    let Foundation { clock, entropy, secrets, .. } = foundation;
    let store = MemoryStore::new(clock.clone());
    gatehouse_limiter::Limiter::new(store, secrets.derive("throttle.subject"), entropy)
}

/// Passkeys work at the domain that they were made for, and at no other.
async fn warn_of_foreign(passkeys: &Passkeys) {
    let Ok(count @ 1..) = passkeys.count_foreign().await else { return };
    let rp_id = passkeys.site().map_or("none", |site| &site.id);
    tracing::warn!(
        count,
        rp_id,
        "passkeys.rp_id: some passkeys are for another domain, and do not work here"
    );
}

/// The parts that several others need.
pub(super) struct SharedParts {
    accounts: Accounts,
    hasher: PasswordHasher,
    failures: Arc<FailureRecord>,
    guard: Arc<LoginGuard>,
    /// Limits on the challenges that this process draws.
    issuing: gatehouse_limiter::Limiter<MemoryStore>,
    attempts: GuardedAttempts,
    factor_verifier: FactorVerifier,
    token_keys: TokenKeys,
    codes: CodeService,
    outbox: Option<Outbox>,
    tuning: Tuning,
}

impl SharedParts {
    pub async fn open(base: &Base) -> Result<Self, StartError> {
        let Base { settings, live, foundation, audit, .. } = base;
        let Foundation { db, clock, entropy, secrets } = foundation;
        let accounts = Accounts::of(foundation);
        let breached = BreachedList::default();
        let (list, login) = (breached.clone(), live.snapshot().login.clone());
        let (origins, files) = (live.origins().clone(), live.snapshot().origins.files());
        let read = move || {
            list.follow(&login);
            origins.follow(&files);
        };
        // A file that cannot be read must not keep people from signing in: the overview and the log say so.
        let _ = tokio::task::spawn_blocking(read).await;
        let hasher =
            PasswordHasher::new(settings.password, breached, secrets, clock.clone(), entropy.clone())
                .map_err(StartError::Hash)?;
        let failures = Arc::new(FailureRecord::new(db.clone(), clock.clone()));
        let guard = Arc::new(LoginGuard::new(
            base.limiter.clone(),
            base.local_fallback.clone(),
            Arc::clone(&failures),
            accounts.clone(),
            audit.clone(),
            base.given_up,
        ));
        guard.rebuild_if_lost(&live.snapshot().limits).await;
        let attempts = GuardedAttempts::new(foundation, Arc::clone(&guard), base.shared());
        let factor_verifier = base.factor_verifier(&guard).await;
        let token_keys = base.token_keys().await;
        let (gateways, outbox) = base.gateways()?;
        let codes = base.codes((gateways, base.mailer()?), &accounts).await;
        Ok(Self {
            accounts,
            hasher,
            failures,
            guard,
            issuing: in_process(foundation),
            attempts,
            factor_verifier,
            token_keys,
            codes,
            outbox,
            tuning: Tuning::new(foundation, live.clone(), audit.clone(), instance_name(settings)),
        })
    }

    pub fn app_parts(&self, base: &Base) -> AppParts {
        AppParts {
            clock: base.foundation.clock.clone(),
            db: base.foundation.db.clone(),
            limiter: base.limiter.clone(),
            local_fallback: base.local_fallback.clone(),
            link: base.link.clone(),
            live: base.live.clone(),
            guard: Arc::clone(&self.guard),
        }
    }

    pub fn webhooks(&self, base: &Base) -> Result<Option<Webhooks>, StartError> {
        let sources = NoticeSources {
            audit: base.audit.clone(),
            codes: self.codes.clone(),
            tuning: self.tuning.clone(),
            public_url: base.public_url(),
        };
        let watched = (base.link.clone(), instance_name(&base.settings));
        Ok(Webhooks::open(&base.foundation, &base.settings.webhooks, sources, watched)?)
    }

    pub fn logouts(&self, base: &Base) -> Result<LogoutNotices, StartError> {
        let (keys, live) = (self.token_keys.clone(), base.live.clone());
        LogoutNotices::new(&base.foundation, keys, live, base.public_url()).map_err(StartError::Client)
    }

    fn lookup(&self, base: &Base) -> Lookup {
        Lookup::new(LookupParts {
            limiter: base.limiter.clone(),
            local_fallback: base.local_fallback.clone(),
            failures: Arc::clone(&self.failures),
            issuing: self.issuing.clone(),
            accounts: self.accounts.clone(),
            emails: Emails::new(&base.foundation, self.accounts.clone()),
            attempts: self.attempts.clone(),
            codes: self.codes.clone(),
            audit: base.audit.clone(),
        })
    }

    /// Every part that requests need, each in a line of its own.
    pub fn services(
        self,
        base: &Base,
        health: Arc<AppParts>,
        metrics: PrometheusHandle,
    ) -> Result<Services, StartError> {
        let Base { settings, live, foundation, audit, limiter, .. } = base;
        let (lookup, tokens) = (self.lookup(base), ApiTokens::new(foundation));
        let sessions = Sessions::new(foundation, settings.session).under(live.clone());
        let app_sessions = AppSessions::new(foundation, settings.session).under(live.clone());
        let half_sign_ins = HalfSignIns::new(foundation);
        let emails = Emails::new(foundation, self.accounts.clone());
        let Self { accounts, hasher, guard, codes, .. } = self;
        Ok(Services {
            live: live.clone(),
            tuning: self.tuning,
            audit: audit.clone(),
            attacks: AttackWatch::new(audit.clone()).telling(live.origins().clone()),
            sign_in: SignInService::new(guard.clone(), accounts.clone(), hasher.clone(), &foundation.entropy),
            policy: AuthPolicy::new(foundation, self.attempts.clone(), base.shared()),
            attempts: self.attempts,
            registration: Registration::new(
                guard.clone(),
                (accounts.clone(), emails.clone()),
                hasher.clone(),
                codes.clone(),
            ),
            by_code: ByCode::new(
                foundation,
                codes.clone(),
                guard,
                (accounts.clone(), emails.clone()),
                hasher.clone(),
            ),
            codes,
            outbox: self.outbox,
            public_url: base.public_url(),
            server: settings.server.clone(),
            invitations: Invitations::new(foundation, accounts.clone()),
            accounts,
            emails,
            forms: SubmittedForms::new(foundation, sessions.clone(), half_sign_ins.clone()),
            sessions,
            half_sign_ins,
            factor_verifier: self.factor_verifier,
            profiles: Profiles::new(foundation),
            gate: Gate::new(foundation, app_sessions),
            token_keys: self.token_keys,
            grants: Grants::new(foundation, (settings.oidc, settings.session), live.clone()),
            client_secrets: ClientSecrets::new(foundation),
            refused_requests: RefusedRequests::default(),
            wrong_calls: WrongCalls::new(limiter.clone(), audit.clone()),
            token_gate: TokenGate::new(tokens.clone(), in_process(foundation)),
            tokens,
            custom: CustomLimits::new(limiter.clone(), audit.clone()),
            lookup,
            hooks: SignedHooks::open(&settings.relay)?,
            session_lasts: settings.session.absolute,
            captchas: base.captchas(self.issuing),
            hasher,
            health,
            metrics,
            metrics_from: TrustedProxies::new(settings.server.metrics_from.iter().copied()),
        })
    }
}
