//! The composition root: the only place that selects implementations.

mod purges;
mod serving;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use gatehouse_limiter::{MemoryStore, RedisLink, RedisStore};
use metrics_exporter_prometheus::PrometheusHandle;

use crate::accounts::{
    Accounts, ApiTokens, AppSessions, Factors, Grants, HalfSignIns, Passkeys, Profiles, SessionChanges,
    Sessions, SubmittedForms,
};
use crate::audit::{AttackWatch, Audit};
use crate::captcha::{CaptchaService, RedisMarks};
use crate::clock::Clock;
use crate::config::{
    DatabaseUrl, GatewaySettings, LiveHandle, Settings, SqliteFile, StoreSettings, StoreUrl,
};
use crate::custom::{CustomLimits, TokenGate};
use crate::db::{ConnectError, Db};
use crate::entropy::Entropy;
use crate::gate::Gate;
use crate::https;
use crate::login::{
    AttemptOutcomes, AuthPolicy, ByCode, FactorVerifier, FailureRecord, GuardedAttempts, KnownPairs,
    LoginGuard, OpenAttemptStore, PasswordHasher, Registration, SignInService,
};
use crate::lookup::{self, Lookup};
use crate::oidc::{LogoutNotices, RefusedRedirects, TokenKeys, WrongCalls};
use crate::secret::{KeyFileError, MasterKey};
use crate::sms::gateway::{self, OpenedGateway};
use crate::sms::{self, SmsCodes};
use crate::throttle::{Limiter, Store};
use crate::tuning::Tuning;
use crate::web::http::headers::SecurityHeaders;
use crate::web::http::{Services, TrustedProxies, WebContext};
use crate::webhooks::{self, NoticeSources, SignedHooks, WatchedDependencies, Webhooks};

pub use serving::RunningServer;

const REDIS_PREFIX: &str = "gh";
/// How long a start waits for the first connection to Redis before it continues without it.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);

