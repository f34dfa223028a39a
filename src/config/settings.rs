//! The whole configuration: what is fixed until a restart, and what is live.

use std::sync::Arc;

use super::access::{AccessRules, AccessSettings};
use super::apps::{self, Apps};
use super::backend_settings::{BackendKind, BackendSettings};
use super::brand::Brand;
use super::error::{ConfigLocation, ConfigProblem};
use super::factors::FactorSettings;
use super::limits::Limits;
use super::mail::{self, MailSettings, MailTunables};
use super::oidc::OidcSettings;
use super::origins::OriginSettings;
use super::programs::{self, ProgramTexts, Relays};
use super::reader::{SectionReader, SectionTable};
use super::sections::{
    self, AuditSettings, CaptchaProvider, CaptchaSettings, CaptchaTunables, Database, LoginTunables,
    PasskeySettings, PasswordSettings, RegistrationProof, RegistrationSettings, Secrets, Server,
    SessionSettings, StoreSettings, StoreUrl, TelemetrySettings,
};
use super::sms::{SmsSettings, SmsTunables};
use super::values::shown;
use super::webhooks::{self, WebhookSettings};

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// What is accepted and should be changed all the same.
    pub warnings: Vec<ConfigProblem>,
    pub settings: Settings,
    pub live: LiveSettings,
}

/// Read once, when the server starts.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    pub server: Server,
    pub database: Database,
    pub store: StoreSettings,
    pub backend: BackendSettings,
    pub secrets: Secrets,
    pub password: PasswordSettings,
    pub session: SessionSettings,
    pub passkeys: PasskeySettings,
    pub oidc: OidcSettings,
    pub captcha: CaptchaSettings,
    pub sms: SmsSettings,
    pub mail: MailSettings,
    pub verify: ProgramTexts,
    pub relay: Relays,
    pub audit: AuditSettings,
    pub webhooks: Vec<WebhookSettings>,
    pub telemetry: TelemetrySettings,
}

/// Replaced as a whole when the document changes. A request takes one snapshot of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LiveSettings {
    pub limits: Limits,
    pub access: AccessRules,
    pub apps: Apps,
    pub factors: Arc<FactorSettings>,
    pub brand: Arc<Brand>,
    pub captcha: CaptchaTunables,
    pub login: LoginTunables,
    pub origins: OriginSettings,
    pub registration: RegistrationSettings,
    pub sms: SmsTunables,
    pub mail: MailTunables,
}

impl Config {
    pub(super) fn read(root: &mut SectionReader<'_>) -> Self {
        let (bind_at, backend_at) = (root.place_in("server", "bind"), root.place_in("live", "backend"));
        let endpoint_at = root.place_in("telemetry", "otlp_endpoint");
        let rp_id_at = root.place_in("passkeys", "rp_id");
        let budget_at = root.place_in("sms", "budget");
        let blocks_at = root.place_in("sms", "budget_blocks");
        let require_at = root.place_in("registration", "require");
        // Without a place the only thing to point at is the limit.
        let retention_at = root.place_in("sms", "retention").or_else(|| root.place_of("limits"));
        // A gateway that was refused is read as the outbox, which must not cause a second problem.
        let mut sms_failed = false;
        let (sms, live_sms) = root.section("sms", |section| {
            let read = (SmsSettings::read(section), SmsTunables::read(section));
            sms_failed = section.failed();
            for country in read.1.countries.iter().filter(|country| !read.0.serves(country)) {
                let reason = format!("{country} is served by none of the gateways; add it to the countries of one, or remove it here");
                section.warn_key("countries", reason);
            }
            read
        });
        let (mail, live_mail) = root.section("mail", mail::read);
        let (captcha, live_captcha) = root
            .section("captcha", |section| (CaptchaSettings::read(section), CaptchaTunables::read(section)));
        let settings = Settings {
            server: root.section("server", sections::read_server),
            database: root.table(),
            store: root.table(),
            backend: root.table(),
            secrets: root.table(),
            password: root.table(),
            session: root.section("session", sections::read_session),
            passkeys: root.table(),
            oidc: root.table(),
            captcha,
            sms,
            mail,
            verify: root.section("verify", programs::read),
            relay: root.section("relay", programs::read_relays),
            audit: root.table(),
            webhooks: webhooks::read(root),
            telemetry: root.table(),
        };
        let proxies = &settings.server.trusted_proxies;
        let knows_lists = root.has("origins");
        let origins: OriginSettings = root.table();
        let lists = knows_lists.then_some(&*origins.lists);
        let access = root.section("access", |section| AccessSettings::read(section, proxies, lists));
        let live = LiveSettings {
            limits: root.section("limits", Limits::read),
            access: access.into(),
            apps: apps::read(root, &settings.server.public_url),
            factors: Arc::new(root.table()),
            brand: Arc::new(root.table()),
            captcha: live_captcha,
            login: root.table(),
            origins,
            registration: root.table(),
            sms: live_sms,
            mail: live_mail,
        };
        sections::refuse_secrets_in_clear(root, endpoint_at, &settings.telemetry);
        refuse_no_redis(root, backend_at, &settings);
        sections::refuse_foreign_rp_id(root, rp_id_at, &settings.passkeys, &settings.server.public_url);
        let outbox = settings.sms.shows() && !sms_failed;
        refuse_development_parts(root, bind_at, &settings, outbox);
        refuse_short_memory(root, retention_at, &live.sms, &live.limits);
        if let Some(place) =
            budget_at.filter(|_| !sms_failed && live.sms.budget.is_some() && !live.sms.has_prices())
        {
            const NO_PRICES: &str = "counts nothing without prices; set sms.price, or price in the [sms.country.XX] that are sent to";
            root.refuse(place, "sms.budget".to_owned(), NO_PRICES.to_owned());
        }
        if let Some(place) =
            blocks_at.filter(|_| !sms_failed && live.sms.budget_blocks && live.sms.budget.is_none())
        {
            const NO_BUDGET: &str = "needs sms.budget, such as \"200 EUR / day\"";
            root.refuse(place, "sms.budget_blocks".to_owned(), NO_BUDGET.to_owned());
        }
        let mail_works = settings.mail.sends(&settings.server, &settings.sms);
        if let Some(place) = require_at
            .filter(|_| live.registration.requires(RegistrationProof::Email) && !mail_works && !sms_failed)
        {
            const NO_MAIL: &str = "has \"email\", but no mail is sent; set mail.url, or leave it out";
            root.refuse(place, "registration.require".to_owned(), NO_MAIL.to_owned());
        }
        Self { warnings: Vec::new(), settings, live }
    }
}

