//! Configuration: one TOML file, environment variables over it, read strictly and whole or not at all.
//!
//! [`ConfigSource::load`] gives the [`Settings`], which stay until a restart, and a [`LiveHandle`] to what
//! may change; a [`ConfigWatcher`] keeps the latter in step with the file. `gatehouse.example.toml` lists
//! every key with its default.

mod access;
mod apps;
mod backend;
mod backend_settings;
mod brand;
mod clients;
mod document;
mod draft;
mod error;
mod factors;
mod limits;
mod live;
mod live_section;
mod mail;
mod misspelt;
mod money;
mod oidc;
mod origins;
mod programs;
mod reader;
mod sections;
mod settings;
mod sms;
mod source;
mod values;
mod watch;
mod webhooks;

#[cfg(test)]
mod tests;

pub use access::{
    AccessDenial, AccessNetwork, AccessRules, AccessSettings, DeniedSubject, SmsPause, moment_text,
};
pub use apps::{App, AppFactor, AppPart, Apps, AskedPath, PathPattern, Who, as_span, host_of};
pub use backend::WatchControl;
pub use backend_settings::{BackendKind, BackendSettings, NacosAccount, NacosSettings};
pub use brand::{Brand, Colour, Logo};
pub use clients::{ClientSecret, Consent, EmailSource, GroupPattern, OidcClient, Pkce, RedirectUri};
pub use document::{Environment, of_process as environment_of_process};
pub use draft::{
    AccessSaver, CheckedEdit, Draft, DraftError, Edit, LiveTexts, Overridden, SaveError, SavedEdit,
    limits_toml, line_diff, named_limits, read_limits,
};
pub use error::{ConfigError, ConfigLocation, ConfigProblem};
pub use factors::{FactorSettings, RequiredOf};
pub use limits::{
    BESIDE_LIMITS, LimitName, LimitSubject, LimitUnit, Limits, SMS_BRAKE, SMS_BUDGET, SMS_COUNTRY,
    is_custom_name,
};
pub use live::{InForceConfig, LiveHandle, LoadedConfig, RefusedChange, ReloadResult};
pub use live_section::LiveSection;
pub use mail::{MailSecurity, MailServer, MailSettings, MailTunables, ResetByMail};
pub use money::{DailyBudget, Money};
pub use oidc::{OidcSettings, SigningAlgorithm};
pub use origins::{OriginList, OriginSettings};
pub use programs::{ProgramText, ProgramTexts, RelaySettings, Relays, fits_one_segment};
pub use reader::nearest;
pub use sections::{
    AuditSettings, BreachedAction, CaptchaProvider, CaptchaSettings, CaptchaTunables, Database, DatabaseUrl,
    Difficulty, LoginTunables, PasswordSettings, RegistrationMode, RegistrationProof, RegistrationSettings,
    Secrets, Server, SessionSettings, SqliteFile, StoreSettings, StoreUrl, TelemetrySettings,
};
pub use settings::{Config, LiveSettings, Settings};
pub use sms::{
    AliyunSettings, Brake, CountryMode, CountrySettings, GLOBAL_NETWORKS, GatewaySettings, GatewayTemplate,
    HttpGatewaySettings, HttpMethod, ListedGateway, SmsSettings, SmsTunables, TencentSettings,
    TwilioSettings,
};
pub(crate) use sms::{BodyKind, Placeholder, TemplatePiece};
pub use source::{ConfigSource, DEFAULT_FILE, Fingerprint, parse, visited};
pub use values::{SecretError, SecretRef, span_text};
pub use watch::{ConfigWatcher, ReloadOutcome};
pub use webhooks::{WebhookEvent, WebhookSettings};
