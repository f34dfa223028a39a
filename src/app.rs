//! The composition root: the only place that selects implementations.

mod alone;
mod clock_steps;
mod purges;
mod serving;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use gatehouse_limiter::{Eviction, MemoryStore, RedisLink, RedisStore};
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
use crate::db::{ConnectError, CountedBefore, Db, DbError};
use crate::entropy::Entropy;
use crate::gate::Gate;
use crate::https;
use crate::login::{
    AttemptOutcomes, AuthPolicy, ByCode, FactorVerifier, FailureRecord, GuardedAttempts, KnownPairs,
    LoginGuard, OpenAttemptStore, PasswordHasher, Registration, SignInService,
};
use crate::lookup::{self, Lookup};
use crate::oidc::{LogoutNotices, RefusedRequests, TokenKeys, WrongCalls};
use crate::secret::{KeyFile, KeyFileError, MasterKey};
use crate::sms::gateway::{self, OpenedGateway};
use crate::sms::{self, SmsCodes};
use crate::throttle::{Limiter, Store};
use crate::tuning::Tuning;
use crate::web::http::headers::SecurityHeaders;
use crate::web::http::{Services, TrustedProxies, WebContext};
use crate::webhooks::{self, NoticeSources, SignedHooks, WatchedDependencies, Webhooks};

pub use alone::wait_until_alone;
pub use serving::RunningServer;

const REDIS_PREFIX: &str = "gh";
/// How long a start waits for the first connection to Redis before it continues without it.
const FIRST_CONNECTION: Duration = Duration::from_secs(1);
/// How long the marks of complete windows stay in Redis while no instance looks at them; each does every second. Its
/// clock set forward by as much is a loss at once.
const MARK_LIFE: Duration = Duration::from_secs(60);

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
    #[error("the database failed at the start: {0}")]
    Db(#[from] DbError),
    #[error("secrets.key_file {}: {}", .path.display(), if *.there { OTHER_KEY } else { NO_KEY })]
    OtherKey { path: PathBuf, there: bool },
    #[error(
        "store.url: memory: counts in one process alone, and other instances run on this database, so each would admit what a limit allows: {0}; stop them, or give all of them the same Redis"
    )]
    NotAlone(String),
    #[error("store.url: {0}")]
    Store(redis::RedisError),
    #[error(
        "store.url: redis forgets what is counted when its memory is full ({0}); set maxmemory-policy noeviction there, or allow_eviction = true in [store]"
    )]
    StoreEvicts(Eviction),
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

const OTHER_KEY: &str = "what is in the database was hashed under another key, so nothing of it would be found, and no limit would count it; put the file of the other instances or of the backup there, or, if that is lost: gatehouse key replace";
const NO_KEY: &str = "there is no such file, and what is in the database was hashed under one, so no limit would count it; put the file of the other instances or of the backup there, or, if that is lost: gatehouse key replace";

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
    clock: Clock,
    db: Db,
    limiter: Limiter,
    local_fallback: gatehouse_limiter::Limiter<MemoryStore>,
    link: Option<RedisLink>,
    live: LiveHandle,
    guard: Arc<LoginGuard>,
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
        let db = Db::connect(&database_url(&settings.database.url)).await?;
        let (master, given_up) = open_key(&settings, &db, &entropy).await?;
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
            given_up,
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
        let token_keys = TokenKeys::new(
            db.clone(),
            clock.clone(),
            entropy.clone(),
            audit.clone(),
            &master,
            (settings.oidc, Some(live.clone())),
        );
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
            given_up,
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
        let parts = Arc::new(AppParts {
            clock: clock.clone(),
            db,
            limiter,
            local_fallback,
            link,
            live: live.clone(),
            guard: Arc::clone(&guard),
        });
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
            refused_requests: RefusedRequests::default(),
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
            let open = if settings.allow_eviction { RedisStore::allowing_eviction } else { RedisStore::new };
            let store = open(servers, settings.timeout, REDIS_PREFIX.to_owned(), clock.clone());
            let store = store.remembering_refusals();
            let store = match clock {
                Clock::System => store.expiring_marks(MARK_LIFE),
                // A test's clock advances by hours, which would expire the marks.
                Clock::Manual(_) => store,
            };
            let link = store.link().clone();
            let ready = link.ready(FIRST_CONNECTION).await;
            if let Some(eviction) = link.eviction().filter(|_| !settings.allow_eviction) {
                return Err(StartError::StoreEvicts(eviction));
            }
            if !ready {
                tracing::warn!(
                    "store.url: redis does not answer yet; until it does, everyone needs a CAPTCHA"
                );
            }
            Ok((Store::Redis(store), Some(link)))
        }
    }
}

