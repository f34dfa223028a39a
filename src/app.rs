//! The composition root: the only place that selects implementations.

mod alone;
mod clock_steps;
mod parts;
mod purges;
mod serving;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use gatehouse_limiter::{Eviction, MemoryStore, RedisLink, RedisStore};
use metrics_exporter_prometheus::PrometheusHandle;

use self::parts::{Base, SharedParts};
use crate::accounts::Accounts;
use crate::clock::Clock;
use crate::config::{DatabaseUrl, LiveHandle, Settings, SqliteFile, StoreSettings, StoreUrl};
use crate::db::{ConnectError, CountedBefore, Db, DbError};
use crate::entropy::Entropy;
use crate::foundation::Foundation;
use crate::https;
use crate::login::LoginGuard;
use crate::oidc::LogoutNotices;
use crate::secret::{KeyFile, KeyFileError, MasterKey};
use crate::sms::gateway;
use crate::throttle::{Limiter, Store};
use crate::web::http::headers::SecurityHeaders;
use crate::web::http::{Services, WebContext};
use crate::webhooks::{self, Webhooks};

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
    Mail(#[from] crate::mail::MailOpenError),
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
        let base = Base::open(settings, live, world).await?;
        let shared = SharedParts::open(&base).await?;
        let parts = Arc::new(shared.app_parts(&base));
        let webhooks = shared.webhooks(&base)?;
        let logouts = shared.logouts(&base)?;
        let services = shared.services(&base, Arc::<AppParts>::clone(&parts), metrics)?;
        // If it fails, the upkeep tries again.
        let _ = services.sign_in.follow_imported().await;
        Ok(Self {
            edge: Data::new(base.web_context(&services)),
            security: Data::new(SecurityHeaders::new(&base.settings.server.public_url)),
            services: Data::new(services),
            settings: base.settings,
            parts,
            webhooks,
            logouts,
        })
    }
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

/// What commands work on that run no server.
pub async fn open_foundation_for_command(
    settings: &Settings,
    world: &TimeAndEntropy,
) -> Result<Foundation, StartError> {
    let TimeAndEntropy { clock, entropy } = world.clone();
    let db = Db::connect(&database_url(&settings.database.url)).await?;
    let secrets = open_key_for_command(settings, &db, &entropy).await?;
    Ok(Foundation { db, clock, entropy, secrets })
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

fn database_url(url: &DatabaseUrl) -> String {
    match url {
        DatabaseUrl::Sqlite(SqliteFile::Memory) => "sqlite::memory:".to_owned(),
        DatabaseUrl::Sqlite(SqliteFile::Path(path)) => format!("sqlite://{}", path.display()),
        DatabaseUrl::Postgres(url) => url.to_string(),
    }
}