fn refuse_no_redis(root: &SectionReader<'_>, place: Option<ConfigLocation>, settings: &Settings) {
    let Settings { backend, store, .. } = settings;
    if let (BackendKind::Redis, None, StoreUrl::Memory, Some(place)) =
        (backend.backend, &backend.url, &store.url, place)
    {
        let reason = "is \"redis\", but store.url is memory:. Set live.url or store.url to redis://…";
        root.refuse(place, "live.backend".to_owned(), reason);
    }
}

/// The outbox shows everybody's codes, and the fixed CAPTCHA stops nobody: neither may be reachable from
/// outside.
fn refuse_development_parts(
    root: &SectionReader<'_>,
    place: Option<ConfigLocation>,
    settings: &Settings,
    outbox: bool,
) {
    let server = &settings.server;
    let Some(place) = place.filter(|_| !server.on_loopback()) else { return };
    let fixed = matches!(settings.captcha.provider, CaptchaProvider::Fixed { .. });
    let parts = match (outbox, fixed) {
        (true, true) => "sms.gateway = \"outbox\" and captcha.provider = \"fixed\" are",
        (true, false) => "sms.gateway = \"outbox\" (also the default) is",
        (false, true) => "captcha.provider = \"fixed\" is",
        (false, false) => return,
    };
    let reason = format!(
        "{} can be reached from other machines, but {parts} for development only; choose others, or bind 127.0.0.1",
        server.bind
    );
    root.refuse(place, "server.bind".to_owned(), reason);
}

/// A limit that looks back further than the ledger would be wrong after it was rebuilt from it.
fn refuse_short_memory(
    root: &SectionReader<'_>,
    place: Option<ConfigLocation>,
    sms: &SmsTunables,
    limits: &Limits,
) {
    let Some(place) = place else { return };
    for limit in limits.on_messages() {
        let span = limit.longest_window();
        if span > sms.retention {
            let reason = format!(
                "{} is shorter than the longest span of limits.{}; it must be at least {}",
                shown(sms.retention),
                limit.name(),
                shown(span)
            );
            root.refuse(place, "sms.retention".to_owned(), reason);
            return;
        }
    }
}

impl Settings {
    /// The keys that differ in `other` and need a restart.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self {
            server,
            database,
            store,
            backend,
            secrets,
            password,
            session,
            passkeys,
            oidc,
            captcha,
            sms,
            mail,
            verify,
            relay,
            audit,
            webhooks,
            telemetry,
        } = self;
        [
            server.differences(&other.server),
            database.differences(&other.database),
            store.differences(&other.store),
            backend.differences(&other.backend),
            secrets.differences(&other.secrets),
            password.differences(&other.password),
            session.differences(&other.session),
            passkeys.differences(&other.passkeys),
            oidc.differences(&other.oidc),
            captcha.differences(&other.captcha),
            sms.differences(&other.sms),
            mail.differences(&other.mail),
            audit.differences(&other.audit),
            telemetry.differences(&other.telemetry),
            if *webhooks == other.webhooks { Vec::new() } else { vec!["webhooks"] },
            if *verify == other.verify { Vec::new() } else { vec!["verify"] },
            if *relay == other.relay { Vec::new() } else { vec!["relay"] },
        ]
        .concat()
    }
}