/// The policy by which the store's servers evict, if they do and can be reached now.
pub async fn eviction(settings: &StoreSettings) -> Result<Option<Eviction>, StartError> {
    let StoreUrl::Redis(_) = settings.url else { return Ok(None) };
    let allowing = StoreSettings { allow_eviction: true, ..settings.clone() };
    let (_, link) = open_store(&allowing, &Clock::System).await?;
    Ok(link.and_then(|link| link.eviction()))
}

/// Opens only the database, for commands that run no server.
pub async fn open_accounts(settings: &Settings, world: &TimeAndEntropy) -> Result<Accounts, ConnectError> {
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    Ok(Accounts::new(db, world.clock.clone(), world.entropy.clone()))
}

/// Opens second factors, for commands that run no server.
pub async fn open_factors(settings: &Settings, world: &TimeAndEntropy) -> Result<Factors, StartError> {
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    let master = open_key_for_command(settings, &db, &world.entropy).await?;
    Ok(Factors::new(db, world.clock.clone(), world.entropy.clone(), &master))
}

/// Opens the keys that sign tokens, for commands that run no server.
pub async fn open_token_keys(settings: &Settings, world: &TimeAndEntropy) -> Result<TokenKeys, StartError> {
    let TimeAndEntropy { clock, entropy } = world;
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    let master = open_key_for_command(settings, &db, entropy).await?;
    let audit = open_audit(settings, &db, clock, entropy, &master);
    Ok(TokenKeys::new(db, clock.clone(), entropy.clone(), audit, &master, (settings.oidc, None)))
}

/// What became of the key.
pub enum KeyReplacement {
    /// Another one was made; where the one before is now, if it was there.
    Made { old: Option<PathBuf> },
    /// The file that was there, under which the database was not hashed, is its key now.
    Taken,
    /// These run, and go on with the key that they have read.
    Running(Vec<String>),
}

/// Gives up what was hashed under the key of the database for another one.
pub async fn replace_key(settings: &Settings, world: &TimeAndEntropy) -> Result<KeyReplacement, StartError> {
    let path = &settings.secrets.key_file;
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    let running = alone::that_run(settings, &db, &world.clock).await?;
    if !running.is_empty() {
        return Ok(KeyReplacement::Running(running));
    }
    let (found, known) = (KeyFile::find(path)?, db.key_check().await?);
    let is_other = |file: &KeyFile| known.as_ref().is_some_and(|it| it.value != file.master().check_value());
    let replacement = match found {
        Some(file) if is_other(&file) => KeyReplacement::Taken,
        found => KeyReplacement::Made { old: found.map(KeyFile::set_aside).transpose()? },
    };
    let master = MasterKey::load_or_create(path, &world.entropy)?;
    db.replace_key_check(&master.check_value()).await?;
    Ok(replacement)
}

/// Opens the record of events, for commands that run no server.
pub async fn open_record(settings: &Settings, world: &TimeAndEntropy) -> Result<Audit, StartError> {
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    let master = open_key_for_command(settings, &db, &world.entropy).await?;
    Ok(open_audit(settings, &db, &world.clock, &world.entropy, &master))
}

/// The key under which the database was hashed, which the first server makes: the database takes it as its own.
async fn open_key(
    settings: &Settings,
    db: &Db,
    entropy: &Entropy,
) -> Result<(MasterKey, CountedBefore), StartError> {
    let master = open_key_for_command(settings, db, entropy).await?;
    let check = db.take_key_check(&master.check_value()).await?;
    match check.value == master.check_value() {
        true => Ok((master, check.given_up)),
        false => Err(StartError::OtherKey { path: settings.secrets.key_file.clone(), there: true }),
    }
}

/// Opens the key without making it the database's: a command may run where the file of the servers is not.
async fn open_key_for_command(
    settings: &Settings,
    db: &Db,
    entropy: &Entropy,
) -> Result<MasterKey, StartError> {
    let path = &settings.secrets.key_file;
    let other = |there| StartError::OtherKey { path: path.clone(), there };
    let check = db.key_check().await?;
    let file = match KeyFile::find(path)? {
        Some(file) => file,
        None if check.is_some() => return Err(other(false)),
        None => {
            let made = KeyFile::load_or_create(path, entropy)?;
            tracing::info!(
                path = %path.display(),
                "secrets.key_file: there was none, so a key was made; every instance needs this file, and so do the backups"
            );
            made
        }
    };
    let master = file.master();
    match check.is_none_or(|check| check.value == master.check_value()) {
        true => Ok(master),
        false => Err(other(true)),
    }
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