/// The sources of time and randomness, which a test replaces.
#[derive(Clone, Default)]
pub struct TimeAndEntropy {
    pub clock: Clock,
    pub entropy: Entropy,
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Database(#[from] ConnectError),
    #[error(transparent)]
    Key(#[from] KeyFileError),
    #[error("store.url: {0}")]
    Store(redis::RedisError),
    #[error("store.ca_file: {0}")]
    StoreAuthorities(String),
    #[error(transparent)]
    Gateway(#[from] gateway::OpenError),
    #[error(transparent)]
    Webhook(#[from] webhooks::EndpointError),
    #[error(transparent)]
    Hook(#[from] webhooks::HookSecretError),
    #[error("TLS for calls to other servers: {0}")]
    Client(String),
    #[error("password: {0}")]
    Hash(argon2::Error),
    #[error("server.bind: cannot listen on {address}: {reason}")]
    Bind { address: SocketAddr, reason: std::io::Error },
}

pub struct Application {
    pub services: Data<Services>,
    edge: Data<WebContext>,
    security: Data<SecurityHeaders>,
    settings: Settings,
    parts: Arc<AppParts>,
    webhooks: Option<Webhooks>,
    logouts: LogoutNotices,
}

struct AppParts {
    db: Db,
    limiter: Limiter,
    local_fallback: gatehouse_limiter::Limiter<MemoryStore>,
    link: Option<RedisLink>,
    live: LiveHandle,
}

impl Application {
    /// Opens the database and the store, and builds the services on them.
    pub async fn build(
        settings: Settings,
        live: LiveHandle,
        world: TimeAndEntropy,
        metrics: PrometheusHandle,
    ) -> Result<Self, StartError> {
        // redis and sqlx both use TLS through rustls; its crypto provider is selected here, once.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let TimeAndEntropy { clock, entropy } = world;
        let master = MasterKey::load_or_create(&settings.secrets.key_file, &entropy)?;
        let db = Db::connect(&database_url(&settings.database.url)).await?;
        let audit = open_audit(&settings, &db, &clock, &entropy, &master);
        let (store, link) = open_store(&settings.store, &clock).await?;
        let subjects = || master.derive("throttle.subject");
        let in_process =
            || gatehouse_limiter::Limiter::new(MemoryStore::new(clock.clone()), subjects(), &entropy);
        let limiter = Limiter::new(store, subjects(), &entropy);
        let local_fallback = in_process();
        let accounts = Accounts::new(db.clone(), clock.clone(), entropy.clone());
        let hasher = PasswordHasher::new(settings.password, clock.clone(), entropy.clone())
            .map_err(StartError::Hash)?;
        let failures = Arc::new(FailureRecord::new(db.clone(), clock.clone()));
        let guard = Arc::new(LoginGuard::new(
            limiter.clone(),
            local_fallback.clone(),
            failures.clone(),
            accounts.clone(),
            audit.clone(),
        ));
        guard.rebuild_if_lost(&live.snapshot().limits).await;
        let issuing = in_process();
        let mut captchas = CaptchaService::new(
            &master,
            settings.captcha.provider.clone(),
            clock.clone(),
            &entropy,
            issuing.clone(),
            in_process(),
        );
        if let Some(link) = &link {
            captchas = captchas.with_shared_marks(Arc::new(RedisMarks::new(link.clone(), REDIS_PREFIX)));
        }
        let shared = || link.clone().map(|link| (link, REDIS_PREFIX.to_owned()));
        let outcomes = AttemptOutcomes::new(clock.clone(), shared());
        let attempts =
            GuardedAttempts::new(Arc::clone(&guard), outcomes, &master, clock.clone(), entropy.clone());
        let asks = OpenAttemptStore::new(clock.clone(), shared());
        let pairs = KnownPairs::new(db.clone(), clock.clone());
        let policy = AuthPolicy::new(attempts.clone(), asks, pairs, &master);
        let sessions = Sessions::new(
            db.clone(),
            clock.clone(),
            entropy.clone(),
            master.derive("session.token"),
            settings.session,
        )
        .under(live.clone());
        let half_sign_ins =
            HalfSignIns::new(db.clone(), clock.clone(), entropy.clone(), master.derive("session.half"));
        let factors = Factors::new(db.clone(), clock.clone(), entropy.clone(), &master);
        let site = settings.passkeys.site(&settings.server.public_url);
        let passkeys =
            Passkeys::new(db.clone(), clock.clone(), entropy.clone(), &master, site, factors.clone());
        warn_of_foreign(&passkeys).await;
        let profiles = Profiles::new(db.clone(), clock.clone(), entropy.clone());
        let has_passkeys = passkeys.site().is_some();
        let factor_verifier = FactorVerifier::new(Arc::clone(&guard), factors, passkeys);
        let app_sessions = AppSessions::new(
            db.clone(),
            clock.clone(),
            entropy.clone(),
            master.derive("app.session"),
            settings.session,
        )
        .under(live.clone());
        let changes = SessionChanges::new(db.clone(), clock.clone());
        let gate = Gate::new(app_sessions, changes, clock.clone());
        let token_keys =
            TokenKeys::new(db.clone(), clock.clone(), entropy.clone(), audit.clone(), &master, settings.oidc);
        // What cannot be read now is read as soon as the database answers.
        let _ = token_keys.load().await;
        if live.snapshot().apps.all().iter().any(|app| app.oidc.is_some()) {
            token_keys.want();
        }
        let grants = Grants::new(
            (db.clone(), clock.clone(), entropy.clone()),
            master.derive("oidc.token"),
            (settings.oidc, settings.session),
            live.clone(),
        );
        let tokens = ApiTokens::new(db.clone(), clock.clone(), entropy.clone(), master.derive("api.token"));
        let gateway_deps = gateway::GatewayDeps {
            master: &master,
            public_url: &settings.server.public_url,
            timeout: settings.sms.timeout,
            clock: clock.clone(),
            entropy: entropy.clone(),
        };
        let OpenedGateway { gateway, outbox } = gateway::open(&settings.sms.gateway, gateway_deps)?;
        let codes_deps = sms::CodesDeps {
            db: db.clone(),
            limiter: limiter.clone(),
            gateway,
            owners: Arc::new(accounts.clone()),
            clock: clock.clone(),
            entropy: entropy.clone(),
            audit: audit.clone(),
            site: settings.server.domain(),
            programs: settings.verify.clone(),
            relays: settings.relay.iter().map(|(name, relay)| (name.clone(), relay.text.clone())).collect(),
        };
        let codes = SmsCodes::new(codes_deps, &master);
        // If it fails, the first request for a code tries again.
        let _ = codes.rebuild_windows(&live.snapshot()).await;
        let custom = CustomLimits::new(limiter.clone(), audit.clone());
        let wrong_calls = WrongCalls::new(limiter.clone(), audit.clone());
        let lookup = Lookup::new(lookup::LookupParts {
            limiter: limiter.clone(),
            local_fallback: local_fallback.clone(),
            failures,
            issuing,
            accounts: accounts.clone(),
            attempts: attempts.clone(),
            codes: codes.clone(),
            audit: audit.clone(),
        });
        let public_url = settings.server.public_url.as_str().trim_end_matches('/').to_owned();
        let name = instance_name(&settings);
        let tuning = Tuning::new(
            live.clone(),
            db.clone(),
            clock.clone(),
            entropy.clone(),
            audit.clone(),
            name.clone(),
        );
        let sources = NoticeSources {
            audit: audit.clone(),
            codes: codes.clone(),
            tuning: tuning.clone(),
            public_url: public_url.clone(),
        };
        let watched = WatchedDependencies {
            db: db.clone(),
            store: link.clone(),
            instance: name,
            clock: clock.clone(),
            entropy: entropy.clone(),
        };
        let webhooks = Webhooks::open(&settings.webhooks, sources, watched)?;
        let logouts = LogoutNotices::new(
            (db.clone(), clock.clone(), entropy.clone()),
            token_keys.clone(),
            live.clone(),
            public_url.clone(),
        )
        .map_err(StartError::Client)?;
        let hooks = SignedHooks::open(&settings.relay)?;
        let attacks = AttackWatch::new(audit.clone());
        let alarm = attacks.alarm();
        let parts = Arc::new(AppParts { db, limiter, local_fallback, link, live: live.clone() });
        let sign_in = SignInService::new(Arc::clone(&guard), accounts.clone(), hasher.clone());
        // If it fails, the upkeep tries again.
        let _ = sign_in.follow_imported().await;
        let services = Services {
            live,
            tuning,
            audit,
            attacks,
            sign_in,
            attempts,
            policy,
            registration: Registration::new(
                Arc::clone(&guard),
                accounts.clone(),
                hasher.clone(),
                codes.clone(),
            ),
            by_code: ByCode::new(codes.clone(), guard, accounts.clone(), hasher.clone(), entropy.clone()),
            codes,
            outbox,
            public_url,
            server: settings.server.clone(),
            accounts,
            forms: SubmittedForms::new(sessions.clone(), half_sign_ins.clone(), master.derive("web.form")),
            sessions,
            half_sign_ins,
            factor_verifier,
            profiles,
            gate,
            token_keys,
            grants,
            refused_redirects: RefusedRedirects::default(),
            wrong_calls,
            token_gate: TokenGate::new(tokens.clone(), in_process()),
            custom,
            lookup,
            tokens,
            hooks,
            session_lasts: settings.session.absolute,
            captchas,
            hasher,
            health: Arc::<AppParts>::clone(&parts),
            metrics,
            metrics_from: TrustedProxies::new(settings.server.metrics_from.iter().copied()),
        };
        let trusted = TrustedProxies::new(settings.server.trusted_proxies.iter().copied())
            .with_nat64(settings.server.nat64.iter().copied());
        let sends_codes = settings.sms.gateway != GatewaySettings::None;
        let edge = WebContext {
            sends_codes,
            passkeys: has_passkeys,
            outbox: services.outbox.as_ref().map(|_| settings.server.bind),
            alarm,
            ..WebContext::new(&settings.server.public_url, trusted, &master, clock, entropy)
        };
        Ok(Self {
            services: Data::new(services),
            edge: Data::new(edge),
            security: Data::new(SecurityHeaders::new(&settings.server.public_url)),
            settings,
            parts,
            webhooks,
            logouts,
        })
    }
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

/// This process's name among the instances of an installation.
pub fn instance_name(settings: &Settings) -> String {
    format!("{}:{}", host_name(), settings.server.bind.port())
}

/// This machine's name; in a container, the container's.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.chars().take(64).collect(),
    }
}

async fn open_store(
    settings: &StoreSettings,
    clock: &Clock,
) -> Result<(Store, Option<RedisLink>), StartError> {
    match &settings.url {
        StoreUrl::Memory => Ok((Store::Memory(MemoryStore::new(clock.clone())), None)),
        StoreUrl::Redis(url) => {
            let authorities = settings.ca_file.as_deref().map(https::authorities_and).transpose();
            let authorities = authorities.map_err(StartError::StoreAuthorities)?;
            let servers = url.servers(authorities).map_err(StartError::Store)?;
            let store = RedisStore::new(servers, settings.timeout, REDIS_PREFIX, clock.clone())
                .remembering_refusals();
            let link = store.link().clone();
            if !link.ready(FIRST_CONNECTION).await {
                tracing::warn!(
                    "store.url: redis does not answer yet; until it does, everyone needs a CAPTCHA"
                );
            }
            Ok((Store::Redis(store), Some(link)))
        }
    }
}

/// Opens only the database, for commands that run no server.
pub async fn open_accounts(settings: &Settings, world: &TimeAndEntropy) -> Result<Accounts, ConnectError> {
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    Ok(Accounts::new(db, world.clock.clone(), world.entropy.clone()))
}

/// Opens second factors, for commands that run no server.
pub async fn open_factors(settings: &Settings, world: &TimeAndEntropy) -> Result<Factors, StartError> {
    let master = MasterKey::load_or_create(&settings.secrets.key_file, &world.entropy)?;
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    Ok(Factors::new(db, world.clock.clone(), world.entropy.clone(), &master))
}

/// Opens the keys that sign tokens, for commands that run no server.
pub async fn open_token_keys(settings: &Settings, world: &TimeAndEntropy) -> Result<TokenKeys, StartError> {
    let TimeAndEntropy { clock, entropy } = world;
    let master = MasterKey::load_or_create(&settings.secrets.key_file, entropy)?;
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    let audit = open_audit(settings, &db, clock, entropy, &master);
    Ok(TokenKeys::new(db, clock.clone(), entropy.clone(), audit, &master, settings.oidc))
}

/// Opens the record of events, for commands that run no server.
pub async fn open_record(settings: &Settings, world: &TimeAndEntropy) -> Result<Audit, StartError> {
    let master = MasterKey::load_or_create(&settings.secrets.key_file, &world.entropy)?;
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    Ok(open_audit(settings, &db, &world.clock, &world.entropy, &master))
}

fn open_audit(settings: &Settings, db: &Db, clock: &Clock, entropy: &Entropy, master: &MasterKey) -> Audit {
    Audit::new(
        db.clone(),
        clock.clone(),
        entropy.clone(),
        master.derive("audit.subject"),
        settings.audit.clone(),
    )
}

fn database_url(url: &DatabaseUrl) -> String {
    match url {
        DatabaseUrl::Sqlite(SqliteFile::Memory) => "sqlite::memory:".to_owned(),
        DatabaseUrl::Sqlite(SqliteFile::Path(path)) => format!("sqlite://{}", path.display()),
        DatabaseUrl::Postgres(url) => url.to_string(),
    }
}
