//! Configuration: one TOML file, environment variables over it, read strictly and whole or not at all.
//!
//! [`ConfigSource::load`] gives the [`Settings`], which stay until a restart, and a [`LiveHandle`] to what
//! may change; a [`ConfigWatcher`] keeps the latter in step with the file. `gatehouse.example.toml` lists
//! every key with its default.

mod access;
mod apps;
mod audit;
pub mod backend;
mod captcha;
mod control;
mod database;
mod document;
mod draft;
mod environment;
mod error;
mod limits;
mod live;
mod live_backend;
mod living;
mod loaded;
mod login;
mod nacos;
mod password;
mod programs;
mod reader;
mod renamed;
mod rules;
mod secrets;
mod section;
mod server;
mod session;
mod settings;
mod sms;
mod sms_gateways;
mod source;
mod store;
mod telemetry;
mod template;
mod values;
mod watch;
mod webhooks;

#[cfg(test)]
mod tests;

pub use access::{AccessNetwork, AccessRules, AccessSettings, SmsPause, moment_text};
pub use apps::{App, AppPart, Apps, AskedPath, PathPattern, Who, host_of};
pub use audit::AuditSettings;
pub use captcha::{CaptchaProvider, CaptchaSettings, CaptchaTunables, Difficulty};
pub use control::WatchControl;
pub use database::{Database, DatabaseUrl, SqliteFile};
pub use draft::{
    AccessEdit, AccessSaver, AppsEdit, DocumentDraft, DocumentEdit, DraftEdit, DraftError, DraftSaveError,
    SavedDraft, apps_toml, limits_toml, line_diff, named, rule_json, span_text, with_limit,
};
pub use environment::{Environment, of_process as environment_of_process};
pub use error::{ConfigError, ConfigLocation, ConfigProblem};
pub use limits::{LimitName, LimitSubject, LimitUnit, Limits, SMS_BRAKE, is_custom_name};
pub use live::{InForceConfig, LiveHandle, RefusedChange};
pub use live_backend::{BackendKind, BackendSettings};
pub use loaded::{LoadedConfig, ReloadResult, check};
pub use login::LoginTunables;
pub use nacos::{NacosAccount, NacosSettings};
pub use password::PasswordSettings;
pub use programs::{ProgramText, ProgramTexts, RelaySettings, Relays, fits_one_segment};
pub use reader::nearest;
pub use secrets::Secrets;
pub use server::Server;
pub use session::SessionSettings;
pub use settings::{Config, LiveSettings, Settings};
pub use sms::{Brake, SmsSettings, SmsTunables};
pub use sms_gateways::{AliyunSettings, GatewaySettings, HttpGatewaySettings, HttpMethod, TwilioSettings};
pub use source::{ConfigSource, DEFAULT_FILE, Fingerprint, parse, visited};
pub use store::{StoreSettings, StoreUrl};
pub use telemetry::TelemetrySettings;
pub use template::GatewayTemplate;
pub(crate) use template::{BodyKind, Placeholder, TemplatePiece};
pub use values::{SecretError, SecretRef};
pub use watch::{ConfigWatcher, ReloadOutcome};
pub use webhooks::{WebhookEvent, WebhookSettings};
