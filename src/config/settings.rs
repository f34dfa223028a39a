//! The whole configuration: what stays until a restart, and what may change while the server runs.

use super::audit::AuditSettings;
use super::captcha::{self, CaptchaProvider, CaptchaTunables};
use super::database::Database;
use super::error::Place;
use super::home::HomeKind;
use super::limits::Limits;
use super::live_home::HomeSettings;
use super::login::LoginTunables;
use super::password::PasswordSettings;
use super::reader::Section;
use super::secrets::Secrets;
use super::server::Server;
use super::session::SessionSettings;
use super::sms::{self, SmsSettings, SmsTunables};
use super::sms_gateways::Gateway;
use super::store::{StoreSettings, StoreUrl};
use super::values::shown;
use crate::throttle::Limit;

/// What one document says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    pub settings: Settings,
    pub live: Live,
}

/// What is read once, when the server starts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    pub server: Server,
    pub database: Database,
    pub store: StoreSettings,
    pub home: HomeSettings,
    pub secrets: Secrets,
    pub password: PasswordSettings,
    pub session: SessionSettings,
    pub captcha_provider: CaptchaProvider,
    pub sms: SmsSettings,
    pub audit: AuditSettings,
}

/// What is swapped as a whole when the document changes. A request takes one snapshot of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Live {
    pub limits: Limits,
    pub captcha: CaptchaTunables,
    pub login: LoginTunables,
    pub sms: SmsTunables,
}

impl Config {
    pub(super) fn read(root: &mut Section<'_>) -> Self {
        let mut bind_at = None;
        let server = root.section("server", |section| {
            bind_at = section.place_of("bind");
            Server::read(section)
        });
        let database = root.section("database", Database::read);
        let store = root.section("store", StoreSettings::read);
        let mut home_at = None;
        let home = root.section("live", |section| {
            home_at = section.place_of("home");
            HomeSettings::read(section)
        });
        if let (HomeKind::Redis, None, StoreUrl::Memory, Some(place)) =
            (home.home, &home.url, &store.url, home_at)
        {
            let reason = "is \"redis\", and there is none: store.url is memory:. Set live.url or store.url to redis://…";
            root.refuse(place, "live.home".to_owned(), reason);
        }
        let secrets = root.section("secrets", Secrets::read);
        let password = root.section("password", PasswordSettings::read);
        let session = root.section("session", SessionSettings::read);
        let (captcha_provider, captcha) = root.section("captcha", captcha::read);
        let login = root.section("login", LoginTunables::read);
        // A gateway that was refused stands as the outbox here; it must not be blamed a second time.
        let mut retention_at = None;
        let (sms_settings, sms, outbox) = root.section("sms", |section| {
            retention_at = section.place_of("retention");
            let (settings, tunables) = sms::read(section);
            let outbox = settings.gateway == Gateway::Outbox && !section.failed();
            (settings, tunables, outbox)
        });
        let audit = root.section("audit", AuditSettings::read);
        let limits_at = root.place_of("limits");
        let limits = root.section("limits", Limits::read);
        if let Some(place) = bind_at.filter(|_| !server.on_loopback()) {
            refuse_development_parts(root, &server, &place, &captcha_provider, outbox);
        }
        // Without a place there is nothing to point at but the limit, and its longest is checked below.
        refuse_short_memory(root, retention_at.or_else(|| limits_at.clone()), &sms, &limits);
        let settings = Settings {
            server,
            database,
            store,
            home,
            secrets,
            password,
            session,
            captcha_provider,
            sms: sms_settings,
            audit,
        };
        Self { settings, live: Live { limits, captcha, login, sms } }
    }
}

/// The outbox shows everyone's codes and the fixed CAPTCHA stops nobody: neither may be reachable.
fn refuse_development_parts(
    root: &Section<'_>,
    server: &Server,
    place: &Place,
    captcha: &CaptchaProvider,
    outbox: bool,
) {
    let fixed = matches!(captcha, CaptchaProvider::Fixed { .. });
    let parts = match (outbox, fixed) {
        (true, true) => "sms.gateway = \"outbox\" and captcha.provider = \"fixed\" are",
        (true, false) => "sms.gateway = \"outbox\" (also the default) is",
        (false, true) => "captcha.provider = \"fixed\" is",
        (false, false) => return,
    };
    let reason = format!(
        "{} can be reached from other machines, and {parts} for development only; choose others, or bind 127.0.0.1",
        server.bind
    );
    root.refuse(place.clone(), "server.bind".to_owned(), reason);
}

/// A limit that looks back further than the ledger would be wrong once it has to be rebuilt from it.
fn refuse_short_memory(root: &Section<'_>, place: Option<Place>, sms: &SmsTunables, limits: &Limits) {
    let Some(place) = place else { return };
    let longest = |limit: &Limit| limit.rules().iter().map(|rule| rule.span.longest()).max();
    for limit in limits.on_messages() {
        if let Some(span) = longest(limit).filter(|span| *span > sms.retention) {
            let reason = format!(
                "{} is shorter than limits.{} looks back; it must be at least {}",
                shown(sms.retention),
                limit.name(),
                shown(span)
            );
            root.refuse(place, "sms.retention".to_owned(), reason);
            return;
        }
    }
}

/// The dotted keys whose values differ, out of those listed.
macro_rules! differing {
    ($one:expr, $other:expr; $($($part:ident).+ => $key:literal),+ $(,)?) => {
        [$(($one.$($part).+ != $other.$($part).+, $key)),+]
            .into_iter().filter_map(|(differs, key)| differs.then_some(key)).collect()
    };
}

impl Settings {
    /// The keys that `other` has different from these, which take a restart to follow.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        differing!(self, other;
            server.bind => "server.bind",
            server.public_url => "server.public_url",
            server.trusted_proxies => "server.trusted_proxies",
            server.metrics_from => "server.metrics_from",
            server.workers => "server.workers",
            database.url => "database.url",
            store.url => "store.url",
            store.timeout => "store.timeout",
            home => "live",
            secrets.key_file => "secrets.key_file",
            password.memory_kib => "password.memory_kib",
            password.iterations => "password.iterations",
            password.parallelism => "password.parallelism",
            password.queue => "password.queue",
            password.workers => "password.workers",
            session.idle => "session.idle",
            session.absolute => "session.absolute",
            session.confirm => "session.confirm",
            captcha_provider => "captcha.provider",
            sms.gateway => "sms.gateway",
            sms.timeout => "sms.timeout",
            audit.retention => "audit.retention",
            audit.max_rows => "audit.max_rows",
        )
    }
}
